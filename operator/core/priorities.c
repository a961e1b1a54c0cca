/* SPDX-License-Identifier: Apache-2.0 */
/* PriorityClass name -> value. */
#include "operator/core/priorities.h"

#include <errno.h>
#include <stdbool.h>

#include "runtime/base/mem.h"

struct class_entry {
    char *name;
    int32_t value;
    bool is_marked;
};

static void priority_free(struct class_entry *e)
{
    mem_free(e->name);
    mem_free(e);
}

void priorities_release(struct priorities *p)
{
    for (size_t i = 0; i < p->classes.n; i++)
        priority_free(p->classes.v[i]);
    keyed_release(&p->classes);
}

int priorities_put(struct priorities *p, const char *name, int32_t value)
{
    struct class_entry *e = keyed_find(&p->classes, name);

    if (!e) {
        e = mem_zalloc(sizeof(*e));
        if (!e)
            return -ENOMEM;
        e->name = mem_strdup(name);
        if (!e->name || keyed_insert(&p->classes, e) < 0) {
            priority_free(e);
            return -ENOMEM;
        }
    }
    e->value = value;
    e->is_marked = true;
    return 0;
}

void priorities_drop(struct priorities *p, const char *name)
{
    struct class_entry *e = keyed_find(&p->classes, name);

    if (!e)
        return;
    keyed_remove(&p->classes, e);
    priority_free(e);
}

void priorities_begin(struct priorities *p)
{
    for (size_t i = 0; i < p->classes.n; i++)
        ((struct class_entry *)p->classes.v[i])->is_marked = false;
}

void priorities_end(struct priorities *p)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->classes.n; i++) {
        struct class_entry *e = p->classes.v[i];

        if (e->is_marked)
            p->classes.v[kept++] = e;
        else
            priority_free(e);
    }
    p->classes.n = kept;
}

int32_t priorities_value(const struct priorities *p, const char *name)
{
    const struct class_entry *e = p && name ? keyed_find(&p->classes, name) : NULL;

    return e ? e->value : 0;
}
