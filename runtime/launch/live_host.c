/* SPDX-License-Identifier: Apache-2.0 */
/* Called by agent.c. */
#include "runtime/launch/live_host.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/contract/stall_record.h"
#include "runtime/launch/stats_dir.h"
#include "runtime/live/live_page.h"

#define TICK_NS NS_PER_S

/* The parts of /proc/PID/stat that are used. */
struct proc_stat {
    char state;
    uint64_t cpu_ms, rss_bytes;
};

/* False: there is no such process. */
static bool proc_stat_read(uint32_t pid, struct proc_stat *ret)
{
    char path[64], text[1024];
    const char *p;
    unsigned long long user, system;
    long long pages;
    long ticks = sysconf(_SC_CLK_TCK), page_bytes = sysconf(_SC_PAGESIZE);
    CLEANUP(fd_close) int fd = -1;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0 || ticks <= 0)
        return false;
    text[n] = '\0';
    p = strrchr(text, ')'); /* the name of the program may contain anything */
    if (!p
        || sscanf(p + 1,
                  " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d "
                  "%*d %*d %*d %*u %*u %lld",
                  &ret->state, &user, &system, &pages)
               != 4)
        return false;
    ret->cpu_ms = (user + system) * 1000 / (unsigned long)ticks;
    ret->rss_bytes = (uint64_t)pages * (uint64_t)page_bytes;
    return true;
}

static void live_host_read_proc(struct live_host *h, uint32_t i, struct live_rank *r)
{
    struct proc_stat s;
    uint64_t now_ns = clock_now_ns();

    if (!proc_stat_read(r->pid, &s))
        return;
    r->cpu_ms = s.cpu_ms;
    r->rss_bytes = s.rss_bytes;
    if (!h->stopped_ns)
        return;
    if (s.state != 'T' && s.state != 't')
        h->stopped_ns[i] = 0;
    else if (h->stopped_ns[i] == 0)
        h->stopped_ns[i] = now_ns;
    if (h->stopped_ns[i] > 0)
        r->stopped_ms = (now_ns - h->stopped_ns[i]) / NS_PER_MS + 1;
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
    }
    if (pid <= 0)
        ret->state = LIVE_RANK_EXITED;
    else
        live_host_read_proc(h, i, ret);
}

/* True: a rank has no page yet, or is stopped. */
static bool live_host_tick_records(struct live_host *h,
                                   const struct local_ranks *local,
                                   uint64_t now_ns)
{
    AUTOFREE struct live_rank *r = mem_alloc(sizeof(*r));
    bool is_due = now_ns >= h->records_ns, is_urgent = false;

    for (uint32_t i = 0; r && i < h->c.n; i++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        uint64_t before_ns = h->stopped_ns ? h->stopped_ns[i] : 0;
        bool has_changed;

        live_host_read(h, i, local_ranks_pid(local, i), r);
        has_changed = r->stopped_ms > 0 || before_ns > 0;
        is_urgent = is_urgent || has_changed || r->state == LIVE_RANK_STARTED;
        if (!is_due && !has_changed)
            continue;
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
    return h->c.n > 0 && h->c.ranks[0].place.rank == 0;
}

static void live_host_send_stall(struct live_host *h, const char *text, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, STALL_FILE_MAX_BYTES);
    strbuf_add(&b, text, n);
    h->c.send(h->c.arg, LIVE_PART_STALL, 0, &b);
}

static void live_host_tick_stall(struct live_host *h)
{
    char path[CONTRACT_PATH_MAX + 32];
    AUTOFREE char *text = NULL;
    size_t n = 0;

    (void)snprintf(path, sizeof(path), "%s/" STALL_FILE, h->c.dir);
    (void)fd_read_file(path, STALL_FILE_MAX_BYTES, &text, &n, NULL); /* mostly none */
    if (!text && h->stall)
        live_host_send_stall(h, "", 0);
    else if (text && (!h->stall || strcmp(text, h->stall) != 0))
        live_host_send_stall(h, text, n);
    mem_free(h->stall);
    h->stall = TAKE(text);
}

/* --- examinations ----------------------------------------------------------------- */

void live_host_examine(struct live_host *h,
                       const struct local_ranks *local,
                       uint32_t number)
{
    (void)local;
    h->number = number;
}

/* --- the host --------------------------------------------------------------------- */

void live_host_begin(struct live_host *h, const struct live_host_config *c)
{
    live_host_end(h);
    *h = (struct live_host){.c = *c};
    h->stopped_ns = mem_calloc(c->n, sizeof(*h->stopped_ns)); /* NULL: not counted */
}

void live_host_end(struct live_host *h)
{
    mem_free(h->stopped_ns);
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
    *ret_next_ns = earlier_ns(*ret_next_ns, h->tick_ns);
}
