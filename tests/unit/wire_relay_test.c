/* SPDX-License-Identifier: Apache-2.0 */
/* A relay damages a stream of frames at seeded places: the receiver gets the frames before
 * the damage, as they were sent, and no frame after it. RELAY_RUNS: how many places;
 * RELAY_SEED: others. */
#include <errno.h>
#include <sys/socket.h>

#include "tests/unit/damage.h"
#include "tests/unit/unit.h"

#include "runtime/base/fd.h"
#include "runtime/wire/frame.h"

enum { FRAMES = 12, PAYLOAD_MAX = 300, STREAM_MAX = FRAMES * (PAYLOAD_MAX + 24) };

struct stream {
    uint8_t bytes[STREAM_MAX];
    size_t n, end[FRAMES]; /* end: of each frame */
};

static const struct auth_session ours = {{1}, {2}}, theirs = {{2}, {1}};

static size_t payload_bytes(uint32_t i)
{
    return i * 37 % PAYLOAD_MAX;
}

static uint8_t payload_byte(uint32_t i, size_t k)
{
    return (uint8_t)(i * 11 + k * 3);
}

static void stream_make(struct stream *s)
{
    struct frame_conn c;
    uint8_t payload[PAYLOAD_MAX];
    int fd[2];

    *s = (struct stream){.n = 0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    frame_open(&c, fd[0], &ours, PAYLOAD_MAX);
    for (uint32_t i = 0; i < FRAMES; i++) {
        size_t n = payload_bytes(i);

        for (size_t k = 0; k < n; k++)
            payload[k] = payload_byte(i, k);
        assert_int_equal(frame_send(&c, (uint8_t)(1 + i), payload, n), 0);
        s->n += (size_t)read(fd[1], s->bytes + s->n, sizeof(s->bytes) - s->n);
        s->end[i] = s->n;
    }
    frame_release(&c);
    fd_close(&fd[1]);
}

static void frame_is(const struct frame *f, uint32_t i)
{
    assert_int_equal(f->type, 1 + i);
    assert_int_equal(f->n, payload_bytes(i));
    for (size_t k = 0; k < f->n; k++)
        assert_int_equal(f->p[k], payload_byte(i, k));
}

/* Frames that are received before an error or the end. */
static uint32_t stream_receive(const uint8_t *p, size_t n)
{
    struct frame_conn c;
    struct frame f;
    uint32_t i = 0;
    int fd[2], rc;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    frame_open(&c, fd[0], &theirs, PAYLOAD_MAX);
    assert_int_equal(write(fd[1], p, n), (ssize_t)n);
    fd_close(&fd[1]);
    while ((rc = frame_recv(&c, &f)) >= 0) {
        frame_readable(&c);
        if (rc > 0)
            frame_is(&f, i++);
    }
    assert_true(rc == -EBADMSG || rc == -EPIPE);
    frame_release(&c);
    return i;
}

UNIT_TEST(damage_at_any_place_ends_the_stream)
{
    static struct stream s;
    static uint8_t damaged[STREAM_MAX + DAMAGE_MAX];
    struct seeded r = {damage_number("RELAY_SEED", 1)};

    stream_make(&s);
    assert_int_equal(stream_receive(s.bytes, s.n), FRAMES);
    for (uint32_t run = damage_number("RELAY_RUNS", 10000 / FEWER); run > 0; run--) {
        struct damage d = damage_choose(&r, (uint32_t)s.n);
        size_t n = damage_apply(&d, 0, s.bytes, s.n, damaged);
        uint32_t got = stream_receive(damaged, n), most = 0;

        /* the first byte that differs */
        size_t at = 0;
        while (at < n && at < s.n && damaged[at] == s.bytes[at])
            at++;
        while (most < FRAMES && s.end[most] <= at)
            most++;
        if (got > most)
            fail_msg("kind %d at %llu, %u bytes: %u frames of %u", d.kind,
                     (unsigned long long)d.at, d.n, got, most);
    }
}

UNIT_MAIN(NULL, NULL)
