/* SPDX-License-Identifier: Apache-2.0 */
/* One row per kind of job that we serve. sync.c and apply.c know no kind: they ask the
 * row. All of it is pure. */
#ifndef OPERATOR_CORE_FRONT_H
#define OPERATOR_CORE_FRONT_H

#include "operator/core/meta.h"
#include "operator/core/plan.h"
#include "operator/core/priorities.h"
#include "operator/core/state.h"
#include "runtime/base/strbuf.h"

enum gang { GANG_NONE, GANG_VOLCANO, GANG_SCHEDULER_PLUGINS };

/* What the operator was started with. */
struct object_config {
    const char *runtime_image;  /* what the init container runs */
    const char *cluster_domain; /* "" or e.g. "cluster.local" */
    enum gang gang;             /* of MPIJobs, and of HorovodJobs that do not choose */
    const char *gang_scheduler; /* schedulerName of gang pods; "" without gang */
};

struct question {
    const struct job_meta *job; /* as front->open made it */
    const struct observed *seen;
    const struct sync_outcome
        *outcome; /* of the plan that was carried out; before: none */
    const struct object_config *cfg;
    const struct priorities *priorities; /* empty without gang */
    uint64_t now_wall_s;
    struct arena *arena; /* everything in the decision lives here */
};

struct event_note {
    bool is_warning;
    bool is_once;       /* at most one of this reason in a job's life */
    const char *reason; /* CamelCase */
    const char *message;
};
#define DECISION_MAX_NOTES 8

struct decision {
    struct job_plan plan;
    uint64_t requeue_ms; /* look again after this time even if nothing happens; 0: need
                            not */
    struct node *status; /* the whole new status; NULL: leave it */
    struct event_note
        note[DECISION_MAX_NOTES]; /* what changed against the stored one */
    size_t n_notes;
    enum job_state state; /* for logs and metrics */
    const char *reason, *message;
    const char *cause; /* reason of what a restart is for; NULL: none begins */
    bool was_finished; /* the stored status says so already */
};

/* What only the shell can make. */
struct secrets {
    uint8_t token[32];
    const char *ssh_private,
        *ssh_public; /* PEM; authorized_keys line; "" if not asked */
};

struct front {
    enum kube_kind kind;
    const char *component; /* source of Events */
    /* The job, in the arena, with defaults: its first member is its struct job_meta.
     * Each problem of the spec is one line in problems ("spec.slotsPerWorker: -1 is
     * below 1"); with problems the job is still good for decide, whose outcome then is
     * TROUBLE_REJECTED. NULL when memory is out. */
    struct job_meta *(*open)(const struct node *object,
                             const struct job_meta *meta,
                             struct arena *a,
                             struct strbuf *problems);
    /* Ours to act on at all (runPolicy.managedBy)? A job of somebody else is not even
     * validated. */
    bool (*is_ours)(const struct job_meta *job);
    void (*shape)(const struct job_meta *job, struct job_shape *ret);
    /* Asked twice in a sync: before anything is done (its plan counts) and after (its
     * status, notes and requeue_ms count). -ENOMEM. */
    int (*decide)(const struct question *q, struct decision *ret);
    /* The object of a CREATE or UPDATE without body. NULL with err when memory is out
     * or it cannot be made (-EINVAL: the spec is to blame). secrets: only for a
     * Secret. */
    struct node *(*build)(struct build *b,
                          const struct job_meta *job,
                          const struct object_config *cfg,
                          const struct action *x,
                          const struct secrets *secrets,
                          struct err *err);
};

extern const struct front front_horovodjob, front_mpijob;
const struct front *front_of(enum kube_kind kind);

#endif
