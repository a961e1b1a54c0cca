/* SPDX-License-Identifier: Apache-2.0 */
/* hvd.h: the C API of Ringmaster's collective runtime (libhvd.so).
 *
 * One process is one rank of one world. hvd_init() finds its place (HOROVOD_*,
 * torchrun, MPI, Slurm, single process), meets the other ranks and starts one
 * background thread. Collectives are submitted by name from any thread; ranks may
 * submit in any order; tensors of equal name on all ranks form one operation. A
 * submitted operation ends exactly once: by its callback, by poll or by wait, with a
 * status and, on failure, a sentence that names the cause.
 *
 * Every function is safe from any thread. Errors: 0 (HVD_OK) or a negative enum
 * hvd_status; the sentence of the calling thread's last failure is hvd_last_error(). */
#ifndef HVD_H
#define HVD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_API __attribute__((visibility("default")))

enum hvd_status {
    HVD_OK = 0,
    HVD_IN_PROGRESS = 1,
    HVD_NOT_INITIALIZED = -1, /* hvd_init has not been called, or a forked child */
    HVD_INVALID_ARGUMENT =
        -2,                /* bad arguments, duplicate names, mismatch between ranks */
    HVD_PRECONDITION = -3, /* shut down while the operation was pending */
    HVD_ABORTED = -4, /* a rank was lost; the world is broken until shutdown + init */
    HVD_TIMEOUT = -5, /* hvd_wait's own deadline; the operation goes on */
    HVD_NO_MEMORY = -6,
    HVD_INTERNAL = -7,
    HVD_UNSUPPORTED =
        -8 /* a machine or library of the ranks' cannot; all is as before */
};

enum hvd_dtype {
    HVD_UINT8 = 0,
    HVD_INT8 = 1,
    HVD_UINT16 = 2,
    HVD_INT16 = 3,
    HVD_INT32 = 4,
    HVD_INT64 = 5,
    HVD_FLOAT16 = 6,
    HVD_FLOAT32 = 7,
    HVD_FLOAT64 = 8,
    HVD_BOOL = 9,
    HVD_BFLOAT16 = 10
};

enum hvd_op { /* as horovod's reduce_op numbers */
              HVD_AVERAGE = 0,
              HVD_SUM = 1,
              HVD_ADASUM = 2,
              HVD_MIN = 3,
              HVD_MAX = 4,
              HVD_PRODUCT = 5
};

#define HVD_MAX_DIMS 8

/* --- life
 * ---------------------------------------------------------------------------------- */

/* Versioned: set size_bytes to sizeof(struct hvd_config); later fields are taken as 0.
 * NULL means all defaults. */
struct hvd_config {
    size_t size_bytes;
    uint64_t start_timeout_ms; /* 0: HOROVOD_START_TIMEOUT or 30 s */
    /* Process sets to make at once, equal on all ranks: set_ranks holds the ranks of
     * all of them one after the other, set_sizes how many are each one's. They get the
     * ids 1 to n_sets in this order. */
    int n_sets;
    const int *set_sizes;
    const int *set_ranks;
    /* The ranks of this world, where it is not to have all of the job's: each a rank
     * that the launcher gives, once, this process' among them; n_ranks 0: all. They get
     * the ranks 0 to n_ranks - 1 in this order, and hvd_size, local and cross ranks,
     * the ranks of process sets and those in sentences are of this world alone. Its
     * ranks call hvd_init with the same list; others may have a world of another list
     * at the same time, or none. Where rank 0 of the job serves the meeting place
     * (torchrun, mpirun, mpiexec, plain srun) it must call hvd_init too, with any list.
     */
    int n_ranks;
    const int *ranks;
};
/* Idempotent. Blocks until the world has formed or the start timeout has passed. */
HVD_API int hvd_init(const struct hvd_config *config);
/* Ends this rank's part: pending operations fail with HVD_PRECONDITION; other ranks
 * that still submit get a sentence. Bounded by 5 s; needs no collective. Idempotent;
 * hvd_init may follow. */
HVD_API int hvd_shutdown(void);
HVD_API int hvd_is_initialized(void); /* 1 or 0 */

/* Place in the world; HVD_NOT_INITIALIZED (negative) before init. */
HVD_API int hvd_rank(void);
HVD_API int hvd_size(void);
HVD_API int hvd_local_rank(void);
HVD_API int hvd_local_size(void);
HVD_API int hvd_cross_rank(void);
HVD_API int hvd_cross_size(void);
HVD_API int hvd_is_homogeneous(void);

/* --- operations
 * ------------------------------------------------------------------------------ */

typedef int64_t hvd_handle; /* > 0 */

/* Runs exactly once, on the runtime's thread or inside hvd_wait/hvd_poll of any thread,
 * with no lock of ours held; must not block and must not call hvd_wait. error is NULL
 * on HVD_OK, valid during the call. hvd_result, hvd_received_splits and hvd_joined_last
 * of the operation answer in it: its handle was written before it was submitted. After
 * it ran, the handle is still to be released. */
typedef void (*hvd_done_fn)(void *arg, int status, const char *error);

/* Allgather's output, once its shape is known: returns memory of size_bytes (or NULL:
 * the operation fails with HVD_NO_MEMORY). Same calling rules as hvd_done_fn. */
typedef void *(*hvd_alloc_fn)(void *arg,
                              int ndim,
                              const int64_t *shape,
                              size_t size_bytes);

/* What every submit shares. name: unique among this rank's pending operations, at most
 * 511 bytes, not beginning with "hvd://". data, output: valid until the operation has
 * ended; output may equal data. shape has ndim entries (0: scalar).
 * device: HVD_DEVICE_HOST, or the GPU that both are memory of, as CUDA numbers those
 * that this process sees; equal on all ranks in being one of the two kinds. A rank uses
 * one GPU in a world. HVD_DEVICE_OF_POINTER: whichever it is. ready_event: NULL. */
#define HVD_DEVICE_HOST       (-1)
#define HVD_DEVICE_OF_POINTER (-2)
/* As HVD_DEVICE_HOST, of a program that would use a GPU if this rank had one: where
 * other ranks have the tensor on a GPU, the sentence of the mismatch tells what is
 * missing here. So it does, without, after a tensor on a GPU has been refused. */
#define HVD_DEVICE_NONE       (-3)
/* hvd_tensor.stream: all streams of the device, for who cannot tell which. */
#define HVD_STREAM_ALL        ((void *)(uintptr_t)-1)

struct hvd_tensor {
    size_t size_bytes; /* sizeof(struct hvd_tensor) */
    const char *name;
    const void *data;
    void *output;
    int dtype; /* enum hvd_dtype */
    int ndim;
    const int64_t *shape;
    int device;
    void *ready_event;
    hvd_done_fn done; /* may be NULL */
    void *done_arg;
    /* All or none: a tensor of a group travels only when all group_size tensors that
     * name this group have been submitted on all ranks. NULL: no group. Equal names on
     * all ranks; free for the next group once all of this one have ended. */
    const char *group;
    int group_size;
    /* Allreduce only: how it travels, e.g. "fp16", "bf16", "int8", "topk:ratio=0.001",
     * "powersgd:rank=4"; "none" or "": as it is; NULL: as HVD_COMPRESSION says. Equal
     * on all ranks. runtime/README.md has the list. */
    const char *compression;
    /* 1: the operation is made and gets its handle, but nothing is submitted before
     * hvd_submit_held. For groups: of one that is submitted in part the rest would be
     * waited for by all ranks. 0: submitted at once. */
    int is_held;
    /* On a GPU: the CUDA stream in which the inputs are made. They are read, and output
     * is written, after all that was in it at the submit (held ones: at
     * hvd_submit_held); memory of a result is allocated in its order. NULL: the legacy
     * default stream. */
    void *stream;
};

/* process_set of all that follows: 0, all ranks, or an id of hvd_process_set_add that
 * includes this rank. Roots are global ranks, in a process set too. */

/* output = postscale * reduce(prescale * data) over all ranks of the set. Every dtype;
 * 16-bit floats are summed in float32 and rounded once on each host and once at the
 * end; AVERAGE of integers divides toward zero; other integers wrap, as C's do. bool:
 * SUM and MAX are "or", MIN and PRODUCT "and", AVERAGE and ADASUM are refused; ADASUM
 * takes floating point only and ignores the scales' order (prescale before, postscale
 * after). Returns HVD_OK and *ret_handle. */
HVD_API int hvd_allreduce_async(const struct hvd_tensor *t,
                                int op,
                                double prescale,
                                double postscale,
                                int process_set,
                                hvd_handle *ret_handle);
/* Concatenation along dimension 0 in rank order; dimension 0 may differ by rank, the
 * others must not; a 0-d tensor is an error. t->output is not used: memory comes from
 * alloc, or, with alloc NULL, from the runtime: fetch it with hvd_result(), it lives
 * until hvd_release(). */
HVD_API int hvd_allgather_async(const struct hvd_tensor *t,
                                hvd_alloc_fn alloc,
                                void *alloc_arg,
                                int process_set,
                                hvd_handle *ret_handle);
/* output on every rank = data of root_rank (a global rank). */
HVD_API int hvd_broadcast_async(const struct hvd_tensor *t,
                                int root_rank,
                                int process_set,
                                hvd_handle *ret_handle);
/* As allreduce, but only root_rank's output is written (elsewhere it may be NULL). */
HVD_API int hvd_reduce_async(const struct hvd_tensor *t,
                             int op,
                             double prescale,
                             double postscale,
                             int root_rank,
                             int process_set,
                             hvd_handle *ret_handle);
/* As allgather, but only root_rank gets the result (elsewhere alloc is not called and
 * hvd_result has dimension 0 of length 0). */
HVD_API int hvd_gather_async(const struct hvd_tensor *t,
                             int root_rank,
                             hvd_alloc_fn alloc,
                             void *alloc_arg,
                             int process_set,
                             hvd_handle *ret_handle);
/* As allreduce, but each rank gets its rows of dimension 0 only: the first
 * dim0 % size ranks of the set get one more. Output as allgather's. */
HVD_API int hvd_reducescatter_async(const struct hvd_tensor *t,
                                    int op,
                                    double prescale,
                                    double postscale,
                                    hvd_alloc_fn alloc,
                                    void *alloc_arg,
                                    int process_set,
                                    hvd_handle *ret_handle);
/* Sends splits[j] rows of dimension 0 to the set's j-th rank; splits has n_splits
 * entries, the set's size, and sums up to dimension 0. NULL: even, dimension 0 must be
 * a multiple of the size. The other dimensions are equal on all ranks. Output as
 * allgather's, ordered by sender; hvd_received_splits says how much came from whom. */
HVD_API int hvd_alltoall_async(const struct hvd_tensor *t,
                               const int64_t *splits,
                               int n_splits,
                               hvd_alloc_fn alloc,
                               void *alloc_arg,
                               int process_set,
                               hvd_handle *ret_handle);
/* Rows received from each rank of the set by an alltoall that has ended with HVD_OK
 * (HVD_INVALID_ARGUMENT before). ret has room for n entries; returns how many there
 * are. */
HVD_API int hvd_received_splits(hvd_handle h, int64_t *ret, int n);
/* One rank to another: t->data of the one that sends to dst_rank becomes t->output of
 * the one that receives from src_rank. Each names the other by its global rank, never
 * itself, and the tensor by the same name, dtype and shape. A rank may have any number
 * of both pending, in any order, also to and from one rank under one name; it carries
 * them out one after the other. Only the two take part, but before the first transfer
 * between them the runtimes of all ranks of the world meet, without their programs'
 * help; from then on until shutdown the pair has a descriptor or two and the memory
 * that its tensors have needed, at most 1.1 MiB for each direction.
 * In errors, stall reports and the timeline it is one SENDRECV operation whose name
 * tells the direction, "x (0 -> 1)"; t->name leaves room for that, 17 bytes at most. A
 * group is of tensors between the same two. While one of the two has joined it fails on
 * the other. */
HVD_API int
hvd_send_async(const struct hvd_tensor *t, int dst_rank, hvd_handle *ret_handle);
HVD_API int
hvd_recv_async(const struct hvd_tensor *t, int src_rank, hvd_handle *ret_handle);
/* Returns when all ranks have entered. t: only name and done are used; others may be 0.
 */
HVD_API int
hvd_barrier_async(const struct hvd_tensor *t, int process_set, hvd_handle *ret_handle);
/* This rank has no more data: until all ranks have joined it takes part in the others'
 * allreduces with zeros; other collectives fail on all ranks meanwhile. t: as barrier,
 * and device, where that is above 0: the GPU that zeros are made on, of a rank that has
 * had no tensors on one; else it is that of its place on the host. Ends when all ranks
 * have joined; then hvd_joined_last is the last one of them. */
HVD_API int hvd_join_async(const struct hvd_tensor *t, hvd_handle *ret_handle);
HVD_API int hvd_joined_last(hvd_handle h); /* a rank; HVD_INVALID_ARGUMENT before */

/* --- process sets
 * ---------------------------------------------------------------------------- */

/* Ids are used once in the life of a world. id % HVD_PROCESS_SET_NUMBERS is the number
 * by which sentences and timelines call a set, as Horovod does: that of a removed set
 * is given again, of those that are free the one that has been so for longest. */
#define HVD_PROCESS_SET_NUMBERS 4096

/* A set of global ranks (any order, kept ascending) with its own collectives. All ranks
 * of the world call it, in the same order with the same ranks, and wait in it. The
 * same set twice is an error. */
HVD_API int hvd_process_set_add(const int *ranks, int n, int *ret_id);
/* As above, but only the ranks of the new set call it and wait; the runtimes of the
 * others take part without their programs' help. One that is there is no error, but the
 * set that is meant, however it came. Sets that overlap must be made in the same order
 * by the ranks that are in both. */
HVD_API int hvd_process_set_meet(const int *ranks, int n, int *ret_id);
/* All ranks of the world. Refused while tensors of the set are pending; set 0 cannot
 * go. */
HVD_API int hvd_process_set_remove(int id);
/* How many there are, set 0 included; ret (room for n) gets their ids, by number. */
HVD_API int hvd_process_set_ids(int *ret, int n);
/* Size; this rank's place in it (-1: not in it, with an empty hvd_last_error(), which
 * HVD_NOT_INITIALIZED has not); its ranks (room for n; returns how many).
 * HVD_INVALID_ARGUMENT for an unknown id. */
HVD_API int hvd_process_set_size(int id);
HVD_API int hvd_process_set_rank(int id);
HVD_API int hvd_process_set_ranks(int id, int *ret, int n);

/* Submits n operations that were made with hvd_tensor.is_held: all of them, or, with
 * the sentence of one that cannot be, none. None has begun then, no callback runs, and
 * the handles are only to be released, as of any that is not to be submitted after all.
 */
HVD_API int hvd_submit_held(const hvd_handle *handles, int n);

/* HVD_IN_PROGRESS, or the final status. Never blocks. */
HVD_API int hvd_poll(hvd_handle h);
/* Waits for the end; timeout_ms < 0: as long as it takes (the runtime's own failure
 * detection bounds it). HVD_TIMEOUT when the time is over; a waiter that carries out a
 * collective itself returns only after that one, however short timeout_ms is (a silent
 * peer ends it by HVD_PEER_TIMEOUT). On failure hvd_last_error() has the sentence. */
HVD_API int hvd_wait(hvd_handle h, int64_t timeout_ms);
/* On a GPU: lets a stream of its device wait for the end, so that what is put into it
 * afterwards finds the outputs; this thread waits only until that can be said, in most
 * cases until all ranks have submitted. The handle may be released then; data and
 * output are to be reused in this stream or another one that has waited, and a result
 * of the runtime's is freed after what is in the stream that has waited last. A failure
 * after that is told by whatever comes next. In host memory, and with HVD_NANCHECK: as
 * hvd_wait. */
HVD_API int hvd_wait_on_stream(hvd_handle h, void *stream, int64_t timeout_ms);
/* The same for n of them, with one wait for all that travelled together. The first
 * failure is returned; the stream waits for those before it. */
HVD_API int
hvd_wait_many(const hvd_handle *handles, int n, void *stream, int64_t timeout_ms);
/* The GPU that the output is on, HVD_DEVICE_HOST, or HVD_INVALID_ARGUMENT with a
 * sentence. */
HVD_API int hvd_result_device(hvd_handle h, int *ret_device);
/* The output of an allgather, gather, reducescatter or alltoall that the runtime
 * allocated; pointers valid until hvd_release. shape has room for HVD_MAX_DIMS.
 * HVD_IN_PROGRESS when not ended; on a GPU hvd_wait_on_stream is enough. */
HVD_API int
hvd_result(hvd_handle h, void **ret_data, int *ret_ndim, int64_t *ret_shape);
/* Gives the handle back; a pending operation goes on and its buffers must stay valid
 * until done. */
HVD_API int hvd_release(hvd_handle h);

/* Sentence of the calling thread's last failed call, "" if none. Valid until its next
 * call. */
HVD_API const char *hvd_last_error(void);
/* Others have waited for long for a tensor that this rank has not submitted
 * (HVD_STALL_STACKS=1 on rank 0). Called on the runtime's thread, or on one that waits;
 * must not block or call hvd_*. The place to show what the program is doing. fn NULL:
 * nothing. Any thread; holds for later worlds too. */
typedef void (*hvd_late_fn)(void *arg, const char *tensor);
HVD_API void hvd_on_late(hvd_late_fn fn, void *arg);
HVD_API const char *hvd_version(void); /* "0.1.0" */
/* One line of JSON about this process' world for --check-build, logs and tests: rank,
 * size, launcher found, transports by peer. At most n bytes with NUL; returns the
 * length needed. */
HVD_API size_t hvd_describe(char *buf, size_t n);

/* What is on this machine for tensors on GPUs, as one line of JSON: "can" (bool),
 * "problem" (why not), "driver", "cuda", "nccl", "nccl_path", "kernels", "gpus". Needs
 * no world. At most n bytes with NUL; returns the length needed. */
HVD_API size_t hvd_device_report(char *buf, size_t n);
/* Registers t->data, t->ndim dimensions of t->shape, on a GPU: collectives of tensors
 * that lie in it move without a copy of NCCL's own where the machine can (NVLink SHARP,
 * InfiniBand SHARP, peers of one node). Needs NCCL 2.19. All ranks of the set call it,
 * with as much memory each. It holds for this process set only, until hvd_deregister,
 * until the set goes or hvd_shutdown; the memory stays valid until then. At most 255 of
 * a set at once, which do not overlap. Where a rank cannot, none does: the operation
 * fails on all with the sentence that names it, and tensors there travel as before.
 * HVD_UNSUPPORTED where NCCL or memory of that rank is at fault, HVD_INVALID_ARGUMENT
 * where the program is.
 * From its end on a tensor that is submitted lies in the same buffer on all ranks, or
 * in none, else it fails with the sentence of a mismatch: data and output both, where
 * it has both. Until then none that lies there is pending. Of an allgather, gather,
 * reducescatter or alltoall data alone counts; memory that hvd_alloc_fn gives is to lie
 * in none; an empty one of these lies where data points. Tensors of a buffer are not
 * packed with others, and not while a rank has joined. t: name, data, dtype, ndim,
 * shape, device, stream, done; others 0. */
HVD_API int
hvd_register_async(const struct hvd_tensor *t, int process_set, hvd_handle *ret_handle);
/* The buffer that data is in is so no longer, and its memory may be freed. All ranks of
 * the set call it, for the same buffer, and wait in it; what is on its way in it is
 * waited for. Not inside a callback. */
HVD_API int hvd_deregister(const void *data, int process_set);
/* The same without waiting: its memory may be freed when the operation has ended. */
HVD_API int
hvd_deregister_async(const void *data, int process_set, hvd_handle *ret_handle);
/* The NCCL library that the framework of this process has brought, before hvd_init. */
HVD_API void hvd_device_hint(const char *nccl_path);

/* --- seeing what happens
 * --------------------------------------------------------------------- */

#define HVD_STATS_KINDS 16
/* Counters of this world since its init, of this rank. Versioned: set size_bytes to
 * sizeof(struct hvd_stats); later fields come at the end. Arrays are by kind of
 * collective: 0 allreduce, 1 allgather, 2 broadcast, 3 barrier, 4 alltoall,
 * 5 reducescatter, 6 reduce, 7 gather, 8 join, 9 and 10 process sets made and removed,
 * 11 send and receive (bytes in: sent, out: received), 12 buffers registered and given
 * back.
 * A reading is no snapshot: counters may be a few operations apart. */
struct hvd_stats {
    size_t size_bytes;
    int rank, size;
    uint64_t age_ns;                   /* since init */
    double allreduce_bus_bytes_per_s;  /* 2(n-1)/n x bytes / time inside the backend */
    double steps_per_s;                /* of the steps counted below */
    uint64_t tensors[HVD_STATS_KINDS]; /* that ended with HVD_OK */
    uint64_t bytes_in[HVD_STATS_KINDS], bytes_out[HVD_STATS_KINDS];
    uint64_t failed;                      /* tensors that ended otherwise */
    uint64_t batches, fused;              /* to the backend; tensors that shared one */
    uint64_t cache_hits, cache_misses;    /* tensors announced by a bit, in full */
    uint64_t plans, plan_leaves, planned; /* frozen, left; tensors done by plan */
    uint64_t agreements;                  /* rounds of agreement in a plan */
    uint64_t control_sent, control_sent_bytes; /* messages about work */
    uint64_t control_received, control_received_bytes;
    uint64_t wait_ns;    /* tensors' time from submission to their batch, summed */
    uint64_t backend_ns; /* inside the backend, waiting for peers there included */
    uint64_t allreduce_ns, allreduce_bus_bytes;
    uint64_t steps, step_ns; /* whole rounds of a plan, and the time they took */
    /* Tensors that asked for compression: their bytes, and what stood for them. */
    uint64_t compression_raw, compression_wire;
    /* In use now: HOROVOD_FUSION_THRESHOLD, HOROVOD_CYCLE_TIME; on rank 0, 1 while
     * HOROVOD_AUTOTUNE tries others. */
    uint64_t fusion_bytes, gather_ns, is_tuning;
    /* Tensors on the GPU: batches of them; bytes that went by a buffer of ours (packed,
     * converted, compressed), or from and to where they lie; how much of both lies in
     * registered buffers. */
    uint64_t device_batches, device_packed_bytes, device_direct_bytes;
    uint64_t device_registered_bytes;
    /* In use: 90 (compute capability 9.0), 22705 (NCCL 2.27.5), 12040 (the driver's
     * CUDA 12.4); 0 before the first such tensor. hvd_device_report has it in words. */
    uint64_t device_sm, device_nccl, device_cuda;
};
HVD_API int hvd_stats(struct hvd_stats *ret);
/* The same in Prometheus' text format. At most n bytes with NUL; *ret_n: the length
 * needed without NUL (may be NULL). */
HVD_API int hvd_stats_text(char *buf, size_t n, size_t *ret_n);

/* The timeline: what happens to each tensor, as a file for chrome://tracing or Perfetto
 * with Horovod's names. HOROVOD_TIMELINE starts one at init; these start and stop one
 * at any time. Rank 0 writes it; on other ranks both do nothing and return HVD_OK.
 * path: replaced if it is there; valid JSON whenever one looks. mark_cycles: mark the
 * beginning of each round of work. With HVD_TIMELINE_ALL=1 on rank 0 all ranks are in
 * it, each as a thread of its tensors, on rank 0's clock. */
HVD_API int hvd_timeline_start(const char *path, int mark_cycles);
/* Returns when the file is complete. Not inside a callback. */
HVD_API int hvd_timeline_stop(void);

#ifdef __cplusplus
}
#endif
#endif
