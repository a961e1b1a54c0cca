/* SPDX-License-Identifier: Apache-2.0 */
/* Sees that a training loop has become steady: the same tensors step after step. Pure.
 * Fed by rank 0 with every answer in order.
 *
 * Each process set has steps of its own, for a set may be ahead of another. */
#ifndef RUNTIME_CORE_CYCLE_H
#define RUNTIME_CORE_CYCLE_H

#include <stdbool.h>
#include <stdint.h>

#define CYCLE_MAX        4095u /* tensors of a plan: AGREE_MAX_WORDS words less one bit */
#define CYCLE_SAME_STEPS 2u    /* equal steps after which a plan is worth it */
#define CYCLE_SAME_MAX   1024u /* the same, after many plans that did not last */
#define CYCLE_FEW_STEPS  4u    /* a plan that is left before so many did not last */

struct cycle;

int cycle_new(uint32_t n_slots, struct cycle **ret); /* of the response cache */
void cycle_free(struct cycle *c);                    /* accepts NULL */

/* A tensor of a process set that every rank of it had sent as a bit is about to be
 * answered by its slot. True: with it a step of its set begins, and the steps of each
 * set before this were cycle_needs() equal ones, whose tensors are
 * *ret_slots[0..*ret_n) in the order of the last ones; valid until the next call.
 * Otherwise it counts as answered. */
bool cycle_answer(struct cycle *c,
                  uint32_t set,
                  uint32_t slot,
                  const uint32_t **ret_slots,
                  uint32_t *ret_n);
/* Has its set's step at hand had it? Then the next answer of it begins a step. */
bool cycle_has(const struct cycle *c, uint32_t slot);
/* Would the next answer of this set be its first that counts? */
bool cycle_is_new(const struct cycle *c, uint32_t set);
/* Anything else was answered, or a plan began: count anew. */
void cycle_reset(struct cycle *c);
/* A plan was left after so many steps. Plans that do not last, one after the other,
 * double what is needed for the next. */
void cycle_left(struct cycle *c, uint32_t n_steps);
uint32_t cycle_needs(const struct cycle *c);

#endif
