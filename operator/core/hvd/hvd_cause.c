/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the first cause.
 *
 * Rules
 *  1. The cause is the earliest failure that any pod reports. The report of an agent (a
 *     line in a termination message) has microseconds, and counts if it is within a day
 *     of the end of its container. The kubelet's times are whole seconds. A failure
 *     that only the kubelet reports is placed at the end of its second, a deletion at
 *     the start of it, because a deletion precedes the failures that it causes. A loss
 *     of unknown time is the earliest, unless an agent reports a rank. A pod that
 *     disappeared while no watch was open is the cause only if no other pod has failed:
 *     what the finalizer kept (hvd_crew.h) counts, not what is missing.
 *  2. A pod that failed by a signal of its own deletion was deleted, and a pod that
 *     Kubernetes ended by such a signal was ended by Kubernetes. Where the report of
 *     another pod arrives first, the search waits for the pod's own end, which shows
 *     who ended it. So it does, shortly, for that of a pod whose agent was lost: it may
 *     be out of memory. A pod without any report of its end was lost.
 *  3. A pod that is missing or being deleted was deleted by another client: the
 *     operator deletes no pod of a generation that continues, except surplus ones,
 *     which are skipped here. That is a failure once ranks have run. Before that
 *     nothing is lost, and the pod is recreated.
 *  4. In a job with a launcher, the exit of a worker's container alone is not a failure
 *     of the job: the launcher reports it. It may be the cause of the launcher's
 *     failure.
 *     In an elastic job it is none: it may be long ago, and the launcher names the
 *     rank whose failure ended the job.
 *  5. A report names a host: a pod, or with hostNetwork a node, on which several pods
 *     of the job may run. Ranks are numbered by worker.
 *  6. The cause of a generation that has ended does not change: a node that comes back
 *     may report anything. Only jobs that are Pending or Running are searched.
 * Pure; called by hvd_verdict.c. */
#include "operator/core/hvd/hvd_cause.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/hvd/hvd_class.h"
#include "operator/core/hvd/hvd_crew.h"
#include "operator/core/hvd/hvd_names.h"
#include "operator/core/lastline.h"
#include "runtime/base/mem.h"
#include "runtime/contract/failure.h"
#include "runtime/contract/gpu_cause.h"

#define DAY_S    86400
#define DAY_US   (DAY_S * 1000000ull)
#define REPORT_S 30  /* from a container's end until the pod's status has it */
#define LOST_S   10  /* from the report of a lost agent until its pod shows its end */
#define OWN_CODE 125 /* of an agent that failed itself, or was lost */

struct cause_search {
    const struct cause_query *q;
    struct arena *arena;
    const struct worker *here; /* the seat that is examined */
    struct cause first;
    struct cause undated; /* the first of unknown time */
    struct cause unseen;  /* the first pod that nobody has seen end */
    bool has_first, has_undated, has_unseen;
    bool has_rank;                 /* a report that names one */
    bool is_decisive;              /* a failure that the job cannot survive */
    bool is_worker_under_launcher; /* whose own end does not decide */
    bool is_out_of_memory;
};

static const char *search_keep_text(struct cause_search *s, const char *copy)
{
    if (!copy)
        s->is_out_of_memory = true;
    return copy ? copy : "";
}

static void search_add_cause(struct cause_search *s, const struct cause *c)
{
    s->is_decisive |= !s->is_worker_under_launcher || c->is_outside;
    s->has_rank |= c->rank >= 0;
    if (c->at_wall_us == 0) {
        if (!s->has_undated)
            s->undated = *c;
        s->has_undated = true;
        return;
    }
    if (s->has_first && s->first.at_wall_us <= c->at_wall_us)
        return;
    s->first = *c;
    s->has_first = true;
}

/* Of a pod whose end nobody has seen. */
static void search_add_unseen(struct cause_search *s, const struct cause *c)
{
    s->is_decisive = true;
    if (!s->has_unseen)
        s->unseen = *c;
    s->has_unseen = true;
}

/* --- the site that a report names ------------------------------------------------- */

struct cause_site {
    const struct worker *w; /* NULL if unknown */
    const struct pod *pod;  /* nothing in it if unknown */
    const char *name, *node;
};

static const struct pod *pod_unknown(void)
{
    static char none[] = "";
    static const struct pod pod = {.name = none,
                                   .node = none,
                                   .reason = none,
                                   .message = none,
                                   .exit_container = none,
                                   .exit_reason = none,
                                   .exit_text = none,
                                   .conditions = none,
                                   .finalizer = none};

    return &pod;
}

static struct cause_site site_of_pod(const struct worker *w, const struct pod *p)
{
    return (struct cause_site){.w = w, .pod = p, .name = p->name, .node = p->node};
}

/* True if both are equal, or one is the other with its domain. */
static bool site_is_same(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b), n = na < nb ? na : nb;
    char next = na < nb ? b[n] : a[n];

    return n > 0 && strncmp(a, b, n) == 0 && (na == nb || next == '.');
}

/* Finds pods by the host name in a report: the pod's name, or the node's name for a pod
 * with hostNetwork. Returns the number of matches; *ret is the first. */
static unsigned find_pod(const struct cause_search *s,
                         const char *host,
                         bool by_node,
                         struct cause_site *ret)
{
    unsigned n = 0;

    for (int r = 0; r < ROLE_COUNT; r++) {
        const struct crew *crew = &s->q->seen->crew[r];

        for (uint32_t i = 0; i < crew->n; i++) {
            const struct pod *p = crew->w[i].pod;

            if (p && site_is_same(host, by_node ? p->node : p->name) && n++ == 0)
                *ret = site_of_pod(&crew->w[i], p);
        }
    }
    return n;
}

/* The number in "worker-3", the name of an agent that shares its host name, or in
 * "worker 3 received ...", a report of an agent about itself or another one. */
static long number_behind(const char *text, const char *word)
{
    size_t n = strlen(word);
    char *end;
    long v;

    if (strncmp(text, word, n) != 0 || text[n] < '0' || text[n] > '9')
        return -1;
    v = strtol(text + n, &end, 10);
    return *end == '\0' || *end == ' ' ? v : -1;
}

/* The agents number their ranks by worker; a launcher may place them otherwise. */
static long worker_index(const struct cause_search *s, const struct failure *f)
{
    const struct hvd_job *job = s->q->job;
    long i;

    if (job->role[ROLE_LAUNCHER].is_set || job->framework != FRAMEWORK_HOROVOD
        || job->slots == 0)
        return -1;
    if (f->rank >= 0)
        return (long)((uint32_t)f->rank / job->slots);
    i = number_behind(f->host, "worker-");
    return i >= 0 ? i : number_behind(f->why, "worker ");
}

static struct cause_site site_of_worker(struct cause_search *s, uint32_t i)
{
    const struct worker *w = &s->q->seen->crew[ROLE_WORKER].w[i];
    struct cause_site x = site_of_pod(w, w->pod ? w->pod : pod_unknown());
    char name[OBJECT_NAME_SIZE];

    if (!w->pod) {
        object_pod_name(s->q->job, ROLE_WORKER, i, name);
        x.name = search_keep_text(s, arena_strdup(s->arena, name));
    }
    return x;
}

/* The site that the report of p is about: of p itself or of another pod. Without a
 * name or a number it is p, unless several pods are on the node that the report names.
 * The search through all pods comes last: when a large job fails, each pod reports. */
static struct cause_site
find_site(struct cause_search *s, const struct pod *p, const struct failure *f)
{
    struct cause_site x, numbered = {0};
    long i = worker_index(s, f);
    unsigned n;

    if (i >= 0 && i < (long)s->q->seen->crew[ROLE_WORKER].n)
        numbered = site_of_worker(s, (uint32_t)i);
    if (numbered.w && (f->rank >= 0 || site_is_same(f->host, numbered.name)))
        return numbered;
    if (site_is_same(f->host, p->name))
        return site_of_pod(s->here, p);
    if (find_pod(s, f->host, false, &x) > 0)
        return x;
    if (numbered.w)
        return numbered;
    n = find_pod(s, f->host, true, &x);
    if (n > 1)
        return (struct cause_site){.pod = pod_unknown(), .name = "", .node = x.node};
    return n == 1 ? x : site_of_pod(s->here, p);
}

/* A kubelet sends the same signal to a container that fails its livenessProbe and to
 * one whose pod is deleted. */
enum ender { ENDED_BY_ITSELF, ENDED_BY_OTHERS, ENDED_UNSEEN };

/* A deletion is visible before its effects; every other cause is visible in the pod's
 * own end. */
static enum ender ended_by(const struct worker *w, const struct pod *p)
{
    bool has_ended = pod_has_succeeded(p) || pod_has_failed(p);

    if ((w ? w->state != WORKER_SEEN : !has_ended) || p->is_deleting || p->is_disrupted
        || reason_is_outside(p->reason))
        return ENDED_BY_OTHERS;
    return has_ended ? ENDED_BY_ITSELF : ENDED_UNSEEN;
}

/* The longest time from the SIGTERM to a pod until its kubelet reports the end. */
static uint32_t end_within_s(const struct hvd_job *job)
{
    const struct node *spec = node_get(job->role[ROLE_WORKER].pod_template, "spec");
    int64_t grace_s = node_int(spec, "terminationGracePeriodSeconds", 30);

    return grace_s > 0 && grace_s < DAY_S ? (uint32_t)grace_s + REPORT_S : REPORT_S;
}

static const char *on_node(struct cause_search *s, const char *node)
{
    return *node ? search_keep_text(s, arena_printf(s->arena, " (node %s)", node)) : "";
}

/* --- one candidate per way to fail ----------------------------------------------- */

static const char *second_line(const char *text)
{
    const char *nl = strchr(text, '\n');

    return nl ? nl + 1 : "";
}

/* ": WHY", or ": " and the last line of the output; "" if there is neither. That the
 * memory was out is said first, and explains more than the last line. */
static const char *
why_text(struct cause_search *s, bool is_oom, const char *why, const char *output)
{
    const char *line = why;
    size_t n = strlen(why);

    if (n == 0 && !is_oom)
        line = last_line_find(output, &n);
    return search_keep_text(
        s,
        arena_printf(
            s->arena, "%s%s%.*s",
            is_oom ? ": out of memory: the container's memory limit was reached" : "",
            n > 0 ? ": " : "", (int)n, line));
}

/* The time of an exit that only the kubelet reports: the end of its second. */
static uint64_t exit_time(const struct pod *p)
{
    return p->exit_wall_us ? p->exit_wall_us + 999999u : UINT64_MAX - 1;
}

/* The time of the report, if it is near that of the kubelet: a user's program can write
 * reports, too. */
static uint64_t report_time(const struct pod *p, const struct failure *f)
{
    uint64_t at = f->at_wall_us, end = p->exit_wall_us;
    uint64_t apart = at > end ? at - end : end - at;

    return end != 0 && apart <= DAY_US ? at : exit_time(p);
}

static bool pod_was_oom(const struct pod *p)
{
    return p->is_main_exit && strcmp(p->exit_reason, "OOMKilled") == 0;
}

/* The sentence for a report about this site. */
static const char *report_text(struct cause_search *s,
                               const struct cause_site *at,
                               const struct failure *f,
                               const char *output)
{
    struct failure named = *f;
    char sentence[480];

    if (*at->name) /* fits: a label's value */
        (void)snprintf(named.host, sizeof(named.host), "%s", at->name);
    failure_sentence(&named, sentence, sizeof(sentence));
    return search_keep_text(
        s, arena_printf(s->arena, "%s%s%s", sentence, on_node(s, at->node),
                        why_text(s, pod_was_oom(at->pod), f->why, output)));
}

/* The agent's report in the pod p. */
static void
offer_report(struct cause_search *s, const struct pod *p, const struct failure *f)
{
    const struct cause_site at = find_site(s, p, f);
    const struct pod *where = at.pod;
    struct cause c = {.rank = f->rank,
                      .exit_code = f->exit_code,
                      .signal = f->signal,
                      .at_wall_us = report_time(p, f)};
    bool is_terminated, is_late, is_taken, is_lost;
    enum ender ender = ended_by(at.w, where);

    is_terminated = f->rank < 0 && f->signal == SIGTERM; /* sent by the kubelet */
    is_taken = is_terminated && ender != ENDED_BY_ITSELF;
    is_lost = f->rank < 0 && f->exit_code == OWN_CODE && where != p;
    is_late = f->rank < 0 && f->exit_code == FAILURE_LATE;
    c.has_exit = f->exit_code != 0 || f->signal != 0;
    c.pod = at.name;
    c.node = at.node;
    c.reason = pod_was_oom(where) ? "OOMKilled" : "WorkerFailed";
    if (is_taken)
        c.reason = "WorkerDeleted";
    if (is_terminated && *where->reason)
        c.reason = search_keep_text(s, arena_strdup(s->arena, where->reason));
    if (is_late)
        c.reason = "StartTimeout";
    c.is_outside = is_taken || is_late;
    c.is_removal = is_taken && where == p;
    if (ender == ENDED_UNSEEN && (is_terminated || is_lost)) {
        c.settle_within_s = is_terminated ? end_within_s(s->q->job) : LOST_S;
        c.reported_s = p->exit_wall_us / 1000000u;
    }
    c.seen = where;
    c.output = second_line(where->is_main_exit && *where->exit_text ? where->exit_text
                                                                    : p->exit_text);
    c.message = report_text(s, &at, f, c.output);
    search_add_cause(s, &c);
}

static int exit_signal(const struct pod *p)
{
    bool is_shell = p->exit_code > 128 && p->exit_code <= 128 + 64; /* its convention */

    return is_shell ? p->exit_code - 128 : p->exit_signal;
}

/* A container's exit without a report: the agent itself was killed, or never started.
 */
static void offer_exit(struct cause_search *s, const struct pod *p)
{
    struct cause c = {.rank = -1, .pod = p->name, .node = p->node, .has_exit = true};
    bool is_oom = strcmp(p->exit_reason, "OOMKilled") == 0;
    char why[sizeof(((struct failure *)NULL)->why)];
    int32_t whose;

    c.signal = exit_signal(p);
    c.exit_code = c.signal ? 0 : p->exit_code;
    (void)gpu_cause_scan(p->exit_text, why, sizeof(why), &whose); /* or nothing */
    c.reason = is_oom ? "OOMKilled" : "WorkerFailed";
    c.output = p->exit_text;
    c.is_outside = c.is_removal = exit_is_unseen(p->exit_reason);
    c.seen = p;
    c.at_wall_us = exit_time(p);
    c.message = search_keep_text(
        s,
        arena_printf(
            s->arena, "%s %s of %s%s %s%s%s%s%s",
            p->is_init_exit ? "init container" : "container", p->exit_container,
            p->name, on_node(s, p->node),
            c.signal ? "was killed by " : "exited with code ",
            c.signal ? signal_name(c.signal)
                     : search_keep_text(s, arena_printf(s->arena, "%d", c.exit_code)),
            *p->exit_reason && !is_oom ? ": " : "", is_oom ? "" : p->exit_reason,
            why_text(s, is_oom, why, p->exit_text)));
    search_add_cause(s, &c);
}

/* True if Kubernetes ended the pod for a reason other than the pod's own usage or
 * deadline. */
static bool pod_was_ended_outside(const struct cause_search *s, const struct pod *p)
{
    return p->is_disrupted || reason_is_outside(p->reason)
           || (!s->q->has_run && !p->has_exit && !reason_is_own(p->reason));
}

/* The pod as a whole failed: it was evicted, its node was lost, or the kubelet rejected
 * it. */
static void offer_ended(struct cause_search *s, const struct pod *p)
{
    struct cause c = {.rank = -1, .pod = p->name, .node = p->node, .output = ""};

    c.reason = *p->reason ? search_keep_text(s, arena_strdup(s->arena, p->reason))
                          : "WorkerFailed";
    c.is_outside = c.is_removal = pod_was_ended_outside(s, p);
    c.seen = p;
    c.at_wall_us = p->exit_wall_us ? p->exit_wall_us : UINT64_MAX - 1;
    c.message = search_keep_text(s, arena_printf(s->arena,
                                                 "%s%s was ended by Kubernetes: %s%s%s",
                                                 p->name, on_node(s, p->node), c.reason,
                                                 *p->message ? ": " : "", p->message));
    search_add_cause(s, &c);
}

static void offer_deleted(struct cause_search *s,
                          enum role role,
                          uint32_t index,
                          const struct pod *p)
{
    struct cause c = {.rank = -1,
                      .node = p ? p->node : "",
                      .output = "",
                      .is_outside = true,
                      .is_removal = true};
    char name[OBJECT_NAME_SIZE];

    object_pod_name(s->q->job, role, index, name);
    c.pod = search_keep_text(s, arena_strdup(s->arena, name));
    c.reason = p && *p->reason ? search_keep_text(s, arena_strdup(s->arena, p->reason))
                               : "WorkerDeleted";
    c.seen = p;
    c.at_wall_us = p ? p->delete_wall_us : 0;
    c.message = search_keep_text(
        s, arena_printf(s->arena,
                        "%s pod %s%s was deleted before the job had "
                        "finished%s%s",
                        role_name(role), c.pod, on_node(s, c.node),
                        p && *p->message ? ": " : "", p ? p->message : ""));
    if (!p || (p->is_unlisted && !p->is_deleting))
        search_add_unseen(s, &c);
    else
        search_add_cause(s, &c);
}

/* --- which of them a pod offers -------------------------------------------------- */

/* By a signal of deletion or eviction: SIGTERM, and SIGKILL when the grace period is
 * over. */
static bool pod_was_terminated(const struct pod *p)
{
    struct failure f;
    int sig;

    if (!p->has_exit)
        return false;
    if (p->is_main_exit && failure_parse(p->exit_text, &f, NULL) == 0)
        return f.signal == SIGTERM || (f.signal == 0 && f.exit_code == 128 + SIGTERM);
    sig = exit_signal(p);
    return sig == SIGTERM
           || (sig == SIGKILL && strcmp(p->exit_reason, "OOMKilled") != 0);
}

static void examine_failed(struct cause_search *s, const struct pod *p)
{
    struct failure f;

    if (*p->reason && pod_was_ended_outside(s, p) && pod_was_terminated(p))
        offer_ended(s, p);
    else if (p->is_main_exit && failure_parse(p->exit_text, &f, NULL) == 0)
        offer_report(s, p, &f);
    else if (*p->reason)
        offer_ended(s, p);
    else if (p->has_exit)
        offer_exit(s, p);
    else
        offer_ended(s, p);
}

static void
examine_lost(struct cause_search *s, enum role role, uint32_t i, const struct pod *p)
{
    if (s->q->has_run)
        offer_deleted(s, role, i, p);
}

static void
examine_pod(struct cause_search *s, enum role role, uint32_t i, const struct pod *p)
{
    if (pod_has_succeeded(p))
        return;
    if (pod_has_failed(p) && !(p->is_deleting && pod_was_terminated(p)))
        examine_failed(s, p);
    else if (p->is_deleting) /* by another client */
        examine_lost(s, role, i, p);
}

static void examine_seat(struct cause_search *s, enum role role, uint32_t i)
{
    const struct crew *crew = &s->q->seen->crew[role];
    const struct pod *p;

    s->here = i < crew->n ? &crew->w[i] : NULL;
    switch (crew_seat(s->q->job, s->q->seen, role, i, &p)) {
    case SEAT_COMPLETED:
    case SEAT_EXPECTED:
    case SEAT_LEAVING:
        return;
    case SEAT_EMPTY:
        examine_lost(s, role, i, NULL);
        return;
    case SEAT_TAKEN:
        examine_pod(s, role, i, p);
        return;
    case SEAT_LEFT:
        if (pod_has_failed(p))
            examine_pod(s, role, i, p);
        else if (!pod_has_succeeded(p))
            examine_lost(s, role, i, p);
        return;
    }
}

bool cause_is_after_start(const struct pod *p)
{
    struct failure f;

    return p->is_main_exit && failure_parse(p->exit_text, &f, NULL) == 0
           && !(f.rank < 0
                && (f.exit_code == OWN_CODE || f.exit_code == FAILURE_LATE
                    || f.signal == SIGTERM));
}

int cause_find(const struct cause_query *q, struct arena *a, struct cause *ret)
{
    struct cause_search s = {.q = q, .arena = a};

    for (int r = 0; r < ROLE_COUNT; r++) {
        if (r == ROLE_WORKER && q->job->elastic.is_set)
            continue;
        s.is_worker_under_launcher =
            r == ROLE_WORKER && q->job->role[ROLE_LAUNCHER].is_set;
        for (uint32_t i = 0; i < q->job->role[r].n; i++)
            examine_seat(&s, (enum role)r, i);
    }
    if (s.is_out_of_memory)
        return -ENOMEM;
    if ((!s.has_first && !s.has_undated && !s.has_unseen) || !s.is_decisive)
        return 0;
    if (s.has_first && (s.has_rank || !s.has_undated))
        *ret = s.first;
    else
        *ret = s.has_undated ? s.undated : s.unseen;
    return 1;
}

int cause_find_worker(const struct cause_query *q,
                      uint32_t index,
                      struct arena *a,
                      struct cause *ret)
{
    struct cause_search s = {.q = q, .arena = a};

    examine_seat(&s, ROLE_WORKER, index);
    if (!s.has_first && !s.has_undated && !s.has_unseen) /* it has succeeded */
        offer_deleted(&s, ROLE_WORKER, index, NULL);
    if (s.is_out_of_memory)
        return -ENOMEM;
    *ret = s.has_first ? s.first : s.has_undated ? s.undated : s.unseen;
    ret->settle_within_s = 0;
    return 0;
}
