/* SPDX-License-Identifier: Apache-2.0 */
/* The status that users, kubectl and other controllers read.
 *
 * Conditions appear in the order Created, Running, Suspended, Restarting, Stalled,
 * Straggling (the latter four if they ever held), then Succeeded or Failed, and Finished,
 * and are never removed.
 * lastTransitionTime changes only with the condition's status; that of Restarting=False
 * is also the time of the last restart. state and workers exist for the printer
 * columns, the other fields for programs. Pure; called by hvd_front.c. */
#include "operator/core/hvd/hvd_status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/hvd/hvd_condition.h"
#include "operator/core/hvd/hvd_crew.h"
#include "operator/core/hvd/hvd_live.h"
#include "operator/core/hvd/hvd_plan.h"
#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"

#define OUTPUT_MAX 2048

struct hvd_status_writer {
    struct build *b;
    const struct verdict_query *q;
    const struct hvd_job *job;
    const struct hvd_verdict *v;
    const struct sync_outcome *outcome;
    bool is_ttl_over;
    struct stuck stuck;
    char now[TIMESTAMP_SIZE];
};

static void put_condition(struct hvd_status_writer *w,
                          struct node *list,
                          const char *type,
                          bool is_true,
                          const char *reason,
                          const char *message)
{
    node_add(w->b, list,
             status_condition(w->b, w->job->meta.status, type, is_true, reason, message,
                              w->now));
}

static const char *const finished_text = "the job has finished";

static uint32_t n_pods(const struct hvd_job *job)
{
    uint32_t n = 0;

    for (int r = 0; r < ROLE_COUNT; r++)
        n += job->role[r].n;
    return n;
}

static void put_created(struct hvd_status_writer *w, struct node *list)
{
    const struct hvd_verdict *v = w->v;
    const struct node *old = condition_find(w->job->meta.status, "Created");
    uint32_t n = n_pods(w->job);
    char text[128];

    if (v->was_finished && old) {
        /* failures of the clean-up are not shown */
        node_add(w->b, list, node_copy(w->b, old));
    } else if (v->is_created) {
        (void)snprintf(text, sizeof(text),
                       "the Secret, the Service and %u %spods were created", n,
                       n == w->job->role[ROLE_WORKER].n ? "worker " : "");
        put_condition(w, list, "Created", true, "JobCreated", text);
    } else if (w->outcome->trouble != TROUBLE_NONE) {
        put_condition(w, list, "Created", false, w->outcome->reason,
                      w->outcome->message);
    } else if (v->state == STATE_SUSPENDED || v->state == STATE_RESTARTING) {
        put_condition(w, list, "Created", false,
                      v->state == STATE_SUSPENDED ? "JobSuspended" : "JobRestarting",
                      "the job's pods are deleted");
    } else {
        put_condition(w, list, "Created", false, "Creating",
                      "the job's objects are being created");
    }
}

static const char *text_of(struct hvd_status_writer *w, const char *text)
{
    if (!text)
        w->b->status = -ENOMEM;
    return text ? text : "";
}

/* Why the pod still exists, as far as its object shows. */
static const char *deletion_cause_text(struct hvd_status_writer *w, const struct pod *p)
{
    bool has_ended = p->phase == POD_SUCCEEDED || p->phase == POD_FAILED || !*p->node;

    if (has_ended && *p->finalizer)
        return text_of(w, arena_printf(w->b->arena, "its finalizer %s must be removed",
                                       p->finalizer));
    return text_of(w, arena_printf(w->b->arena,
                                   "the kubelet of node %s has not reported its "
                                   "end%s%s; if the node is lost, delete the pod with "
                                   "kubectl delete pod --force",
                                   p->node, *p->reason ? ", " : "", p->reason));
}

/* Contains no elapsed time, because the message must not change from sync to sync. */
static const char *deletion_wait_text(struct hvd_status_writer *w, const char *text)
{
    const struct pod *p = w->stuck.p;
    char since[TIMESTAMP_SIZE], more[40] = "";

    if (!p)
        return text;
    if (w->stuck.n > 1)
        (void)snprintf(more, sizeof(more), " and %u more", w->stuck.n - 1);
    return text_of(
        w, arena_printf(w->b->arena,
                        "%s; waiting for %s%s%s%s%s, Terminating since %s with a grace "
                        "period of %u s: %s",
                        text, p->name, *p->node ? " (node " : "", p->node,
                        *p->node ? ")" : "", more,
                        timestamp_format_s(p->delete_wall_us / 1000000u, since),
                        p->grace_s, deletion_cause_text(w, p)));
}

static void put_running(struct hvd_status_writer *w, struct node *list)
{
    const struct hvd_verdict *v = w->v;

    switch (v->state) {
    case STATE_PENDING:
    case STATE_RUNNING:
        put_condition(w, list, "Running", v->state == STATE_RUNNING, v->reason,
                      v->message);
        break;
    case STATE_RESTARTING:
        put_condition(
            w, list, "Running", false, "JobRestarting",
            deletion_wait_text(w, "the job's pods are deleted and will be recreated"));
        break;
    case STATE_SUSPENDED:
        put_condition(w, list, "Running", false, "JobSuspended",
                      deletion_wait_text(w, "the job is suspended"));
        break;
    case STATE_SUCCEEDED:
    case STATE_FAILED:
        if (w->is_ttl_over)
            put_condition(w, list, "Running", false, TTL_REASON,
                          "the job has finished and is deleted after its "
                          "ttlSecondsAfterFinished");
        else
            put_condition(w, list, "Running", false, "JobFinished", finished_text);
        break;
    }
}

/* Sets a condition that can become False again. */
static void put_passing(struct hvd_status_writer *w,
                        struct node *list,
                        enum job_state state,
                        const char *reason,
                        const char *message)
{
    const char *type = state_name(state);
    const struct node *old = condition_find(w->job->meta.status, type);
    const char *status = node_str(old, "status");

    if (w->v->state == state)
        put_condition(w, list, type, true, w->v->reason, w->v->message);
    else if (status && strcmp(status, "True") != 0)
        node_add(w->b, list, node_copy(w->b, old));
    else if (status && state_is_final(w->v->state))
        put_condition(w, list, type, false, "JobFinished", finished_text);
    else if (status)
        put_condition(w, list, type, false, reason, message);
}

static struct node *status_conditions(struct hvd_status_writer *w)
{
    const struct hvd_verdict *v = w->v;
    struct node *list = node_array(w->b);

    put_created(w, list);
    put_running(w, list);
    put_passing(w, list, STATE_SUSPENDED, "JobResumed", "the job was resumed");
    if (v->state == STATE_SUSPENDED)
        put_passing(w, list, STATE_RESTARTING, "JobSuspended", "the job is suspended");
    else
        put_passing(w, list, STATE_RESTARTING, "JobRestarted",
                    "all earlier pods are deleted, new ones are created");
    hvd_live_conditions(w->b, w->q, v, w->now, list);
    if (!state_is_final(v->state))
        return list;
    put_condition(w, list, state_name(v->state), true, v->reason, v->message);
    if (!w->v->was_finished || condition_find(w->job->meta.status, "Finished"))
        put_condition(w, list, "Finished", true,
                      v->state == STATE_SUCCEEDED ? "JobSucceeded" : "JobFailed",
                      v->message);
    return list;
}

/* One sentence for the state, whatever it is. The status of a job that finished under an
 * operator without this field is not written again for it. */
static void put_message(struct hvd_status_writer *w, struct node *status)
{
    const struct hvd_verdict *v = w->v;
    bool is_pending = v->state == STATE_PENDING;
    const char *text = v->message;

    if (v->was_finished && !node_get(w->job->meta.status, "message"))
        return;
    if (is_pending && w->outcome->trouble == TROUBLE_REJECTED)
        text = w->outcome->message;
    else if (v->state == STATE_RESTARTING || v->state == STATE_SUSPENDED)
        text = deletion_wait_text(w, text);
    status_set_text(w->b, status, "message", text, CONDITION_TEXT_MAX);
}

static struct node *failure_node(struct hvd_status_writer *w)
{
    const struct cause *c = &w->v->cause;
    struct node *f = node_object(w->b);
    char time[TIMESTAMP_SIZE];

    if (c->rank >= 0)
        node_set_int(w->b, f, "rank", c->rank);
    if (*c->pod)
        node_set_str(w->b, f, "pod", c->pod);
    if (*c->node)
        node_set_str(w->b, f, "node", c->node);
    if (c->has_exit && c->signal)
        node_set_int(w->b, f, "signal", c->signal);
    else if (c->has_exit)
        node_set_int(w->b, f, "exitCode", c->exit_code);
    status_set_text(w->b, f, "message", c->message, CONDITION_TEXT_MAX);
    if (*c->output)
        status_set_text(w->b, f, "output", c->output, OUTPUT_MAX);
    if (c->at_wall_us && c->at_wall_us < UINT64_MAX - 1)
        node_set_str(w->b, f, "time", timestamp_format_us(c->at_wall_us, time));
    return f;
}

static void
status_put_time(struct hvd_status_writer *w, struct node *status, const char *key)
{
    const char *old = node_str(w->job->meta.status, key);

    node_set_str(w->b, status, key, old ? old : w->now);
}

/* Only for pods that continue: recreated pods have known only one size. */
static void put_resize_time(struct hvd_status_writer *w, struct node *status)
{
    enum hvd_cue cue = w->v->cue;
    char text[TIMESTAMP_SIZE];

    if (cue == CUE_RESIZE || cue == CUE_SCALE)
        node_set_str(w->b, status, "resizeTime", w->now);
    else if (w->v->was.resize_s
             && (cue == CUE_NONE || cue == CUE_RUN || cue == CUE_REPLACE))
        node_set_str(w->b, status, "resizeTime",
                     timestamp_format_s(w->v->was.resize_s, text));
}

/* A resumed job starts again. */
static void put_times(struct hvd_status_writer *w, struct node *status)
{
    const struct hvd_verdict *v = w->v;
    char text[TIMESTAMP_SIZE];

    if (v->was.state == STATE_SUSPENDED && v->state == STATE_PENDING)
        node_set_str(w->b, status, "startTime", w->now);
    else if (v->state != STATE_SUSPENDED)
        status_put_time(w, status, "startTime");
    put_resize_time(w, status);
    if (state_is_final(v->state))
        status_put_time(w, status, "completionTime");
    if (v->state == STATE_RESTARTING && v->next_restart_s)
        node_set_str(w->b, status, "nextRestartTime",
                     timestamp_format_s(v->next_restart_s, text));
}

static void put_indexes(struct hvd_status_writer *w,
                        struct node *counts,
                        const char *key,
                        const struct index_set *set)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};

    strbuf_init(&text, 6 * INDEX_SET_MAX);
    index_set_write(set, &text);
    if (strbuf_status(&text) < 0)
        w->b->status = -ENOMEM;
    else if (text.n > 0)
        node_set_str(w->b, counts, key, strbuf_str(&text));
}

/* Tasks of TensorFlow end one by one, and each pod is released then. The list is that of
 * one generation: the next one begins with none. */
static void put_completed(struct hvd_status_writer *w,
                          struct node *counts,
                          const struct index_set *completed)
{
    const struct hvd_verdict *v = w->v;
    bool has_ended = v->state == STATE_RESTARTING || v->state == STATE_SUSPENDED
                     || v->generation != v->was.generation;

    if (w->job->framework == FRAMEWORK_TENSORFLOW && !has_ended)
        put_indexes(w, counts, "completedIndexes", completed);
}

/* Of an elastic job. */
static void put_lost(struct hvd_status_writer *w, struct node *counts, enum role role)
{
    struct index_set launcher = {0};

    if (w->v->is_launcher_lost)
        index_set_add(&launcher, 0);
    put_indexes(w, counts, "lostIndexes",
                role == ROLE_LAUNCHER ? &launcher : &w->v->lost);
}

/* Counts of a finished job stay: clean-up ends pods, and takes away those that were
 * counted. */
static void put_role(struct hvd_status_writer *w, struct node *sets, enum role role)
{
    const struct hvd_verdict *v = w->v;
    const struct tally *t = &v->tally[role];
    const struct node *was =
        node_get(node_get(w->job->meta.status, "replicaStatuses"), role_title(role));
    struct node *counts = node_object(w->b);
    uint32_t succeeded = t->succeeded, failed = t->failed;

    if (v->was_finished && was) {
        succeeded = (uint32_t)node_int(was, "succeeded", 0);
        failed = (uint32_t)node_int(was, "failed", 0);
    }
    node_set_int(w->b, counts, "active", t->running);
    node_set_int(w->b, counts, "succeeded", succeeded);
    node_set_int(w->b, counts, "failed", failed);
    put_completed(w, counts,
                  v->was_finished ? &w->job->role[role].completed
                                  : &v->completed[role]);
    if (w->job->elastic.is_set && state_is_live(v->state))
        put_lost(w, counts, role);
    node_set(w->b, sets, role_title(role), counts);
}

static void put_world(struct hvd_status_writer *w, struct node *status)
{
    const struct hvd_verdict *v = w->v;
    struct node *sets = node_object(w->b);
    char text[160];

    (void)snprintf(text, sizeof(text), "%u/%u", v->tally[ROLE_WORKER].ready,
                   (v->workers ? v->workers : w->job->spec_workers)
                       + w->job->elastic.spares);
    node_set_str(w->b, status, "workers", text);
    node_set_int(w->b, status, "workerReplicas", v->workers);
    (void)snprintf(text, sizeof(text), LABEL_JOB_NAME "=%.63s," LABEL_JOB_ROLE "=%s",
                   w->job->meta.name, role_name(ROLE_WORKER));
    node_set_str(w->b, status, "selector", text);
    node_set_int(w->b, status, "generation", v->generation);
    node_set_int(w->b, status, "restarts", v->restarts);
    node_set_int(w->b, status, "replacements", v->replacements);
    if (w->job->elastic.is_set)
        node_set_int(w->b, status, "workerReplacements", v->worker_replacements);
    hvd_retired_write(&v->retired, w->b, status);
    if (v->launcher_replacements > 0)
        node_set_int(w->b, status, "launcherReplacements", v->launcher_replacements);
    for (int r = 0; r < ROLE_COUNT; r++) {
        if (w->job->role[r].is_set)
            put_role(w, sets, (enum role)r);
    }
    node_set(w->b, status, "replicaStatuses", sets);
}

struct node *
status_make(struct build *b, const struct verdict_query *q, const struct hvd_verdict *v)
{
    struct hvd_status_writer w = {.b = b,
                                  .q = q,
                                  .job = q->job,
                                  .v = v,
                                  .outcome = q->outcome,
                                  .is_ttl_over = hvd_plan_is_ttl_over(q, v),
                                  .stuck = crew_stuck(q->seen, q->now_wall_s)};
    struct node *status = node_object(b);
    const struct node *old_failure = node_get(q->job->meta.status, "failure");

    timestamp_format_s(q->now_wall_s, w.now);
    node_set_int(b, status, "observedGeneration", q->job->meta.generation);
    node_set_str(b, status, "state", state_name(v->state));
    put_message(&w, status);
    put_world(&w, status);
    node_set(b, status, "conditions", status_conditions(&w));
    put_times(&w, status);
    hvd_live_progress(b, q, v, status);
    if (v->has_cause)
        node_set(b, status, "failure", failure_node(&w));
    else if (old_failure)
        node_set(b, status, "failure", node_copy(b, old_failure));
    return b->status ? NULL : status;
}

/* --- Events ---------------------------------------------------------------------- */

struct notes {
    struct event_note *v;
    size_t n;
};

static struct event_note *
notes_add(struct notes *s, bool is_warning, const char *reason, const char *message)
{
    struct event_note *x = &s->v[s->n++];

    *x = (struct event_note){
        .is_warning = is_warning, .reason = reason, .message = message};
    return x;
}

static void note_step(struct notes *s, const struct hvd_verdict *v)
{
    switch (v->cue) {
    case CUE_REFUSED:
    case CUE_DOOMED:
    case CUE_EXPIRED:
        notes_add(s, true, v->reason, v->message)->repeat = EVENT_ONCE;
        break;
    case CUE_DONE:
        notes_add(s, false, "JobSucceeded", v->message)->repeat = EVENT_ONCE;
        break;
    case CUE_SUSPEND:
        (void)notes_add(s, false, "JobSuspended", v->message);
        break;
    case CUE_BROKEN:
        (void)notes_add(s, true, "JobRestarting", v->message);
        break;
    case CUE_RENEW:
        (void)notes_add(s, false, "RuntimeChanged", v->message);
        break;
    case CUE_REMAKE:
    case CUE_RESIZE:
    case CUE_SCALE:
        (void)notes_add(s, false, "JobScaled", v->scaled);
        break;
    case CUE_REPLACE:
        if (v->replaced)
            (void)notes_add(s, true, "WorkerLost", v->replaced);
        if (v->replaced_launcher)
            (void)notes_add(s, true, "LauncherLost", v->replaced_launcher);
        break;
    case CUE_CLEARED:
        if (v->was.state == STATE_SUSPENDED)
            (void)notes_add(s, false, "JobResumed", "the job was resumed");
        break;
    case CUE_RUN:
        notes_add(s, false, "JobRunning", v->message)->repeat = EVENT_ONCE;
        break;
    case CUE_NONE:
        break;
    }
}

/* True if the conditions contain the message, which they may have truncated. */
static bool status_has_message(const struct node *status, const char *message)
{
    static const char *const types[] = {"Created", "Running"};
    bool is = false;
    char head[256];

    (void)snprintf(head, sizeof(head), "%s", message);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const char *text = node_str(condition_find(status, types[i]), "message");

        is |= text && strstr(text, head);
    }
    return is;
}

/* Once per kind of cause: the message in the status is always the current one, while
 * schedulers and kubelets change their texts often. */
static void note_waiting(struct notes *s,
                         const struct verdict_query *q,
                         const struct hvd_verdict *v)
{
    bool is_new = v->state == STATE_PENDING && v->cue == CUE_NONE
                  && q->outcome->trouble == TROUBLE_NONE
                  && v->why.first != OBSTACLE_NONE && v->why.first < OBSTACLE_INIT
                  && !status_has_message(q->job->meta.status, v->why.detail);

    if (is_new)
        notes_add(s, true,
                  v->why.first > OBSTACLE_SCHEDULER ? "PodsNotStarted"
                                                    : "PodsNotScheduled",
                  v->message)
            ->repeat = EVENT_ONCE;
}

size_t status_events(const struct verdict_query *q,
                     const struct hvd_verdict *v,
                     struct arena *a,
                     struct event_note ret[DECISION_MAX_NOTES])
{
    const struct sync_outcome *outcome = q->outcome;
    struct notes s = {.v = ret};
    const char *text;

    note_step(&s, v);
    s.n += hvd_live_events(q, v, a, s.v + s.n);
    if (outcome->trouble == TROUBLE_REJECTED && v->cue == CUE_NONE
        && !state_is_final(v->state)
        && !status_has_message(q->job->meta.status, outcome->message))
        (void)notes_add(&s, true, outcome->reason, outcome->message);
    note_waiting(&s, q, v);
    if (hvd_plan_is_ttl_over(q, v) && !v->was.is_ttl_reported) {
        text = arena_printf(a,
                            "the job is deleted: its ttlSecondsAfterFinished, %lld s, "
                            "are over",
                            (long long)q->job->run.ttl_s);
        notes_add(&s, false, TTL_REASON, text ? text : TTL_REASON)->repeat = EVENT_ONCE;
    }
    if (outcome->trouble == TROUBLE_RETRY && !v->was_finished)
        (void)notes_add(&s, true, outcome->reason, outcome->message);
    return s.n;
}
