/* SPDX-License-Identifier: Apache-2.0 */
/* Frames over an authenticated connection between an agent and the leader of its job
 * (the hub or horovodrun), with heartbeats. Never blocks. One thread.
 *
 *   frame  length:4 (of the payload) type:1 payload mac:32
 *   mac    HMAC(the sender's session key, sequence:8 | length | type | payload)
 *
 * A sealed channel also encrypts the payload: it is XORed with a stream whose i-th 32
 * bytes are HMAC(HMAC(the sender's session key, "seal"), sequence:8 | i:8). The MAC is
 * computed over the encrypted payload. */
#ifndef RUNTIME_LAUNCH_CHANNEL_H
#define RUNTIME_LAUNCH_CHANNEL_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/strbuf.h"
#include "runtime/wire/auth.h"

struct channel {
    int fd, out_fd; /* out_fd is fd, except for pipes */
    bool is_sealed;
    struct auth_session session;
    struct strbuf in, out;
    size_t max_payload_bytes; /* of incoming frames */
    uint64_t received_ns, sent_ns;
    bool has_ended; /* the peer closed; frames received before can still be read */
};
struct frame {
    uint8_t type;
    const uint8_t *p;
    size_t n;
};

/* Takes ownership of fd, which is non-blocking. */
void channel_init(struct channel *c,
                  int fd,
                  const struct auth_session *session,
                  size_t max_payload_bytes,
                  uint64_t now_ns);
/* The same over two pipes; out_fd is written to. Takes ownership of both. The caller
 * must ignore SIGPIPE. */
void channel_init_pipes(struct channel *c,
                        int in_fd,
                        int out_fd,
                        const struct auth_session *session,
                        size_t max_payload_bytes,
                        uint64_t now_ns);
void channel_release(struct channel *c);
/* Queues a frame and writes what the socket accepts. 0 or -errno. */
int channel_send(
    struct channel *c, uint8_t type, const void *p, size_t n, uint64_t now_ns);
short channel_events(const struct channel *c); /* poll events of fd; not for pipes */
/* The two entries to poll, for sockets and pipes: reading, and writing while data is
 * queued. */
void channel_pollfds(const struct channel *c, struct pollfd ret[2]);
/* Reads and writes without blocking. 0, or -errno if the connection is lost (-EPIPE:
 * the peer closed it). In both cases received frames remain available. */
int channel_serve(struct channel *c, uint64_t now_ns);
/* 1: *ret is the oldest frame, still in the buffer; 0: no complete frame; -EPROTO or
 * -EACCES (wrong MAC), with err. */
int channel_next(struct channel *c, struct frame *ret, struct err *err);
void channel_drop(struct channel *c, const struct frame *f);
/* Sends ping_type if nothing was sent for timeout/6. -ETIMEDOUT if nothing was received
 * for timeout. *ret_next_ns: time of the next call. */
int channel_tick(struct channel *c,
                 uint8_t ping_type,
                 uint64_t timeout_ns,
                 uint64_t now_ns,
                 uint64_t *ret_next_ns);

#endif
