/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a pod that the operator uses: a few hundred of the ten thousand bytes
 * that the API server sends. */
#ifndef OPERATOR_CORE_POD_H
#define OPERATOR_CORE_POD_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/core/role.h"
#include "operator/doc/node.h"
#include "operator/doc/prune.h"
#include "operator/kube/path.h"
#include "runtime/base/err.h"

#define POD_TEXT_MAX        4096 /* bytes of a termination message: Kubernetes' limit */
#define POD_CONDITIONS_SIZE 1024 /* further conditions are dropped */

enum pod_phase { POD_PENDING, POD_RUNNING, POD_SUCCEEDED, POD_FAILED, POD_UNKNOWN };

struct pod { /* no string is NULL */
    char *ns, *name, *uid;
    char *owner_uid; /* uid of the controlling owner; "" if none */
    char *job_name;  /* from the label */
    char *node;      /* name of the node; "" until the pod is bound */
    char *ip;        /* status.podIP; "" until it has one */
    char *reason;    /* why the pod ended: "Evicted", reason of DisruptionTarget; "" */
    char *message;   /* the message for reason */
    char *waiting;   /* why the pod does not run yet: the scheduler's or the kubelet's
                        message, else its reason; "" */
    char *wait_reason;    /* of the waiting container: "ErrImagePull"; "" */
    char *wait_container; /* its name, or that of the init container that runs; "" */
    char *hint; /* the same from its Events; set by the cache (explain.h); "" */
    char *exit_container; /* name of the container whose exit counts (pod.c); "" */
    char *exit_reason;    /* its reason: "Error", "OOMKilled"; "" */
    char *exit_text;      /* its termination message; "" */
    char *finalizer;  /* a pod in deletion: the first finalizer that is not ours; "" */
    char *conditions; /* for pod_has_condition(), without the usual conditions */
    uint32_t usual;   /* the usual conditions, two bits each */
    enum kube_kind job_kind; /* kind of the job, from the labels */
    int role;                /* enum role, from the label; -1: unknown */
    uint32_t generation;     /* from the label; 0 if absent */
    uint32_t world_generation, world_workers; /* from the annotation; 0 if absent */
    uint32_t runtime; /* pod_runtime() of the init container's image; 0: none */
    enum pod_phase phase;
    bool is_ready, is_deleting, has_exit;
    bool is_disrupted;               /* condition DisruptionTarget is True */
    bool is_init_exit, is_main_exit; /* an init container exited; container 0 exited */
    bool is_stopped;   /* spec.activeDeadlineSeconds is 1: the kubelet ends the pod */
    bool is_held;      /* container 0 has exited, another one runs */
    bool is_tracked;   /* it has our finalizer (hvd_crew.h) */
    bool is_init_wait; /* wait_container is an init container */
    bool is_unlisted;  /* deleted while no watch was open; set by the store */
    int exit_code, exit_signal;
    uint32_t
        n_restarts; /* of a launcher's container 0, while it has not ended: exit_* are
                            those of its last end, and has_exit is false */
    uint64_t made_wall_us;   /* creationTimestamp; 0: unknown */
    uint64_t bound_wall_us;  /* when it was bound to its node; 0: unknown */
    uint64_t exit_wall_us;   /* 0: unknown. Kubernetes reports whole seconds */
    uint64_t begin_wall_us;  /* when container 0 first started; 0: it did not */
    uint64_t run_wall_us;    /* when the last container started; 0: none runs */
    uint64_t init_wall_us;   /* when the init container that runs started; 0: none */
    uint64_t delete_wall_us; /* when the deletion was requested; 0: it was not */
    uint64_t explained_s;    /* wall time of the last request of its Events; 0: none */
    uint32_t grace_s;        /* grace period of the deletion */
};

/* The fields that pod_decode and pod_is_of read; the rest need not be parsed. */
extern const struct prune_rule pod_rules[];

/* True if the owner of the pod fits that kind of job. A user's template may set labels
 * with which the watch for the other kind also shows the pod. */
bool pod_is_of(enum kube_kind job_kind, const struct node *object);
/* Fills *ret with pointers into the document and into conditions, valid as long as
 * these. -EINVAL: the pod has no name. */
int pod_decode(enum kube_kind job_kind,
               const struct node *object,
               char conditions[POD_CONDITIONS_SIZE],
               struct pod *ret,
               struct err *err);
int pod_copy(const struct pod *from, struct pod *ret); /* owned strings; -ENOMEM */
void pod_release(struct pod *p);                       /* p is a copy or zeroed */
size_t pod_bytes(const struct pod *p);                 /* memory of a copy */
uint32_t pod_runtime(const char *image);               /* a hash of the name, never 0 */
/* The result of the pod. While container 0 has exited and another container runs, it is
 * the result of container 0; when all have exited, it is the phase that the kubelet
 * sets. If both are false, the pod has no result yet. */
bool pod_has_succeeded(const struct pod *p);
bool pod_has_failed(const struct pod *p);
/* status: "True", "False" or "Unknown". A pod without the condition has none of them.
 */
bool pod_has_condition(const struct pod *p, const char *type, const char *status);
/* True for what each pod passes through: it explains nothing. */
bool waiting_is_usual(const char *waiting);
/* Ignores the conditions that every pod has: nothing depends on them. */
bool pod_equal(const struct pod *a, const struct pod *b);
/* The wall time by which a pod in deletion should have disappeared. */
uint64_t pod_gone_by_s(const struct pod *p);
/* The generation of the pod's world: from the annotation, else the label, else 1. */
uint32_t pod_generation(const struct pod *p);
/* The replica index, from the name and the role. -EINVAL: it is not a pod of a crew. */
int pod_replica_index(const struct pod *p, uint32_t *ret);

#endif
