/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of one sync. apply.c carries them out, stage after stage. Carrying out
 * the same plan twice changes nothing. Pure. */
#ifndef OPERATOR_CORE_PLAN_H
#define OPERATOR_CORE_PLAN_H

#include <stddef.h>

#include "operator/core/observed.h"
#include "runtime/base/arena.h"

enum verb {
    VERB_CREATE, /* no effect if the object exists and belongs to the job */
    VERB_UPDATE, /* a merge patch; creates the object if it does not exist */
    VERB_DELETE,
    VERB_LOOK,   /* checks whether an object exists that the watch has not shown */
    VERB_EXPLAIN /* requests the Events of a pod that does not start (explain.h), or an
                  * object that says why the job waits (inquiry.h) */
};
const char *verb_name(enum verb v); /* "create", ... */

struct action {
    enum verb verb;
    enum kube_kind kind;
    const char *name; /* name of the object */
    const char *sub;  /* UPDATE: a subresource, or NULL */
    uint32_t stage;   /* a stage starts when the stage before it is complete */
    enum role role;   /* pods only */
    uint32_t index;   /* pods only */
    const char *
        uid; /* UPDATE, DELETE: precondition; EXPLAIN: of the pod. NULL: UPDATE of the object that an
                        earlier LOOK of the plan found */
    bool is_forced;          /* DELETE of a pod: without waiting for its kubelet */
    const struct node *body; /* CREATE, UPDATE. NULL: front->build builds it when the
                                action is carried out */
    uint8_t digest[SHA256_BYTES]; /* CREATE, UPDATE of an object that no watch shows:
                                     of its content, kept as its fact */
};

struct job_plan {
    struct action *v;
    size_t n, cap;
};

/* The time between two queries for a created object that no watch shows; and from a
 * query to the deletion of the object that it found. */
#define EXPECT_LOOK_MS 10000
#define DROP_AGAIN_MS  1000

/* Allocates room for cap actions. -ENOMEM. */
int plan_init(struct job_plan *p, size_t cap, struct arena *a);
/* Adds an action with these values and returns it; the caller sets the rest. There must
 * be room: see plan_init. */
struct action *plan_add(struct job_plan *p,
                        enum verb verb,
                        enum kube_kind kind,
                        uint32_t stage,
                        const char *name);
/* The same for an existing pod, with its uid. Copies the strings, because a snapshot's pods
 * are valid only until the shell waits for an answer. NULL: out of memory. */
struct action *plan_add_pod(struct job_plan *p,
                            enum verb verb,
                            uint32_t stage,
                            const struct pod *pod,
                            enum role role,
                            uint32_t index,
                            struct arena *a);
/* The body of the request of a DELETE. uid: a precondition. */
struct node *
plan_delete_options(struct build *b, const struct action *x, const char *uid);

#endif
