/* SPDX-License-Identifier: Apache-2.0 */
/* State machine of a job:
 *
 *         .<------- new world -------.
 *         |                          |
 *      WAITING --all present--> RUNNING --all done--> FINISHED
 *         |                          |
 *         '--timeout, failure------> '--failure, lost worker--> STOPPED
 *
 * Pods start in any order and may be deleted and replaced before all are present.
 * While WAITING only three events are failures: a failure that a worker reports
 * itself (its command is missing), the loss of a worker whose ranks have run in an
 * earlier world, and the timeout. While RUNNING, failures go to the verdict, which
 * selects the first one after its window.
 *
 * A scaled job gets a new world: a higher generation with another number of workers.
 * All agents then send HELLO again. Two events may cross: the pods without a place
 * in that world are deleted at about the time when the other agents read it.
 * Therefore a failure that is known when a worker leaves, or later, is held back for
 * MEET_LEAVE_MS until a world without the leaving workers is announced, which makes it
 * no failure. Which of the two messages arrived first does not matter until the verdict.
 * Without a leaving worker a failure ends the job. Messages of an earlier world are dropped, except
 * DONE: a job whose ranks had all exited with 0 is finished. Called by hub.c and
 * remote.c, which own the connections and the clock. */
#include "runtime/launch/core/meet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/contract/places.h"

#define S                1000000000ull
#define MS               1000000ull
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
    m->workers = m->n_members = workers;
    m->slots = slots;
    m->np = np;
    m->start_timeout_s = start_timeout_s;
    m->start_deadline_ns = now_ns + start_timeout_s * S;
    verdict_init(&m->verdict);
    return 0;
}

void meet_know_world(struct meet *m, uint32_t generation, bool is_scalable)
{
    m->generation = m->first_generation = m->wanted.generation = generation;
    m->is_scalable = is_scalable;
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

void meet_set_ready(struct meet *m, uint32_t worker)
{
    if (m->members[worker].state == MEMBER_ABSENT)
        m->members[worker].state = MEMBER_HERE;
}

uint32_t meet_ranks(const struct meet *m)
{
    return m->np ? m->np : m->workers * m->slots;
}

/* Sets the ranks of a worker in r. */
static void meet_worker_ranks(const struct meet *m, uint32_t worker, struct report *r)
{
    uint32_t np = meet_ranks(m), first = worker * m->slots;
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

/* --- worlds --- */

int meet_take_world(struct meet *m, const struct job_world *w, struct err *err)
{
    if (!m->is_scalable)
        return err_set(err, -EINVAL,
                       "the job has generation %u and cannot be scaled to generation "
                       "%u: worker 0 has no HVD_WORLD_FILE",
                       m->generation, w->generation);
    if (w->workers < 1 || w->workers > MEET_MAX_WORKERS
        || (uint64_t)w->workers * m->slots > WORLD_MAX_RANKS)
        return err_set(err, -EINVAL,
                       "generation %u has %u workers of %u slots: must be 1 to %d "
                       "workers and at most %d ranks",
                       w->generation, w->workers, m->slots, MEET_MAX_WORKERS,
                       WORLD_MAX_RANKS);
    if (w->generation <= m->wanted.generation)
        return 0;
    m->wanted = *w;
    return 1;
}

bool meet_sends_world(const struct meet *m, uint32_t generation)
{
    return m->is_scalable && generation >= m->first_generation;
}

/* Worker 0 is in every world. */
void meet_leaving(struct meet *m, uint32_t worker, uint64_t now_ns)
{
    if (!m->is_scalable || worker == 0 || worker >= m->workers
        || m->members[worker].is_leaving)
        return;
    m->members[worker].is_leaving = true;
    m->leave_until_ns = now_ns + MEET_LEAVE_MS * MS;
}

static uint64_t meet_decision_ns(const struct meet *m)
{
    uint64_t due = verdict_deadline_ns(&m->verdict);
    return m->verdict.n && m->leave_until_ns > due ? m->leave_until_ns : due;
}

bool meet_holds(const struct meet *m)
{
    return (m->state == MEET_WAITING || m->state == MEET_RUNNING) && m->verdict.n
           && meet_decision_ns(m) > verdict_deadline_ns(&m->verdict);
}

/* True if the ranks of the last world have all exited with 0, even if DONE arrived
 * later. */
static bool meet_was_all_done(const struct meet *m)
{
    for (uint32_t i = 0; i < m->ran_workers; i++)
        if (!m->members[i].was_done)
            return false;
    return m->ran_workers > 0;
}

bool meet_reforms(const struct meet *m)
{
    if (m->wanted.generation <= m->generation
        || (m->state != MEET_WAITING && m->state != MEET_RUNNING)
        || meet_was_all_done(m))
        return false;
    if (!m->verdict.n)
        return true;
    for (uint32_t i = 0; i < m->workers && i < m->wanted.workers; i++)
        if (m->members[i].is_leaving)
            return false;
    return m->leave_until_ns != 0;
}

int meet_reform(struct meet *m, uint64_t now_ns, struct err *err)
{
    uint32_t n = m->wanted.workers;
    bool is_anyone_leaving = false;
    if (n > m->n_members) {
        struct meet_member *v = mem_calloc(n, sizeof(*v));
        if (!v)
            return err_set(err, -ENOMEM, "out of memory for %u workers", n);
        memcpy(v, m->members, m->n_members * sizeof(*v));
        mem_free(m->members);
        m->members = v;
        m->n_members = n;
    }
    for (uint32_t i = 0; i < m->n_members; i++) {
        struct meet_member *w = &m->members[i];
        w->state = MEMBER_ABSENT;
        w->has_run = w->has_run && i < n;
        w->is_leaving = w->is_leaving && i < n;
        is_anyone_leaving = is_anyone_leaving || w->is_leaving;
    }
    if (!is_anyone_leaving)
        m->leave_until_ns = 0;
    m->workers = n;
    m->np = 0;
    m->generation = m->wanted.generation;
    m->start_deadline_ns = now_ns + m->start_timeout_s * S;
    verdict_release(&m->verdict);
    verdict_init(&m->verdict);
    m->state = MEET_WAITING;
    return 0;
}

/* --- workers --- */

/* 0: of our world; -EAGAIN: newer; -ESTALE: older. */
static int meet_check_world(struct meet *m, const struct hello *h, struct err *err)
{
    struct job_world w = {h->generation, h->workers};
    if (h->generation == m->generation)
        return 0;
    int rc = meet_take_world(m, &w, err);
    return rc < 0 ? rc : h->generation > m->generation ? -EAGAIN : -ESTALE;
}

int meet_hello(struct meet *m,
               const struct hello *h,
               const char *address,
               struct err *err)
{
    int rc = meet_check_world(m, h, err);
    if (rc < 0)
        return rc;
    if (h->worker >= m->workers)
        return err_set(err, -EINVAL,
                       "worker index %u is not below the job's %u workers", h->worker,
                       m->workers);
    uint32_t np = h->np ? h->np : h->workers * h->slots, ranks = meet_ranks(m);
    if (h->workers != m->workers || h->slots != m->slots || np != ranks)
        return err_set(err, -EINVAL,
                       "worker %u has %u workers, %u slots, %u ranks; worker 0 has %u, "
                       "%u, %u: they belong to different versions of the job",
                       h->worker, h->workers, h->slots, np, m->workers, m->slots,
                       ranks);
    if (m->state == MEET_RUNNING || m->state == MEET_FINISHED)
        return err_set(err, -EALREADY,
                       "the job has already %s; worker %u cannot join it now",
                       m->state == MEET_RUNNING ? "started" : "ended", h->worker);
    struct meet_member *w = &m->members[h->worker];
    w->state = MEMBER_HERE;
    (void)snprintf(w->host, sizeof(w->host), "%s", h->host);
    (void)snprintf(w->address, sizeof(w->address), "%s", address);
    return 0;
}

bool meet_counts(const struct meet *m, uint32_t generation)
{
    return generation >= m->generation;
}

static bool meet_all_done(const struct meet *m)
{
    for (uint32_t i = 0; i < m->workers; i++)
        if (m->members[i].state != MEMBER_DONE)
            return false;
    return true;
}

void meet_failed(struct meet *m, const struct report *r, uint64_t now_ns)
{
    if (m->state == MEET_RUNNING && meet_all_done(m))
        return; /* the job has succeeded */
    if (m->state == MEET_WAITING || m->state == MEET_RUNNING)
        (void)verdict_add(&m->verdict, r,
                          now_ns); /* out of memory: a later report decides */
}

void meet_done(struct meet *m, uint32_t worker, uint32_t generation)
{
    if (!m->ran_workers || worker >= m->ran_workers || generation != m->ran_generation)
        return;
    m->members[worker].was_done = true;
    if (generation == m->generation && m->members[worker].state == MEMBER_HERE)
        m->members[worker].state = MEMBER_DONE;
}

bool meet_may_leave(const struct meet *m, uint32_t worker)
{
    return m->state == MEET_WAITING && !m->members[worker].has_run;
}

void meet_lost(
    struct meet *m, uint32_t worker, const char *why, uint64_t wall_us, uint64_t now_ns)
{
    struct meet_member *w = &m->members[worker];
    bool is_early = meet_may_leave(m, worker);
    if (is_early)
        w->state = MEMBER_ABSENT;
    if (is_early || (m->state != MEET_WAITING && m->state != MEET_RUNNING)
        || w->state == MEMBER_DONE || w->state == MEMBER_LOST)
        return;
    w->state = MEMBER_LOST;
    meet_leaving(m, worker, now_ns);
    struct report *r = mem_zalloc(sizeof(*r));
    if (!r)
        return;
    report_init(r, w->host, 125, wall_us);
    meet_worker_ranks(m, worker, r);
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

static void meet_time_out(struct meet *m, uint64_t wall_us, uint64_t now_ns)
{
    struct strbuf who;
    struct report *r = mem_zalloc(sizeof(*r));
    if (!r)
        return;
    strbuf_init(&who, 200);
    meet_missing(m, &who);
    report_init(r, *m->members[0].host ? m->members[0].host : "worker-0",
                m->hosts ? 125 : FAILURE_LATE, wall_us);
    bool is_one = m->workers - meet_present(m) == 1;
    (void)snprintf(
        r->f.why, sizeof(r->f.why),
        "waited %llu s for worker%s %s of %u, which did not connect: check %s pod%s",
        (unsigned long long)m->start_timeout_s, is_one ? "" : "s", strbuf_str(&who),
        m->workers, is_one ? "its" : "their", is_one ? "" : "s");
    strbuf_release(&who);
    meet_failed(m, r, now_ns);
    mem_free(r);
}

static bool meet_all_accounted(const struct meet *m)
{
    for (uint32_t i = 0; i < m->workers; i++)
        if (m->members[i].state == MEMBER_HERE
            || (m->members[i].state == MEMBER_ABSENT && m->members[i].has_run))
            return false;
    return true;
}

enum meet_state meet_due(struct meet *m, uint64_t wall_us, uint64_t now_ns)
{
    if (m->state == MEET_STOPPED || m->state == MEET_FINISHED)
        return m->state;
    if (m->state == MEET_WAITING && meet_was_all_done(m))
        return MEET_FINISHED;
    if (m->state == MEET_WAITING && !m->verdict.n && now_ns >= m->start_deadline_ns
        && meet_present(m) < m->workers) {
        meet_time_out(m, wall_us, now_ns);
        return m->verdict.n ? MEET_STOPPED : m->state;
    }
    if (m->verdict.n) /* if no worker is left to report, there is no need to wait */
        return now_ns >= meet_decision_ns(m)
                       || (meet_all_accounted(m) && !m->leave_until_ns)
                   ? MEET_STOPPED
                   : m->state;
    if (m->state == MEET_WAITING)
        return meet_present(m) == m->workers ? MEET_RUNNING : MEET_WAITING;
    return meet_all_done(m) ? MEET_FINISHED : MEET_RUNNING;
}

void meet_enter(struct meet *m, enum meet_state s)
{
    m->state = s;
    if (s != MEET_RUNNING)
        return;
    m->ran_generation = m->generation;
    m->ran_workers = m->workers;
    for (uint32_t i = 0; i < m->n_members; i++) {
        m->members[i].has_run = i < m->workers;
        m->members[i].was_done = false;
    }
}

uint64_t meet_deadline_ns(const struct meet *m)
{
    if (m->state == MEET_STOPPED || m->state == MEET_FINISHED)
        return UINT64_MAX;
    uint64_t due = m->verdict.n ? meet_decision_ns(m) : UINT64_MAX;
    if (m->state == MEET_WAITING && !m->verdict.n && m->start_deadline_ns < due)
        due = m->start_deadline_ns;
    return due;
}

const struct report *meet_first(const struct meet *m)
{
    return verdict_pick(&m->verdict);
}

/* True if another worker has the same name: pods on the host network, or a test on one
 * host. */
static bool meet_name_is_shared(const struct meet *m, uint32_t i, bool by_address)
{
    for (uint32_t k = 0; k < m->workers; k++) {
        const struct meet_member *a = &m->members[i], *b = &m->members[k];
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
        if (meet_name_is_shared(m, i, false))
            name = m->members[i].address;
        if (name != m->members[i].host && meet_name_is_shared(m, i, true)) {
            (void)snprintf(number, sizeof(number), "worker-%u", i);
            name = number;
        }
        int rc = hostlist_append(ret, name, m->slots, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
