/* SPDX-License-Identifier: Apache-2.0 */
/* How a batch of tensors travels: which NCCL calls it takes and where each tensor lies
 * in the fusion buffer. Pure.
 *
 * Every rank must make the same calls, so all but fuse_is_contiguous is a function of
 * counts, types and the communicator's terms, which are equal on all of them; never of
 * addresses. */
#ifndef RUNTIME_BACKEND_NCCL_FUSE_H
#define RUNTIME_BACKEND_NCCL_FUSE_H

#include "runtime/backend/nccl/card.h"
#include "runtime/backend/nccl/kernels/args.h"
#include "runtime/core/types.h"

#define FUSE_ALIGN     16u /* of a tensor in the buffer: whole vectors of the kernels */
#define FUSE_GROUP_MAX 16u /* tensors of a FUSE_GROUP that might as well be packed */

enum fuse_way {
    FUSE_DIRECT, /* one call, on the tensor itself */
    FUSE_GROUP,  /* a call a tensor, on itself, in one NCCL group */
    FUSE_PACKED  /* into the buffer, and out of it */
};

struct fuse_plan {
    enum fuse_way way;
    enum dtype wire;
    /* FUSE_PACKED: a call a tensor, in one group, instead of one for all: results may
     * not depend on what is fused. */
    bool is_call_each;
    uint64_t wire_bytes; /* of the buffer; the offsets count for FUSE_PACKED alone */
};

/* n tensors of counts[n] elements of type `in`, which travel as `wire` (of another size
 * only if they cannot travel as they are). ret_offsets[n]: bytes from the buffer's
 * beginning. n >= 1. -EOVERFLOW: more bytes than 2^63. */
int fuse_plan(const uint64_t *counts,
              size_t n,
              enum dtype in,
              enum dtype wire,
              const struct comm_terms *t,
              struct fuse_plan *ret,
              uint64_t *ret_offsets);

/* Of this rank alone: do tensors of type `in` at these addresses lie as the buffer has
 * them, without gaps? Then NCCL may work on them in place of the buffer, for the number
 * of bytes is the same. Not with graphs or registered buffers, where the address is a
 * part of the call. */
bool fuse_is_contiguous(const struct fuse_plan *p,
                        const struct comm_terms *t,
                        enum dtype in,
                        const uint64_t *counts,
                        const uint64_t *offsets,
                        const uint64_t *addresses,
                        size_t n);

/* A tensor on its way through a kernel. */
struct fuse_move {
    uint64_t src, dst;           /* addresses; src 0: zeros */
    uint64_t count;              /* elements; KERNEL_copy: bytes, of size 1 */
    uint32_t src_size, dst_size; /* of an element */
    uint32_t tensor;             /* chunk.tensor */
};
/* How many chunks it takes; none for no elements. */
uint64_t fuse_chunk_count(const struct fuse_move *m);
/* Writes them; returns how many. */
uint64_t fuse_chunks(const struct fuse_move *m, struct chunk *ret);

#endif
