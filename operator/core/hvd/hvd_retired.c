/* SPDX-License-Identifier: Apache-2.0 */
/* Called by hvd_stored.c (read), hvd_loss.c (add), hvd_status.c (write) and hvd_pod.c
 * (avoid). */
#include "operator/core/hvd/hvd_retired.h"

#include <string.h>

#include "runtime/contract/failure.h"

#define LIST       "retiredWorkers"
#define AVOID_FROM 2 /* pods in a row on one node */
#define WEIGHT_MAX 100
#define PREFER     "preferredDuringSchedulingIgnoredDuringExecution"

bool pod_has_retired(const struct pod *p)
{
    return p->has_exit && p->is_main_exit && p->exit_signal == 0
           && p->exit_code == FAILURE_RETIRED;
}

/* Its place in r->v; r->n: it is not there. */
static size_t retired_find(const struct hvd_retired *r, uint32_t index)
{
    size_t i = 0;

    while (i < r->n && r->v[i].index != index)
        i++;
    return i;
}

void hvd_retired_read(const struct node *status, struct hvd_retired *ret)
{
    const struct node *list = node_get(status, LIST);

    ret->n = 0;
    for (const struct node *o = list && list->type == NODE_ARRAY ? list->first : NULL;
         o && ret->n < HVD_RETIRED_MAX; o = o->next) {
        const char *node = node_str(o, "node");
        int64_t index = node_int(o, "index", -1), count = node_int(o, "count", 0);

        if (node && index >= 0 && index <= UINT32_MAX && count > 0
            && count <= UINT32_MAX)
            ret->v[ret->n++] = (struct hvd_retired_worker){
                .index = (uint32_t)index, .node = node, .count = (uint32_t)count};
    }
}

void hvd_retired_add(struct hvd_retired *r, uint32_t index, const char *node)
{
    size_t i = retired_find(r, index);

    if (i < r->n && strcmp(r->v[i].node, node) == 0) {
        r->v[i].count++;
        return;
    }
    if (i == HVD_RETIRED_MAX)
        memmove(r->v, r->v + 1, --i * sizeof(*r->v));
    else if (i == r->n)
        r->n++;
    r->v[i] = (struct hvd_retired_worker){.index = index, .node = node, .count = 1};
}

void hvd_retired_write(const struct hvd_retired *r,
                       struct build *b,
                       struct node *status)
{
    struct node *list = r->n > 0 ? node_array(b) : NULL;

    for (size_t i = 0; i < r->n; i++) {
        struct node *o = node_object(b);

        node_set_int(b, o, "index", r->v[i].index);
        node_set_str(b, o, "node", r->v[i].node);
        node_set_int(b, o, "count", r->v[i].count);
        node_add(b, list, o);
    }
    if (list)
        node_set(b, status, LIST, list);
}

const char *hvd_retired_node(const struct hvd_retired *r, uint32_t index)
{
    const size_t i = retired_find(r, index);

    return i < r->n && r->v[i].count >= AVOID_FROM ? r->v[i].node : NULL;
}

void hvd_retired_avoid(struct build *b, struct node *spec, const char *node)
{
    struct node *affinity = node_child(b, spec, "affinity", NODE_OBJECT);
    struct node *of_node = node_child(b, affinity, "nodeAffinity", NODE_OBJECT);
    struct node *list = node_child(b, of_node, PREFER, NODE_ARRAY);
    struct node *term = node_object(b), *preference = node_object(b);
    struct node *field = node_object(b), *values = node_array(b);

    node_add_str(b, values, node);
    node_set_str(b, field, "key", "metadata.name");
    node_set_str(b, field, "operator", "NotIn");
    node_set(b, field, "values", values);
    node_add(b, node_child(b, preference, "matchFields", NODE_ARRAY), field);
    node_set_int(b, term, "weight", WEIGHT_MAX);
    node_set(b, term, "preference", preference);
    node_add(b, list, term);
}
