/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of a job as .status.goodput and as a sentence. Pure. */
#ifndef OPERATOR_CORE_GOODPUT_H
#define OPERATOR_CORE_GOODPUT_H

#include "operator/core/ledger.h"
#include "operator/doc/node.h"

/* From one write of .status.goodput to the next if nothing else changes, while live
 * reports have what would be lost with the operator. */
#define GOODPUT_EVERY_S 300u

/* False: it is absent, or its parts do not add up. */
bool goodput_read(const struct node *goodput, struct ledger *ret);
struct node *goodput_node(struct build *b, const struct ledger *l);
/* Adds it to a new status. If nothing else differs from the stored status, the stored
 * goodput stays: the time that passes is no reason to write. Unless is_due. */
void goodput_put(struct build *b,
                 struct node *status,
                 const struct node *stored,
                 struct node *goodput,
                 bool is_due);

/* "of 3 h 12 min (24 GPU h): training 91 %, queued 4 % (insufficient nvidia.com/gpu)".
 * NULL: out of memory. */
const char *goodput_sentence(struct arena *a, const struct ledger *l);

/* The kind of problem in the scheduler's or the kubelet's words: "insufficient
 * nvidia.com/gpu", "image". */
void goodput_waiting_reason(const char *text,
                            bool is_scheduled,
                            char ret[LEDGER_REASON_SIZE]);

#endif
