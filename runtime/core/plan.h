/* SPDX-License-Identifier: Apache-2.0 */
/* The frozen plan as one rank has it: which tensors a step has, which of them this rank
 * has now, and what to say in the agreement. Pure.
 *
 * Words of the agreement: bit 0 is 1 while this rank stays in the plan; bit 1 + i is 1
 * when it has the plan's tensor i (and all of its group), or when tensor i is of a
 * process set that this rank is not in: then it is in nobody's way. The AND of all
 * ranks' words tells what all have that are to have it. */
#ifndef RUNTIME_CORE_PLAN_H
#define RUNTIME_CORE_PLAN_H

#include "runtime/core/fusion.h"

struct frozen_plan;

/* n requests in the plan's order, as this rank makes them; copied are only their
 * groups. is_ours[n]: is this rank to have it? NULL: all. n <= CYCLE_MAX. */
int plan_new(const struct tensor_request *const *reqs,
             const bool *is_ours,
             uint32_t n,
             struct frozen_plan **ret);
void plan_free(struct frozen_plan *p); /* accepts NULL */

uint32_t plan_words(const struct frozen_plan *p); /* how many an agreement has */
bool plan_has_sets(
    const struct frozen_plan *p); /* tensors of other sets than the world */
uint32_t
plan_n_ours(const struct frozen_plan *p); /* tensors that this rank is to have */
bool plan_is_ours(const struct frozen_plan *p, uint32_t i);
void plan_have(struct frozen_plan *p,
               uint32_t i); /* this rank has tensor i now; once a step */
bool plan_has_any(const struct frozen_plan *p); /* anything to offer? */
/* Has each tensor come as often as every other? Then no more of them are to be expected
 * before these are done. */
bool plan_is_whole(const struct frozen_plan *p);
/* Anything that has never been offered, of any set, of another than the world? */
enum plan_news { PLAN_NO_NEWS, PLAN_NEWS, PLAN_NEWS_OF_SETS };
enum plan_news plan_news(const struct frozen_plan *p);
/* words[plan_words()] */
void plan_offer(struct frozen_plan *p, bool stays, uint64_t *words);
/* Takes the agreed tensors out of what this rank has. *ret_stays: all stay, and
 * order[0..return) are they, others' too, in the plan's order; order has room for n. */
uint32_t plan_agreed(struct frozen_plan *p,
                     const uint64_t *words,
                     bool *ret_stays,
                     uint32_t *order);

#endif
