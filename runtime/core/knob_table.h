/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the variables that tune the runtime.
 *
 *   X(name, kind, status, fallback, min, max, choices, meaning, why)
 *
 * struct knob (knobs.h) describes the columns. After changing a row, run
 * core_knobs_test with GOLDEN_UPDATE=1: it writes runtime/doc/variables.md and
 * runtime/hvd-environment.7. */
#ifndef RUNTIME_CORE_KNOB_TABLE_H
#define RUNTIME_CORE_KNOB_TABLE_H

/* clang-format off */

#define KNOB_DAY_MS  86400000
#define KNOB_NO_MPI  "MPI is not used"
#define KNOB_NO_CCL  "oneCCL is not used"
#define KNOB_BUILD   "it belongs to building Horovod; nothing is compiled here"
#define KNOB_SPARK   "Spark's launcher is not part of Ringmaster"
#define KNOB_NO_ELASTIC "this job keeps its size: start it with horovodrun --min-np, which sets the variable"

#define KNOBS(X)                                                                              \
    /* starting and losing ranks */                                                           \
    X(HOROVOD_START_TIMEOUT, SECONDS, HONOURED, "600", 1, KNOB_DAY_MS, "",                    \
      "limit on the time until all ranks are connected, under every launcher", "")            \
    X(HVD_PEER_TIMEOUT, SECONDS, HONOURED, "30", 500, KNOB_DAY_MS, "",                        \
      "a rank that sends nothing for this long is lost", "")                                  \
    X(HOROVOD_GLOO_TIMEOUT_SECONDS, SECONDS, HONOURED, "", 500, KNOB_DAY_MS, "",              \
      "same as HVD_PEER_TIMEOUT, which takes precedence", "")                                 \
    X(HVD_CONTROL_FANOUT, NUMBER, HONOURED, "8", 2, 64, "",                                   \
      "children of a rank in the tree of the control channel, once among hosts and once "     \
      "within a host; rank 0's value is used", "")                                            \
    X(HOROVOD_STALL_CHECK_DISABLE, BOOL, HONOURED, "0", 0, 1, "",                             \
      "1: stalled tensors are neither reported nor end the world", "")                        \
    X(HOROVOD_STALL_CHECK_TIME_SECONDS, SECONDS, HONOURED, "60", 0, KNOB_DAY_MS, "",          \
      "age at which a tensor is reported as stalled; 0: never; also the limit on the wait "   \
      "for work of the program in front of aborted operations on a GPU, if "                  \
      "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is 0; 60 s if both are", "")                       \
    X(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, SECONDS, HONOURED, "0", 0, KNOB_DAY_MS, "",        \
      "age at which a stalled tensor ends the world; 0: never; also the limit on the wait "   \
      "for work of the program in front of aborted operations on a GPU", "")                  \
    X(HVD_DEADLOCK_TIMEOUT, SECONDS, HONOURED, "600", 0, KNOB_DAY_MS, "",                     \
      "ranks that have waited only for each other for this long end the world; 0: never; "    \
      "not used if HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is set; rank 0's value is used", "")  \
    X(HVD_STALL_STACKS, BOOL, HONOURED, "0", 0, 1, "",                                        \
      "1: with each stall report the missing ranks log it themselves, with the stacks of all "\
      "their Python threads; rank 0's value is used", "")                                     \
    X(HOROVOD_ELASTIC, BOOL, REFUSED, "0", 0, 1, "",                                          \
      "1: the world may change its size", KNOB_NO_ELASTIC)                                    \
    X(HOROVOD_ELASTIC_TIMEOUT, SECONDS, HONOURED, "600", 1, 7 * (uint64_t)KNOB_DAY_MS, "",    \
      "limit on the time until all ranks are connected again after a failure in "             \
      "hvd.elastic.run; none in an elastic job, whose launcher has the limit", "")            \
    X(HVD_ELASTIC_FAILURES, NUMBER, HONOURED, "100", 1, 1000000, "",                          \
      "failures after which hvd.elastic.run gives up; it always gives up after three "        \
      "without a commit in between; in an elastic job losses do not count", "")               \
    X(HVD_PIN_GPU, BOOL, HONOURED, "1", 0, 1, "",                                             \
      "1: hvd.init() of the TensorFlow binding makes only the local rank's GPU visible, if "  \
      "several are and the program has chosen none", "")                                      \
    X(HVD_TF_BLOCKING, BOOL, HONOURED, "0", 0, 1, "",                                         \
      "1: an operation of TensorFlow occupies one of its threads until it ends, and those of "\
      "one graph run one by one; always so under TensorFlow 2.12, elsewhere for tests only", "") \
    /* negotiation and fusion */                                                              \
    X(HOROVOD_FUSION_THRESHOLD, BYTES, HONOURED, "134217728", 0, 1ull << 40, "",              \
      "bytes of one fused batch; K, M and G allowed; 0: no fusion; rank 0's value is used; a " \
      "GPU has a buffer of this size for each stream, 256 MiB at most, and packs no more than "\
      "the smallest of all ranks", "")                                                        \
    X(HOROVOD_CYCLE_TIME, MS, HONOURED, "0", 0, 10000000, "",                                 \
      "milliseconds that a tensor waits at most for others to be fused with; 0: none; the "   \
      "wait ends early when a batch is full, the plan is complete or a thread waits", "")     \
    X(HOROVOD_CACHE_CAPACITY, NUMBER, HONOURED, "1024", 0, 65536, "",                         \
      "tensors that are remembered between steps; 0: each is negotiated in full each "        \
      "time; rank 0's value is used", "")                                                     \
    X(HOROVOD_DISABLE_GROUP_FUSION, BOOL, HONOURED, "0", 0, 1, "",                            \
      "1: a group is fused with nothing else; rank 0's value is used", "")                    \
    X(HOROVOD_DYNAMIC_PROCESS_SETS, BOOL, NO_EFFECT, "0", 0, 1, "",                           \
      "1: process sets may be added and removed after init",                                  \
      "they always may; Python refuses it where this is 0")                                   \
    X(HOROVOD_DETERMINISTIC, BOOL, HONOURED, "0", 0, 1, "",                                   \
      "1: bitwise equal results from run to run; always so here: the order of a sum never "   \
      "depends on fusion or on the order of arrival", "")                                     \
    X(HOROVOD_HIERARCHICAL_ALLREDUCE, BOOL, NO_EFFECT, "0", 0, 1, "",                         \
      "1: reduce within hosts first",                                                         \
      "every allreduce uses shared memory within hosts and TCP between them")                 \
    X(HOROVOD_HIERARCHICAL_ALLGATHER, BOOL, NO_EFFECT, "0", 0, 1, "",                         \
      "1: gather within hosts first",                                                         \
      "every allgather uses shared memory within hosts and TCP between them")                 \
    X(HOROVOD_TORUS_ALLREDUCE, BOOL, NO_EFFECT, "0", 0, 1, "",                                \
      "1: two-dimensional allreduce of NCCL", "NCCL chooses its algorithms")                  \
    X(HOROVOD_BATCH_D2D_MEMCOPIES, BOOL, HONOURED, "1", 0, 1, "",                             \
      "1: one GPU kernel packs a fused batch; 0: a copy for each tensor", "")                 \
    X(HOROVOD_NUM_NCCL_STREAMS, NUMBER, HONOURED, "1", 1, 1024, "",                           \
      "streams that batches of GPU tensors use in turn; 1 with NCCL before 2.26 or a driver " \
      "before CUDA 12.3; the smallest value of all ranks is used", "")                        \
    X(HOROVOD_ENABLE_ASYNC_COMPLETION, BOOL, HONOURED, "1", 0, 1, "",                         \
      "PyTorch's synchronize() of GPU tensors: 1: the current stream waits, 0: the thread "   \
      "waits", "")                                                                            \
    X(HOROVOD_ENABLE_XLA_OPS, BOOL, NOT_YET, "0", 0, 1, "",                                   \
      "1: allreduce inside XLA clusters",                                                     \
      "operations run outside XLA clusters in this version")                                  \
    X(HOROVOD_DISABLE_NVTX_RANGES, BOOL, NO_EFFECT, "0", 0, 1, "",                            \
      "1: no NVTX ranges", "none are made")                                                   \
    X(HOROVOD_ADASUM_MPI_CHUNK_SIZE, BYTES, NO_EFFECT, "1073741824", 0, 1ull << 40, "",       \
      "bytes of one MPI message of Adasum", KNOB_NO_MPI)                                      \
    /* backends and threads */                                                                \
    X(HOROVOD_CPU_OPERATIONS, CHOICE, NO_EFFECT, "", 0, 0, "mpi gloo ccl",                    \
      "library for tensors in host memory", "the runtime has its own")                        \
    X(HOROVOD_CONTROLLER, CHOICE, NO_EFFECT, "", 0, 0, "mpi gloo",                            \
      "library that ranks negotiate with", "the runtime has its own")                         \
    X(HOROVOD_MPI_THREADS_DISABLE, BOOL, NO_EFFECT, "0", 0, 1, "",                            \
      "1: MPI without threads", KNOB_NO_MPI)                                                  \
    X(HOROVOD_CCL_CACHE, BOOL, NO_EFFECT, "0", 0, 1, "",                                      \
      "1: oneCCL's cache", KNOB_NO_CCL)                                                       \
    X(HOROVOD_CCL_BGT_AFFINITY, NUMBER, NO_EFFECT, "", 0, 65535, "",                          \
      "core of oneCCL's thread", KNOB_NO_CCL)                                                 \
    X(HOROVOD_THREAD_AFFINITY, LIST, HONOURED, "", 0, 65535, "",                              \
      "core of the runtime's thread: a comma list, one entry for each local rank", "")        \
    X(HVD_TRANSPORT, CHOICE, HONOURED, "auto", 0, 0, "auto tcp",                              \
      "tcp: no shared memory", "")                                                            \
    X(HVD_DATA_CRC, BOOL, HONOURED, "0", 0, 1, "",                                            \
      "1: data that ranks send each other over TCP has a checksum (CRC32C), and damage ends " \
      "the world; must be equal on all ranks", "")                                            \
    X(HVD_DATA_MAC, BOOL, HONOURED, "0", 0, 1, "",                                            \
      "1: data that ranks send each other over TCP has a MAC (HMAC-SHA-256 by the job token) "\
      "instead of a checksum, for networks where others could change it; slow; must be equal "\
      "on all ranks; data between GPUs is not covered", "")                                   \
    X(HVD_HOST_ID, TEXT, HONOURED, "", 0, 0, "",                                              \
      "ranks whose values differ count as on different hosts", "")                            \
    /* GPUs */                                                                                \
    X(HVD_GPU, CHOICE, HONOURED, "auto", 0, 0, "auto off",                                    \
      "off: tensors in GPU memory are refused", "")                                           \
    X(HVD_NCCL_LIB, TEXT, HONOURED, "", 0, 0, "",                                             \
      "path of the libnccl.so.2 to use; no other is tried", "")                               \
    X(HVD_GPU_DIRECT, BYTES, HONOURED, "8388608", 0, 1ull << 40, "",                          \
      "size in bytes from which a GPU tensor is moved in place and not packed; K, M and G "   \
      "allowed; rank 0's value is used", "")                                                  \
    X(HVD_GPU_POOL, BYTES, HONOURED, "268435456", 0, 1ull << 40, "",                          \
      "bytes of GPU memory that are kept between results; K, M and G allowed", "")            \
    X(HVD_GPU_GRAPH, BOOL, HONOURED, "0", 0, 1, "",                                           \
      "1: batches that repeat are launched as CUDA graphs; needs drivers for CUDA 11.4 or "   \
      "later on all ranks; rank 0's value is used", "")                                       \
    X(HVD_GPU_REGISTER, BOOL, HONOURED, "0", 0, 1, "",                                        \
      "1: the fusion buffer is registered with NCCL, except for batches of HVD_GPU_GRAPH; "   \
      "needs NCCL 2.19 or later; rank 0's value is used", "")                                 \
    X(HVD_GPU_READY, CHOICE, HONOURED, "auto", 0, 0, "auto sync",                             \
      "sync: before each operation on a TensorFlow tensor the whole device is synchronised", "") \
    X(HVD_GPU_PTX, BOOL, HONOURED, "0", 0, 1, "",                                             \
      "1: the driver compiles the kernels even if there are binaries for this GPU", "")       \
    /* seeing what happens */                                                                 \
    X(HOROVOD_LOG_LEVEL, CHOICE, HONOURED, "warning", 0, 0,                                   \
      "trace debug info warning warn error fatal", "lowest level that is logged", "")         \
    X(HOROVOD_LOG_HIDE_TIME, BOOL, HONOURED, "0", 0, 1, "",                                   \
      "1: log lines without time", "")                                                        \
    X(HOROVOD_LOG_TIMESTAMP, BOOL, HONOURED, "1", 0, 1, "",                                   \
      "0: log lines without time", "")                                                        \
    X(HOROVOD_TIMELINE, TEXT, HONOURED, "", 0, 0, "",                                         \
      "file of the timeline, written by rank 0; DYNAMIC: none until it is started", "")       \
    X(HOROVOD_TIMELINE_MARK_CYCLES, BOOL, HONOURED, "0", 0, 1, "",                            \
      "1: mark the beginning of each round of work", "")                                      \
    X(HVD_TIMELINE_ALL, BOOL, HONOURED, "0", 0, 1, "",                                        \
      "1: the timeline shows all ranks, on rank 0's clock", "")                               \
    X(HVD_REPORT, BOOL, HONOURED, "0", 0, 1, "",                                              \
      "1: rank 0 prints a summary at the end: steps, communication that computation did not "  \
      "hide, bytes, the slowest rank, advice; rank 0's value is used", "")                    \
    X(HVD_DRY_RUN, BOOL, HONOURED, "0", 0, 1, "",                                             \
      "1: allreduces of every other ten steps move no data and return the rank's own input, " \
      "and the summary of HVD_REPORT says what communication costs; the trained weights are "  \
      "useless; rank 0's value is used", "")                                                  \
    X(HVD_NANCHECK, BOOL, HONOURED, "0", 0, 1, "",                                            \
      "1: a NaN or infinity in an input ends the world, naming rank and tensor", "")          \
    X(PERSEUS_ALLREDUCE_NANCHECK, BOOL, HONOURED, "", 0, 1, "",                               \
      "same as HVD_NANCHECK, which takes precedence", "")                                     \
    X(HVD_REPLICA_CHECK, NUMBER, HONOURED, "0", 0, 1000000000, "",                            \
      "steps of an optimizer after which the ranks compare their parameters; 0: never; a "    \
      "difference is an error on all ranks, which names rank, parameter and element; rank "   \
      "0's value is used", "")                                                                \
    X(HVD_REPLICA_ACTION, CHOICE, HONOURED, "fail", 0, 0, "fail warn",                        \
      "warn: a difference that HVD_REPLICA_CHECK finds is a warning, once for each "          \
      "parameter, and training continues; rank 0's value is used", "")                        \
    X(HVD_REPLAY, TEXT, HONOURED, "", 0, 0, "",                                               \
      "a step (400) or a range of steps (301-400) whose sums are carried out twice; if the "  \
      "results differ, the world ends, naming rank, tensor and element; a tensor's n-th sum " \
      "is of step n; rank 0's value is used", "")                                             \
    X(HVD_COMPRESSION, TEXT, HONOURED, "none", 0, 0, "",                                      \
      "compression of allreduces that name none themselves: none, fp16, bf16, int8, topk, "   \
      "powersgd, with parameters as in topk:ratio=0.001", "")                                 \
    X(HVD_COMPRESSION_MEMORY, BYTES, HONOURED, "4294967296", 0, 1ull << 50, "",               \
      "bytes that compression may keep between steps on this rank; K, M and G allowed", "")   \
    X(HVD_STATS_DIR, TEXT, HONOURED, "", 0, 0, "",                                            \
      "folder for this rank's page of counters; the launchers set it", "")                    \
    X(HVD_STACKS, BOOL, HONOURED, "1", 0, 1, "",                                              \
      "0: no handler for signal 61, by which the launcher gets the stacks of a rank that "    \
      "hangs; there is none without HVD_STATS_DIR or if the program handles the signal", "")  \
    X(HOROVOD_AUTOTUNE, BOOL, HONOURED, "0", 0, 1, "",                                        \
      "1: search for the best fusion threshold, cycle time and switch points of TCP; what is "\
      "set by a variable is not changed; of all autotune variables rank 0's values are used", "") \
    X(HOROVOD_AUTOTUNE_LOG, TEXT, HONOURED, "", 0, 0, "",                                     \
      "file of the samples of the search, comma separated; cycle time in ms, threshold in "   \
      "MiB, score in bytes per microsecond", "")                                              \
    X(HVD_AUTOTUNE_FILE, TEXT, HONOURED, "", 0, 0, "",                                        \
      "file of the settings found, written at the end of the search; if it exists for the "   \
      "same number of ranks and hosts, it is used without a search, with or without "         \
      "HOROVOD_AUTOTUNE", "")                                                                 \
    X(HOROVOD_AUTOTUNE_WARMUP_SAMPLES, NUMBER, HONOURED, "3", 0, 1000000, "",                 \
      "samples that the search drops at the beginning", "")                                   \
    X(HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE, NUMBER, HONOURED, "10", 1, 1024, "",                 \
      "steps of a sample; their median is its score", "")                                     \
    X(HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES, NUMBER, HONOURED, "20", 1, 1000000, "",         \
      "samples at most; the search ends by itself after about 24", "")                        \
    X(HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE, DECIMAL, NO_EFFECT, "0.8", 0, 1, "",           \
      "noise that the search assumes",                                                        \
      "it has no Gaussian process; medians and a final of the two best reduce noise")         \
    /* AIACC's names */                                                                       \
    X(PERSEUS_ALLREDUCE_FUSION, MIB, HONOURED, "", 0, 1u << 20, "",                           \
      "same as HOROVOD_FUSION_THRESHOLD, which takes precedence, in MiB", "")                 \
    X(PERSEUS_ALLREDUCE_DTYPE, NUMBER, HONOURED, "", 0, 2, "",                                \
      "0: as HVD_COMPRESSION=fp16, which takes precedence; 1: as HVD_COMPRESSION=none; 2 "    \
      "(mixed): as 1, with a warning; not set: as 1, unlike in Perseus, where it is 0", "")   \
    X(PERSEUS_ALLREDUCE_MODE, CHOICE, NO_EFFECT, "", 0, 0, "auto 0 1 2 3",                    \
      "algorithm; 1: hybrid", "size and topology decide")                                     \
    X(PERSEUS_ALLREDUCE_STREAMS, NUMBER, HONOURED, "", 0, 1000, "",                           \
      "same as HOROVOD_NUM_NCCL_STREAMS, which takes precedence", "")                         \
    X(PERSEUS_ALLREDUCE_DISABLE_STREAM_TUNING, BOOL, NO_EFFECT, "", 0, 1, "",                 \
      "1: keep the number of streams", "it is never changed")                                 \
    X(PERSEUS_WITH_K8S, BOOL, NO_EFFECT, "", 0, 1, "",                                        \
      "1: under Kubernetes", "the operator configures the ranks itself")                      \
    /* of Horovod's launchers and build */                                                    \
    X(HOROVOD_SECRET_KEY, TEXT, NO_EFFECT, "", 0, 0, "",                                      \
      "key of Horovod's launcher", "the job token comes from HVD_TOKEN_FILE or HVD_TOKEN_FD") \
    X(HOROVOD_GLOO_RENDEZVOUS_ADDR, TEXT, NO_EFFECT, "", 0, 0, "",                            \
      "where Horovod's ranks meet", "ours meet at HVD_RENDEZVOUS_ADDR")                       \
    X(HOROVOD_GLOO_RENDEZVOUS_PORT, TEXT, NO_EFFECT, "", 0, 0, "",                            \
      "its port", "ours meet at HVD_RENDEZVOUS_PORT")                                         \
    X(HOROVOD_SPARK_START_TIMEOUT, TEXT, NO_EFFECT, "", 0, 0, "", "seconds", KNOB_SPARK)      \
    X(HOROVOD_SPARK_PYTHONPATH, TEXT, NO_EFFECT, "", 0, 0, "", "path", KNOB_SPARK)            \
    X(HOROVOD_SPARK_WORK_DIR, TEXT, NO_EFFECT, "", 0, 0, "", "folder", KNOB_SPARK)            \
    X(HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX, TEXT, NO_EFFECT, "", 0, 0, "", "GPU",           \
      KNOB_SPARK)                                                                             \
    KNOBS_OF_BUILD(X)

#define KNOB_BUILD_ROW(X, name) X(name, TEXT, NO_EFFECT, "", 0, 0, "", "build", KNOB_BUILD)
#define KNOBS_OF_BUILD(X)                                                                     \
    KNOB_BUILD_ROW(X, HOROVOD_WITH_TENSORFLOW) KNOB_BUILD_ROW(X, HOROVOD_WITHOUT_TENSORFLOW)  \
    KNOB_BUILD_ROW(X, HOROVOD_WITH_PYTORCH) KNOB_BUILD_ROW(X, HOROVOD_WITHOUT_PYTORCH)        \
    KNOB_BUILD_ROW(X, HOROVOD_WITH_MXNET) KNOB_BUILD_ROW(X, HOROVOD_WITHOUT_MXNET)            \
    KNOB_BUILD_ROW(X, HOROVOD_WITH_MPI) KNOB_BUILD_ROW(X, HOROVOD_WITHOUT_MPI)                \
    KNOB_BUILD_ROW(X, HOROVOD_WITH_GLOO) KNOB_BUILD_ROW(X, HOROVOD_WITHOUT_GLOO)              \
    KNOB_BUILD_ROW(X, HOROVOD_GPU) KNOB_BUILD_ROW(X, HOROVOD_GPU_OPERATIONS)                  \
    KNOB_BUILD_ROW(X, HOROVOD_GPU_ALLREDUCE) KNOB_BUILD_ROW(X, HOROVOD_GPU_ALLGATHER)         \
    KNOB_BUILD_ROW(X, HOROVOD_GPU_BROADCAST) KNOB_BUILD_ROW(X, HOROVOD_GPU_ALLTOALL)          \
    KNOB_BUILD_ROW(X, HOROVOD_GPU_REDUCESCATTER) KNOB_BUILD_ROW(X, HOROVOD_NCCL_HOME)         \
    KNOB_BUILD_ROW(X, HOROVOD_NCCL_INCLUDE) KNOB_BUILD_ROW(X, HOROVOD_NCCL_LIB)               \
    KNOB_BUILD_ROW(X, HOROVOD_NCCL_LINK) KNOB_BUILD_ROW(X, HOROVOD_CUDA_HOME)                 \
    KNOB_BUILD_ROW(X, HOROVOD_BUILD_CUDA_CC_LIST) KNOB_BUILD_ROW(X, HOROVOD_BUILD_ARCH_FLAGS) \
    KNOB_BUILD_ROW(X, HOROVOD_CMAKE) KNOB_BUILD_ROW(X, HOROVOD_DEBUG)                         \
    KNOB_BUILD_ROW(X, HOROVOD_ALLOW_MIXED_GPU_IMPL)

/* Names of other parts of Ringmaster, so that knob_find_nearest() does not report
 * them. */
#define KNOBS_ELSEWHERE(X) X(HVD_METRICS_PORT) X(HVD_RUN_DIR) X(HVD_TEST_BIG) X(HVD_CRASH) X(HVD_LOG_LEVEL)

/* clang-format on */
#endif
