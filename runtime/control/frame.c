/* SPDX-License-Identifier: Apache-2.0 */
/* A frame:  u32 payload bytes | u8 type | 0 0 0 | payload | first 16 bytes of
 * HMAC(key of the direction, u64 sequence number | header | payload).
 *
 * The keyed HMAC states are computed once, so that a small frame costs three or four
 * blocks of SHA-256. The sequence number is not sent: a frame that is lost, repeated or
 * reordered breaks the MAC, and with it the connection. Buffers start at 4 KiB, grow to
 * what a frame needs and shrink again when they are empty. Used by tree.c and join.c.
 */
#include "runtime/control/frame.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

enum { HEADER = 8, SMALL_BUF = 4096, KEEP_BUF = 65536 };

void frame_init(struct frame_conn *c)
{
    *c = (struct frame_conn){.fd = -1};
}

void frame_open(struct frame_conn *c, int fd, const struct auth_session *s)
{
    frame_init(c);
    c->fd = fd;
    (void)fd_nonblock(fd, true); /* cannot fail on a socket */
    hmac_init(&c->send_start, s->send_key, sizeof(s->send_key));
    hmac_init(&c->recv_start, s->recv_key, sizeof(s->recv_key));
}

void frame_release(struct frame_conn *c)
{
    fd_close(&c->fd);
    mem_free(c->in);
    mem_free(c->out);
    frame_init(c);
}

static void frame_compute_mac(const struct hmac *start,
                              uint64_t seq,
                              const uint8_t *frame,
                              size_t n,
                              uint8_t ret[SHA256_BYTES])
{
    struct hmac m = *start;
    uint8_t raw[8];

    bytes_store(raw, seq, sizeof(raw));
    hmac_add(&m, raw, sizeof(raw));
    hmac_add(&m, frame, n);
    hmac_end(&m, ret);
}

static int buffer_reserve(uint8_t **buf, size_t *cap, size_t need)
{
    size_t n = *cap > 0 ? *cap : SMALL_BUF;
    uint8_t *p;

    while (n < need)
        n *= 2;
    if (n == *cap)
        return 0;
    p = mem_realloc_array(*buf, n, 1);
    if (!p)
        return -ENOMEM;
    *buf = p;
    *cap = n;
    return 0;
}

/* --- sending --- */

bool frame_wants_write(const struct frame_conn *c)
{
    return c->fd >= 0 && c->out_at < c->out_n;
}

int frame_flush(struct frame_conn *c)
{
    while (c->out_at < c->out_n) {
        ssize_t k = send(c->fd, c->out + c->out_at, c->out_n - c->out_at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno == EAGAIN ? 0 : -errno;
        c->out_at += (size_t)k;
    }
    c->out_at = c->out_n = 0;
    if (c->out_cap > KEEP_BUF) {
        mem_free(c->out);
        c->out = NULL;
        c->out_cap = 0;
    }
    return 0;
}

int frame_send(struct frame_conn *c, enum frame_type type, const void *p, size_t n)
{
    uint8_t tag[SHA256_BYTES], *f;
    size_t total = HEADER + n + FRAME_MAC_BYTES;
    int rc;

    if (c->fd < 0)
        return -EPIPE;
    if (n > FRAME_MAX_BYTES)
        return -EMSGSIZE;
    if (c->out_n - c->out_at + total > FRAME_MAX_UNSENT)
        return -ENOBUFS;
    /* So that a buffer that is never completely empty does not grow. */
    if (c->out_n + total > c->out_cap && c->out_at > c->out_cap / 4) {
        memmove(c->out, c->out + c->out_at, c->out_n - c->out_at);
        c->out_n -= c->out_at;
        c->out_at = 0;
    }
    rc = buffer_reserve(&c->out, &c->out_cap, c->out_n + total);
    if (rc < 0)
        return rc;
    f = c->out + c->out_n;
    bytes_store(f, n, 4);
    bytes_store(f + 4, (uint64_t)type, 4);
    if (n > 0)
        memcpy(f + HEADER, p, n);
    frame_compute_mac(&c->send_start, c->n_sent++, f, HEADER + n, tag);
    memcpy(f + HEADER + n, tag, FRAME_MAC_BYTES);
    c->out_n += total;
    return frame_flush(c);
}

int frame_flush_until(struct frame_conn *c, uint64_t deadline_ns)
{
    int rc = frame_flush(c);

    while (rc == 0 && frame_wants_write(c)) {
        rc = fd_wait(c->fd, POLLOUT, deadline_ns);
        rc = rc < 0 ? rc : frame_flush(c);
    }
    return rc;
}

/* --- receiving --- */

void frame_readable(struct frame_conn *c)
{
    c->is_drained = false;
}

/* 1: bytes were read; 0: none available; negative: error or end of the stream. */
static int frame_fill(struct frame_conn *c, size_t need)
{
    ssize_t k;
    int rc;

    if (c->is_drained)
        return 0;
    if (c->in_at > 0) {
        memmove(c->in, c->in + c->in_at, c->in_n - c->in_at);
        c->in_n -= c->in_at;
        c->in_at = 0;
    }
    if (c->in_n == 0 && c->in_cap > KEEP_BUF) {
        mem_free(c->in);
        c->in = NULL;
        c->in_cap = 0;
    }
    rc = buffer_reserve(&c->in, &c->in_cap, need);
    if (rc < 0)
        return rc;
    do
        k = recv(c->fd, c->in + c->in_n, c->in_cap - c->in_n, MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k == 0)
        return -EPIPE;
    if (k < 0) {
        c->is_drained = true;
        return errno == EAGAIN ? 0 : -errno;
    }
    c->is_drained = (size_t)k < c->in_cap - c->in_n;
    c->in_n += (size_t)k;
    return 1;
}

static int frame_check_mac(struct frame_conn *c, const uint8_t *f, size_t n)
{
    uint8_t tag[SHA256_BYTES], theirs[SHA256_BYTES];

    frame_compute_mac(&c->recv_start, c->n_received, f, HEADER + n, tag);
    memcpy(theirs, tag,
           sizeof(theirs)); /* compare the part that is sent, in constant time */
    memcpy(theirs, f + HEADER + n, FRAME_MAC_BYTES);
    if (!mac_equal(tag, theirs))
        return -EBADMSG;
    c->n_received++;
    return 0;
}

int frame_recv(struct frame_conn *c,
               enum frame_type *ret_type,
               const uint8_t **ret_p,
               size_t *ret_n)
{
    size_t need = HEADER;

    if (c->fd < 0)
        return -EPIPE;
    for (;;) {
        const uint8_t *f = c->in + c->in_at;
        size_t have = c->in_n - c->in_at, n;
        int rc;

        if (have >= HEADER) {
            n = bytes_load_u32(f);
            if (n > FRAME_MAX_BYTES || f[4] == 0 || f[4] >= FRAME_TYPE_END || f[5]
                || f[6] || f[7])
                return -EBADMSG;
            need = HEADER + n + FRAME_MAC_BYTES;
            if (have >= need) {
                rc = frame_check_mac(c, f, n);
                if (rc < 0)
                    return rc;
                *ret_type = (enum frame_type)f[4];
                *ret_p = f + HEADER;
                *ret_n = n;
                c->in_at += need;
                return 1;
            }
        }
        rc = frame_fill(c, need);
        if (rc <= 0)
            return rc;
    }
}

int frame_recv_until(struct frame_conn *c,
                     uint64_t deadline_ns,
                     enum frame_type *ret_type,
                     const uint8_t **ret_p,
                     size_t *ret_n)
{
    for (;;) {
        int rc;

        frame_readable(c);
        rc = frame_recv(c, ret_type, ret_p, ret_n);
        if (rc != 0)
            return rc;
        rc = fd_wait(c->fd, POLLIN, deadline_ns);
        if (rc < 0)
            return rc;
    }
}
