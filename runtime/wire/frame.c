/* SPDX-License-Identifier: Apache-2.0 */
/* The keyed HMAC states are computed once, so that a small frame costs three or four
 * blocks of SHA-256. Buffers start at 4 KiB, grow to what a frame needs and shrink again
 * when they are empty. */
#include "runtime/wire/frame.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

enum { SMALL_BUF = 4096, KEEP_BUF = 65536, READS = 16 };

/* --- parts --- */

void frame_key_init(struct frame_key *k, const uint8_t key[32])
{
    *k = (struct frame_key){0};
    memcpy(k->key, key, sizeof(k->key));
    hmac_init(&k->start, key, sizeof(k->key));
}

void frame_put_header(uint8_t ret[FRAME_HEADER_BYTES], uint8_t type, size_t n)
{
    bytes_store(ret, n, 4);
    bytes_store(ret + 4, type, 4);
}

int frame_get_header(const uint8_t header[FRAME_HEADER_BYTES],
                     size_t max_bytes,
                     uint8_t *ret_type,
                     size_t *ret_n)
{
    uint64_t type = bytes_load(header + 4, 4);
    size_t n = bytes_load_u32(header);

    if (type == 0 || type > UINT8_MAX || n > max_bytes)
        return -EBADMSG;
    *ret_type = (uint8_t)type;
    *ret_n = n;
    return 0;
}

static void frame_compute_mac(const struct frame_key *k,
                              const uint8_t *header,
                              const void *p,
                              size_t n,
                              const uint8_t *digest,
                              uint8_t ret[SHA256_BYTES])
{
    struct hmac m = k->start;
    uint8_t raw[8], sum[SHA256_BYTES];

    bytes_store(raw, k->n, sizeof(raw));
    hmac_add(&m, raw, sizeof(raw));
    hmac_add(&m, header, FRAME_HEADER_BYTES);
    if (n > FRAME_DIRECT_BYTES) {
        if (!digest)
            sha256_digest(p, n, sum);
        p = digest ? digest : sum;
        n = SHA256_BYTES;
    }
    hmac_add(&m, p, n);
    hmac_end(&m, ret);
}

void frame_make_tag(struct frame_key *k,
                    const uint8_t header[FRAME_HEADER_BYTES],
                    const void *p,
                    size_t n,
                    const uint8_t *digest,
                    uint8_t ret[FRAME_TAG_BYTES])
{
    uint8_t mac[SHA256_BYTES];

    frame_compute_mac(k, header, p, n, digest, mac);
    memcpy(ret, mac, FRAME_TAG_BYTES);
    k->n++;
}

int frame_check_tag(struct frame_key *k,
                    const uint8_t header[FRAME_HEADER_BYTES],
                    const void *p,
                    size_t n,
                    const uint8_t tag[FRAME_TAG_BYTES])
{
    uint8_t mac[SHA256_BYTES], theirs[SHA256_BYTES];

    frame_compute_mac(k, header, p, n, NULL, mac);
    memcpy(theirs, mac, sizeof(theirs)); /* mac_equal compares whole MACs */
    memcpy(theirs, tag, FRAME_TAG_BYTES);
    if (!mac_equal(mac, theirs))
        return -EBADMSG;
    k->n++;
    return 0;
}

/* --- a connection --- */

void frame_init(struct frame_conn *c)
{
    *c = (struct frame_conn){.fd = -1, .out_fd = -1};
}

void frame_open_pipes(struct frame_conn *c,
                      int in_fd,
                      int out_fd,
                      const struct auth_session *s,
                      size_t max_bytes)
{
    frame_init(c);
    c->fd = in_fd;
    c->out_fd = out_fd;
    c->max_bytes = max_bytes;
    c->reads_left = READS;
    (void)fd_nonblock(in_fd, true); /* cannot fail on a socket or a pipe */
    (void)fd_nonblock(out_fd, true);
    frame_key_init(&c->send, s->send_key);
    frame_key_init(&c->recv, s->recv_key);
}

void frame_open(struct frame_conn *c,
                int fd,
                const struct auth_session *s,
                size_t max_bytes)
{
    frame_open_pipes(c, fd, fd, s, max_bytes);
}

void frame_close(struct frame_conn *c)
{
    if (c->out_fd != c->fd)
        fd_close(&c->out_fd);
    fd_close(&c->fd);
    c->out_fd = -1;
    c->out_at = c->out_n = 0;
    mem_wipe(&c->send, sizeof(c->send));
    mem_wipe(&c->recv, sizeof(c->recv));
}

void frame_release(struct frame_conn *c)
{
    frame_close(c);
    mem_free(c->in);
    mem_free(c->out);
    frame_init(c);
}

static int socket_error(void)
{
    return errno == ECONNRESET ? -EPIPE : -errno;
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

size_t frame_unsent(const struct frame_conn *c)
{
    return c->out_n - c->out_at;
}

static ssize_t frame_write(const struct frame_conn *c, const uint8_t *p, size_t n)
{
    if (c->out_fd != c->fd)
        return write(c->out_fd, p, n);
    return send(c->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int frame_flush(struct frame_conn *c)
{
    while (c->out_at < c->out_n) {
        ssize_t k = frame_write(c, c->out + c->out_at, c->out_n - c->out_at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno == EAGAIN ? 0 : socket_error();
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

static int frame_make_room(struct frame_conn *c, size_t total)
{
    if (c->out_n - c->out_at + total > FRAME_MAX_UNSENT)
        return -ENOBUFS;
    /* So that a buffer that is never completely empty does not grow. */
    if (c->out_n + total > c->out_cap && c->out_at > c->out_cap / 4) {
        memmove(c->out, c->out + c->out_at, c->out_n - c->out_at);
        c->out_n -= c->out_at;
        c->out_at = 0;
    }
    return buffer_reserve(&c->out, &c->out_cap, c->out_n + total);
}

int frame_send(struct frame_conn *c, uint8_t type, const void *p, size_t n)
{
    size_t total = FRAME_HEADER_BYTES + n + FRAME_TAG_BYTES;
    uint8_t *f;
    int rc;

    if (c->fd < 0)
        return -EPIPE;
    rc = n > UINT32_MAX ? -ENOBUFS : frame_make_room(c, total);
    if (rc < 0)
        return rc;
    f = c->out + c->out_n;
    frame_put_header(f, type, n);
    if (n > 0)
        memcpy(f + FRAME_HEADER_BYTES, p, n);
    if (c->cipher)
        c->cipher->seal(c->send.key, c->send.n++, f, f + FRAME_HEADER_BYTES, n,
                        f + FRAME_HEADER_BYTES + n);
    else
        frame_make_tag(&c->send, f, f + FRAME_HEADER_BYTES, n, NULL,
                       f + FRAME_HEADER_BYTES + n);
    c->out_n += total;
    return frame_flush(c);
}

int frame_flush_until(struct frame_conn *c, uint64_t deadline_ns)
{
    int rc = frame_flush(c);

    while (rc == 0 && frame_unsent(c) > 0) {
        rc = fd_wait(c->out_fd, POLLOUT, deadline_ns);
        rc = rc < 0 ? rc : frame_flush(c);
    }
    return rc;
}

/* --- receiving --- */

void frame_readable(struct frame_conn *c)
{
    c->reads_left = READS;
}

/* 1: bytes were read; 0: none available; negative: error or end of the stream. */
static int frame_fill(struct frame_conn *c, size_t need)
{
    ssize_t k;
    int rc;

    if (c->reads_left == 0)
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
        k = read(c->fd, c->in + c->in_n, c->in_cap - c->in_n);
    while (k < 0 && errno == EINTR);
    if (k == 0)
        return -EPIPE;
    if (k < 0) {
        c->reads_left = 0;
        return errno == EAGAIN ? 0 : socket_error();
    }
    c->reads_left--;
    if ((size_t)k < c->in_cap - c->in_n)
        c->reads_left = 0;
    c->in_n += (size_t)k;
    c->n_read += (size_t)k;
    return 1;
}

/* The payload is complete and not verified yet. */
static int frame_open_payload(struct frame_conn *c, uint8_t *f, size_t n)
{
    uint8_t *p = f + FRAME_HEADER_BYTES;

    if (!c->cipher)
        return frame_check_tag(&c->recv, f, p, n, p + n);
    return c->cipher->open(c->recv.key, c->recv.n++, f, p, n, p + n);
}

int frame_recv(struct frame_conn *c, struct frame *ret)
{
    size_t need = FRAME_HEADER_BYTES;
    int rc;

    if (c->fd < 0)
        return -EPIPE;
    for (;;) {
        uint8_t *f = c->in + c->in_at;
        size_t have = c->in_n - c->in_at, n;

        if (have >= FRAME_HEADER_BYTES) {
            rc = frame_get_header(f, c->max_bytes, &ret->type, &n);
            if (rc < 0)
                return rc;
            need = FRAME_HEADER_BYTES + n + FRAME_TAG_BYTES;
            if (have >= need) {
                rc = frame_open_payload(c, f, n);
                if (rc < 0)
                    return rc;
                ret->p = f + FRAME_HEADER_BYTES;
                ret->n = n;
                c->in_at += need;
                return 1;
            }
        }
        rc = frame_fill(c, need);
        if (rc <= 0)
            return rc;
    }
}

int frame_recv_until(struct frame_conn *c, uint64_t deadline_ns, struct frame *ret)
{
    for (;;) {
        int rc;

        frame_readable(c);
        rc = frame_recv(c, ret);
        if (rc != 0)
            return rc;
        rc = fd_wait(c->fd, POLLIN, deadline_ns);
        if (rc < 0)
            return rc;
    }
}
