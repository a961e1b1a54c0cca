/* SPDX-License-Identifier: Apache-2.0 */
/* Called by the agents, local_job.c and step_node.c, in the main thread. */
#include "runtime/launch/live_host.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/contract/stall_record.h"
#include "runtime/launch/examine.h"
#include "runtime/launch/process.h"
#include "runtime/launch/stats_dir.h"
#include "runtime/live/live_page.h"

#define TICK_NS        NS_PER_S
#define EXAM_TICK_NS   (100 * NS_PER_MS) /* while ranks are examined */
/* A tensor is noticed after a quarter of the stall time; the next record must not come
 * after the stall. */
#define SHORT_STALL_MS (4 * LIVE_EVERY_S * 1000)

static bool proc_stat_is_stopped(const struct proc_stat *s)
{
    return s->state == 'T' || s->state == 't';
}

/* Between records only the state of the process is read. */
static bool live_host_sees_stop(const struct live_host *h, uint32_t i, pid_t pid)
{
    struct proc_stat s;

    if (!h->watched || pid <= 0)
        return false;
    return process_read_stat(h->watched[i].pid ? h->watched[i].pid : (uint32_t)pid, &s)
           && proc_stat_is_stopped(&s);
}

static void live_host_read_proc(struct live_host *h, uint32_t i, struct live_rank *r)
{
    uint64_t now_ns = clock_now_ns();
    struct watched_rank *w;
    long ticks_per_s = sysconf(_SC_CLK_TCK);
    struct proc_stat s;

    if (!process_read_stat(r->pid, &s))
        return;
    r->cpu_ms = s.cpu_ticks * 1000 / (ticks_per_s > 0 ? (uint64_t)ticks_per_s : 100);
    r->rss_bytes = s.resident_pages * (uint64_t)sysconf(_SC_PAGESIZE);
    if (!h->watched)
        return;
    w = &h->watched[i];
    if (!proc_stat_is_stopped(&s))
        w->stopped_ns = 0;
    else if (w->stopped_ns == 0)
        w->stopped_ns = now_ns;
    if (w->stopped_ns > 0)
        r->stopped_ms = (now_ns - w->stopped_ns) / NS_PER_MS + 1;
}

/* Of the first rank, where it does not report by itself. */
static void live_host_read_trainer(const struct live_host *h, struct live_progress *ret)
{
    struct live_progress p;

    if (ret->updated_wall_us > 0 || !trainer_progress_get(h->c.trainer, &p))
        return;
    p.commit_wall_us = ret->commit_wall_us;
    p.commit_step = ret->commit_step;
    *ret = p;
}

/* Fills the record of the rank with this index. */
static void
live_host_read(struct live_host *h, uint32_t i, pid_t pid, struct live_rank *ret)
{
    const struct contract *c = &h->c.ranks[i];
    char path[CONTRACT_PATH_MAX + 32];
    AUTOFREE struct stats_page *page = NULL;

    live_rank_init(ret);
    ret->rank = c->place.rank;
    ret->pid = pid > 0 ? (uint32_t)pid : 0;
    (void)snprintf(path, sizeof(path), "%s/rank.%u", h->c.dir, ret->rank);
    page = stats_page_read(path);
    if (page && page->generation == c->generation && page->rank == ret->rank) {
        ret->state = LIVE_RANK_IN_WORLD;
        live_page_fill(page, clock_wall_us(), ret);
        if (h->watched)
            h->watched[i].pid = ret->pid;
    }
    if (i == 0)
        live_host_read_trainer(h, &ret->progress);
    if (pid > 0) {
        live_host_read_proc(h, i, ret);
        return;
    }
    ret->state = LIVE_RANK_EXITED;
    if (h->watched)
        h->watched[i].stopped_ns = 0;
}

/* Sends the records that are due, and those of ranks that are stopped or were until now.
 * True: the next ones are due soon. */
static bool live_host_tick_records(struct live_host *h,
                                   const struct local_ranks *local,
                                   uint64_t now_ns)
{
    AUTOFREE struct live_rank *r = mem_alloc(sizeof(*r));
    bool is_due = now_ns >= h->records_ns, is_urgent = false;

    for (uint32_t i = 0; r && i < h->c.n; i++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        bool was_stopped = h->watched && h->watched[i].stopped_ns > 0;
        pid_t pid = h->c.pids ? h->c.pids[i] : local_ranks_pid(local, i);

        if (h->c.ranks[i].place.rank == LIVE_NO_RANK)
            continue;
        if (!is_due && !was_stopped && !live_host_sees_stop(h, i, pid))
            continue;
        live_host_read(h, i, pid, r);
        is_urgent = is_urgent || was_stopped || r->stopped_ms > 0
                    || r->state == LIVE_RANK_STARTED
                    || (r->stall_ms >= 0 && r->stall_ms < SHORT_STALL_MS);
        strbuf_init(&b, LIVE_REPORT_MAX_BYTES);
        live_rank_pack(r, &b);
        if (strbuf_status(&b) == 0)
            h->c.send(h->c.arg, LIVE_PART_RECORD, 0, &b);
    }
    return is_urgent;
}

/* --- stalls ----------------------------------------------------------------------- */

static bool live_host_has_rank_0(const struct live_host *h)
{
    for (uint32_t i = 0; i < h->c.n; i++)
        if (h->c.ranks[i].place.rank == 0)
            return true;
    return false;
}

static void live_host_send_stall(struct live_host *h, const char *text, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, STALL_FILE_MAX_BYTES);
    strbuf_add(&b, text, n);
    h->c.send(h->c.arg, LIVE_PART_STALL, 0, &b);
}

/* NULL: there is none, as mostly. A rank can put anything there, such as a FIFO. */
static char *live_host_read_stall(const struct live_host *h, size_t *ret_n)
{
    char path[CONTRACT_PATH_MAX + 32];
    AUTOFREE char *text = NULL;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%s/" STALL_FILE, h->c.dir);
    CLEANUP(fd_close)
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0)
        text = mem_alloc(STALL_FILE_MAX_BYTES + 1);
    n = text ? read(fd, text, STALL_FILE_MAX_BYTES) : 0;
    if (n <= 0)
        return NULL;
    text[n] = '\0';
    *ret_n = (size_t)n;
    return TAKE(text);
}

static void live_host_tick_stall(struct live_host *h)
{
    size_t n = 0;
    AUTOFREE char *text = live_host_read_stall(h, &n);

    if (!text && h->stall)
        live_host_send_stall(h, "", 0);
    else if (text && (!h->stall || strcmp(text, h->stall) != 0))
        live_host_send_stall(h, text, n);
    mem_free(h->stall);
    h->stall = TAKE(text);
}

/* --- examinations ----------------------------------------------------------------- */

/* The folder may also have pages of a world before, and of ranks of other hosts. */
static size_t
live_host_select_own(const struct live_host *h, struct examined_process *v, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < h->c.n; k++)
            if (v[i].rank == h->c.ranks[k].place.rank
                && v[i].generation == h->c.ranks[k].generation) {
                v[kept++] = v[i];
                break;
            }
    return kept;
}

void live_host_examine(struct live_host *h, uint32_t number)
{
    AUTOFREE struct examined_process *v = NULL;
    struct err err = ERR_INIT;
    size_t n = 0;
    int rc;

    examination_free(h->exam);
    h->exam = NULL;
    h->number = number;
    rc = examine_list(h->c.dir, &v, &n);
    n = rc == 0 ? live_host_select_own(h, v, n) : 0;
    if (n > 0)
        rc = examination_start(v, n, h->c.dir, !h->c.pids, &h->exam, &err);
    if (rc < 0)
        log_warn("cannot examine the ranks", "cause=\"%s\"",
                 *err.text ? err.text : "out of memory");
}

static void live_host_tick_exam(struct live_host *h)
{
    const struct hang_finding *const *v;
    size_t n;

    if (!h->exam || !examination_is_done(h->exam))
        return;
    v = examination_findings(h->exam, &n);
    for (size_t i = 0; i < n; i++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};

        strbuf_init(&b, HANG_FINDING_MAX);
        hang_finding_pack(v[i], &b);
        if (strbuf_status(&b) == 0)
            h->c.send(h->c.arg, LIVE_PART_FINDING, h->number, &b);
    }
    examination_free(h->exam);
    h->exam = NULL;
}

/* --- the host --------------------------------------------------------------------- */

void live_host_begin(struct live_host *h, const struct live_host_config *c)
{
    live_host_end(h);
    *h = (struct live_host){.c = *c};
    h->watched = mem_calloc(c->n, sizeof(*h->watched));
}

void live_host_end(struct live_host *h)
{
    examination_free(h->exam);
    mem_free(h->watched);
    mem_free(h->stall);
    *h = (struct live_host){.c = {0}};
}

void live_host_tick(struct live_host *h,
                    const struct local_ranks *local,
                    uint64_t *ret_next_ns)
{
    uint64_t now_ns = clock_now_ns();

    if (now_ns >= h->tick_ns) {
        bool is_urgent = live_host_tick_records(h, local, now_ns);

        if (now_ns >= h->records_ns)
            h->records_ns = now_ns + (is_urgent ? 1 : LIVE_EVERY_S) * NS_PER_S;
        if (live_host_has_rank_0(h))
            live_host_tick_stall(h);
        h->tick_ns = now_ns + TICK_NS;
    }
    live_host_tick_exam(h);
    *ret_next_ns =
        earlier_ns(*ret_next_ns, h->exam ? now_ns + EXAM_TICK_NS : h->tick_ns);
}
