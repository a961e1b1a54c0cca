/* SPDX-License-Identifier: Apache-2.0 */
/* channel.c over a socket pair: frames arrive whole and in order, and not when anything
 * was changed, repeated or left out on the way; heartbeat and silence. */
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
    struct auth_session a = {{1}, {2}, 0, 0}, b = {{2}, {1}, 0, 0};
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

/* The next frame's type, dropped when it was read; 0: there is none; negative: an error. */
static int next_type(struct channel *c)
{
    struct frame f;
    struct err err = ERR_INIT;
    int rc = channel_next(c, &f, &err);
    if (rc <= 0)
        return rc;
    rc = f.type;
    channel_drop(c, &f);
    return rc;
}

UNIT_TEST(frames_arrive_whole_and_in_order)
{
    CLEANUP(close_pair) struct pair p = open_pair(false);
    struct frame f;
    struct err err = ERR_INIT;
    char text[1000];
    memset(text, 't', sizeof(text));
    assert_int_equal(channel_send(&p.a, 1, "one", 3, 5), 0);
    assert_int_equal(channel_send(&p.a, 2, NULL, 0, 6), 0);
    assert_int_equal(channel_send(&p.a, 3, text, sizeof(text), 7), 0);
    assert_int_equal(channel_serve(&p.b, 9), 0);
    assert_int_equal(p.b.received_ns, 9);
    assert_int_equal(channel_next(&p.b, &f, &err), 1);
    assert_int_equal(f.type, 1);
    assert_int_equal(f.n, 3);
    assert_memory_equal(f.p, "one", 3);
    channel_drop(&p.b, &f);
    assert_int_equal(channel_next(&p.b, &f, &err), 1);
    assert_int_equal(f.n, 0);
    channel_drop(&p.b, &f);
    assert_int_equal(channel_next(&p.b, &f, &err), 1);
    assert_int_equal(f.n, sizeof(text));
    channel_drop(&p.b, &f);
    assert_int_equal(channel_next(&p.b, &f, &err), 0);
}

UNIT_TEST(frames_that_came_before_the_end_are_not_lost)
{
    CLEANUP(close_pair) struct pair p = open_pair(false);
    struct frame f;
    struct err err = ERR_INIT;
    assert_int_equal(channel_send(&p.a, 1, "last", 4, 0), 0);
    channel_release(&p.a);
    p.a.fd = -1;
    assert_int_equal(channel_serve(&p.b, 1), -EPIPE);
    assert_int_equal(channel_next(&p.b, &f, &err), 1);
    assert_memory_equal(f.p, "last", 4);
}

/* Sends n frames through the tap and lets the test change the bytes between. */
static size_t take_bytes(struct pair *p, int n, char *ret, size_t size)
{
    for (int i = 0; i < n; i++) {
        char letter = (char)('a' + i);
        assert_int_equal(channel_send(&p->a, 1, &letter, 1, 0), 0);
    }
    ssize_t got = read(p->tap[0], ret, size);
    assert_true(got > 0);
    return (size_t)got;
}

static void give_bytes(struct pair *p, const char *bytes, size_t n)
{
    assert_int_equal(write(p->tap[1], bytes, n), (ssize_t)n);
    assert_int_equal(channel_serve(&p->b, 1), 0);
}

UNIT_TEST(a_changed_byte_is_noticed_wherever_it_is)
{
    char bytes[200];
    size_t n = 5 + 1 + 32;
    for (size_t at = 0; at < n; at++) {
        CLEANUP(close_pair) struct pair p = open_pair(true);
        assert_int_equal(take_bytes(&p, 1, bytes, sizeof(bytes)), n);
        bytes[at] ^= 1;
        give_bytes(&p, bytes, n);
        int rc = next_type(&p.b);
        /* a larger length waits for more bytes, which have no valid MAC */
        assert_true(rc == -EACCES || rc == -EPROTO || (rc == 0 && at == 1));
    }
}

UNIT_TEST(a_repeated_or_missing_frame_is_noticed)
{
    CLEANUP(close_pair) struct pair p = open_pair(true), q = open_pair(true);
    char bytes[200];
    size_t n = take_bytes(&p, 1, bytes, sizeof(bytes));
    give_bytes(&p, bytes, n);
    assert_int_equal(next_type(&p.b), 1);
    give_bytes(&p, bytes, n); /* again */
    assert_int_equal(next_type(&p.b), -EACCES);
    n = take_bytes(&q, 2, bytes, sizeof(bytes));
    give_bytes(&q, bytes + n / 2, n / 2); /* the second alone */
    assert_int_equal(next_type(&q.b), -EACCES);
}

UNIT_TEST(a_frame_sent_back_is_not_accepted)
{
    CLEANUP(close_pair) struct pair p = open_pair(true);
    char bytes[200];
    size_t n = take_bytes(&p, 1, bytes, sizeof(bytes));
    assert_int_equal(write(p.tap[0], bytes, n), (ssize_t)n);
    assert_int_equal(channel_serve(&p.a, 1), 0);
    assert_int_equal(next_type(&p.a), -EACCES);
}

UNIT_TEST(a_long_frame_is_refused_by_its_header)
{
    CLEANUP(close_pair) struct pair p = open_pair(true);
    struct frame f;
    struct err err = ERR_INIT;
    give_bytes(&p, "\xe9\x03\x00\x00\x01", 5); /* 1001 */
    assert_int_equal(channel_next(&p.b, &f, &err), -EPROTO);
    assert_string_equal(err.text, "a frame of 1001 bytes exceeds 1000");
}

UNIT_TEST(a_peer_that_does_not_read_costs_no_more_than_the_bound)
{
    CLEANUP(close_pair) struct pair p = open_pair(false);
    static char block[1 << 20];
    int rc = 0, n = 0;
    for (; rc == 0 && n < 200; n++)
        rc = channel_send(&p.a, 1, block, sizeof(block), 0);
    assert_int_equal(rc, -E2BIG);
    assert_true(n < 70);
}

UNIT_TEST(silence_is_noticed_and_pings_prevent_it)
{
    CLEANUP(close_pair) struct pair p = open_pair(false);
    uint64_t next = 0;
    assert_int_equal(channel_tick(&p.a, 9, 6 * S, S / 2, &next), 0);
    assert_int_equal(next, 1 * S); /* a sixth of the timeout after the last send */
    assert_int_equal(channel_serve(&p.b, S), 0);
    assert_int_equal(next_type(&p.b), 0); /* no ping yet */
    assert_int_equal(channel_tick(&p.a, 9, 6 * S, S, &next), 0);
    assert_int_equal(channel_serve(&p.b, S), 0);
    assert_int_equal(next_type(&p.b), 9);
    assert_int_equal(channel_tick(&p.b, 9, 6 * S, 7 * S - 1, &next), 0);
    assert_int_equal(channel_tick(&p.b, 9, 6 * S, 7 * S, &next), -ETIMEDOUT);
}

/* The bytes on the way show nothing of a sealed channel's payload, the same text twice
 * looks different, and a changed byte is found. */
UNIT_TEST(a_sealed_channel_hides_what_it_carries)
{
    static const char text[] =
        "the same secret text, longer than one block of the stream";
    CLEANUP(close_pair) struct pair p = open_pair(true);
    uint8_t seen[3][256];
    struct frame f;
    struct err err = ERR_INIT;
    const ssize_t n = 5 + sizeof(text) + 32;
    p.a.is_sealed = p.b.is_sealed = true;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(channel_send(&p.a, 3, text, sizeof(text), 0), 0);
        assert_int_equal(read(p.tap[0], seen[i], sizeof(seen[i])), n);
        assert_null(memmem(seen[i], (size_t)n, "secret", 6));
    }
    assert_memory_not_equal(seen[0] + 5, seen[1] + 5, sizeof(text));
    seen[2][8] ^= 1;
    for (int i = 0; i < 3; i++) {
        give_bytes(&p, (const char *)seen[i], (size_t)n);
        assert_int_equal(channel_next(&p.b, &f, &err), i < 2 ? 1 : -EACCES);
        if (i == 2)
            break;
        assert_true(f.type == 3 && f.n == sizeof(text));
        assert_memory_equal(f.p, text, sizeof(text));
        channel_drop(&p.b, &f);
    }
}

/* As over ssh: reading from one pipe, writing to another that takes little at once. */
UNIT_TEST(two_pipes_make_a_channel)
{
    struct auth_session a = {{1}, {2}, 0, 0}, b = {{2}, {1}, 0, 0};
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
    while ((rc = channel_next(&far, &f, &err)) == 0) {
        assert_int_equal(channel_serve(&near, 0), 0);
        assert_int_equal(channel_serve(&far, 0), 0);
    }
    assert_int_equal(rc, 1);
    assert_int_equal(f.n, sizeof(big));
    assert_memory_equal(f.p, big, sizeof(big));
    channel_drop(&far, &f);
    channel_release(&near);
    assert_int_equal(channel_serve(&far, 0), -EPIPE);
    channel_release(&far);
}

UNIT_MAIN(NULL, NULL)
