/* SPDX-License-Identifier: Apache-2.0 */
/* A HorovodJob as the operator works with it: typed, defaulted, with its pod template
 * left as a tree (fields of Kubernetes that we do not know must pass through). Pure. */
#ifndef OPERATOR_CORE_JOB_H
#define OPERATOR_CORE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/doc/node.h"
#include "runtime/base/arena.h"
#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define JOB_API_VERSION     "ringmaster.dev/v1beta1"
#define JOB_KIND            "HorovodJob"
#define JOB_MAX_REPLICAS    8192
#define JOB_MAX_SLOTS       128 /* JOB_MAX_REPLICAS * JOB_MAX_SLOTS == WORLD_MAX_RANKS */

#define LABEL_JOB_NAME      "ringmaster.dev/job-name"
#define LABEL_JOB_ROLE      "ringmaster.dev/job-role"
#define LABEL_REPLICA_INDEX "ringmaster.dev/replica-index"
#define ROLE_WORKER         "worker"

enum clean_policy { CLEAN_NONE, CLEAN_RUNNING, CLEAN_ALL };

struct job { /* strings and trees belong to the document it was decoded from */
    const char *ns, *name, *uid, *resource_version;
    int64_t generation;
    bool is_deleting;
    uint32_t slots;          /* spec.slotsPerWorker, default 1 */
    uint32_t replicas;       /* spec.replicaSpecs.Worker.replicas, default 1 */
    enum clean_policy clean; /* spec.runPolicy.cleanPodPolicy, default Running */
    const struct node *pod_template;
    const struct node *status; /* NULL when there is none yet */
};

/* Metadata and status only: enough to report on a job whose spec cannot be decoded.
 * -EINVAL when name, namespace or uid is missing. */
int job_decode_meta(const struct node *object, struct job *ret, struct err *err);
/* The spec, with defaults. Each problem (wrong type, out of range, unknown field) is
 * one line "spec.slotsPerWorker: -1 is below 1" in problems; the caller looks at
 * problems->n. */
void job_decode_spec(const struct node *object,
                     struct job *ret,
                     struct strbuf *problems);
/* What the schema in the CRD cannot see, again one line a problem. Needs a decoded
 * spec. */
void job_validate(const struct job *job, struct strbuf *problems);

#endif
