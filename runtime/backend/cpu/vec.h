/* SPDX-License-Identifier: Apache-2.0 */
/* A virtual vector: the tensors of a batch seen as one run of bytes, walked by
 * forward-only cursors. It lets a fused batch be packed straight into shared memory or
 * into a socket's iovec, without a fusion buffer. */
#ifndef RUNTIME_BACKEND_CPU_VEC_H
#define RUNTIME_BACKEND_CPU_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct piece {
    const uint8_t *in; /* where bytes come from */
    uint8_t *out;      /* destination of the result; may equal in */
    uint64_t n;        /* bytes */
};
struct vec {
    const struct piece *v; /* borrowed */
    size_t n;
    uint64_t n_bytes; /* sum */
};
struct vec vec_of(const struct piece *v, size_t n);

struct cursor {
    const struct piece *v;
    size_t n, i;
    uint64_t off; /* inside v[i] */
};
struct cursor cursor_at(const struct vec *v);
/* The next contiguous run, at most max bytes; 0 at the end. Advances. */
uint64_t
cursor_next(struct cursor *c, uint64_t max, const uint8_t **ret_in, uint8_t **ret_out);
void cursor_skip(struct cursor *c, uint64_t n);
/* Copies the next n bytes: vector -> p (pack) or p -> vector (unpack); advance. */
void cursor_pack(struct cursor *c, uint8_t *p, uint64_t n);
void cursor_unpack(struct cursor *c, const uint8_t *p, uint64_t n);
/* in -> out for the next n bytes, where they differ. */
void cursor_copy(struct cursor *c, uint64_t n);
/* from's in side -> to's out side, as many bytes as the shorter has. */
void vec_copy(const struct vec *from, const struct vec *to);
/* Describes the next bytes (at most max_bytes, max_iov entries) without advancing; from
 * the in side for sending, the out side for receiving. Returns the number of entries.
 */
size_t cursor_iov(const struct cursor *c,
                  int is_send,
                  struct iovec *iov,
                  size_t max_iov,
                  uint64_t max_bytes);

#endif
