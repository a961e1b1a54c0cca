/* SPDX-License-Identifier: Apache-2.0 */
/* The work on one verdict, shared by hvd_verdict.c and hvd_verdict_text.c. No other file
 * includes it. */
#ifndef OPERATOR_CORE_HVD_HVD_VERDICT_WORK_H
#define OPERATOR_CORE_HVD_HVD_VERDICT_WORK_H

#include "operator/core/hvd/hvd_loss.h"
#include "operator/core/hvd/hvd_verdict.h"

struct verdict_work {
    const struct verdict_query *q;
    const struct hvd_job *job;
    struct arena *arena;
    struct hvd_verdict *v;
    uint32_t n_pods, n_running; /* of all roles; running in this world, or succeeded */
    uint32_t n_able;            /* elastic: workers that run and will continue to */
    bool has_launcher;          /* elastic: the launcher runs */
    struct hvd_loss loss;       /* elastic */
    bool is_worn_out;           /* the cause is that of too many losses */
    bool is_made;               /* no seat is empty */
    bool has_run, is_done;
    bool has_met;        /* a pod failed in a way that requires agents that met */
    bool is_old_world;   /* a worker cannot be scaled in place: it has no world, or
                          is_old_runtime */
    bool is_old_runtime; /* a worker has another runtime than a new one would have */
    bool is_other_size;  /* no status yet, and a worker's world has another size */
    bool is_out_of_memory;
};

/* hvd_verdict_text.c: the reason and the message of the next state, and what else the cue
 * writes. class: of the cause, if there is one. */
void verdict_set_step(struct verdict_work *w, enum rule_action class);

/* True if this operator refuses the spec. */
bool verdict_is_refused(const struct verdict_work *w);
bool verdict_is_world_done(const struct verdict_work *w);
enum role verdict_first_role(const struct hvd_job *job);
/* Without spares. */
uint32_t verdict_world_workers(const struct hvd_job *job);

#endif
