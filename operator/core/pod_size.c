/* SPDX-License-Identifier: Apache-2.0 */
/* The size of a pod:
 *
 *   running   containers and native sidecars (init containers that always restart)
 *   starting  an init container together with the sidecars before it, the largest such
 *   pod       the larger of the two, by resource; spec.resources replaces it; plus
 *             spec.overhead
 *
 * A gang's minResources must be what its pods use, or it starts without enough room.
 * Called by hvd_podgroup.c. */
#include "operator/core/pod_size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool read_quantity(const struct node *n, struct quantity *ret)
{
    char text[32];

    if (n->type == NODE_STRING)
        return quantity_parse(n->u.s, ret, NULL) == 0;
    if (n->type == NODE_INT)
        (void)snprintf(text, sizeof(text), "%" PRId64, n->u.i);
    else if (n->type == NODE_REAL) /* cpu: 0.5 */
        (void)snprintf(text, sizeof(text), "%.15g", n->u.d);
    else
        return false;
    return quantity_parse(text, ret, NULL) == 0;
}

static struct amount *amount_of(const struct amounts *list, const char *name)
{
    for (struct amount *x = list->first; x; x = x->next) {
        if (strcmp(x->name, name) == 0)
            return x;
    }
    return NULL;
}

static struct amount *amount_at(struct amounts *list, const char *name, struct arena *a)
{
    struct amount *x = amount_of(list, name);

    if (x)
        return x;
    x = arena_alloc(a, sizeof(*x));
    if (!x)
        return NULL;
    x->name = name;
    if (list->last)
        list->last->next = x;
    else
        list->first = x;
    list->last = x;
    return x;
}

int amounts_add(struct amounts *to,
                const struct amounts *from,
                uint32_t n,
                struct arena *a)
{
    for (const struct amount *x = from->first; x; x = x->next) {
        struct amount *sum = amount_at(to, x->name, a);
        struct quantity q = x->q;

        if (!sum)
            return -ENOMEM;
        if (quantity_multiply(&q, n) == 0)
            (void)quantity_add(&sum->q, &q);
    }
    return 0;
}

static bool quantity_is_more(const struct quantity *a, const struct quantity *b)
{
    return a->units > b->units || (a->units == b->units && a->nano > b->nano);
}

/* to = the larger, by resource. */
static int
amounts_raise(struct amounts *to, const struct amounts *from, struct arena *a)
{
    for (const struct amount *x = from->first; x; x = x->next) {
        struct amount *top = amount_at(to, x->name, a);

        if (!top)
            return -ENOMEM;
        if (quantity_is_more(&x->q, &top->q))
            top->q = x->q;
    }
    return 0;
}

static int put_list(const struct node *list,
                    const struct node *unless,
                    struct arena *a,
                    struct amounts *ret)
{
    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        struct quantity q;
        struct amount *x;

        if (!c->key || node_get(unless, c->key) || !read_quantity(c, &q))
            continue;
        x = amount_at(ret, c->key, a);
        if (!x)
            return -ENOMEM;
        x->q = q;
    }
    return 0;
}

int amounts_of(const struct node *o, struct arena *a, struct amounts *ret)
{
    const struct node *requests = node_at(o, "resources.requests");
    int rc = put_list(requests, NULL, a, ret);

    return rc < 0 ? rc : put_list(node_at(o, "resources.limits"), requests, a, ret);
}

static int of_init(const struct node *spec,
                   struct arena *a,
                   struct amounts *sidecars,
                   struct amounts *peak)
{
    const struct node *list = node_get(spec, "initContainers");
    int rc = 0;

    for (const struct node *c = list ? list->first : NULL; c && rc == 0; c = c->next) {
        const char *policy = node_str(c, "restartPolicy");
        struct amounts one = {0};

        rc = amounts_of(c, a, &one);
        if (rc == 0 && policy && strcmp(policy, "Always") == 0) {
            rc = amounts_add(sidecars, &one, 1, a);
        } else if (rc == 0) {
            rc = amounts_add(&one, sidecars, 1, a);
            if (rc == 0)
                rc = amounts_raise(peak, &one, a);
        }
    }
    return rc;
}

int pod_size(const struct node *spec, struct arena *a, struct amounts *ret)
{
    const struct node *containers = node_get(spec, "containers");
    struct amounts size = {0}, sidecars = {0}, peak = {0}, whole = {0}, overhead = {0};
    int rc = of_init(spec, a, &sidecars, &peak);

    for (const struct node *c = containers ? containers->first : NULL; c && rc == 0;
         c = c->next) {
        struct amounts one = {0};

        rc = amounts_of(c, a, &one);
        if (rc == 0)
            rc = amounts_add(&size, &one, 1, a);
    }
    if (rc == 0)
        rc = amounts_add(&size, &sidecars, 1, a);
    if (rc == 0)
        rc = amounts_raise(&size, &peak, a);
    if (rc == 0)
        rc = amounts_of(spec, a, &whole);
    for (const struct amount *x = whole.first; x && rc == 0; x = x->next) {
        struct amount *said = amount_at(&size, x->name, a);

        if (said)
            said->q = x->q;
        rc = said ? 0 : -ENOMEM;
    }
    if (rc == 0)
        rc = put_list(node_get(spec, "overhead"), NULL, a, &overhead);
    if (rc == 0)
        rc = amounts_add(&size, &overhead, 1, a);
    if (rc == 0)
        *ret = size;
    return rc;
}

struct node *amounts_node(struct build *b, const struct amounts *list)
{
    struct node *o = node_object(b);
    char text[QUANTITY_SIZE];

    for (const struct amount *x = list->first; x; x = x->next)
        node_set_str(b, o, x->name, quantity_format(&x->q, text));
    return o;
}
