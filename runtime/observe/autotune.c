/* SPDX-License-Identifier: Apache-2.0 */
/* Where settings come from:
 *
 *   environment                  in use from the start, on each rank
 *   HVD_AUTOTUNE_FILE, rank 0    sent to all ranks before their first step
 *   HOROVOD_AUTOTUNE=1, rank 0   core/tune.h: measure, send, measure ... The best
 *                                settings stay in use, are logged and saved.
 *
 * If the file exists, there is no search. Settings of the environment are never
 * changed.
 *
 * Nothing here ends a training: a file that cannot be read or written, or that belongs
 * to another world, causes a warning. Called by the engine. */
#include "runtime/observe/autotune.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/core/tune_file.h"
#include "runtime/engine/op.h"

static uint32_t world_count_hosts(const struct autotune *a)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < a->size; i++) {
        uint32_t j = i > 0 && strcmp(a->members[i].host, a->members[i - 1].host) == 0
                         ? i - 1
                         : 0;

        while (j < i && strcmp(a->members[i].host, a->members[j].host) != 0)
            j++;
        n += j == i;
    }
    return n;
}

static void autotune_update_stats(struct autotune *a)
{
    stats_set(a->stats, STATS_FUSION_BYTES, a->now.fusion_bytes);
    stats_set(a->stats, STATS_GATHER_NS, a->now.gather_ns);
    stats_set(a->stats, STATS_TUNING, a->tune && !tune_is_done(a->tune));
}

/* --- files --- */

static void
log_append_line(struct autotune *a, const char *path, const struct strbuf *line)
{
    if (!a->log)
        return;
    if (strbuf_status(line) == 0 && fwrite(line->p, 1, line->n, a->log) == line->n
        && fflush(a->log) == 0)
        return;
    log_warn("cannot write the autotune log, no more samples are added",
             "variable=HOROVOD_AUTOTUNE_LOG file=%s cause=\"%s\"", path,
             strerror(errno));
    (void)fclose(a->log); /* reported already */
    a->log = NULL;
}

static void open_log(struct autotune *a)
{
    CLEANUP(strbuf_release) struct strbuf head = {0};
    const char *path = a->settings->autotune_log;

    if (!path[0])
        return;
    a->log = fopen(path, "we");
    if (!a->log)
        log_warn("cannot write the autotune log, continuing without it",
                 "variable=HOROVOD_AUTOTUNE_LOG file=%s cause=\"%s\"", path,
                 strerror(errno));
    strbuf_init(&head, 1024);
    tune_log_head(&head);
    log_append_line(a, path, &head);
}

static void log_sample(struct autotune *a, const struct tune_sample *s)
{
    CLEANUP(strbuf_release) struct strbuf line = {0};

    strbuf_init(&line, 1024);
    tune_log_line(++a->n_logged, s, &line);
    log_append_line(a, a->settings->autotune_log, &line);
}

static void autotune_save_file(struct autotune *a)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    struct tune_file f = {.ranks = a->size,
                          .hosts = world_count_hosts(a),
                          .tuning = *tune_settings(a->tune)};
    const char *path = a->settings->autotune_file;
    struct err err = ERR_INIT;

    if (!path[0])
        return;
    strbuf_init(&text, TUNE_FILE_MAX);
    tune_file_write(&f, &text);
    if (strbuf_status(&text) < 0 || fd_write_file(path, text.p, text.n, 0644, &err) < 0)
        log_warn("cannot save the settings that autotune has found",
                 "variable=HVD_AUTOTUNE_FILE cause=\"%s\"",
                 err.text[0] ? err.text : "out of memory");
}

/* True: *ret has the settings of the file. */
static bool autotune_load_file(struct autotune *a, struct tuning *ret)
{
    const char *path = a->settings->autotune_file;
    struct tune_file f;
    AUTOFREE char *text = NULL;
    struct err err = ERR_INIT;
    size_t n = 0;
    int rc;

    if (!path[0] || access(path, F_OK) != 0)
        return false;
    rc = fd_read_file(path, TUNE_FILE_MAX, &text, &n, &err);
    if (rc == 0 && strlen(text) != n)
        rc = err_set(&err, -EINVAL, "%.300s: has a NUL byte", path);
    rc = rc < 0 ? rc : tune_file_read(path, text, &f, &err);
    if (rc == 0 && (f.ranks != a->size || f.hosts != world_count_hosts(a)))
        rc = err_set(&err, -EINVAL,
                     "%.300s: found with %u ranks on %u hosts, this world has %u on %u",
                     path, f.ranks, f.hosts, a->size, world_count_hosts(a));
    if (rc < 0) {
        log_warn(a->settings->is_autotuned
                     ? "the autotune file is not used, searching again"
                     : "the autotune file is not used, continuing without it",
                 "variable=HVD_AUTOTUNE_FILE cause=\"%s\"", err.text);
        return false;
    }
    *ret = f.tuning;
    return true;
}

/* --- rank 0 --- */

static void autotune_begin_search(struct autotune *a, bool tunes_backend)
{
    const struct settings *s = a->settings;
    struct tune_config cfg = {
        .start = a->now,
        .is_fixed = {[TUNE_FUSION] = s->is_fusion_set,
                     [TUNE_GATHER] = s->is_gather_set,
                     [TUNE_WHOLE] = !tunes_backend,
                     [TUNE_CHUNK] = !tunes_backend},
        .n_warmup = s->autotune_warmup,
        .n_steps = s->autotune_steps,
        .n_samples = s->autotune_samples,
    };

    if (tune_new(&cfg, &a->tune) < 0)
        log_warn("out of memory for autotune, continuing without it",
                 "variable=HOROVOD_AUTOTUNE");
    else
        open_log(a);
}

void autotune_init(struct autotune *a,
                   const struct settings *s,
                   uint32_t rank,
                   uint32_t size,
                   const struct control_member *members,
                   struct stats *stats)
{
    a->settings = s;
    a->members = members;
    a->rank = rank;
    a->size = size;
    a->stats = stats;
    a->now =
        (struct tuning){.fusion_bytes = s->fusion_bytes, .gather_ns = s->gather_ns};
    autotune_update_stats(a);
}

void autotune_release(struct autotune *a)
{
    tune_free(a->tune);
    if (a->log)
        (void)fclose(a->log); /* each line was flushed */
    *a = (struct autotune){0};
}

static void autotune_send(struct autotune *a, const struct tuning *t)
{
    a->has_news = true;
    a->news = *t;
}

void autotune_start(struct autotune *a, bool tunes_backend)
{
    const struct settings *s = a->settings;
    struct tuning t;

    if (a->rank != 0)
        return;
    if (autotune_load_file(a, &t)) {
        if (s->is_fusion_set)
            t.fusion_bytes = s->fusion_bytes;
        if (s->is_gather_set)
            t.gather_ns = s->gather_ns;
        log_info("using the settings of the autotune file", "file=%s",
                 s->autotune_file);
        autotune_send(a, &t);
    } else if (s->is_autotuned) {
        autotune_begin_search(a, tunes_backend);
    }
    autotune_update_stats(a);
}

static void autotune_finish_search(struct autotune *a)
{
    const struct tuning *t = tune_settings(a->tune);

    log_info("autotune has found its settings",
             "samples=%u fusion_threshold=%llu cycle_time_ms=%g tcp_whole_bytes=%llu "
             "tcp_chunk_bytes=%llu bytes_per_us=%.1f at_first=%.1f",
             tune_n_samples(a->tune), (unsigned long long)t->fusion_bytes,
             (double)t->gather_ns / 1e6, (unsigned long long)t->whole_bytes,
             (unsigned long long)t->chunk_bytes, tune_best(a->tune) / 1e6,
             tune_first(a->tune) / 1e6);
    autotune_save_file(a);
    if (a->log && fclose(a->log) != 0)
        log_warn("the autotune log is incomplete",
                 "variable=HOROVOD_AUTOTUNE_LOG cause=\"%s\"", strerror(errno));
    a->log = NULL;
}

static uint64_t request_name_hash(const struct tensor_request *q)
{
    return op_hash_text(OP_HASH_INIT ^ q->process_set, q->name);
}

void autotune_batch(struct autotune *a, const struct member_act *act)
{
    struct tune_sample sample;
    uint64_t bytes;

    if (!a->tune || tune_is_done(a->tune))
        return;
    for (size_t i = 0; i < act->n_items; i++)
        if (request_size(act->items[i].req, NULL, &bytes, NULL) == 0)
            tune_tensor(a->tune, request_name_hash(act->items[i].req), bytes);
    if (!tune_batch(a->tune, clock_now_ns(), &sample))
        return;
    log_sample(a, &sample);
    if (tune_is_done(a->tune))
        autotune_finish_search(a);
    if (memcmp(tune_settings(a->tune), &a->now, sizeof(a->now)) == 0)
        tune_applied(a->tune); /* a warm-up sample: nothing changes */
    else
        autotune_send(a, tune_settings(a->tune));
    autotune_update_stats(a);
}

const struct tuning *autotune_take_news(struct autotune *a)
{
    bool has_news = a->has_news;

    a->has_news = false;
    return has_news ? &a->news : NULL;
}

/* --- every rank --- */

void autotune_apply(struct autotune *a, const struct tuning *t)
{
    a->now = *t;
    if (a->tune)
        tune_applied(a->tune);
    autotune_update_stats(a);
}
