/* SPDX-License-Identifier: Apache-2.0 */
/* The first cause: the earliest failure in the pods of a job. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_CAUSE_H
#define OPERATOR_CORE_HVD_HVD_CAUSE_H

#include "operator/core/hvd/hvd_job.h"
#include "operator/core/observed.h"
#include "runtime/base/arena.h"

struct cause {           /* texts belong to the arena or to the observed pods */
    int32_t rank;        /* -1: unknown */
    const char *pod;     /* name; "" if none */
    const char *node;    /* name; "" if unknown */
    const char *reason;  /* CamelCase: WorkerFailed, OOMKilled, Evicted, ... */
    const char *message; /* one sentence */
    const char *output;  /* last lines that the failed process printed; "" if unknown */
    bool has_exit;
    int exit_code, signal;
    uint64_t at_wall_us; /* 0: unknown */
    bool is_outside;     /* the cause is outside the job, for example an eviction */
    bool is_removal;     /* is_outside, and what was removed is the pod itself */
    /* Until this long after reported_s, the exit of the pod may change is_outside. 0:
     * is_outside is final. */
    uint32_t settle_within_s;
    uint64_t reported_s;    /* wall time of the report */
    const struct pod *seen; /* the pod; NULL if no watch has shown it */
};

struct cause_query {
    const struct hvd_job *job;
    const struct observed *seen;
    bool has_run; /* ranks of this generation have run. Before that, a deleted pod is
                     not a failure */
};

/* True if the agent of this failed pod reported ranks that ran, or agents that it
 * met. */
bool cause_is_after_start(const struct pod *p);

/* 1: *ret is the first cause; 0: no failure that matters for the job; -ENOMEM. Lost
 * workers of an elastic job do not matter: see hvd_loss.h. */
int cause_find(const struct cause_query *q, struct arena *a, struct cause *ret);
/* Why an elastic job has lost worker `index`, which it has. -ENOMEM. */
int cause_find_worker(const struct cause_query *q,
                      uint32_t index,
                      struct arena *a,
                      struct cause *ret);

#endif
