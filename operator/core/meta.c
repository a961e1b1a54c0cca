/* SPDX-License-Identifier: Apache-2.0 */
/* metadata of an API object -> struct job_meta. */
#include "operator/core/meta.h"

#include <errno.h>

#include "operator/core/hvd/hvd_job.h"
#include "operator/core/labels.h"
#include "operator/core/mpi/mpi_job.h"
#include "operator/doc/object.h"

static const struct prune_rule annotation_rules[] = {
    PRUNE_KEEP(MPI_EXTRA_LAUNCH), PRUNE_KEEP(MPI_EXTRA_TTL),
    PRUNE_KEEP(MPI_EXTRA_CLEANUP), PRUNE_KEEP(ANNOTATION_VOLCANO_QUEUE), PRUNE_END};
static const struct prune_rule queue_rules[] = {PRUNE_KEEP(LABEL_KUEUE_QUEUE),
                                                PRUNE_END};
static const struct prune_rule metadata_rules[] = {
    PRUNE_KEEP("name"),
    PRUNE_KEEP("namespace"),
    PRUNE_KEEP("uid"),
    PRUNE_KEEP("resourceVersion"),
    PRUNE_KEEP("generation"),
    PRUNE_KEEP("creationTimestamp"),
    PRUNE_KEEP("deletionTimestamp"),
    {.key = "labels", .inner = queue_rules},
    {.key = "annotations", .inner = annotation_rules},
    PRUNE_END};
static const struct prune_rule label_rules[] = {PRUNE_KEEP(LABEL_JOB_NAME), PRUNE_END};
const struct prune_rule owned_metadata_rules[] = {
    PRUNE_KEEP("name"),
    PRUNE_KEEP("namespace"),
    PRUNE_KEEP("uid"),
    PRUNE_KEEP("resourceVersion"),
    PRUNE_KEEP("deletionTimestamp"),
    {.key = "labels", .inner = label_rules},
    {.key = "ownerReferences", .inner = owner_rules},
    PRUNE_END};
const struct prune_rule job_rules[] = {{.key = "metadata", .inner = metadata_rules},
                                       PRUNE_KEEP("spec"),
                                       PRUNE_KEEP("status"),
                                       PRUNE_END};

int meta_decode(enum kube_kind kind,
                const struct node *object,
                struct job_meta *ret,
                struct err *err)
{
    struct job_meta m = {
        .kind = kind,
        .ns = node_str(object, "metadata.namespace"),
        .name = node_str(object, "metadata.name"),
        .uid = node_str(object, "metadata.uid"),
        .resource_version = node_str(object, "metadata.resourceVersion"),
        .made = node_str(object, "metadata.creationTimestamp"),
        .generation = node_int(object, "metadata.generation", 0),
        .is_deleting = node_str(object, "metadata.deletionTimestamp") != NULL,
        .kueue_queue = object_label(object, LABEL_KUEUE_QUEUE),
        .annotations = node_at(object, "metadata.annotations"),
        .status = node_get(object, "status"),
    };

    if (!m.ns || !m.name || !m.uid)
        return err_set(err, -EINVAL, "metadata.%s: missing",
                       !m.ns ? "namespace" : (!m.name ? "name" : "uid"));
    *ret = m;
    return 0;
}

void meta_add_owner(struct build *b, struct node *metadata, const struct job_meta *job)
{
    bool is_mpi = job->kind == KUBE_MPIJOB;
    struct node *owner = node_object(b);

    node_set_str(b, owner, "apiVersion", is_mpi ? MPI_API_VERSION : JOB_API_VERSION);
    node_set_str(b, owner, "kind", is_mpi ? MPI_KIND : JOB_KIND);
    node_set_str(b, owner, "name", job->name);
    node_set_str(b, owner, "uid", job->uid);
    node_set_bool(b, owner, "controller", true);
    if (is_mpi) /* as mpi-operator does */
        node_set_bool(b, owner, "blockOwnerDeletion", true);
    node_add(b, node_child(b, metadata, "ownerReferences", NODE_ARRAY), owner);
}

struct node *meta_object_new(struct build *b,
                             const struct job_meta *job,
                             const char *api_version,
                             const char *kind,
                             const char *name,
                             struct node *metadata)
{
    struct node *o = node_object(b);

    node_set_str(b, o, "apiVersion", api_version);
    node_set_str(b, o, "kind", kind);
    node_set_str(b, metadata, "name", name);
    node_set_str(b, metadata, "namespace", job->ns);
    (void)node_child(b, metadata, "labels", NODE_OBJECT); /* readers want it here */
    meta_add_owner(b, metadata, job);
    node_set(b, o, "metadata", metadata);
    return o;
}
