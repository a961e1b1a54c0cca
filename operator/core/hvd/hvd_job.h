/* SPDX-License-Identifier: Apache-2.0 */
/* The decoded form of a HorovodJob: typed, with defaults. Pod templates remain trees,
 * because unknown fields of Kubernetes must be kept. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_JOB_H
#define OPERATOR_CORE_HVD_HVD_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/core/front.h"
#include "operator/core/hvd/hvd_knobs.h"
#include "operator/core/hvd/hvd_retired.h"
#include "operator/core/index_set.h"
#include "operator/core/labels.h"
#include "operator/core/meta.h"
#include "operator/core/role.h"
#include "runtime/base/strbuf.h"

#define JOB_API_VERSION   "ringmaster.dev/v1beta1"
#define JOB_KIND          "HorovodJob"
#define JOB_MANAGED_BY    "ringmaster.dev/hvd-operator"
#define JOB_MAX_REPLICAS  INDEX_SET_MAX
#define JOB_MAX_SLOTS     128 /* JOB_MAX_REPLICAS * JOB_MAX_SLOTS == WORLD_MAX_RANKS */
#define JOB_MAX_RULES     20
#define JOB_MAX_RULE_LIST 255 /* entries of one rule */

enum clean_policy { CLEAN_NONE, CLEAN_RUNNING, CLEAN_ALL };
enum hvd_framework { FRAMEWORK_HOROVOD, FRAMEWORK_TENSORFLOW };
/* With framework tensorflow AllWorkers includes the chief, and Worker0 is the chief if
 * there is one: TensorFlow's first task. */
enum success_policy { SUCCESS_ALL_WORKERS, SUCCESS_WORKER0, SUCCESS_LAUNCHER };

enum rule_action { RULE_FAIL, RULE_RESTART, RULE_IGNORE };
enum rule_subject { RULE_EXIT_CODES, RULE_SIGNALS, RULE_POD_CONDITIONS, RULE_REASONS };
struct rule_condition {
    const char *type, *status; /* "DisruptionTarget", "True" */
};
struct failure_rule { /* matches the entries of its subject's list */
    enum rule_action action;
    enum rule_subject subject;
    bool is_not_in;    /* RULE_EXIT_CODES: matches all codes except these and 0 */
    const int *number; /* RULE_EXIT_CODES, RULE_SIGNALS */
    const struct rule_condition *condition;
    const char *const *reason;
    size_t n; /* entries of the list */
};

struct hvd_scheduling { /* spec.runPolicy.schedulingPolicy */
    bool has_gang;      /* gang is set; if not, the operator's option counts */
    enum gang gang;
    int64_t min_available, schedule_timeout_s; /* -1: not set */
    const char *queue, *priority_class;        /* "" if not set */
    const struct node *min_resources;          /* NULL if not set */
};

struct hvd_run { /* spec.runPolicy */
    enum clean_policy clean;
    int64_t ttl_s, deadline_s; /* -1: not set */
    uint32_t backoff_limit;
    bool is_suspended;
    const char *managed_by; /* of spec or spec.runPolicy; NULL: not set */
    struct hvd_scheduling scheduling;
    const struct failure_rule *rule; /* in order; the first match counts */
    size_t n_rules;
};

struct hvd_role { /* spec.replicaSpecs.ROLE */
    bool is_set;
    uint32_t n;                      /* number of pods; 0 if the role is not set */
    const struct node *pod_template; /* NULL if there is none */
    struct index_set completed;      /* tasks of TensorFlow that have succeeded in this
                                        generation, by the stored status */
};

struct hvd_elastic { /* spec.elasticPolicy */
    bool is_set;
    bool makes_launcher; /* the spec has no Launcher: the operator adds one */
    uint32_t min, max;   /* bounds of the number of workers, without spares */
    uint32_t spares;     /* further worker pods */
    int64_t max_restarts, reset_limit; /* -1: no limit */
    struct hvd_retired retired;        /* by the stored status */
};

struct hvd_job { /* strings and trees belong to the document that it was decoded from,
                    derived values to the arena */
    struct job_meta meta;      /* the first member: see struct front */
    uint32_t world_generation; /* generation in the stored status; 0 before the first */
    uint32_t spec_workers;     /* number of workers in the spec. hvd_stored_apply sets
                                  role[ROLE_WORKER].n to the size of the world, and
                                  adds the spares */
    enum hvd_framework framework;
    enum success_policy success;
    uint32_t slots;
    const char *knob[KNOB_COUNT]; /* values of environment variables; NULL if not set */
    const char *shm_size;         /* a quantity; NULL if not set */
    const char *rdma_resource;    /* name of an extended resource; NULL if not set */
    uint32_t rdma_count;
    struct hvd_run run;
    struct hvd_elastic elastic;
    struct hvd_role role[ROLE_COUNT];
};

/* Initialises a job with this metadata and defaults. */
void hvd_job_init(struct hvd_job *job, const struct job_meta *meta);
/* Decodes the spec into an initialised job. Each problem (wrong type, out of range,
 * unknown field) adds one line "spec.slotsPerWorker: -1 is below 1" to problems; the
 * caller checks problems->n. -ENOMEM: *ret must not be used. */
int hvd_decode_spec(const struct node *object,
                    struct arena *a,
                    struct hvd_job *ret,
                    struct strbuf *problems);
/* The checks that the CRD's schema cannot express. Adds one line per problem. Requires a
 * decoded spec. */
void hvd_validate(const struct hvd_job *job, struct strbuf *problems);
/* True unless spec.runPolicy.managedBy names another controller. */
bool hvd_job_is_ours(const struct hvd_job *job);

#endif
