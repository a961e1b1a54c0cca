/* SPDX-License-Identifier: Apache-2.0 */
/* Frames over an authenticated connection between an agent and whoever leads the job
 * (the hub, horovodrun), with heartbeat. Never blocks. One thread.
 *
 *   frame  length:4 (of payload, big-endian) type:1 payload mac:32
 *   mac    HMAC(the sender's session key, sequence:8 | length | type | payload)
 *
 * A sealed channel also hides the payload: it is sent xor the stream whose i-th 32
 * bytes are HMAC(HMAC(the sender's session key, "seal"), sequence:8 | i:8); the MAC is
 * over what is sent. */
#ifndef RUNTIME_LAUNCH_CHANNEL_H
#define RUNTIME_LAUNCH_CHANNEL_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/strbuf.h"
#include "runtime/rendezvous/auth.h"

struct channel {
    int fd, out_fd; /* out_fd: fd, but for pipes */
    bool is_sealed;
    struct auth_session session;
    struct strbuf in, out;
    size_t max_payload_bytes; /* that the peer may send */
    uint64_t received_ns, sent_ns;
    bool has_ended; /* the peer closed; frames that came before can still be taken */
};
struct frame {
    uint8_t type;
    const uint8_t *p; /* valid until channel_drop or channel_release */
    size_t n;
};

/* Takes over fd (non-blocking) on success. */
void channel_init(struct channel *c,
                  int fd,
                  const struct auth_session *session,
                  size_t max_payload_bytes,
                  uint64_t now_ns);
/* The same over two pipes, of which it writes to out_fd; both are taken over. The
 * caller ignores SIGPIPE. */
void channel_init_pipes(struct channel *c,
                        int in_fd,
                        int out_fd,
                        const struct auth_session *session,
                        size_t max_payload_bytes,
                        uint64_t now_ns);
void channel_release(struct channel *c);
/* Queues a frame and writes what the socket takes. 0 or -errno. */
int channel_send(
    struct channel *c, uint8_t type, const void *p, size_t n, uint64_t now_ns);
short channel_events(const struct channel *c); /* what to poll fd for; not for pipes */
/* The two entries to poll, pipes or not: reading, and writing while something waits. */
void channel_pollfds(const struct channel *c, struct pollfd ret[2]);
/* Reads and writes what is possible. 0, or -errno when the connection is gone (-EPIPE:
 * the peer closed it); take the frames that came first in either case. */
int channel_serve(struct channel *c, uint64_t now_ns);
/* 1: *ret is the oldest frame, still in the buffer; 0: none; -EPROTO, -EACCES (MAC),
 * with err. */
int channel_next(struct channel *c, struct frame *ret, struct err *err);
void channel_drop(struct channel *c, const struct frame *f);
/* Sends ping_type when nothing was sent for timeout/6. -ETIMEDOUT when nothing was
 * heard for timeout. *ret_next_ns: when to call again. */
int channel_tick(struct channel *c,
                 uint8_t ping_type,
                 uint64_t timeout_ns,
                 uint64_t now_ns,
                 uint64_t *ret_next_ns);

#endif
