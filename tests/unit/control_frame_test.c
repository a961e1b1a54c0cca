/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the control channel over a real socket: whole, cut, bent, replayed, too
 * large. */
#include <poll.h>
#include <sys/socket.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/addr.h"
#include "runtime/control/frame.h"

struct ends {
    struct frame_conn a, b;
    /* the last frame received */
    enum frame_type type;
    const uint8_t *p;
    size_t n;
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
    frame_open(&e->a, fd[0], &s);
    frame_open(&e->b, fd[1], &t);
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
    return frame_recv(c, &e->type, &e->p, &e->n);
}

FRAME_TEST(frames_arrive_in_order_both_ways)
{
    assert_int_equal(ends_recv(e, &e->b), 0);
    assert_int_equal(frame_send(&e->a, FRAME_UP, "one", 3), 0);
    assert_int_equal(frame_send(&e->a, FRAME_HEARTBEAT, NULL, 0), 0);
    assert_int_equal(frame_send(&e->b, FRAME_DOWN, "back", 4), 0);
    /* after "nothing there" the socket is not asked again until told */
    assert_int_equal(ends_recv(e, &e->b), 0);
    frame_readable(&e->b);
    assert_int_equal(ends_recv(e, &e->b), 1);
    assert_int_equal(e->type, FRAME_UP);
    assert_int_equal(e->n, 3);
    assert_memory_equal(e->p, "one", 3);
    assert_int_equal(ends_recv(e, &e->b), 1);
    assert_int_equal(e->type, FRAME_HEARTBEAT);
    assert_int_equal(e->n, 0);
    assert_int_equal(ends_recv(e, &e->b), 0);
    assert_int_equal(ends_recv(e, &e->a), 1);
    assert_memory_equal(e->p, "back", 4);
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
    assert_int_equal(frame_send(&e->a, FRAME_DOWN, big, N), 0);
    assert_true(frame_wants_write(&e->a));
    while (rc == 0) {
        assert_int_equal(frame_flush(&e->a), 0);
        frame_readable(&e->b);
        rc = ends_recv(e, &e->b);
    }
    assert_int_equal(rc, 1);
    assert_int_equal(e->n, N);
    assert_memory_equal(e->p, big, N);
    assert_false(frame_wants_write(&e->a));
    /* the buffers shrink again */
    assert_true(e->a.out_cap <= 65536);
    frame_readable(&e->b);
    assert_int_equal(ends_recv(e, &e->b), 0);
    assert_true(e->b.in_cap <= 65536);
    assert_int_equal(frame_send(&e->a, FRAME_DOWN, big, FRAME_MAX_BYTES + 1),
                     -EMSGSIZE);
}

/* Bytes of one frame as they go over the wire. */
static size_t frame_capture(uint8_t *buf, size_t size)
{
    struct ends e;
    ssize_t n;

    open_ends(&e);
    assert_int_equal(frame_send(&e.a, FRAME_UP, "payload", 7), 0);
    n = read(e.b.fd, buf, size);
    close_ends(&e);
    assert_int_equal(n, 8 + 7 + FRAME_MAC_BYTES);
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
        assert_int_equal(frame_send(&e->a, FRAME_UP, block, sizeof(block)), 0);
    for (int i = 0; i < 200; i++) { /* one in, one out */
        assert_int_equal(frame_send(&e->a, FRAME_UP, block, sizeof(block)), 0);
        frame_readable(&e->b);
        while (ends_recv(e, &e->b) == 0) {
            frame_readable(&e->b);
            assert_int_equal(frame_flush(&e->a), 0);
        }
        assert_true(frame_wants_write(&e->a));
    }
    assert_true(e->a.out_cap <= 16 * sizeof(block));
}

UNIT_TEST(every_bent_byte_is_refused)
{
    uint8_t f[64];
    size_t n = frame_capture(f, sizeof(f));

    assert_int_equal(frame_feed(f, n, 1), 1);
    for (size_t i = 0; i < n; i++) {
        f[i] ^= 0x41;
        assert_int_not_equal(frame_feed(f, n, 1),
                             1); /* refused, or incomplete by a bent length */
        f[i] ^= 0x41;
        if (i > 0)
            assert_int_equal(frame_feed(f, i, 1), 0); /* cut: incomplete */
    }
    assert_int_equal(frame_feed(f, n, 2), -EBADMSG); /* replayed */
}

UNIT_TEST(an_absurd_length_costs_no_memory)
{
    static const uint8_t f[8] = {0xff, 0xff, 0xff, 0xff, FRAME_UP};

    assert_int_equal(frame_feed(f, sizeof(f), 1), -EBADMSG);
}

FRAME_TEST(waiting_ends_at_the_deadline)
{
    uint64_t t0 = clock_now_ns();

    assert_int_equal(
        frame_recv_until(&e->b, t0 + 30 * NS_PER_MS, &e->type, &e->p, &e->n),
        -ETIMEDOUT);
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
