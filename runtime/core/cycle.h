/* SPDX-License-Identifier: Apache-2.0 */
/* Detects when a training loop is steady: the same tensors in every step. Rank 0 feeds
 * it with every answer in order. Pure. */
#ifndef RUNTIME_CORE_CYCLE_H
#define RUNTIME_CORE_CYCLE_H

#include <stdbool.h>
#include <stdint.h>

#define CYCLE_MAX                                                                      \
    4095u /* tensors of a plan: the bits of AGREE_MAX_WORDS words less one */
#define CYCLE_SAME_STEPS 2u    /* equal steps before a plan */
#define CYCLE_SAME_MAX   1024u /* the same, after many short plans */
#define CYCLE_FEW_STEPS  4u    /* a plan of fewer steps is short */

struct cycle;

int cycle_new(uint32_t n_slots, struct cycle **ret); /* of the response cache */
void cycle_free(struct cycle *c);                    /* accepts NULL */

/* A tensor of the world that every rank sent as a bit is about to be answered by its
 * slot. True: a step begins with it, and the last cycle_needs() steps were equal to the
 * step before them. The tensors of the last step are *ret_slots[0..*ret_n), in its
 * order; valid until the next call. The tensor is not counted then. False: it is
 * counted. */
bool cycle_answer(struct cycle *c,
                  uint32_t slot,
                  const uint32_t **ret_slots,
                  uint32_t *ret_n);
/* Has the current step had this slot? Then its next answer begins a step. */
bool cycle_has(const struct cycle *c, uint32_t slot);
/* Would the next answer be the first that is counted? */
bool cycle_is_new(const struct cycle *c);
/* Something else was answered, or a plan began: start counting again. */
void cycle_reset(struct cycle *c);
/* A plan was left after n_steps steps. From the second short plan in a row on, each one
 * doubles the number of equal steps that the next plan needs. */
void cycle_left(struct cycle *c, uint32_t n_steps);
uint32_t cycle_needs(const struct cycle *c);

#endif
