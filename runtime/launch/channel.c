/* SPDX-License-Identifier: Apache-2.0 */
/* Frames with a length, a MAC and a sequence number, so that nothing on the pod network
 * can insert, change, drop or repeat one. Buffers are bounded: incoming frames by
 * max_payload_bytes, outgoing data by OUT_MAX_BYTES. A peer that does not read more
 * than that is treated as lost. Called by hub*.c, agent*.c, link.c, remote_agent.c,
 * rsh.c and shell.c. */
#include "runtime/launch/channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/sha256.h"
#include "runtime/wire/bytes.h"

#define HEADER_BYTES  5
#define OUT_MAX_BYTES (64u << 20)

void channel_init(struct channel *c,
                  int fd,
                  const struct auth_session *session,
                  size_t max_payload_bytes,
                  uint64_t now_ns)
{
    memset(c, 0, sizeof(*c));
    c->fd = c->out_fd = fd;
    c->session = *session;
    c->max_payload_bytes = max_payload_bytes;
    c->received_ns = c->sent_ns = now_ns;
    strbuf_init(&c->in, 2 * (max_payload_bytes + HEADER_BYTES + SHA256_BYTES) + 65536);
    strbuf_init(&c->out, OUT_MAX_BYTES);
}

void channel_init_pipes(struct channel *c,
                        int in_fd,
                        int out_fd,
                        const struct auth_session *session,
                        size_t max_payload_bytes,
                        uint64_t now_ns)
{
    channel_init(c, in_fd, session, max_payload_bytes, now_ns);
    c->out_fd = out_fd;
}

void channel_release(struct channel *c)
{
    if (c->out_fd != c->fd)
        fd_close(&c->out_fd);
    fd_close(&c->fd);
    c->out_fd = -1;
    strbuf_release(&c->in);
    strbuf_release(&c->out);
    memset(&c->session, 0, sizeof(c->session));
}

static void channel_frame_mac(const uint8_t key[32],
                              uint64_t sequence,
                              const uint8_t *frame,
                              size_t n,
                              uint8_t ret[SHA256_BYTES])
{
    struct hmac m;
    uint8_t number[8];
    bytes_store(number, sequence, sizeof(number));
    hmac_init(&m, key, 32);
    hmac_add(&m, number, sizeof(number));
    hmac_add(&m, frame, n);
    hmac_end(&m, ret);
}

/* Encrypts or decrypts a payload in place. No part of the key stream is used twice: the
 * sequence number increases, and each direction of each connection has its own key. */
static void
channel_xor_payload(const uint8_t key[32], uint64_t sequence, uint8_t *p, size_t n)
{
    struct hmac keyed, m;
    uint8_t seal_key[SHA256_BYTES], number[16], stream[SHA256_BYTES];
    hmac_init(&m, key, 32);
    hmac_add(&m, "seal", 4);
    hmac_end(&m, seal_key);
    hmac_init(&keyed, seal_key, sizeof(seal_key));
    bytes_store(number, sequence, 8);
    for (size_t i = 0; i < n; i++) {
        if (i % SHA256_BYTES == 0) {
            bytes_store(number + 8, i / SHA256_BYTES, 8);
            m = keyed;
            hmac_add(&m, number, sizeof(number));
            hmac_end(&m, stream);
        }
        p[i] ^= stream[i % SHA256_BYTES];
    }
    memset(seal_key, 0, sizeof(seal_key));
}

static void strbuf_drop_front(struct strbuf *b, size_t n)
{
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
    b->p[b->n] = '\0';
}

static int channel_flush(struct channel *c)
{
    size_t done = 0;
    int rc = 0;
    while (done < c->out.n) {
        const char *p = c->out.p + done;
        size_t left = c->out.n - done;
        ssize_t n = c->out_fd == c->fd
                        ? send(c->fd, p, left, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : write(c->out_fd, p, left);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            rc = errno == EAGAIN ? 0 : -errno;
            break;
        }
    }
    if (done)
        strbuf_drop_front(&c->out, done);
    return rc;
}

int channel_send(
    struct channel *c, uint8_t type, const void *p, size_t n, uint64_t now_ns)
{
    uint8_t sum[SHA256_BYTES];
    size_t start = c->out.n;
    bytes_put(&c->out, n, 4);
    bytes_put(&c->out, type, 1);
    strbuf_add(&c->out, p, n);
    if (strbuf_status(&c->out) == 0) {
        if (c->is_sealed)
            channel_xor_payload(c->session.send_key, c->session.n_sent,
                                (uint8_t *)c->out.p + start + HEADER_BYTES, n);
        channel_frame_mac(c->session.send_key, c->session.n_sent++,
                          (const uint8_t *)c->out.p + start, n + HEADER_BYTES, sum);
        strbuf_add(&c->out, sum, sizeof(sum));
    }
    if (strbuf_status(&c->out) < 0)
        return strbuf_status(&c->out);
    c->sent_ns = now_ns;
    return channel_flush(c);
}

short channel_events(const struct channel *c)
{
    return (short)(POLLIN | (c->out.n ? POLLOUT : 0));
}

void channel_pollfds(const struct channel *c, struct pollfd ret[2])
{
    bool is_one = c->out_fd == c->fd;
    ret[0] =
        (struct pollfd){.fd = c->fd, .events = is_one ? channel_events(c) : POLLIN};
    ret[1] =
        (struct pollfd){.fd = !is_one && c->out.n ? c->out_fd : -1, .events = POLLOUT};
}

int channel_serve(struct channel *c, uint64_t now_ns)
{
    char buf[16384];
    int rc = channel_flush(c);
    while (rc == 0 && !c->has_ended && c->in.n <= c->max_payload_bytes + 16384) {
        ssize_t n = c->out_fd == c->fd ? recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT)
                                       : read(c->fd, buf, sizeof(buf));
        if (n > 0) {
            c->received_ns = now_ns;
            strbuf_add(&c->in, buf, (size_t)n);
            rc = strbuf_status(&c->in);
        } else if (n == 0) {
            c->has_ended = true;
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            rc = -errno;
        }
    }
    return rc < 0 ? rc : c->has_ended ? -EPIPE : 0;
}

int channel_next(struct channel *c, struct frame *ret, struct err *err)
{
    uint8_t *p = (uint8_t *)c->in.p, sum[SHA256_BYTES];
    if (c->in.n < HEADER_BYTES)
        return 0;
    size_t n = bytes_load_u32(p);
    if (n > c->max_payload_bytes)
        return err_set(err, -EPROTO, "a frame of %zu bytes exceeds %zu", n,
                       c->max_payload_bytes);
    if (c->in.n < HEADER_BYTES + n + SHA256_BYTES)
        return 0;
    channel_frame_mac(c->session.recv_key, c->session.n_received, p, HEADER_BYTES + n,
                      sum);
    if (!mac_equal(sum, p + HEADER_BYTES + n))
        return err_set(err, -EACCES, "a frame's authentication code is wrong");
    if (c->is_sealed)
        channel_xor_payload(c->session.recv_key, c->session.n_received,
                            p + HEADER_BYTES, n);
    c->session.n_received++;
    ret->type = p[4];
    ret->p = p + HEADER_BYTES;
    ret->n = n;
    return 1;
}

void channel_drop(struct channel *c, const struct frame *f)
{
    strbuf_drop_front(&c->in, HEADER_BYTES + f->n + SHA256_BYTES);
}

int channel_tick(struct channel *c,
                 uint8_t ping_type,
                 uint64_t timeout_ns,
                 uint64_t now_ns,
                 uint64_t *ret_next_ns)
{
    uint64_t interval = timeout_ns / 6;
    if (now_ns >= c->received_ns + timeout_ns)
        return -ETIMEDOUT;
    if (now_ns >= c->sent_ns + interval) {
        int rc = channel_send(c, ping_type, NULL, 0, now_ns);
        if (rc < 0)
            return rc;
    }
    uint64_t ping = c->sent_ns + interval, silent = c->received_ns + timeout_ns;
    *ret_next_ns = ping < silent ? ping : silent;
    return 0;
}
