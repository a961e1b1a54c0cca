/* SPDX-License-Identifier: Apache-2.0 */
/* How a batch of tensors is sent: which NCCL calls it takes and where each tensor lies
 * in the fusion buffer. Pure.
 *
 * Every rank must make the same calls, so all but fuse_is_contiguous is a function of
 * counts, types and the communicator's terms, which are equal on all ranks; never of
 * addresses. */
#ifndef RUNTIME_BACKEND_NCCL_FUSE_H
#define RUNTIME_BACKEND_NCCL_FUSE_H

#include "runtime/backend/nccl/card.h"
#include "runtime/backend/nccl/kernels/args.h"
#include "runtime/core/types.h"

#define FUSE_ALIGN     16u /* of a tensor in the buffer: whole vectors of the kernels */
#define FUSE_GROUP_MAX 16u /* most tensors of a FUSE_GROUP unless deterministic */

static inline uint64_t fuse_align_size(uint64_t bytes)
{
    return (bytes + FUSE_ALIGN - 1) / FUSE_ALIGN * FUSE_ALIGN;
}

enum fuse_way {
    FUSE_DIRECT, /* one call, on the tensor itself */
    FUSE_GROUP,  /* one call per tensor, on itself, in one NCCL group */
    FUSE_PACKED  /* through the buffer */
};

struct fuse_plan {
    enum fuse_way way;
    enum dtype wire;
    /* FUSE_PACKED: one call per tensor, in one group, instead of one for all: results
     * must not depend on what is fused. */
    bool is_call_each;
    uint64_t wire_bytes; /* of the buffer; offsets are used for FUSE_PACKED only */
};

/* n tensors of counts[n] elements of type `in`, which are sent as `wire` (of another
 * size only if they cannot be sent as they are). ret_offsets[n]: bytes from the start
 * of the buffer. n >= 1. -EOVERFLOW: more bytes than 2^63. */
int fuse_plan(const uint64_t *counts,
              size_t n,
              enum dtype in,
              enum dtype wire,
              const struct comm_terms *t,
              struct fuse_plan *ret,
              uint64_t *ret_offsets);

/* Local to this rank: do tensors of type `in` at these addresses lie as in the buffer,
 * without gaps? Then NCCL may work on them instead of the buffer, because the number
 * of bytes is the same. Not with graphs or registered buffers, where the address is
 * part of the call. */
bool fuse_is_contiguous(const struct fuse_plan *p,
                        const struct comm_terms *t,
                        enum dtype in,
                        const uint64_t *counts,
                        const uint64_t *offsets,
                        const uint64_t *addresses,
                        size_t n);

/* A tensor that a kernel moves. */
struct fuse_move {
    uint64_t src, dst;           /* addresses; src 0: zeros */
    uint64_t count;              /* elements; KERNEL_copy: bytes, of size 1 */
    uint32_t src_size, dst_size; /* of an element */
    uint32_t tensor;             /* chunk.tensor */
};
/* Its number of chunks; 0 for no elements. */
uint64_t fuse_chunk_count(const struct fuse_move *m);
/* Writes the chunks; returns their number. */
uint64_t fuse_chunks(const struct fuse_move *m, struct chunk *ret);

#endif
