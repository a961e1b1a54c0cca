/* SPDX-License-Identifier: Apache-2.0 */
/* Frames over a real socket: whole, cut, changed, replayed, too large. */
#include <poll.h>
#include <sys/socket.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/addr.h"
#include "runtime/wire/frame.h"

enum { UP = 1, DOWN, HEARTBEAT, MAX_BYTES = 4 << 20 };

struct ends {
    struct frame_conn a, b;
    /* the last frame received */
    struct frame f;
};

static void open_ends(struct ends *e)
{
    struct auth_session s = {0}, t = {0};
    int fd[2];

    memset(s.send_key, 1, sizeof(s.send_key));
    memset(s.recv_key, 2, sizeof(s.recv_key));
    memcpy(t.send_key, s.recv_key, sizeof(s.recv_key));
    memcpy(t.recv_key, s.send_key, sizeof(s.send_key));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    frame_open(&e->a, fd[0], &s, MAX_BYTES);
    frame_open(&e->b, fd[1], &t, MAX_BYTES);
}

static void close_ends(struct ends *e)
{
    frame_release(&e->a);
    frame_release(&e->b);
}

#define FRAME_TEST(name)                                                               \
    static void name##_in(struct ends *e);                                             \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        struct ends e;                                                                 \
                                                                                       \
        open_ends(&e);                                                                 \
        name##_in(&e);                                                                 \
        close_ends(&e);                                                                \
    }                                                                                  \
    static void name##_in(struct ends *e)

static int ends_recv(struct ends *e, struct frame_conn *c)
{
    return frame_recv(c, &e->f);
}

FRAME_TEST(frames_arrive_in_order_both_ways)
{
    assert_int_equal(ends_recv(e, &e->b), 0);
    assert_int_equal(frame_send(&e->a, UP, "one", 3), 0);
    assert_int_equal(frame_send(&e->a, HEARTBEAT, NULL, 0), 0);
    assert_int_equal(frame_send(&e->b, DOWN, "back", 4), 0);
    /* after "nothing there" the socket is not asked again until told */
    assert_int_equal(ends_recv(e, &e->b), 0);
    frame_readable(&e->b);
    assert_int_equal(ends_recv(e, &e->b), 1);
    assert_int_equal(e->f.type, UP);
    assert_int_equal(e->f.n, 3);
    assert_memory_equal(e->f.p, "one", 3);
    assert_int_equal(ends_recv(e, &e->b), 1);
    assert_int_equal(e->f.type, HEARTBEAT);
    assert_int_equal(e->f.n, 0);
    assert_int_equal(ends_recv(e, &e->b), 0);
    assert_int_equal(ends_recv(e, &e->a), 1);
    assert_memory_equal(e->f.p, "back", 4);
    frame_release(&e->a);
    frame_readable(&e->b);
    assert_int_equal(ends_recv(e, &e->b), -EPIPE);
}

FRAME_TEST(a_frame_larger_than_the_socket_is_kept_and_sent)
{
    enum { N = 3 << 20 };
    AUTOFREE uint8_t *big = mem_alloc(N);
    int rc = 0;

    assert_non_null(big);
    for (size_t i = 0; i < N; i++)
        big[i] = (uint8_t)(i * 7);
    assert_int_equal(frame_send(&e->a, DOWN, big, N), 0);
    assert_true(frame_unsent(&e->a) > 0);
    while (rc == 0) {
        assert_int_equal(frame_flush(&e->a), 0);
        frame_readable(&e->b);
        rc = ends_recv(e, &e->b);
    }
    assert_int_equal(rc, 1);
    assert_int_equal(e->f.n, N);
    assert_memory_equal(e->f.p, big, N);
    assert_int_equal(frame_unsent(&e->a), 0);
    /* the buffers shrink again */
    assert_true(e->a.out_cap <= 65536);
    frame_readable(&e->b);
    assert_int_equal(ends_recv(e, &e->b), 0);
    assert_true(e->b.in_cap <= 65536);
}

FRAME_TEST(a_payload_larger_than_the_receiver_allows_is_refused)
{
    static uint8_t big[MAX_BYTES + 1];
    int rc = 0;

    assert_int_equal(frame_send(&e->a, DOWN, big, sizeof(big)), 0);
    frame_readable(&e->b);
    while (rc == 0)
        rc = ends_recv(e, &e->b);
    assert_int_equal(rc, -EBADMSG);
}

FRAME_TEST(a_peer_that_does_not_read_costs_no_more_than_the_bound)
{
    static uint8_t block[1 << 20];
    int rc = 0, n = 0;

    for (; rc == 0 && n < 200; n++)
        rc = frame_send(&e->a, DOWN, block, sizeof(block));
    assert_int_equal(rc, -ENOBUFS);
    assert_true(n < 70);
}

/* So a peer that always sends cannot keep the reader from its other work. */
FRAME_TEST(reading_pauses_while_the_peer_sends)
{
    static uint8_t block[2000];
    int n = 0;

    while (frame_unsent(&e->a) < 64 * sizeof(block))
        assert_int_equal(frame_send(&e->a, DOWN, block, sizeof(block)), 0);
    frame_readable(&e->b);
    while (ends_recv(e, &e->b) == 1) {
        n++;
        assert_int_equal(frame_send(&e->a, DOWN, block, sizeof(block)), 0);
        assert_true(n < 1000);
    }
    assert_true(n > 0);
}

/* Bytes of one frame as they go over the wire. */
static size_t frame_capture(size_t n_payload, uint8_t *buf, size_t size)
{
    static const uint8_t payload[FRAME_DIRECT_BYTES + 1] = "payload";
    struct ends e;
    ssize_t n;

    assert_true(n_payload <= sizeof(payload));
    open_ends(&e);
    assert_int_equal(frame_send(&e.a, UP, payload, n_payload), 0);
    n = read(e.b.fd, buf, size);
    close_ends(&e);
    assert_int_equal(n, FRAME_HEADER_BYTES + n_payload + FRAME_TAG_BYTES);
    return (size_t)n;
}

static int frame_feed(const uint8_t *p, size_t n, int times)
{
    struct ends e;
    int rc = 1;

    open_ends(&e);
    for (int i = 0; i < times; i++)
        assert_int_equal(write(e.a.fd, p, n), n);
    for (int i = 0; i < times && rc == 1; i++)
        rc = ends_recv(&e, &e.b);
    close_ends(&e);
    return rc;
}

/* The reader is always a little behind, so what is unsent never becomes nothing. */
FRAME_TEST(a_buffer_that_is_never_empty_stays_small)
{
    static uint8_t block[64 * 1024];

    while (e->a.out_n - e->a.out_at < 8 * sizeof(block))
        assert_int_equal(frame_send(&e->a, UP, block, sizeof(block)), 0);
    for (int i = 0; i < 200; i++) { /* one in, one out */
        assert_int_equal(frame_send(&e->a, UP, block, sizeof(block)), 0);
        frame_readable(&e->b);
        while (ends_recv(e, &e->b) == 0) {
            frame_readable(&e->b);
            assert_int_equal(frame_flush(&e->a), 0);
        }
        assert_true(frame_unsent(&e->a) > 0);
    }
    assert_true(e->a.out_cap <= 16 * sizeof(block));
}

static void check_every_byte(size_t n_payload)
{
    uint8_t f[128];
    size_t n = frame_capture(n_payload, f, sizeof(f));

    assert_int_equal(frame_feed(f, n, 1), 1);
    for (size_t i = 0; i < n; i++) {
        f[i] ^= 0x41;
        assert_int_not_equal(frame_feed(f, n, 1),
                             1); /* refused, or incomplete by a changed length */
        f[i] ^= 0x41;
        if (i > 0)
            assert_int_equal(frame_feed(f, i, 1), 0); /* cut: incomplete */
    }
    assert_int_equal(frame_feed(f, n, 2), -EBADMSG); /* replayed */
}

UNIT_TEST(every_changed_byte_is_refused)
{
    check_every_byte(0);
    check_every_byte(7);
    check_every_byte(FRAME_DIRECT_BYTES);
    check_every_byte(FRAME_DIRECT_BYTES + 1); /* enters the tag by its digest */
}

FRAME_TEST(a_frame_sent_back_is_not_accepted)
{
    uint8_t f[64];

    assert_int_equal(frame_send(&e->a, UP, "x", 1), 0);
    assert_int_equal(read(e->b.fd, f, sizeof(f)), 25);
    assert_int_equal(write(e->b.fd, f, 25), 25);
    frame_readable(&e->a);
    assert_int_equal(ends_recv(e, &e->a), -EBADMSG);
}

UNIT_TEST(an_absurd_length_costs_no_memory)
{
    static const uint8_t f[8] = {0xff, 0xff, 0xff, 0xff, UP};

    assert_int_equal(frame_feed(f, sizeof(f), 1), -EBADMSG);
}

FRAME_TEST(waiting_ends_at_the_deadline)
{
    uint64_t t0 = clock_now_ns();

    assert_int_equal(frame_recv_until(&e->b, t0 + 30 * NS_PER_MS, &e->f), -ETIMEDOUT);
    assert_true(clock_now_ns() - t0 >= 30 * NS_PER_MS);
}

UNIT_TEST(addresses_of_this_machine)
{
    char buf[64];
    struct err err = ERR_INIT;

    assert_true(addr_is_loopback("127.0.1.1"));
    assert_true(addr_is_loopback("::1"));
    assert_false(addr_is_loopback("10.0.0.1"));
    assert_int_equal(addr_towards("127.0.0.1", buf, sizeof(buf), &err), 0);
    assert_string_equal(buf, "127.0.0.1");
    assert_int_equal(addr_towards("not a number", buf, sizeof(buf), &err), -EINVAL);
    assert_int_equal(addr_of_iface("lo", buf, sizeof(buf), &err), 0);
    assert_string_equal(buf, "127.0.0.1");
    assert_int_equal(addr_of_iface("nope0", buf, sizeof(buf), &err), -ENODEV);
    assert_non_null(
        strstr(err.text, "no interface \"nope0\" with an address, there are lo"));
}

UNIT_MAIN(NULL, NULL)
