/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's side of the response cache: which tensor each slot stands for. Pure.
 *
 * A slot is given to a tensor with its answer and told to all in it. A rank that had
 * received up to n_seen answers and sends the slot's bit means the tensor that the slot
 * stood for then: so a slot keeps its last tenant until every rank has seen the new
 * one, and is not given away again before. */
#ifndef RUNTIME_CORE_SLOTS_H
#define RUNTIME_CORE_SLOTS_H

#include "runtime/core/message.h"

struct slots;

int slots_new(uint32_t capacity, uint32_t n_ranks, struct slots **ret);
void slots_free(struct slots *s); /* accepts NULL */

/* What rank means by the bit, with that rank's own dimension 0. NULL: the slot stood
 * for nothing. Valid until the next call. */
const struct tensor_request *
slots_resolve(struct slots *s, uint32_t slot, uint32_t rank, uint64_t n_seen);

/* The slot of a tensor that is being answered in down message number msg: its own, a
 * free one, or the one unused for longest; SLOT_NONE when none can be had now (or
 * memory is short: it is a cache). dim0: of each rank of the world, NULL where all are
 * equal. seen[n_ranks]: answers each rank has received. *ret_is_new: the tensor must be
 * told whole; else it is the slot's as before. */
uint32_t slots_assign(struct slots *s,
                      const struct tensor_request *req,
                      const uint64_t *dim0,
                      uint64_t msg,
                      const uint64_t *seen,
                      bool *ret_is_new);
const struct tensor_request *slots_request(const struct slots *s,
                                           uint32_t slot); /* or NULL */
/* The slot that holds this name now, or SLOT_NONE. */
uint32_t slots_find(const struct slots *s, uint32_t set, const char *name);

#endif
