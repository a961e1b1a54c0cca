/* SPDX-License-Identifier: Apache-2.0 */
/*      WAITING --all here--> RUNNING --all done--> FINISHED
 *         |                    |
 *         '--timeout, failure--'--failure, lost worker--> STOPPED
 *
 * Pods start in any order and may be started anew before all are here, so nothing
 * counts as a failure while WAITING but what a worker says itself (its command is
 * missing) and the timeout. Once RUNNING, failures go to the verdict, which decides
 * after its window who was first. Called by hub.c, which owns the connections and the
 * clock. */
#include "runtime/launch/core/meet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

#define S                1000000000ull
#define MISSING_IN_TEXT  12
#define MEET_MAX_WORKERS HOSTLIST_MAX_HOSTS

int meet_init(struct meet *m,
              uint32_t workers,
              uint32_t slots,
              uint32_t np,
              uint64_t start_timeout_s,
              uint64_t now_ns,
              struct err *err)
{
    memset(m, 0, sizeof(*m));
    if (workers < 1 || workers > MEET_MAX_WORKERS)
        return err_set(err, -EINVAL, "%u workers are not between 1 and %d", workers,
                       MEET_MAX_WORKERS);
    m->members = mem_calloc(workers, sizeof(*m->members));
    if (!m->members)
        return err_set(err, -ENOMEM, "out of memory for %u workers", workers);
    m->workers = workers;
    m->slots = slots;
    m->np = np;
    m->start_timeout_s = start_timeout_s;
    m->start_deadline_ns = now_ns + start_timeout_s * S;
    verdict_init(&m->verdict);
    return 0;
}

void meet_release(struct meet *m)
{
    mem_free(m->members);
    verdict_release(&m->verdict);
    memset(m, 0, sizeof(*m));
}

void meet_know_hosts(struct meet *m, const struct hostlist *hosts, uint32_t np)
{
    m->hosts = hosts;
    m->np = np;
    for (uint32_t i = 0; i < m->workers; i++)
        (void)snprintf(m->members[i].host, sizeof(m->members[i].host), "%s",
                       hosts->v[i].name);
}

void meet_here(struct meet *m, uint32_t worker)
{
    if (m->members[worker].state == MEMBER_ABSENT)
        m->members[worker].state = MEMBER_HERE;
}

/* The ranks of a worker. */
static void ranks_of(const struct meet *m, uint32_t worker, struct report *r)
{
    uint32_t np = m->np ? m->np : m->workers * m->slots, first = worker * m->slots;
    uint32_t n = m->slots;
    if (m->hosts) {
        first = 0;
        for (uint32_t i = 0; i < worker; i++)
            first += m->hosts->v[i].slots;
        n = m->hosts->v[worker].slots;
    }
    r->first_rank = first;
    r->n_ranks = first >= np ? 0 : np - first < n ? np - first : n;
}

int meet_hello(struct meet *m,
               const struct hello *h,
               const char *address,
               struct err *err)
{
    if (h->worker >= m->workers)
        return err_set(err, -EINVAL,
                       "worker index %u is not below the job's %u workers", h->worker,
                       m->workers);
    if (h->workers != m->workers || h->slots != m->slots || h->np != m->np)
        return err_set(
            err, -EINVAL,
            "worker %u was told %u workers, %u slots, %u ranks; worker 0 was told %u, "
            "%u, %u: they belong to different versions of the job",
            h->worker, h->workers, h->slots, h->np, m->workers, m->slots, m->np);
    if (m->state == MEET_RUNNING || m->state == MEET_FINISHED)
        return err_set(err, -EALREADY,
                       "the job has already %s; worker %u cannot join it now",
                       m->state == MEET_RUNNING ? "started" : "ended", h->worker);
    struct member *w = &m->members[h->worker];
    w->state = MEMBER_HERE;
    (void)snprintf(w->host, sizeof(w->host), "%s", h->host);
    (void)snprintf(w->address, sizeof(w->address), "%s", address);
    return 0;
}

void meet_failed(struct meet *m, const struct report *r, uint64_t now_ns)
{
    if (m->state == MEET_WAITING || m->state == MEET_RUNNING)
        (void)verdict_add(&m->verdict, r,
                          now_ns); /* out of memory: a later report decides */
}

void meet_done(struct meet *m, uint32_t worker)
{
    if (m->members[worker].state == MEMBER_HERE)
        m->members[worker].state = MEMBER_DONE;
}

void meet_lost(
    struct meet *m, uint32_t worker, const char *why, uint64_t wall_us, uint64_t now_ns)
{
    struct member *w = &m->members[worker];
    if (m->state == MEET_WAITING)
        w->state = MEMBER_ABSENT;
    if (m->state != MEET_RUNNING || w->state != MEMBER_HERE)
        return;
    w->state = MEMBER_LOST;
    struct report *r = mem_zalloc(sizeof(*r));
    if (!r)
        return;
    r->f.rank = -1;
    r->f.exit_code = 125;
    r->f.at_wall_us = wall_us;
    r->blames = -1;
    ranks_of(m, worker, r);
    (void)snprintf(r->f.host, sizeof(r->f.host), "%s", w->host);
    if (m->hosts)
        (void)snprintf(r->f.why, sizeof(r->f.why), "host %.100s was lost: %.110s",
                       w->host, why);
    else
        (void)snprintf(r->f.why, sizeof(r->f.why), "worker %u (%.100s) was lost: %.80s",
                       worker, w->host, why);
    meet_failed(m, r, now_ns);
    mem_free(r);
}

uint32_t meet_present(const struct meet *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->workers; i++)
        n += m->members[i].state != MEMBER_ABSENT;
    return n;
}

void meet_missing(const struct meet *m, struct strbuf *out)
{
    uint32_t said = 0, left = m->workers - meet_present(m);
    for (uint32_t i = 0; i < m->workers && said < MISSING_IN_TEXT; i++)
        if (m->members[i].state == MEMBER_ABSENT)
            strbuf_printf(out, "%s%u", said++ ? ", " : "", i);
    if (left > said)
        strbuf_printf(out, " and %u more", left - said);
}

static void time_out(struct meet *m, uint64_t wall_us, uint64_t now_ns)
{
    struct strbuf who;
    struct report *r = mem_zalloc(sizeof(*r));
    if (!r)
        return;
    strbuf_init(&who, 200);
    meet_missing(m, &who);
    r->f.rank = r->blames = -1;
    r->f.exit_code = 125;
    r->f.at_wall_us = wall_us;
    (void)snprintf(r->f.host, sizeof(r->f.host), "%s",
                   *m->members[0].host ? m->members[0].host : "worker-0");
    bool is_one = m->workers - meet_present(m) == 1;
    (void)snprintf(
        r->f.why, sizeof(r->f.why),
        "waited %llu s for worker%s %s of %u, which did not come: look at %s pod%s",
        (unsigned long long)m->start_timeout_s, is_one ? "" : "s", strbuf_str(&who),
        m->workers, is_one ? "its" : "their", is_one ? "" : "s");
    strbuf_release(&who);
    meet_failed(m, r, now_ns);
    mem_free(r);
}

static bool all_done(const struct meet *m)
{
    for (uint32_t i = 0; i < m->workers; i++)
        if (m->members[i].state != MEMBER_DONE)
            return false;
    return true;
}

static bool all_accounted(const struct meet *m)
{
    for (uint32_t i = 0; i < m->workers; i++)
        if (m->members[i].state == MEMBER_HERE)
            return false;
    return true;
}

enum meet_state meet_due(struct meet *m, uint64_t wall_us, uint64_t now_ns)
{
    if (m->state == MEET_STOPPED || m->state == MEET_FINISHED)
        return m->state;
    if (m->state == MEET_WAITING && !m->verdict.n && now_ns >= m->start_deadline_ns
        && meet_present(m) < m->workers) {
        time_out(m, wall_us, now_ns);
        return m->verdict.n ? MEET_STOPPED : m->state;
    }
    if (m->verdict.n) /* nobody left who could report: no need to wait */
        return now_ns >= verdict_deadline_ns(&m->verdict) || all_accounted(m)
                   ? MEET_STOPPED
                   : m->state;
    if (m->state == MEET_WAITING)
        return meet_present(m) == m->workers ? MEET_RUNNING : MEET_WAITING;
    return all_done(m) ? MEET_FINISHED : MEET_RUNNING;
}

void meet_enter(struct meet *m, enum meet_state s)
{
    m->state = s;
}

uint64_t meet_deadline_ns(const struct meet *m)
{
    if (m->state == MEET_STOPPED || m->state == MEET_FINISHED)
        return UINT64_MAX;
    uint64_t due = verdict_deadline_ns(&m->verdict);
    if (m->state == MEET_WAITING && m->start_deadline_ns < due)
        due = m->start_deadline_ns;
    return due;
}

const struct report *meet_first(const struct meet *m)
{
    return verdict_pick(&m->verdict);
}

/* Two workers of one name: pods on the host network, or a test on one machine. */
static bool is_shared(const struct meet *m, uint32_t i, bool by_address)
{
    for (uint32_t k = 0; k < m->workers; k++) {
        const struct member *a = &m->members[i], *b = &m->members[k];
        if (k != i
            && !strcmp(by_address ? a->address : a->host,
                       by_address ? b->address : b->host))
            return true;
    }
    return false;
}

int meet_hosts(const struct meet *m, struct hostlist *ret, struct err *err)
{
    for (uint32_t i = 0; i < m->workers; i++) {
        char number[32];
        const char *name = m->members[i].host;
        if (is_shared(m, i, false))
            name = m->members[i].address;
        if (name != m->members[i].host && is_shared(m, i, true)) {
            (void)snprintf(number, sizeof(number), "worker-%u", i);
            name = number;
        }
        int rc = hostlist_append(ret, name, m->slots, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
