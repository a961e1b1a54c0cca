/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of chunk tables.
 *
 * Design: content is compared as a whole (24 bytes for 32 KiB that a kernel moves); a
 * hash only saves the comparison with other entries. The least recently used entry is
 * replaced: an upload over its device memory is ordered after the kernels that read
 * it, because an entry belongs to one stream; if the memory is too small, it is given
 * back in the order of that stream. So nothing here waits for the device, except for
 * pinned memory.
 *
 * Invariant: an entry with n > 0 has the bytes of chunks[n] at `at` once its stream
 * has reached the last upload. An entry that failed half-way has n 0.
 *
 * Called by the launcher with our context current. */
#include "runtime/backend/nccl/table.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

#define PIECE_BYTES (PINNED_BYTES / 2) /* what scratch provides at once */

void tables_init(struct tables *t,
                 const struct cuda_api *cu,
                 struct gpu_memory *memory,
                 struct gpu_scratch *scratch,
                 int (*wait)(void *arg, struct err *err),
                 void *arg)
{
    *t = (struct tables){
        .cu = cu, .memory = memory, .scratch = scratch, .wait = wait, .arg = arg};
}

void table_drop(struct tables *t, struct table_entry *e)
{
    memory_give(t->memory, e->at, e->stream);
    mem_free(e->chunks);
    *e = (struct table_entry){0};
}

void tables_release(struct tables *t)
{
    for (size_t i = 0; i < TABLES_KEPT; i++)
        table_drop(t, &t->kept[i]);
}

/* Chunks are 24 bytes without holes: three words each. */
_Static_assert(sizeof(struct chunk) == 24, "the layout of a chunk");

static uint64_t table_hash_chunks(const struct chunk *v, uint32_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ v[i].src) * 0xff51afd7ed558ccdu;
        h = (h ^ (h >> 32) ^ v[i].dst) * 0xc4ceb9fe1a85ec53u;
        h ^= (uint64_t)v[i].tensor << 32 | v[i].n;
    }
    return h ^ (h >> 29);
}

static bool table_has(const struct table_entry *e,
                      const struct chunk *v,
                      uint32_t n,
                      uint64_t hash,
                      cu_stream s)
{
    return e->n == n && e->hash == hash && e->stream == s
           && memcmp(e->chunks, v, n * sizeof(*v)) == 0;
}

/* Room for n chunks on s, in host and device memory. */
static int entry_grow(
    struct tables *t, struct table_entry *e, uint32_t n, cu_stream s, struct err *err)
{
    uint64_t used = e->used;
    if (e->max >= n && e->stream == s)
        return 0;
    table_drop(t, e);
    uint32_t max = n < 64 ? 64 : n;
    struct chunk *chunks = mem_alloc((size_t)max * sizeof(*chunks));
    if (!chunks)
        return err_set(err, -ENOMEM, "no memory for a table of %u chunks", n);
    int rc = memory_take(t->memory, (uint64_t)max * sizeof(*chunks), s, &e->at, err);
    if (rc < 0) {
        mem_free(chunks);
        return rc;
    }
    e->chunks = chunks;
    e->max = max;
    e->stream = s;
    e->used = used;
    return 0;
}

static int table_upload(struct tables *t,
                        cu_ptr to,
                        const uint8_t *from,
                        uint64_t bytes,
                        cu_stream s,
                        struct err *err)
{
    while (bytes > 0) {
        uint32_t piece = bytes < PIECE_BYTES ? (uint32_t)bytes : PIECE_BYTES;
        void *pinned;
        int rc = scratch_pinned(t->scratch, piece, &pinned, err);
        if (rc == -EAGAIN) {
            rc = t->wait(t->arg, err);
            if (rc < 0)
                return rc;
            continue;
        }
        if (rc < 0)
            return rc;
        memcpy(pinned, from, piece);
        rc = CUDA_TRY(t->cu, copy_up, err, to, pinned, piece, s);
        if (rc < 0)
            return rc;
        rc = scratch_pinned_sent(t->scratch, s, err);
        if (rc < 0)
            return rc;
        to += piece;
        from += piece;
        bytes -= piece;
    }
    return 0;
}

static int table_put_hashed(struct tables *t,
                            struct table_entry *e,
                            const struct chunk *v,
                            uint32_t n,
                            uint64_t hash,
                            cu_stream s,
                            struct err *err)
{
    if (table_has(e, v, n, hash, s)) {
        t->n_hits++;
        return 0;
    }
    e->n = 0;
    int rc = entry_grow(t, e, n, s, err);
    if (rc < 0)
        return rc;
    memcpy(e->chunks, v, n * sizeof(*v));
    rc = table_upload(t, e->at, (const uint8_t *)v, n * sizeof(*v), s, err);
    if (rc < 0)
        return rc;
    e->n = n;
    e->hash = hash;
    t->n_uploads++;
    return 0;
}

int table_put(struct tables *t,
              struct table_entry *e,
              const struct chunk *v,
              uint32_t n,
              cu_stream s,
              struct err *err)
{
    return table_put_hashed(t, e, v, n, table_hash_chunks(v, n), s, err);
}

int table_take(struct tables *t,
               const struct chunk *v,
               uint32_t n,
               cu_stream s,
               cu_ptr *ret,
               struct err *err)
{
    uint64_t hash = table_hash_chunks(v, n);
    struct table_entry *e = &t->kept[0];
    for (size_t i = 0; i < TABLES_KEPT; i++) {
        if (table_has(&t->kept[i], v, n, hash, s)) {
            e = &t->kept[i];
            break;
        }
        if (t->kept[i].used < e->used)
            e = &t->kept[i];
    }
    int rc = table_put_hashed(t, e, v, n, hash, s, err);
    if (rc < 0)
        return rc;
    e->used = ++t->clock;
    *ret = e->at;
    return 0;
}
