/* SPDX-License-Identifier: Apache-2.0 */
/* The exported C API: what the program of an elastic job asks. Stateless. */
#include "runtime/api/api.h"

#include "runtime/world/membership.h"

/* NULL: no world, or that of a job that is not elastic. */
static struct world *elastic_world(void)
{
    struct world *w;

    if (runtime_get(&w, NULL) < 0)
        return NULL;
    if (w->membership)
        return w;
    runtime_put(w);
    return NULL;
}

int hvd_elastic_take_change(void)
{
    struct world *w = elastic_world();
    int change = w ? membership_take_change(w->membership) : 0;

    runtime_put(w);
    return change;
}

int hvd_elastic_has_new(void)
{
    struct world *w = elastic_world();
    int has_new = w && w->has_new;

    runtime_put(w);
    return has_new;
}

int hvd_elastic_is_over(void)
{
    struct world *w = elastic_world();
    int is_over = w && coordinator_status(w->co, NULL) != 0;

    runtime_put(w);
    return is_over;
}
