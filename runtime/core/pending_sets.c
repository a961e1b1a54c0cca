/* SPDX-License-Identifier: Apache-2.0 */
/* The process sets of the table: the world, those that programs add, and pairs. A number
 * is used again as late as possible, with another id (set_id.h). Called by pending.c;
 * negotiate.c calls pendings_settle. */
#include "runtime/core/pending_sets.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/negotiate.h"
#include "runtime/core/pair.h"
#include "runtime/core/pending_groups.h"

struct rank_set *pendings_find_set(const struct pendings *t, uint32_t id)
{
    return (struct rank_set *)(void *)nametab_find(&t->set_of, id, "");
}

static void rank_set_free(struct rank_set *s)
{
    mem_free((void *)(uintptr_t)s->view.ranks);
    mem_free(s);
}

static uint32_t set_count_joined(const struct pendings *t, const struct set_view *v)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < v->n && t->n_joined > 0; i++)
        n += t->has_joined[v->ranks ? v->ranks[i] : i];
    return n;
}

int pendings_add_set(struct pendings *t,
                     uint32_t id,
                     uint32_t *ranks,
                     uint32_t n,
                     enum set_callers callers)
{
    struct rank_set *s = mem_zalloc(sizeof(*s)), **at = &t->sets;

    if (!s) {
        mem_free(ranks);
        return -ENOMEM;
    }
    s->id = s->node.set = id;
    s->callers = callers;
    s->node.name = "";
    s->view = (struct set_view){n, ranks};
    s->n_joined = set_count_joined(t, &s->view);
    if (nametab_add(&t->set_of, &s->node) < 0) {
        rank_set_free(s);
        return -ENOMEM;
    }
    if (*at)
        at = &(*at)->next; /* behind the world */
    s->next = *at;
    *at = s;
    return 0;
}

int pendings_add_pair(struct pendings *t, uint32_t id)
{
    uint32_t *ranks = mem_calloc(2, sizeof(*ranks));

    if (!ranks)
        return -ENOMEM;
    pair_ranks(id, ranks);
    return pendings_add_set(t, id, ranks, 2, SET_BY_MEMBERS);
}

void pendings_release_sets(struct pendings *t)
{
    while (t->sets) {
        struct rank_set *s = t->sets;

        t->sets = s->next;
        rank_set_free(s);
    }
    nametab_release(&t->set_of);
    mem_free(t->free_ids);
}

static void pendings_remove_set(struct pendings *t, struct rank_set *s)
{
    struct rank_set **at = &t->sets;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    nametab_remove(&t->set_of, &s->node);
    for (struct pending *p = t->ready.head; p; p = p->next)
        if (p->set == s)
            p->set = NULL;
    rank_set_free(s);
}

/* Is the requested set there? One that its members add and one that all ranks add are
 * different even with equal ranks; the world is either. */
static bool set_equals_request(const struct rank_set *s, const struct tensor_request *q)
{
    if (pair_is(s->id) || s->view.n != q->n_set
        || (s->id != 0 && s->callers != q->root))
        return false;
    for (uint32_t i = 0; i < q->n_set; i++)
        if (request_set_rank(q, i) != (s->view.ranks ? s->view.ranks[i] : i))
            return false;
    return true;
}

/* --- added and removed by tensors --- */

/* Takes the number that has been free for longest, or a new one. There is always room
 * to return it. -E2BIG: none is left. */
static int pendings_take_id(struct pendings *t, uint32_t *ret)
{
    void *v = t->free_ids;
    int rc;

    if (t->n_free > 0) {
        *ret = t->free_ids[0];
        t->n_free--;
        memmove(t->free_ids, t->free_ids + 1, t->n_free * sizeof(*t->free_ids));
        return 0;
    }
    if (t->n_numbers >= NEGOTIATE_MAX_SETS)
        return -E2BIG;
    rc = mem_grow(&v, t->n_numbers, &t->free_cap, sizeof(*t->free_ids), SIZE_MAX / 64);
    t->free_ids = v;
    if (rc == 0)
        *ret = t->n_numbers++;
    return rc;
}

static void pendings_return_id(struct pendings *t, uint32_t id)
{
    t->n_free += set_next_id(id, &t->free_ids[t->n_free]);
}

static int pendings_settle_add(struct pendings *t, struct pending *p)
{
    struct err why = ERR_INIT;
    uint32_t *ranks, id = 0;
    int rc;

    for (const struct rank_set *s = t->sets; s; s = s->next) {
        if (!set_equals_request(s, &p->first))
            continue;
        (void)err_set(&why, -EINVAL,
                      "a process set with the same ranks exists already: %u",
                      set_number(s->id));
        return pending_fail(p, &why);
    }
    if (request_set_rank(&p->first, p->first.n_set - 1) >= t->n_ranks) {
        (void)err_set(&why, -EINVAL, "process set: rank %u is not in the world of %u",
                      request_set_rank(&p->first, p->first.n_set - 1), t->n_ranks);
        return pending_fail(p, &why);
    }
    rc = pendings_take_id(t, &id);
    if (rc == -E2BIG) { /* several sets may have been requested at once */
        (void)err_set(&why, -EINVAL, "more than %u process sets", NEGOTIATE_MAX_SETS);
        return pending_fail(p, &why);
    }
    ranks = rc < 0 ? NULL : mem_calloc(p->first.n_set, sizeof(*ranks));
    if (!ranks)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->first.n_set; i++)
        ranks[i] = request_set_rank(&p->first, i);
    rc =
        pendings_add_set(t, id, ranks, p->first.n_set, (enum set_callers)p->first.root);
    if (rc == 0)
        p->first.process_set = id;
    return rc;
}

static int pendings_settle_remove(struct pendings *t, struct pending *p)
{
    struct rank_set *s =
        pair_is(p->first.root) ? NULL : pendings_find_set(t, p->first.root);
    struct err why = ERR_INIT;

    if (s && s->id != 0 && s->n_pending == 0) {
        pendings_return_id(t, s->id);
        pendings_remove_set(t, s);
        return 0;
    }
    if (!s || s->id == 0)
        (void)err_set(&why, -EINVAL, "process set %u %s", set_number(p->first.root),
                      s ? "is all ranks, it cannot be removed" : "does not exist");
    else
        (void)err_set(&why, -EINVAL,
                      "process set %u cannot be removed: %u of its tensors are pending",
                      set_number(s->id), s->n_pending);
    return pending_fail(p, &why);
}

int pendings_settle(struct pendings *t, struct pending *p)
{
    if (p->first.coll == COLL_SET_REMOVE)
        return pendings_settle_remove(t, p);
    return p->first.coll == COLL_SET_ADD ? pendings_settle_add(t, p) : 0;
}
