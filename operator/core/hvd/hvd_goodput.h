/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of a HorovodJob: .status.goodput and its Event. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_GOODPUT_H
#define OPERATOR_CORE_HVD_HVD_GOODPUT_H

#include "operator/core/hvd/hvd_verdict.h"

/* Adds .status.goodput to the new status (core/goodput.h says when). */
void hvd_goodput_add(struct build *b,
                     const struct verdict_query *q,
                     const struct hvd_verdict *v,
                     struct node *status);
/* The Event of a job that ends now: 0 or 1 in *ret. */
size_t hvd_goodput_note(const struct verdict_query *q,
                        const struct hvd_verdict *v,
                        struct arena *a,
                        struct event_note *ret);

#endif
