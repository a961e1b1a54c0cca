/* SPDX-License-Identifier: Apache-2.0 */
/* A HorovodJob as the operator works with it: typed, defaulted, with its pod template
 * left as a tree (fields of Kubernetes that we do not know must pass through). Pure. */
#ifndef OPERATOR_CORE_HVD_JOB_H
#define OPERATOR_CORE_HVD_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/core/labels.h"
#include "operator/core/meta.h"
#include "runtime/base/strbuf.h"

#define JOB_API_VERSION  "ringmaster.dev/v1beta1"
#define JOB_KIND         "HorovodJob"
#define JOB_MAX_REPLICAS 8192
#define JOB_MAX_SLOTS    128 /* JOB_MAX_REPLICAS * JOB_MAX_SLOTS == WORLD_MAX_RANKS */

enum clean_policy { CLEAN_NONE, CLEAN_RUNNING, CLEAN_ALL };

struct hvd_job { /* strings and trees belong to the document it was decoded from */
    struct job_meta meta;
    uint32_t slots;          /* spec.slotsPerWorker, default 1 */
    uint32_t replicas;       /* spec.replicaSpecs.Worker.replicas, default 1 */
    enum clean_policy clean; /* spec.runPolicy.cleanPodPolicy, default Running */
    const struct node *pod_template;
};

/* A job of that metadata with the defaults of everything else. */
void hvd_job_init(struct hvd_job *job, const struct job_meta *meta);
/* The spec, over the defaults. Each problem (wrong type, out of range, unknown field)
 * is one line "spec.slotsPerWorker: -1 is below 1" in problems; the caller looks at
 * problems->n. */
void hvd_decode_spec(const struct node *object,
                     struct hvd_job *ret,
                     struct strbuf *problems);
/* What the schema in the CRD cannot see, again one line a problem. Needs a decoded
 * spec. */
void hvd_validate(const struct hvd_job *job, struct strbuf *problems);

#endif
