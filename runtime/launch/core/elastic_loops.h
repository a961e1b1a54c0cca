/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the failures of an elastic job repeat. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_ELASTIC_LOOPS_H
#define RUNTIME_LAUNCH_CORE_ELASTIC_LOOPS_H

#include "runtime/launch/core/elastic.h"

#define ELASTIC_LOOPS_MAX 3 /* failures by one cause without a commit in between */

/* Others work, so the cause may be the slot. */
bool elastic_has_other(const struct elastic *e, uint64_t cause);
/* Counts a failure in this slot. True: without a commit in between it is one too many. */
bool elastic_count_cause(struct elastic *e,
                         struct elastic_slot *s,
                         uint64_t cause,
                         uint64_t now_ns);
/* A world is about to form of the first n candidates. If nobody has the state any more,
 * the job begins again. True: this is once too often. */
bool elastic_count_total_loss(struct elastic *e, uint32_t n, uint64_t now_ns);
/* A commit. */
void elastic_forget_loops(struct elastic *e);

#endif
