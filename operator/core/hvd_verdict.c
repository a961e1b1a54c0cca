/* SPDX-License-Identifier: Apache-2.0 */
/* Observations -> verdict.
 *
 *   PENDING --all workers run--> RUNNING --all workers succeeded--> SUCCEEDED
 *      '---------- a worker failed, was deleted, or the spec is refused ----> FAILED
 *
 * Rules
 *  1. A finished job stays as it is: what the stored status says wins over any
 * observation. Only the cause may still be replaced, by one that happened earlier.
 *  2. The cause is the earliest failure that anybody reports. An agent's line in a
 * termination message has microseconds, and counts if it is within a day of the end of
 * its container; the kubelet's times are whole seconds, so a
 * failure known only by them counts as late within its second, and a deletion as early
 * (it comes before what it causes).
 *  3. A pod that failed by a signal of its deletion was deleted.
 *  4. A worker that is missing although all were created once was deleted. Before that
 * moment a missing worker is simply created. Pure; called by the reconcile shell. */
#include "operator/core/hvd_verdict.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/hvd_objects.h"
#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"
#include "runtime/contract/failure.h"

#define DAY_US (86400ull * 1000000u)

struct search {
    const struct hvd_job *job;
    const struct observed *seen;
    struct arena *arena;
    struct verdict *v;
    bool is_out_of_memory;
};

static const char *keep(struct search *s, const char *copy)
{
    if (!copy)
        s->is_out_of_memory = true;
    return copy ? copy : "";
}

static void offer(struct search *s, const struct cause *c)
{
    if (s->v->has_cause && s->v->cause.at_wall_us <= c->at_wall_us)
        return;
    s->v->cause = *c;
    s->v->has_cause = true;
}

static const struct pod *pod_named(const struct search *s, const char *name)
{
    const struct crew *crew = &s->seen->crew[ROLE_WORKER];

    for (uint32_t i = 0; i < crew->n; i++) {
        const struct pod *p = crew->w[i].pod;

        if (p && strcmp(p->name, name) == 0)
            return p;
    }
    return NULL;
}

static const char *on_node(struct search *s, const char *node)
{
    return *node ? keep(s, arena_printf(s->arena, " (node %s)", node)) : "";
}

/* --- one candidate per way to fail -------------------------------------------------
 */

static const char *second_line(const char *text)
{
    const char *nl = strchr(text, '\n');

    return nl ? nl + 1 : "";
}

/* What only the kubelet tells: late within its second. */
static uint64_t exit_time(const struct pod *p)
{
    return p->exit_wall_us ? p->exit_wall_us + 999999u : UINT64_MAX - 1;
}

/* Of what the report says, if the kubelet's clock bears it out: a user's program can
 * write reports, too. */
static uint64_t report_time(const struct pod *p, const struct failure *f)
{
    uint64_t at = f->at_wall_us, end = p->exit_wall_us;
    uint64_t apart = at > end ? at - end : end - at;

    return end != 0 && apart <= DAY_US ? at : exit_time(p);
}

/* The agent's report. f->host is the pod where it happened, p the pod that tells. */
static void offer_report(struct search *s, const struct pod *p, const struct failure *f)
{
    const struct pod *where = pod_named(s, f->host);
    char sentence[480];
    struct cause c = {.rank = f->rank,
                      .exit_code = f->exit_code,
                      .signal = f->signal,
                      .at_wall_us = report_time(p, f)};
    bool is_oom;

    if (!where)
        where = p;
    is_oom = where->is_main_exit && strcmp(where->exit_reason, "OOMKilled") == 0;
    c.has_exit = f->exit_code != 0 || f->signal != 0;
    c.pod = where->name;
    c.node = where->node;
    c.reason = is_oom ? "OOMKilled" : "WorkerFailed";
    c.output = second_line(where->is_main_exit && *where->exit_text ? where->exit_text
                                                                    : p->exit_text);
    failure_sentence(f, sentence, sizeof(sentence));
    c.message =
        keep(s, arena_printf(s->arena, "%s%s%s%s%s", sentence, on_node(s, where->node),
                             is_oom ? ": out of memory: the container's "
                                      "memory limit was reached"
                                    : "",
                             *f->why ? ": " : "", f->why));
    offer(s, &c);
}

static int exit_signal(const struct pod *p)
{
    bool is_shell = p->exit_code > 128 && p->exit_code <= 128 + 64; /* its convention */

    return is_shell ? p->exit_code - 128 : p->exit_signal;
}

/* A container's exit without a report: the agent itself was killed, or never started.
 */
static void offer_exit(struct search *s, const struct pod *p)
{
    struct cause c = {.rank = -1, .pod = p->name, .node = p->node, .has_exit = true};
    bool is_oom = strcmp(p->exit_reason, "OOMKilled") == 0;

    c.signal = exit_signal(p);
    c.exit_code = c.signal ? 0 : p->exit_code;
    c.reason = is_oom ? "OOMKilled" : "WorkerFailed";
    c.output = p->exit_text;
    c.at_wall_us = exit_time(p);
    c.message = keep(
        s, arena_printf(s->arena, "%s %s of %s%s %s%s%s%s%s",
                        p->is_init_exit ? "init container" : "container",
                        p->exit_container, p->name, on_node(s, p->node),
                        c.signal ? "was killed by " : "exited with code ",
                        c.signal ? signal_name(c.signal)
                                 : keep(s, arena_printf(s->arena, "%d", c.exit_code)),
                        is_oom ? ": out of memory: the container's memory limit was "
                                 "reached"
                               : "",
                        *p->exit_reason && !is_oom ? ": " : "",
                        is_oom ? "" : p->exit_reason));
    offer(s, &c);
}

/* The pod as a whole was ended: evicted, node lost, rejected by the kubelet. */
static void offer_ended(struct search *s, const struct pod *p)
{
    struct cause c = {.rank = -1, .pod = p->name, .node = p->node, .output = ""};

    c.reason = *p->reason ? p->reason : "WorkerFailed";
    c.at_wall_us = p->exit_wall_us ? p->exit_wall_us : UINT64_MAX - 1;
    c.message = keep(s, arena_printf(s->arena, "%s%s was ended by Kubernetes: %s%s%s",
                                     p->name, on_node(s, p->node), c.reason,
                                     *p->message ? ": " : "", p->message));
    offer(s, &c);
}

static void offer_deleted(struct search *s, uint32_t index, const struct pod *p)
{
    struct cause c = {.rank = -1, .node = p ? p->node : "", .output = ""};
    char name[OBJECT_NAME_SIZE];

    object_pod_name(s->job, ROLE_WORKER, index, name);
    c.pod = keep(s, arena_strdup(s->arena, name));
    c.reason = p && *p->reason ? p->reason : "WorkerDeleted";
    c.at_wall_us = p ? p->delete_wall_us : 0;
    c.message =
        keep(s, arena_printf(s->arena,
                             "worker pod %s%s was deleted before the job had "
                             "finished%s%s",
                             name, on_node(s, c.node), p && *p->message ? ": " : "",
                             p ? p->message : ""));
    offer(s, &c);
}

/* --- counting and deciding ---------------------------------------------------------
 */

static void look_at_failed(struct search *s, const struct pod *p)
{
    struct failure f;

    if (p->is_main_exit && failure_parse(p->exit_text, &f, NULL) == 0)
        offer_report(s, p, &f);
    else if (*p->reason)
        offer_ended(s, p);
    else if (p->has_exit)
        offer_exit(s, p);
    else
        offer_ended(s, p);
}

static void count_pod(struct verdict *v, const struct pod *p)
{
    v->running += p->phase == POD_RUNNING;
    v->ready += p->phase == POD_RUNNING && p->is_ready && !p->is_deleting;
    v->succeeded += p->phase == POD_SUCCEEDED;
    v->failed += p->phase == POD_FAILED;
    if (p->phase == POD_PENDING && *p->waiting && !*v->waiting) {
        v->waiting = p->waiting;
        v->waiting_pod = p->name;
    }
}

/* By deletion, which sends SIGTERM, and SIGKILL when the grace period is over. It
 * is not ours: we delete nothing before the end is stored. */
static bool is_cut_down(const struct search *s, const struct pod *p)
{
    struct failure f;
    int sig;

    if (!p->is_deleting || s->v->was_finished || !p->has_exit)
        return false;
    if (p->is_main_exit && failure_parse(p->exit_text, &f, NULL) == 0)
        return f.signal == SIGTERM || (f.signal == 0 && f.exit_code == 128 + SIGTERM);
    sig = exit_signal(p);
    return sig == SIGTERM
           || (sig == SIGKILL && strcmp(p->exit_reason, "OOMKilled") != 0);
}

static void look_at_ended(struct search *s, uint32_t index, const struct pod *p)
{
    if (is_cut_down(s, p))
        offer_deleted(s, index, p);
    else
        look_at_failed(s, p);
}

static void look_at(struct search *s, uint32_t index)
{
    const struct worker *w = &s->seen->crew[ROLE_WORKER].w[index];
    struct verdict *v = s->v;

    switch (w->state) {
    case WORKER_EXPECTED:
        return;
    case WORKER_ABSENT:
        if (v->is_created && !v->was_finished)
            offer_deleted(s, index, NULL);
        return;
    case WORKER_SEEN:
        count_pod(v, w->pod);
        if (w->pod->phase == POD_FAILED)
            look_at_ended(s, index, w->pod);
        else if (w->pod->is_deleting && w->pod->phase != POD_SUCCEEDED
                 && !v->was_finished)
            offer_deleted(s, index, w->pod);
        return;
    case WORKER_GONE:
        if (w->pod && w->pod->phase == POD_SUCCEEDED)
            v->succeeded++;
        else if (w->pod && w->pod->phase == POD_FAILED)
            look_at_ended(s, index, w->pod);
        else if (!v->was_finished)
            offer_deleted(s, index, w->pod);
        return;
    }
}

static const char *or_empty(const char *s)
{
    return s ? s : "";
}

/* The stored status of a finished job, with an earlier cause when one has turned up. */
static void settle_finished(struct search *s)
{
    struct verdict *v = s->v;
    const struct node *status = s->job->meta.status;
    const struct node *c =
        condition_find(status, v->state == STATE_FAILED ? "Failed" : "Succeeded");
    uint64_t stored_us = 0;

    v->reason = or_empty(node_str(c, "reason"));
    v->message = or_empty(node_str(c, "message"));
    if (!v->has_cause)
        return;
    if (v->state == STATE_FAILED && node_get(status, "failure")
        && timestamp_parse_us(or_empty(node_str(status, "failure.time")), &stored_us)
               == 0
        && v->cause.at_wall_us != 0 && v->cause.at_wall_us < stored_us) {
        v->reason = v->cause.reason;
        v->message = v->cause.message;
        return;
    }
    v->has_cause = false; /* what is stored stays */
}

static bool all_made(const struct crew *crew)
{
    for (uint32_t i = 0; i < crew->n; i++) {
        if (crew->w[i].state == WORKER_ABSENT)
            return false;
    }
    return true;
}

static void decide(struct search *s, const struct outcome *outcome)
{
    struct verdict *v = s->v;
    uint32_t n = s->job->role[ROLE_WORKER].n;

    if (outcome->trouble == TROUBLE_REJECTED) {
        v->state = STATE_FAILED;
        v->reason = outcome->reason;
        v->message = outcome->message;
        v->has_cause = false;
    } else if (v->has_cause) {
        v->state = STATE_FAILED;
        v->reason = v->cause.reason;
        v->message = v->cause.message;
    } else if (v->succeeded == n) {
        v->state = STATE_SUCCEEDED;
        v->reason = "AllWorkersSucceeded";
        v->message = keep(s, arena_printf(s->arena, "all %u workers succeeded", n));
    } else if (v->running + v->succeeded == n
               || condition_is_true(s->job->meta.status, "Running")) {
        v->state = STATE_RUNNING;
        v->reason = "AllWorkersRunning";
        v->message = keep(s, arena_printf(s->arena, "all %u workers run", n));
    } else {
        v->state = STATE_PENDING;
        v->reason = "WorkersNotRunning";
        v->message =
            keep(s, arena_printf(s->arena, "%u of %u workers run%s%s", v->running, n,
                                 *v->waiting ? ": " : "", v->waiting));
    }
}

int verdict_make(const struct hvd_job *job,
                 const struct observed *seen,
                 const struct outcome *outcome,
                 struct arena *a,
                 struct verdict *ret)
{
    struct verdict v = {.waiting = "", .waiting_pod = "", .reason = "", .message = ""};
    struct search s = {.job = job, .seen = seen, .arena = a, .v = &v};
    const struct crew *crew = &seen->crew[ROLE_WORKER];
    bool has_failed = condition_is_true(job->meta.status, "Failed");

    v.was_finished = has_failed || condition_is_true(job->meta.status, "Succeeded");
    v.state = has_failed ? STATE_FAILED : STATE_SUCCEEDED;
    v.is_created = condition_is_true(job->meta.status, "Created")
                   || (crew->n > 0 && all_made(crew));
    for (uint32_t i = 0; i < crew->n; i++)
        look_at(&s, i);
    if (v.was_finished)
        settle_finished(&s);
    else
        decide(&s, outcome);
    if (s.is_out_of_memory)
        return -ENOMEM;
    *ret = v;
    return 0;
}
