/* SPDX-License-Identifier: Apache-2.0 */
/* What to do next for one job. A plan is data; apply.c carries it out, stage after
 * stage, and carrying out the same plan twice changes nothing. Pure. */
#ifndef OPERATOR_CORE_PLAN_H
#define OPERATOR_CORE_PLAN_H

#include <stddef.h>

#include "operator/core/verdict.h"

enum verb {
    VERB_CREATE_SECRET,
    VERB_CREATE_SERVICE,
    VERB_CREATE_WORKER,
    VERB_DELETE_WORKER,
    VERB_LOOK_WORKER /* is it still there? The watch has not shown it */
};
const char *verb_name(enum verb v); /* "create secret", ... */

struct action {
    enum verb verb;
    uint32_t
        stage; /* actions of one stage may run at once; the next stage waits for them */
    uint32_t index;  /* replica, for workers */
    const char *uid; /* DELETE: only this very pod */
};

struct plan {
    struct action *v;
    size_t n;
    uint64_t requeue_ms; /* look again after this time even if nothing happens; 0: need
                            not */
};

#define EXPECT_LOOK_MS                                                                 \
    10000 /* a created pod that no watch showed is asked for so often */

/* When to look again though nothing happens: while a pod is expected; 0: need not. */
uint64_t plan_requeue_ms(const struct observed *seen, const struct verdict *v);

int plan_make(const struct job *job,
              const struct observed *seen,
              const struct verdict *v,
              struct arena *a,
              struct plan *ret);

#endif
