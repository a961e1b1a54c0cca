/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_REPLAY: which sums are carried out twice, and what the ranks conclude from their
 * results. Pure.
 *
 * Step n of a tensor is the n-th sum of its name in its process set. All members carry
 * out the same sums in the same order, so they count alike without a message. */
#ifndef RUNTIME_CORE_REPLAY_H
#define RUNTIME_CORE_REPLAY_H

#include "runtime/base/err.h"
#include "runtime/core/types.h"

#define REPLAY_MAX_NAMES (1u << 20)

struct replay_name {
    uint64_t key; /* digest of set and name; 0: free */
    uint32_t n;   /* sums so far */
};

struct replay { /* zeroed: nothing is repeated */
    uint32_t first, last;
    struct replay_name *v; /* open addressing; cap is a power of two */
    size_t cap, n;
    uint64_t n_sums, n_bytes; /* that were repeated */
    bool is_past;             /* a tensor has come to a later step */
};

void replay_init(struct replay *r, uint32_t first, uint32_t last);
void replay_release(struct replay *r); /* accepts a zeroed one, and twice */
/* Counts a sum. *ret_step: its step, 0 if that is not to be repeated. -ENOMEM, -E2BIG. */
int replay_count(struct replay *r,
                 uint32_t set,
                 const char *name,
                 uint32_t *ret_step,
                 struct err *err);

/* What a member has found about one batch; all words, for an exchange between ranks. */
struct replayed {
    uint64_t digest; /* of the first results */
    uint64_t n;      /* elements of `item` that differ between both results; 0: none */
    uint64_t item, at;
    uint64_t numbers[2]; /* the first of these elements, in both results */
};

/* Compares the results of one item; the first item with a difference is kept. */
void replayed_add(struct replayed *f,
                  size_t item,
                  const void *first,
                  const void *second,
                  uint64_t n,
                  enum dtype t);

struct replay_batch { /* what a sentence names */
    uint32_t step;
    const char *const *names; /* of its items, and their elements */
    const uint64_t *counts;
    enum dtype dtype;
    const uint32_t *ranks; /* global rank and host of each member */
    const char *const *hosts;
    uint32_t n_members;
};

/* 0: all members have the same results, twice. -EDOM with the sentence, which is the same
 * on all members. */
int replay_judge(const struct replayed *all,
                 const struct replay_batch *b,
                 struct err *err);

#endif
