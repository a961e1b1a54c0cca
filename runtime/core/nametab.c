/* SPDX-License-Identifier: Apache-2.0 */
/* A chained hash table over FNV-1a. It doubles when there are as many nodes as buckets
 * and never shrinks, because the tensor names of a training job are stable. Used by
 * pending.c (rank 0's pending tensors), member.c, records.c, slots.c, trace.c and the
 * tensor queue. */
#include "runtime/core/nametab.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

enum { FIRST_BUCKETS = 64, MAX_BUCKETS = 1 << 22 };

static uint32_t nametab_hash(uint32_t set, const char *s)
{
    uint32_t h = 2166136261u ^ set;

    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 16777619u;
    return h;
}

static int nametab_grow(struct nametab *t)
{
    size_t n = t->n_buckets ? t->n_buckets * 2 : FIRST_BUCKETS;
    struct nametab_node **v;

    if (n > MAX_BUCKETS)
        return 0; /* chains grow longer */
    v = mem_calloc(n, sizeof(void *));
    if (!v)
        return -ENOMEM;
    for (size_t i = 0; i < t->n_buckets; i++) {
        while (t->v[i]) {
            struct nametab_node *node = t->v[i];

            t->v[i] = node->next;
            node->next = v[node->hash & (n - 1)];
            v[node->hash & (n - 1)] = node;
        }
    }
    mem_free(t->v);
    t->v = v;
    t->n_buckets = n;
    return 0;
}

void nametab_release(struct nametab *t)
{
    mem_free(t->v);
    *t = (struct nametab){0};
}

struct nametab_node *
nametab_find(const struct nametab *t, uint32_t set, const char *name)
{
    uint32_t h = nametab_hash(set, name);

    if (t->n_buckets == 0)
        return NULL;
    for (struct nametab_node *p = t->v[h & (t->n_buckets - 1)]; p; p = p->next)
        if (p->hash == h && p->set == set && strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

int nametab_add(struct nametab *t, struct nametab_node *node)
{
    size_t b;

    if (nametab_find(t, node->set, node->name))
        return -EEXIST;
    if (t->n >= t->n_buckets && nametab_grow(t) < 0)
        return -ENOMEM;
    node->hash = nametab_hash(node->set, node->name);
    b = node->hash & (t->n_buckets - 1);
    node->next = t->v[b];
    t->v[b] = node;
    t->n++;
    return 0;
}

void nametab_remove(struct nametab *t, struct nametab_node *node)
{
    struct nametab_node **p = &t->v[node->hash & (t->n_buckets - 1)];

    while (*p != node)
        p = &(*p)->next;
    *p = node->next;
    node->next = NULL;
    t->n--;
}

const char *name_shown(const char *name, char *buf)
{
    size_t n = strlen(name);

    if (n + 3 <= NAME_SHOWN_MAX)
        (void)snprintf(buf, NAME_SHOWN_MAX, "\"%s\"", name);
    else
        (void)snprintf(buf, NAME_SHOWN_MAX, "\"%.80s...%s\"", name, name + n - 38);
    for (char *c = buf; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?'; /* an error message is one line */
    return buf;
}
