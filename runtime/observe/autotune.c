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
 * to another world, causes a warning. Called by coordinator.c, step.c and carry.c. */
#include "runtime/observe/autotune.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "runtime/observe/observe.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/core/tune_file.h"

static uint32_t world_count_hosts(const struct coordinator *co)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < co->size; i++) {
        uint32_t j = i > 0 && strcmp(co->members[i].host, co->members[i - 1].host) == 0
                         ? i - 1
                         : 0;

        while (j < i && strcmp(co->members[i].host, co->members[j].host) != 0)
            j++;
        n += j == i;
    }
    return n;
}

static void autotune_update_stats(struct coordinator *co)
{
    const struct autotune *a = &co->autotune;

    stats_set(&co->stats, STATS_FUSION_BYTES, a->now.fusion_bytes);
    stats_set(&co->stats, STATS_GATHER_NS, a->now.gather_ns);
    stats_set(&co->stats, STATS_TUNING, a->tune && !tune_is_done(a->tune));
}

/* The backend's own settings, where it has any. */
static bool backend_tune(struct backend *b, const struct tuning *t)
{
    return b && b->ops->tune && b->ops->tune(b, t);
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

static void open_log(struct coordinator *co)
{
    CLEANUP(strbuf_release) struct strbuf head = {0};
    struct autotune *a = &co->autotune;
    const char *path = co->settings.autotune_log;

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

static void log_sample(struct coordinator *co, const struct tune_sample *s)
{
    CLEANUP(strbuf_release) struct strbuf line = {0};

    strbuf_init(&line, 1024);
    tune_log_line(++co->autotune.n_logged, s, &line);
    log_append_line(&co->autotune, co->settings.autotune_log, &line);
}

static void autotune_save_file(struct coordinator *co)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    struct tune_file f = {.ranks = co->size,
                          .hosts = world_count_hosts(co),
                          .tuning = *tune_settings(co->autotune.tune)};
    const char *path = co->settings.autotune_file;
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
static bool autotune_load_file(struct coordinator *co, struct tuning *ret)
{
    const char *path = co->settings.autotune_file;
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
    if (rc == 0 && (f.ranks != co->size || f.hosts != world_count_hosts(co)))
        rc = err_set(&err, -EINVAL,
                     "%.300s: found with %u ranks on %u hosts, this world has %u on %u",
                     path, f.ranks, f.hosts, co->size, world_count_hosts(co));
    if (rc < 0) {
        log_warn(co->settings.is_autotuned
                     ? "the autotune file is not used, searching again"
                     : "the autotune file is not used, continuing without it",
                 "variable=HVD_AUTOTUNE_FILE cause=\"%s\"", err.text);
        return false;
    }
    *ret = f.tuning;
    return true;
}

/* --- rank 0 --- */

static void autotune_begin_search(struct coordinator *co)
{
    const struct settings *s = &co->settings;
    struct autotune *a = &co->autotune;
    bool has_backend = backend_tune(co->backend, NULL);
    struct tune_config cfg = {
        .start = a->now,
        .is_fixed = {[TUNE_FUSION] = s->is_fusion_set,
                     [TUNE_GATHER] = s->is_gather_set,
                     [TUNE_WHOLE] = !has_backend,
                     [TUNE_CHUNK] = !has_backend},
        .n_warmup = s->autotune_warmup,
        .n_steps = s->autotune_steps,
        .n_samples = s->autotune_samples,
    };

    if (tune_new(&cfg, &a->tune) < 0)
        log_warn("out of memory for autotune, continuing without it",
                 "variable=HOROVOD_AUTOTUNE");
    else
        open_log(co);
}

void autotune_init(struct coordinator *co)
{
    struct autotune *a = &co->autotune;

    a->now = (struct tuning){.fusion_bytes = co->settings.fusion_bytes,
                             .gather_ns = co->settings.gather_ns};
    gather_set(&co->gather, a->now.gather_ns, a->now.fusion_bytes);
    autotune_update_stats(co);
}

void autotune_release(struct autotune *a)
{
    tune_free(a->tune);
    if (a->log)
        (void)fclose(a->log); /* each line was flushed */
    *a = (struct autotune){0};
}

void autotune_start(struct coordinator *co)
{
    const struct settings *s = &co->settings;
    struct tuning t;

    if (co->rank != 0)
        return;
    if (autotune_load_file(co, &t)) {
        if (s->is_fusion_set)
            t.fusion_bytes = s->fusion_bytes;
        if (s->is_gather_set)
            t.gather_ns = s->gather_ns;
        log_info("using the settings of the autotune file", "file=%s",
                 s->autotune_file);
        negotiate_tune(co->negotiate, &t);
    } else if (s->is_autotuned) {
        autotune_begin_search(co);
    }
    autotune_update_stats(co);
}

static void autotune_finish_search(struct coordinator *co)
{
    struct autotune *a = &co->autotune;
    const struct tuning *t = tune_settings(a->tune);

    log_info("autotune has found its settings",
             "samples=%u fusion_threshold=%llu cycle_time_ms=%g tcp_whole_bytes=%llu "
             "tcp_chunk_bytes=%llu bytes_per_us=%.1f at_first=%.1f",
             tune_n_samples(a->tune), (unsigned long long)t->fusion_bytes,
             (double)t->gather_ns / 1e6, (unsigned long long)t->whole_bytes,
             (unsigned long long)t->chunk_bytes, tune_best(a->tune) / 1e6,
             tune_first(a->tune) / 1e6);
    autotune_save_file(co);
    if (a->log && fclose(a->log) != 0)
        log_warn("the autotune log is incomplete",
                 "variable=HOROVOD_AUTOTUNE_LOG cause=\"%s\"", strerror(errno));
    a->log = NULL;
}

static uint64_t request_name_hash(const struct tensor_request *q)
{
    uint64_t h = 0xcbf29ce484222325ull ^ q->process_set;

    for (const char *p = q->name; *p; p++)
        h = (h ^ (uint8_t)*p) * 0x100000001b3ull;
    return h;
}

void autotune_batch(struct coordinator *co, const struct member_act *act)
{
    struct autotune *a = &co->autotune;
    struct tune_sample sample;
    uint64_t bytes;

    if (!a->tune || tune_is_done(a->tune))
        return;
    for (size_t i = 0; i < act->n_items; i++)
        if (request_size(act->items[i].req, NULL, &bytes, NULL) == 0)
            tune_tensor(a->tune, request_name_hash(act->items[i].req), bytes);
    if (!tune_batch(a->tune, clock_now_ns(), &sample))
        return;
    log_sample(co, &sample);
    if (tune_is_done(a->tune))
        autotune_finish_search(co);
    if (memcmp(tune_settings(a->tune), &a->now, sizeof(a->now)) == 0)
        tune_applied(a->tune); /* a warm-up sample: nothing changes */
    else
        negotiate_tune(co->negotiate, tune_settings(a->tune));
    autotune_update_stats(co);
}

/* --- every rank --- */

void autotune_apply(struct coordinator *co, const struct tuning *t)
{
    struct autotune *a = &co->autotune;

    a->now = *t;
    gather_set(&co->gather, t->gather_ns, t->fusion_bytes);
    for (size_t i = 0; i < co->sets->n; i++)
        (void)backend_tune(co->sets->v[i]->backend, t); /* a backend may ignore it */
    if (a->tune)
        tune_applied(a->tune);
    autotune_update_stats(co);
}
