/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's side of communicators. With NCCL 2.14 and later they are
 * non-blocking: a call that is not finished returns ncclInProgress, and the launcher
 * polls for its end until the device is stopped, so no failure finds the launcher
 * inside NCCL. Older communicators block here and may have to be left behind
 * (abort.c). The launcher publishes which of these it is in (launcher_move_to): it
 * naps outside, and it enters and leaves every call that may never return through
 * launcher_enter_call(). If the watcher has barred the launcher in the meantime, that
 * call fails.
 *
 * The state changes only by compare and exchange: if the watcher has taken a
 * communicator from a launcher that came back too late, the launcher detects it and
 * does not use it again. */
#include "runtime/backend/nccl/park.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/graph.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define SPIN_NS         (100 * 1000ull)
#define NAP_NS          (50 * 1000ull)
#define LONG_NAP_NS     (1000 * 1000ull)
#define LONG_NS         (20 * NS_PER_MS) /* naps are long after this */
#define CLOSE_NS        (2 * NS_PER_S)
#define INIT_LEAST_NS   (1 * NS_PER_S)
#define INIT_DEFAULT_NS (60 * NS_PER_S)

/* --- objects --- */

int comm_new(struct device *g,
             const struct backend_env *env,
             const uint32_t *ranks,
             struct comm_terms *terms,
             struct comm **ret,
             struct err *err)
{
    struct comm *c = mem_zalloc(sizeof(*c));
    uint32_t *copy = mem_calloc(env->size, sizeof(*copy));

    if (!c || !copy) {
        mem_free(c);
        mem_free(copy);
        return err_set(err, -ENOMEM, "out of memory for a communicator of %u ranks",
                       env->size);
    }
    memcpy(copy, ranks, env->size * sizeof(*copy));
    c->base.ops = &comm_backend_ops;
    c->g = g;
    c->me = env->rank;
    c->n = env->size;
    c->ranks = copy;
    c->env = *env;
    c->terms = *terms;
    terms->excluded = NULL;
    c->n_nc = c->n > 1;
    if (c->n > 1 && c->n == g->config.size) /* smaller sets stay on the first stream */
        c->n_nc = terms->n_streams < g->n_streams ? terms->n_streams : g->n_streams;
    (void)pthread_mutex_lock(&g->lock);
    c->next = g->comms;
    g->comms = c;
    (void)pthread_mutex_unlock(&g->lock);
    atomic_store(&g->looks, true);
    *ret = c;
    return 0;
}

/* NCCL may still write a handle of one that is being aborted. */
static void comm_release(struct comm *c)
{
    if (atomic_load(&c->state) == COMM_ABORTING)
        return; /* it is leaked */
    for (size_t i = 0; i < COMM_TICKETS; i++) {
        event_unref(c->ring[i].done);
        check_free(c->g, c->ring[i].check);
    }
    check_free(c->g, c->check);
    check_free(c->g, c->lost);
    park_free(c->parked); /* nothing is left of it if it was used */
    comm_regions_free(c);
    comm_terms_release(&c->terms);
    mem_free(c->ranks);
    mem_free(c);
}

void comm_free(struct comm *c)
{
    struct device *g = c->g;

    (void)pthread_mutex_lock(&g->lock);
    for (struct comm **at = &g->comms; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    bool is_empty = !g->comms;
    (void)pthread_mutex_unlock(&g->lock);
    if (is_empty)
        atomic_store(&g->looks, false);
    comm_release(c);
}

void comms_free(struct device *g, uint64_t deadline_ns)
{
    gpu_abort(g);
    if (gpu_join(g, deadline_ns) < 0)
        return;
    while (g->comms)
        comm_free(g->comms);
}

/* NCCL reports an "unhandled cuda error" without naming it; the driver repeats errors
 * that lose the context. */
static void driver_explain_error(const struct device *g, struct err *err)
{
    struct gpu_scope scope;

    if (!err || !strstr(err->text, "cuda error") || gpu_enter(g, &scope, NULL) < 0)
        return;
    int rc = g->cu->stream_query(g->streams[0]);
    gpu_leave(&scope);
    if (rc != CU_OK && rc != CU_NOT_READY && rc != CU_CAPTURE_UNSUPPORTED)
        (void)cuda_fail(g->cu, "NCCL", rc, err); /* the code stays NCCL's */
}

int comm_name_async(const struct device *g, int rc, struct err *err)
{
    char host[300];

    driver_explain_error(g, err);

    (void)err_prefix(err, "NCCL asynchronous error on rank %u%s, GPU %d (%s)",
                     g->config.rank, gpu_host_text(g, g->config.rank, host), g->ordinal,
                     g->name);
    return rc;
}

/* --- states --- */

static int comm_step(struct comm *c, enum comm_event e, struct err *err)
{
    int from = atomic_load_explicit(&c->state, memory_order_acquire);
    int to = comm_next((enum comm_state)from, e);

    if (atomic_load_explicit(&c->g->life, memory_order_acquire) >= GPU_QUIET)
        return err_set(err, -ECONNABORTED, "the device was given up");
    assert(to >= 0);
    if (!atomic_compare_exchange_strong_explicit(
            &c->state, &from, to, memory_order_acq_rel, memory_order_acquire))
        return err_set(err, -ECONNABORTED, "the communicator was given up");
    return 0;
}

/* Out of COMM_READY: under the lock, so that the watcher does not check the
 * communicator meanwhile (it could free an operation in progress twice). */
static int comm_step_out(struct comm *c, enum comm_event e, struct err *err)
{
    (void)pthread_mutex_lock(&c->g->lock);
    int rc = comm_step(c, e, err);
    (void)pthread_mutex_unlock(&c->g->lock);
    return rc;
}

/* Outside meanwhile, because a busy machine may wake us late. false: stopped. */
static bool launcher_nap(struct device *g, uint64_t began_ns)
{
    const uint64_t ns = clock_now_ns() - began_ns;
    const struct timespec t = clock_timespec(ns < LONG_NS ? NAP_NS : LONG_NAP_NS);

    (void)launcher_move_to(&g->launcher,
                           LAUNCHER_OUTSIDE); /* or the second call fails */
    if (ns < SPIN_NS)
        (void)sched_yield();
    else
        (void)nanosleep(&t, NULL); /* a signal may cut it short: then we poll earlier */
    return launcher_move_to(&g->launcher, LAUNCHER_INSIDE) && gpu_runs(g);
}

/* Before and after an NCCL call that may return only when finished (waits): the
 * watcher may abort its communicator, or has done so; then this fails and the
 * communicator is not used any more. */
static int launcher_enter_call(struct comm *c, bool waits, struct err *err)
{
    return launcher_move_to(&c->g->launcher, waits ? LAUNCHER_WAITING : LAUNCHER_INSIDE)
               ? 0
               : err_set(err, -ECONNABORTED, "the communicator was given up");
}

/* An operation in progress has finished. Its job must be completed before this thread
 * starts another one, on any communicator: NCCL 2.19 to 2.25 remembers the
 * communicators of the last one in the thread, and follows a wild pointer when another
 * one is used next. */
static int nccl_take_up_job(const struct nccl_api *nccl, nccl_comm nc)
{
    int n, result = NCCL_OK;

    if (nccl->version < NCCL_JOB_LINKED) {
        result = nccl->group_start(); /* completes it */
        if (result == NCCL_OK)
            result = nccl->group_end();
    } else if (nccl->version < NCCL_JOB_ASKED) {
        result = nccl->count(nc, &n); /* as every call that requires a ready
                                         communicator */
    }
    return result;
}

/* Waits for the end of what `call` started on nc with result rc. -ETIMEDOUT;
 * -ECONNABORTED: stopped. */
static int comm_settle(struct comm *c,
                       nccl_comm nc,
                       const char *call,
                       int rc,
                       uint64_t deadline_ns,
                       struct err *err)
{
    const struct nccl_api *nccl = c->g->nccl;
    const uint64_t began_ns = clock_now_ns();
    const bool was_begun = rc == NCCL_IN_PROGRESS;

    while (rc == NCCL_IN_PROGRESS) {
        if (clock_now_ns() >= deadline_ns)
            return err_set(err, -ETIMEDOUT, "%s: timed out", call);
        if (!launcher_nap(c->g, began_ns))
            return err_set(err, -ECONNABORTED, "%s: stopped", call);
        int asked = nccl->async_error(nc, &rc);
        if (asked != NCCL_OK)
            rc = asked;
    }
    if (was_begun && rc == NCCL_OK)
        rc = nccl_take_up_job(nccl, nc);
    return rc == NCCL_OK ? 0 : nccl_fail(nccl, nc, call, rc, err);
}

/* ncclCommSplit and ncclCommShrink return ncclSuccess even if they have only started:
 * the parent's state shows the end, and the child's handle is not set before. */
static int creation_result(int result)
{
    return result == NCCL_OK ? NCCL_IN_PROGRESS : result;
}

/* --- start --- */

static uint64_t init_timeout(const struct device *g)
{
    const uint64_t ns = g->config.init_timeout_ns;

    return ns == 0 ? INIT_DEFAULT_NS : ns < INIT_LEAST_NS ? INIT_LEAST_NS : ns;
}

/* Explains a failed start. */
static int explain_start(struct comm *c, nccl_comm nc, int rc, struct err *err)
{
    const struct nccl_api *nccl = c->g->nccl;
    const char *interface = getenv("NCCL_SOCKET_IFNAME"), *last = "";
    struct err why = ERR_INIT;

    if (rc == -ETIMEDOUT) {
        if (nccl->last_error)
            last = nccl->last_error(nc);
        return err_set(err, rc,
                       "NCCL did not connect ranks %u to %u within %llu s "
                       "(NCCL_SOCKET_IFNAME=%s, last error: %s)",
                       c->ranks[0], c->ranks[c->n - 1],
                       (unsigned long long)(init_timeout(c->g) / NS_PER_S),
                       interface ? interface : "", last && *last ? last : "none");
    }
    if (rc == -EIO && nccl_misfit(nccl, c->g->cu->version, &why) == 1)
        (void)err_set(err, -ENOTSUP, "%s", why.text);
    return rc == -ECONNABORTED ? rc : gpu_name_rank(c->g, rc, err);
}

/* ncclCommDestroy waits for ranks of the same host, also for dead ones. */
static int comm_destroy_one(struct comm *c, nccl_comm nc, struct err *err)
{
    const struct nccl_api *nccl = c->g->nccl;
    int rc = launcher_enter_call(c, true, err),
        result = rc ? NCCL_OK : nccl->destroy(nc);

    rc = rc ? rc : launcher_enter_call(c, false, err);
    return rc || result == NCCL_OK || result == NCCL_IN_PROGRESS
               ? rc
               : nccl_fail(nccl, NULL, "ncclCommDestroy", result, err);
}

/* Creates the survivors' communicator from the parked one, which is destroyed. If that
 * fails, the watcher aborts both. */
static int comm_shrink(struct comm *c, uint64_t deadline_ns, struct err *err)
{
    const struct nccl_api *nccl = c->g->nccl;
    nccl_comm from = c->parked->nc;
    struct nccl_config config;

    nccl_config_init(&config, nccl->version, "hvd");
    int rc = nccl->shrink(from, (int *)c->terms.excluded, (int)c->terms.n_excluded,
                          &c->nc[0], &config, NCCL_SHRINK_DEFAULT);
    rc = comm_settle(c, from, "ncclCommShrink", creation_result(rc), deadline_ns, err);
    if (!rc)
        rc = comm_settle(c, c->nc[0], "ncclCommShrink", NCCL_IN_PROGRESS, deadline_ns,
                         err);
    if (rc)
        return explain_start(c, from, rc, err);
    c->parked->nc = NULL;
    return comm_destroy_one(c, from, err);
}

/* Returns when the parent's part is finished. */
static int comm_split_one(struct comm *c,
                          int color,
                          nccl_comm *ret,
                          struct nccl_config *config,
                          uint64_t deadline_ns,
                          struct err *err)
{
    int rc = launcher_enter_call(c, c->blocks, err);
    int result =
        rc ? NCCL_OK : c->g->nccl->split(c->nc[0], color, (int)c->me, ret, config);

    rc = rc ? rc : launcher_enter_call(c, false, err);
    return rc ? rc
              : comm_settle(c, c->nc[0], "ncclCommSplit", creation_result(result),
                            deadline_ns, err);
}

static int start_one(struct comm *c,
                     uint32_t i,
                     const struct comm_start *s,
                     uint64_t deadline_ns,
                     struct err *err)
{
    const struct nccl_api *nccl = c->g->nccl;
    const int n = (int)c->n, me = (int)c->me;
    nccl_comm *nc = &c->nc[i];
    const char *call = "ncclCommInitRank";
    struct nccl_config config;
    int rc;

    if (i == 0 && c->terms.how == COMM_SHRINK)
        return comm_shrink(c, deadline_ns, err);
    rc = launcher_enter_call(c, i == 0 && !nccl->has_nonblocking, err);
    if (rc)
        return rc;
    nccl_config_init(&config, nccl->version, "hvd");
    if (c->n_nc
        > 1) /* communicators that share run one after the other on the device */
        config.split_share = 0;
    if (i > 0) { /* has_split: several streams require a later version anyway */
        call = "ncclCommSplit";
        rc = comm_split_one(c, 0, nc, &config, deadline_ns, err);
        if (rc)
            return rc;
        rc = NCCL_IN_PROGRESS; /* the child's own state */
    } else if (nccl->has_nonblocking) {
        call = "ncclCommInitRankConfig";
        rc = nccl->init_config(nc, n, s->id, me, &config);
        c->blocks = rc == NCCL_OK;
    } else {
        rc = nccl->init(nc, n, s->id, me);
        c->blocks = true;
    }
    if (launcher_enter_call(c, false,
                            err)) /* do not split off an aborted communicator */
        return -ECONNABORTED;
    nccl_comm made = *nc; /* read once: after a stop it is not ours any more */
    rc = comm_settle(c, made, call, rc, deadline_ns, err);
    return rc ? explain_start(c, made, rc, err) : 0;
}

static int run_start(struct comm *c, const struct comm_start *s, struct err *err)
{
    const uint64_t deadline_ns = clock_now_ns() + init_timeout(c->g);
    int rc = comm_step(c, COMM_EV_INIT, err);

    for (uint32_t i = 0; i < c->n_nc && !rc; i++)
        rc = start_one(c, i, s, deadline_ns, err);
    return rc ? rc : comm_step(c, COMM_EV_OK, err);
}

/* --- split --- */

/* NCCL requires that no operation is outstanding: waits for all launched ones. */
static int wait_idle(struct device *g, struct err *err)
{
    for (uint32_t i = 0; i < g->n_streams; i++) {
        const uint64_t began_ns = clock_now_ns();
        struct device_event *e;
        int rc = event_new(g->events, &e, err);

        if (!rc)
            rc = event_record(e, g->streams[i], err);
        else
            return rc;
        while (!rc && (rc = event_is_done(e, err)) == 0) {
            if (!launcher_nap(g, began_ns))
                rc = err_set(err, -ECONNABORTED, "stopped");
        }
        event_unref(e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int run_split(struct comm *c, struct comm *child, struct err *err)
{
    const bool is_more = child && child->n_nc > 0; /* a set of one has none */
    nccl_comm *to = is_more ? &child->nc[0] : &c->none;
    struct nccl_config config;
    int rc = wait_idle(c->g, err);
    const uint64_t deadline_ns = clock_now_ns() + init_timeout(c->g);

    if (!rc)
        rc = comm_step_out(c, COMM_EV_SPLIT, err);
    if (!rc && child)
        rc = comm_step(child, COMM_EV_INIT, err);
    if (rc)
        return rc;
    nccl_comm parent = c->nc[0];
    nccl_config_init(&config, c->g->nccl->version, "hvd");
    rc = comm_split_one(c, is_more ? 0 : NCCL_NOCOLOR, to, &config, deadline_ns, err);
    if (!rc && is_more)
        rc = comm_settle(child, child->nc[0], "ncclCommSplit", NCCL_IN_PROGRESS,
                         deadline_ns, err);
    if (rc)
        return explain_start(c, parent, rc, err);
    if (child)
        child->blocks = c->blocks;
    rc = comm_step(c, COMM_EV_OK, err);
    return rc || !child ? rc : comm_step(child, COMM_EV_OK, err);
}

/* --- end --- */

static void comm_give_up(struct device *g, int rc, const struct err *why)
{
    struct err err = *why;

    (void)gpu_name_rank(g, rc, &err);
    gpu_broken(g, err.text);
}

static int
comm_finalize_one(struct comm *c, nccl_comm nc, uint64_t deadline_ns, struct err *err)
{
    int rc = launcher_enter_call(c, c->blocks, err),
        result = rc ? NCCL_OK : c->g->nccl->finalize(nc);

    rc = rc ? rc : launcher_enter_call(c, false, err);
    return rc ? rc : comm_settle(c, nc, "ncclCommFinalize", result, deadline_ns, err);
}

/* A communicator that cannot be closed in time ends the device. Aborting it alone
 * would end all that share resources with it. And no group can be started while one is
 * in progress (before 2.27), or after a failed destroy (some versions return inside a
 * group of theirs, so later calls are never launched). */
static int run_close(struct comm *c, struct err *err)
{
    /* Its resources are in use until then, and NCCL waits too. The watcher checks it
     * meanwhile: operations in flight may fail. */
    int rc = wait_idle(c->g, err);

    if (!rc)
        rc = comm_step_out(c, COMM_EV_CLOSE, err);
    const uint64_t deadline_ns = clock_now_ns() + CLOSE_NS;
    if (!rc) {
        comm_regions_close(c);
        graphs_free(c->graphs, GPU_MAX_STREAMS);
        c->graphs = NULL;
    }
    for (uint32_t i = 0; i < c->n_nc && !rc && c->g->nccl->finalize; i++)
        rc = comm_finalize_one(c, c->nc[i], deadline_ns, err);
    for (uint32_t i = c->n_nc; i > 0 && !rc; i--) {
        /* first: if destroy waits for long, the watcher must not abort it as well */
        nccl_comm nc = __atomic_exchange_n(&c->nc[i - 1], NULL, __ATOMIC_ACQ_REL);

        rc = comm_destroy_one(c, nc, err);
    }
    if (rc && gpu_runs(c->g)) /* the next group of this thread may be taken for part of
                                 it */
        comm_give_up(c->g, rc, err);
    if (!rc)
        rc = comm_step(c, COMM_EV_ENDED, err);
    if (!rc)
        comm_free(c);
    return rc;
}

int comm_run(struct device *g, struct gpu_job *job, struct err *err)
{
    const struct comm_child *split = job->extra;

    (void)g;
    switch (job->kind) {
    case JOB_START:
        return run_start(job->comm, job->extra, err);
    case JOB_SPLIT:
        return run_split(job->comm, split->child, err);
    case JOB_CLOSE:
        return run_close(job->comm, err);
    case JOB_BATCH:
    case JOB_CODEC:
    case JOB_CHECK:
    case JOB_REGISTER:
    case JOB_KIND_COUNT:
        break;
    }
    return err_set(err, -EINVAL, "a job of kind %d is not a communicator's",
                   (int)job->kind);
}

/* --- groups --- */

/* Names a failed call. After an asynchronous error all calls return that error, and
 * the launcher's next call may see it before the watcher does. NCCL also keeps wrong
 * arguments as an error of the communicator. */
static int name_call(const struct comm *c, nccl_comm nc, int rc, struct err *err)
{
    int result = NCCL_OK;

    if (rc == -EIO && gpu_runs(c->g) && c->g->nccl->async_error(nc, &result) == NCCL_OK
        && result != NCCL_OK && result != NCCL_IN_PROGRESS)
        return comm_name_async(c->g, rc, err);
    return gpu_name_rank(c->g, rc, err);
}

static int comm_run_calls(struct comm *c,
                          nccl_comm nc,
                          int (*calls)(void *arg, nccl_comm nc, struct err *err),
                          void *arg,
                          struct err *err)
{
    const struct nccl_api *nccl = c->g->nccl;
    int rc = comm_step_out(c, COMM_EV_GROUP, err);

    if (rc)
        return rc;
    int result = nccl->group_start();
    rc = result == NCCL_OK ? 0 : nccl_fail(nccl, nc, "ncclGroupStart", result, err);
    if (!rc) {
        rc = calls(arg, nc, err);
        if (launcher_enter_call(c, c->blocks, err))
            return -ECONNABORTED;
        result = nccl->group_end(); /* of the calls made, even after an error */
        if (launcher_enter_call(c, false, err))
            return -ECONNABORTED;
    }
    if (!rc && result != NCCL_OK && result != NCCL_IN_PROGRESS)
        rc = nccl_fail(nccl, nc, "ncclGroupEnd", result, err);
    if (rc)
        return name_call(c, nc, rc, err);
    rc = comm_settle(c, nc, "ncclGroupEnd", result, UINT64_MAX, err);
    if (rc && rc != -ECONNABORTED)
        return comm_name_async(c->g, rc, err);
    return rc ? rc : comm_step(c, COMM_EV_OK, err);
}

int comm_run_group(struct comm *c,
                   uint32_t index,
                   int (*calls)(void *arg, nccl_comm nc, struct err *err),
                   void *arg,
                   struct err *err)
{
    if (!gpu_runs(c->g))
        return err_set(err, -ECONNABORTED, "stopped");
    return comm_run_calls(c, c->nc[index], calls, arg, err);
}
