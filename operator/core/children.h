/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of what jobs own and a watch shows: pods and launcher Jobs. Copies of what
 * the watches say, by "namespace/name"; what is gone is handed out once. Pure, one
 * thread. */
#ifndef OPERATOR_CORE_CHILDREN_H
#define OPERATOR_CORE_CHILDREN_H

#include "operator/core/batch.h"
#include "operator/core/keyed.h"
#include "operator/core/pod.h"

struct children { /* zeroed: empty */
    struct keyed pods, batches;
};
void children_release(struct children *c);

/* 1 when something changed, 0 when it was known so, -ENOMEM, -EINVAL: no key. */
int children_put_pod(struct children *c, const struct pod *pod);
int children_put_batch(struct children *c, const struct batch_job *batch);

/* Takes it out; the caller owns what it gets. NULL if it is not there. */
struct pod *children_drop_pod(struct children *c, const char *ns, const char *name);
struct batch_job *
children_drop_batch(struct children *c, const char *ns, const char *name);

/* A relist: begin, put all, then drop what is unmarked, or sweep, until there is NULL:
 * each is one that was not put. Pods of one kind of job only. */
void children_begin_pods(struct children *c, enum kube_kind job_kind);
void children_begin_batches(struct children *c);
const struct pod *children_unmarked_pod(const struct children *c,
                                        enum kube_kind job_kind);
struct batch_job *children_sweep_batches(struct children *c);

/* NULL if it is not there. Valid until the next put or drop. */
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
size_t children_pod_bytes(const struct children *c); /* that all pods take */
void pod_free(struct pod *p);         /* of what was handed out; accepts NULL */
void batch_free(struct batch_job *b); /* the same */

#endif
