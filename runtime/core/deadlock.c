/* SPDX-License-Identifier: Apache-2.0 */
/* Finds ranks that wait only for each other, in rank 0's table of pending tensors.
 *
 *   tensor "g" (ALLREDUCE)   submitted by 0      missing on 1, 2
 *   tensor "b" (BARRIER)     submitted by 1, 2   missing on 0        0, 1, 2 wait
 *
 * The result is the largest set of ranks such that each of them has submitted a pending
 * tensor, and each of its pending tensors is missing on a rank of the set. While no rank
 * of the set submits anything, none of their tensors can become ready. A rank outside
 * may still submit its part of a tensor: it has nothing pending (it computes, reads
 * data, saves a checkpoint), or it waits for such a rank.
 *
 * The table does not show whether a rank waits or computes beside its tensors. That is
 * why the time of the last change is part of the result (since_ns), and stall.c ends
 * only a deadlock that has not changed for long. It never ends one with a transfer: ranks
 * post receives long before they need them.
 *
 * Tensors that wait for the rest of their group are skipped: the rest is in the table,
 * too. A rank that has joined is missing nowhere, so nothing waits for it. Called by
 * stall.c. */
#include "runtime/core/deadlock.h"

#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/core/nametab.h"

/* Tensors times ranks that are looked at: about a tenth of a second. A chain of thousands
 * of ranks needs more, because each pass removes few of them. */
#define SEARCH_MAX 16000000u

struct search {
    bool *is_in; /* [n_ranks of the world] */
    bool has_changed, has_transfer;
    uint64_t n_looked;
    struct deadlock_wait *ret; /* of search_find_wait; ret->rank is given */
};

static bool search_add_submitters(void *arg, const struct negotiate_view *v)
{
    struct search *s = arg;

    for (uint32_t r = 0; r < v->n_ranks && v->n_missing > 0; r++)
        if (negotiate_is_submitted(v, r))
            s->is_in[r] = true;
    return true;
}

/* A probe waits for one of all other ranks, so it is stuck when all of them are. */
static bool search_may_send(const struct search *s, const struct negotiate_view *v)
{
    bool may = false;

    for (uint32_t r = 0; r < v->n_ranks && !may; r++)
        may = !s->is_in[r];
    return may;
}

/* The first rank of the set that it waits for; v->n_ranks: it may become ready. */
static uint32_t search_first_missing(const struct search *s,
                                     const struct negotiate_view *v)
{
    uint32_t r = 0;

    if (v->coll == COLL_PROBE && search_may_send(s, v))
        return v->n_ranks;
    if (v->coll == COLL_PROBE)
        return negotiate_is_submitted(v, 0) ? 1 : 0;
    while (r < v->n_ranks && !(s->is_in[r] && negotiate_is_missing(v, r)))
        r++;
    return r;
}

/* Removes the ranks of a tensor that waits only for ranks outside the set. */
static bool search_remove_others(void *arg, const struct negotiate_view *v)
{
    struct search *s = arg;

    s->n_looked += v->n_ranks;
    if (s->n_looked > SEARCH_MAX)
        return false;
    if (v->n_missing == 0 || search_first_missing(s, v) < v->n_ranks)
        return true;
    for (uint32_t r = 0; r < v->n_ranks; r++)
        if (s->is_in[r] && negotiate_is_submitted(v, r)) {
            s->is_in[r] = false;
            s->has_changed = true;
        }
    return true;
}

static bool tensor_is_transfer(const struct negotiate_view *v)
{
    return v->coll == COLL_SENDRECV || v->coll == COLL_PROBE;
}

static bool search_find_transfer(void *arg, const struct negotiate_view *v)
{
    struct search *s = arg;

    if (v->n_missing > 0 && tensor_is_transfer(v))
        for (uint32_t r = 0; r < v->n_ranks && !s->has_transfer; r++)
            s->has_transfer = s->is_in[r] && negotiate_is_submitted(v, r);
    return !s->has_transfer;
}

/* The oldest tensor of s->ret->rank, and a rank of the set that it waits for. */
static bool search_find_wait(void *arg, const struct negotiate_view *v)
{
    struct search *s = arg;

    if (v->n_missing == 0 || !negotiate_is_submitted(v, s->ret->rank))
        return true;
    s->ret->tensor = *v;
    s->ret->for_rank = search_first_missing(s, v);
    return false;
}

static void
search_describe(struct search *s, const struct negotiate *n, struct deadlock *ret)
{
    const uint32_t n_ranks = negotiate_n_ranks(n);

    for (uint32_t r = n_ranks; r-- > 0;)
        if (s->is_in[r]) {
            ret->n_ranks++;
            ret->of[0].rank = r;
        }
    if (ret->n_ranks == 0)
        return;
    ret->since_ns = negotiate_active_ns(n, s->is_in);
    negotiate_walk(n, search_find_transfer, s);
    ret->has_transfer = s->has_transfer;
    s->ret = &ret->of[0];
    negotiate_walk(n, search_find_wait, s);
    ret->of[1].rank = ret->of[0].for_rank;
    s->ret = &ret->of[1];
    negotiate_walk(n, search_find_wait, s);
}

int deadlock_find(const struct negotiate *n, struct deadlock *ret)
{
    struct search s = {.is_in = mem_calloc(negotiate_n_ranks(n), sizeof(bool))};

    if (!s.is_in)
        return -ENOMEM;
    *ret = (struct deadlock){0};
    negotiate_walk(n, search_add_submitters, &s);
    do {
        s.has_changed = false;
        negotiate_walk(n, search_remove_others, &s);
    } while (s.has_changed && s.n_looked <= SEARCH_MAX);
    if (s.n_looked <= SEARCH_MAX)
        search_describe(&s, n, ret);
    mem_free(s.is_in);
    return 0;
}

static void deadlock_put_wait(const struct deadlock_wait *w, struct strbuf *out)
{
    char name[NAME_SHOWN_MAX];

    strbuf_printf(out, "rank %u waits for rank %u in tensor %s (%s)", w->rank,
                  w->for_rank, name_shown(w->tensor.name, name),
                  collective_name(w->tensor.coll));
}

void deadlock_put(const struct deadlock *d, struct strbuf *out)
{
    bool is_transfer =
        tensor_is_transfer(&d->of[0].tensor) && tensor_is_transfer(&d->of[1].tensor);

    strbuf_printf(out, "%u ranks wait only for each other: ", d->n_ranks);
    deadlock_put_wait(&d->of[0], out);
    strbuf_puts(out, ", ");
    deadlock_put_wait(&d->of[1], out);
    strbuf_puts(
        out,
        is_transfer
            ? "; a send waits for its receive: receive first on one of them, use "
              "isend() and irecv(), or check the tags"
            : "; usual causes are different numbers of steps or a branch that only "
              "some ranks take: give all ranks equal steps, or call hvd.join() "
              "after the last one");
}
