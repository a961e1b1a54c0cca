/* SPDX-License-Identifier: Apache-2.0 */
/* The bookkeeping of negotiate.c.
 *
 * I1  A pending tensor is in `waiting` until it is ready, then in `ready`, then freed.
 *     Complete tensors of an incomplete group stay in `waiting`, chained to their
 *     group.
 *
 * I2  n_seen + n_excused counts every rank of the set at most once: a rank that has
 *     joined submits nothing until all have joined.
 *
 * pending_sets.c handles process sets, pending_groups.c groups, pending_probes.c probes. */
#include "runtime/core/pending.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/negotiate.h"
#include "runtime/core/pair.h"
#include "runtime/core/pending_groups.h"
#include "runtime/core/pending_probes.h"
#include "runtime/core/pending_sets.h"

static void pending_append(struct pending_list *l, struct pending *p)
{
    p->next = NULL;
    p->prev = l->tail;
    if (l->tail)
        l->tail->next = p;
    else
        l->head = p;
    l->tail = p;
    l->n++;
}

static void list_remove(struct pending_list *l, struct pending *p)
{
    if (p->prev)
        p->prev->next = p->next;
    else
        l->head = p->next;
    if (p->next)
        p->next->prev = p->prev;
    else
        l->tail = p->prev;
    l->n--;
}

static void pending_free(struct pending *p)
{
    if (!p)
        return;
    groups_forget(p);
    mem_free(p->dim0);
    mem_free(p->text);
    mem_free((void *)(uintptr_t)p->first.set); /* our copy */
    mem_free(p);
}

static void list_release(struct pending_list *l)
{
    while (l->head) {
        struct pending *p = l->head;

        list_remove(l, p);
        pending_free(p);
    }
}

/* --- life --- */

int pendings_init(struct pendings *t, uint32_t n_ranks)
{
    *t = (struct pendings){.n_ranks = n_ranks, .n_numbers = 1};
    t->has_joined = mem_calloc(n_ranks, sizeof(*t->has_joined));
    t->submitted_ns = mem_calloc(n_ranks, sizeof(*t->submitted_ns));
    if (!t->has_joined || !t->submitted_ns)
        return -ENOMEM;
    return pendings_add_set(t, 0, NULL, n_ranks, SET_BY_ALL);
}

void pendings_clear(struct pendings *t)
{
    list_release(&t->waiting);
    list_release(&t->ready);
    nametab_release(&t->names);
    t->n_probes = 0;
    groups_clear(t);
    for (struct rank_set *s = t->sets; s; s = s->next)
        s->n_pending = 0;
}

void pendings_release(struct pendings *t)
{
    pendings_clear(t);
    pendings_release_sets(t);
    mem_free(t->has_joined);
    mem_free(t->submitted_ns);
}

/* --- becoming ready --- */

int pending_fail(struct pending *p, const struct err *why)
{
    if (!p->text)
        p->text = mem_strdup(why->text);
    return p->text ? 0 : -ENOMEM;
}

void pending_make_ready(struct pendings *t, struct pending *p)
{
    list_remove(&t->waiting, p);
    pending_append(&t->ready, p);
    if (p->set)
        p->set->ready_ns = t->now_ns;
}

static int pending_complete(struct pendings *t, struct pending *p)
{
    struct err why = ERR_INIT;
    int rc = 0;

    p->is_complete = true;
    nametab_remove(&t->names, &p->node);
    if (p->n_excused > 0 && !p->text && mismatch_joined(&p->first, &why) < 0)
        rc = pending_fail(p, &why);
    if (rc < 0)
        return rc;
    if (p->first.group != 0 && !p->is_apart)
        return groups_add(t, p);
    pending_make_ready(t, p);
    return groups_dispute(t, p);
}

/* Must that rank submit this tensor? */
static bool pending_wants_rank(const struct pending *p, uint32_t rank)
{
    if (p->first.coll == COLL_PROBE)
        return rank == p->first_rank;
    return request_by_members(&p->first) ? request_set_has(&p->first, rank)
                                         : set_view_has(&p->set->view, rank);
}

uint32_t pending_n_missing(const struct pending *p)
{
    uint32_t n = request_by_members(&p->first) ? p->first.n_set : p->set->view.n;

    if (p->first.coll == COLL_PROBE)
        return !p->is_complete; /* the sender */
    return n - p->n_seen - p->n_excused;
}

static uint32_t pending_count_excused(const struct pendings *t, const struct pending *p)
{
    uint32_t n = 0;

    if (p->first.coll == COLL_PROBE)
        return 0;
    if (!request_by_members(&p->first))
        return p->set->n_joined;
    for (uint32_t i = 0; i < t->n_ranks && t->n_joined > 0; i++)
        n += t->has_joined[i] && pending_wants_rank(p, i);
    return n;
}

static int pending_complete_if_whole(struct pendings *t, struct pending *p)
{
    return !p->is_complete && pending_n_missing(p) == 0 ? pending_complete(t, p) : 0;
}

/* --- one rank's tensor --- */

static int pending_copy_set(struct pending *p)
{
    size_t n = (size_t)p->first.n_set * 4;
    uint8_t *copy;

    if (n == 0)
        return 0;
    copy = mem_alloc(n);
    if (copy)
        memcpy(copy, p->first.set, n);
    p->first.set = copy;
    return copy ? 0 : -ENOMEM;
}

static int pending_new(struct pendings *t,
                       uint32_t rank,
                       const struct tensor_request *req,
                       uint64_t now_ns,
                       struct pending **ret)
{
    struct pending *p = mem_zalloc(sizeof(*p) + t->n_ranks / 8 + 1);
    int rc;

    if (!p)
        return -ENOMEM;
    p->first = *req;
    p->first_rank = rank;
    p->since_ns = now_ns;
    p->node.name = p->first.name;
    p->node.set = req->process_set;
    p->set = pendings_find_set(t, req->process_set);
    rc = pending_copy_set(p);
    if (rc == 0 && !p->set && pair_is(req->process_set)) {
        rc = pendings_add_pair(t, req->process_set);
        p->set = pendings_find_set(t, req->process_set);
    }
    if (rc == 0 && request_has_rows(req)) {
        p->dim0 = mem_calloc(t->n_ranks, sizeof(*p->dim0));
        rc = p->dim0 ? 0 : -ENOMEM;
    }
    if (rc == 0)
        rc = nametab_add(&t->names, &p->node);
    if (rc < 0) {
        pending_free(p);
        return -ENOMEM;
    }
    p->n_excused = p->set ? pending_count_excused(t, p) : 0;
    t->n_probes += req->coll == COLL_PROBE;
    if (p->set)
        p->set->n_pending++;
    pending_append(&t->waiting, p);
    *ret = p;
    return 0;
}

bool pending_has_rank(const struct pending *p, uint32_t rank)
{
    return p->seen[rank / 8] >> (rank % 8) & 1;
}

bool pendings_is_missing(const struct pendings *t,
                         const struct pending *p,
                         uint32_t rank)
{
    return rank < t->n_ranks && p->set && pending_wants_rank(p, rank)
           && !pending_has_rank(p, rank) && !t->has_joined[rank];
}

uint64_t pendings_active_ns(const struct pendings *t, const bool *is_in)
{
    uint64_t last_ns = 0;

    for (uint32_t i = 0; i < t->n_ranks; i++)
        if (is_in[i] && t->submitted_ns[i] > last_ns)
            last_ns = t->submitted_ns[i];
    for (const struct rank_set *s = t->sets; s; s = s->next)
        if (s->ready_ns > last_ns && set_view_has_any(&s->view, is_in))
            last_ns = s->ready_ns;
    return last_ns;
}

/* A tensor of a removed set fails at once, for every rank that submits it. */
static int pendings_add_orphan(struct pendings *t, struct pending *p)
{
    struct err why = ERR_INIT;
    char name[NAME_SHOWN_MAX];
    int rc;

    (void)err_set(&why, -EINVAL, "tensor %s: process set %u does not exist",
                  name_shown(p->first.name, name), set_number(p->first.process_set));
    rc = pending_fail(p, &why);
    nametab_remove(&t->names, &p->node);
    pending_make_ready(t, p);
    return rc;
}

static int pending_check(struct pending *p,
                         uint32_t rank,
                         const struct tensor_request *q,
                         bool is_hit)
{
    struct err why = ERR_INIT;
    int rc;

    if (p->first.group != q->group || p->first.group_n != q->group_n) {
        p->is_apart = true;
        if (groups_claim(p, &p->first) < 0 || groups_claim(p, q) < 0)
            return -ENOMEM;
    }
    if (p->text)
        return 0;
    rc = q == &p->first ? 0 : mismatch_pair(&p->first, p->first_rank, q, rank, &why);
    if (rc == 0 && !is_hit) /* a bit stands for a request that was valid before */
        rc = mismatch_alone(q, rank, &p->set->view, &why);
    return rc == 0 ? 0 : pending_fail(p, &why);
}

static int
pendings_join(struct pendings *t, uint32_t rank, const struct tensor_request *q)
{
    int rc = 0;

    t->n_joined++;
    t->last_joined = rank;
    t->join = *q;
    for (struct rank_set *s = t->sets; s; s = s->next)
        s->n_joined += set_view_has(&s->view, rank);
    for (struct pending *p = t->waiting.head; p; p = p->next)
        p->n_excused += !p->is_complete && pendings_is_missing(t, p, rank);
    t->has_joined[rank] = true;
    for (struct pending *p = t->waiting.head; p && rc == 0;) {
        bool is_now = !p->is_complete && p->set && pending_n_missing(p) == 0;

        rc = is_now ? pending_complete(t, p) : 0;
        p = is_now ? t->waiting.head : p->next; /* p's group may have moved too */
    }
    return rc;
}

static int pending_report_no_memory(struct err *err, int r)
{
    return r < 0 ? err_set(err, r, "out of memory for a pending tensor") : 0;
}

/* Are both ranks of the pair in this world, and is `rank` one of them? */
static bool rank_is_in_pair(const struct pendings *t, uint32_t rank, uint32_t pair)
{
    uint32_t ranks[2];

    pair_ranks(pair, ranks);
    return ranks[1] < t->n_ranks && pair_has(pair, rank);
}

static int pendings_check_sender(const struct pendings *t,
                                 uint32_t rank,
                                 const struct tensor_request *req,
                                 const struct pending *p,
                                 struct err *err)
{
    char name[NAME_SHOWN_MAX];

    if (rank >= t->n_ranks)
        return err_set(err, -EPROTO, "a request of rank %u in a world of %u", rank,
                       t->n_ranks);
    if (p && pending_has_rank(p, rank))
        return err_set(err, -EPROTO, "rank %u submitted tensor %s twice", rank,
                       name_shown(req->name, name));
    if (pair_is(req->process_set) && !rank_is_in_pair(t, rank, req->process_set))
        return err_set(err, -EPROTO,
                       "rank %u submitted transfer %s, which is not one of its own",
                       rank, name_shown(req->name, name));
    if (t->has_joined[rank])
        return err_set(err, -EPROTO, "rank %u submitted tensor %s after it had joined",
                       rank, name_shown(req->name, name));
    if (request_by_members(req) && !request_set_has(req, rank))
        return err_set(err, -EPROTO, "rank %u adds a process set without itself", rank);
    if (p && p->set && !set_view_has(&p->set->view, rank))
        return err_set(err, -EPROTO,
                       "rank %u submitted tensor %s in process set %u, which it is not "
                       "in",
                       rank, name_shown(req->name, name), set_number(req->process_set));
    if (!p && t->waiting.n >= NEGOTIATE_MAX_PENDING)
        return err_set(err, -E2BIG, "more than %u tensors are pending",
                       NEGOTIATE_MAX_PENDING);
    return 0;
}

int pendings_add(struct pendings *t,
                 uint32_t rank,
                 const struct tensor_request *req,
                 bool is_hit,
                 uint64_t now_ns,
                 struct err *err)
{
    struct pending *p = (struct pending *)(void *)nametab_find(
        &t->names, req->process_set, req->name); /* node is the first member */
    const struct tensor_request *q = req;
    int rc = pendings_check_sender(t, rank, req, p, err);

    if (rc < 0)
        return rc;
    t->now_ns = t->submitted_ns[rank] = now_ns;
    if (req->coll == COLL_JOIN)
        return pending_report_no_memory(err, pendings_join(t, rank, req));
    if (!p) {
        rc = pending_new(t, rank, req, now_ns, &p);
        if (rc < 0)
            return pending_report_no_memory(err, rc);
        if (!p->set)
            return pending_report_no_memory(err, pendings_add_orphan(t, p));
        rc = pendings_check_sender(t, rank, req, p, err);
        if (rc < 0)
            return rc;
        q = &p->first;
    }
    rc = pending_check(p, rank, q, is_hit);
    if (rc < 0)
        return pending_report_no_memory(err, rc);
    if (p->dim0 && req->ndim > 0)
        p->dim0[rank] = (uint64_t)req->shape[0];
    p->seen[rank / 8] |= (uint8_t)(1u << (rank % 8));
    p->n_seen++;
    p->n_hits += is_hit;
    probes_match(t, p);
    return pending_report_no_memory(err, pending_complete_if_whole(t, p));
}

/* --- answering --- */

void pendings_drop_ready(struct pendings *t)
{
    struct pending *p = t->ready.head;

    list_remove(&t->ready, p);
    if (p->set)
        p->set->n_pending--;
    pending_free(p);
}

bool pendings_all_joined(const struct pendings *t)
{
    return t->n_joined == t->n_ranks;
}

void pendings_rejoin(struct pendings *t)
{
    memset(t->has_joined, 0, t->n_ranks * sizeof(*t->has_joined));
    t->n_joined = 0;
    for (struct rank_set *s = t->sets; s; s = s->next)
        s->n_joined = 0;
}
