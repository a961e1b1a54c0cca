/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between libhvd.so and libhvd_cuda.so: what the runtime does with a CUDA
 * device. libhvd.so contains nothing else of CUDA; it finds the one row by dlopen.
 *
 *   Life    report() any time
 *           -> open()
 *           -> comm_open() for each process set that reduces device tensors
 *           -> post() and poll() of its row as of any backend
 *           -> close() of these, then of the device
 *   Thread  a row below "the seat" is for the thread that drives the coordinator's
 *           step, all others are for any thread */
#ifndef RUNTIME_BACKEND_DEVICE_H
#define RUNTIME_BACKEND_DEVICE_H

#include "runtime/backend/backend.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"

#define DEVICE_ABI    5
#define DEVICE_SYMBOL "hvd_cuda_device_ops"

struct codec_plan;
struct nonfinite;
struct device;        /* the one CUDA device of this rank in one world */
struct device_parked; /* communicators kept over a failure */
struct device_event;  /* counted: "all work that was in a stream then"; any thread */

/* All streams of the context: for TensorFlow, which does not expose its stream. */
#define DEVICE_STREAM_ALL       ((void *)(uintptr_t)-1)
/* The same for record in the seat, which never waits for the GPU: where drivers require
 * a wait, the batch that gets the event waits before it starts. */
#define DEVICE_STREAM_ALL_LATER ((void *)(uintptr_t)-2)

struct device_config {   /* the caller's; copied by open, strings and arrays too */
    uint32_t rank, size; /* of the world */
    uint32_t local_rank;
    const uint32_t *host_of;  /* [size] index of each rank's host; NULL: not known */
    const char *const *hosts; /* [size] its name, for messages; NULL: unknown */
    const char *nccl_lib;     /* HVD_NCCL_LIB; NULL or "" none */
    const char *nccl_hint;    /* the framework's own; NULL or "" none */
    const char *bundle_dir;   /* folder of libhvd_cuda.so: nccl/libnccl.so.2 in it comes
                                 last; NULL or "" none */
    uint64_t pool_bytes;      /* HVD_GPU_POOL: kept between results */
    uint64_t direct_bytes;    /* HVD_GPU_DIRECT; rank 0's counts */
    uint64_t fusion_bytes;    /* HOROVOD_FUSION_THRESHOLD; the least counts; 0: none */
    uint64_t codec_bytes;     /* HVD_COMPRESSION_MEMORY: kept between steps */
    bool uses_graphs;         /* HVD_GPU_GRAPH */
    bool registers;           /* HVD_GPU_REGISTER */
    bool batches_copies;      /* HOROVOD_BATCH_D2D_MEMCOPIES */
    bool is_deterministic;    /* HOROVOD_DETERMINISTIC; rank 0's counts */
    bool syncs_ready;         /* HVD_GPU_READY=sync: no cuCtxRecordEvent */
    bool uses_ptx;            /* HVD_GPU_PTX=1 */
    uint32_t n_streams;       /* HOROVOD_NUM_NCCL_STREAMS; 0 is 1 */
    uint64_t init_timeout_ns; /* of one communicator */
    uint64_t queue_limit_ns;  /* quiesce and close: for work of the program; 0: none */
    struct device_parked *parked; /* of the last world; taken over by open, also where
                                     that fails */
    enum log_level log_level;
    /* Any thread: tickets are done, or a failure has occurred; poll() returns which.
     * May be NULL. */
    void (*wake)(void *arg);
    void *arg;
};

#define DEVICE_MAX_GPUS 16

struct device_gpu {
    char name[64], uuid[48], pci[16];
    int sm; /* 90: compute capability 9.0 */
    uint64_t memory_bytes;
    bool is_mig;
    uint8_t nvlinks[DEVICE_MAX_GPUS]; /* active NVLinks to GPU j of this list */
    uint8_t n_nvlinks;                /* active NVLinks in all, to switches too */
};

/* The GPU software of this machine; "" is unknown. For check-build, agent, logs. */
struct device_report {
    char driver[32]; /* "580.159.03" */
    char cuda[16];   /* of the driver: "13.0" */
    char nccl[32];   /* "2.27.5" */
    char nccl_path[256];
    char kernels[64]; /* "sm_70 sm_90 ptx" */
    uint32_t n_gpus;
    struct device_gpu gpus[DEVICE_MAX_GPUS];
    char problem[400]; /* why GPU tensors cannot be reduced here; "": they can */
};

/* Of an open device, since it was opened; versions as their libraries count them. */
struct device_counts {
    uint64_t packed_bytes;     /* of tensors that went by a buffer of ours */
    uint64_t direct_bytes;     /* from and to where they lie */
    uint64_t registered_bytes; /* of both, in registered buffers */
    uint64_t ready_ns; /* of batches, summed: from when the device had reached the
                                * ready events of all tensors to the end */
    int sm, nccl, cuda;
};

struct device_ops {
    uint32_t abi;        /* DEVICE_ABI */
    uint64_t size_bytes; /* of this struct */
    /* Creates no context. Always fills *ret. */
    void (*report)(const struct device_config *c, struct device_report *ret);
    /* Device `ordinal` of this process (CUDA's numbering after CUDA_VISIBLE_DEVICES;
     * the primary context, which frameworks use too, is retained). -ENODEV or -ENOTSUP
     * with an error message. */
    int (*open)(const struct device_config *c,
                int ordinal,
                struct device **ret,
                struct err *err);
    /* After its backends; accepts NULL; bounded by 5 s, and longer as quiesce. *ret:
     * communicators that the next world may shrink, owned by the caller; usually NULL.
     * -EBUSY: work of ours did not stop; the device is leaked, and this process can
     * open no other. */
    int (*close)(struct device *d, struct device_parked **ret);
    void (*parked_free)(struct device_parked *p); /* accepts NULL */
    void (*forked)(struct device *d); /* in a forked child: forget, call nothing */
    int (*ordinal)(struct device *d);
    /* Batches that are done are included. */
    void (*counts)(struct device *d, struct device_counts *ret);
    int (*ordinal_of)(const void *p); /* of a pointer; -EINVAL: not device memory */

    /* One reference in *ret. stream: NULL is the legacy default stream. -EBUSY: it is
     * being captured into a CUDA graph. */
    int (*record)(struct device *d,
                  void *stream,
                  struct device_event **ret,
                  struct err *err);
    struct device_event *(*event_ref)(struct device_event *e);
    void (*event_unref)(struct device_event *e); /* accepts NULL; also after close */
    /* stream waits for e, on the device. A ticket's event that is not recorded yet is
     * waited for here first (microseconds, or while a communicator starts);
     * -ECONNABORTED with the cause after a failure, -ETIMEDOUT. */
    int (*wait)(struct device *d,
                struct device_event *e,
                void *stream,
                uint64_t deadline_ns,
                struct err *err);
    /* Memory for a result. *ret_given, a reference or NULL: until then it may be in use
     * (a batch item's `given`); a stream that waits for the batch is after that too. No
     * stream of the submitter takes part: work that is queued there meanwhile is not
     * waited for, and the stream may be captured. */
    int (*alloc)(struct device *d,
                 uint64_t bytes,
                 void **ret,
                 struct device_event **ret_given,
                 struct err *err);
    /* After what is in the stream now. Also after close. Frees late rather than
     * waiting. */
    void (*free)(void *p, void *stream);
    /* Aborts all communicators; returns at once; idempotent. */
    void (*abort)(struct device *d);
    /* After abort: true when no work of ours is on the device any more; waits until
     * deadline_ns at most. Longer, and after one message, while ours is in a stream
     * behind work of the program (a ready event): config.queue_limit_ns of this and of
     * close together. */
    bool (*quiesce)(struct device *d, uint64_t deadline_ns);
    /* A host starts, or stops, to wait for the end of what is posted: it is detected
     * earlier meanwhile. */
    void (*await)(struct device *d, bool begins);

    /* --- the seat --- */
    /* A communicator of the members of `meeting`, an open backend of the set, all of
     * whose members call this at the same point. ranks[n]: global. Meets over it and
     * queues the start; batches may be posted at once. A failure of the meeting fails
     * here, on all members with one error message; a later one breaks the device (poll
     * returns it). The result's rows describe, connect, subset, agree_*, doze, nudge
     * are NULL. The caller closes it before the device. */
    int (*comm_open)(struct device *d,
                     struct backend *meeting,
                     const struct backend_env *env,
                     const uint32_t *ranks,
                     struct backend **ret,
                     struct err *err);
    /* Instead of comm_open on a member that could not open its device: it meets the
     * other members anyway, so that all of them fail with the one error message that
     * names this member (the lowest, if there are several). hosts: of all ranks of the
     * world, by rank, or NULL. problem: why. Never 0. */
    int (*comm_refuse)(struct backend *meeting,
                       const struct backend_env *env,
                       const uint32_t *ranks,
                       const char *const *hosts,
                       const char *problem,
                       struct err *err);
    /* For a new set of some members of an opened communicator: all of its members call
     * it at the same point; *ret is NULL on those that are not in ranks[n] (members,
     * ascending). A job behind all posted ones; returns at once. -ENOTSUP on all of
     * them: this NCCL cannot split; open it later. */
    int (*comm_split)(struct backend *parent,
                      const uint32_t *ranks,
                      uint32_t n,
                      struct backend **ret,
                      struct err *err);
    /* The event of a ticket that post has returned; a reference, NULL: long done. */
    struct device_event *(*ticket_event)(struct backend *b, uint64_t ticket);
    /* Opens the libraries that the plan's codec requires, before the first batch that
     * it compresses on this communicator. -ENOTSUP: why it cannot; the caller reports
     * it to the other members. NULL: no codec requires any. */
    int (*codec_open)(struct backend *b,
                      const struct codec_plan *plan,
                      struct err *err);
    /* A compressed batch (core/compress): items as of an ordinary allreduce, names for
     * what is kept, one plan per item; all copied. -ENOTSUP with one message on all
     * members: not built; the device is intact, only these tensors fail. */
    int (*post_codec)(struct backend *b,
                      const struct batch *batch,
                      const char *const *names,
                      uint32_t set,
                      const struct codec_plan *plans,
                      uint64_t *ret_ticket,
                      struct err *err);
    /* HVD_NANCHECK, before post: the batch's inputs are checked before it runs; poll of
     * its ticket fails with -EDOM, and bad_item returns which. */
    int (*post_check)(struct backend *b, const struct batch *batch, struct err *err);
    int (*bad_item)(struct backend *b, size_t *ret_item, struct nonfinite *ret);
    /* Registers [p, p + bytes), behind all that was posted; on all members at the
     * same point. Waits for it and checks env.interrupted. A failure here is local:
     * the caller lets all members forget the buffer again. -ENOTSUP, -EIO, -ENOMEM
     * with an error message; an interruption's error, or -ECONNABORTED: the device is
     * broken. */
    int (*buffer_register)(struct backend *b, void *p, uint64_t bytes, struct err *err);
    /* By its start address, when none of its batches is in progress; errors
     * likewise. */
    void (*buffer_forget)(struct backend *b, void *p);
    void (*state_forget_set)(struct device *d, uint32_t set); /* residuals */
};

extern const struct device_ops hvd_cuda_device_ops; /* libhvd_cuda.so's only symbol */

#endif
