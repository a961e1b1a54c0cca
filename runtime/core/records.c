/* SPDX-License-Identifier: Apache-2.0 */
/* An array by slot and a hash by name. Slots are dense: rank 0 assigns them from 0. */
#include "runtime/core/records.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

static void record_free(struct cache_record *r)
{
    mem_free(r->counts);
    mem_free(r);
}

void records_hold(struct cache_record *r)
{
    r->n_held++;
}

void records_put(struct cache_record *r)
{
    if (r && --r->n_held == 0 && r->is_gone)
        record_free(r);
}

static void records_drop(struct records *t, uint32_t slot)
{
    struct cache_record *r = t->v[slot];

    t->v[slot] = NULL;
    if (!r)
        return;
    nametab_remove(&t->names, &r->node);
    r->is_gone = true;
    if (r->n_held == 0)
        record_free(r);
}

void records_release(struct records *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        records_drop(t, i);
    nametab_release(&t->names);
    mem_free(t->v);
    *t = (struct records){0};
}

static int records_make_room(struct records *t, uint32_t slot)
{
    while (t->n <= slot) {
        void *v = t->v;
        int rc = mem_grow(&v, t->n, &t->cap, sizeof(void *), SLOTS_MAX);

        t->v = v;
        if (rc < 0)
            return -ENOMEM;
        t->v[t->n++] = NULL;
    }
    return 0;
}

static int record_fill(struct cache_record *r,
                       const struct tensor_request *req,
                       const uint64_t *counts,
                       uint32_t n_counts)
{
    r->req = *req;
    r->node.name = r->req.name;
    r->node.set = req->process_set;
    r->n_counts = n_counts;
    r->counts = n_counts > 0 ? mem_calloc(n_counts, sizeof(*counts)) : NULL;
    if (n_counts > 0 && !r->counts)
        return -ENOMEM;
    if (n_counts > 0)
        memcpy(r->counts, counts, n_counts * sizeof(*counts));
    return 0;
}

int records_set(struct records *t,
                uint32_t slot,
                const struct tensor_request *req,
                bool is_ours,
                const uint64_t *counts,
                uint32_t n_counts)
{
    struct nametab_node *old;
    struct cache_record *r;

    if (records_make_room(t, slot) < 0)
        return -ENOMEM;
    records_drop(t, slot);
    old = nametab_find(&t->names, req->process_set, req->name);
    if (old) /* the name had another slot */
        records_drop(t, ((const struct cache_record *)(const void *)old)->slot);
    r = mem_zalloc(sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->slot = slot;
    r->is_ours = is_ours;
    if (record_fill(r, req, counts, n_counts) < 0
        || nametab_add(&t->names, &r->node) < 0) {
        record_free(r);
        return -ENOMEM;
    }
    t->v[slot] = r;
    return 0;
}

struct cache_record *records_get(const struct records *t, uint32_t slot)
{
    return slot < t->n ? t->v[slot] : NULL;
}

struct cache_record *records_match(const struct records *t,
                                   const struct tensor_request *req)
{
    struct nametab_node *node = nametab_find(&t->names, req->process_set, req->name);
    struct cache_record *r =
        (struct cache_record *)(void *)node; /* node is the first member */

    return r && r->is_ours && request_same(&r->req, req) ? r : NULL;
}
