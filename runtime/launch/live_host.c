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
#include "runtime/launch/stats_dir.h"
#include "runtime/live/live_page.h"

/* Processor time and resident memory; unchanged if the process does not exist. */
static void live_read_proc(struct live_rank *r)
{
    char path[64], text[1024];
    const char *p;
    unsigned long long user, system;
    long long pages;
    long ticks = sysconf(_SC_CLK_TCK), page_bytes = sysconf(_SC_PAGESIZE);
    CLEANUP(fd_close) int fd = -1;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%u/stat", r->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0 || ticks <= 0)
        return;
    text[n] = '\0';
    p = strrchr(text, ')'); /* the name of the program may contain anything */
    if (!p
        || sscanf(p + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d "
                  "%*d %*d %*d %*u %*u %lld",
                  &user, &system, &pages)
               != 3)
        return;
    r->cpu_ms = (user + system) * 1000 / (unsigned long)ticks;
    r->rss_bytes = (uint64_t)pages * (uint64_t)page_bytes;
}

/* The record of the rank with this index. */
static void
live_host_read(const struct live_host *h, uint32_t i, pid_t pid, struct live_rank *ret)
{
    char path[CONTRACT_PATH_MAX + 32];
    AUTOFREE struct stats_page *page = NULL;

    live_rank_init(ret);
    ret->rank = h->ranks[i].place.rank;
    ret->pid = pid > 0 ? (uint32_t)pid : 0;
    (void)snprintf(path, sizeof(path), "%s/rank.%u", h->dir, ret->rank);
    page = stats_page_read(path);
    if (page && page->generation == h->ranks[i].generation && page->rank == ret->rank) {
        ret->state = LIVE_RANK_IN_WORLD;
        live_page_fill(page, clock_wall_us(), ret);
    }
    if (pid <= 0)
        ret->state = LIVE_RANK_EXITED;
    else
        live_read_proc(ret);
}

void live_host_begin(struct live_host *h,
                     const char *dir,
                     const struct contract *ranks,
                     uint32_t n)
{
    *h = (struct live_host){.dir = dir, .ranks = ranks, .n = n};
}

void live_host_tick(struct live_host *h,
                    const struct local_ranks *local,
                    void (*send)(void *arg, const struct strbuf *record),
                    void *arg,
                    uint64_t *ret_next_ns)
{
    uint64_t now_ns = clock_now_ns();
    AUTOFREE struct live_rank *r = NULL;
    bool has_all = true;

    if (now_ns < h->next_ns) {
        *ret_next_ns = earlier_ns(*ret_next_ns, h->next_ns);
        return;
    }
    r = mem_alloc(sizeof(*r));
    for (uint32_t i = 0; r && i < h->n; i++) {
        CLEANUP(strbuf_release) struct strbuf record = {0};

        live_host_read(h, i, local_ranks_pid(local, i), r);
        has_all = has_all && r->state != LIVE_RANK_STARTED;
        strbuf_init(&record, LIVE_REPORT_MAX_BYTES);
        live_rank_pack(r, &record);
        if (strbuf_status(&record) == 0)
            send(arg, &record);
    }
    h->next_ns = now_ns + (has_all ? LIVE_EVERY_S : 1) * NS_PER_S;
    *ret_next_ns = earlier_ns(*ret_next_ns, h->next_ns);
}
