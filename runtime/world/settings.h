/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables that tune the runtime: the rows of core/knob_table.h as
 * fields. The variables that give a process its rank are read in contract/. */
#ifndef RUNTIME_WORLD_SETTINGS_H
#define RUNTIME_WORLD_SETTINGS_H

#include "runtime/backend/backend.h"
#include "runtime/base/log.h"
#include "runtime/contract/contract.h"
#include "runtime/core/replica_guard.h"

/* As in struct device_config (backend/device.h). */
struct gpu_settings {
    bool is_off;                      /* HVD_GPU=off */
    char nccl_lib[CONTRACT_PATH_MAX]; /* HVD_NCCL_LIB, "": none */
    uint64_t direct_bytes;            /* HVD_GPU_DIRECT, 8 MiB */
    uint64_t pool_bytes;              /* HVD_GPU_POOL, 256 MiB */
    bool uses_graphs;                 /* HVD_GPU_GRAPH */
    bool registers;                   /* HVD_GPU_REGISTER */
    bool syncs_ready;                 /* HVD_GPU_READY=sync */
    bool uses_ptx;                    /* HVD_GPU_PTX */
    bool batches_copies;              /* HOROVOD_BATCH_D2D_MEMCOPIES, true */
    bool is_deterministic;            /* HOROVOD_DETERMINISTIC */
    uint32_t n_streams;               /* HOROVOD_NUM_NCCL_STREAMS, 1 */
};

struct settings {
    uint64_t start_timeout_ns; /* HOROVOD_START_TIMEOUT, 600 s */
    uint64_t peer_timeout_ns;  /* HVD_PEER_TIMEOUT, 30 s */
    /* Rank 0's values are used, because all ranks must decide the same. */
    uint32_t control_fanout; /* HVD_CONTROL_FANOUT, 8 */
    uint64_t fusion_bytes;   /* HOROVOD_FUSION_THRESHOLD, 128 MiB; 0: off */
    uint64_t gather_ns;      /* HOROVOD_CYCLE_TIME, 0 */
    bool is_fusion_set, is_gather_set;
    bool is_autotuned;         /* HOROVOD_AUTOTUNE */
    uint32_t autotune_warmup;  /* HOROVOD_AUTOTUNE_WARMUP_SAMPLES, 3 */
    uint32_t autotune_steps;   /* HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE, 10 */
    uint32_t autotune_samples; /* HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES, 20 */
    bool reports;              /* HVD_REPORT; also with HVD_DRY_RUN */
    bool is_dry_run;           /* HVD_DRY_RUN */
    uint32_t cache_capacity;   /* HOROVOD_CACHE_CAPACITY, 1024; 0: no cache, no plan */
    bool is_group_alone;       /* HOROVOD_DISABLE_GROUP_FUSION */

    uint64_t stall_warn_ns; /* HOROVOD_STALL_CHECK_TIME_SECONDS, 60; 0 by
                               _STALL_CHECK_DISABLE */
    bool reports_late;      /* HVD_STALL_STACKS: late ranks report it themselves */
    bool shows_stacks;      /* HVD_STACKS, true */
    uint64_t stall_fail_ns; /* HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, 0: never */
    uint64_t deadlock_ns;   /* HVD_DEADLOCK_TIMEOUT, 600; 0 if the former is set */

    enum log_level log_level;   /* HOROVOD_LOG_LEVEL, warning */
    bool has_log_time;          /* HOROVOD_LOG_HIDE_TIME, HOROVOD_LOG_TIMESTAMP */
    bool nancheck;              /* HVD_NANCHECK */
    struct replica_guard guard; /* HVD_REPLICA_CHECK, HVD_REPLICA_ACTION, HVD_REPLAY */
    enum data_check data_check; /* HVD_DATA_MAC, HVD_DATA_CRC */
    char codec[80];       /* HVD_COMPRESSION, as codec_format writes it; "": none */
    uint64_t codec_bytes; /* HVD_COMPRESSION_MEMORY */
    struct gpu_settings gpu;

    char timeline[CONTRACT_PATH_MAX]; /* HOROVOD_TIMELINE, a path; "": none at init */
    bool timeline_mark_cycles;        /* HOROVOD_TIMELINE_MARK_CYCLES */
    bool timeline_all;                /* HVD_TIMELINE_ALL: all ranks in it */
    char autotune_log[CONTRACT_PATH_MAX];  /* HOROVOD_AUTOTUNE_LOG, "": none */
    char autotune_file[CONTRACT_PATH_MAX]; /* HVD_AUTOTUNE_FILE, "": none */
    char stats_dir[CONTRACT_PATH_MAX];     /* HVD_STATS_DIR, "": none */
    char cores[CONTRACT_PATH_MAX];         /* HOROVOD_THREAD_AFFINITY, "": anywhere */
    /* Facts of the world and this rank, set by world.c. */
    uint32_t generation;
    uint32_t local_rank;
    uint32_t job_rank, job_size; /* in the whole job, not in this world */
    char host[HOST_NAME_MAX_BYTES];
    int core; /* this rank's entry of cores (settings_set_core); -1: any */
};

/* -EINVAL, -ERANGE, -ENOTSUP with the variable, its value and what is allowed. */
int settings_read(getenv_fn get, void *arg, struct settings *ret, struct err *err);

/* Logs variables that are set without effect, and names in `environment` (may be NULL)
 * that look like typing errors. Called on one rank only, after log_set_level. */
void settings_log_unused(getenv_fn get, void *arg, char *const *environment);

/* Binds the calling thread to s->core, if it is set; a failure causes a warning. */
void settings_move_to_core(const struct settings *s);

/* Rank 0's HVD_REPORT and HVD_DRY_RUN, which all ranks use. */
void settings_set_report(struct settings *s, bool reports, bool is_dry_run);

/* Sets s->core, the one for the runtime's thread of this local rank. -EINVAL when the
 * list is shorter than the ranks of this host. */
int settings_set_core(struct settings *s,
                      uint32_t local_rank,
                      uint32_t local_size,
                      struct err *err);

#endif
