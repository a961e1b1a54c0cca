/* SPDX-License-Identifier: Apache-2.0 */
/* The first cause: of all that went wrong in a job's pods, what came first. Pure. */
#ifndef OPERATOR_CORE_HVD_CAUSE_H
#define OPERATOR_CORE_HVD_CAUSE_H

#include "operator/core/hvd_stored.h"
#include "operator/core/observed.h"
#include "runtime/base/arena.h"

struct cause {        /* texts live in the arena or in the observed pods */
    int32_t rank;     /* -1: no rank is known */
    const char *pod;  /* "" if none */
    const char *node; /* "" if unknown */
    const char
        *reason; /* CamelCase: WorkerFailed, WorkerDeleted, OOMKilled, Evicted, ... */
    const char *message; /* one sentence */
    const char *output;  /* last lines of what failed, "" if unknown */
    bool has_exit;
    int exit_code, signal;
    uint64_t at_wall_us;      /* 0: unknown */
    bool is_outside;          /* done to the job, and nothing that it did */
    uint32_t settle_within_s; /* so long after told_s it may turn out that it was not,
                                 by the end of the pod; 0: it is known */
    uint64_t told_s;          /* wall */
    const struct pod *seen;   /* the pod; NULL if it was not seen */
};

struct cause_query {
    const struct hvd_job *job;
    const struct observed *seen;
    const struct hvd_stored *was;
    bool has_run; /* the ranks of this generation: before, nothing is lost by a pod that
                     goes */
};

/* A failed pod whose agent tells of ranks that ran, or of others that it had met. */
bool cause_is_after_start(const struct pod *p);

/* 1 and *ret, 0 when nothing failed that decides about the job, -ENOMEM. */
int cause_find(const struct cause_query *q, struct arena *a, struct cause *ret);

#endif
