/* SPDX-License-Identifier: Apache-2.0 */
/* The watcher's part of communicators. While the device runs it queries each
 * communicator that is in use for asynchronous errors, which NCCL allows concurrently
 * with calls, under the device's lock so that none is destroyed meanwhile. When the
 * launcher is out, or was left behind inside a blocking call, the watcher owns all of
 * them and aborts each on a thread of its own: ncclCommAbort was seen to block in some
 * versions, and communicators with a shared abort flag wait for each other. What the
 * launcher left in progress is aborted on the launcher's thread, parents before
 * children: up to 2.18 NCCL finds operations in progress only in the thread that
 * started them, and joins them there; another thread would free a communicator that is
 * still in use. An abort that takes longer than a second is left to its thread;
 * quiesce then reports that the device cannot be used again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/futex.h"
#include "runtime/backend/nccl/graph.h"
#include "runtime/backend/nccl/park.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#define ABORT_NS NS_PER_S

/* --- looking --- */

static int comm_check_async(struct comm *c, struct err *err)
{
    struct device *g = c->g;
    const int state = atomic_load_explicit(&c->state, memory_order_acquire);

    /* The launcher itself queries a communicator that it starts, ends or enqueues on,
     * unless it is in a call that blocks. From 2.26 on the query also completes
     * operations. */
    if (state != COMM_READY
        && (state != COMM_ENQUEUING
            || (!c->blocks && g->nccl->version >= NCCL_JOB_ASKED)))
        return 0;
    for (uint32_t i = 0; i < c->n_nc; i++) {
        int result = NCCL_OK, asked = g->nccl->async_error(c->nc[i], &result);

        if (asked != NCCL_OK)
            result = asked;
        if (result == NCCL_OK || result == NCCL_IN_PROGRESS)
            continue;
        return comm_name_async(g, nccl_fail(g->nccl, c->nc[i], "NCCL", result, err),
                               err);
    }
    return 0;
}

int comms_look(struct device *g, struct err *err)
{
    int rc = 0;

    (void)pthread_mutex_lock(&g->lock);
    for (struct comm *c = g->comms; c && !rc; c = c->next)
        rc = comm_check_async(c, err);
    (void)pthread_mutex_unlock(&g->lock);
    return rc;
}

/* --- aborting --- */

struct
    comm_aborts { /* of one device; counted, because a thread may outlive the device */
    const struct nccl_api *nccl;
    _Atomic uint32_t refs;
    _Atomic uint32_t left; /* a futex word */
    nccl_comm **own;       /* [n_own]: the launcher's; a split may write there late */
    size_t n_own, n;
    struct abort_one {
        struct comm_aborts *all;
        nccl_comm nc;
        bool is_kept; /* revoke it; false: it was aborted */
    } v[];
};

static void aborts_unref(struct comm_aborts *a)
{
    if (atomic_fetch_sub(&a->refs, 1) == 1)
        mem_free(a);
}

/* Its kernels leave; then it can be shrunk. */
static bool revoke_comm(const struct nccl_api *nccl, nccl_comm nc)
{
    const uint64_t deadline_ns = clock_now_ns() + ABORT_NS / 2;
    int rc = nccl->revoke(nc, 0);

    while (rc == NCCL_IN_PROGRESS && futex_left(deadline_ns) > 0) {
        (void)nanosleep(&(struct timespec){0, 100000}, NULL);
        if (nccl->async_error(nc, &rc) != NCCL_OK)
            return false;
    }
    return rc == NCCL_OK;
}

static void aborts_count_ended(struct comm_aborts *a)
{
    (void)atomic_fetch_sub(&a->left, 1);
    futex_wake(&a->left);
    aborts_unref(a);
}

static void *abort_thread_main(void *arg)
{
    struct abort_one *one = arg;
    struct comm_aborts *a = one->all;

    one->is_kept = one->is_kept && revoke_comm(a->nccl, one->nc);
    if (!one->is_kept)
        (void)a->nccl->abort(one->nc); /* nothing more can be done about a failure */
    aborts_count_ended(a);
    return NULL;
}

/* On the launcher's thread where NCCL requires it. An abort of a parent waits for the
 * thread that writes its child's handle. */
static void *abort_own(void *arg)
{
    struct comm_aborts *a = arg;

    for (size_t i = 0; i < a->n_own; i++) {
        nccl_comm nc = __atomic_exchange_n(a->own[i], NULL, __ATOMIC_ACQ_REL);

        if (nc)
            (void)a->nccl->abort(nc);
    }
    aborts_count_ended(a);
    return NULL;
}

static void aborts_add(struct comm_aborts *a, nccl_comm nc, bool is_kept)
{
    struct abort_one *one = &a->v[a->n++];

    *one = (struct abort_one){a, nc, is_kept};
}

/* Was the launcher in the middle of an operation on it? */
static bool is_unfinished(int state)
{
    return state == COMM_STARTING || state == COMM_ENQUEUING || state == COMM_SPLITTING
           || state == COMM_CLOSING;
}

/* Adds to the communicators that the launcher's thread aborts; the parent of a split is
 * first.
 */
static void aborts_add_own(struct comm *c, int state, struct comm_aborts *a)
{
    nccl_comm *v[GPU_MAX_STREAMS + 1];
    size_t n = 0;

    if (c->parked && c->parked->nc) /* parent of the shrink that starts c */
        v[n++] = &c->parked->nc;
    for (uint32_t i = 0; i < c->n_nc; i++)
        v[n++] = &c->nc[i];
    const size_t at = state == COMM_SPLITTING ? 0 : a->n_own;
    memmove(a->own + at + n, a->own + at, (a->n_own - at) * sizeof(a->own[0]));
    for (size_t i = 0; i < n; i++)
        a->own[at + i] = v[i];
    a->n_own += n;
}

/* It belongs to the watcher from here on: its handles go into a->v or a->own. */
static void
comm_take_over(struct comm *c, struct comm_aborts *a, bool is_out, bool may_keep)
{
    int state = atomic_load_explicit(&c->state, memory_order_acquire);
    int to;

    do {
        to = may_keep ? comm_next((enum comm_state)state, COMM_EV_REVOKE) : -1;
        if (to < 0)
            to = comm_next((enum comm_state)state, COMM_EV_STOP);
        if (to < 0)
            return; /* dead */
    } while (!atomic_compare_exchange_weak_explicit(
        &c->state, &state, to, memory_order_acq_rel, memory_order_acquire));
    if (to == COMM_ABORTING && is_out && is_unfinished(state)) {
        aborts_add_own(c, state, a);
        return;
    }
    if (to == COMM_ABORTING && c->parked && c->parked->nc)
        aborts_add(a, TAKE(c->parked->nc), false);
    for (uint32_t i = 0; i < c->n_nc && to != COMM_DEAD; i++) {
        /* an NCCL thread writes a split's child */
        nccl_comm nc = __atomic_load_n(&c->nc[i], __ATOMIC_ACQUIRE);

        if (nc)
            aborts_add(a, nc, to == COMM_REVOKING);
    }
}

static struct comm_aborts *aborts_take_all(struct device *g, bool is_quiet)
{
    /* A launcher that naps outside NCCL makes no more calls, and wakes up soon. */
    const bool is_out = is_quiet || g->launcher.barred_at == LAUNCHER_OUTSIDE;
    size_t n = 0;

    (void)pthread_mutex_lock(&g->lock);
    for (struct comm *c = g->comms; c; c = c->next)
        n += GPU_MAX_STREAMS + 1;
    struct comm_aborts *a =
        mem_zalloc(sizeof(*a) + n * (sizeof(a->v[0]) + sizeof(a->own[0])));
    if (a)
        a->own = (nccl_comm **)(void *)(a->v + n);
    for (struct comm *c = g->comms; c && a; c = c->next)
        comm_take_over(c, a, is_out, is_quiet && park_wants(g, c));
    (void)pthread_mutex_unlock(&g->lock);
    if (a)
        a->nccl = g->nccl;
    return a;
}

static void comm_change_state(struct comm *c, enum comm_state from, enum comm_event e)
{
    int state = (int)from;

    (void)atomic_compare_exchange_strong_explicit(&c->state, &state, comm_next(from, e),
                                                  memory_order_acq_rel,
                                                  memory_order_acquire);
}

static void comms_mark_ended(struct device *g, const struct comm_aborts *a)
{
    const bool is_kept = a->n == 1 && a->n_own == 0 && a->v[0].is_kept;

    (void)pthread_mutex_lock(&g->lock);
    for (struct comm *c = g->comms; c; c = c->next) {
        comm_change_state(c, COMM_REVOKING, is_kept ? COMM_EV_OK : COMM_EV_STOP);
        comm_change_state(c, COMM_ABORTING, COMM_EV_ENDED);
    }
    (void)pthread_mutex_unlock(&g->lock);
}

/* NCCL's abort waits for them. The launcher is out. */
static void free_graphs(struct device *g)
{
    struct graphs *v;

    do {
        v = NULL;
        (void)pthread_mutex_lock(&g->lock);
        for (struct comm *c = g->comms; c && !v; c = c->next) {
            v = c->graphs;
            c->graphs = NULL;
        }
        (void)pthread_mutex_unlock(&g->lock);
        graphs_free(v, GPU_MAX_STREAMS);
    } while (v);
}

static void thread_run_detached(void *(*fn)(void *arg), void *arg)
{
    pthread_t t;

    if (thread_start(&t, fn, arg) == 0)
        (void)pthread_detach(t);
    else
        (void)fn(arg);
}

void comms_abort(struct device *g, bool is_quiet)
{
    const uint64_t deadline_ns = clock_now_ns() + ABORT_NS;
    struct comm_aborts *a = aborts_take_all(g, is_quiet);
    uint32_t left;

    /* otherwise the launcher may be using them */
    if (is_quiet)
        free_graphs(g);
    if (!a)
        return; /* no memory for a list: the process reports its cause all the same */
    const uint32_t n = (uint32_t)a->n + (a->n_own > 0);
    atomic_store(&a->refs, n + 1);
    atomic_store(&a->left, n);
    if (a->n_own > 0 && g->nccl->version < NCCL_JOB_FREE)
        launcher_lend(&g->launcher, abort_own, a);
    else if (a->n_own > 0)
        thread_run_detached(abort_own, a);
    for (size_t i = 0; i < a->n; i++)
        thread_run_detached(abort_thread_main, &a->v[i]);
    while ((left = atomic_load(&a->left)) > 0 && futex_left(deadline_ns) > 0)
        futex_wait(&a->left, left, futex_left(deadline_ns));
    if (left == 0)
        comms_mark_ended(g, a);
    aborts_unref(a);
}
