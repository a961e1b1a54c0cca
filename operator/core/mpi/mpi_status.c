/* SPDX-License-Identifier: Apache-2.0 */
/* The status of an MPIJob, as mpi-operator writes it.
 *
 *   observation                       condition                      Event
 *   first sync                        Created                        MPIJobCreated
 *   suspended / resumed               Suspended, Running=False       MPIJobSuspended /
 *                                                                    MPIJobResumed
 *   launcher and all workers run      Running                        MPIJobRunning
 *   launcher's Job Complete           Succeeded                      MPIJobSucceeded
 *   launcher's Job Failed             Failed, the Job's reason       the same reason
 *   a worker was evicted              Failed MPIJobEvicted           MPIJobEvicted
 *   deadline over before a launch     Failed DeadlineExceeded        DeadlineExceeded
 *   the API server refuses an object  Failed, reason of the refusal  MPIJobFailed
 *
 * Invariants
 *  1. Unchanged observations give a tree that is node_equal to the stored one.
 *  2. A finished job has completionTime, and its conditions do not change; only the
 *     counts still follow the clean-up.
 *  3. startTime changes only when the job is resumed.
 * Pure; called by mpi_front.c. */
#include "operator/core/mpi/mpi_status.h"

#include <errno.h>
#include <string.h>

#include "operator/core/lastline.h"
#include "operator/core/mpi/mpi_conditions.h"
#include "operator/core/mpi/mpi_why.h"
#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"
#include "runtime/contract/failure.h"
#include "runtime/contract/gpu_cause.h"

#define REASON_RUNNING   "MPIJobRunning"
#define REASON_FAILED    "MPIJobFailed"
#define REASON_SUSPENDED "MPIJobSuspended"
#define MESSAGE_POLICY                                                                 \
    "Restart policy in pod template overridden by restart policy in replica spec"

struct mpi_status_writer {
    const struct question *q;
    const struct mpi_job *job;
    const struct mpi_view *v;
    struct decision *d;
    struct mpi_conditions c;
    const char *start, *completion; /* NULL: not there */
    char now[TIMESTAMP_SIZE];
    bool is_out_of_memory;
};

static const char *status_keep_text(struct mpi_status_writer *w, const char *s)
{
    if (!s)
        w->is_out_of_memory = true;
    return s ? s : "";
}

/* "MPIJob ns/name <end>" */
static const char *status_job_text(struct mpi_status_writer *w, const char *end)
{
    return status_keep_text(w, arena_printf(w->q->arena, "MPIJob %s/%s %s",
                                            w->job->meta.ns, w->job->meta.name, end));
}

static void status_add_event(struct mpi_status_writer *w,
                             bool is_warning,
                             enum event_repeat repeat,
                             const char *reason,
                             const char *message)
{
    if (w->d->n_notes == DECISION_MAX_NOTES)
        return;
    w->d->note[w->d->n_notes++] = (struct event_note){
        .is_warning = is_warning,
        .repeat = repeat,
        .reason = reason,
        .message = status_keep_text(w, mpi_cut(w->q->arena, message))};
}

static bool status_set_condition(struct mpi_status_writer *w,
                                 const char *type,
                                 bool is_true,
                                 const char *reason,
                                 const char *message)
{
    return mpi_conditions_set(&w->c, type, is_true, reason,
                              status_keep_text(w, mpi_cut(w->q->arena, message)),
                              w->now);
}

static bool status_is_finished(const struct mpi_status_writer *w)
{
    return mpi_conditions_is_true(&w->c, "Succeeded")
           || mpi_conditions_is_true(&w->c, "Failed");
}

static void status_fail_job(struct mpi_status_writer *w,
                            const char *reason,
                            const char *event,
                            const char *message)
{
    status_set_condition(w, "Failed", true, reason, message);
    status_add_event(w, true, EVENT_ONCE, event, message);
    if (!w->completion)
        w->completion = w->now;
}

/* --- conditions and Events ------------------------------------------------------- */

static void see_creation(struct mpi_status_writer *w)
{
    const struct node *policy =
        node_at(w->job->launcher.pod_template, "spec.restartPolicy");
    const char *message;

    if (w->c.n > 0)
        return;
    message = status_job_text(w, "is created.");
    status_set_condition(w, "Created", true,
                         w->job->is_agent ? MPI_REASON_AGENT : "MPIJobCreated",
                         message);
    status_add_event(w, false, EVENT_ONCE, "MPIJobCreated", message);
    if (policy)
        status_add_event(w, true, EVENT_ONCE, "SetPodTemplateRestartPolicy",
                         MESSAGE_POLICY);
}

static void see_launch(struct mpi_status_writer *w)
{
    if (!w->job->is_launch_changed)
        return;
    status_add_event(
        w, true, EVENT_COUNTED, "LaunchNotChanged",
        status_keep_text(
            w, arena_printf(w->q->arena,
                            "metadata.annotations[" MPI_EXTRA_LAUNCH
                            "] has no effect now: the job was started with %s; "
                            "create a new job to change that",
                            w->job->is_agent ? "agents" : "ssh")));
}

static void see_suspension(struct mpi_status_writer *w)
{
    if (w->job->is_suspended) {
        if (status_set_condition(w, "Suspended", true, REASON_SUSPENDED,
                                 "MPIJob suspended"))
            status_add_event(w, false, EVENT_COUNTED, REASON_SUSPENDED,
                             "MPIJob suspended");
    } else if (mpi_conditions_find(&w->c, "Suspended")
               && status_set_condition(w, "Suspended", false, "MPIJobResumed",
                                       "MPIJob resumed")) {
        status_add_event(w, false, EVENT_COUNTED, "MPIJobResumed", "MPIJob resumed");
        w->start = w->now;
    }
}

static const struct pod *last_failed_launcher(const struct observed *seen)
{
    const struct pod *last = NULL;

    for (uint32_t i = 0; i < seen->n_batch_pods; i++) {
        const struct pod *p = seen->batch_pods[i];

        if (p->phase == POD_FAILED && (!last || last->exit_wall_us < p->exit_wall_us))
            last = p;
    }
    return last;
}

/* How the launcher's container ended, and the last line of its output. */
static const char *launcher_end(struct mpi_status_writer *w, const struct pod *p)
{
    size_t n;
    const char *line = last_line_find(p->exit_text, &n);

    if (!p->has_exit && p->n_restarts == 0)
        return "";
    return status_keep_text(w, arena_printf(w->q->arena,
                                            "container %s exited with code "
                                            "%d%s%.*s",
                                            p->exit_container, p->exit_code,
                                            n > 0 ? ": " : "", (int)n, line));
}

/* The launcher's report on the failed rank: that of horovodrun, or the cause in the
 * last lines of mpirun; or how it ended. */
static const char *launcher_report(struct mpi_status_writer *w, const struct pod *p)
{
    char sentence[480], why[sizeof(((struct failure *)NULL)->why)];
    struct failure f;
    int32_t whose;

    if (failure_parse(p->exit_text, &f, NULL) == 0) {
        failure_sentence(&f, sentence, sizeof(sentence));
        return status_keep_text(
            w, arena_printf(w->q->arena, "%s%s%s", f.rank < 0 && *f.why ? "" : sentence,
                            f.rank >= 0 && *f.why ? ": " : "", f.why));
    }
    (void)gpu_cause_scan(p->exit_text, why, sizeof(why), &whose); /* "": no report */
    return *why ? status_keep_text(w, arena_strdup(w->q->arena, why))
                : launcher_end(w, p);
}

/* The kubelet restarts the container; the Job counts it, and shows nothing until its
 * backoffLimit. */
static void see_restarted_launcher(struct mpi_status_writer *w)
{
    for (uint32_t i = 0; i < w->q->seen->n_batch_pods; i++) {
        const struct pod *p = w->q->seen->batch_pods[i];

        if (p->n_restarts == 0 || p->is_deleting)
            continue;
        status_add_event(
            w, true, EVENT_ONCE_PER_TEXT, "LauncherRestarted",
            status_keep_text(w, arena_printf(w->q->arena, "Pod %s: %s; restart %u",
                                             p->name, launcher_report(w, p),
                                             p->n_restarts)));
        return;
    }
}

static void see_failed_launcher(struct mpi_status_writer *w)
{
    const struct batch_job *b = w->q->seen->batch;
    const struct pod *last = last_failed_launcher(w->q->seen);
    const char *reason = status_keep_text(w, arena_strdup(w->q->arena, b->reason));
    const char *message = status_keep_text(w, arena_strdup(w->q->arena, b->message));
    bool is_backoff = strcmp(reason, "BackoffLimitExceeded") == 0;

    if (!*reason)
        reason = REASON_FAILED;
    if (!*message)
        message = status_job_text(w, "has failed");
    if (is_backoff && last) {
        reason = status_keep_text(
            w, arena_printf(w->q->arena, "%s/%s", reason, last->reason));
        const char *report = launcher_report(w, last);
        message = status_keep_text(
            w, arena_printf(w->q->arena, "%s: %s%s%s", message, last->message,
                            *last->message && *report ? ": " : "", report));
    }
    status_fail_job(w, reason, reason, message);
}

static void see_launcher(struct mpi_status_writer *w)
{
    const char *message;

    if (w->v->is_failed)
        see_failed_launcher(w);
    if (!w->v->is_complete)
        return;
    message = status_job_text(w, "successfully completed.");
    status_set_condition(w, "Succeeded", true, "MPIJobSucceeded", message);
    status_add_event(w, false, EVENT_ONCE, "MPIJobSucceeded", message);
    if (w->completion)
        return;
    w->completion = w->now;
    if (*w->q->seen->batch->completion_time)
        w->completion = status_keep_text(
            w, arena_strdup(w->q->arena, w->q->seen->batch->completion_time));
}

/* outcome->message is "<Kind> <name>: <sentence>". */
static const char *refused_creation(struct mpi_status_writer *w,
                                    const struct sync_outcome *o)
{
    const char *what = "";

    if (strncmp(o->message, "Pod ", 4) == 0)
        what = "worker pod created failed: ";
    else if (strncmp(o->message, "Job ", 4) == 0)
        what = "launcher pod created failed: ";
    return status_keep_text(w, arena_printf(w->q->arena, "%s%s", what, o->message));
}

static const char *taken_name(struct mpi_status_writer *w, const struct sync_outcome *o)
{
    const char *name = strchr(o->message, ' ');
    const char *end = name ? strchr(name, ':') : NULL;

    if (!end)
        return o->message;
    return status_keep_text(
        w, arena_printf(w->q->arena,
                        "Resource \"%.*s\" of Kind \"%.*s\" already exists and is not "
                        "managed by MPIJob",
                        (int)(end - name - 1), name + 1, (int)(name - o->message),
                        o->message));
}

static void see_trouble(struct mpi_status_writer *w)
{
    const struct sync_outcome *o = w->q->outcome;

    switch (o->trouble) {
    case TROUBLE_NONE:
        return;
    case TROUBLE_REJECTED:
        status_fail_job(w, o->reason, REASON_FAILED, refused_creation(w, o));
        return;
    case TROUBLE_RETRY:
        if (strcmp(o->reason, "NameTaken") == 0)
            status_add_event(w, true, EVENT_COUNTED, "ErrResourceExists",
                             taken_name(w, o));
        else if (strcmp(o->reason, "CreateFailed") == 0)
            status_add_event(w, true, EVENT_COUNTED, REASON_FAILED,
                             refused_creation(w, o));
        else if (!o->is_conflict) /* it explains the wait */
            status_add_event(w, true, EVENT_COUNTED, REASON_FAILED, o->message);
        return;
    }
}

/* Contains no elapsed time, because the message must not change from sync to sync. */
static void see_stuck(struct mpi_status_writer *w)
{
    const struct pod *p = w->v->stuck;
    char since[TIMESTAMP_SIZE];

    if (!p)
        return;
    (void)timestamp_format_s(p->delete_wall_us / 1000000u, since);
    status_add_event(
        w, true, EVENT_COUNTED, REASON_FAILED,
        status_keep_text(
            w, arena_printf(w->q->arena,
                            "Pod %s: waiting for its deletion, Terminating since %s "
                            "with a grace period of %u s%s%s%s%s",
                            p->name, since, p->grace_s, *p->node ? ", on node " : "",
                            p->node, *p->finalizer ? ", held by finalizer " : "",
                            p->finalizer)));
}

static void see_end(struct mpi_status_writer *w)
{
    const struct mpi_view *v = w->v;

    see_launcher(w);
    if (v->is_complete || v->is_failed)
        return;
    if (v->evicted > 0)
        status_fail_job(
            w, "MPIJobEvicted", "MPIJobEvicted",
            status_keep_text(w, arena_printf(w->q->arena, "%u/%u workers are evicted",
                                             v->evicted, w->job->worker.n)));
    else if (v->is_expired)
        status_fail_job(w, MPI_REASON_DEADLINE, MPI_REASON_DEADLINE,
                        MPI_MESSAGE_DEADLINE);
    else {
        see_trouble(w);
        see_stuck(w);
    }
}

static void see_running(struct mpi_status_writer *w)
{
    bool was_suspended = mpi_conditions_find(&w->c, "Suspended") != NULL;

    if (w->job->is_suspended) {
        status_set_condition(w, "Running", false, REASON_SUSPENDED,
                             status_job_text(w, "is suspended."));
    } else if (status_is_finished(w)) {
        if (!mpi_conditions_find(&w->c, "Running")
            && status_set_condition(
                w, "Running", false, REASON_RUNNING,
                status_job_text(w, "is finished but Running condition was never set.")))
            w->c.v[w->c.n - 1].updated = w->c.v[w->c.n - 1].since = w->completion;
    } else if (w->v->has_launcher && w->v->launchers >= 1
               && w->v->running == w->job->worker.n) {
        if (status_set_condition(w, "Running", true, REASON_RUNNING,
                                 status_job_text(w, "is running.")))
            status_add_event(w, false, was_suspended ? EVENT_COUNTED : EVENT_ONCE,
                             REASON_RUNNING, status_job_text(w, "is running"));
    }
}

/* "MPIJob ns/name is created.", or the same with the reason why the job waits. Only a text
 * that begins as ours and mpi-operator's do is changed. */
static void status_add_why(struct mpi_status_writer *w,
                           const char *type,
                           const char *end,
                           const char *why)
{
    const struct mpi_condition *c = mpi_conditions_find(&w->c, type);
    const char *text = status_job_text(w, end);

    if (!c || strncmp(c->message, text, strlen(text)) != 0)
        return;
    text = status_keep_text(
        w, arena_printf(w->q->arena, *why ? "%s; %s" : "%s.%s", text, why));
    mpi_conditions_reword(&w->c, type, status_keep_text(w, mpi_cut(w->q->arena, text)),
                          w->now);
}

static void see_why(struct mpi_status_writer *w)
{
    const char *why = status_keep_text(w, mpi_why(w->q, w->v));
    bool is_pending = !w->job->is_suspended && !status_is_finished(w);

    status_add_why(w, "Created", "is created", is_pending ? why : "");
    if (w->job->is_suspended)
        status_add_why(w, "Running", "is suspended", why);
}

/* --- the tree -------------------------------------------------------------------- */

static void put_count(struct build *b, struct node *o, const char *key, uint32_t n)
{
    if (n > 0)
        node_set_int(b, o, key, n);
}

static void put_counts(struct build *b,
                       struct node *sets,
                       const char *role,
                       uint32_t active,
                       uint32_t succeeded,
                       uint32_t failed)
{
    struct node *o = node_child(b, sets, role, NODE_OBJECT);

    put_count(b, o, "active", active);
    put_count(b, o, "succeeded", succeeded);
    put_count(b, o, "failed", failed);
}

static void
put_launcher(struct mpi_status_writer *w, struct build *b, struct node *sets)
{
    const struct mpi_view *v = w->v;
    const struct batch_job *batch = w->q->seen->batch;
    const struct node *old = node_at(w->job->meta.status, "replicaStatuses.Launcher");

    if (v->has_launcher && !v->was_finished)
        put_counts(b, sets, "Launcher", status_is_finished(w) ? 0 : v->launchers,
                   v->is_complete, batch ? batch->failed : 0);
    else if (old) /* an ended one may be gone */
        node_set(b, sets, "Launcher", node_copy(b, old));
}

/* If the launcher has ended, or the workers are to be deleted, no worker is counted. */
static struct node *status_worker_counts(struct mpi_status_writer *w, struct build *b)
{
    const struct mpi_view *v = w->v;
    const struct node *old = node_at(w->job->meta.status, "replicaStatuses.Worker");
    struct node *sets = node_object(b);

    put_launcher(w, b, sets);
    if (v->was_finished && old && w->job->clean == MPI_CLEAN_NONE)
        node_set(b, sets, "Worker", node_copy(b, old));
    else if (v->was_finished || v->is_complete || v->is_failed
             || (status_is_finished(w) && w->job->clean != MPI_CLEAN_NONE))
        put_counts(b, sets, "Worker", 0, 0, 0);
    else
        put_counts(b, sets, "Worker", v->running, v->succeeded, v->failed);
    return sets;
}

static struct node *status_node(struct mpi_status_writer *w)
{
    struct build b = {.arena = w->q->arena};
    struct node *status =
        w->job->meta.status ? node_copy(&b, w->job->meta.status) : node_object(&b);

    node_set(&b, status, "conditions", mpi_conditions_node(&b, &w->c));
    node_set(&b, status, "replicaStatuses", status_worker_counts(w, &b));
    if (w->start)
        node_set_str(&b, status, "startTime", w->start);
    if (w->completion)
        node_set_str(&b, status, "completionTime", w->completion);
    return b.status ? NULL : status;
}

/* For logs and metrics: the state and the condition with its reason. */
static void status_summarize(struct mpi_status_writer *w)
{
    static const char *const types[] = {
        [STATE_PENDING] = "Created",       [STATE_RUNNING] = "Running",
        [STATE_RESTARTING] = "Restarting", [STATE_SUSPENDED] = "Suspended",
        [STATE_SUCCEEDED] = "Succeeded",   [STATE_FAILED] = "Failed"};
    const struct mpi_condition *c;

    w->d->state = state_of_status(w->d->status ? w->d->status : w->job->meta.status);
    c = mpi_conditions_find(&w->c, types[w->d->state]);
    w->d->reason = c ? c->reason : "";
    w->d->message = c ? c->message : "";
}

int mpi_status_make(const struct question *q,
                    const struct mpi_view *v,
                    struct decision *ret)
{
    const struct mpi_job *job = (const struct mpi_job *)q->job;
    struct mpi_status_writer w = {.q = q, .job = job, .v = v, .d = ret};

    timestamp_format_s(q->now_wall_s, w.now);
    mpi_conditions_load(&w.c, job->meta.status);
    w.start = node_str(job->meta.status, "startTime");
    w.completion = node_str(job->meta.status, "completionTime");
    ret->was_finished = v->was_finished;
    if (job->flaws) {
        status_add_event(&w, true, EVENT_COUNTED, "ValidationError", job->flaws);
    } else if (v->was_finished) {
        if (!w.completion) /* an eviction that mpi-operator left so */
            w.completion = w.now;
    } else {
        see_creation(&w);
        if (!w.start && !job->is_suspended)
            w.start = w.now;
        see_launch(&w);
        see_suspension(&w);
        see_restarted_launcher(&w);
        see_end(&w);
        see_running(&w);
        see_why(&w);
    }
    if (!job->flaws) {
        ret->status = status_node(&w);
        if (!ret->status)
            return -ENOMEM;
    }
    status_summarize(&w);
    return w.is_out_of_memory ? -ENOMEM : 0;
}
