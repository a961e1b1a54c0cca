/* SPDX-License-Identifier: Apache-2.0 */
/* The values that a verdict writes: one sentence for each state and each change, the
 * counts of restarts and when the next one is. Called by hvd_verdict.c. */
#include <stdio.h>

#include "operator/core/hvd/hvd_class.h"
#include "operator/core/hvd/hvd_crew.h"
#include "operator/core/hvd/hvd_verdict_work.h"
#include "operator/core/hvd/hvd_why.h"

static const char *verdict_keep_text(struct verdict_work *w, const char *text)
{
    if (!text)
        w->is_out_of_memory = true;
    return text ? text : "";
}

static const char *or_empty(const char *s)
{
    return s ? s : "";
}

static void
verdict_set_reason(struct verdict_work *w, const char *reason, const char *message)
{
    w->v->reason = reason;
    w->v->message = verdict_keep_text(w, message);
}

/* The text of the stored condition. */
static void verdict_repeat_condition(struct verdict_work *w, const char *type)
{
    const struct node *c = condition_find(w->job->meta.status, type);

    w->v->reason = or_empty(node_str(c, "reason"));
    w->v->message = or_empty(node_str(c, "message"));
}

static const char *failed_message(struct verdict_work *w)
{
    uint32_t n = w->v->was.restarts;

    if (n == 0)
        return w->v->cause.message;
    return arena_printf(w->arena, "after %u restart%s: %s", n, n == 1 ? "" : "s",
                        w->v->cause.message);
}

static void begin_restart(struct verdict_work *w, enum rule_action class)
{
    struct hvd_verdict *v = w->v;
    uint64_t now_s = w->q->now_wall_s, wait_s = 0;
    char when[40] = "at once";

    if (class == RULE_RESTART)
        wait_s = restart_backoff_s(++v->restarts);
    else
        v->replacements++;
    if (class == RULE_IGNORE && v->was.restarted_s + REPLACE_APART_S > now_s)
        wait_s = v->was.restarted_s + REPLACE_APART_S - now_s;
    if (wait_s > REPLACE_APART_S && class == RULE_IGNORE)
        wait_s = REPLACE_APART_S; /* the clock was set back */
    v->next_restart_s = now_s + wait_s;
    if (wait_s > 0)
        (void)snprintf(when, sizeof(when), "in %llu s", (unsigned long long)wait_s);
    if (class == RULE_RESTART)
        verdict_set_reason(w, "JobRestarting",
                           arena_printf(w->arena, "restart %u of %u %s after: %s",
                                        v->restarts, w->job->run.backoff_limit, when,
                                        v->cause.message));
    else
        verdict_set_reason(w, "JobRestarting",
                           arena_printf(w->arena, "restart %s, not counted, after: %s",
                                        when, v->cause.message));
}

static void note_scaled(struct verdict_work *w)
{
    char from[32] = ""; /* not known before the first status */

    if (!w->v->was.is_new)
        (void)snprintf(from, sizeof(from), "from %u ", verdict_world_workers(w->job));
    w->v->scaled = verdict_keep_text(w, arena_printf(w->arena, "scaled %sto %u workers",
                                                     from, w->job->spec_workers));
}

/* Of those, some pods may have disappeared while no operator ran. */
static uint32_t verdict_count_succeeded(const struct verdict_work *w)
{
    uint32_t n = w->v->tally[ROLE_WORKER].succeeded;
    const struct pod *first = NULL;

    (void)crew_seat(w->job, w->q->seen, ROLE_WORKER, 0, &first);
    if (verdict_is_world_done(w) && first->world_workers > n)
        n = first->world_workers;
    return n;
}

static void verdict_set_done(struct verdict_work *w)
{
    uint32_t n = verdict_count_succeeded(w);

    switch (w->job->success) {
    case SUCCESS_ALL_WORKERS:
        verdict_set_reason(w, "AllWorkersSucceeded",
                           arena_printf(w->arena, "all %u workers succeeded", n));
        break;
    case SUCCESS_WORKER0:
        verdict_set_reason(w, "Worker0Succeeded",
                           verdict_first_role(w->job) == ROLE_CHIEF
                               ? "the chief succeeded"
                               : "worker 0 succeeded");
        break;
    case SUCCESS_LAUNCHER:
        verdict_set_reason(w, "LauncherSucceeded", "the launcher succeeded");
        break;
    }
}

/* Appended to the message of a job whose new spec is refused. */
static const char *verdict_refusal_text(struct verdict_work *w)
{
    return verdict_is_refused(w) ? verdict_keep_text(
               w, arena_printf(w->arena, "; the spec is refused: %s",
                               w->q->outcome->message))
                                 : "";
}

static void verdict_set_pending(struct verdict_work *w)
{
    struct hvd_verdict *v = w->v;
    bool is_plain = w->n_pods == w->job->role[ROLE_WORKER].n;

    if (hvd_why(w->q, w->n_pods,
                is_plain ? v->tally[ROLE_WORKER].running : w->n_running, w->arena,
                &v->why)
        < 0) {
        w->is_out_of_memory = true;
        return;
    }
    verdict_set_reason(
        w, "WorkersNotRunning",
        arena_printf(w->arena, "%s%s", v->why.text, verdict_refusal_text(w)));
}

/* An elastic job runs without some of its workers. */
static void verdict_set_partly_running(struct verdict_work *w)
{
    if (hvd_why(w->q, w->n_pods, w->n_able + w->has_launcher, w->arena, &w->v->why) < 0)
        w->is_out_of_memory = true;
    else
        verdict_set_reason(
            w, "WorkersRunning",
            arena_printf(w->arena, "%s%s", w->v->why.text, verdict_refusal_text(w)));
}

static void verdict_set_running(struct verdict_work *w)
{
    bool is_plain = w->n_pods == w->job->role[ROLE_WORKER].n;

    if (w->job->elastic.is_set && w->n_able + w->has_launcher < w->n_pods) {
        verdict_set_partly_running(w);
        return;
    }
    verdict_set_reason(
        w, "AllWorkersRunning",
        arena_printf(w->arena, "all %u %s run%s%s", w->n_pods,
                     is_plain ? "workers" : "pods",
                     verdict_keep_text(
                         w, why_not_met(&w->job->meta, w->q->seen->live, w->arena)),
                     verdict_refusal_text(w)));
}

static void verdict_set_suspended(struct verdict_work *w)
{
    verdict_set_reason(
        w, "JobSuspended",
        arena_printf(
            w->arena, "%s%s",
            verdict_keep_text(w, why_suspended(&w->job->meta, w->q->seen->inquiry,
                                               w->v->was.suspended_s, w->arena)),
            verdict_refusal_text(w)));
}

static void verdict_set_unchanged(struct verdict_work *w)
{
    switch (w->v->state) {
    case STATE_PENDING:
        verdict_set_pending(w);
        break;
    case STATE_RUNNING:
        verdict_set_running(w);
        break;
    case STATE_RESTARTING:
        verdict_repeat_condition(w, "Restarting");
        break;
    case STATE_SUSPENDED:
        verdict_set_suspended(w);
        break;
    case STATE_SUCCEEDED:
        verdict_repeat_condition(w, "Succeeded");
        break;
    case STATE_FAILED:
        verdict_repeat_condition(w, "Failed");
        break;
    }
}

void verdict_set_step(struct verdict_work *w, enum rule_action class)
{
    const struct sync_outcome *o = w->q->outcome;

    switch (w->v->cue) {
    case CUE_REFUSED:
        verdict_set_reason(w, o->reason, o->message);
        break;
    case CUE_DONE:
        verdict_set_done(w);
        break;
    case CUE_DOOMED:
        verdict_set_reason(w, w->v->cause.reason, failed_message(w));
        break;
    case CUE_SUSPEND:
        verdict_set_suspended(w);
        break;
    case CUE_EXPIRED:
        verdict_set_reason(w, "DeadlineExceeded",
                           arena_printf(w->arena,
                                        "the job was active for longer than its "
                                        "activeDeadlineSeconds, %lld s",
                                        (long long)w->job->run.deadline_s));
        break;
    case CUE_BROKEN:
        begin_restart(w, class);
        break;
    case CUE_REMAKE:
        w->v->next_restart_s = w->q->now_wall_s;
        note_scaled(w);
        verdict_set_reason(
            w, "JobScaled",
            arena_printf(w->arena, "%s: all pods are recreated", w->v->scaled));
        break;
    case CUE_RENEW:
        w->v->next_restart_s = w->q->now_wall_s;
        verdict_set_reason(
            w, "RuntimeChanged",
            "pods are missing, and the operator's runtime image is not that of the "
            "existing pods: all pods are recreated");
        break;
    case CUE_RESIZE:
        note_scaled(w);
        verdict_set_reason(w, "WorkersNotRunning", w->v->scaled);
        break;
    case CUE_SCALE:
        note_scaled(w);
        verdict_set_unchanged(w);
        break;
    case CUE_REPLACE:
        w->v->replaced = w->loss.text;
        w->v->replaced_launcher = w->loss.launcher_text;
        verdict_set_unchanged(w);
        break;
    case CUE_CLEARED:
        verdict_set_pending(w);
        break;
    case CUE_RUN:
        verdict_set_running(w);
        break;
    case CUE_NONE:
        verdict_set_unchanged(w);
        break;
    }
}
