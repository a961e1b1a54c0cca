/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors keep something between steps, by process set and name, within a bound
 * on bytes. What they keep, and where, is the owner's: codec_state.c in host memory,
 * the backends' device codecs in device memory. Pure; one thread at a time. */
#ifndef RUNTIME_CORE_COMPRESS_CODEC_INDEX_H
#define RUNTIME_CORE_COMPRESS_CODEC_INDEX_H

#include "runtime/core/compress/codec.h"
#include "runtime/core/nametab.h"

struct codec_entry { /* a part of the owner's struct; the index's fields */
    struct nametab_node node;
    struct codec_entry *newer, *older; /* by last use */
    struct codec_plan plan;
    uint32_t me;
    bool is_running; /* set by the owner: neither evicted nor forgotten */
};

struct codec_index {
    struct nametab names;
    struct codec_entry *oldest, *newest;
    uint64_t bytes, max_bytes, n_evicted;
    void (*release)(void *arg, struct codec_entry *e); /* an entry that was dropped */
    void *arg;
};

void codec_index_init(struct codec_index *ix,
                      uint64_t max_bytes,
                      void (*release)(void *arg, struct codec_entry *e),
                      void *arg);
void codec_index_clear(struct codec_index *ix); /* drops all, also what is running */
void codec_index_release(struct codec_index *ix);
void codec_index_drop(struct codec_index *ix, struct codec_entry *e);
void codec_index_forget(struct codec_index *ix, uint32_t set, const char *name);
void codec_index_forget_set(struct codec_index *ix, uint32_t set);

/* The tensor's entry, which becomes the newest; NULL: none, or of another shape, type,
 * codec or membership. */
struct codec_entry *codec_index_find(struct codec_index *ix,
                                     uint32_t set,
                                     const char *name,
                                     const struct codec_plan *plan,
                                     uint32_t me);
/* 1: the plan keeps nothing, or an entry that fits it exists. 0: no such entry exists
 * (one that did not fit was dropped), and there is room: call codec_index_add next.
 * -EBUSY: another plan of the tensor is running; -ENOSPC: exceeds max_bytes by itself
 * or together with running tensors. */
int codec_index_room(struct codec_index *ix,
                     uint32_t set,
                     const char *name,
                     const struct codec_plan *plan,
                     uint32_t me,
                     struct err *err);
/* Fills e, the newest from here on; name is the owner's and outlives it. -ENOMEM. */
int codec_index_add(struct codec_index *ix,
                    struct codec_entry *e,
                    uint32_t set,
                    const char *name,
                    const struct codec_plan *plan,
                    uint32_t me);

#endif
