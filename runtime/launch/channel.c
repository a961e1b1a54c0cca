/* SPDX-License-Identifier: Apache-2.0 */
/* A peer that does not read FRAME_MAX_UNSENT bytes is treated as lost. What was received
 * before a loss can still be read. Called by hub*.c, agent*.c, link.c, uplink.c,
 * remote_agent.c, rsh.c and shell.c. */
#include "runtime/launch/channel.h"

#include <errno.h>

#include "runtime/launch/seal.h"

void channel_init(struct channel *c,
                  int fd,
                  const struct auth_session *session,
                  size_t max_payload_bytes,
                  uint64_t now_ns)
{
    channel_init_pipes(c, fd, fd, session, max_payload_bytes, now_ns);
}

void channel_init_pipes(struct channel *c,
                        int in_fd,
                        int out_fd,
                        const struct auth_session *session,
                        size_t max_payload_bytes,
                        uint64_t now_ns)
{
    *c = (struct channel){.received_ns = now_ns, .sent_ns = now_ns};
    frame_open_pipes(&c->conn, in_fd, out_fd, session, max_payload_bytes);
}

void channel_seal(struct channel *c)
{
    c->conn.cipher = seal_cipher();
}

void channel_release(struct channel *c)
{
    frame_release(&c->conn);
}

int channel_send(
    struct channel *c, uint8_t type, const void *p, size_t n, uint64_t now_ns)
{
    int rc = frame_send(&c->conn, type, p, n);

    c->sent_ns = now_ns;
    if (rc == -ENOMEM || rc == -ENOBUFS)
        c->lost = rc; /* a frame is missing */
    return rc;
}

short channel_events(const struct channel *c)
{
    return (short)(POLLIN | (frame_unsent(&c->conn) > 0 ? POLLOUT : 0));
}

void channel_pollfds(const struct channel *c, struct pollfd ret[2])
{
    const struct frame_conn *f = &c->conn;
    bool is_one = f->out_fd == f->fd, wants = frame_unsent(f) > 0;

    ret[0] =
        (struct pollfd){.fd = f->fd, .events = is_one ? channel_events(c) : POLLIN};
    ret[1] =
        (struct pollfd){.fd = !is_one && wants ? f->out_fd : -1, .events = POLLOUT};
}

void channel_serve(struct channel *c)
{
    int rc = frame_flush(&c->conn);

    if (rc < 0 && !c->lost)
        c->lost = rc;
    frame_readable(&c->conn);
}

int channel_next(struct channel *c, uint64_t now_ns, struct frame *ret, struct err *err)
{
    uint64_t before = c->conn.n_read;
    int rc = frame_recv(&c->conn, ret);

    if (c->conn.n_read != before)
        c->received_ns = now_ns;
    if (rc == -EBADMSG)
        return err_set(err, rc, "a frame is not authentic or larger than %zu bytes",
                       c->conn.max_bytes);
    if (rc >= 0)
        return rc;
    if (!c->lost)
        c->lost = rc;
    return 0;
}

int channel_tick(struct channel *c,
                 uint8_t ping_type,
                 uint64_t timeout_ns,
                 uint64_t now_ns,
                 uint64_t *ret_next_ns)
{
    uint64_t interval = timeout_ns / 6;
    uint64_t ping, silent;

    if (c->lost && c->lost != -EPIPE)
        return c->lost;
    if (now_ns >= c->received_ns + timeout_ns)
        return -ETIMEDOUT;
    if (now_ns >= c->sent_ns + interval) {
        int rc = channel_send(c, ping_type, NULL, 0, now_ns);

        if (rc < 0 && rc != -EPIPE)
            return rc;
    }
    ping = c->sent_ns + interval;
    silent = c->received_ns + timeout_ns;
    *ret_next_ns = ping < silent ? ping : silent;
    return 0;
}
