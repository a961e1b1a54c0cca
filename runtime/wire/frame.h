/* SPDX-License-Identifier: Apache-2.0 */
/* Authenticated frames on one connection that auth.h or accept.h has opened. All our
 * programs use them: control channel, rendezvous, agents and launchers.
 *
 *   frame    length:4 (of the payload) type:1 zero:3 payload tag:16
 *   tag      first 16 bytes of HMAC(key of the direction, sequence:8 | header | body)
 *   body     the payload; if it has more than FRAME_DIRECT_BYTES, its SHA-256, so that a
 *            payload for many peers is hashed once
 *   sealed   the payload is encrypted, and the tag is that of the cipher (seal.h)
 *
 * The sequence number is not sent: a frame that is lost, repeated or reordered has a
 * wrong tag, and the connection ends. Non-blocking; one thread at a time. */
#ifndef RUNTIME_WIRE_FRAME_H
#define RUNTIME_WIRE_FRAME_H

#include "runtime/base/err.h"
#include "runtime/base/sha256.h"
#include "runtime/wire/auth.h"

#define FRAME_HEADER_BYTES 8
#define FRAME_TAG_BYTES    16
#define FRAME_DIRECT_BYTES 64
#define FRAME_MAX_UNSENT   (64u << 20) /* unsent bytes at which a peer is lost */

struct frame {
    uint8_t type;     /* 1 to 255, of the protocol that uses the connection */
    const uint8_t *p; /* the payload, in the connection's buffer */
    size_t n;
};

/* An authenticated cipher. The key is never used twice with one sequence number. */
struct frame_cipher {
    /* In place; the header is authenticated, too. */
    void (*seal)(const uint8_t key[32],
                 uint64_t sequence,
                 const uint8_t header[FRAME_HEADER_BYTES],
                 uint8_t *p,
                 size_t n,
                 uint8_t ret_tag[FRAME_TAG_BYTES]);
    /* -EBADMSG: wrong tag, and the payload is undefined. */
    int (*open)(const uint8_t key[32],
                uint64_t sequence,
                const uint8_t header[FRAME_HEADER_BYTES],
                uint8_t *p,
                size_t n,
                const uint8_t tag[FRAME_TAG_BYTES]);
};

/* One direction of a connection. */
struct frame_key {
    uint8_t key[32];
    struct hmac start; /* keyed, nothing added yet */
    uint64_t n;        /* frames so far */
};
void frame_key_init(struct frame_key *k, const uint8_t key[32]);

/* The parts of a frame, for senders with buffers of their own (rendezvous/conn.c).
 * digest: SHA-256 of the payload if it has more than FRAME_DIRECT_BYTES, else NULL. */
void frame_put_header(uint8_t ret[FRAME_HEADER_BYTES], uint8_t type, size_t n);
/* -EBADMSG: no header, or a payload of more than max_bytes. */
int frame_get_header(const uint8_t header[FRAME_HEADER_BYTES],
                     size_t max_bytes,
                     uint8_t *ret_type,
                     size_t *ret_n);
/* The tag of the next frame; increments the sequence number. */
void frame_make_tag(struct frame_key *k,
                    const uint8_t header[FRAME_HEADER_BYTES],
                    const void *p,
                    size_t n,
                    const uint8_t *digest,
                    uint8_t ret[FRAME_TAG_BYTES]);
/* 0 and the sequence number is incremented, or -EBADMSG. */
int frame_check_tag(struct frame_key *k,
                    const uint8_t header[FRAME_HEADER_BYTES],
                    const void *p,
                    size_t n,
                    const uint8_t tag[FRAME_TAG_BYTES]);

struct frame_conn {
    int fd;                            /* -1: closed */
    int out_fd;                        /* fd, except for two pipes */
    size_t max_bytes;                  /* of a payload that is received */
    uint64_t n_read;                   /* bytes received, of frames or parts of them */
    const struct frame_cipher *cipher; /* NULL: not sealed */
    struct frame_key send, recv;
    uint8_t *in, *out;
    size_t in_at, in_n, in_cap;
    size_t out_at, out_n, out_cap;
    unsigned reads_left; /* before the socket counts as empty until frame_readable() */
};

void frame_init(struct frame_conn *c); /* closed */
/* Takes over fd, which becomes non-blocking. */
void frame_open(struct frame_conn *c,
                int fd,
                const struct auth_session *s,
                size_t max_bytes);
/* Takes over two pipes; the caller ignores SIGPIPE. */
void frame_open_pipes(struct frame_conn *c,
                      int in_fd,
                      int out_fd,
                      const struct auth_session *s,
                      size_t max_bytes);
/* Closes, and wipes the keys; what frame_recv has returned stays valid. */
void frame_close(struct frame_conn *c);
void frame_release(struct frame_conn *c); /* the same, and frees */

/* Sends, or keeps what the socket does not accept (frame_unsent). 0; -ENOMEM or -ENOBUFS
 * (FRAME_MAX_UNSENT): the frame is dropped, and so must be the connection; -EPIPE: the
 * peer has closed or reset the connection, here and below; or the socket's error. */
int frame_send(struct frame_conn *c, uint8_t type, const void *p, size_t n);
/* 0, or the socket's error; -EAGAIN is no error. */
int frame_flush(struct frame_conn *c);
size_t frame_unsent(const struct frame_conn *c); /* bytes */
/* Waits until everything is sent; for the last frames before closing. */
int frame_flush_until(struct frame_conn *c, uint64_t deadline_ns);

/* 1: *ret is valid until the next call. 0: none is complete. -EPIPE: the peer has
 * closed; -EBADMSG: wrong tag or header; or the socket's error. After 0 the socket is
 * not read again until frame_readable(), which allows a limited number of reads, so that
 * one peer cannot keep the caller busy. */
int frame_recv(struct frame_conn *c, struct frame *ret);
void frame_readable(struct frame_conn *c);
/* Blocks for one frame; -ETIMEDOUT. For joining. */
int frame_recv_until(struct frame_conn *c, uint64_t deadline_ns, struct frame *ret);

#endif
