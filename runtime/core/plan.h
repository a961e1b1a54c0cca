/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's view of the frozen plan: the tensors of a step, which of them this rank
 * has submitted, and the words of an agreement. Pure.
 *
 * Words of an agreement: bit 0 is 1 while this rank stays in the plan. Bit 1 + i is 1
 * if this rank has submitted tensor i of the plan, and its whole group. The AND over all
 * ranks gives the tensors that all ranks have submitted. */
#ifndef RUNTIME_CORE_PLAN_H
#define RUNTIME_CORE_PLAN_H

#include "runtime/core/fusion.h"

struct frozen_plan;

/* n requests in the plan's order, of the world; only their groups are copied.
 * n <= CYCLE_MAX. */
int plan_new(const struct tensor_request *const *reqs,
             uint32_t n,
             struct frozen_plan **ret);
void plan_free(struct frozen_plan *p); /* accepts NULL */

uint32_t plan_words(const struct frozen_plan *p); /* words of an agreement */
void plan_have(struct frozen_plan *p,
               uint32_t i); /* this rank has submitted tensor i; once a step */
bool plan_has_any(const struct frozen_plan *p); /* to offer */
/* Has each tensor been submitted equally often? Then no more are expected before these
 * are done. */
bool plan_is_whole(const struct frozen_plan *p);
/* Writes words[plan_words()]. */
void plan_offer(const struct frozen_plan *p, bool stays, uint64_t *words);
/* Removes the agreed tensors from those submitted. *ret_stays: all ranks stay, and
 * order[0..return) are the agreed tensors, in the plan's order. order has room for
 * n. */
uint32_t plan_agreed(struct frozen_plan *p,
                     const uint64_t *words,
                     bool *ret_stays,
                     uint32_t *order);

#endif
