/* SPDX-License-Identifier: Apache-2.0 */
/* Adding and removing process sets: one blocking operation of all ranks of the world.
 *
 * Both changes use one reserved tensor name, so that a rank that adds while another
 * removes gets the mismatch as an error instead of waiting. Negotiation compares the
 * ranks; the seat makes or removes the set (carry.c) at the same answer on every rank.
 * A set may also be added by its members alone: then rank 0 waits for those only, and
 * the seats of the other ranks take part without an operation of their own
 * (MEMBER_SET). Called by api_sets.c, and by runtime.c for the sets of hvd_config. */
#include "runtime/world/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/core/mismatch.h"

static const char NAME[] = OP_RESERVED_PREFIX "process_set";

static int rank_compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* The ranks, ascending. */
static int
ranks_sort(struct world *w, const int *ranks, int n, uint32_t **ret, struct err *err)
{
    AUTOFREE uint32_t *v = NULL;
    uint32_t size = w->contract.place.size;

    if (n < 1 || (uint32_t)n > size || !ranks)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "process set: %d ranks, must be 1 to %u", n, size);
    v = mem_calloc((size_t)n, sizeof(*v));
    if (!v)
        return err_set(err, HVD_NO_MEMORY, "out of memory for a process set");
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0)
            return err_set(err, HVD_INVALID_ARGUMENT,
                           "process set: rank %d is not in the world of %u ranks",
                           ranks[i], size);
        v[i] = (uint32_t)ranks[i];
    }
    qsort(v, (size_t)n, sizeof(*v), rank_compare);
    *ret = TAKE(v);
    return 0;
}

static struct op *op_new_set_change(const struct world *w, enum collective coll)
{
    struct op *op = op_new();

    if (!op)
        return NULL;
    op->req.coll = coll;
    op->req.op = OP_SUM;
    op->req.prescale = op->req.postscale = 1.0;
    memcpy(op->req.name, NAME, sizeof(NAME));
    op->n_members = w->contract.place.size;
    op->me = w->contract.place.rank;
    op->root = OP_NO_MEMBER;
    return op;
}

static unsigned long long ranks_hash(const uint32_t *ranks, uint32_t n)
{
    uint64_t h = OP_HASH_INIT;

    for (uint32_t i = 0; i < n; i++)
        h = op_hash_u32(h, ranks[i]);
    return h;
}

/* Takes ownership of the ranks. A set added by its members has a name of its own,
 * because several may be added at the same time; equal names of different ranks are
 * reported as a mismatch. */
static struct op *op_new_set_add(const struct world *w,
                                 uint32_t *ranks,
                                 uint32_t n,
                                 enum set_callers callers)
{
    struct op *op = op_new_set_change(w, COLL_SET_ADD);

    if (!op) {
        mem_free(ranks);
        return NULL;
    }
    op->ranks = ranks;
    op->req.n_set = n;
    op->req.set = (const uint8_t *)ranks; /* little endian, as all our hosts are */
    op->req.root = callers;
    if (callers == SET_BY_MEMBERS)
        (void)snprintf(op->req.name, sizeof(op->req.name), "%s.%u.%u.%016llx", NAME, n,
                       ranks[0], ranks_hash(ranks, n));
    return op;
}

/* Changes by the whole world run one after the other; those by members are
 * distinguished by their names. */
static bool world_claim_change(struct world *w, const struct op *op, struct err *err)
{
    if (request_by_members(&op->req))
        return true;
    /* relaxed: the flag only keeps a second change out, it publishes nothing */
    if (!atomic_exchange_explicit(&w->is_changing_sets, true, memory_order_relaxed))
        return true;
    (void)err_set(err, HVD_INVALID_ARGUMENT,
                  "another thread of this rank is adding or removing a process set");
    return false;
}

/* Submits and waits. */
static int
op_run_and_wait(struct world *w, struct op *op, uint64_t deadline_ns, struct err *err)
{
    int rc;

    if (op_in_callback())
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "process sets cannot change inside a callback");
    if (!world_claim_change(w, op, err))
        return HVD_INVALID_ARGUMENT;
    coordinator_own(w->co, op);
    rc = coordinator_submit(w->co, &op, 1, err);
    if (rc == 0) {
        rc = coordinator_wait(op, OP_ENDED, deadline_ns);
        if (rc == HVD_IN_PROGRESS)
            rc = err_set(err, HVD_TIMEOUT,
                         "process set: not all ranks joined it in time");
        else if (rc < 0)
            rc = err_set(err, rc, "%s", op->error);
    }
    if (!request_by_members(&op->req))
        atomic_store_explicit(&w->is_changing_sets, false, memory_order_relaxed);
    return rc;
}

/* May these ranks become a set, by the rules of sets_add? For a set added by its
 * members: does it exist? 1: yes, *ret_id. */
static int set_check_or_find(struct world *w,
                             const uint32_t *ranks,
                             uint32_t n,
                             enum set_callers callers,
                             int *ret_id,
                             struct err *err)
{
    int rc;

    if (callers == SET_BY_MEMBERS
        && !set_view_has(&(struct set_view){n, ranks}, w->contract.place.rank))
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "process set: rank %u is not one of its %u ranks, and only "
                       "those can call this",
                       w->contract.place.rank, n);
    if (callers == SET_BY_MEMBERS && sets_find_ranks(&w->sets, ranks, n, ret_id))
        return 1;
    rc = sets_check_new(&w->sets, ranks, n, callers, err);
    if (rc < 0)
        return err_recode(err, rc == -E2BIG ? HVD_NO_MEMORY : HVD_INVALID_ARGUMENT);
    return 0;
}

int world_set_add(struct world *w,
                  const int *ranks,
                  int n,
                  enum set_callers callers,
                  uint64_t deadline_ns,
                  int *ret_id,
                  struct err *err)
{
    AUTOFREE uint32_t *v = NULL;
    struct op *op;
    int rc = ranks_sort(w, ranks, n, &v, err);

    if (rc == 0)
        rc = set_check_or_find(w, v, (uint32_t)n, callers, ret_id, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    op = op_new_set_add(w, TAKE(v), (uint32_t)n, callers);
    if (!op)
        return err_set(err, HVD_NO_MEMORY, "out of memory for a process set");
    rc = op_run_and_wait(w, op, deadline_ns, err);
    if (rc == 0)
        *ret_id = (int)op->set_id;
    op_unref(op);
    return rc;
}

int world_set_remove(struct world *w, int id, struct err *err)
{
    uint32_t n, me;
    struct op *op;
    int rc;

    if (id == 0)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "process set 0 is the world and cannot be removed");
    if (id < 0 || sets_place(&w->sets, (uint32_t)id, &n, &me) < 0)
        return sets_report_unknown(&w->sets, id, err);
    op = op_new_set_change(w, COLL_SET_REMOVE);
    if (!op)
        return err_set(err, HVD_NO_MEMORY, "out of memory for a process set");
    op->req.root = (uint32_t)id;
    rc = op_run_and_wait(w, op, UINT64_MAX, err);
    op_unref(op);
    return rc;
}

/* An elastic world may be too small for a set, or as large as the set, which then is set
 * 0. All ranks leave the same ones out. */
static bool set_is_left_out(const struct world *w, const int *ranks, int n)
{
    const uint32_t size = w->contract.place.size;

    if (!w->membership)
        return false;
    for (int i = 0; i < n; i++)
        if (ranks[i] >= 0 && (uint32_t)ranks[i] >= size) {
            log_warn("a process set is left out until the world is large enough",
                     "rank=%d size=%u", ranks[i], size);
            return true;
        }
    return (uint32_t)n == size;
}

int world_add_static_sets(struct world *w, const struct static_sets *s, struct err *err)
{
    const int *ranks = s->ranks;

    for (int i = 0; i < s->n; i++) {
        int id, rc = 0;

        if (!set_is_left_out(w, ranks, s->sizes[i]))
            rc = world_set_add(w, ranks, s->sizes[i], SET_BY_ALL, w->start_deadline_ns,
                               &id, err);

        if (rc < 0) {
            (void)err_prefix(err, "hvd_config, set %d", i + 1);
            return rc;
        }
        ranks += s->sizes[i];
    }
    return 0;
}
