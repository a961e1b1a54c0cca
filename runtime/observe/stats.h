/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of one rank in one world. Written in the seat only, read by any thread,
 * and by the launcher if HVD_STATS_DIR is set (contract/stats_page.h). An addition is a
 * load and a store of one word: no lock, no fence. */
#ifndef RUNTIME_OBSERVE_STATS_H
#define RUNTIME_OBSERVE_STATS_H

#include "runtime/contract/stats_page.h"
#include "runtime/core/types.h"
#include "hvd.h"

struct stats {
    struct stats_page *page; /* own, or the mapped file */
    struct stats_page own;
    size_t mapped_bytes; /* 0: own */
    uint64_t begin_ns;
    /* The seat's. */
    uint64_t last_step_ns;       /* 0: none yet, or the steps were interrupted */
    uint64_t plan_no, plan_from; /* the current plan, and where its round began */
    /* Sums of the ends of blocked intervals less their begins (stats_block_begin). */
    _Atomic uint64_t blocked;
};

/* dir "": counters in memory only. Never fails: a folder that cannot be written causes
 * one warning. */
void stats_init(struct stats *s,
                const char *dir,
                uint32_t rank,
                uint32_t size,
                uint32_t generation,
                uint64_t now_ns);
void stats_release(
    struct stats *s); /* accepts a zeroed one; does not delete the file */

/* --- the seat --- */

static inline void stats_add(struct stats *s, enum stats_id id, uint64_t n)
{
    _Atomic uint64_t *w = &s->page->words[id];

    atomic_store_explicit(w, atomic_load_explicit(w, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* For counters that are kept elsewhere in the seat. */
static inline void stats_set(struct stats *s, enum stats_id id, uint64_t v)
{
    atomic_store_explicit(&s->page->words[id], v, memory_order_relaxed);
}

/* A tensor ended. */
static inline void stats_tensor(struct stats *s,
                                enum collective coll,
                                bool is_ok,
                                uint64_t in_bytes,
                                uint64_t out_bytes)
{
    if (!is_ok) {
        stats_add(s, STATS_FAILED, 1);
        return;
    }
    stats_add(s, (enum stats_id)(STATS_TENSORS + (int)coll), 1);
    stats_add(s, (enum stats_id)(STATS_BYTES_IN + (int)coll), in_bytes);
    stats_add(s, (enum stats_id)(STATS_BYTES_OUT + (int)coll), out_bytes);
}

/* The backend has carried out a batch of n_tensors with bytes of this rank's inputs
 * among n_members in ns; the sum of their waiting times before it is waited_ns. */
void stats_batch(struct stats *s,
                 enum collective coll,
                 size_t n_tensors,
                 uint32_t n_members,
                 uint64_t bytes,
                 uint64_t waited_ns,
                 uint64_t ns);

/* The last tensor of a step has ended. Steps are counted while they follow each other
 * without interruption: stats_no_step ends the sequence. Returns the time that it took;
 * 0: the first one is not counted. */
uint64_t stats_step(struct stats *s, uint64_t now_ns);
static inline void stats_no_step(struct stats *s)
{
    s->last_step_ns = 0;
}

/* Copies the time that threads were blocked to its counter; at the end of a batch and of
 * a step. */
void stats_copy_blocked(struct stats *s, uint64_t now_ns);

/* --- any thread --- */

/* The first thread began to wait for an operation, and the last one has stopped, so that
 * overlapping waits count once. Each is an addition, so the two threads may do it in any
 * order. While only the begin is added, the sum is negative. */
static inline void stats_block_begin(struct stats *s, uint64_t ns)
{
    (void)atomic_fetch_sub_explicit(&s->blocked, ns, memory_order_relaxed);
}
static inline void stats_block_end(struct stats *s, uint64_t ns)
{
    (void)atomic_fetch_add_explicit(&s->blocked, ns, memory_order_relaxed);
}

/* ret->size_bytes is the size of the caller's struct; nothing is written behind it. */
void stats_read(const struct stats *s, uint64_t now_ns, struct hvd_stats *ret);

#endif
