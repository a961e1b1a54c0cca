/* SPDX-License-Identifier: Apache-2.0 */
/* libhvd_cuda.so: the one row that libhvd.so finds by its name, and the hooks that
 * connect device, communicators and collectives. Each world's device holds its kernels
 * and tables here. */
#include <errno.h>
#include <time.h>

#include "runtime/backend/nccl/gcodec.h"
#include "runtime/backend/nccl/image.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/backend/nccl/park.h"
#include "runtime/backend/nccl/report.h"
#include "runtime/backend/nccl/table.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define CLOSE_NS NS_PER_S

struct gpu_world { /* device.more */
    struct gpu_launch launch;
    struct tables tables;
};

/* --- hooks --- */

static int hooks_run(struct device *g, struct gpu_job *job, struct err *err)
{
    switch (job->kind) {
    case JOB_START:
    case JOB_SPLIT:
    case JOB_CLOSE:
        return comm_run(g, job, err);
    case JOB_BATCH:
        return gcoll_run(g, job, err);
    case JOB_CODEC:
        return gcodec_run(g, job, err);
    case JOB_CHECK:
        return check_run(g, job, err);
    case JOB_REGISTER:
        return register_run(job);
    case JOB_KIND_COUNT:
        break;
    }
    return err_set(err, -ENOTSUP, "a job of kind %d", (int)job->kind);
}

static void hooks_drop(struct device *g, struct gpu_job *job)
{
    (void)g;
    if (job->kind == JOB_REGISTER)
        register_drop(job);
}

static const struct gpu_hooks hooks = {
    .needs_nccl = true,
    .run = hooks_run,
    .drop = hooks_drop,
    .look = comms_look,
    .abort = comms_abort,
};

/* All pinned memory is in use, or another thread waits for all streams. */
static int wait_while_running(void *arg, struct err *err)
{
    struct device *g = arg;

    if (!gpu_runs(g))
        return err_set(err, -ECONNABORTED, "stopped");
    (void)nanosleep(&(struct timespec){0, 20000}, NULL);
    return 0;
}

/* --- open and close --- */

static void device_report_fill(const struct device_config *c, struct device_report *ret)
{
    char kernels[64];

    gpu_report(c, image_text(kernels_image, kernels, sizeof(kernels)), ret);
}

static int load_kernels(struct device *g, struct gpu_world *w, struct err *err)
{
    const size_t bytes =
        (size_t)((uintptr_t)kernels_image_end - (uintptr_t)kernels_image);
    struct gpu_scope scope;
    int rc = gpu_enter(g, &scope, err);

    if (rc)
        return rc;
    rc = launch_init(&w->launch, g->cu, kernels_image, bytes, g->sm,
                     g->n_multiprocessors, g->config.uses_ptx, err);
    gpu_leave(&scope);
    tables_init(&w->tables, g->cu, g->memory, &g->scratch, wait_while_running, g);
    g->launch = &w->launch;
    g->tables = &w->tables;
    return rc;
}

static int device_close(struct device *g, struct device_parked **ret)
{
    struct gpu_scope scope;

    if (ret)
        *ret = NULL;
    if (!g)
        return 0;
    if (atomic_load(&g->is_forked))
        return gpu_close(g);
    const uint64_t deadline_ns = clock_now_ns() + CLOSE_NS;
    struct gpu_world *w = g->more;
    (void)launcher_drain(&g->launcher, deadline_ns); /* jobs that have not run are
                                                        dropped */
    gpu_abort(g);
    park_free(TAKE(g->parked)); /* the one of the world before was not used */
    bool is_over = gpu_quiesce(g, deadline_ns + CLOSE_NS);
    if (is_over && ret)
        *ret = park_take(g);
    if (is_over) /* else their resources are in use, and leaked with the device */
        comms_free(g, clock_now_ns() + CLOSE_NS);
    is_over &= !g->comms;
    if (is_over && gpu_enter(g, &scope, NULL) == 0) {
        gcodec_states_free(TAKE(g->codecs), g);
        gcodec_blas_free(TAKE(g->blas), g);
        tables_release(&w->tables);
        launch_release(&w->launch);
        gpu_leave(&scope);
    }
    int rc = gpu_close(g);
    if (is_over && rc == 0)
        mem_free(w);
    return rc;
}

static int device_open(const struct device_config *c,
                       int ordinal,
                       struct device **ret,
                       struct err *err)
{
    struct gpu_world *w = mem_zalloc(sizeof(*w));
    struct device *g;

    int rc = w ? gpu_open(c, ordinal, &hooks, w, &g, err)
               : err_set(err, -ENOMEM, "out of host memory for the state of a GPU");
    if (rc) {
        park_free(c->parked);
        mem_free(w);
        return rc;
    }
    g->parked = c->parked;
    rc = load_kernels(g, w, err);
    if (rc) {
        (void)device_close(g, NULL); /* err has the first error */
        return rc;
    }
    *ret = g;
    return 0;
}

__attribute__((visibility("default"))) const struct device_ops hvd_cuda_device_ops = {
    .abi = DEVICE_ABI,
    .size_bytes = sizeof(struct device_ops),
    .report = device_report_fill,
    .open = device_open,
    .close = device_close,
    .parked_free = park_free,
    .forked = gpu_forked,
    .ordinal = gpu_ordinal,
    .counts = gpu_counts,
    .ordinal_of = gpu_ordinal_of,
    .record = gpu_record,
    .event_ref = event_ref,
    .event_unref = event_unref,
    .wait = gpu_wait,
    .alloc = gpu_alloc,
    .free = gpu_free,
    .await = gpu_await,
    .abort = gpu_abort,
    .quiesce = gpu_quiesce,
    .comm_open = comm_open,
    .comm_refuse = comm_refuse,
    .comm_split = comm_split,
    .ticket_event = comm_ticket_event,
    .codec_open = gcodec_open,
    .post_codec = gcodec_post,
    .post_check = check_post,
    .bad_item = check_bad_item,
    .buffer_register = comm_register,
    .buffer_forget = comm_forget,
    .state_forget_set = gcodec_forget_set,
};
