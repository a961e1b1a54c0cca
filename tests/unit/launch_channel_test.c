/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c over a socket pair: heartbeat, silence, loss, sealing. wire_frame_test.c has
 * the frames. */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "runtime/launch/channel.h"
#include "tests/unit/launch_fixture.h"

struct pair {
    struct channel a, b;
    int tap[2]; /* data from a is read at tap[0]; data written to tap[1] reaches b */
};

static struct pair open_pair(bool with_tap)
{
    struct auth_session a = {{1}, {2}}, b = {{2}, {1}};
    struct pair p = {.tap = {-1, -1}};
    int near[2], far[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, near), 0);
    far[1] = near[1];
    if (with_tap) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, far), 0);
        p.tap[0] = near[1];
        p.tap[1] = far[0];
    }
    channel_init(&p.a, near[0], &a, 1000, 0);
    channel_init(&p.b, far[1], &b, 1000, 0);
    return p;
}

static void close_pair(struct pair *p)
{
    channel_release(&p->a);
    channel_release(&p->b);
    for (int i = 0; i < 2; i++)
        if (p->tap[i] >= 0)
            (void)close(p->tap[i]);
}

/* The next frame's type; 0: there is none; negative: an error. */
static int next_type(struct channel *c, uint64_t now_ns)
{
    struct frame f;
    struct err err = ERR_INIT;
    int rc;
    channel_serve(c);
    rc = channel_next(c, now_ns, &f, &err);
    return rc <= 0 ? rc : f.type;
}

UNIT_TEST(frames_that_came_before_the_end_are_not_lost)
{
    CLEANUP(close_pair) struct pair p = open_pair(false);
    struct frame f;
    struct err err = ERR_INIT;
    assert_int_equal(channel_send(&p.a, 1, "last", 4, 0), 0);
    channel_release(&p.a);
    assert_int_equal(channel_send(&p.b, 1, "", 0, 0), -EPIPE); /* and writing fails */
    channel_serve(&p.b);
    assert_int_equal(channel_next(&p.b, 9, &f, &err), 1);
    assert_memory_equal(f.p, "last", 4);
    assert_int_equal(p.b.received_ns, 9);
    assert_int_equal(channel_next(&p.b, 9, &f, &err), 0);
    assert_int_equal(p.b.lost, -EPIPE);
}

UNIT_TEST(a_changed_frame_is_an_error_with_a_sentence)
{
    CLEANUP(close_pair) struct pair p = open_pair(true);
    struct frame f;
    struct err err = ERR_INIT;
    char bytes[100];
    assert_int_equal(channel_send(&p.a, 1, "x", 1, 0), 0);
    ssize_t n = read(p.tap[0], bytes, sizeof(bytes));
    bytes[8] ^= 1;
    assert_int_equal(write(p.tap[1], bytes, (size_t)n), n);
    channel_serve(&p.b);
    assert_int_equal(channel_next(&p.b, 0, &f, &err), -EBADMSG);
    assert_string_equal(err.text, "a frame is not authentic or larger than 1000 bytes");
}

/* A frame that does not fit is missing: the peer is lost, not a message. */
UNIT_TEST(a_dropped_frame_ends_the_channel)
{
    CLEANUP(close_pair) struct pair p = open_pair(false);
    static char block[1 << 20];
    uint64_t next;
    int rc = 0;
    for (int n = 0; rc == 0 && n < 200; n++)
        rc = channel_send(&p.a, 1, block, sizeof(block), 0);
    assert_int_equal(rc, -ENOBUFS);
    assert_int_equal(p.a.lost, -ENOBUFS);
    assert_int_equal(channel_tick(&p.a, 9, 6 * S, 0, &next), -ENOBUFS);
}

UNIT_TEST(silence_is_noticed_and_pings_prevent_it)
{
    CLEANUP(close_pair) struct pair p = open_pair(false);
    uint64_t next = 0;
    assert_int_equal(channel_tick(&p.a, 9, 6 * S, S / 2, &next), 0);
    assert_int_equal(next, 1 * S); /* a sixth of the timeout after the last send */
    assert_int_equal(next_type(&p.b, S), 0); /* no ping yet */
    assert_int_equal(channel_tick(&p.a, 9, 6 * S, S, &next), 0);
    assert_int_equal(next_type(&p.b, S), 9);
    assert_int_equal(channel_tick(&p.b, 9, 6 * S, 7 * S - 1, &next), 0);
    assert_int_equal(channel_tick(&p.b, 9, 6 * S, 7 * S, &next), -ETIMEDOUT);
}

/* The bytes on the way show nothing of a sealed channel's payload, the same text twice
 * looks different, and a changed byte is found. */
static void check_sealed(size_t at)
{
    static const char text[] = "the same secret text";
    CLEANUP(close_pair) struct pair p = open_pair(true);
    uint8_t seen[3][256];
    struct frame f;
    struct err err = ERR_INIT;
    const ssize_t n = FRAME_HEADER_BYTES + sizeof(text) + FRAME_TAG_BYTES;
    channel_seal(&p.a);
    channel_seal(&p.b);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(channel_send(&p.a, 3, text, sizeof(text), 0), 0);
        assert_int_equal(read(p.tap[0], seen[i], sizeof(seen[i])), n);
        assert_null(memmem(seen[i], (size_t)n, "secret", 6));
    }
    assert_memory_not_equal(seen[0] + 8, seen[1] + 8, sizeof(text));
    seen[2][at] ^= 1;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(write(p.tap[1], seen[i], (size_t)n), n);
        channel_serve(&p.b);
        assert_int_equal(channel_next(&p.b, 0, &f, &err), i < 2 ? 1 : -EBADMSG);
        if (i == 2)
            break;
        assert_true(f.type == 3 && f.n == sizeof(text));
        assert_memory_equal(f.p, text, sizeof(text));
    }
}

UNIT_TEST(a_sealed_channel_hides_what_it_carries)
{
    check_sealed(4); /* the type, which is not encrypted */
    check_sealed(10);
    check_sealed(FRAME_HEADER_BYTES + 21 + 3); /* the tag */
}

UNIT_TEST(both_ends_must_seal)
{
    CLEANUP(close_pair) struct pair p = open_pair(false);
    channel_seal(&p.a);
    assert_int_equal(channel_send(&p.a, 1, "x", 1, 0), 0);
    assert_int_equal(next_type(&p.b, 0), -EBADMSG);
}

/* As over ssh: reading from one pipe, writing to another that takes little at once. */
UNIT_TEST(two_pipes_make_a_channel)
{
    struct auth_session a = {{1}, {2}}, b = {{2}, {1}};
    struct channel near, far;
    struct pollfd p[2];
    struct frame f;
    struct err err = ERR_INIT;
    static char big[300000];
    int there[2], back[2];
    assert_int_equal(pipe2(there, O_NONBLOCK), 0);
    assert_int_equal(pipe2(back, O_NONBLOCK), 0);
    channel_init_pipes(&near, back[0], there[1], &a, sizeof(big), 0);
    channel_init_pipes(&far, there[0], back[1], &b, sizeof(big), 0);
    memset(big, 'x', sizeof(big));
    channel_pollfds(&near, p);
    assert_true(p[0].fd == back[0] && p[1].fd == -1);
    assert_int_equal(channel_send(&near, 1, big, sizeof(big), 0), 0);
    channel_pollfds(&near, p);
    assert_true(p[1].fd == there[1] && p[1].events == POLLOUT);
    int rc = 0;
    while ((rc = channel_next(&far, 0, &f, &err)) == 0) {
        channel_serve(&near);
        channel_serve(&far);
    }
    assert_int_equal(rc, 1);
    assert_int_equal(f.n, sizeof(big));
    assert_memory_equal(f.p, big, sizeof(big));
    channel_release(&near);
    channel_serve(&far);
    assert_int_equal(channel_next(&far, 0, &f, &err), 0);
    assert_int_equal(far.lost, -EPIPE);
    channel_release(&far);
}

UNIT_MAIN(NULL, NULL)
