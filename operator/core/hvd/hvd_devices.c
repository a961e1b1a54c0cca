/* SPDX-License-Identifier: Apache-2.0 */
/* Counting GPUs, for the default of slotsPerWorker and its check. Called by
 * hvd_decode.c and hvd_validate.c. */
#include "operator/core/hvd/hvd_devices.h"

#include <string.h>

#include "operator/core/quantity.h"
#include "runtime/base/mem.h"

#define MIG_PREFIX "nvidia.com/mig-"
#define MAX_GPUS   1000000 /* of one resource; no sum overflows */

bool device_is_gpu(const char *resource)
{
    return strcmp(resource, "nvidia.com/gpu") == 0
           || strcmp(resource, "amd.com/gpu") == 0
           || strncmp(resource, MIG_PREFIX, strlen(MIG_PREFIX)) == 0;
}

static uint64_t devices_read_amount(const struct node *n)
{
    struct quantity q;

    if (n->type == NODE_INT)
        return n->u.i > 0 && n->u.i <= MAX_GPUS ? (uint64_t)n->u.i : 0;
    if (n->type != NODE_STRING || quantity_parse(n->u.s, &q, NULL) < 0 || q.nano
        || q.units > MAX_GPUS)
        return 0;
    return q.units;
}

struct devices devices_count(const struct node *pod_template)
{
    const struct node *spec = node_get(pod_template, "spec");
    const struct node *first = node_item(node_get(spec, "containers"), 0);
    const struct node *limits = node_at(first, "resources.limits");
    const struct node *requests = node_at(first, "resources.requests");
    const struct node *claims = node_at(first, "resources.claims");
    struct devices d = {0};

    for (const struct node *c = limits ? limits->first : NULL; c; c = c->next) {
        if (c->key && device_is_gpu(c->key))
            d.n += devices_read_amount(c);
    }
    for (const struct node *c = requests ? requests->first : NULL; c; c = c->next) {
        if (c->key && device_is_gpu(c->key) && !node_get(limits, c->key))
            d.n += devices_read_amount(c);
    }
    for (const struct node *c = claims ? claims->first : NULL; c; c = c->next) {
        const char *name = node_str(c, "name");

        if (name && node_with(node_get(spec, "resourceClaims"), "name", name))
            d.n_claims++;
    }
    d.n += d.n_claims;
    return d;
}
