/* SPDX-License-Identifier: Apache-2.0 */
/* The one CUDA device of this rank in one world: its context, streams and two threads,
 * and how it breaks. NCCL is attached through hooks, so this part is tested without
 * NCCL.
 *
 * Locks: device.whole before others; all others are leaves: device.lock, that of xids,
 * of event_pool, launcher.lock, watch.lock, scratch.lock, that of memory. */
#ifndef RUNTIME_BACKEND_NCCL_GPU_H
#define RUNTIME_BACKEND_NCCL_GPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/backend/device.h"
#include "runtime/backend/nccl/cuda_dl.h"
#include "runtime/backend/nccl/event.h"
#include "runtime/backend/nccl/launcher.h"
#include "runtime/backend/nccl/memory.h"
#include "runtime/backend/nccl/nccl_dl.h"
#include "runtime/backend/nccl/nvml_dl.h"
#include "runtime/backend/nccl/scratch.h"
#include "runtime/backend/nccl/watch.h"

struct cublas_api;
struct gcodec_blas;
struct gcodec_states;
struct gpu_launch;
struct tables;
struct xids;

/* RUNS -> STOPS (no NCCL call starts any more) -> QUIET (the launcher is out, or left
 * behind) -> ENDED (hooks.abort has returned). Never back. */
enum gpu_life { GPU_RUNS, GPU_STOPS, GPU_QUIET, GPU_ENDED };

struct gpu_hooks {
    bool needs_nccl; /* gpu_open fails without one */
    /* The launcher: puts one job onto its stream; waits only for NCCL. An error
     * breaks the device with its message, which must name the rank (gpu_name_rank),
     * except for JOB_CLOSE. */
    int (*run)(struct device *g, struct gpu_job *job, struct err *err);
    /* The launcher: a job that will not run because the device is broken. May be NULL.
     */
    void (*drop)(struct device *g, struct gpu_job *job);
    /* The watcher, every 100 ms while something is in flight or `looks` is set, before
     * GPU_STOPS; an error breaks the device. May be NULL. */
    int (*look)(struct device *g, struct err *err);
    /* The watcher, once, at GPU_QUIET. is_quiet false: the launcher has not come out;
     * launcher.barred_at is where it was. Bounded by 1 s. May be NULL. */
    void (*abort)(struct device *g, bool is_quiet);
};

enum gpu_counted { GPU_PACKED, GPU_DIRECT, GPU_REGISTERED, GPU_READY_NS, GPU_COUNTS };

struct device {
    const struct cuda_api *cu;
    const struct nccl_api *nccl;
    const struct cublas_api *cublas; /* NULL: not opened; the seat's */
    const struct gpu_hooks *hooks;
    struct device_config config; /* strings and arrays are ours */
    int ordinal;
    cu_device dev;
    cu_ctx ctx; /* primary; stays retained until the process ends */
    int sm;     /* 90 */
    int n_multiprocessors;
    struct cu_uuid uuid;
    char name[64];
    cu_stream streams[GPU_MAX_STREAMS]; /* [0] for everything unless n_streams > 1 */
    uint32_t n_streams;
    struct event_pool *events;
    struct gpu_memory *memory;  /* the process's */
    struct gpu_scratch scratch; /* the launcher's */
    struct gpu_launch *launch;  /* set by the owner of the hooks before the first job */
    struct tables *tables;
    struct gcodec_states *codecs; /* NULL: no batch was compressed; the seat's */
    struct gcodec_blas *blas;     /* NULL: not needed yet; the launcher's */
    struct comm *comms;           /* all of this device; under lock */
    struct device_parked *parked; /* of the last world, until it is used; the seat's */
    uint64_t fusion_bytes; /* of our card, from the first meeting on; the seat's */
    bool has_met;          /* the seat's */
    void *more;            /* of the owner of the hooks */
    struct gpu_launcher launcher;
    struct gpu_watch watch;
    struct xids *xids;
    char pci[16];
    /* The launcher's, GPU_READY_NS the watcher's; any thread reads. */
    _Atomic uint64_t counts[GPU_COUNTS];
    _Atomic bool looks;              /* there are communicators to check */
    _Atomic uint64_t awaits_user_ns; /* gpu_quiesce, gpu_join: since when; 0: no */
    _Atomic int life;                /* enum gpu_life; acq_rel */
    _Atomic bool is_forked;
    /* Held over a capture of ours, and over calls about the whole context, which would
     * break it. The seat never waits for it; other threads wait until the stop. */
    pthread_mutex_t whole;
    pthread_mutex_t lock; /* comms, cause */
    char cause[480];      /* first failure */
};

/* gpu_process.c: what outlives worlds. cuda and nccl are loaded at the first call that
 * succeeds; cuda is initialised (cuInit). Any thread. */
int gpu_load_cuda(const struct cuda_api **ret, struct err *err);
/* CUDA version of the driver (12040), also if cuInit failed; 0: unknown. Any thread. */
int gpu_cuda_version(void);
int gpu_load_nccl(const struct device_config *c,
                  const struct nccl_api **ret,
                  struct err *err);
/* The primary context of a device, retained until the process ends, and its memory;
 * kept_bytes counts at the first time. */
int gpu_process_device(int ordinal,
                       uint64_t kept_bytes,
                       cu_ctx *ret_ctx,
                       struct gpu_memory **ret_memory,
                       struct err *err);
void gpu_process_leak(void); /* work of ours did not stop: gpu_open refuses */
bool gpu_process_has_leaked(void);
void gpu_process_forked(void); /* in a forked child: nothing of this can be used */

/* Opens context, streams and threads. hooks outlive it. */
int gpu_open(const struct device_config *c,
             int ordinal,
             const struct gpu_hooks *hooks,
             void *more,
             struct device **ret,
             struct err *err);
/* Stops a running device; jobs that were pushed may run for half a second before; 2 s
 * in total, and longer as gpu_quiesce. -EBUSY: work of ours did not stop; g is leaked,
 * and gpu_open refuses from then on. */
int gpu_close(struct device *g);
/* After a stop: 0 when both threads have ended, else -ETIMEDOUT. Waits longer as
 * gpu_quiesce. */
int gpu_join(struct device *g, uint64_t deadline_ns);
void gpu_forked(struct device *g);

/* Every entry point from outside brackets its CUDA calls: our context is current, and
 * the thread's capture mode is RELAXED, so a framework's graph capture is not
 * invalidated. leave restores both. */
struct gpu_scope {
    const struct cuda_api *cu;
    int mode;
    bool is_in;
};
int gpu_enter(const struct device *g, struct gpu_scope *s, struct err *err);
void gpu_leave(struct gpu_scope *s);
int gpu_enter_ctx(const struct cuda_api *cu,
                  cu_ctx ctx,
                  struct gpu_scope *s,
                  struct err *err);

/* The first failure wins. XIDs of the last 10 s are put in front. Stops the launcher,
 * wakes the watcher and the coordinator. Any thread. */
void gpu_broken(struct device *g, const char *sentence);
/* "XID 79 (GPU has fallen off the bus) on GPU 0 (PCI 0000:3B:00.0) of rank 3 (host b):
 * where to look; ", or "" if there was none recently or NVML does not answer. The
 * launcher of ranks parses it (runtime/contract/gpu_cause.h). */
void gpu_xid_text(struct device *g, char *ret, size_t size_bytes);
/* -ECONNABORTED with the cause once it is broken, else 0. Any thread. */
int gpu_check(struct device *g, struct err *err);
/* device_ops.abort and .quiesce. */
void gpu_abort(struct device *g);
bool gpu_quiesce(struct device *g, uint64_t deadline_ns);
static inline bool gpu_runs(const struct device *g)
{
    return atomic_load_explicit(&g->life, memory_order_acquire) == GPU_RUNS;
}

/* Prefixes the text with "rank 2 (host b): "; returns r. */
int gpu_name_rank(const struct device *g, int r, struct err *err);
/* " (host b)", or "" if hosts are unknown: for "rank 3%s". */
const char *gpu_host_text(const struct device *g, uint32_t rank, char ret[300]);

/* device_ops rows that need no communicator. */
int gpu_record(struct device *g,
               void *stream,
               struct device_event **ret,
               struct err *err);
int gpu_wait(struct device *g,
             struct device_event *e,
             void *stream,
             uint64_t deadline_ns,
             struct err *err);
int gpu_alloc(struct device *g,
              uint64_t bytes,
              void **ret,
              struct device_event **ret_given,
              struct err *err);
void gpu_free(void *p, void *stream);
void gpu_await(struct device *g, bool begins);
int gpu_ordinal(struct device *g);
void gpu_counts(struct device *g, struct device_counts *ret);
/* The launcher. */
static inline void gpu_count(struct device *g, enum gpu_counted what, uint64_t bytes)
{
    (void)atomic_fetch_add_explicit(&g->counts[what], bytes, memory_order_relaxed);
}
int gpu_ordinal_of(const void *p);

#endif
