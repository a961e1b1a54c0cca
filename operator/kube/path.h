/* SPDX-License-Identifier: Apache-2.0 */
/* Kind and name -> URL path, each element percent-encoded. Pure. */
#ifndef OPERATOR_KUBE_PATH_H
#define OPERATOR_KUBE_PATH_H

#include "runtime/base/strbuf.h"

enum kube_kind {
    KUBE_JOB, /* HorovodJob */
    KUBE_MPIJOB,
    KUBE_POD,
    KUBE_SERVICE,
    KUBE_SECRET,
    KUBE_CONFIGMAP,
    KUBE_EVENT,
    KUBE_BATCH,           /* Job of batch/v1 */
    KUBE_VOLCANO_GROUP,   /* PodGroup of Volcano */
    KUBE_SCHEDULER_GROUP, /* PodGroup of scheduler-plugins */
    KUBE_PRIORITY_CLASS,
    KUBE_LEASE,
    KUBE_WORKLOAD, /* of Kueue */
    /* No objects: the answer to the POST is the review itself. */
    KUBE_TOKEN_REVIEW,
    KUBE_ACCESS_REVIEW, /* SubjectAccessReview */
};
#define KUBE_KIND_COUNT KUBE_TOKEN_REVIEW /* of objects; the reviews are not counted */
const char *kube_kind_name(enum kube_kind k);   /* "HorovodJob", "Pod", ... */
const char *kube_api_version(enum kube_kind k); /* "ringmaster.dev/v1beta1", "v1" */

/* ns NULL: all namespaces. name NULL: the collection. sub: "status", "log" or NULL. */
void kube_path(struct strbuf *out,
               enum kube_kind kind,
               const char *ns,
               const char *name,
               const char *sub);
/* "&key=value" with value encoded; the first parameter gets '?'. value NULL: nothing.
 */
void kube_query(struct strbuf *out, const char *key, const char *value);

#endif
