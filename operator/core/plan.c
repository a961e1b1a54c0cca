/* SPDX-License-Identifier: Apache-2.0 */
/* Building plans. */
#include "operator/core/plan.h"

#include <assert.h>
#include <errno.h>

#include "runtime/base/mem.h"

const char *verb_name(enum verb v)
{
    static const char *const names[] = {[VERB_CREATE] = "create",
                                        [VERB_UPDATE] = "update",
                                        [VERB_DELETE] = "delete",
                                        [VERB_LOOK] = "look for",
                                        [VERB_EXPLAIN] = "explain"};

    return names[v];
}

int plan_init(struct job_plan *p, size_t cap, struct arena *a)
{
    *p = (struct job_plan){.v = arena_calloc(a, cap ? cap : 1, sizeof(*p->v)),
                           .cap = cap};
    return p->v ? 0 : -ENOMEM;
}

struct action *plan_add(struct job_plan *p,
                        enum verb verb,
                        enum kube_kind kind,
                        uint32_t stage,
                        const char *name)
{
    assert(p->n < p->cap);
    p->v[p->n] =
        (struct action){.verb = verb, .kind = kind, .stage = stage, .name = name};
    return &p->v[p->n++];
}

struct action *plan_add_pod(struct job_plan *p,
                            enum verb verb,
                            uint32_t stage,
                            const struct pod *pod,
                            enum role role,
                            uint32_t index,
                            struct arena *a)
{
    const char *name = arena_strdup(a, pod->name);
    const char *uid = arena_strdup(a, pod->uid);
    struct action *x;

    if (!name || !uid)
        return NULL;
    x = plan_add(p, verb, KUBE_POD, stage, name);
    x->role = role;
    x->index = index;
    x->uid = uid;
    return x;
}

struct node *
plan_delete_options(struct build *b, const struct action *x, const char *uid)
{
    struct node *o = node_object(b);

    node_set_str(b, o, "propagationPolicy", "Background");
    if (x->is_forced)
        node_set_int(b, o, "gracePeriodSeconds", 0);
    node_set_str(b, node_child(b, o, "preconditions", NODE_OBJECT), "uid", uid);
    return o;
}
