/* SPDX-License-Identifier: Apache-2.0 */
/* One device of one world: opens it, brackets calls, breaks it once, closes it.
 *
 * How it breaks (gpu_broken, any thread): the first cause is kept, life becomes
 * GPU_STOPS, the launcher leaves (GPU_QUIET), the watcher aborts (GPU_ENDED). An
 * orderly end of a world goes the same way without a cause, after its jobs have run.
 * Closing is bounded: what does not stop is left behind with its memory, and the
 * process is marked. But our streams wait for those of the program (ready events), and
 * no abort ends that: while the oldest job of one of our streams waits for a ready
 * event, the bound is config.queue_limit_ns. NCCL's abort may wait for the same work (it
 * synchronises with its last kernel), so whether it has returned makes no difference. */
#include "runtime/backend/nccl/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/futex.h"
#include "runtime/backend/nccl/xid.h"
#include "runtime/base/mem.h"

#define DRAIN_NS    (NS_PER_S / 2)
#define CLOSE_NS    (2 * NS_PER_S) /* a watcher's time to abort */
#define STOP_NS     (NS_PER_S / 2)
#define QUIESCE_NAP 100000ull

/* --- small things --- */

const char *gpu_host_text(const struct device *g, uint32_t rank, char ret[300])
{
    const struct device_config *c = &g->config;

    ret[0] = '\0';
    if (c->hosts && rank < c->size)
        (void)snprintf(ret, 300, " (host %.255s)", c->hosts[rank]);
    return ret;
}

int gpu_name_rank(const struct device *g, int r, struct err *err)
{
    char host[300];

    (void)err_prefix(err, "rank %u%s", g->config.rank,
                     gpu_host_text(g, g->config.rank, host));
    return r;
}

int gpu_enter(const struct device *g, struct gpu_scope *s, struct err *err)
{
    return gpu_enter_ctx(g->cu, g->ctx, s, err);
}

void gpu_counts(struct device *g, struct device_counts *ret)
{
    uint64_t v[GPU_COUNTS];

    for (size_t i = 0; i < GPU_COUNTS; i++)
        v[i] = atomic_load_explicit(&g->counts[i], memory_order_relaxed);
    *ret = (struct device_counts){
        .packed_bytes = v[GPU_PACKED],
        .direct_bytes = v[GPU_DIRECT],
        .registered_bytes = v[GPU_REGISTERED],
        .ready_ns = v[GPU_READY_NS],
        .sm = g->sm,
        .nccl = g->nccl ? g->nccl->version : 0,
        .cuda = g->cu->version,
    };
}

int gpu_ordinal(struct device *g)
{
    return g->ordinal;
}

/* --- breaking --- */

void gpu_broken(struct device *g, const char *sentence)
{
    char xid[400];
    struct err cause = ERR_INIT;

    gpu_xid_text(g, xid, sizeof(xid));
    (void)err_set(&cause, -ECONNABORTED, "%s%s", xid, sentence);
    (void)pthread_mutex_lock(&g->lock);
    bool is_first = g->cause[0] == '\0';
    if (is_first)
        (void)snprintf(g->cause, sizeof(g->cause), "%s", cause.text);
    (void)pthread_mutex_unlock(&g->lock);
    launcher_stop(&g->launcher);
    if (is_first && g->config.wake)
        g->config.wake(g->config.arg);
}

int gpu_check(struct device *g, struct err *err)
{
    char cause[sizeof(g->cause)];

    if (gpu_runs(g))
        return 0;
    (void)pthread_mutex_lock(&g->lock);
    memcpy(cause, g->cause, sizeof(cause));
    (void)pthread_mutex_unlock(&g->lock);
    return err_set(err, -ECONNABORTED, "%s",
                   cause[0] ? cause : "work on the GPU was aborted");
}

void gpu_await(struct device *g, bool begins)
{
    watch_await(&g->watch, begins);
}

void gpu_abort(struct device *g)
{
    launcher_stop(&g->launcher);
}

static void gpu_nap(uint64_t ns)
{
    struct timespec t = clock_timespec(ns);

    (void)nanosleep(&t, NULL); /* early is fine */
}

/* What still keeps us waits for streams of the program, which end some time: nothing of
 * ours hangs. Then we wait on, for queue_limit_ns in all. */
static bool gpu_may_wait_for_user(struct device *g, bool awaits)
{
    const uint64_t limit_ns = g->config.queue_limit_ns;
    uint64_t since = atomic_load(&g->awaits_user_ns);
    const uint64_t now = clock_now_ns();

    if (!awaits || limit_ns == 0 || xids_are_fatal(g->xids))
        return false;
    if (since == 0) {
        atomic_store(&g->awaits_user_ns, since = now);
        log_warn("operations on the GPU were aborted behind work of the program in its "
                 "streams, waiting for that work",
                 "rank=%u limit_s=%llu", g->config.rank,
                 (unsigned long long)(limit_ns / NS_PER_S));
    }
    return now - since < limit_ns;
}

/* A wait for work of ours reached its deadline; awaits: the program is in front of it.
 * May it go on? Then *deadline_ns moves. After the program's work ours has STOP_NS of
 * its own: *awaited, false at first, keeps whether the last deadline was for that. */
static bool
gpu_extend_wait(struct device *g, bool awaits, bool *awaited, uint64_t *deadline_ns)
{
    const bool was_awaited = *awaited;

    *awaited = gpu_may_wait_for_user(g, awaits);
    *deadline_ns = clock_now_ns() + STOP_NS;
    return *awaited || was_awaited;
}

/* A sticky error counts as idle: nothing runs in a lost context. */
static bool is_idle(struct device *g)
{
    for (uint32_t i = 0; i < g->n_streams; i++)
        if (g->cu->stream_query(g->streams[i]) == CU_NOT_READY)
            return false;
    return true;
}

bool gpu_quiesce(struct device *g, uint64_t deadline_ns)
{
    struct err ignored = ERR_INIT; /* no context: the driver has shut down, everything
                                      is idle */
    struct gpu_scope scope;
    bool is_over = false, awaited = false;

    if (gpu_enter(g, &scope, &ignored) < 0)
        return true;
    for (;;) {
        int life = atomic_load_explicit(&g->life, memory_order_acquire);
        is_over = life == GPU_ENDED && is_idle(g);
        if (is_over
            || (clock_now_ns() >= deadline_ns
                && !gpu_extend_wait(g, watch_awaits_user(&g->watch), &awaited,
                                    &deadline_ns)))
            break;
        gpu_nap(QUIESCE_NAP);
    }
    gpu_leave(&scope);
    return is_over;
}

/* --- open --- */

static int copy_text(const char *const from, const char **ret)
{
    *ret = mem_strdup(from ? from : "");
    return *ret ? 0 : -ENOMEM;
}

static void free_text(const char *s)
{
    mem_free((void *)(uintptr_t)s);
}

static int copy_hosts(struct device_config *c, const struct device_config *from)
{
    const char **hosts;
    uint32_t *host_of;

    c->hosts = NULL;
    c->host_of = NULL;
    if (from->host_of) {
        host_of = mem_calloc(from->size, sizeof(*host_of));
        if (!host_of)
            return -ENOMEM;
        memcpy(host_of, from->host_of, from->size * sizeof(*host_of));
        c->host_of = host_of;
    }
    if (!from->hosts)
        return 0;
    hosts = mem_calloc(from->size, sizeof(*hosts));
    if (!hosts)
        return -ENOMEM;
    c->hosts = hosts;
    for (uint32_t i = 0; i < from->size; i++)
        if (copy_text(from->hosts[i], &hosts[i]) < 0)
            return -ENOMEM;
    return 0;
}

static int copy_config(struct device *g, const struct device_config *from)
{
    struct device_config *c = &g->config;

    *c = *from;
    c->parked = NULL; /* the owner of the hooks has taken it */
    c->nccl_lib = c->nccl_hint = c->bundle_dir = NULL;
    c->n_streams = from->n_streams == 0 ? 1 : from->n_streams;
    int rc = copy_hosts(c, from);
    if (rc == 0)
        rc = copy_text(from->nccl_lib, &c->nccl_lib);
    if (rc == 0)
        rc = copy_text(from->nccl_hint, &c->nccl_hint);
    return rc == 0 ? copy_text(from->bundle_dir, &c->bundle_dir) : rc;
}

static void release_config(struct device_config *c)
{
    for (uint32_t i = 0; c->hosts && i < c->size; i++)
        free_text(c->hosts[i]);
    mem_free((void *)(uintptr_t)c->hosts);
    mem_free((void *)(uintptr_t)c->host_of);
    free_text(c->nccl_lib);
    free_text(c->nccl_hint);
    free_text(c->bundle_dir);
}

/* Our context is current. */
static int learn_device(struct device *g, struct err *err)
{
    int major = 0, minor = 0;
    int rc = CUDA_TRY(g->cu, device_get, err, &g->dev, g->ordinal);

    if (rc == 0)
        rc = CUDA_TRY(g->cu, device_attr, err, &major, CU_ATTR_SM_MAJOR, g->dev);
    if (rc == 0)
        rc = CUDA_TRY(g->cu, device_attr, err, &minor, CU_ATTR_SM_MINOR, g->dev);
    if (rc == 0)
        rc = CUDA_TRY(g->cu, device_attr, err, &g->n_multiprocessors,
                      CU_ATTR_MULTIPROCESSORS, g->dev);
    if (rc == 0)
        rc = g->cu->device_uuid
                 ? CUDA_TRY(g->cu, device_uuid, err, &g->uuid, g->dev)
                 : CUDA_TRY(g->cu, device_uuid_v1, err, &g->uuid, g->dev);
    if (rc == 0)
        rc = CUDA_TRY(g->cu, device_name, err, g->name, sizeof(g->name), g->dev);
    if (rc == 0)
        rc = CUDA_TRY(g->cu, pci_bus_id, err, g->pci, sizeof(g->pci), g->dev);
    g->sm = major * 10 + minor;
    return rc;
}

static int make_streams(struct device *g, struct err *err)
{
    int least = 0, greatest = 0;
    int rc = CUDA_TRY(g->cu, priority_range, err, &least, &greatest);

    for (uint32_t i = 0; i < g->config.n_streams && rc == 0; i++) {
        rc = CUDA_TRY(g->cu, stream_new, err, &g->streams[i], CU_STREAM_NON_BLOCKING,
                      greatest);
        g->n_streams += rc == 0;
    }
    return rc;
}

static int gpu_fill(struct device *g, struct err *err)
{
    struct gpu_scope scope;
    int rc = gpu_enter(g, &scope, err);

    if (rc < 0)
        return rc;
    rc = learn_device(g, err);
    if (rc == 0)
        rc = make_streams(g, err);
    gpu_leave(&scope);
    if (rc < 0)
        return rc;
    g->events = event_pool_new(g->cu, g->ctx);
    if (!g->events)
        return err_set(err, -ENOMEM, "out of host memory for the state of a GPU");
    scratch_init(&g->scratch, g->cu, g->events, g->memory);
    rc = xids_start(g->pci, &g->xids, err);
    if (rc == 0)
        rc = launcher_start(&g->launcher, g, err);
    return rc == 0 ? watch_start(&g->watch, err) : rc;
}

/* Context and tables exist. Frees a device in any state of construction. */
static void take_apart(struct device *g)
{
    struct err ignored = ERR_INIT; /* no context: nothing to give back */
    struct gpu_scope scope;

    launcher_release(&g->launcher);
    watch_release(&g->watch);
    if (gpu_enter(g, &scope, &ignored) == 0) {
        scratch_release(&g->scratch);
        for (uint32_t i = 0; i < g->n_streams; i++)
            (void)g->cu->stream_free(g->streams[i]); /* the driver may have ended */
        gpu_leave(&scope);
    }
    xids_stop(g->xids);
    event_pool_unref(g->events);
    release_config(&g->config);
    (void)pthread_mutex_destroy(&g->lock);
    (void)pthread_mutex_destroy(&g->whole);
    mem_free(g);
}

static int check_ordinal(const struct cuda_api *cu,
                         uint32_t local_rank,
                         int ordinal,
                         struct err *err)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES"), *advice = "";
    char visible[100] = "";
    int n = 0, rc = CUDA_TRY(cu, device_count, err, &n);

    if (rc < 0 || (ordinal >= 0 && ordinal < n))
        return rc;
    if (list)
        (void)snprintf(visible, sizeof(visible), " (CUDA_VISIBLE_DEVICES=\"%.60s\")",
                       list);
    if (ordinal > 0 && (uint32_t)ordinal == local_rank)
        advice = n == 1 ? "; if each rank sees one GPU only, use device 0; if the "
                          "ranks of this host share this GPU, make more GPUs visible"
                        : "; start fewer ranks on this host, or make more GPUs visible";
    return err_set(err, -ENODEV, "there is no CUDA device %d: %d %s visible%s%s",
                   ordinal, n, n == 1 ? "is" : "are", visible, advice);
}

static int
gpu_load(const struct device_config *c, int ordinal, struct device *g, struct err *err)
{
    if (gpu_process_has_leaked())
        return err_set(
            err, -EBUSY,
            "work on the GPU of an earlier world did not stop: restart the process");
    int rc = gpu_load_cuda(&g->cu, err);
    if (rc == 0)
        rc = check_ordinal(g->cu, c->local_rank, ordinal, err);
    if (rc == 0 && g->hooks->needs_nccl)
        rc = gpu_load_nccl(c, &g->nccl, err);
    if (rc == 0)
        rc = gpu_process_device(ordinal, c->pool_bytes, &g->ctx, &g->memory, err);
    return rc;
}

/* Communicators on several streams may wait for each other in a circle, unless NCCL
 * launches in the order of our calls. NCCL reads that setting once, at its first call:
 * if the process had loaded it before us, the user must have set it. */
static uint32_t allowed_streams(const struct device *g, uint32_t n)
{
    static const char name[] = "NCCL_LAUNCH_ORDER_IMPLICIT";
    const char *wish = getenv(name), *why = NULL;

    if (n > GPU_MAX_STREAMS) {
        log_warn("fewer streams for NCCL than requested", "requested=%u used=%d", n,
                 GPU_MAX_STREAMS);
        n = GPU_MAX_STREAMS;
    }
    if (n <= 1 || !g->nccl)
        return n;
    if (g->nccl->version < 22600 || g->cu->version < 12030)
        why = "NCCL 2.26 and a driver for CUDA 12.3 are needed";
    else if (wish ? strcmp(wish, "1") != 0 : g->nccl->was_there)
        why = "NCCL was loaded before: set NCCL_LAUNCH_ORDER_IMPLICIT=1 in the "
              "environment";
    else if (!wish && setenv(name, "1", 0) != 0)
        why = "out of memory";
    if (!why)
        return n;
    log_warn("one stream for NCCL instead of several", "requested=%u cause=\"%s\"", n,
             why);
    return 1;
}

int gpu_open(const struct device_config *c,
             int ordinal,
             const struct gpu_hooks *hooks,
             void *more,
             struct device **ret,
             struct err *err)
{
    struct device *g = mem_zalloc(sizeof(*g));

    if (!g)
        return err_set(err, -ENOMEM, "out of host memory for the state of a GPU");
    g->hooks = hooks;
    g->more = more;
    g->ordinal = ordinal;
    int rc = gpu_load(c, ordinal, g, err);
    if (rc < 0) {
        mem_free(g);
        return rc;
    }
    (void)pthread_mutex_init(&g->lock, NULL); /* cannot fail on Linux */
    (void)pthread_mutex_init(&g->whole, NULL);
    watch_init(&g->watch, g);
    g->launcher.g = g;
    rc = copy_config(g, c);
    g->config.n_streams = allowed_streams(g, g->config.n_streams);
    rc = rc < 0 ? err_set(err, -ENOMEM, "out of host memory for the state of a GPU")
                : gpu_fill(g, err);
    if (rc == 0) {
        *ret = g;
        return 0;
    }
    gpu_abort(g);
    atomic_store_explicit(&g->life, GPU_ENDED, memory_order_release); /* no watcher */
    launcher_dismiss(&g->launcher);
    (void)launcher_join(&g->launcher, UINT64_MAX); /* it had no job */
    take_apart(g);
    return rc;
}

/* --- close --- */

/* Its resources stay: its threads or the device may still use them. */
static void leave_behind(struct device *g)
{
    gpu_process_leak();
    if (g->watch.has_thread)
        (void)pthread_detach(g->watch.thread); /* cannot fail: not joined */
    if (g->launcher.has_thread)
        (void)pthread_detach(g->launcher.thread);
}

/* The watcher first: it may have to end a call that the launcher is in. */
int gpu_join(struct device *g, uint64_t deadline_ns)
{
    struct gpu_launcher *l = &g->launcher;
    int rc = watch_join(&g->watch, deadline_ns);
    bool awaited = false;

    if (rc < 0)
        return rc;
    do
        rc = launcher_join(l, deadline_ns);
    while (rc == -ETIMEDOUT
           && gpu_extend_wait(g, atomic_load(&l->awaits_user), &awaited, &deadline_ns));
    return rc;
}

int gpu_close(struct device *g)
{
    if (!g || g->is_forked)
        return 0; /* in a forked child: threads and driver belong to the parent */
    /* Jobs that have not run by then are dropped. */
    (void)launcher_drain(&g->launcher, clock_now_ns() + DRAIN_NS);
    gpu_abort(g);
    uint64_t deadline = clock_now_ns() + CLOSE_NS;
    if (gpu_join(g, deadline) < 0 || !gpu_quiesce(g, deadline)) {
        leave_behind(g);
        return -EBUSY;
    }
    take_apart(g);
    return 0;
}

void gpu_forked(struct device *g)
{
    gpu_process_forked();
    if (!g)
        return;
    g->is_forked = true;
    event_pool_forget(g->events);
}
