/* SPDX-License-Identifier: Apache-2.0 */
/* metadata of an API object -> struct job_meta. */
#include "operator/core/meta.h"

#include <errno.h>

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
        .generation = node_int(object, "metadata.generation", 0),
        .is_deleting = node_str(object, "metadata.deletionTimestamp") != NULL,
        .annotations = node_at(object, "metadata.annotations"),
        .status = node_get(object, "status"),
    };

    if (!m.ns || !m.name || !m.uid)
        return err_set(err, -EINVAL, "metadata.%s: missing",
                       !m.ns ? "namespace" : (!m.name ? "name" : "uid"));
    *ret = m;
    return 0;
}
