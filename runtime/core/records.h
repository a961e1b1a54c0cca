/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's side of the response cache: what this rank submitted when the slot's tensor
 * was last answered, and the counts of that answer; of a tensor of a process set that
 * it is not in, what rank 0 told. Only for member.c. Pure. */
#ifndef RUNTIME_CORE_RECORDS_H
#define RUNTIME_CORE_RECORDS_H

#include "runtime/core/message.h"
#include "runtime/core/nametab.h"

struct cache_record {
    struct nametab_node node; /* first; name: req.name */
    uint32_t slot;
    uint32_t plan, place; /* the last plan it was in, and where */
    uint32_t n_counts;
    uint64_t *counts; /* owned */
    struct tensor_request req;
    uint32_t n_held;
    bool is_ours;
    bool is_gone; /* its slot stands for something else, it is held only */
};

struct records {
    struct cache_record **v; /* by slot; NULL: it was not given out */
    size_t n, cap;
    struct nametab names;
};

void records_release(struct records *t); /* accepts a zeroed one */
/* The slot stands for this from now on; is_ours: as this rank submitted it. 0, -ENOMEM
 */
int records_set(struct records *t,
                uint32_t slot,
                const struct tensor_request *req,
                bool is_ours,
                const uint64_t *counts,
                uint32_t n_counts);
struct cache_record *records_get(const struct records *t, uint32_t slot); /* or NULL */
/* A held record stays as it is, also when its slot is given away. */
void records_hold(struct cache_record *r);
void records_put(struct cache_record *r); /* accepts NULL */
/* The record of ours that answers req as it stands, or NULL. */
struct cache_record *records_match(const struct records *t,
                                   const struct tensor_request *req);

#endif
