/* SPDX-License-Identifier: Apache-2.0 */
/* Stored status and observations -> cue (hvd_cycle.c) and the values of the new status.
 *
 * Invariants
 *  1. A finished job does not change: the stored status has priority over observations.
 *     Only its cause may be replaced, by one that happened earlier. The same holds for
 *     the cause of a restart while pods of the old generation exist.
 *  2. Whether a restart counts is decided once and is then read from the stored status.
 *     Times are wall seconds from the status, so that the next sync continues where the
 *     last one stopped.
 *  3. Success by successPolicy has priority over any failure, a failure that ends the
 *     job over suspension, suspension over a restart.
 * Pure; called by hvd_front.c. */
#include "operator/core/hvd_verdict.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/explain.h"
#include "operator/core/hvd_class.h"
#include "operator/core/hvd_crew.h"
#include "runtime/base/mem.h"

#define CLOCKS_APART_S 60

struct look {
    const struct verdict_query *q;
    const struct hvd_job *job;
    struct arena *arena;
    struct hvd_verdict *v;
    uint32_t n_pods, n_running; /* of all roles; running in this world, or succeeded */
    bool is_made;               /* no place is empty */
    bool has_run, is_done;
    bool has_met;        /* a pod failed in a way that requires agents that met */
    bool is_old_world;   /* a worker cannot be scaled in place: it has no world, or
                          is_old_runtime */
    bool is_old_runtime; /* a worker has another runtime than a new one would have */
    bool is_other_size;  /* no status yet, and a worker's world has another size */
    bool is_out_of_memory;
};

static const char *look_keep_text(struct look *l, const char *text)
{
    if (!text)
        l->is_out_of_memory = true;
    return text ? text : "";
}

static const char *or_empty(const char *s)
{
    return s ? s : "";
}

/* --- counting -------------------------------------------------------------------- */

static void count_pod(struct look *l, enum role role, const struct pod *p)
{
    struct hvd_verdict *v = l->v;
    struct tally *t = &v->tally[role];
    bool is_current =
        p->world_generation == 0 || p->world_generation >= l->job->world_generation;

    bool has_ended = pod_has_succeeded(p) || pod_has_failed(p);

    t->running += p->phase == POD_RUNNING && !has_ended;
    t->ready += p->phase == POD_RUNNING && p->is_ready && !p->is_deleting;
    t->succeeded += pod_has_succeeded(p);
    t->failed += pod_has_failed(p);
    l->n_running += pod_has_succeeded(p) || (p->phase == POD_RUNNING && is_current);
    if (p->phase == POD_PENDING && waiting_is_usual(v->waiting) && *pod_waiting(p)) {
        v->waiting = pod_waiting(p);
        v->is_scheduled = !pod_is_unscheduled(p);
    }
    if (role == ROLE_WORKER) {
        l->has_met |= pod_has_failed(p) && cause_is_after_start(p);
        l->is_old_runtime |=
            p->runtime && p->runtime != pod_runtime(l->q->cfg->runtime_image);
        l->is_old_world |= p->world_generation == 0 || l->is_old_runtime;
        l->is_other_size |=
            p->world_generation != 0 && p->world_workers != l->job->role[role].n;
    }
}

static void count_place(struct look *l, enum role role, uint32_t index)
{
    const struct pod *p;

    switch (crew_place(l->job, l->q->seen, role, index, &p)) {
    case PLACE_EMPTY:
    case PLACE_LEAVING:
        l->is_made = false;
        break;
    case PLACE_EXPECTED:
        break;
    case PLACE_TAKEN:
        count_pod(l, role, p);
        break;
    case PLACE_LEFT:
        l->v->tally[role].succeeded += pod_has_succeeded(p);
        l->n_running += pod_has_succeeded(p);
        break;
    }
}

static bool look_has_succeeded(const struct look *l, enum role role)
{
    return l->v->tally[role].succeeded == l->job->role[role].n;
}

/* TensorFlow's first task is the chief where there is one. */
static enum role first_role(const struct hvd_job *job)
{
    return job->role[ROLE_CHIEF].is_set ? ROLE_CHIEF : ROLE_WORKER;
}

static bool look_is_first_done(const struct look *l)
{
    const struct pod *p = NULL;

    (void)crew_place(l->job, l->q->seen, first_role(l->job), 0, &p);
    return p && pod_has_succeeded(p);
}

/* Worker 0 is in every world, and Horovod's agents exit with 0 when all ranks of the
 * world have. The other pods need only the time to end: one that is deleted before it
 * did, or was created later for a larger world, is not waited for. */
static bool look_is_world_done(const struct look *l)
{
    const struct pod *first, *p;

    (void)crew_place(l->job, l->q->seen, ROLE_WORKER, 0, &first);
    if (l->job->framework != FRAMEWORK_HOROVOD || !first || !pod_has_succeeded(first))
        return false;
    for (uint32_t i = 1; i < l->job->role[ROLE_WORKER].n; i++) {
        bool is_gone = crew_place(l->job, l->q->seen, ROLE_WORKER, i, &p) == PLACE_LEFT;

        if (p && p->generation <= first->generation && !pod_has_succeeded(p)
            && (pod_has_failed(p) || !(is_gone || p->is_deleting)))
            return false;
    }
    return true;
}

static void look_count_pods(struct look *l)
{
    l->is_made = true;
    for (int r = 0; r < ROLE_COUNT; r++) {
        l->n_pods += l->job->role[r].n;
        for (uint32_t i = 0; i < l->job->role[r].n; i++)
            count_place(l, (enum role)r, i);
    }
    l->has_run = l->v->was.state == STATE_RUNNING
                 || (l->v->was.is_created
                     && (l->has_met || l->v->tally[ROLE_WORKER].succeeded > 0));
    switch (l->job->success) {
    case SUCCESS_ALL_WORKERS:
        l->is_done = look_is_world_done(l)
                     || (look_has_succeeded(l, ROLE_WORKER)
                         && look_has_succeeded(l, ROLE_CHIEF));
        break;
    case SUCCESS_WORKER0:
        l->is_done = look_is_first_done(l);
        break;
    case SUCCESS_LAUNCHER:
        l->is_done = look_has_succeeded(l, ROLE_LAUNCHER);
        break;
    }
}

/* --- which cue ------------------------------------------------------------------- */

static bool job_is_live(const struct look *l)
{
    return state_is_live(l->v->was.state);
}

static bool look_is_expired(const struct look *l)
{
    const struct hvd_run *run = &l->job->run;
    uint64_t start_s = l->v->was.start_s;

    return run->deadline_s >= 0 && start_s != 0
           && l->q->now_wall_s >= start_s + (uint64_t)run->deadline_s;
}

/* True if this operator refuses the spec. */
static bool look_is_refused(const struct look *l)
{
    return l->q->outcome->trouble == TROUBLE_REJECTED && l->q->outcome->is_of_spec;
}

static bool look_is_cleared(const struct look *l)
{
    const struct hvd_verdict *v = l->v;

    if (job_is_live(l) || !crew_is_empty(l->q->seen))
        return false;
    return v->was.state == STATE_SUSPENDED
               ? !l->job->run.is_suspended && !look_is_refused(l)
               : l->q->now_wall_s >= v->was.next_restart_s;
}

/* A job whose earlier spec was accepted continues with it and reports what is refused,
 * so that a wrong edit does not end the training. A newer operator may also have
 * accepted fields that this one does not have. */
static bool look_is_unfit(const struct look *l)
{
    const struct hvd_stored *was = &l->v->was;

    if (l->q->outcome->trouble != TROUBLE_REJECTED || was->state != STATE_PENDING)
        return false;
    return look_is_refused(l) ? was->is_new : was->generation <= 1 && !was->is_created;
}

/* False after workers have succeeded, because these would not run again. */
static bool look_is_resized(const struct look *l)
{
    bool is_other = l->job->spec_workers != l->job->role[ROLE_WORKER].n
                    || (l->v->was.is_new && l->is_other_size);

    return job_is_live(l) && is_other && !look_is_refused(l)
           && l->v->tally[ROLE_WORKER].succeeded == 0;
}

static bool class_is_final(const struct look *l, enum rule_action class)
{
    return class == RULE_FAIL
           || (class == RULE_RESTART
               && l->v->was.restarts >= l->job->run.backoff_limit);
}

static bool look_is_resized_in_place(const struct look *l)
{
    return l->job->framework == FRAMEWORK_HOROVOD && !l->job->role[ROLE_LAUNCHER].is_set
           && !l->is_old_world;
}

/* The pods were created by an operator with another runtime image. */
static bool look_is_mixed(const struct look *l)
{
    return l->v->was.state == STATE_PENDING && !l->is_made && l->is_old_runtime
           && l->job->framework == FRAMEWORK_HOROVOD
           && l->v->tally[ROLE_WORKER].succeeded == 0;
}

static enum hvd_cue look_choose_cue(const struct look *l, enum rule_action class)
{
    const struct hvd_verdict *v = l->v;

    if (look_is_unfit(l))
        return CUE_REFUSED;
    if (job_is_live(l) && l->is_done)
        return CUE_DONE;
    if (job_is_live(l) && v->has_cause && class_is_final(l, class))
        return CUE_DOOMED;
    if (v->was.state != STATE_SUSPENDED && l->job->run.is_suspended)
        return CUE_SUSPEND;
    if (v->was.state != STATE_SUSPENDED && look_is_expired(l))
        return CUE_EXPIRED;
    if (job_is_live(l) && v->has_cause)
        return CUE_BROKEN;
    if (look_is_resized(l))
        return look_is_resized_in_place(l) ? CUE_RESIZE : CUE_REMAKE;
    if (look_is_mixed(l))
        return CUE_RENEW;
    if (look_is_cleared(l))
        return CUE_CLEARED;
    if (v->was.state == STATE_PENDING && l->n_running == l->n_pods)
        return CUE_RUN;
    return CUE_NONE;
}

/* --- the values of the new status ------------------------------------------------ */

static void verdict_set_reason(struct look *l, const char *reason, const char *message)
{
    l->v->reason = reason;
    l->v->message = look_keep_text(l, message);
}

/* The text of the stored condition. */
static void verdict_repeat_condition(struct look *l, const char *type)
{
    const struct node *c = condition_find(l->job->meta.status, type);

    l->v->reason = or_empty(node_str(c, "reason"));
    l->v->message = or_empty(node_str(c, "message"));
}

static const char *failed_message(struct look *l)
{
    uint32_t n = l->v->was.restarts;

    if (n == 0)
        return l->v->cause.message;
    return arena_printf(l->arena, "after %u restart%s: %s", n, n == 1 ? "" : "s",
                        l->v->cause.message);
}

static void begin_restart(struct look *l, enum rule_action class)
{
    struct hvd_verdict *v = l->v;
    uint64_t now_s = l->q->now_wall_s, wait_s = 0;
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
        verdict_set_reason(l, "JobRestarting",
                           arena_printf(l->arena, "restart %u of %u %s after: %s",
                                        v->restarts, l->job->run.backoff_limit, when,
                                        v->cause.message));
    else
        verdict_set_reason(l, "JobRestarting",
                           arena_printf(l->arena, "restart %s, not counted, after: %s",
                                        when, v->cause.message));
}

static void note_scaled(struct look *l)
{
    char from[32] = ""; /* not known before the first status */

    if (!l->v->was.is_new)
        (void)snprintf(from, sizeof(from), "from %u ", l->job->role[ROLE_WORKER].n);
    l->v->scaled = look_keep_text(l, arena_printf(l->arena, "scaled %sto %u workers",
                                                  from, l->job->spec_workers));
}

/* Of those, some pods may have disappeared while no operator ran. */
static uint32_t look_count_succeeded(const struct look *l)
{
    uint32_t n = l->v->tally[ROLE_WORKER].succeeded;
    const struct pod *first = NULL;

    (void)crew_place(l->job, l->q->seen, ROLE_WORKER, 0, &first);
    if (look_is_world_done(l) && first->world_workers > n)
        n = first->world_workers;
    return n;
}

static void verdict_set_done(struct look *l)
{
    uint32_t n = look_count_succeeded(l);

    switch (l->job->success) {
    case SUCCESS_ALL_WORKERS:
        verdict_set_reason(l, "AllWorkersSucceeded",
                           arena_printf(l->arena, "all %u workers succeeded", n));
        break;
    case SUCCESS_WORKER0:
        verdict_set_reason(l, "Worker0Succeeded",
                           first_role(l->job) == ROLE_CHIEF ? "the chief succeeded"
                                                            : "worker 0 succeeded");
        break;
    case SUCCESS_LAUNCHER:
        verdict_set_reason(l, "LauncherSucceeded", "the launcher succeeded");
        break;
    }
}

/* Appended to the message of a job whose new spec is refused. */
static const char *look_refusal_text(struct look *l)
{
    return look_is_refused(l)
               ? look_keep_text(l, arena_printf(l->arena, "; the spec is refused: %s",
                                                l->q->outcome->message))
               : "";
}

static void verdict_set_pending(struct look *l)
{
    const struct hvd_verdict *v = l->v;
    uint32_t n = l->job->role[ROLE_WORKER].n;
    bool is_plain = l->n_pods == n;

    verdict_set_reason(
        l, "WorkersNotRunning",
        arena_printf(l->arena, "%u of %u %s run%s%s%s",
                     is_plain ? v->tally[ROLE_WORKER].running : l->n_running, l->n_pods,
                     is_plain ? "workers" : "pods", *v->waiting ? ": " : "", v->waiting,
                     look_refusal_text(l)));
}

static void verdict_set_running(struct look *l)
{
    bool is_plain = l->n_pods == l->job->role[ROLE_WORKER].n;

    verdict_set_reason(l, "AllWorkersRunning",
                       arena_printf(l->arena, "all %u %s run%s", l->n_pods,
                                    is_plain ? "workers" : "pods",
                                    look_refusal_text(l)));
}

static void verdict_set_unchanged(struct look *l)
{
    switch (l->v->state) {
    case STATE_PENDING:
        verdict_set_pending(l);
        break;
    case STATE_RUNNING:
        verdict_set_running(l);
        break;
    case STATE_RESTARTING:
        verdict_repeat_condition(l, "Restarting");
        break;
    case STATE_SUSPENDED:
        verdict_repeat_condition(l, "Suspended");
        break;
    case STATE_SUCCEEDED:
        verdict_repeat_condition(l, "Succeeded");
        break;
    case STATE_FAILED:
        verdict_repeat_condition(l, "Failed");
        break;
    }
}

static void verdict_set_step(struct look *l, enum rule_action class)
{
    const struct sync_outcome *o = l->q->outcome;

    switch (l->v->cue) {
    case CUE_REFUSED:
        verdict_set_reason(l, o->reason, o->message);
        break;
    case CUE_DONE:
        verdict_set_done(l);
        break;
    case CUE_DOOMED:
        verdict_set_reason(l, l->v->cause.reason, failed_message(l));
        break;
    case CUE_SUSPEND:
        verdict_set_reason(l, "JobSuspended",
                           "the job is suspended by spec.runPolicy.suspend");
        break;
    case CUE_EXPIRED:
        verdict_set_reason(l, "DeadlineExceeded",
                           arena_printf(l->arena,
                                        "the job was active for longer than its "
                                        "activeDeadlineSeconds, %lld s",
                                        (long long)l->job->run.deadline_s));
        break;
    case CUE_BROKEN:
        begin_restart(l, class);
        break;
    case CUE_REMAKE:
        l->v->next_restart_s = l->q->now_wall_s;
        note_scaled(l);
        verdict_set_reason(
            l, "JobScaled",
            arena_printf(l->arena, "%s: all pods are recreated", l->v->scaled));
        break;
    case CUE_RENEW:
        l->v->next_restart_s = l->q->now_wall_s;
        verdict_set_reason(
            l, "RuntimeChanged",
            "pods are missing, and the operator's runtime image is not that of the "
            "existing pods: all pods are recreated");
        break;
    case CUE_RESIZE:
        note_scaled(l);
        verdict_set_reason(l, "WorkersNotRunning", l->v->scaled);
        break;
    case CUE_CLEARED:
        verdict_set_pending(l);
        break;
    case CUE_RUN:
        verdict_set_running(l);
        break;
    case CUE_NONE:
        verdict_set_unchanged(l);
        break;
    }
}

/* By the clock of the reporting node, which may be slightly ahead. */
static uint64_t settles_s(const struct cause *c, uint64_t now_s)
{
    uint64_t at_s = c->reported_s + c->settle_within_s;
    bool is_open = c->settle_within_s != 0 && now_s < at_s
                   && c->reported_s < now_s + CLOCKS_APART_S;

    return is_open ? at_s : 0;
}

static void settle_world(struct look *l)
{
    struct hvd_verdict *v = l->v;
    bool is_begun = v->cue == CUE_CLEARED || v->cue == CUE_RESIZE;

    v->generation = v->was.generation;
    if (v->was.is_new && v->state != STATE_SUSPENDED)
        v->generation = 1;
    if (is_begun)
        v->generation++;
    v->workers = l->job->role[ROLE_WORKER].n;
    if (v->state == STATE_SUSPENDED)
        v->workers = 0;
    else if (is_begun || v->state == STATE_RESTARTING)
        v->workers = l->job->spec_workers;
    if (v->was_finished)
        v->is_created = v->was.is_created;
    else if (is_begun || v->state == STATE_SUSPENDED || v->state == STATE_RESTARTING)
        v->is_created = false;
    else
        v->is_created = job_is_live(l)
                        && (v->was.is_created
                            || (l->is_made && l->q->outcome->trouble == TROUBLE_NONE));
}

int verdict_make(const struct verdict_query *q,
                 struct arena *a,
                 struct hvd_verdict *ret)
{
    struct hvd_verdict v = {.waiting = "", .reason = "", .message = "", .scaled = ""};
    struct look l = {.q = q, .job = q->job, .arena = a, .v = &v};
    struct cause_query cq = {.job = q->job, .seen = q->seen};
    enum rule_action class = RULE_FAIL;
    int rc;

    hvd_stored_read(q->job->meta.status, &v.was);
    v.was_finished = state_is_final(v.was.state);
    v.restarts = v.was.restarts;
    v.replacements = v.was.replacements;
    v.next_restart_s = v.was.next_restart_s;
    look_count_pods(&l);
    cq.has_run = l.has_run;
    rc = job_is_live(&l) ? cause_find(&cq, a, &v.cause) : 0;
    if (rc < 0)
        return rc;
    v.settle_s = rc > 0 ? settles_s(&v.cause, q->now_wall_s) : 0;
    v.has_cause = rc > 0 && v.settle_s == 0;
    if (v.has_cause)
        class = cause_class(q->job, &v.cause);
    v.cue = v.was_finished ? CUE_NONE : look_choose_cue(&l, class);
    v.state = hvd_next(v.was.state, v.cue);
    verdict_set_step(&l, class);
    v.has_cause = v.cue == CUE_DOOMED || v.cue == CUE_BROKEN;
    if (v.state != STATE_RESTARTING)
        v.next_restart_s = 0;
    settle_world(&l);
    if (l.is_out_of_memory)
        return -ENOMEM;
    *ret = v;
    return 0;
}

bool verdict_is_step(const struct hvd_verdict *v)
{
    return v->cue != CUE_NONE;
}
