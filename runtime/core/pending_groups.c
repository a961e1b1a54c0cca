/* SPDX-License-Identifier: Apache-2.0 */
/* A group is identified by the hash of its name within a process set, from its first
 * complete tensor until it is ready.
 *
 * I1  Its complete tensors are chained to it in the order of completion. All become
 *     ready at once, in that order.
 *
 * I2  If one tensor of a group fails, the whole group fails. A tensor whose group
 *     differs between ranks fails alone and counts as a failed tensor of every group
 *     that a rank names for it, so that no group waits for it. */
#include "runtime/core/pending_groups.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

struct group {
    struct nametab_node node; /* first; name: key */
    char key[24];
    struct pending *first, *last;
    uint32_t n, need;
    char *text; /* error message of the first disputed tensor */
};

struct claim { /* a group that a rank names for a disputed tensor */
    struct claim *next;
    uint64_t group;
    uint32_t group_n;
};

static void group_free(struct group *g)
{
    mem_free(g->text);
    mem_free(g);
}

void groups_forget(struct pending *p)
{
    while (p->claims) {
        struct claim *c = p->claims;

        p->claims = c->next;
        mem_free(c);
    }
}

void groups_clear(struct pendings *t)
{
    for (size_t b = 0; b < t->groups.n_buckets; b++)
        while (t->groups.v[b]) {
            struct nametab_node *g = t->groups.v[b];

            nametab_remove(&t->groups, g);
            group_free((struct group *)(void *)g); /* node is the first member */
        }
    nametab_release(&t->groups);
}

static int group_ready(struct pendings *t, struct group *g)
{
    const struct pending *bad = NULL;
    struct err why = ERR_INIT;
    char name[NAME_SHOWN_MAX];
    int rc = 0;

    for (struct pending *p = g->first; p && !bad; p = p->group_next)
        bad = p->text ? p : NULL;
    if (bad)
        (void)err_set(&why, -EINVAL, "its group failed with tensor %s: %.300s",
                      name_shown(bad->first.name, name), bad->text);
    else if (g->text)
        (void)err_set(&why, -EINVAL, "its group failed: %.380s", g->text);
    for (struct pending *p = g->first, *next; p && rc == 0; p = next) {
        next = p->group_next;
        if (why.code < 0)
            rc = pending_fail(p, &why);
        p->is_inside = p != g->first;
        pending_make_ready(t, p);
    }
    nametab_remove(&t->groups, &g->node);
    group_free(g);
    return rc;
}

/* The group of this hash, created if it does not exist. NULL: out of memory. */
static struct group *
group_get(struct pendings *t, uint32_t set, uint64_t group, uint32_t group_n)
{
    struct group *g;
    char key[24];

    (void)snprintf(key, sizeof(key), "%016llx", (unsigned long long)group);
    g = (struct group *)(void *)nametab_find(&t->groups, set, key);
    if (g) {
        if (group_n < g->need)
            g->need = group_n;
        return g;
    }
    g = mem_zalloc(sizeof(*g));
    if (!g)
        return NULL;
    memcpy(g->key, key, sizeof(key));
    g->node.name = g->key;
    g->node.set = set;
    g->need = group_n;
    if (nametab_add(&t->groups, &g->node) < 0) {
        mem_free(g);
        return NULL;
    }
    return g;
}

int groups_add(struct pendings *t, struct pending *p)
{
    struct group *g =
        group_get(t, p->first.process_set, p->first.group, p->first.group_n);

    if (!g)
        return -ENOMEM;
    if (g->last)
        g->last->group_next = p;
    else
        g->first = p;
    g->last = p;
    return ++g->n >= g->need ? group_ready(t, g) : 0;
}

int groups_claim(struct pending *p, const struct tensor_request *q)
{
    struct claim *c = p->claims;

    while (c && c->group != q->group)
        c = c->next;
    if (q->group == 0 || c)
        return 0;
    c = mem_zalloc(sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->group = q->group;
    c->group_n = q->group_n;
    c->next = p->claims;
    p->claims = c;
    return 0;
}

int groups_dispute(struct pendings *t, const struct pending *p)
{
    int rc = 0;

    for (const struct claim *c = p->claims; c && rc == 0; c = c->next) {
        struct group *g = group_get(t, p->first.process_set, c->group, c->group_n);

        if (g && !g->text && p->text)
            g->text = mem_strdup(p->text);
        if (!g || (!g->text && p->text))
            return -ENOMEM;
        if (++g->n >= g->need)
            rc = group_ready(t, g);
    }
    return rc;
}
