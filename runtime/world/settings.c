/* SPDX-License-Identifier: Apache-2.0 */
/* The table's values as fields, and the rules between variables: the name of another
 * product is used if ours is not set. Called by world.c. */
#include "runtime/world/settings.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/compress/codec.h"
#include "runtime/core/knobs.h"

/* Values of PERSEUS_ALLREDUCE_DTYPE. */
enum { PERSEUS_DTYPE_HALF = 0, PERSEUS_DTYPE_MIXED = 2 };

static int knob_copy_text(const struct knob_values *v,
                          enum knob_id id,
                          char *ret,
                          size_t size_bytes,
                          struct err *err)
{
    if (strlen(v->s[id]) >= size_bytes)
        return err_set(err, -EINVAL, "%s: longer than %zu characters",
                       knob_row(id)->name, size_bytes - 1);
    memcpy(ret, v->s[id], strlen(v->s[id]) + 1);
    return 0;
}

/* Our variable, or the other name if only that is set. */
static uint64_t
knob_value_or(const struct knob_values *v, enum knob_id ours, enum knob_id other)
{
    return !v->is_set[ours] && v->is_set[other] ? v->v[other] : v->v[ours];
}

static void settings_read_tuning(const struct knob_values *v, struct settings *s)
{
    s->fusion_bytes =
        knob_value_or(v, KNOB_HOROVOD_FUSION_THRESHOLD, KNOB_PERSEUS_ALLREDUCE_FUSION);
    s->is_fusion_set = v->is_set[KNOB_HOROVOD_FUSION_THRESHOLD]
                       || v->is_set[KNOB_PERSEUS_ALLREDUCE_FUSION];
    s->gather_ns = v->v[KNOB_HOROVOD_CYCLE_TIME];
    s->is_gather_set = v->is_set[KNOB_HOROVOD_CYCLE_TIME];
    s->is_autotuned = v->v[KNOB_HOROVOD_AUTOTUNE] != 0;
    s->autotune_warmup = (uint32_t)v->v[KNOB_HOROVOD_AUTOTUNE_WARMUP_SAMPLES];
    s->autotune_steps = (uint32_t)v->v[KNOB_HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE];
    s->autotune_samples = (uint32_t)v->v[KNOB_HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES];
}

static void settings_read_gpu(const struct knob_values *v, struct gpu_settings *g)
{
    g->is_off = v->v[KNOB_HVD_GPU] == 1 /* auto off */;
    g->direct_bytes = v->v[KNOB_HVD_GPU_DIRECT];
    g->pool_bytes = v->v[KNOB_HVD_GPU_POOL];
    g->uses_graphs = v->v[KNOB_HVD_GPU_GRAPH] != 0;
    g->registers = v->v[KNOB_HVD_GPU_REGISTER] != 0;
    g->syncs_ready = v->v[KNOB_HVD_GPU_READY] == 1 /* auto sync */;
    g->uses_ptx = v->v[KNOB_HVD_GPU_PTX] != 0;
    g->batches_copies = v->v[KNOB_HOROVOD_BATCH_D2D_MEMCOPIES] != 0;
    g->is_deterministic = v->v[KNOB_HOROVOD_DETERMINISTIC] != 0;
    g->n_streams = (uint32_t)knob_value_or(v, KNOB_HOROVOD_NUM_NCCL_STREAMS,
                                           KNOB_PERSEUS_ALLREDUCE_STREAMS);
}

/* Perseus' 0 is its default, but is used here only if it is set: 16 bits lose digits. */
static int
settings_read_codec(const struct knob_values *v, struct settings *s, struct err *err)
{
    bool is_half = v->is_set[KNOB_PERSEUS_ALLREDUCE_DTYPE]
                   && v->v[KNOB_PERSEUS_ALLREDUCE_DTYPE] == PERSEUS_DTYPE_HALF
                   && !v->is_set[KNOB_HVD_COMPRESSION];
    struct codec codec;
    int rc = codec_parse("HVD_COMPRESSION",
                         is_half ? "fp16" : v->s[KNOB_HVD_COMPRESSION], &codec, err);

    if (rc == 0 && codec.id != CODEC_NONE)
        (void)codec_format(&codec, s->codec);
    return rc;
}

/* One to nine digits; the rest of the text, or NULL. */
static const char *step_parse(const char *text, uint32_t *ret)
{
    size_t n = strspn(text, "0123456789");

    if (n == 0 || n > 9)
        return NULL;
    *ret = (uint32_t)strtoul(text, NULL, 10);
    return text + n;
}

/* HVD_REPLAY: "400" or "301-400". */
static int settings_read_guard(const struct knob_values *v,
                               struct replica_guard *g,
                               struct err *err)
{
    const char *text = v->s[KNOB_HVD_REPLAY], *rest;
    uint32_t first = 0, last = 0;

    g->check_steps = (uint32_t)v->v[KNOB_HVD_REPLICA_CHECK];
    g->is_warning = v->v[KNOB_HVD_REPLICA_ACTION] == 1 /* fail warn */;
    if (!text[0])
        return 0;
    rest = step_parse(text, &first);
    last = first;
    if (rest && *rest == '-')
        rest = step_parse(rest + 1, &last);
    if (!rest || *rest || first == 0 || last < first)
        return err_set(
            err, -EINVAL,
            "HVD_REPLAY=\"%.64s\" is neither a step from 1 to 999999999 nor a "
            "range of steps such as 301-400",
            text);
    g->first = first;
    g->last = last;
    return 0;
}

static int
settings_read_paths(const struct knob_values *v, struct settings *s, struct err *err)
{
    const struct {
        enum knob_id id;
        char *ret;
    } all[] = {
        {KNOB_HOROVOD_TIMELINE, s->timeline},
        {KNOB_HVD_STATS_DIR, s->stats_dir},
        {KNOB_HOROVOD_THREAD_AFFINITY, s->cores},
        {KNOB_HOROVOD_AUTOTUNE_LOG, s->autotune_log},
        {KNOB_HVD_AUTOTUNE_FILE, s->autotune_file},
        {KNOB_HVD_NCCL_LIB, s->gpu.nccl_lib},
    };
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(all) && rc == 0; i++)
        rc = knob_copy_text(v, all[i].id, all[i].ret, CONTRACT_PATH_MAX, err);
    return rc;
}

int settings_read(getenv_fn get, void *arg, struct settings *ret, struct err *err)
{
    struct settings s = {.core = -1};
    struct knob_values v;
    int rc = knobs_read(get, arg, &v, err);

    if (rc < 0)
        return rc;
    s.start_timeout_ns = v.v[KNOB_HOROVOD_START_TIMEOUT];
    s.peer_timeout_ns =
        knob_value_or(&v, KNOB_HVD_PEER_TIMEOUT, KNOB_HOROVOD_GLOO_TIMEOUT_SECONDS);
    s.control_fanout = (uint32_t)v.v[KNOB_HVD_CONTROL_FANOUT];
    settings_read_tuning(&v, &s);
    settings_read_gpu(&v, &s.gpu);
    s.is_dry_run = v.v[KNOB_HVD_DRY_RUN] != 0;
    s.reports = v.v[KNOB_HVD_REPORT] != 0;
    s.cache_capacity = (uint32_t)v.v[KNOB_HOROVOD_CACHE_CAPACITY];
    s.is_group_alone = v.v[KNOB_HOROVOD_DISABLE_GROUP_FUSION] != 0;
    if (!v.v[KNOB_HOROVOD_STALL_CHECK_DISABLE]) {
        s.stall_warn_ns = v.v[KNOB_HOROVOD_STALL_CHECK_TIME_SECONDS];
        s.stall_fail_ns = v.v[KNOB_HOROVOD_STALL_SHUTDOWN_TIME_SECONDS];
        if (!v.is_set[KNOB_HOROVOD_STALL_SHUTDOWN_TIME_SECONDS])
            s.deadlock_ns = v.v[KNOB_HVD_DEADLOCK_TIMEOUT];
        if (s.deadlock_ns > 0 && !v.is_set[KNOB_HVD_DEADLOCK_TIMEOUT]
            && s.deadlock_ns < 2 * s.stall_warn_ns)
            s.deadlock_ns = 2 * s.stall_warn_ns; /* a report comes first */
    }
    s.shows_stacks = v.v[KNOB_HVD_STACKS] != 0;
    s.reports_late = v.v[KNOB_HVD_STALL_STACKS] != 0;
    (void)log_level_parse(v.s[KNOB_HOROVOD_LOG_LEVEL], &s.log_level); /* a choice */
    s.has_log_time =
        !v.v[KNOB_HOROVOD_LOG_HIDE_TIME] && v.v[KNOB_HOROVOD_LOG_TIMESTAMP] != 0;
    s.nancheck =
        knob_value_or(&v, KNOB_HVD_NANCHECK, KNOB_PERSEUS_ALLREDUCE_NANCHECK) != 0;
    s.data_check = v.v[KNOB_HVD_DATA_MAC]   ? DATA_MAC
                   : v.v[KNOB_HVD_DATA_CRC] ? DATA_CRC
                                            : DATA_BARE;
    s.codec_bytes = v.v[KNOB_HVD_COMPRESSION_MEMORY];
    rc = settings_read_codec(&v, &s, err);
    if (rc < 0)
        return rc;
    rc = settings_read_guard(&v, &s.guard, err);
    if (rc < 0)
        return rc;
    s.timeline_mark_cycles = v.v[KNOB_HOROVOD_TIMELINE_MARK_CYCLES] != 0;
    s.timeline_all = v.v[KNOB_HVD_TIMELINE_ALL] != 0;
    rc = settings_read_paths(&v, &s, err);
    if (rc < 0)
        return rc;
    if (strcmp(s.timeline, "DYNAMIC") == 0)
        s.timeline[0] = 0; /* DYNAMIC: hvd_timeline_start starts it */
    *ret = s;
    return 0;
}

/* A search for the best settings would compare steps with and without communication, and
 * the ranks' parameters differ. */
void settings_set_report(struct settings *s, bool reports, bool is_dry_run)
{
    s->is_dry_run = is_dry_run;
    s->reports = reports || is_dry_run;
    s->is_autotuned = s->is_autotuned && !is_dry_run;
    s->guard.check_steps = is_dry_run ? 0 : s->guard.check_steps;
}

int settings_set_core(struct settings *s,
                      uint32_t local_rank,
                      uint32_t local_size,
                      struct err *err)
{
    uint32_t core = 0;

    if (s->cores[0] && !knob_list_at(s->cores, local_rank, &core))
        return err_set(err, -EINVAL,
                       "HOROVOD_THREAD_AFFINITY: \"%.64s\" has no entry for local rank "
                       "%u; this host has %u ranks",
                       s->cores, local_rank, local_size);
    s->core = s->cores[0] ? (int)core : -1;
    return 0;
}

void settings_move_to_core(const struct settings *s)
{
    cpu_set_t set;
    int rc = 0;

    if (s->core < 0)
        return;
    CPU_ZERO(&set);
    if (s->core < CPU_SETSIZE)
        CPU_SET((size_t)s->core, &set);
    rc = sched_setaffinity(0, sizeof(set), &set); /* 0: this thread */
    if (rc < 0)
        log_warn("cannot bind the runtime's thread to its core, continuing on any core",
                 "variable=HOROVOD_THREAD_AFFINITY core=%d cause=\"%s\"", s->core,
                 strerror(errno));
}

static void settings_warn_misspelled(const char *pair)
{
    char name[64];
    size_t n = strcspn(pair, "=");
    const char *meant;

    if (n >= sizeof(name))
        return;
    memcpy(name, pair, n);
    name[n] = 0;
    meant = knob_find_nearest(name);
    if (meant)
        log_warn("an unknown variable looks like a typing error and has no effect",
                 "variable=%s nearest=%s", name, meant);
}

/* Perseus sends gradients as 16 bits unless DTYPE is 1; a job with its variables may
 * expect that. */
static void settings_log_dtype(const struct knob_values *v)
{
    static const char prefix[] = "PERSEUS_";
    bool is_perseus = false;

    if (v->is_set[KNOB_HVD_COMPRESSION])
        return;
    if (v->is_set[KNOB_PERSEUS_ALLREDUCE_DTYPE]) {
        if (v->v[KNOB_PERSEUS_ALLREDUCE_DTYPE] == PERSEUS_DTYPE_MIXED)
            log_warn("a variable requests a missing feature, continuing without it",
                     "PERSEUS_ALLREDUCE_DTYPE=2 has no effect: mixed types are not "
                     "known here, 0 compresses to fp16");
        return;
    }
    for (int i = 0; i < KNOB_COUNT && !is_perseus; i++)
        is_perseus =
            v->is_set[i]
            && strncmp(knob_row((enum knob_id)i)->name, prefix, strlen(prefix)) == 0;
    if (is_perseus)
        log_info(
            "nothing is compressed; in Perseus PERSEUS_ALLREDUCE_DTYPE is 0 (fp16) "
            "by default",
            "default=1");
}

void settings_log_unused(getenv_fn get, void *arg, char *const *environment)
{
    struct knob_values v;

    if (knobs_read(get, arg, &v, NULL) < 0)
        return; /* settings_read has reported it */
    for (int i = 0; i < KNOB_COUNT; i++) {
        CLEANUP(strbuf_release) struct strbuf text = {0};

        strbuf_init(&text, 512);
        switch (knob_note(&v, (enum knob_id)i, &text)) {
        case KNOB_SAY_NOTHING:
            break;
        case KNOB_SAY_INFO:
            log_info("a variable has no effect", "%s", strbuf_str(&text));
            break;
        case KNOB_SAY_WARN:
            log_warn("a variable requests a missing feature, continuing without it",
                     "%s", strbuf_str(&text));
            break;
        }
    }
    settings_log_dtype(&v);
    for (; environment && *environment; environment++)
        settings_warn_misspelled(*environment);
}
