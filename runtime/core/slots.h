/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's side of the response cache: the tensor of each slot. Pure.
 *
 * A slot is assigned with an answer, which all ranks receive. When a rank that has
 * received n_seen messages sends the slot's bit, it means the tensor that the slot
 * stood for then. A slot therefore keeps its previous tensor until every rank has
 * received the new one, and is not reassigned before. */
#ifndef RUNTIME_CORE_SLOTS_H
#define RUNTIME_CORE_SLOTS_H

#include "runtime/core/message.h"

struct slots;

int slots_new(uint32_t capacity, uint32_t n_ranks, struct slots **ret);
void slots_free(struct slots *s); /* accepts NULL */

/* The request that rank means by the bit, with that rank's dimension 0. NULL: the slot
 * was not assigned. Valid until the next call. */
const struct tensor_request *
slots_resolve(struct slots *s, uint32_t slot, uint32_t rank, uint64_t n_seen);

/* The slot of a tensor that is answered in down message number msg: its own, a free
 * one, or the least recently used one. SLOT_NONE: none is available now, or out of
 * memory. dim0: of each rank of the world, NULL if all are equal. seen[n_ranks]:
 * messages each rank has received. *ret_is_new: send the request in full; else the slot
 * is unchanged. */
uint32_t slots_assign(struct slots *s,
                      const struct tensor_request *req,
                      const uint64_t *dim0,
                      uint64_t msg,
                      const uint64_t *seen,
                      bool *ret_is_new);
const struct tensor_request *slots_request(const struct slots *s,
                                           uint32_t slot); /* or NULL */
/* The current slot of this name, or SLOT_NONE. */
uint32_t slots_find(const struct slots *s, uint32_t set, const char *name);

#endif
