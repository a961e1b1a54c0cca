/* SPDX-License-Identifier: Apache-2.0 */
/* Authenticated frames on one connection that auth.h has opened: length, type, payload,
 * MAC over all of it and the frame's sequence number. Non-blocking; one thread at a
 * time. */
#ifndef RUNTIME_CONTROL_FRAME_H
#define RUNTIME_CONTROL_FRAME_H

#include "runtime/base/err.h"
#include "runtime/base/sha256.h"
#include "runtime/wire/auth.h"

#define FRAME_MAX_BYTES  ((16u << 20) + 64) /* payload: a message and its headers */
#define FRAME_MAX_UNSENT (64u << 20)        /* unsent bytes at which a peer is lost */
#define FRAME_MAC_BYTES  16

enum frame_type {                  /* wire values */
                  FRAME_JOIN = 1,  /* to the parent: u32 rank */
                  FRAME_WELCOME,   /* from the parent: nothing */
                  FRAME_UP,        /* to the parent: bundle.h */
                  FRAME_DOWN,      /* from the parent: core/message of responses */
                  FRAME_ABORT,     /* from the parent: text: the cause, for all ranks */
                  FRAME_ENDED,     /* from the parent: text: who left; after the last
                                      response */
                  FRAME_HEARTBEAT, /* both ways: nothing */
                  FRAME_TYPE_END
};

struct frame_conn {
    int fd;                             /* -1: closed */
    struct hmac send_start, recv_start; /* keyed, nothing added yet */
    uint64_t n_sent, n_received;
    uint8_t *in, *out;
    size_t in_at, in_n, in_cap;
    size_t out_at, out_n, out_cap;
    bool is_drained; /* the last read emptied the socket */
};

void frame_init(struct frame_conn *c); /* closed */
/* Takes over fd, which becomes non-blocking. */
void frame_open(struct frame_conn *c, int fd, const struct auth_session *s);
void frame_release(struct frame_conn *c); /* closes */

/* Sends, or keeps what the socket does not accept (frame_wants_write). 0, -ENOMEM,
 * -EMSGSIZE, -ENOBUFS (FRAME_MAX_UNSENT), or the socket's error. */
int frame_send(struct frame_conn *c, enum frame_type type, const void *p, size_t n);
int frame_flush(
    struct frame_conn *c); /* 0, or the socket's error; -EAGAIN is no error */
bool frame_wants_write(const struct frame_conn *c);
/* Waits until everything is sent; for the last frames before closing. */
int frame_flush_until(struct frame_conn *c, uint64_t deadline_ns);

/* 1: a frame; *ret_p is valid until the next call. 0: none is complete. -EPIPE: the
 * peer has closed; -EBADMSG: wrong MAC, length or type; or the socket's error. After 0
 * the socket is not read again until frame_readable(). */
int frame_recv(struct frame_conn *c,
               enum frame_type *ret_type,
               const uint8_t **ret_p,
               size_t *ret_n);
void frame_readable(struct frame_conn *c);
/* Blocks for one frame; -ETIMEDOUT. For joining. */
int frame_recv_until(struct frame_conn *c,
                     uint64_t deadline_ns,
                     enum frame_type *ret_type,
                     const uint8_t **ret_p,
                     size_t *ret_n);

#endif
