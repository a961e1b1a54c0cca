/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of frames (wire/frame.h) between an agent and the leader of its job (the
 * hub or horovodrun), with heartbeats. Never blocks. One thread. */
#ifndef RUNTIME_LAUNCH_CHANNEL_H
#define RUNTIME_LAUNCH_CHANNEL_H

#include <poll.h>

#include "runtime/wire/frame.h"

struct channel {
    struct frame_conn conn;
    uint64_t received_ns, sent_ns;
    int lost; /* -errno: the connection is lost (-EPIPE: the peer closed it) */
};

/* Takes ownership of fd. */
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
/* From here on, and at the other end, payloads are encrypted. Before the first frame. */
void channel_seal(struct channel *c);
void channel_release(struct channel *c);
/* Queues a frame and writes what the socket accepts. 0 or -errno. */
int channel_send(
    struct channel *c, uint8_t type, const void *p, size_t n, uint64_t now_ns);
short channel_events(const struct channel *c); /* poll events of fd; not for pipes */
/* The two entries to poll, for sockets and pipes: reading, and writing while data is
 * queued. */
void channel_pollfds(const struct channel *c, struct pollfd ret[2]);
/* Writes what is queued, and allows channel_next to read. */
void channel_serve(struct channel *c);
/* 1: *ret is the next frame, valid until the next call; 0: none is complete, and if the
 * connection is lost, c->lost is set; -EBADMSG, with err: a frame is wrong. */
int channel_next(struct channel *c,
                 uint64_t now_ns,
                 struct frame *ret,
                 struct err *err);
/* Sends ping_type if nothing was sent for timeout/6. -ETIMEDOUT if nothing was received
 * for timeout; or why a frame could not be queued. That the peer has closed is no error
 * here: its last frames may be unread. *ret_next_ns: time of the next call. */
int channel_tick(struct channel *c,
                 uint8_t ping_type,
                 uint64_t timeout_ns,
                 uint64_t now_ns,
                 uint64_t *ret_next_ns);

#endif
