/* SPDX-License-Identifier: Apache-2.0 */
/* Sees that a training loop has become steady: the same tensors step after step. Pure.
 * Fed by rank 0 with every answer in order. */
#ifndef RUNTIME_CORE_CYCLE_H
#define RUNTIME_CORE_CYCLE_H

#include <stdbool.h>
#include <stdint.h>

#define CYCLE_MAX        4095u /* tensors of a plan: AGREE_MAX_WORDS words less one bit */
#define CYCLE_SAME_STEPS 2u    /* equal steps after which a plan is worth it */

struct cycle;

int cycle_new(uint32_t n_slots, struct cycle **ret); /* of the response cache */
void cycle_free(struct cycle *c);                    /* accepts NULL */

/* A tensor that every rank had sent as a bit is about to be answered by its slot. True:
 * with it a step begins, and the steps before it were CYCLE_SAME_STEPS equal ones,
 * whose tensors are *ret_slots[0..*ret_n) in the order of the last one; valid until the
 * next call. Otherwise it counts as answered. */
bool cycle_answer(struct cycle *c,
                  uint32_t slot,
                  const uint32_t **ret_slots,
                  uint32_t *ret_n);
/* Has the step at hand had it? Then the next answer of it begins a step. */
bool cycle_has(const struct cycle *c, uint32_t slot);
/* Would the next answer be the first that counts? */
bool cycle_is_new(const struct cycle *c);
/* Anything else was answered, or a plan began: count anew. */
void cycle_reset(struct cycle *c);

#endif
