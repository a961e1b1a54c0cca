/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a batch, and its chunks.
 *
 * Design: packing reads and writes each byte twice, which pays for small tensors only:
 * NCCL is as fast with a large one alone. Tensors start at multiples of 16 bytes in the
 * buffer, whatever their addresses are: the padding is a function of counts (and is
 * sent: at most 15 bytes per tensor).
 *
 * Invariants: offsets ascend among the packed tensors and among the direct ones, do not
 * overlap, and end within `bytes`; chunks of one tensor follow each other without gaps,
 * all but the last of CHUNK_BYTES on the wider side, so each starts at the tensor's own
 * distance from a 16-byte boundary.
 *
 * Called by the launcher, once per batch. */
#include "runtime/backend/nccl/fuse.h"

#include <errno.h>

/* Direct are the tensors in front of `end` that have at least `least` elements, and all
 * from packed_end on. */
struct fuse_split {
    uint64_t least;
    size_t end, packed_end;
};

static bool is_direct(const struct fuse_split *s, const uint64_t *counts, size_t i)
{
    return i >= s->packed_end || (i < s->end && counts[i] >= s->least);
}

/* Where the packed tensors no longer fit: a member may have no memory for more. */
static size_t find_packed_end(const struct fuse_split *s,
                              const uint64_t *counts,
                              size_t n,
                              size_t size,
                              uint64_t limit)
{
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_direct(s, counts, i))
            continue;
        if (counts[i] > limit / size || fuse_align_size(counts[i] * size) > limit - at)
            return i;
        at += fuse_align_size(counts[i] * size);
    }
    return SIZE_MAX;
}

static struct fuse_split
split_of(const uint64_t *counts, size_t n, size_t size, const struct comm_terms *t)
{
    static const struct fuse_split all_packed = {0, 0, SIZE_MAX}, all_direct = {0};
    size_t n_direct = 0;
    if (!t)
        return all_packed;
    struct fuse_split s = {.least =
                               t->direct_bytes / size + (t->direct_bytes % size != 0),
                           .packed_end = SIZE_MAX};
    for (; s.end < n && n_direct < FUSE_GROUP_MAX; s.end++)
        n_direct += counts[s.end] >= s.least;
    if (t->is_deterministic || n - n_direct <= 1)
        return all_direct;
    if (t->uses_graphs)
        return find_packed_end(&all_packed, counts, n, size, t->fusion_bytes) < n
                   ? all_direct
                   : all_packed;
    s.packed_end = find_packed_end(&s, counts, n, size, t->fusion_bytes);
    return s;
}

int fuse_plan(const uint64_t *counts,
              size_t n,
              size_t size,
              const struct comm_terms *t,
              struct fuse_plan *ret,
              uint64_t *ret_offsets)
{
    const struct fuse_split s = split_of(counts, n, size, t);
    uint64_t at = 0, packed = 0;
    for (int direct = 0; direct < 2; direct++) {
        packed = at; /* at last, where the direct ones begin */
        for (size_t i = 0; i < n; i++) {
            if (is_direct(&s, counts, i) != direct)
                continue;
            if (counts[i] > (uint64_t)INT64_MAX / 8 - FUSE_ALIGN)
                return -EOVERFLOW;
            ret_offsets[i] = at;
            at += fuse_align_size(counts[i] * size);
            if (at > (uint64_t)INT64_MAX)
                return -EOVERFLOW;
        }
    }
    *ret = (struct fuse_plan){packed, at};
    return 0;
}

uint64_t fuse_find_base(const struct fuse_plan *p,
                        const struct comm_terms *t,
                        size_t size,
                        const uint64_t *counts,
                        const uint64_t *offsets,
                        const uint64_t *addresses,
                        size_t n)
{
    uint64_t base = 0;
    if (t->uses_graphs || t->registers)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (counts[i] == 0 || !fuse_is_packed(p, offsets[i]))
            continue;
        if (base == 0) /* the first one, whose offset is 0 */
            base = addresses[i];
        if (counts[i] * size % FUSE_ALIGN != 0 || addresses[i] - base != offsets[i])
            return 0;
    }
    return base;
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
