/* SPDX-License-Identifier: Apache-2.0 */
/* What to do next for one job. A plan is data; apply.c carries it out, stage after
 * stage, and carrying out the same plan twice changes nothing. Pure. */
#ifndef OPERATOR_CORE_PLAN_H
#define OPERATOR_CORE_PLAN_H

#include <stddef.h>

#include "operator/core/observed.h"
#include "runtime/base/arena.h"

enum verb {
    VERB_CREATE, /* it is to exist and be ours; where it does, nothing happens */
    VERB_UPDATE, /* a merge patch; creates what turns out not to be there */
    VERB_DELETE,
    VERB_LOOK /* is it still there? The watch has not shown it */
};
const char *verb_name(enum verb v); /* "create", ... */

struct action {
    enum verb verb;
    enum kube_kind kind;
    const char *name; /* of the object */
    const char *sub;  /* UPDATE: subresource, or NULL */
    uint32_t stage;  /* actions of one stage may run at once, the next waits for them */
    enum role role;  /* of pods */
    uint32_t index;  /* of pods */
    const char *uid; /* UPDATE, DELETE: only this very object. NULL: UPDATE of what a
                        LOOK before it in the plan found */
    const struct node *body; /* CREATE, UPDATE: NULL: front's build makes it, when it is
                                sent */
    uint8_t digest[SHA256_BYTES]; /* CREATE, UPDATE of what no watch shows: of its
                                     content, remembered as its fact */
};

struct job_plan {
    struct action *v;
    size_t n, cap;
};

#define EXPECT_LOOK_MS                                                                 \
    10000 /* a created object that no watch showed is asked for so often */
#define DROP_AGAIN_MS 1000 /* what a look found is deleted that much later */

/* Room for cap actions. -ENOMEM. */
int plan_init(struct job_plan *p, size_t cap, struct arena *a);
/* The new action, zeroed but for these; the caller fills in the rest. There is always
 * room: cap is the caller's promise. */
struct action *plan_add(struct job_plan *p,
                        enum verb verb,
                        enum kube_kind kind,
                        uint32_t stage,
                        const char *name);

#endif
