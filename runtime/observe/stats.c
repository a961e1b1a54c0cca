/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the counters, and reading them.
 *
 * The file is written completely before it is mapped, so its blocks exist and no later
 * store can find the disk full (which would be SIGBUS in a training process). It is
 * created by rename, so a reader never sees half a page, and it replaces the page of an
 * earlier world of this rank. Called by the coordinator; contract/stats_page.h has the
 * table. */
#include "runtime/observe/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

/* struct hvd_stats has the words of the page behind its own header. */
#define WORDS_AT offsetof(struct hvd_stats, tensors)
_Static_assert(sizeof(struct hvd_stats) == WORDS_AT + 8 * (size_t)STATS_N_WORDS,
               "hvd.h lists every counter");
_Static_assert(HVD_STATS_KINDS == STATS_KINDS, "hvd.h has as many kinds");
#define SAME(field, id)                                                                \
    _Static_assert(offsetof(struct hvd_stats, field) == WORDS_AT + 8 * (size_t)(id),   \
                   "hvd.h has the order of the page: " #field)
SAME(tensors, STATS_TENSORS);
SAME(bytes_in, STATS_BYTES_IN);
SAME(bytes_out, STATS_BYTES_OUT);
SAME(failed, STATS_FAILED);
SAME(batches, STATS_BATCHES);
SAME(fused, STATS_FUSED);
SAME(cache_hits, STATS_HITS);
SAME(cache_misses, STATS_MISSES);
SAME(plans, STATS_PLANS);
SAME(plan_leaves, STATS_LEAVES);
SAME(planned, STATS_PLANNED);
SAME(agreements, STATS_AGREEMENTS);
SAME(control_sent, STATS_SENT);
SAME(control_sent_bytes, STATS_SENT_BYTES);
SAME(control_received, STATS_RECEIVED);
SAME(control_received_bytes, STATS_RECEIVED_BYTES);
SAME(wait_ns, STATS_WAIT_NS);
SAME(backend_ns, STATS_BACKEND_NS);
SAME(allreduce_ns, STATS_ALLREDUCE_NS);
SAME(allreduce_bus_bytes, STATS_BUS_BYTES);
SAME(steps, STATS_STEPS);
SAME(step_ns, STATS_STEP_NS);
SAME(compression_raw, STATS_CODEC_RAW);
SAME(compression_wire, STATS_CODEC_WIRE);
SAME(fusion_bytes, STATS_FUSION_BYTES);
SAME(gather_ns, STATS_GATHER_NS);
SAME(is_tuning, STATS_TUNING);
SAME(device_batches, STATS_DEVICE_BATCHES);
SAME(device_packed_bytes, STATS_DEVICE_PACKED);
SAME(device_direct_bytes, STATS_DEVICE_DIRECT);
SAME(device_registered_bytes, STATS_DEVICE_REGISTERED);
SAME(device_sm, STATS_DEVICE_SM);
SAME(device_nccl, STATS_DEVICE_NCCL);
SAME(device_cuda, STATS_DEVICE_CUDA);
SAME(blocked_ns, STATS_BLOCKED_NS);
SAME(ready_ns, STATS_READY_NS);
SAME(stall_ns, STATS_STALL_NS);
SAME(waits_ns, STATS_WAITS_NS);
#undef SAME

static int stats_map_file(struct stats *s, const char *dir, struct err *err)
{
    CLEANUP(fd_close) int fd = -1;
    char path[1200];
    void *p;
    int rc;

    if (snprintf(path, sizeof(path), "%s/rank.%u", dir, s->own.rank)
        >= (int)sizeof(path))
        return err_set(err, -ENAMETOOLONG, "HVD_STATS_DIR: longer than %zu characters",
                       sizeof(path));
    rc = fd_write_file(path, &s->own, sizeof(s->own), 0644, err);
    if (rc < 0)
        return rc;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    p = mmap(NULL, sizeof(s->own), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_errno(err, errno, "cannot map %s", path);
    s->page = p;
    s->mapped_bytes = sizeof(s->own);
    return 0;
}

void stats_init(struct stats *s,
                const char *dir,
                uint32_t rank,
                uint32_t size,
                uint32_t generation,
                uint64_t now_ns)
{
    struct err err = ERR_INIT;
    struct stats_progress unknown;

    memset(s, 0, sizeof(*s));
    s->own.magic = STATS_MAGIC;
    s->own.version = STATS_VERSION;
    s->own.n_words = STATS_N_WORDS;
    s->own.rank = rank;
    s->own.size = size;
    s->own.generation = generation;
    s->own.pid = (uint32_t)getpid();
    s->own.begin_wall_us = clock_wall_us();
    stats_progress_init(&unknown);
    stats_page_put_progress(&s->own, &unknown);
    s->page = &s->own;
    s->begin_ns = now_ns;
    if (dir[0] && stats_map_file(s, dir, &err) < 0)
        log_warn("cannot provide counters to the launcher, continuing without",
                 "cause=\"%s\"", err.text);
}

void stats_release(struct stats *s)
{
    if (s->mapped_bytes > 0)
        (void)munmap(s->page, s->mapped_bytes);
    s->mapped_bytes = 0;
    s->page = NULL;
}

void stats_batch(struct stats *s,
                 enum collective coll,
                 size_t n_tensors,
                 uint32_t n_members,
                 uint64_t bytes,
                 uint64_t waited_ns,
                 uint64_t ns)
{
    stats_add(s, STATS_BATCHES, 1);
    if (n_tensors > 1)
        stats_add(s, STATS_FUSED, n_tensors);
    stats_add(s, STATS_WAIT_NS, waited_ns);
    stats_add(s, STATS_BACKEND_NS, ns);
    if (coll != COLL_ALLREDUCE || n_members == 0)
        return;
    stats_add(s, STATS_ALLREDUCE_NS, ns);
    /* in floating point: bytes times members may not fit */
    stats_add(s, STATS_BUS_BYTES,
              (uint64_t)(2.0 * (n_members - 1) / n_members * (double)bytes));
}

uint64_t stats_step(struct stats *s, uint64_t now_ns)
{
    uint64_t ns = s->last_step_ns > 0 ? now_ns - s->last_step_ns : 0;

    if (s->last_step_ns > 0) {
        stats_add(s, STATS_STEPS, 1);
        stats_add(s, STATS_STEP_NS, ns);
    }
    s->last_step_ns = now_ns;
    return ns;
}

void stats_copy_blocked(struct stats *s, uint64_t now_ns)
{
    int64_t ns = (int64_t)atomic_load_explicit(&s->blocked, memory_order_relaxed);

    if (ns < 0)
        ns += (int64_t)now_ns;
    /* The begin of a wait may be later than now_ns. */
    if (ns > (int64_t)stats_word(s->page, STATS_BLOCKED_NS))
        stats_set(s, STATS_BLOCKED_NS, (uint64_t)ns);
}

static double rate_per_second(uint64_t n, uint64_t ns)
{
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0;
}

void stats_read(const struct stats *s, uint64_t now_ns, struct hvd_stats *ret)
{
    size_t known = ret->size_bytes;
    struct hvd_stats v = {.size_bytes = known,
                          .rank = (int)s->page->rank,
                          .size = (int)s->page->size,
                          .age_ns = now_ns - s->begin_ns};

    for (size_t i = 0; i < STATS_N_WORDS; i++) {
        uint64_t word = stats_word(s->page, i);

        memcpy((char *)&v + WORDS_AT + 8 * i, &word, 8);
    }
    v.allreduce_bus_bytes_per_s =
        rate_per_second(v.allreduce_bus_bytes, v.allreduce_ns);
    v.steps_per_s = rate_per_second(v.steps, v.step_ns);
    memcpy(ret, &v, known < sizeof(v) ? known : sizeof(v));
}
