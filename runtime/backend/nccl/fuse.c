/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a batch, and its chunks.
 *
 * Design: packing reads and writes each byte twice, which pays for small tensors only:
 * NCCL is as fast with a large one alone. So one tensor is packed only if what is sent
 * has another size, and a few large tensors are calls of one group. Tensors start at
 * multiples of 16 bytes in the buffer, whatever their addresses are: the padding is a
 * function of counts (and is sent: at most 15 bytes per tensor).
 *
 * Invariants: offsets ascend, do not overlap, and end within wire_bytes; chunks of one
 * tensor follow each other without gaps, all but the last of CHUNK_BYTES on the wider
 * side, so each starts at the tensor's own distance from a 16-byte boundary.
 *
 * Called by the launcher, once per batch. */
#include "runtime/backend/nccl/fuse.h"

#include <errno.h>

static bool are_all_large(const uint64_t *counts, size_t n, size_t size, uint64_t least)
{
    for (size_t i = 0; i < n; i++)
        if (counts[i] * size < least)
            return false;
    return true;
}

static enum fuse_way way_of(const uint64_t *counts,
                            size_t n,
                            bool is_same,
                            size_t size,
                            const struct comm_terms *t)
{
    if (!is_same)
        return FUSE_PACKED;
    if (n == 1)
        return FUSE_DIRECT;
    if (t->is_deterministic)
        return FUSE_GROUP;
    return n <= FUSE_GROUP_MAX && are_all_large(counts, n, size, t->direct_bytes)
               ? FUSE_GROUP
               : FUSE_PACKED;
}

int fuse_plan(const uint64_t *counts,
              size_t n,
              enum dtype in,
              enum dtype wire,
              const struct comm_terms *t,
              struct fuse_plan *ret,
              uint64_t *ret_offsets)
{
    size_t size = dtype_size(in), wire_size = dtype_size(wire);
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (counts[i] > (uint64_t)INT64_MAX / 8 - FUSE_ALIGN)
            return -EOVERFLOW;
        ret_offsets[i] = at;
        at += fuse_align_size(counts[i] * wire_size);
        if (at > (uint64_t)INT64_MAX)
            return -EOVERFLOW;
    }
    *ret = (struct fuse_plan){.way = way_of(counts, n, size == wire_size, size, t),
                              .wire = wire,
                              .is_call_each = t->is_deterministic && n > 1,
                              .wire_bytes = at};
    return 0;
}

bool fuse_is_contiguous(const struct fuse_plan *p,
                        const struct comm_terms *t,
                        enum dtype in,
                        const uint64_t *counts,
                        const uint64_t *offsets,
                        const uint64_t *addresses,
                        size_t n)
{
    size_t size = dtype_size(in);
    if (p->way != FUSE_PACKED || size != dtype_size(p->wire) || t->uses_graphs
        || t->registers)
        return false;
    for (size_t i = 0; i < n; i++)
        if (counts[i] * size % FUSE_ALIGN != 0
            || (counts[i] != 0 && addresses[i] - addresses[0] != offsets[i]))
            return false;
    return n > 0 && counts[0] != 0;
}

static uint64_t chunk_elements(const struct fuse_move *m)
{
    return CHUNK_BYTES / (m->src_size > m->dst_size ? m->src_size : m->dst_size);
}

uint64_t fuse_chunk_count(const struct fuse_move *m)
{
    uint64_t most = chunk_elements(m);
    return m->count / most + (m->count % most != 0);
}

uint64_t fuse_chunks(const struct fuse_move *m, struct chunk *ret)
{
    uint64_t most = chunk_elements(m), k = 0;
    for (uint64_t at = 0; at < m->count; at += most) {
        uint64_t left = m->count - at;
        ret[k++] = (struct chunk){.src = m->src == 0 ? 0 : m->src + at * m->src_size,
                                  .dst = m->dst + at * m->dst_size,
                                  .n = (uint32_t)(left < most ? left : most),
                                  .tensor = m->tensor};
    }
    return k;
}
