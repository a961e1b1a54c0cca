/* SPDX-License-Identifier: Apache-2.0 */
/* What we keep of a worker pod: a few hundred bytes out of the ten thousand that the
 * API sends. */
#ifndef OPERATOR_CORE_POD_H
#define OPERATOR_CORE_POD_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/core/role.h"
#include "operator/doc/node.h"
#include "operator/doc/prune.h"
#include "operator/kube/path.h"
#include "runtime/base/err.h"

#define POD_TEXT_MAX        4096 /* of a termination message; Kubernetes' own limit */
#define POD_CONDITIONS_SIZE 1024 /* what more conditions there are is not kept */

enum pod_phase { POD_PENDING, POD_RUNNING, POD_SUCCEEDED, POD_FAILED, POD_UNKNOWN };

struct pod { /* no field is NULL except where said */
    char *ns, *name, *uid;
    char *owner_uid; /* of the controlling owner; "" if none */
    char *job_name;  /* by label */
    char *node;      /* "" until bound */
    char *reason;    /* why the pod as a whole ended: "Evicted", a DisruptionTarget's
                        reason; "" */
    char *message;   /* belongs to reason */
    char *waiting;   /* why it does not run yet, "ErrImagePull: ..."; "" */
    char *exit_container;    /* the container whose end counts (pod.c); "" */
    char *exit_reason;       /* "Error", "OOMKilled"; "" */
    char *exit_text;         /* its termination message; "" */
    char *finalizer;         /* the first, of a pod that is being deleted; "" */
    char *conditions;        /* of pod_has_condition(); not those that all pods have */
    uint32_t usual;          /* those */
    enum kube_kind job_kind; /* of the job that its labels name */
    int role;                /* enum role, by label; -1: none that we know */
    uint32_t generation;     /* by label; 0 if absent */
    uint32_t world_generation, world_workers; /* by annotation; 0 if absent */
    uint32_t runtime; /* pod_runtime of the image that brings it; 0: none does */
    enum pod_phase phase;
    bool is_ready, is_deleting, has_exit;
    bool is_disrupted;               /* condition DisruptionTarget is True */
    bool is_init_exit, is_main_exit; /* of an init container; of container 0 */
    bool is_stopped; /* spec.activeDeadlineSeconds is 1: its kubelet is to end it */
    bool is_held;    /* container 0 has ended, and another one goes on */
    int exit_code, exit_signal;
    uint64_t made_wall_us;   /* when the API server took it in; 0: unknown */
    uint64_t exit_wall_us;   /* 0: unknown. Kubernetes gives whole seconds */
    uint64_t run_wall_us;    /* since when its containers run; 0: they do not */
    uint64_t delete_wall_us; /* when deletion was asked for; 0: it was not */
    uint32_t grace_s;        /* that it has from then */
};

/* What pod_decode and object_read look at: nothing else of a pod needs to be parsed. */
extern const struct prune_rule pod_rules[];

/* May it be a pod of such a job? A user's template may have labels by which the watch
 * of the other kind's pods shows it, too; its owner tells. */
bool pod_is_of(enum kube_kind job_kind, const struct node *object);
/* Fills *ret with pointers into the document and into conditions: valid as long as they
 * are. -EINVAL without a name. */
int pod_decode(enum kube_kind job_kind,
               const struct node *object,
               char conditions[POD_CONDITIONS_SIZE],
               struct pod *ret,
               struct err *err);
int pod_copy(const struct pod *from, struct pod *ret); /* owned strings; -ENOMEM */
void pod_release(struct pod *p);         /* of a copy; accepts a zeroed struct */
size_t pod_bytes(const struct pod *p);   /* that a copy takes */
uint32_t pod_runtime(const char *image); /* a hash, never 0: to tell images apart */
/* How the pod's work ended: of one that goes on for the sake of another container, as
 * its first one did. Where all have ended, the kubelet's phase is waited for. Neither:
 * it has not ended. */
bool pod_has_succeeded(const struct pod *p);
bool pod_has_failed(const struct pod *p);
/* status: "True", "False" or "Unknown". A pod without the condition has none of them.
 */
bool pod_has_condition(const struct pod *p, const char *type, const char *status);
/* But for the conditions that every pod goes through: nothing is done about those. */
bool pod_equal(const struct pod *a, const struct pod *b);
/* When a pod that is being deleted should have gone at the latest. */
uint64_t pod_gone_by_s(const struct pod *p);
/* Of the world that it is in: by annotation, else by label, else the first. */
uint32_t pod_generation(const struct pod *p);

#endif
