/* SPDX-License-Identifier: Apache-2.0 */
/* One table row per kind of job. sync.c and apply.c contain nothing that is specific to
 * a kind: they call the functions of the row. All of them are pure. */
#ifndef OPERATOR_CORE_FRONT_H
#define OPERATOR_CORE_FRONT_H

#include "operator/core/meta.h"
#include "operator/core/plan.h"
#include "operator/core/priorities.h"
#include "operator/core/state.h"
#include "runtime/base/strbuf.h"

enum gang { GANG_NONE, GANG_VOLCANO, GANG_SCHEDULER_PLUGINS };

/* The operator's options that objects depend on. */
struct object_config {
    const char *runtime_image;  /* what the init container runs */
    const char *cluster_domain; /* "" or e.g. "cluster.local" */
    enum gang gang;             /* of MPIJobs, and of HorovodJobs that do not choose */
    const char *gang_scheduler; /* schedulerName of gang pods; "" without gang */
};

struct question {
    const struct job_meta *job; /* as front->open made it */
    const struct observed *seen;
    /* Of the plan that was carried out; TROUBLE_NONE before that. */
    const struct sync_outcome *outcome;
    const struct object_config *cfg;
    const struct priorities *priorities; /* empty without gang */
    uint64_t now_wall_s;
    struct arena *arena; /* everything in the decision lives here */
};

struct event_note {
    bool is_warning;
    bool is_once;       /* one Event with this reason at most in the life of a job */
    const char *reason; /* CamelCase */
    const char *message;
};
#define DECISION_MAX_NOTES 8

struct decision {
    struct job_plan plan;
    uint64_t requeue_ms; /* sync again after this time even without an event; 0: no */
    struct node *status; /* the whole new status; NULL: no change */
    /* Events: the differences to the stored status. */
    struct event_note note[DECISION_MAX_NOTES];
    size_t n_notes;
    enum job_state state; /* for logs and metrics */
    const char *reason, *message;
    const char *cause; /* reason of a restart that starts now; NULL: none does */
    bool was_finished; /* the stored status has it already */
};

/* Secrets, which only the shell can generate. */
struct secrets {
    uint8_t token[32];
    const char *ssh_private; /* PEM; "" if not requested */
    const char *ssh_public;  /* line of authorized_keys; "" if not requested */
};

struct front {
    enum kube_kind kind;
    const char *component; /* source of Events */
    /* The job, in the arena, with defaults: its first member is its struct job_meta.
     * Each problem of the spec is one line in problems ("spec.slotsPerWorker: -1 is
     * below 1"). A job with problems can still be passed to decide, with outcome
     * TROUBLE_REJECTED. NULL when memory is out. */
    struct job_meta *(*open)(const struct node *object,
                             const struct job_meta *meta,
                             struct arena *a,
                             struct strbuf *problems);
    /* Does this operator manage the job (runPolicy.managedBy)? A job of another
     * controller is not validated. */
    bool (*is_ours)(const struct job_meta *job);
    void (*shape)(const struct job_meta *job, struct job_shape *ret);
    /* Called twice in a sync: before the plan is carried out (for the plan) and after
     * (for status, notes and requeue_ms). -ENOMEM. */
    int (*decide)(const struct question *q, struct decision *ret);
    /* The object of a CREATE or UPDATE without body. NULL with err when memory is out
     * or the object cannot be built (-EINVAL: because of the spec). secrets: only for a
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
