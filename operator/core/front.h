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
/* scheduler: "", "volcano", or the name of a scheduler with the coscheduling plug-in. */
enum gang gang_of(const char *scheduler);

#define DEFAULT_RUNTIME_IMAGE "localhost/hvd-runtime:dev"

/* The operator's options that objects depend on. */
struct object_config {
    const char *runtime_image;  /* image of the init container */
    const char *cluster_domain; /* "" or, for example, "cluster.local" */
    enum gang gang; /* for MPIJobs, and for HorovodJobs that do not set one */
    const char *gang_scheduler; /* schedulerName of gang pods; "" for GANG_NONE */
};

struct question {
    const struct job_meta *job;  /* the result of front->open */
    const struct observed *seen; /* the snapshot */
    /* The outcome of the plan; TROUBLE_NONE before the plan is carried out. */
    const struct sync_outcome *outcome;
    const struct object_config *cfg;
    const struct priorities *priorities; /* empty for GANG_NONE */
    uint64_t now_wall_s;
    struct arena *arena; /* owns everything in the decision */
};

/* How many Events a job gets: by reason and message, each repetition counted; one by
 * reason and message; one by reason. */
enum event_repeat { EVENT_COUNTED, EVENT_ONCE_PER_TEXT, EVENT_ONCE };

struct event_note {
    bool is_warning;
    enum event_repeat repeat;
    const char *reason; /* CamelCase */
    const char *message;
};
#define DECISION_MAX_NOTES 12

/* Where the operator asks what a running job does (operator/ask.h). */
struct ask_target {
    const char *address; /* numeric; NULL: the job cannot be asked now */
    uint16_t port;
    const char *run;    /* a report belongs to it: uid of the pod that is asked */
    const char *secret; /* name of the Secret with the job's token */
    const char *job_id; /* as the job's agents present it */
};

struct decision {
    struct job_plan plan;
    uint64_t requeue_ms; /* the latest time of the next sync; 0: it needs an event */
    struct node *status; /* the whole new status; NULL: no change */
    /* Events, for the differences from the stored status. */
    struct event_note note[DECISION_MAX_NOTES];
    size_t n_notes;
    enum job_state state; /* for logs and metrics */
    const char *reason, *message;
    const char *cause; /* reason of the restart that starts now; NULL: no restart */
    bool was_finished; /* the job is finished in the stored status */
    struct ask_target ask;
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
    /* Returns the decoded job with its defaults, in the arena. Its first member is its
     * struct job_meta. Adds one line for each problem of the spec to problems
     * ("spec.slotsPerWorker: -1 is below 1"). A job with problems can still be passed
     * to decide, with outcome TROUBLE_REJECTED. NULL: out of memory. */
    struct job_meta *(*open)(const struct node *object,
                             const struct job_meta *meta,
                             struct arena *a,
                             struct strbuf *problems);
    /* True if this operator manages the job (runPolicy.managedBy). The
     * problems of another controller's job are ignored. */
    bool (*is_ours)(const struct job_meta *job);
    void (*shape)(const struct job_meta *job, struct job_shape *ret);
    /* Called once per sync for the plan, and again after its actions for status, notes and
     * requeue_ms; without actions the first decision counts. -ENOMEM. */
    int (*decide)(const struct question *q, struct decision *ret);
    /* Returns the object for a CREATE or UPDATE that has no body. NULL, with err set:
     * out of memory, or the object cannot be built (-EINVAL: because of the spec).
     * secrets: for a Secret, else NULL. */
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
