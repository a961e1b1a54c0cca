/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of pods and launcher Jobs: copies of what the watches show, by
 * "namespace/name". A deleted object is handed to the caller once. Pure, one thread. */
#ifndef OPERATOR_CORE_CHILDREN_H
#define OPERATOR_CORE_CHILDREN_H

#include "operator/core/batch.h"
#include "operator/core/keyed.h"
#include "operator/core/pod.h"

struct children { /* zeroed: empty */
    struct keyed pods, batches;
};
void children_release(struct children *c);

/* 1: something changed; 0: nothing did; -ENOMEM; -EINVAL: no key. */
int children_put_pod(struct children *c, const struct pod *pod);
int children_put_batch(struct children *c, const struct batch_job *batch);

/* Removes it and hands it to the caller. NULL if it is not in the cache. */
struct pod *children_drop_pod(struct children *c, const char *ns, const char *name);
struct batch_job *
children_drop_batch(struct children *c, const char *ns, const char *name);

/* A relist: begin, put all, then drop the unmarked pods, or sweep, until NULL is
 * returned: each is one that was not put. Pods of one kind of job only. */
void children_begin_pods(struct children *c, enum kube_kind job_kind);
void children_begin_batches(struct children *c);
const struct pod *children_unmarked_pod(const struct children *c,
                                        enum kube_kind job_kind);
struct batch_job *children_sweep_batches(struct children *c);

/* NULL if it is not in the cache. Valid until the next put or drop. */
const struct pod *
children_pod(const struct children *c, const char *ns, const char *name);
const struct batch_job *
children_batch(const struct children *c, const char *ns, const char *name);
/* Pods whose names begin with "JOB-", one after the other; *place starts at 0. NULL
 * after the last. */
const struct pod *children_next_pod(const struct children *c,
                                    const char *ns,
                                    const char *job_name,
                                    size_t *place);
size_t children_pod_bytes(const struct children *c); /* of all pods */
void pod_free(struct pod *p);         /* of a pod that was handed out; accepts NULL */
void batch_free(struct batch_job *b); /* the same */

#endif
