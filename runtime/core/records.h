/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's side of the response cache: what this rank submitted when the slot's tensor
 * was last answered, and the counts of that answer. For a tensor of a process set that
 * this rank is not in: rank 0's request. Used by the member only. Pure. */
#ifndef RUNTIME_CORE_RECORDS_H
#define RUNTIME_CORE_RECORDS_H

#include "runtime/core/message.h"
#include "runtime/core/nametab.h"

struct cache_record {
    struct nametab_node node; /* first; name: req.name */
    uint32_t slot;
    uint32_t plan, place; /* its last plan and its place there */
    uint32_t n_counts;
    uint64_t *counts; /* owned */
    struct tensor_request req;
    uint32_t n_held;
    bool is_ours;
    bool is_gone; /* its slot was reassigned; freed when no longer held */
};

struct records {
    struct cache_record **v; /* by slot; NULL: not assigned */
    size_t n, cap;
    struct nametab names;
};

void records_release(struct records *t); /* accepts a zeroed one */
/* Assigns the slot. is_ours: req is what this rank submitted. 0, -ENOMEM. */
int records_set(struct records *t,
                uint32_t slot,
                const struct tensor_request *req,
                bool is_ours,
                const uint64_t *counts,
                uint32_t n_counts);
struct cache_record *records_get(const struct records *t, uint32_t slot); /* or NULL */
/* A held record stays valid when its slot is reassigned. */
void records_hold(struct cache_record *r);
void records_put(struct cache_record *r); /* accepts NULL */
/* The record of this rank that equals req, or NULL. */
struct cache_record *records_match(const struct records *t,
                                   const struct tensor_request *req);

#endif
