/* SPDX-License-Identifier: Apache-2.0 */
/* The process' runtime: init, shutdown, fork and exit.
 *
 * The only mutable global of the library is `runtime` below. Its locks:
 *
 *   life_lock   init and shutdown as a whole; nothing else waits for it
 *   lock        leaf lock around `world` and its reference count; also held across
 *               fork, so that the child finds it free
 *
 * Fork. The child finds no runtime (is_forked, which every function reads before any
 * lock) and has closed its copies of the control connections. Otherwise a DataLoader
 * worker that survives its parent would hide the parent's death from the other ranks.
 * While another thread is in init or shutdown, which connections exist is known to that
 * thread only: the child is refused likewise, but keeps copies until it ends. If it
 * survives its parent, the other ranks detect the death by silence.
 *
 * Exit. A destructor sends the goodbye "exited", or the failure of the program
 * (exit_cause.h), and leaves the world within EXIT_LIMIT_NS, or when the GPU is done with work of the program in front of ours. If
 * rank 0 serves the rendezvous, it then sends the answers that other ranks have not
 * received. A process that ends with an error because of another rank first waits for
 * EXIT_DELAY_S, since a foreign launcher reports the first exit code that it sees and
 * should see the cause (an interpreter needs some time from goodbye to exit). The
 * library is linked nodelete, so it is never unmapped before. */
#include "runtime/api/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/api/signals.h"
#include "runtime/api/stacks.h"
#include "runtime/base/log.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/world/claim.h"
#include "runtime/world/membership.h"

static const uint64_t SHUTDOWN_LIMIT_NS = 5 * NS_PER_S, EXIT_LIMIT_NS = 4 * NS_PER_S;
#define EXIT_DELAY_S 1
enum { SETS_TRIES = 5 }; /* as world.c's FORM_TRIES */

static struct {
    pthread_mutex_t life_lock;
    pthread_mutex_t lock;
    struct world *world; /* lock */
    bool is_changing;    /* lock: a thread forms or leaves a world */
    hvd_late_fn late;    /* lock */
    void *late_arg;      /* lock */
    struct handles handles;
    char nccl_hint[256];    /* life_lock */
    struct kept_state kept; /* life_lock */
    bool has_handlers;      /* life_lock: of fork and exit */
    _Atomic bool is_forked;
    /* this process left a world that other ranks had ended; relaxed */
    _Atomic bool was_broken;
    _Atomic int other; /* enum runtime_other of the last world; relaxed */
    struct exit_cause exit_cause;
    struct progress progress;
    _Atomic bool
        launcher_finds_cause; /* the launcher itself finds the first failure; relaxed */
} runtime = {.life_lock = PTHREAD_MUTEX_INITIALIZER,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .exit_cause = EXIT_CAUSE_INIT,
             .progress = PROGRESS_INIT,
             .handles = HANDLES_INIT};

struct handles *runtime_handles(void)
{
    return &runtime.handles;
}

struct exit_cause *runtime_exit_cause(void)
{
    return &runtime.exit_cause;
}

struct progress *runtime_progress(void)
{
    return &runtime.progress;
}

const char *runtime_nccl_hint(void)
{
    return runtime.nccl_hint;
}

void runtime_set_nccl_hint(const char *path)
{
    (void)pthread_mutex_lock(&runtime.life_lock);
    (void)snprintf(runtime.nccl_hint, sizeof(runtime.nccl_hint), "%s", path);
    (void)pthread_mutex_unlock(&runtime.life_lock);
}

void hvd_on_late(hvd_late_fn fn, void *arg)
{
    (void)pthread_mutex_lock(&runtime.lock);
    runtime.late = fn;
    runtime.late_arg = arg;
    (void)pthread_mutex_unlock(&runtime.lock);
}

/* Calls the function registered by hvd_on_late. */
static void runtime_report_late(const char *tensor)
{
    hvd_late_fn fn;
    void *arg;

    (void)pthread_mutex_lock(&runtime.lock);
    fn = runtime.late;
    arg = runtime.late_arg;
    (void)pthread_mutex_unlock(&runtime.lock);
    if (fn)
        fn(arg, tensor);
}

bool runtime_is_forked(void)
{
    return atomic_load_explicit(&runtime.is_forked, memory_order_relaxed);
}

static int report_forked(struct err *err)
{
    return err_set(
        err, HVD_NOT_INITIALIZED,
        "this process was forked after hvd.init(): it has no rank of its own; call "
        "Horovod in the parent process only, or start more ranks with horovodrun -np");
}

/* --- fork --- */

static void fork_prepare(void)
{
    (void)pthread_mutex_lock(&runtime.lock);
}

static void fork_resume_parent(void)
{
    (void)pthread_mutex_unlock(&runtime.lock);
}

static void fork_resume_child(void)
{
    if (runtime.world && !runtime_is_forked()) {
        control_forked(runtime.world->control);
        coordinator_forked(runtime.world->co);
    }
    if (runtime.world || runtime.is_changing) /* the latter holds life_lock forever */
        atomic_store(&runtime.is_forked, true);
    device_park_forked(&runtime.kept.park);
    claim_drop(&runtime.kept.claim_fd);
    membership_forked(runtime.kept.membership);
    (void)pthread_mutex_unlock(&runtime.lock);
}

/* --- the world --- */

static int status_of_errno(int r)
{
    switch (r) {
    case -EINVAL:
    case -ERANGE:
    case -ENOTSUP:
        return HVD_INVALID_ARGUMENT;
    case -ENOMEM:
        return HVD_NO_MEMORY;
    case -ETIMEDOUT:
        return HVD_TIMEOUT;
    case -ECONNABORTED:
    case -ECANCELED:
        return HVD_ABORTED;
    default:
        return HVD_INTERNAL;
    }
}

int runtime_get(struct world **ret, struct err *err)
{
    struct world *w;

    if (runtime_is_forked())
        return report_forked(err);
    (void)pthread_mutex_lock(&runtime.lock);
    w = runtime.world;
    if (w)
        atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
    (void)pthread_mutex_unlock(&runtime.lock);
    if (!w)
        return err_set(err, HVD_NOT_INITIALIZED,
                       "Horovod has not been initialized; use hvd.init().");
    *ret = w;
    return 0;
}

void runtime_put(struct world *w)
{
    /* acq_rel: the thread that frees sees what all other holders have done */
    if (w && atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) == 1)
        world_free(w);
}

/* Of on_exit, before destructors. */
static void exit_delay_if_broken(int status, void *arg)
{
    const struct timespec pause = {EXIT_DELAY_S, 0};
    bool is_broken = atomic_load_explicit(&runtime.was_broken, memory_order_relaxed);
    struct world *w;

    (void)arg;
    exit_cause_add_status(&runtime.exit_cause, status);
    if (status == 0 || runtime_get(&w, NULL) != 0) {
        is_broken = is_broken && status != 0 && !runtime_is_forked();
    } else {
        is_broken = is_broken || coordinator_status(w->co, NULL) != 0;
        runtime_put(w);
    }
    if (is_broken
        && !atomic_load_explicit(&runtime.launcher_finds_cause, memory_order_relaxed))
        (void)nanosleep(&pause, NULL); /* a signal may cut it short */
}

static enum runtime_other world_other(struct world *w)
{
    struct err err = ERR_INIT;

    if (coordinator_status(w->co, &err) != HVD_ABORTED || goodbye_rank(err.text) < 0
        || goodbye_rank(err.text) == w->contract.place.rank)
        return OTHER_CONTINUES;
    return goodbye_is_stop(err.text) ? OTHER_IS_STOPPED : OTHER_HAS_FAILED;
}

enum runtime_other runtime_other(void)
{
    enum runtime_other r;
    struct world *w;

    if (runtime_get(&w, NULL) != 0)
        return (enum runtime_other)atomic_load_explicit(&runtime.other,
                                                        memory_order_relaxed);
    r = world_other(w);
    runtime_put(w);
    return r;
}

static void world_leave(struct world *w, enum leave_reason why, uint64_t limit_ns)
{
    struct leave leave = {.why = why};

    membership_unwatch(w->membership);
    exit_cause_how(&runtime.exit_cause, leave.how);
    if (w->membership && *leave.how)
        membership_end(w->membership, leave.how);
    atomic_store_explicit(&runtime.other, (int)world_other(w), memory_order_relaxed);
    if (coordinator_status(w->co, NULL) != 0)
        atomic_store_explicit(&runtime.was_broken, true, memory_order_relaxed);
    /* While the seat is still run: the last events of other ranks pass through it. */
    timeline_stop(&coordinator_observer(w->co)->timeline,
                  coordinator_status(w->co, NULL) == 0);
    if (!coordinator_leave(w->co, &leave, clock_now_ns() + limit_ns)) {
        w->is_leaked = true;
        log_warn(
            "the coordinator did not stop in time, its connections stay open until the "
            "process ends",
            "limit_s=%u", (unsigned)(limit_ns / NS_PER_S));
    }
    claim_drop(&runtime.kept.claim_fd);
    runtime_put(w);
}

/* There is a world: 0 if it is the requested one. */
static int
world_check_same(struct world *w, const struct part_ranks *ranks, struct err *err)
{
    char has[100];

    /* A world whose members have started to leave still has the requested ranks. */
    if (coordinator_status(w->co, err) == HVD_ABORTED)
        return err_prefix(err,
                          "call shutdown() before init(); the last world is broken");
    if (part_has_ranks(w, ranks))
        return 0;
    if (w->part.ranks)
        rdv_ranks_text(w->part.ranks, w->part.n, has, sizeof(has));
    else
        (void)snprintf(has, sizeof(has), "all %u ranks", w->job.size); /* fits */
    return err_set(err, HVD_INVALID_ARGUMENT,
                   "hvd.init() was called before, for %s, and now with another comm; "
                   "call hvd.shutdown() between",
                   has);
}

static void runtime_begin_change(void)
{
    (void)pthread_mutex_lock(&runtime.life_lock);
    (void)pthread_mutex_lock(&runtime.lock);
    runtime.is_changing = true;
    (void)pthread_mutex_unlock(&runtime.lock);
}

static void runtime_end_change(void)
{
    (void)pthread_mutex_lock(&runtime.lock);
    runtime.is_changing = false;
    (void)pthread_mutex_unlock(&runtime.lock);
    (void)pthread_mutex_unlock(&runtime.life_lock);
}

/* It reports the rank that failed, whichever it sees first. srun does not: the plugin
 * starts its tasks, and Slurm ends the step with the first one that fails. */
static bool launcher_finds_cause(const struct contract *c)
{
    return c->launcher == LAUNCHER_NONE
           || (c->launcher == LAUNCHER_RINGMASTER && !contract_is_task(c));
}

/* A world with its static sets. In an elastic job a world that ends before it has them is
 * followed by the next one: that is not this process' failure. */
static int runtime_form(const struct world_config *config,
                        const struct static_sets *sets,
                        struct world **ret,
                        struct err *err)
{
    for (int n = 1;; n++) {
        int rc = world_form(config, &runtime.kept, ret, err);
        bool may_follow;

        if (rc < 0) {
            err->code = status_of_errno(rc);
            return err->code;
        }
        rc = world_add_static_sets(*ret, sets, err);
        if (rc == 0)
            return 0;
        may_follow = (*ret)->membership && n < SETS_TRIES
                     && coordinator_status((*ret)->co, NULL) != 0;
        if (may_follow)
            log_info("the world has ended early, waiting for the next one",
                     "try=%d of=%d cause=\"%s\"", n, SETS_TRIES, err->text);
        world_leave(*ret, LEAVE_SHUTDOWN, SHUTDOWN_LIMIT_NS);
        if (!may_follow)
            return rc;
    }
}

static int runtime_init_locked(uint64_t start_timeout_ns,
                               const struct part_ranks *ranks,
                               const struct static_sets *sets,
                               struct err *err)
{
    const struct world_config config = {start_timeout_ns, ranks, runtime.nccl_hint,
                                        runtime_report_late};
    struct world *w;
    int rc;

    if (runtime_get(&w, NULL) == 0) {
        rc = world_check_same(w, ranks, err);
        runtime_put(w);
        return rc;
    }
    if (!runtime.has_handlers
        && (pthread_atfork(fork_prepare, fork_resume_parent, fork_resume_child) != 0
            || on_exit(exit_delay_if_broken, NULL) != 0))
        return err_set(err, HVD_NO_MEMORY, "out of memory");
    runtime.has_handlers = true;
    rc = runtime_form(&config, sets, &w, err);
    if (rc < 0)
        return rc;
    runtime.kept.has_formed = true;
    atomic_store_explicit(&runtime.launcher_finds_cause,
                          launcher_finds_cause(&w->contract), memory_order_relaxed);
    progress_show(&runtime.progress, coordinator_observer(w->co)->stats.page);
    if (w->job.size > 1) {
        signals_watch();
        if (w->settings.shows_stacks)
            stacks_watch(w->settings.stats_dir);
    }
    (void)pthread_mutex_lock(&runtime.lock);
    runtime.world = w;
    (void)pthread_mutex_unlock(&runtime.lock);
    return 0;
}

int runtime_init(uint64_t start_timeout_ns,
                 const struct part_ranks *ranks,
                 const struct static_sets *sets,
                 struct err *err)
{
    int rc;

    if (runtime_is_forked())
        return report_forked(err);
    if (op_in_callback())
        return err_set(err, HVD_INVALID_ARGUMENT, "hvd_init: called inside a callback");
    runtime_begin_change();
    rc = runtime_init_locked(start_timeout_ns, ranks, sets, err);
    runtime_end_change();
    return rc;
}

static void runtime_leave(enum leave_reason why, uint64_t limit_ns)
{
    struct world *w;

    (void)pthread_mutex_lock(&runtime.lock);
    w = runtime.world;
    runtime.world = NULL;
    (void)pthread_mutex_unlock(&runtime.lock);
    if (w)
        world_leave(w, why, limit_ns);
}

int runtime_shutdown(struct err *err)
{
    if (runtime_is_forked())
        return report_forked(err);
    if (op_in_callback())
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_shutdown: called inside a callback");
    runtime_begin_change();
    runtime_leave(LEAVE_SHUTDOWN, SHUTDOWN_LIMIT_NS);
    runtime_end_change();
    return 0;
}

__attribute__((destructor)) static void runtime_at_exit(void)
{
    if (runtime_is_forked() || pthread_mutex_trylock(&runtime.life_lock) != 0)
        return; /* another thread is in init or shutdown: the kernel closes what it
                   holds */
    /* Before the goodbye: other ranks may fail because of it, and the launcher should
     * see this process' exit code before theirs. */
    bootstrap_finish(runtime.kept.boot);
    runtime.kept.boot = NULL;
    runtime_leave(LEAVE_EXIT, EXIT_LIMIT_NS);
    /* Rank 0 may be the first to complete the last round: other ranks still wait for
     * its answer. */
    rdv_server_stop(runtime.kept.server);
    runtime.kept.server = NULL;
    (void)pthread_mutex_unlock(&runtime.life_lock);
}
