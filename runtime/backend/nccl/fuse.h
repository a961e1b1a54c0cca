/* SPDX-License-Identifier: Apache-2.0 */
/* How a batch of tensors is sent. A packed tensor lies in the fusion buffer, and all
 * packed ones are one call. A direct tensor is a call on itself. All calls of a batch
 * are one NCCL group, up to GCOLL_MAX_CALLS. Pure.
 *
 *   no terms                all are packed
 *   deterministic           all are direct
 *   otherwise               direct: the first FUSE_GROUP_MAX tensors of direct_bytes or
 *                           more, and all from the one on that the smallest fusion
 *                           buffer has no room for; packed: the rest
 *     the rest is 0 or 1    all are direct
 *     else, with graphs     all are packed, or direct if there is no room: a graph holds
 *                           no address of a tensor
 *
 * Every rank must make the same calls, so all but fuse_find_base is a function of
 * counts, types and the communicator's terms, which are equal on all ranks; never of
 * addresses, or of the outputs that exist on this rank.
 *
 * In the buffer the packed tensors come first. The direct ones have places behind them,
 * for a member that has no tensor there. */
#ifndef RUNTIME_BACKEND_NCCL_FUSE_H
#define RUNTIME_BACKEND_NCCL_FUSE_H

#include "runtime/backend/nccl/card.h"
#include "runtime/backend/nccl/kernels/args.h"
#include "runtime/core/types.h"

#define FUSE_ALIGN     16u /* of a tensor in the buffer: whole vectors of the kernels */
#define FUSE_GROUP_MAX 16u /* most large tensors that are direct */

static inline uint64_t fuse_align_size(uint64_t bytes)
{
    return (bytes + FUSE_ALIGN - 1) / FUSE_ALIGN * FUSE_ALIGN;
}

struct fuse_plan {
    uint64_t packed_bytes; /* of the buffer, from its start: the packed tensors */
    uint64_t bytes;        /* of the buffer with the places of direct tensors */
};

/* n tensors of counts[n] elements, which are sent as elements of `size` bytes. t NULL:
 * for tensors that cannot be sent as they are. ret_offsets[n]: bytes from the start of
 * the buffer. n >= 1. -EOVERFLOW: more bytes than 2^63. */
int fuse_plan(const uint64_t *counts,
              size_t n,
              size_t size,
              const struct comm_terms *t,
              struct fuse_plan *ret,
              uint64_t *ret_offsets);
/* Of a tensor that is not empty. */
static inline bool fuse_is_packed(const struct fuse_plan *p, uint64_t offset)
{
    return offset < p->packed_bytes;
}

/* Local to this rank: do the packed tensors, of elements of `size` bytes, lie at these
 * addresses as in the buffer, without gaps? Then NCCL may work on them instead of the
 * buffer, because the number of bytes is the same. Returns the first one's address; 0:
 * they do not. Not with graphs or registered buffers, where the address is part of the
 * call. */
uint64_t fuse_find_base(const struct fuse_plan *p,
                        const struct comm_terms *t,
                        size_t size,
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
