/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's view of the frozen plan: the tensors of a step, which of them this rank
 * has submitted, and the words of an agreement. Pure.
 *
 * Words of an agreement: bit 0 is 1 while this rank stays in the plan. Bit 1 + i is 1
 * if this rank has submitted tensor i of the plan (and its whole group), or if tensor i
 * belongs to a process set that this rank is not in. The AND over all ranks gives the
 * tensors that all their members have submitted. */
#ifndef RUNTIME_CORE_PLAN_H
#define RUNTIME_CORE_PLAN_H

#include "runtime/core/fusion.h"

struct frozen_plan;

/* n requests in the plan's order; only their groups and sets are copied. is_ours[n]:
 * must this rank submit it? NULL: all. n <= CYCLE_MAX. */
int plan_new(const struct tensor_request *const *reqs,
             const bool *is_ours,
             uint32_t n,
             struct frozen_plan **ret);
void plan_free(struct frozen_plan *p); /* accepts NULL */

uint32_t plan_words(const struct frozen_plan *p); /* words of an agreement */
bool plan_has_sets(
    const struct frozen_plan *p); /* has it tensors of other sets than 0? */
uint32_t
plan_n_ours(const struct frozen_plan *p); /* tensors that this rank must submit */
bool plan_is_ours(const struct frozen_plan *p, uint32_t i);
void plan_have(struct frozen_plan *p,
               uint32_t i); /* this rank has submitted tensor i; once a step */
bool plan_has_any(const struct frozen_plan *p); /* to offer */
/* Has each tensor been submitted equally often? Then no more are expected before these
 * are done. */
bool plan_is_whole(const struct frozen_plan *p);
/* Are there tensors that have not been offered yet: none, of set 0 only, of other sets
 * too? */
enum plan_news { PLAN_NO_NEWS, PLAN_NEWS, PLAN_NEWS_OF_SETS };
enum plan_news plan_news(const struct frozen_plan *p);
/* Writes words[plan_words()]. */
void plan_offer(struct frozen_plan *p, bool stays, uint64_t *words);
/* Removes the agreed tensors from those submitted. *ret_stays: all ranks stay, and
 * order[0..return) are the agreed tensors, of other sets too, in the plan's order.
 * order has room for n. */
uint32_t plan_agreed(struct frozen_plan *p,
                     const uint64_t *words,
                     bool *ret_stays,
                     uint32_t *order);

#endif
