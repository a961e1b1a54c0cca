/* SPDX-License-Identifier: Apache-2.0 */
/* The status that users, kubectl and other controllers read.
 *
 * Conditions appear in the order Created, Running, then Succeeded or Failed, and are
 * never removed. lastTransitionTime moves only when the condition's status does. state
 * and workers are there for the printer columns; all else is for programs. Pure; called
 * by the reconcile shell. */
#include "operator/core/hvd_status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"

#define CONDITION_TEXT_MAX 1024
#define OUTPUT_MAX         2048

struct writer {
    struct build *b;
    const struct hvd_job *job;
    const struct verdict *v;
    const struct outcome *outcome;
    char now[TIMESTAMP_SIZE];
};

/* At most max bytes of s, cut at a character's start. */
static void
set_text(struct build *b, struct node *o, const char *key, const char *s, size_t max)
{
    size_t n = strlen(s);
    AUTOFREE char *copy = NULL;

    if (n <= max) {
        node_set_str(b, o, key, s);
        return;
    }
    n = max - 3;
    while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    copy = mem_alloc(n + 4);
    if (!copy) {
        b->status = -ENOMEM;
        return;
    }
    memcpy(copy, s, n);
    memcpy(copy + n, "...", 4);
    node_set_str(b, o, key, copy);
}

static void put_condition(struct writer *w,
                          struct node *list,
                          const char *type,
                          bool is_true,
                          const char *reason,
                          const char *message)
{
    const struct node *old = condition_find(w->job->meta.status, type);
    const char *status = is_true ? "True" : "False";
    const char *old_status = node_str(old, "status");
    const char *since = node_str(old, "lastTransitionTime");
    struct node *c = node_object(w->b);

    if (!old_status || !since || strcmp(old_status, status) != 0)
        since = w->now;
    node_set_str(w->b, c, "type", type);
    node_set_str(w->b, c, "status", status);
    node_set_str(w->b, c, "reason", reason);
    set_text(w->b, c, "message", message, CONDITION_TEXT_MAX);
    node_set_str(w->b, c, "lastTransitionTime", since);
    node_add(w->b, list, c);
}

static bool is_finished(const struct verdict *v)
{
    return v->state == STATE_SUCCEEDED || v->state == STATE_FAILED;
}

static struct node *conditions(struct writer *w)
{
    const struct verdict *v = w->v;
    const struct node *created = condition_find(w->job->meta.status, "Created");
    struct node *list = node_array(w->b);
    char text[128];

    if (v->is_created) {
        (void)snprintf(text, sizeof(text),
                       "the Secret, the Service and %u worker pods were created",
                       w->job->role[ROLE_WORKER].n);
        put_condition(w, list, "Created", true, "JobCreated", text);
    } else if (v->was_finished && created) {
        node_add(w->b, list, node_copy(w->b, created)); /* not what clean-up met */
    } else if (w->outcome->trouble != TROUBLE_NONE) {
        put_condition(w, list, "Created", false, w->outcome->reason,
                      w->outcome->message);
    } else {
        put_condition(w, list, "Created", false, "Creating",
                      "the job's objects are being created");
    }
    if (v->state == STATE_RUNNING)
        put_condition(w, list, "Running", true, v->reason, v->message);
    else if (is_finished(v))
        put_condition(w, list, "Running", false, "JobFinished", "the job has finished");
    else
        put_condition(w, list, "Running", false, v->reason, v->message);
    if (v->state == STATE_SUCCEEDED)
        put_condition(w, list, "Succeeded", true, v->reason, v->message);
    if (v->state == STATE_FAILED)
        put_condition(w, list, "Failed", true, v->reason, v->message);
    return list;
}

static struct node *failure_node(struct writer *w)
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
    set_text(w->b, f, "message", c->message, CONDITION_TEXT_MAX);
    if (*c->output)
        set_text(w->b, f, "output", c->output, OUTPUT_MAX);
    if (c->at_wall_us && c->at_wall_us < UINT64_MAX - 1)
        node_set_str(w->b, f, "time", timestamp_format_us(c->at_wall_us, time));
    return f;
}

static void put_time(struct writer *w, struct node *status, const char *key)
{
    const char *old = node_str(w->job->meta.status, key);

    node_set_str(w->b, status, key, old ? old : w->now);
}

/* Counts of a finished job stay: clean-up takes away the pods that they were counted
 * from. */
static void put_counts(struct writer *w, struct node *status)
{
    const struct verdict *v = w->v;
    const struct node *old = node_get(w->job->meta.status, "replicaStatuses");
    struct node *sets = node_object(w->b), *worker = node_object(w->b);
    const struct node *was = node_get(old, "Worker");
    uint32_t succeeded = v->succeeded, failed = v->failed;
    char text[32];

    if (v->was_finished && node_int(was, "succeeded", 0) > succeeded)
        succeeded = (uint32_t)node_int(was, "succeeded", 0);
    if (v->was_finished && node_int(was, "failed", 0) > failed)
        failed = (uint32_t)node_int(was, "failed", 0);
    (void)snprintf(text, sizeof(text), "%u/%u", v->ready, w->job->role[ROLE_WORKER].n);
    node_set_str(w->b, status, "workers", text);
    node_set_int(w->b, worker, "active", v->running);
    node_set_int(w->b, worker, "succeeded", succeeded);
    node_set_int(w->b, worker, "failed", failed);
    node_set(w->b, sets, "Worker", worker);
    node_set(w->b, status, "replicaStatuses", sets);
}

struct node *status_make(struct build *b,
                         const struct hvd_job *job,
                         const struct verdict *v,
                         const struct outcome *outcome,
                         uint64_t now_wall_s)
{
    struct writer w = {.b = b, .job = job, .v = v, .outcome = outcome};
    struct node *status = node_object(b);
    const struct node *old_failure = node_get(job->meta.status, "failure");

    timestamp_format_s(now_wall_s, w.now);
    node_set_int(b, status, "observedGeneration", job->meta.generation);
    node_set_str(b, status, "state", state_name(v->state));
    put_counts(&w, status);
    node_set(b, status, "conditions", conditions(&w));
    put_time(&w, status, "startTime");
    if (is_finished(v))
        put_time(&w, status, "completionTime");
    if (v->state == STATE_FAILED && v->has_cause)
        node_set(b, status, "failure", failure_node(&w));
    else if (old_failure)
        node_set(b, status, "failure", node_copy(b, old_failure));
    return b->status ? NULL : status;
}

size_t status_events(const struct hvd_job *job,
                     const struct verdict *v,
                     const struct outcome *outcome,
                     struct event_note ret[DECISION_MAX_NOTES])
{
    size_t n = 0;

    if (v->is_created && !condition_is_true(job->meta.status, "Created"))
        ret[n++] = (struct event_note){
            .is_once = true,
            .reason = "JobCreated",
            .message = "the Secret, the Service and all worker pods were created"};
    if (v->state == STATE_RUNNING && !condition_is_true(job->meta.status, "Running"))
        ret[n++] = (struct event_note){
            .is_once = true, .reason = "JobRunning", .message = v->message};
    if (v->state == STATE_SUCCEEDED && !v->was_finished)
        ret[n++] = (struct event_note){
            .is_once = true, .reason = "JobSucceeded", .message = v->message};
    if (v->state == STATE_FAILED && !v->was_finished)
        ret[n++] = (struct event_note){.is_warning = true,
                                       .is_once = true,
                                       .reason = v->reason,
                                       .message = v->message};
    if (outcome->trouble == TROUBLE_RETRY && !v->was_finished)
        ret[n++] = (struct event_note){
            .is_warning = true, .reason = outcome->reason, .message = outcome->message};
    return n;
}
