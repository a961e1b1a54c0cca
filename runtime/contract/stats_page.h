/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of one rank: one table from which the counters themselves, the
 * Prometheus text and the documents are generated.
 *
 * A rank keeps them in a page of memory. Where its launcher names a folder
 * (HVD_STATS_DIR), the page is the file rank.N there, mapped: the launcher can read it
 * at any time, even of a rank that hangs or has exited. The rank stores whole aligned
 * 64-bit words without locks, so two counters that are read together may be a few
 * operations apart. Pure, except for the atomic words.
 *
 * The page also holds what the program reports about itself (hvd_progress). This record
 * is read as a whole: progress_turn is odd while it is being written. A reader in another
 * process copies the page and takes the copy if the turn before and after it was the same
 * even number (launch/stats_dir.c). */
#ifndef RUNTIME_CONTRACT_STATS_PAGE_H
#define RUNTIME_CONTRACT_STATS_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define STATS_MAGIC       0x3174617473647668ull /* "hvdstat1", little endian */
#define STATS_VERSION     2u
#define STATS_KINDS       16 /* words of a counter by kind; enum collective is the index */

#define STATS_METRICS_MAX 16
#define STATS_NAME_MAX    128 /* of a metric, with NUL */

/* clang-format off */

/* Y(name, metric, help): one word for each kind of collective. */
#define STATS_BY_KIND(Y)                                                                      \
    Y(TENSORS,   "hvd_tensors_total", "tensors that succeeded, by collective")               \
    Y(BYTES_IN,  "hvd_input_bytes_total", "bytes of their inputs on this rank")               \
    Y(BYTES_OUT, "hvd_output_bytes_total", "bytes of their outputs on this rank")

/* X(name, unit, metric, help): one word; unit NS is shown in seconds. NOW and NOW_NS
 * are what is, not what has been counted: gauges. */
#define STATS_SINGLE(X)                                                                       \
    X(FAILED, ONE, "hvd_failed_tensors_total", "tensors that failed")            \
    X(BATCHES, ONE, "hvd_batches_total", "batches given to the backend")                      \
    X(FUSED, ONE, "hvd_fused_tensors_total", "tensors that shared a batch with others")       \
    X(HITS, ONE, "hvd_cache_hits_total", "tensors requested by one bit")                      \
    X(MISSES, ONE, "hvd_cache_misses_total", "tensors requested in full")                     \
    X(PLANS, ONE, "hvd_plans_total", "steps frozen into a plan")                              \
    X(LEAVES, ONE, "hvd_plan_leaves_total", "plans left for a step that differed")            \
    X(PLANNED, ONE, "hvd_planned_tensors_total", "tensors carried out by a plan, without a message") \
    X(AGREEMENTS, ONE, "hvd_agreements_total", "rounds of agreement within a plan")           \
    X(SENT, ONE, "hvd_control_messages_sent_total", "messages about work sent")               \
    X(SENT_BYTES, ONE, "hvd_control_sent_bytes_total", "their bytes")                         \
    X(RECEIVED, ONE, "hvd_control_messages_received_total", "messages about work received")   \
    X(RECEIVED_BYTES, ONE, "hvd_control_received_bytes_total", "their bytes")                 \
    X(WAIT_NS, NS, "hvd_wait_seconds_total", "tensors' time from submission to the start of their batch, summed") \
    X(BACKEND_NS, NS, "hvd_backend_seconds_total", "time inside the backend, waiting for peers there included") \
    X(ALLREDUCE_NS, NS, "hvd_allreduce_seconds_total", "the part of it spent in allreduce")        \
    X(BUS_BYTES, ONE, "hvd_allreduce_bus_bytes_total", "2(n-1)/n times the bytes of allreduces; divided by hvd_allreduce_seconds_total it is the bus bandwidth") \
    X(STEPS, ONE, "hvd_steps_total", "steps: rounds of a plan with all its tensors") \
    X(STEP_NS, NS, "hvd_step_seconds_total", "time between the ends of consecutive steps") \
    X(CODEC_RAW, ONE, "hvd_compression_input_bytes_total", "bytes of tensors that asked for compression") \
    X(CODEC_WIRE, ONE, "hvd_compression_wire_bytes_total", "bytes of their compressed form on this rank") \
    X(FUSION_BYTES, NOW, "hvd_fusion_threshold_bytes", "limit of a fused batch")              \
    X(GATHER_NS, NOW_NS, "hvd_cycle_time_seconds", "time that a tensor waits for others to be fused with") \
    X(TUNING, NOW, "hvd_autotune_active", "1 on rank 0 while HOROVOD_AUTOTUNE searches") \
    X(DEVICE_BATCHES, ONE, "hvd_device_batches_total", "batches of tensors on the GPU; also counted in hvd_batches_total") \
    X(DEVICE_PACKED, ONE, "hvd_device_packed_bytes_total", "bytes of tensors on the GPU that were packed, converted or compressed") \
    X(DEVICE_DIRECT, ONE, "hvd_device_direct_bytes_total", "bytes of tensors on the GPU that NCCL moved in place") \
    X(DEVICE_REGISTERED, ONE, "hvd_device_registered_bytes_total", "the part of these two in registered buffers") \
    X(DEVICE_SM, NOW, "hvd_device_compute_capability", "compute capability of the GPU in use, 90 is 9.0; 0: no GPU") \
    X(DEVICE_NCCL, NOW, "hvd_device_nccl_version", "version of the NCCL in use, 22705 is 2.27.5; 0: none") \
    X(DEVICE_CUDA, NOW, "hvd_device_cuda_version", "CUDA version of the driver in use, 12040 is 12.4; 0: none") \
    X(BLOCKED_NS, NS, "hvd_blocked_seconds_total", "time in which at least one thread of the program waited for an operation") \
    X(READY_NS, NS, "hvd_ready_seconds_total", "time from the submission of a batch's last tensor on this rank (on a GPU: from when the device has it ready) to the end of the batch, summed: this rank waited for others; the rank with the smallest value is the one that others wait for") \
    X(STALL_NS, NOW_NS, "hvd_stall_time_seconds", "on rank 0: a tensor that waits so long for some ranks is reported as stalled; 0: never") \
    X(WAITS_NS, NOW_NS, "hvd_waiting_since_timestamp_seconds", "on rank 0: when the oldest tensor was submitted that has waited a quarter of the stall time for some ranks; 0: there is none")

/* clang-format on */

enum stats_id { /* index of a word */
#define AT_KIND(name, metric, help)                                                    \
    STATS_##name, STATS_LAST_##name = STATS_##name + STATS_KINDS - 1,
                STATS_BY_KIND(AT_KIND)
#undef AT_KIND
#define AT(name, unit, metric, help) STATS_##name,
                    STATS_SINGLE(AT)
#undef AT
                        STATS_N_WORDS
};

/* What the program reports about itself. -1: unknown. Whole 64-bit words. */
struct stats_progress {
    int64_t step, total_steps, epoch, total_epochs;
    int64_t samples;          /* of the whole job */
    int64_t commit_step;      /* `step` at the last commit */
    uint64_t commit_wall_us;  /* of the last commit of elastic state; 0: none */
    uint64_t updated_wall_us; /* of the last call; 0: none */
    uint64_t n_metrics;
    struct stats_metric {
        char name[STATS_NAME_MAX];
        double value; /* may be infinite or NaN */
    } metrics[STATS_METRICS_MAX];
};
#define STATS_PROGRESS_WORDS (sizeof(struct stats_progress) / 8)

struct stats_page { /* layout of the file; native byte order */
    uint64_t magic;
    uint32_t version, n_words;
    uint32_t rank, size, generation, pid;
    uint64_t begin_wall_us; /* the world began on this rank */
    _Atomic uint64_t progress_turn;
    _Atomic uint64_t progress[STATS_PROGRESS_WORDS]; /* a struct stats_progress */
    _Atomic uint64_t words[STATS_N_WORDS]; /* last: later versions have more */
};

/* Any thread. */
static inline uint64_t stats_word(const struct stats_page *p, size_t i)
{
    return atomic_load_explicit(&p->words[i], memory_order_relaxed);
}

/* Whether n bytes that another process maintains are a page of ours: 0, or -EBADMSG
 * with the reason. A page of a later version may be longer; its new words are
 * ignored. */
int stats_page_check(const void *p, size_t n, struct err *err);

void stats_progress_init(struct stats_progress *p); /* all unknown */
/* One thread at a time. */
void stats_page_put_progress(struct stats_page *page, const struct stats_progress *p);
/* From a copy of a page. It may hold anything: metrics whose number or name is impossible
 * are left out, and all of them if the copy was made while the rank wrote (the numbers
 * are whole words and may be a call apart then). */
void stats_page_get_progress(const struct stats_page *page, struct stats_progress *ret);

/* Prometheus text format, each metric with all pages' lines together; kinds that a rank
 * has not used have no line. */
void stats_page_text(const struct stats_page *const *pages,
                     size_t n,
                     struct strbuf *out);

/* The table of metrics in Markdown, for runtime/doc/metrics.md. */
void stats_page_markdown(struct strbuf *out);

const char *stats_kind_name(size_t kind); /* "allreduce"; NULL past the last one */

#endif
