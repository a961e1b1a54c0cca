/* SPDX-License-Identifier: Apache-2.0 */
/* Finds, opens and closes the GPU of a world.
 *
 * libhvd_cuda.so must be in the folder from which this library was loaded. It is loaded
 * by the first tensor on a GPU, or the first report, and never unloaded. A program
 * without GPU tensors does neither. A test program with its own ops table names it
 * hvd_device_linked.
 *
 * I1  A world opens one device, that of its first tensor on a GPU. Tensors on another
 *     device are refused on this rank at once.
 *
 * I2  After a failure the same failure is returned until the world ends: a refused
 *     tensor is refused in each step.
 *
 * I3  The communicators that a broken world leaves are kept outside of worlds until
 *     the next device is opened or a world ends in order.
 *
 * Called by api_submit.c and api_device.c (any thread), carry_device.c (the seat) and
 * world.c (life). */
#include "runtime/engine/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define LIBRARY          "libhvd_cuda.so"
#define CONNECT_LEAST_NS (60 * NS_PER_S)
#define CONNECT_RANK_NS  (100 * NS_PER_MS) /* more for each rank */
#define QUEUE_NS         (60 * NS_PER_S)

extern const struct device_ops *const hvd_device_linked
    __attribute__((weak, visibility("hidden")));

/* --- the row --- */

/* The folder of this library, without a slash at its end. */
static bool library_find_folder(char *ret, size_t size)
{
    Dl_info info;
    const char *slash;

    if (dladdr((const void *)LIBRARY, &info) == 0 || !info.dli_fname)
        return false;
    slash = strrchr(info.dli_fname, '/');
    return slash
           && (size_t)snprintf(ret, size, "%.*s", (int)(slash - info.dli_fname),
                               info.dli_fname)
                  < size;
}

static int library_load(const struct device_ops **ret, struct err *err)
{
    char folder[1024], path[1100];
    const struct device_ops *ops;
    void *lib;

    if (!library_find_folder(folder, sizeof(folder)))
        return err_set(err, -ENOENT, "%s: this library's own folder is not known",
                       LIBRARY);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, LIBRARY); /* fits */
    lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib)
        return err_set(err, -ENOENT, "this installation cannot: %s", dlerror());
    ops = dlsym(lib, DEVICE_SYMBOL);
    if (!ops || ops->abi != DEVICE_ABI || ops->size_bytes != sizeof(*ops))
        return err_set(err, -ENOENT, "%s has another version than this library", path);
    *ret = ops;
    return 0;
}

int device_find_ops(const struct device_ops **ret, struct err *err)
{
    if (!&hvd_device_linked)
        return library_load(ret, err);
    *ret = hvd_device_linked;
    return 0;
}

/* --- opening --- */

void device_init(struct world_device *w, const struct world_device_config *config)
{
    w->config = *config;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)snprintf(w->hint, sizeof(w->hint), "%s", config->nccl_hint);
}

void device_release(struct world_device *w)
{
    (void)pthread_mutex_destroy(&w->lock);
}

static void config_take_settings(const struct gpu_settings *s, struct device_config *c)
{
    c->nccl_lib = s->nccl_lib;
    c->pool_bytes = s->pool_bytes;
    c->direct_bytes = s->direct_bytes;
    c->uses_graphs = s->uses_graphs;
    c->registers = s->registers;
    c->batches_copies = s->batches_copies;
    c->is_deterministic = s->is_deterministic;
    c->syncs_ready = s->syncs_ready;
    c->uses_ptx = s->uses_ptx;
    c->n_streams = s->n_streams;
}

/* The ranks of one host have the number of their first rank. */
static void world_number_hosts(const struct world_device_config *w,
                               const char **hosts,
                               uint32_t *of)
{
    AUTOFREE uint32_t *firsts = mem_calloc(w->size, sizeof(*firsts));
    uint32_t n = 0;

    for (uint32_t r = 0; r < w->size; r++) {
        uint32_t i = 0;

        hosts[r] = w->members[r].host;
        of[r] = r;
        while (firsts && i < n && strcmp(hosts[firsts[i]], hosts[r]) != 0)
            i++;
        if (firsts && i < n)
            of[r] = firsts[i];
        else if (firsts)
            firsts[n++] = r;
    }
}

/* When a communicator is created, all members are present. So this limit is for their
 * network, and for the slowest of their GPUs, which may still be busy with earlier
 * work. */
static uint64_t connect_timeout_ns(const struct world_device_config *w)
{
    const uint64_t ns = w->settings->start_timeout_ns;

    return (ns > CONNECT_LEAST_NS ? ns : CONNECT_LEAST_NS) + w->size * CONNECT_RANK_NS;
}

/* How long a world that ends waits for work of the program in front of ours. Without
 * the limits of a stall there is one too: that work may wait for a rank that is dead,
 * by another library. */
static uint64_t queue_limit_ns(const struct settings *s)
{
    const uint64_t ns = s->stall_fail_ns > 0 ? s->stall_fail_ns : s->stall_warn_ns;

    return ns > 0 ? ns : QUEUE_NS;
}

static int device_open_ordinal(struct world_device *w, int ordinal, struct err *err)
{
    const struct world_device_config *k = &w->config;
    const struct settings *s = k->settings;
    AUTOFREE const char **hosts = mem_calloc(k->size, sizeof(*hosts));
    AUTOFREE uint32_t *host_of = mem_calloc(k->size, sizeof(*host_of));
    char folder[1024] = "";
    struct device_config c = {.rank = k->rank,
                              .size = k->size,
                              .local_rank = s->local_rank,
                              .host_of = host_of,
                              .hosts = hosts,
                              .nccl_hint = w->hint,
                              .bundle_dir = folder,
                              .init_timeout_ns = connect_timeout_ns(k),
                              .queue_limit_ns = queue_limit_ns(s),
                              .fusion_bytes = s->fusion_bytes,
                              .log_level = s->log_level,
                              .codec_bytes = s->codec_bytes,
                              .wake = k->wake,
                              .arg = k->arg};
    struct device *d;
    int rc;

    if (!hosts || !host_of)
        return err_set(err, -ENOMEM, "out of memory");
    if (k->park)
        c.parked = atomic_exchange(&k->park->parked, NULL);
    world_number_hosts(k, hosts, host_of);
    (void)library_find_folder(folder, sizeof(folder)); /* else nothing is bundled */
    config_take_settings(&s->gpu, &c);
    rc = w->ops->open(&c, ordinal, &d, err);
    if (rc == 0) /* pairs with device_of */
        atomic_store_explicit(&w->d, d, memory_order_release);
    return rc;
}

/* Under the lock. */
static int device_open_first(struct world_device *w, int ordinal, struct err *err)
{
    struct err why = ERR_INIT;
    int rc;

    if (!w->is_refused && !device_of(w)) {
        rc = device_open_ordinal(w, ordinal, &why);
        w->is_refused = rc < 0;
        if (rc < 0)
            (void)snprintf(w->problem, sizeof(w->problem), "%s", why.text);
    }
    return w->is_refused ? err_set(err, HVD_INVALID_ARGUMENT, "%s", w->problem) : 0;
}

/* Under the lock. */
static int device_load_ops(struct world_device *w, struct err *err)
{
    struct err why = ERR_INIT;

    if (w->ops || w->is_refused)
        return w->ops ? 0 : err_set(err, HVD_INVALID_ARGUMENT, "%s", w->problem);
    if (w->config.settings->gpu.is_off)
        (void)err_set(&why, -ENOTSUP, "HVD_GPU=off");
    if (w->config.settings->gpu.is_off || device_find_ops(&w->ops, &why) < 0) {
        w->is_refused = true;
        (void)snprintf(w->problem, sizeof(w->problem), "%s", why.text);
        return err_set(err, HVD_INVALID_ARGUMENT, "%s", w->problem);
    }
    return 0;
}

/* Under the lock: the ordinal to use. */
static int device_choose_ordinal(struct world_device *w,
                                 const void *p,
                                 int *ordinal,
                                 struct err *err)
{
    struct device *d = device_of(w);

    if (*ordinal != HVD_DEVICE_OF_POINTER)
        return 0;
    *ordinal = p ? w->ops->ordinal_of(p) : -EINVAL;
    if (*ordinal >= 0)
        return 0;
    if (p)
        return err_set(err, HVD_INVALID_ARGUMENT, "its memory is not on a GPU");
    /* The tensor is empty: use the world's GPU or, if this process sees enough of them,
     * the one with the number of the local rank, as frameworks do. */
    *ordinal = d ? w->ops->ordinal(d) : 0;
    if (!d) {
        struct device_report report;
        struct device_config c = {.nccl_hint = w->hint};

        config_take_settings(&w->config.settings->gpu, &c);
        w->ops->report(&c, &report);
        if (report.n_gpus > w->config.settings->local_rank)
            *ordinal = (int)w->config.settings->local_rank;
    }
    return 0;
}

int device_need(struct world_device *w,
                int ordinal,
                const void *p,
                struct device **ret,
                struct err *err)
{
    struct device *d = device_of(w);
    int rc = 0, has;

    if (!d || ordinal == HVD_DEVICE_OF_POINTER) {
        (void)pthread_mutex_lock(&w->lock);
        rc = device_load_ops(w, err);
        rc = rc < 0 ? rc : device_choose_ordinal(w, p, &ordinal, err);
        rc = rc < 0 ? rc : device_open_first(w, ordinal, err);
        (void)pthread_mutex_unlock(&w->lock);
        if (rc < 0)
            return rc;
        d = device_of(w);
    }
    has = w->ops->ordinal(d);
    if (has != ordinal)
        return err_set(
            err, HVD_INVALID_ARGUMENT,
            "it is on GPU %d, but this rank uses GPU %d: a rank uses one GPU only",
            ordinal, has);
    *ret = d;
    return 0;
}

/* Under the lock. */
static void device_probe(struct world_device *w)
{
    struct device_report report;
    struct device_config c = {.nccl_hint = w->hint};

    w->has_looked = true;
    if (device_load_ops(w, NULL) < 0) /* the failure is remembered */
        return;
    config_take_settings(&w->config.settings->gpu, &c);
    w->ops->report(&c, &report);
    memcpy(w->absent, report.problem, strnlen(report.problem, sizeof(w->absent) - 1));
}

void device_why_none(struct world_device *w, bool looks, char ret[REQUEST_WHY_MAX])
{
    const char *why;

    ret[0] = 0;
    if (device_of(w) || (!looks && !w->is_refused))
        return;
    (void)pthread_mutex_lock(&w->lock);
    if (looks && !w->has_looked && !w->is_refused)
        device_probe(w);
    why = w->is_refused ? w->problem : w->absent;
    memcpy(ret, why, strnlen(why, REQUEST_WHY_MAX - 1));
    ret[strnlen(why, REQUEST_WHY_MAX - 1)] = 0;
    (void)pthread_mutex_unlock(&w->lock);
}

struct device *device_of(const struct world_device *w)
{
    return atomic_load_explicit(&w->d, memory_order_acquire);
}

void device_abort(struct world_device *w)
{
    struct device *d = device_of(w);

    if (d)
        w->ops->abort(d);
}

/* Of a world that ends; parked is what it leaves, usually NULL. */
static void device_leave_parked(struct device_park *at, /* may be NULL */
                                enum life life,
                                struct device_parked *parked)
{
    const struct device_ops *ops;
    struct device_parked *old = NULL;

    if (life == LIFE_ABORTED && at && parked)
        old = atomic_exchange(&at->parked, TAKE(parked));
    else if (life == LIFE_DOWN && at)
        old = atomic_exchange(&at->parked, NULL);
    if ((parked || old) && device_find_ops(&ops, NULL) == 0) { /* it created them */
        ops->parked_free(parked);
        ops->parked_free(old);
    }
}

void device_close(struct world_device *w, enum life life)
{
    struct device *d = device_of(w);
    struct device_parked *parked = NULL;

    atomic_store_explicit(&w->d, NULL, memory_order_release);
    if (d && w->ops->close(d, &parked) < 0)
        log_warn("work on the GPU did not stop, its memory stays allocated", "rank=%u",
                 w->config.rank);
    device_leave_parked(w->config.park, life, parked);
}

void device_forked(const struct world_device *w)
{
    struct device *d = device_of(w);

    if (d)
        w->ops->forked(d);
}

void device_park_forked(struct device_park *park)
{
    atomic_store(&park->parked, NULL);
}

/* --- the report --- */

static void report_put_text(struct strbuf *out, const char *name, const char *text)
{
    strbuf_printf(out, "\"%s\":\"", name);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            strbuf_printf(out, "\\%c", *text);
        else if ((unsigned char)*text >= ' ')
            strbuf_printf(out, "%c", *text);
    }
    strbuf_puts(out, "\"");
}

static void report_put_gpu(struct strbuf *out, const struct device_gpu *g, uint32_t i)
{
    strbuf_printf(out, "%s{\"index\":%u,", i ? "," : "", i);
    report_put_text(out, "name", g->name);
    strbuf_puts(out, ",");
    report_put_text(out, "uuid", g->uuid);
    strbuf_printf(out, ",\"sm\":%d,\"memory_bytes\":%llu,\"mig\":%s,\"nvlinks\":%u}",
                  g->sm, (unsigned long long)g->memory_bytes,
                  g->is_mig ? "true" : "false", g->n_nvlinks);
}

void device_report_text(const struct gpu_settings *s,
                        const char *hint,
                        struct strbuf *out)
{
    struct device_report r = {.n_gpus = 0};
    char folder[1024] = "";
    struct device_config c = {.nccl_hint = hint, .bundle_dir = folder};
    const struct device_ops *ops;
    struct err err = ERR_INIT;

    config_take_settings(s, &c);
    (void)library_find_folder(folder, sizeof(folder)); /* else nothing is bundled */
    if (s->is_off)
        (void)snprintf(r.problem, sizeof(r.problem), "HVD_GPU=off");
    else if (device_find_ops(&ops, &err) < 0)
        (void)snprintf(r.problem, sizeof(r.problem), "%.399s", err.text);
    else
        ops->report(&c, &r);
    strbuf_printf(out, "{\"can\":%s,", r.problem[0] ? "false" : "true");
    report_put_text(out, "problem", r.problem);
    strbuf_puts(out, ",");
    report_put_text(out, "driver", r.driver);
    strbuf_puts(out, ",");
    report_put_text(out, "cuda", r.cuda);
    strbuf_puts(out, ",");
    report_put_text(out, "nccl", r.nccl);
    strbuf_puts(out, ",");
    report_put_text(out, "nccl_path", r.nccl_path);
    strbuf_puts(out, ",");
    report_put_text(out, "kernels", r.kernels);
    strbuf_puts(out, ",\"gpus\":[");
    for (uint32_t i = 0; i < r.n_gpus && i < DEVICE_MAX_GPUS; i++)
        report_put_gpu(out, &r.gpus[i], i);
    strbuf_puts(out, "]}");
}
