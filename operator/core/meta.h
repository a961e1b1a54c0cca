/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of a job of any kind. Pure. */
#ifndef OPERATOR_CORE_META_H
#define OPERATOR_CORE_META_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/doc/node.h"
#include "operator/doc/prune.h"
#include "operator/kube/path.h"
#include "runtime/base/err.h"

struct job_meta { /* strings and trees belong to the document it was decoded from */
    enum kube_kind kind; /* KUBE_JOB or KUBE_MPIJOB */
    const char *ns, *name, *uid, *resource_version;
    const char *made; /* creationTimestamp; NULL if absent */
    int64_t generation;
    bool is_deleting;
    /* From the store: the spec had no problems when the job came to rest, and is without
     * its pod templates now. */
    bool is_at_rest;
    const char *kueue_queue;        /* from the label; "" if none */
    const struct node *annotations; /* those that the store keeps; NULL if none */
    const struct node *status;      /* NULL if the job has none yet */
};

/* The fields of a job that meta_decode and the decoders of both kinds read. */
extern const struct prune_rule job_rules[];
/* Of metadata, those of an object that names its job by LABEL_JOB_NAME and its owner. */
extern const struct prune_rule owned_metadata_rules[];

/* -EINVAL: name, namespace or uid is missing. They suffice to write a status if the spec
 * cannot be decoded. */
int meta_decode(enum kube_kind kind,
                const struct node *object,
                struct job_meta *ret,
                struct err *err);

/* Adds to the metadata of an object that the job is its controller. */
void meta_add_owner(struct build *b, struct node *metadata, const struct job_meta *job);
/* A new object of the job, with this metadata and in addition its name, namespace and
 * owner. The caller gives it a label, before or after. */
struct node *meta_object_new(struct build *b,
                             const struct job_meta *job,
                             const char *api_version,
                             const char *kind,
                             const char *name,
                             struct node *metadata);

#endif
