/* SPDX-License-Identifier: Apache-2.0 */
/* One step of the coordinator: everything that can be done now, without waiting. In the
 * seat only. */
#ifndef RUNTIME_ENGINE_STEP_H
#define RUNTIME_ENGINE_STEP_H

#include "runtime/engine/carry.h"
#include "runtime/engine/talk.h"

struct step {
    struct engine *e;
    struct talk *talk;
    struct carry *carry;
    struct flights *flights;
    uint64_t poll_ns;        /* for an agreement, before the rest of the step is done */
    bool has_run;            /* a batch was carried out in this step */
    uint64_t now_ns;         /* the begin of the current step */
    uint64_t pumped_ns;      /* when messages were last read */
    uint64_t agree_begin_ns; /* of the current agreement */
    /* The last agreement was empty: the next offer not before this time. */
    uint64_t offer_at_ns, offer_wait_ns;
    uint64_t agreed[AGREE_MAX_WORDS];
};

/* As seat_hooks' step. */
bool step_run(struct step *s, uint64_t now_ns, uint64_t *next_ns);
/* As engine_hooks' interrupted. */
int step_interrupted(struct step *s, struct err *err);

/* Ends all operations with this status. */
void step_fail_all(struct step *s, int status, const char *text);
/* While leaving: true if an agreement runs that other ranks may continue from. Requests
 * all ranks to leave the plan, which completes it. */
bool step_leave_plan(struct step *s);

#endif
