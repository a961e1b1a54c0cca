/* SPDX-License-Identifier: Apache-2.0 */
/* hvd.h: the C API of Ringmaster's collective runtime (libhvd.so).
 *
 * One process is one rank of one world. hvd_init() finds the rank's place (HOROVOD_*
 * variables, torchrun, MPI, Slurm, or a single process), connects to the other ranks
 * and starts one background thread.
 *
 *     hvd_init(NULL);
 *     hvd_allreduce_async(&tensor, HVD_SUM, 1, 1, 0, &handle);
 *     hvd_wait(handle, -1);       or hvd_poll(), or tensor.done, a callback
 *     hvd_release(handle);
 *     hvd_shutdown();
 *
 * Operations. A collective is submitted by name, from any thread. The tensors of one
 * name on all ranks form one operation. Ranks may submit in any order. A submitted
 * operation ends exactly once, with a status and, on failure, an error message that
 * names the cause. Its end is visible to the callback, to hvd_poll() and to hvd_wait().
 *
 * Failures. When a rank's program fails, all other ranks get one sentence about it:
 *
 *     rank 1 (host b, pid 7) ended: ValueError: bad batch (train.py:40)
 *
 * A rank that ends with an error for this reason exits with HVD_EXIT_OTHER_RANK. The
 * sentence comes from hvd_set_exit_cause, the status of exit(), or a signal: in a world of
 * several ranks hvd_init handles SIGTERM, SIGINT, SIGSEGV, SIGBUS, SIGFPE, SIGILL and
 * SIGABRT if they have their default action, which follows within 200 ms.
 *
 * Errors. Functions return 0 (HVD_OK) or a negative enum hvd_status unless they say
 * otherwise. hvd_last_error() returns the message of the calling thread's last failure.
 *
 * Threads. Every function may be called from any thread. Inside a callback of the
 * runtime hvd_init, hvd_shutdown, hvd_wait*, hvd_deregister, the hvd_timeline_*
 * functions and changes of process sets return HVD_INVALID_ARGUMENT. */
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
    /* hvd_init has not been called, or this is a forked child. */
    HVD_NOT_INITIALIZED = -1,
    /* Bad arguments, a name that is already pending, or ranks that disagree. */
    HVD_INVALID_ARGUMENT = -2,
    /* A rank shut down, or exited with code 0, while the operation was pending. */
    HVD_PRECONDITION = -3,
    /* A rank was lost or its program has failed. The world is broken until hvd_shutdown
     * and hvd_init. */
    HVD_ABORTED = -4,
    /* The timeout of this call expired. The operation itself continues. */
    HVD_TIMEOUT = -5,
    HVD_NO_MEMORY = -6,
    HVD_INTERNAL = -7,
    /* A machine or library of one of the ranks does not support it. Nothing changed. */
    HVD_UNSUPPORTED = -8
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

/* The numbers of Horovod's reduce_op. */
enum hvd_op {
    HVD_AVERAGE = 0,
    HVD_SUM = 1,
    HVD_ADASUM = 2,
    HVD_MIN = 3,
    HVD_MAX = 4,
    HVD_PRODUCT = 5
};

#define HVD_MAX_DIMS 8

/* --- init and shutdown --- */

/* Versioned: set size_bytes to sizeof(struct hvd_config). Fields that the caller's
 * version does not have are taken as 0. NULL instead of a config selects all
 * defaults. */
struct hvd_config {
    size_t size_bytes;
    /* 0: HOROVOD_START_TIMEOUT, which defaults to 600 s. At most one day. */
    uint64_t start_timeout_ms;
    /* Process sets to create during init, the same on all ranks. set_sizes[i] is the
     * number of ranks of set i; set_ranks holds the ranks of all sets, one set after
     * the other. The sets get the ids 1 to n_sets in this order. */
    int n_sets;
    const int *set_sizes;
    const int *set_ranks;
    /* The ranks of this world; n_ranks 0: all ranks of the job. Each entry is a rank
     * that the launcher assigned, listed once; this process must be among them. Within
     * the world they are renumbered 0 to n_ranks - 1 in the order of the list, and
     * every other function (hvd_size, local and cross ranks, process sets, error
     * messages) uses the new numbers. All listed ranks must call hvd_init with the same
     * list. Other ranks may form a world of another list at the same time, or none.
     * Where rank 0 of the job serves the rendezvous (torchrun, mpirun, mpiexec, plain
     * srun), it must call hvd_init too, with any list. */
    int n_ranks;
    const int *ranks;
};
/* Blocks until the world has formed or the start timeout has expired. Returns HVD_OK at
 * once if this process already has a world of these ranks. */
HVD_API int hvd_init(const struct hvd_config *config);
/* Leaves the world. Pending operations of this rank fail with HVD_PRECONDITION; other
 * ranks that have pending operations, or submit later, get an error that names this
 * rank and, if hvd_set_exit_cause was called, its failure. Takes at most 5 s and needs no action of other ranks. Calling it without a
 * world is no error. hvd_init may follow. */
HVD_API int hvd_shutdown(void);
HVD_API int hvd_is_initialized(void); /* 1 or 0 */

/* Sets why this program is about to end, for the next hvd_shutdown or exit(): operations of
 * the other ranks then fail with HVD_ABORTED and "rank 1 (host b, pid 7) ended: TEXT"; with
 * an exit_code of 1 to 255: "exited with code 3: TEXT". text: a line of at most 279 bytes of
 * UTF-8, without control characters (these are replaced, what is longer is cut); NULL:
 * none. NULL and 0 take the cause back. Without a cause, hvd_shutdown ends the world in
 * order, and exit(3) says "exited with code 3". A text with secrets does not belong here:
 * it is in the logs of all ranks. */
HVD_API int hvd_set_exit_cause(const char *text, int exit_code);
/* 1 if this process' world, or the last one that it left, has ended because another rank
 * failed or was lost; else 0. A program that then ends with an error should exit with
 * HVD_EXIT_OTHER_RANK, as Python programs do for an uncaught HorovodInternalError.
 * Launchers never take this code for the first cause, and it is low because srun returns
 * the highest code of all tasks. */
HVD_API int hvd_ended_by_other(void);
#define HVD_EXIT_OTHER_RANK 6

/* The place of this rank. HVD_NOT_INITIALIZED, which is negative, before hvd_init.
 * hvd_is_homogeneous returns 1 when all hosts have the same number of ranks, else 0. */
HVD_API int hvd_rank(void);
HVD_API int hvd_size(void);
HVD_API int hvd_local_rank(void);
HVD_API int hvd_local_size(void);
HVD_API int hvd_cross_rank(void);
HVD_API int hvd_cross_size(void);
HVD_API int hvd_is_homogeneous(void);

/* --- operations --- */

/* Identifies a submitted operation, always > 0. Valid until hvd_release, also after
 * hvd_shutdown. */
typedef int64_t hvd_handle;

/* Called exactly once, when the operation has ended: on the runtime's background thread
 * or on any thread inside hvd_wait*, hvd_shutdown or a call that changes process sets.
 * The runtime holds no lock meanwhile. The callback must not block. It may submit
 * operations, also under the same name.
 * error: NULL on HVD_OK; else the message, valid during the call.
 * hvd_result, hvd_received_splits and hvd_joined_last of this operation may be called
 * in it: the handle was stored before the operation was submitted. The handle must
 * still be released. */
typedef void (*hvd_done_fn)(void *arg, int status, const char *error);

/* Provides memory for a result whose shape is known only after negotiation. Returns
 * memory of size_bytes, which stays the caller's. NULL: this rank still takes part in
 * the collective, and its operation fails with HVD_NO_MEMORY. Same rules as
 * hvd_done_fn. */
typedef void *(*hvd_alloc_fn)(void *arg,
                              int ndim,
                              const int64_t *shape,
                              size_t size_bytes);

/* --- hvd_tensor.device --- */

/* The memory is the host's. */
#define HVD_DEVICE_HOST       (-1)
/* The GPU that the pointers belong to. */
#define HVD_DEVICE_OF_POINTER (-2)
/* Host memory of a program that would have used a GPU if this rank had one. If other
 * ranks have the tensor on a GPU, the mismatch error says why this rank has none. The
 * error says so with HVD_DEVICE_HOST too, once a GPU tensor of this rank has been
 * refused. */
#define HVD_DEVICE_NONE       (-3)
/* hvd_tensor.stream: wait for all streams of the device. For callers that do not know
 * which stream produces the tensor. */
#define HVD_STREAM_ALL        ((void *)(uintptr_t)-1)

/* One tensor of a collective. Versioned as struct hvd_config. */
struct hvd_tensor {
    size_t size_bytes; /* sizeof(struct hvd_tensor) */
    /* Unique among this rank's pending operations of the process set, 1 to 511 bytes,
     * not beginning with "hvd://". Copied. */
    const char *name;
    /* Valid until the operation has ended. output may equal data. */
    const void *data;
    void *output;
    int dtype; /* enum hvd_dtype */
    /* ndim entries, at most HVD_MAX_DIMS; ndim 0 is a scalar. Copied. */
    int ndim;
    const int64_t *shape;
    /* Where data and output are: HVD_DEVICE_HOST, the CUDA ordinal of a GPU as this
     * process numbers them, or one of the other HVD_DEVICE_ values. Either all ranks
     * have the tensor on GPUs or all have it in host memory. A rank uses one GPU per
     * world. */
    int device;
    void *ready_event; /* must be NULL */
    hvd_done_fn done;  /* may be NULL */
    void *done_arg;
    /* NULL: no group. The tensors of a group are carried out only when all group_size
     * tensors with this group name have been submitted on all ranks, and fail together.
     * The name must be the same on all ranks; it may be reused when all tensors of the
     * group have ended. */
    const char *group;
    int group_size;
    /* Allreduce only: "fp16", "bf16", "int8", "topk:ratio=0.001", "powersgd:rank=4"
     * ...; "none" or "": no compression; NULL: HVD_COMPRESSION decides. Must be the
     * same on all ranks. runtime/core/compress/codec.h describes the codecs. */
    const char *compression;
    /* 1: create the operation and its handle, but submit it with hvd_submit_held. Used
     * for groups, because all ranks would wait for the rest of a group that was
     * submitted in part. 0: submit at once. */
    int is_held;
    /* GPU tensors: the CUDA stream that produces the inputs. They are read, and output
     * is written, after all work that was in the stream at the time of the submit (for
     * held operations: of hvd_submit_held). Memory for a result is allocated in stream
     * order. NULL: the legacy default stream. */
    void *stream;
};

/* Common to the functions below. process_set: 0 for all ranks, or the id of a process
 * set that this rank is in. Roots and peers are ranks of the world, in a process set
 * too. *ret_handle is set before the operation is submitted. Dtype, shape, operation,
 * scales and root must agree between ranks; where they do not, the operation fails on
 * all ranks of the set with HVD_INVALID_ARGUMENT and the world continues. */

/* output = postscale * reduce(prescale * data) over all ranks of the set. 16-bit floats
 * are summed in float32 and rounded once on each host and once at the end. AVERAGE of
 * integers divides toward zero; other integer operations wrap as in C. bool: SUM and
 * MAX are "or", MIN and PRODUCT are "and"; AVERAGE and ADASUM are refused. ADASUM takes
 * floating point only. */
HVD_API int hvd_allreduce_async(const struct hvd_tensor *t,
                                int op,
                                double prescale,
                                double postscale,
                                int process_set,
                                hvd_handle *ret_handle);
/* Concatenates the tensors along dimension 0, in rank order. Dimension 0 may differ
 * between ranks; the other dimensions must not. A scalar is an error. t->output is not
 * used. The memory of the result comes from alloc; with alloc NULL from the runtime:
 * hvd_result() returns it, and it is valid until hvd_release(). */
HVD_API int hvd_allgather_async(const struct hvd_tensor *t,
                                hvd_alloc_fn alloc,
                                void *alloc_arg,
                                int process_set,
                                hvd_handle *ret_handle);
/* Copies the data of root_rank to the output of every rank. */
HVD_API int hvd_broadcast_async(const struct hvd_tensor *t,
                                int root_rank,
                                int process_set,
                                hvd_handle *ret_handle);
/* As allreduce, but only the output of root_rank is written. It may be NULL
 * elsewhere. */
HVD_API int hvd_reduce_async(const struct hvd_tensor *t,
                             int op,
                             double prescale,
                             double postscale,
                             int root_rank,
                             int process_set,
                             hvd_handle *ret_handle);
/* As allgather, but only root_rank gets the result. On the other ranks alloc is not
 * called and hvd_result returns a dimension 0 of length 0. */
HVD_API int hvd_gather_async(const struct hvd_tensor *t,
                             int root_rank,
                             hvd_alloc_fn alloc,
                             void *alloc_arg,
                             int process_set,
                             hvd_handle *ret_handle);
/* As allreduce, but each rank gets only its share of the rows of dimension 0. The rows
 * are split evenly in rank order; the first dim0 % size ranks of the set get one row
 * more. The result is returned as by allgather. */
HVD_API int hvd_reducescatter_async(const struct hvd_tensor *t,
                                    int op,
                                    double prescale,
                                    double postscale,
                                    hvd_alloc_fn alloc,
                                    void *alloc_arg,
                                    int process_set,
                                    hvd_handle *ret_handle);
/* Sends splits[j] rows of dimension 0 to rank j of the set. splits has n_splits
 * entries, which must be the size of the set, and must sum up to dimension 0. NULL:
 * even splits; dimension 0 must be a multiple of the size. The other dimensions are the
 * same on all ranks. The result, ordered by sender, is returned as by allgather;
 * hvd_received_splits returns the number of rows from each sender. */
HVD_API int hvd_alltoall_async(const struct hvd_tensor *t,
                               const int64_t *splits,
                               int n_splits,
                               hvd_alloc_fn alloc,
                               void *alloc_arg,
                               int process_set,
                               hvd_handle *ret_handle);
/* The rows received from each rank of the set by an alltoall that ended with HVD_OK;
 * HVD_INVALID_ARGUMENT before. At most n entries are written to ret. Returns the number
 * of ranks. */
HVD_API int hvd_received_splits(hvd_handle h, int64_t *ret, int n);
/* Sends t->data to t->output of one other rank. Both ranks use the same name, dtype and
 * shape and pass the rank of the other. A rank may have any number of sends and
 * receives pending, in any order, also both directions under one name. In host memory
 * it carries out one with each of several peers at the same time; those with one peer
 * follow each other. Only the two ranks take part. Before the first transfer of a pair,
 * however, all ranks of the world connect the pair; their runtimes do that without the
 * programs' help. From then on until shutdown the pair holds one or two descriptors and
 * the memory its tensors needed, at most 1.1 MiB for each direction.
 * Error messages, stall reports and the timeline show a transfer as one SENDRECV
 * operation whose name includes the direction, such as "x (0 -> 1)"; this takes up to
 * 17 bytes of the 511 bytes of a name. All tensors of a group must be between the same
 * two ranks. While one of the two has joined, the operation of the other fails. */
HVD_API int
hvd_send_async(const struct hvd_tensor *t, int dst_rank, hvd_handle *ret_handle);
HVD_API int
hvd_recv_async(const struct hvd_tensor *t, int src_rank, hvd_handle *ret_handle);
/* Ends when another rank has a send to this rank pending under this name, which this
 * rank has not received; hvd_probed_rank then returns that rank. Receive from it to get
 * the tensor: of several sends the probe names the oldest. One probe of a name is
 * pending at a time. t: only name, done and is_held are used. */
HVD_API int hvd_probe_async(const struct hvd_tensor *t, hvd_handle *ret_handle);
/* A rank; HVD_INVALID_ARGUMENT before the end of the probe. */
HVD_API int hvd_probed_rank(hvd_handle h);
/* Ends when all ranks of the set have submitted it. t: only name, done and
 * is_held are used. */
HVD_API int
hvd_barrier_async(const struct hvd_tensor *t, int process_set, hvd_handle *ret_handle);
/* This rank has no more data. Until all ranks have joined it takes part in the
 * allreduces (SUM and AVERAGE) of the other ranks with zeros; other collectives fail on
 * all ranks meanwhile. This rank may submit nothing until the join has ended. Ends when
 * all ranks have joined; then hvd_joined_last returns the last one of them. t: only
 * name, done and device are used. device > 0: the GPU on which zeros are allocated if
 * this rank has had no GPU tensor; otherwise the GPU of its local rank. */
HVD_API int hvd_join_async(const struct hvd_tensor *t, hvd_handle *ret_handle);
/* A rank; HVD_INVALID_ARGUMENT before the end of the join. */
HVD_API int hvd_joined_last(hvd_handle h);

/* --- process sets --- */

/* A process set is a subset of the ranks with its own collectives. An id is used once
 * in the life of a world. id % HVD_PROCESS_SET_NUMBERS is the number that error
 * messages and timelines show; as in Horovod, the number of a removed set is used
 * again. */
#define HVD_PROCESS_SET_NUMBERS 4096

/* Creates a set of these ranks, in any order. All ranks of the world must call it, in
 * the same order and with the same ranks. Blocks until all have. HVD_INVALID_ARGUMENT
 * if such a call has created a set of the same ranks. */
HVD_API int hvd_process_set_add(const int *ranks, int n, int *ret_id);
/* As hvd_process_set_add, but only the ranks of the new set call it and block; the
 * runtimes of the other ranks take part without their programs' help. If such a call has
 * created a set of these ranks, or they are the world, its id is returned. A set of
 * hvd_process_set_add is another one, even of the same ranks. Ranks that are in two new
 * sets must create them in the same order. */
HVD_API int hvd_process_set_meet(const int *ranks, int n, int *ret_id);
/* Removes a set. All ranks of the world must call it. Refused for set 0, and while
 * tensors of the set are pending. */
HVD_API int hvd_process_set_remove(int id);
/* Returns the number of sets, set 0 included, without those of hvd_process_set_meet,
 * which a rank outside of them cannot count on. At most n ids, in the order of their
 * numbers, are written to ret. */
HVD_API int hvd_process_set_ids(int *ret, int n);
/* The size of a set; the place of this rank in it; its ranks (at most n are written to
 * ret; returns how many the set has). hvd_process_set_rank returns -1, with an empty
 * hvd_last_error(), if this rank is not in the set. HVD_INVALID_ARGUMENT for an unknown
 * id. */
HVD_API int hvd_process_set_size(int id);
HVD_API int hvd_process_set_rank(int id);
HVD_API int hvd_process_set_ranks(int id, int *ret, int n);

/* --- waiting --- */

/* Submits n operations that were created with hvd_tensor.is_held: all of them or none.
 * If one cannot be submitted, none is, no callback runs, and all stay held; they can be
 * submitted again or released. */
HVD_API int hvd_submit_held(const hvd_handle *handles, int n);

/* Returns HVD_IN_PROGRESS or the final status. Never blocks. */
HVD_API int hvd_poll(hvd_handle h);
/* Waits for the end of the operation and returns its status. timeout_ms < 0: no limit;
 * the runtime's failure detection ends the wait when a rank is lost. HVD_TIMEOUT when
 * the timeout has expired. A thread that carries out a collective itself returns only
 * when that is done, also after its timeout; a silent peer ends it within
 * HVD_PEER_TIMEOUT. */
HVD_API int hvd_wait(hvd_handle h, int64_t timeout_ms);
/* GPU tensors: makes the stream wait for the operation, so that work that is put into
 * the stream afterwards sees the outputs. The calling thread waits only until the
 * operation is on its way on the GPU, in most cases until all ranks have submitted it.
 * The handle may be released then. Reuse data and output only in this stream or in
 * another one that has waited. A result that the runtime allocated is freed in the
 * order of the stream that waited last. A failure after the return is reported by the
 * next call. For host tensors, and with HVD_NANCHECK, the call is the same as
 * hvd_wait. */
HVD_API int hvd_wait_on_stream(hvd_handle h, void *stream, int64_t timeout_ms);
/* hvd_wait_on_stream for n operations, with one wait for each batch. Returns the first
 * failure; the stream waits for the operations before it. */
HVD_API int
hvd_wait_many(const hvd_handle *handles, int n, void *stream, int64_t timeout_ms);
/* Sets *ret_device to the GPU that the output is on, or to HVD_DEVICE_HOST. */
HVD_API int hvd_result_device(hvd_handle h, int *ret_device);
/* The result of an allgather, gather, reducescatter or alltoall. ret_shape must have
 * room for HVD_MAX_DIMS entries. *ret_data is valid until hvd_release. HVD_IN_PROGRESS
 * before the end; for GPU tensors the result is available after hvd_wait_on_stream. */
HVD_API int
hvd_result(hvd_handle h, void **ret_data, int *ret_ndim, int64_t *ret_shape);
/* Releases the handle. A pending operation continues; its buffers must stay valid until
 * it has ended. */
HVD_API int hvd_release(hvd_handle h);

/* --- errors and information --- */

/* The error message of the calling thread's last failed call, "" if that call
 * succeeded. Valid until the thread's next call. */
HVD_API const char *hvd_last_error(void);
/* Called when other ranks have waited for HOROVOD_STALL_CHECK_TIME_SECONDS for a tensor
 * that this rank has not submitted, if HVD_STALL_STACKS=1 on rank 0. It runs on the
 * runtime's background thread or on a thread in hvd_wait; it must not block or call
 * hvd_*. Intended to print what the program is doing. hvd_on_late sets the function,
 * for later worlds too; NULL removes it. */
typedef void (*hvd_late_fn)(void *arg, const char *tensor);
HVD_API void hvd_on_late(hvd_late_fn fn, void *arg);
HVD_API const char *hvd_version(void); /* "0.1.0" */
/* Writes one line of JSON about this process: rank, size, launcher, backend, transport
 * to each rank. At most n bytes with the NUL. Returns the length without the NUL. */
HVD_API size_t hvd_describe(char *buf, size_t n);

/* Writes one line of JSON about this machine's GPU support: "can" (bool), "problem"
 * (why not), "driver", "cuda", "nccl", "nccl_path", "kernels", "gpus". Needs no world.
 * Length as above. */
HVD_API size_t hvd_device_report(char *buf, size_t n);

#define HVD_MAC_BYTES 32
/* HMAC-SHA-256 of data[n] with a key that the ranks of this world derive from the job
 * token: for bytes that ranks send each other and then execute or unpickle. The
 * receiver computes it again and compares. A MAC is valid for one purpose, a text that
 * should say what the bytes are and who sends them. Where the launcher gives no secret
 * (a warning at init says so), others can compute it, too. */
HVD_API int hvd_mac(const char *purpose,
                    const void *data,
                    size_t n,
                    unsigned char ret_mac[HVD_MAC_BYTES]);

/* --- registered buffers --- */

/* Registers GPU memory with NCCL: t->data with the size of t->shape. Collectives of
 * tensors inside it avoid NCCL's own copy where the machine supports that (NVLink
 * SHARP, InfiniBand SHARP, peers of one node). Needs NCCL 2.19. t: name, data, dtype,
 * ndim, shape, device, stream and done are used.
 *
 * All ranks of the set call it, each with a buffer of the same size. The registration
 * applies to this process set and lasts until hvd_deregister, until the set is removed,
 * or until hvd_shutdown; the memory must stay valid until then. A set can have 255
 * buffers at a time; they must not overlap. If one rank fails to register, no rank
 * keeps the registration and the operation fails on all with a message that names the
 * rank: HVD_UNSUPPORTED if NCCL or memory is the reason, HVD_INVALID_ARGUMENT if the
 * program is.
 *
 * While the operation is pending no tensor inside the buffer may be pending. Afterwards
 * a tensor must lie in the same registered buffer on all ranks, or in none on all
 * ranks; otherwise it fails as a mismatch. data and output must lie in the same buffer.
 * For allgather, gather, reducescatter and alltoall only data counts; memory from
 * hvd_alloc_fn must not lie in a registered buffer; an empty tensor counts by its
 * pointer. Tensors in a buffer are not fused with others outside it, and fail while a
 * rank has joined. */
HVD_API int
hvd_register_async(const struct hvd_tensor *t, int process_set, hvd_handle *ret_handle);
/* Removes the registration of the buffer that data lies in. All ranks of the set call
 * it for the same buffer, and it blocks until all have. Waits for operations inside the
 * buffer. Afterwards the memory may be freed. */
HVD_API int hvd_deregister(const void *data, int process_set);
/* The same without blocking. The memory may be freed when the operation has ended. */
HVD_API int
hvd_deregister_async(const void *data, int process_set, hvd_handle *ret_handle);
/* The path of the NCCL library that this process's framework has loaded. Call before
 * hvd_init. */
HVD_API void hvd_device_hint(const char *nccl_path);

/* --- progress --- */

#define HVD_PROGRESS_METRICS  16
#define HVD_METRIC_NAME_BYTES 128 /* with NUL */
struct hvd_metric {
    const char *name; /* UTF-8 without control characters, not empty. Copied. */
    double value;     /* may be infinite or NaN */
};

/* How far the program is, as it counts. Versioned as struct hvd_config. Every number may
 * be any that is not negative; -1: not given, the last one given stays. */
struct hvd_progress {
    size_t size_bytes;         /* sizeof(struct hvd_progress) */
    int64_t step, total_steps; /* of the training loop */
    int64_t epoch, total_epochs;
    /* That the whole job, all its ranks together, has processed so far. Samples per
     * second are made of it. */
    int64_t samples;
    /* 1: the program has saved its state as it is at `step`, and a restart continues
     * from here. Such a call is not counted as a sign of progress. */
    int is_commit;
    /* A metric that is not given keeps its value. A name beyond HVD_PROGRESS_METRICS takes
     * the place of the metric that was set longest ago. */
    int n_metrics;
    const struct hvd_metric *metrics;
};
/* Reports progress, for the status of the job: of a HorovodJob, of hvd-agent's live
 * report. One rank is enough; of several ranks the lowest one counts. The call stores
 * some words in this rank's page and takes well below a microsecond. What was reported
 * stays in the next world of this process. A program that never calls it has the steps of
 * its frozen plan (struct hvd_stats) as progress. */
HVD_API int hvd_progress(const struct hvd_progress *progress);

/* --- elastic jobs --- */

/* A job that horovodrun --min-np, or a HorovodJob with elasticPolicy, has started: its
 * launcher chooses the ranks of each world. hvd_init waits for a world without a limit, and
 * HOROVOD_START_TIMEOUT counts from the moment the launcher has one. When a rank is lost,
 * all operations fail with HVD_ABORTED; hvd_shutdown and hvd_init then give the next world.
 * hvd_config.ranks is refused, and sets of hvd_config whose ranks the world does not have
 * are left out, so ids differ from world to world. hvd_progress with is_commit on rank 0 is what the launcher
 * counts as progress between two losses. Everywhere else these return 0. */

#define HVD_ELASTIC_REMOVED 1
#define HVD_ELASTIC_ADDED   2
/* What the launcher has announced about the next world since the last call: bits of the
 * above, 0: none. The program leaves this world (hvd_shutdown, hvd_init) as soon as
 * its state is saved. Ranks may receive it at different times. */
HVD_API int hvd_elastic_take_change(void);
/* 1: a rank of this world is in its first world, and lacks the state of the other ranks.
 * The same on all ranks. */
HVD_API int hvd_elastic_has_new(void);
/* 1: this world has ended, or is broken: new operations fail until hvd_shutdown and
 * hvd_init. */
HVD_API int hvd_elastic_is_over(void);

/* --- counters and timeline --- */

#define HVD_STATS_KINDS 16
/* Counters of this rank since the init of this world. Versioned: set size_bytes to
 * sizeof(struct hvd_stats); new fields are added at the end. Arrays are indexed by the
 * kind of collective:
 *
 *   0 allreduce   4 alltoall         8 join
 *   1 allgather   5 reducescatter    9 process set created
 *   2 broadcast   6 reduce          10 process set removed
 *   3 barrier     7 gather          11 send (bytes in) and receive (bytes out)
 *                                   12 buffer registered or deregistered
 *
 * The fields are read one by one, so they may differ by a few operations. */
struct hvd_stats {
    size_t size_bytes;
    int rank, size;
    uint64_t age_ns;                   /* since init */
    double allreduce_bus_bytes_per_s;  /* 2(n-1)/n x bytes / time inside the backend */
    double steps_per_s;                /* of the steps counted below */
    uint64_t tensors[HVD_STATS_KINDS]; /* ended with HVD_OK */
    uint64_t bytes_in[HVD_STATS_KINDS], bytes_out[HVD_STATS_KINDS];
    uint64_t failed;                      /* tensors that ended with an error */
    uint64_t batches, fused;              /* batches; tensors that shared a batch */
    uint64_t cache_hits, cache_misses;    /* requests sent as a bit; in full */
    uint64_t plans, plan_leaves, planned; /* frozen; left; tensors run by plan */
    uint64_t agreements;                  /* rounds of agreement in a plan */
    uint64_t control_sent, control_sent_bytes; /* messages about work */
    uint64_t control_received, control_received_bytes;
    uint64_t wait_ns;    /* tensors' time from submission to their batch, summed */
    uint64_t backend_ns; /* inside the backend, waiting for peers there included */
    uint64_t allreduce_ns, allreduce_bus_bytes;
    uint64_t steps, step_ns; /* whole rounds of a plan, and the time they took */
    /* Tensors with compression: their bytes, and the bytes of their encoding. */
    uint64_t compression_raw, compression_wire;
    /* Current values of HOROVOD_FUSION_THRESHOLD and HOROVOD_CYCLE_TIME. is_tuning is 1
     * on rank 0 while HOROVOD_AUTOTUNE searches. */
    uint64_t fusion_bytes, gather_ns, is_tuning;
    /* GPU tensors: batches; bytes that passed through a buffer of the runtime (packed,
     * converted, compressed); bytes that NCCL moved in place; the part of both that was
     * in registered buffers. */
    uint64_t device_batches, device_packed_bytes, device_direct_bytes;
    uint64_t device_registered_bytes;
    /* 90: compute capability 9.0; 22705: NCCL 2.27.5; 12040: the driver's CUDA 12.4. 0
     * before the first GPU tensor. */
    uint64_t device_sm, device_nccl, device_cuda;
    uint64_t blocked_ns; /* in which at least one thread waited for an operation */
    /* From the submission of a batch's last tensor on this rank (on a GPU: from when the
     * device has it ready) to the end of the batch, summed: this rank waited for others. */
    uint64_t ready_ns;
    /* On rank 0. A tensor that waits for stall_ns for some ranks is reported as stalled; 0:
     * never. waits_ns: wall time since the epoch when the oldest tensor was submitted that
     * has waited a quarter of it; 0: there is none. */
    uint64_t stall_ns, waits_ns;
};
HVD_API int hvd_stats(struct hvd_stats *ret);
/* The same in Prometheus text format. At most n bytes with the NUL. *ret_n, which may
 * be NULL, is set to the length without the NUL. */
HVD_API int hvd_stats_text(char *buf, size_t n, size_t *ret_n);

/* Starts the timeline, a file for chrome://tracing or Perfetto with Horovod's names.
 * HOROVOD_TIMELINE starts one during init; this function starts one at any time. Only
 * rank 0 writes; on other ranks both functions do nothing and return HVD_OK. An
 * existing file is replaced. The file is valid JSON at any time. mark_cycles: mark the
 * start of each round of work. With HVD_TIMELINE_ALL=1 on rank 0 the file contains all
 * ranks, on rank 0's clock. */
HVD_API int hvd_timeline_start(const char *path, int mark_cycles);
/* Stops the timeline. Returns when the file is complete. */
HVD_API int hvd_timeline_stop(void);

#ifdef __cplusplus
}
#endif
#endif
