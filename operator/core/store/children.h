/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of pods and launcher Jobs: copies of the objects that the watches show, by
 * "namespace/name". A deleted object is returned to the caller once, which then owns
 * it. Pure, one thread. */
#ifndef OPERATOR_CORE_STORE_CHILDREN_H
#define OPERATOR_CORE_STORE_CHILDREN_H

#include "operator/core/batch.h"
#include "operator/core/keyed.h"
#include "operator/core/pod.h"

struct children { /* zeroed: empty */
    struct keyed pods, batches;
};
void children_release(struct children *c);

/* Copies the object into the cache. 1: something changed; 0: nothing changed; -ENOMEM;
 * -EINVAL: no namespace or no name. */
int children_put_pod(struct children *c, const struct pod *pod);
int children_put_batch(struct children *c, const struct batch_job *batch);

/* Stores what the Events of a pod of that uid say; until it starts or is replaced. hint
 * NULL: they could not be read. */
void children_explain_pod(struct children *c,
                          const char *ns,
                          const char *name,
                          const char *uid,
                          const char *hint,
                          uint64_t now_s);

/* Removes the object and returns it; the caller frees it with pod_free or batch_free.
 * NULL if it is not in the cache. */
struct pod *children_drop_pod(struct children *c, const char *ns, const char *name);
struct batch_job *
children_drop_batch(struct children *c, const char *ns, const char *name);

/* A relist: begin; put all objects; then, until NULL is returned, drop the pod that
 * children_unmarked_pod returns, or call children_sweep_batches, which removes a Job
 * and returns it to the caller. These are the objects that were not put. Pods: those of
 * one kind of job. */
void children_begin_pods(struct children *c, enum kube_kind job_kind);
void children_begin_batches(struct children *c);
const struct pod *children_unmarked_pod(const struct children *c,
                                        enum kube_kind job_kind);
struct batch_job *children_sweep_batches(struct children *c);

/* The object in the cache, valid until the next put or drop; NULL if it is absent. */
const struct pod *
children_pod(const struct children *c, const char *ns, const char *name);
const struct batch_job *
children_batch(const struct children *c, const char *ns, const char *name);
/* Returns the pods whose names start with "JOB-", one per call; NULL after the last. */
const struct pod *children_next_pod(const struct children *c,
                                    const char *ns,
                                    const char *job_name,
                                    struct keyed_range *at);
/* Returns all pods, one per call; NULL after the last. *next is 0 before the first. */
const struct pod *children_each_pod(const struct children *c, size_t *next);
size_t children_pod_bytes(const struct children *c); /* memory of all pods */
/* For objects that were returned to the caller; NULL is allowed. */
void pod_free(struct pod *p);
void batch_free(struct batch_job *b);

#endif
