/* SPDX-License-Identifier: Apache-2.0 */
/* Before START every failure is final: a lost host does not come back. Called by remote.c
 * and remote_receive.c. */
#include "runtime/launch/remote_hosts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define OTHERS_NS         NS_PER_S
#define OTHERS_NAMED      3
#define NO_MEET_TIMEOUT_S 1000000000u /* remote_time_out() reports it instead */

int remote_hosts_init(struct remote_hosts *h,
                      const struct hostlist *list,
                      uint32_t np,
                      uint32_t local,
                      struct err *err)
{
    uint32_t first = 0;
    h->list = list;
    h->local = local;
    h->v = mem_calloc(list->n, sizeof(*h->v));
    if (!h->v)
        return err_set(err, -ENOMEM, "out of memory for %zu hosts", list->n);
    for (size_t i = 0; i < list->n; i++) {
        uint32_t left = np - first, slots = list->v[i].slots;
        h->v[i].first_rank = first;
        h->v[i].n_ranks = slots < left ? slots : left;
        first += h->v[i].n_ranks;
    }
    int rc = meet_init(&h->meet, (uint32_t)list->n, 0, 0, NO_MEET_TIMEOUT_S,
                       clock_now_ns(), err);
    if (rc == 0)
        meet_know_hosts(&h->meet, list, np);
    return rc;
}

void remote_hosts_release(struct remote_hosts *h)
{
    meet_release(&h->meet);
    mem_free(h->v);
    h->v = NULL;
}

bool remote_hosts_are_over(const struct remote_hosts *h)
{
    return h->meet.state == MEET_STOPPED || h->meet.state == MEET_FINISHED;
}

void remote_hosts_set_ready(struct remote_hosts *h,
                            uint32_t host,
                            const struct errand_ready *ready)
{
    h->v[host].ready = *ready;
    h->v[host].is_ready = true;
    meet_set_ready(&h->meet, host);
    log_info("host is ready", "host=%s", h->list->v[host].name);
}

void remote_hosts_fail(struct remote_hosts *h,
                       const char *name,
                       int code,
                       const char *why)
{
    AUTOFREE struct report *report = mem_zalloc(sizeof(*report));
    if (!report)
        return;
    report_init(report, name, code, clock_wall_us());
    (void)snprintf(report->f.why, sizeof(report->f.why), "%.*s", 235, why);
    meet_failed(&h->meet, report, clock_now_ns());
}

/* A host that failed before the start counts once, with its first failure. */
static bool remote_hosts_count_failed(struct remote_hosts *h, uint32_t host)
{
    bool is_new = !h->v[host].has_failed;
    h->v[host].has_failed = true;
    h->n_failed += is_new;
    if (!h->others_ns)
        h->others_ns = clock_now_ns() + OTHERS_NS;
    return is_new;
}

void remote_hosts_report(struct remote_hosts *h, uint32_t host, struct report *report)
{
    if (!h->v[host].is_ready)
        remote_hosts_count_failed(h, host);
    if (!*report->f.host
        || !strcmp(report->f.host, "-")) { /* the agent had not decoded its JOB */
        char why[sizeof(report->f.why)];
        const char *name = h->list->v[host].name;
        (void)snprintf(why, sizeof(why), "%s", report->f.why);
        (void)snprintf(report->f.why, sizeof(why), "host %.60s: %.170s", name, why);
        (void)snprintf(report->f.host, sizeof(report->f.host), "%s", name);
    }
    if (!h->are_interrupted)
        meet_failed(&h->meet, report, clock_now_ns());
}

void remote_hosts_lose(struct remote_hosts *h,
                       uint32_t first,
                       uint32_t end,
                       const char *why)
{
    char text[300];
    const char *name = h->list->v[first].name;
    bool is_started = h->meet.state == MEET_RUNNING;
    if (remote_hosts_are_over(h))
        return;
    for (uint32_t i = first; is_started && i < end; i++)
        if (i == first || i != h->local)
            meet_lost(&h->meet, i, why, clock_wall_us(), clock_now_ns());
    if (is_started || !remote_hosts_count_failed(h, first))
        return;
    log_info("a host failed before the start", "host=%s cause=\"%s\"", name, why);
    (void)snprintf(text, sizeof(text), "host %.60s: %.200s", name, why);
    remote_hosts_fail(h, name, 125, text);
}

uint32_t remote_hosts_missing(const struct remote_hosts *h, uint32_t *ret_first)
{
    uint32_t missing = 0;
    for (uint32_t i = (uint32_t)h->list->n; i-- > 0;)
        if (!h->v[i].is_ready) {
            missing++;
            *ret_first = i;
        }
    return missing;
}

void remote_hosts_name_others(const struct remote_hosts *h, struct failure *f)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    uint32_t named = 0, left = 0;
    strbuf_init(&b, 1024);
    for (size_t i = 0; i < h->list->n; i++) {
        const char *name = h->list->v[i].name;
        if (!h->v[i].has_failed || !strcmp(name, f->host))
            continue;
        if (named < OTHERS_NAMED && strlen(name) < 40 && ++named)
            strbuf_printf(&b, "%s%s", named == 1 ? " (also failed: " : ", ", name);
        else
            left++;
    }
    if (named && left)
        strbuf_printf(&b, " and %u more", left);
    if (named)
        strbuf_putc(&b, ')');
    size_t n = strlen(f->why), room = sizeof(f->why) - 1;
    if (b.n && b.n < room)
        (void)snprintf(f->why + (n < room - b.n ? n : room - b.n), b.n + 1, "%s",
                       strbuf_str(&b));
}
