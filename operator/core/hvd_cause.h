/* SPDX-License-Identifier: Apache-2.0 */
/* The first cause: the earliest failure in the pods of a job. Pure. */
#ifndef OPERATOR_CORE_HVD_CAUSE_H
#define OPERATOR_CORE_HVD_CAUSE_H

#include "operator/core/hvd_stored.h"
#include "operator/core/observed.h"
#include "runtime/base/arena.h"

struct cause {           /* texts live in the arena or in the observed pods */
    int32_t rank;        /* -1: no rank is known */
    const char *pod;     /* "" if none */
    const char *node;    /* "" if unknown */
    const char *reason;  /* CamelCase: WorkerFailed, OOMKilled, Evicted, ... */
    const char *message; /* one sentence */
    const char *output;  /* last lines of what failed, "" if unknown */
    bool has_exit;
    int exit_code, signal;
    uint64_t at_wall_us; /* 0: unknown */
    bool is_outside;     /* the job is not responsible: an eviction, for example */
    /* For this long after reported_s the pod's own exit may still change is_outside; 0:
     * it is final. */
    uint32_t settle_within_s;
    uint64_t reported_s;    /* wall: when the report was made */
    const struct pod *seen; /* the pod; NULL if it was not seen */
};

struct cause_query {
    const struct hvd_job *job;
    const struct observed *seen;
    const struct hvd_stored *was;
    bool has_run; /* ranks of this generation have run; before that, a pod that
                     disappears is no loss */
};

/* True if the agent of this failed pod reported ranks that ran, or agents that it
 * met. */
bool cause_is_after_start(const struct pod *p);

/* 1 and *ret; 0 when nothing failed that matters for the job; -ENOMEM. */
int cause_find(const struct cause_query *q, struct arena *a, struct cause *ret);

#endif
