/* SPDX-License-Identifier: Apache-2.0 */
/* Stored status and observations -> cue (hvd_cycle.c) and the values of the new status;
 * their texts are in hvd_verdict_text.c.
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
#include "operator/core/hvd/hvd_verdict.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/hvd/hvd_class.h"
#include "operator/core/hvd/hvd_crew.h"
#include "operator/core/hvd/hvd_verdict_work.h"
#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"

/* --- counting -------------------------------------------------------------------- */

static void count_succeeded(struct verdict_work *w, enum role role, uint32_t index)
{
    w->v->tally[role].succeeded++;
    index_set_add(&w->v->completed[role], index);
}

/* It runs, and nobody has asked it to end. */
static bool pod_stays(const struct pod *p)
{
    return p->phase == POD_RUNNING && !p->is_deleting;
}

static void count_pod(struct verdict_work *w, enum role role, const struct pod *p)
{
    struct hvd_verdict *v = w->v;
    struct tally *t = &v->tally[role];
    bool is_current =
        p->world_generation == 0 || p->world_generation >= w->job->world_generation;

    bool has_ended = pod_has_succeeded(p) || pod_has_failed(p);

    t->running += p->phase == POD_RUNNING && !has_ended;
    t->ready += p->is_ready && pod_stays(p);
    t->failed += pod_has_failed(p);
    w->n_running += pod_has_succeeded(p) || (p->phase == POD_RUNNING && is_current);
    w->n_able += role == ROLE_WORKER && !has_ended && pod_stays(p);
    w->has_launcher |= role == ROLE_LAUNCHER && is_current && pod_stays(p);
    if (w->job->elastic.is_set && p->is_deleting)
        w->is_made = false; /* the next one has its name */
    if (role == ROLE_WORKER) {
        w->has_met |= pod_has_failed(p) && cause_is_after_start(p);
        w->is_old_runtime |=
            p->runtime && p->runtime != pod_runtime(w->q->cfg->runtime_image);
        w->is_old_world |= p->world_generation == 0 || w->is_old_runtime;
        w->is_other_size |=
            p->world_generation != 0 && p->world_workers != w->job->role[role].n;
    }
}

static void count_seat(struct verdict_work *w, enum role role, uint32_t index)
{
    const struct pod *p;

    switch (crew_seat(w->job, w->q->seen, role, index, &p)) {
    case SEAT_COMPLETED:
        count_succeeded(w, role, index);
        w->n_running++;
        break;
    case SEAT_EMPTY:
    case SEAT_LEAVING:
        w->is_made = false;
        break;
    case SEAT_EXPECTED:
        break;
    case SEAT_TAKEN:
        count_pod(w, role, p);
        break;
    case SEAT_LEFT:
        w->n_running += pod_has_succeeded(p);
        break;
    }
    if (p && pod_has_succeeded(p) && (role != ROLE_WORKER || !w->job->elastic.is_set))
        count_succeeded(w, role, index);
}

static bool verdict_has_succeeded(const struct verdict_work *w, enum role role)
{
    return w->v->tally[role].succeeded == w->job->role[role].n;
}

/* TensorFlow's first task is the chief where there is one. */
enum role verdict_first_role(const struct hvd_job *job)
{
    return job->role[ROLE_CHIEF].is_set ? ROLE_CHIEF : ROLE_WORKER;
}

/* After the pods were counted. */
static bool verdict_is_first_done(const struct verdict_work *w)
{
    return index_set_has(&w->v->completed[verdict_first_role(w->job)], 0);
}

/* Worker 0 is in every world, and Horovod's agents exit with 0 when all ranks of the
 * world have. The other pods need only the time to end: one that is deleted before it
 * did, or was created later for a larger world, is not waited for. */
bool verdict_is_world_done(const struct verdict_work *w)
{
    const struct pod *first, *p;

    (void)crew_seat(w->job, w->q->seen, ROLE_WORKER, 0, &first);
    if (w->job->framework != FRAMEWORK_HOROVOD || !first || !pod_has_succeeded(first))
        return false;
    for (uint32_t i = 1; i < w->job->role[ROLE_WORKER].n; i++) {
        bool is_gone = crew_seat(w->job, w->q->seen, ROLE_WORKER, i, &p) == SEAT_LEFT;

        if (p && p->generation <= first->generation && !pod_has_succeeded(p)
            && (pod_has_failed(p) || !(is_gone || p->is_deleting)))
            return false;
    }
    return true;
}

static void verdict_count_pods(struct verdict_work *w)
{
    w->is_made = true;
    for (int r = 0; r < ROLE_COUNT; r++) {
        w->n_pods += w->job->role[r].n;
        for (uint32_t i = 0; i < w->job->role[r].n; i++)
            count_seat(w, (enum role)r, i);
    }
    w->has_run = w->v->was.state == STATE_RUNNING
                 || (w->v->was.is_created
                     && (w->has_met || w->v->tally[ROLE_WORKER].succeeded > 0));
    switch (w->job->success) {
    case SUCCESS_ALL_WORKERS:
        w->is_done = verdict_is_world_done(w)
                     || (verdict_has_succeeded(w, ROLE_WORKER)
                         && verdict_has_succeeded(w, ROLE_CHIEF));
        break;
    case SUCCESS_WORKER0:
        w->is_done = verdict_is_first_done(w);
        break;
    case SUCCESS_LAUNCHER:
        w->is_done = verdict_has_succeeded(w, ROLE_LAUNCHER);
        break;
    }
}

/* --- which cue ------------------------------------------------------------------- */

static bool job_is_live(const struct verdict_work *w)
{
    return state_is_live(w->v->was.state);
}

static bool verdict_is_expired(const struct verdict_work *w)
{
    const struct hvd_run *run = &w->job->run;
    uint64_t start_s = w->v->was.start_s;

    return run->deadline_s >= 0 && start_s != 0
           && w->q->now_wall_s >= start_s + (uint64_t)run->deadline_s;
}

/* True if this operator refuses the spec. */
bool verdict_is_refused(const struct verdict_work *w)
{
    return w->q->outcome->trouble == TROUBLE_REJECTED && w->q->outcome->is_of_spec;
}

static bool verdict_is_cleared(const struct verdict_work *w)
{
    const struct hvd_verdict *v = w->v;

    if (job_is_live(w) || !crew_is_empty(w->q->seen))
        return false;
    return v->was.state == STATE_SUSPENDED
               ? !w->job->run.is_suspended && !verdict_is_refused(w)
               : wall_wait_is_over(w->q->now_wall_s, v->was.next_restart_s,
                                   MAX_BACKOFF_S);
}

/* A job whose earlier spec was accepted continues with it and reports what is refused,
 * so that a wrong edit does not end the training. A newer operator may also have
 * accepted fields that this one does not have. */
static bool verdict_is_unfit(const struct verdict_work *w)
{
    const struct hvd_stored *was = &w->v->was;

    if (w->q->outcome->trouble != TROUBLE_REJECTED || was->state != STATE_PENDING)
        return false;
    return verdict_is_refused(w) ? was->is_new
                                 : was->generation <= 1 && !was->is_created;
}

uint32_t verdict_world_workers(const struct hvd_job *job)
{
    return job->role[ROLE_WORKER].n - job->elastic.spares;
}

/* False after workers have succeeded, because these would not run again. */
static bool verdict_is_resized(const struct verdict_work *w)
{
    bool is_other = w->job->spec_workers != verdict_world_workers(w->job)
                    || (w->v->was.is_new && w->is_other_size);

    return job_is_live(w) && is_other && !verdict_is_refused(w)
           && w->v->tally[ROLE_WORKER].succeeded == 0;
}

static bool class_is_final(const struct verdict_work *w, enum rule_action class)
{
    return class == RULE_FAIL
           || (class == RULE_RESTART
               && w->v->was.restarts >= w->job->run.backoff_limit);
}

static enum hvd_cue verdict_choose_resize(const struct verdict_work *w)
{
    bool is_in_place = w->job->framework == FRAMEWORK_HOROVOD
                       && !w->job->role[ROLE_LAUNCHER].is_set && !w->is_old_world;

    return w->job->elastic.is_set ? CUE_SCALE : is_in_place ? CUE_RESIZE : CUE_REMAKE;
}

/* The pods were created by an operator with another runtime image. */
static bool verdict_is_mixed(const struct verdict_work *w)
{
    return (w->v->was.state == STATE_PENDING
            || (w->v->was.state == STATE_RUNNING && w->job->elastic.is_set))
           && !w->is_made && w->is_old_runtime && w->job->framework == FRAMEWORK_HOROVOD
           && w->v->tally[ROLE_WORKER].succeeded == 0;
}

static bool verdict_runs(const struct verdict_work *w)
{
    if (w->job->elastic.is_set)
        return w->has_launcher && w->n_able >= w->job->elastic.min;
    return w->n_running == w->n_pods;
}

static bool verdict_has_new_loss(const struct verdict_work *w)
{
    return job_is_live(w) && (w->loss.n_new > 0 || w->loss.launcher_text);
}

static enum hvd_cue verdict_choose_cue(const struct verdict_work *w,
                                       enum rule_action class)
{
    const struct hvd_verdict *v = w->v;

    if (verdict_is_unfit(w))
        return CUE_REFUSED;
    if (job_is_live(w) && w->is_done)
        return CUE_DONE;
    if (job_is_live(w) && v->has_cause && class_is_final(w, class))
        return CUE_DOOMED;
    if (v->was.state != STATE_SUSPENDED && w->job->run.is_suspended)
        return CUE_SUSPEND;
    if (v->was.state != STATE_SUSPENDED && verdict_is_expired(w))
        return CUE_EXPIRED;
    if (job_is_live(w) && v->has_cause)
        return CUE_BROKEN;
    if (verdict_is_resized(w))
        return verdict_choose_resize(w);
    if (verdict_has_new_loss(w))
        return CUE_REPLACE;
    if (verdict_is_mixed(w))
        return CUE_RENEW;
    if (verdict_is_cleared(w))
        return CUE_CLEARED;
    if (v->was.state == STATE_PENDING && verdict_runs(w))
        return CUE_RUN;
    return CUE_NONE;
}

/* By the clock of the reporting node, which may be slightly ahead. */
static uint64_t settles_s(const struct cause *c, uint64_t now_s)
{
    uint64_t at_s = c->reported_s + c->settle_within_s;
    bool is_open = c->settle_within_s != 0 && now_s < at_s
                   && c->reported_s < now_s + CLOCKS_APART_S;

    return is_open ? at_s : 0;
}

static void settle_world(struct verdict_work *w)
{
    struct hvd_verdict *v = w->v;
    bool is_begun =
        v->cue == CUE_CLEARED || v->cue == CUE_RESIZE || v->cue == CUE_SCALE;

    v->generation = v->was.generation;
    if (v->was.is_new && v->state != STATE_SUSPENDED)
        v->generation = 1;
    if (is_begun)
        v->generation++;
    v->workers = verdict_world_workers(w->job);
    if (v->state == STATE_SUSPENDED)
        v->workers = 0;
    else if (is_begun || v->state == STATE_RESTARTING)
        v->workers = w->job->spec_workers;
    if (v->was_finished)
        v->is_created = v->was.is_created;
    else if (is_begun || v->state == STATE_SUSPENDED || v->state == STATE_RESTARTING)
        v->is_created = false;
    else
        v->is_created = job_is_live(w)
                        && (v->was.is_created
                            || (w->is_made && w->q->outcome->trouble == TROUBLE_NONE));
}

static int verdict_find_loss(struct verdict_work *w)
{
    struct hvd_verdict *v = w->v;
    int rc;

    v->worker_replacements = v->was.worker_replacements;
    v->launcher_replacements = v->was.launcher_replacements;
    v->retired = v->was.retired;
    if (!w->job->elastic.is_set || !job_is_live(w))
        return 0;
    rc = hvd_loss_find(w->job, w->q->seen, &v->was, w->arena, &w->loss);
    v->worker_replacements += w->loss.n_new;
    v->lost = w->loss.lost;
    if (rc == 0)
        v->retired = w->loss.retired;
    return rc;
}

/* 1: v->cause is set. The removal of an elastic job's launcher is a loss instead. */
static int verdict_find_cause(struct verdict_work *w)
{
    struct hvd_verdict *v = w->v;
    const struct cause_query q = {
        .job = w->job, .seen = w->q->seen, .has_run = w->has_run};
    int rc = verdict_find_loss(w);

    if (rc == 0 && job_is_live(w))
        rc = cause_find(&q, w->arena, &v->cause);
    if (rc > 0) {
        rc = hvd_loss_add_launcher(w->job, &v->was, &v->cause, w->arena, &w->loss);
        v->is_launcher_lost = w->loss.has_launcher;
        v->launcher_replacements += w->loss.launcher_text != NULL;
    }
    if (rc == 0 && w->loss.is_too_often) {
        v->cause = w->loss.cause;
        w->is_worn_out = true;
        rc = 1;
    }
    return rc;
}

int verdict_make(const struct verdict_query *q,
                 struct arena *a,
                 struct hvd_verdict *ret)
{
    struct hvd_verdict v = {
        .why = {.detail = "", .text = ""}, .reason = "", .message = "", .scaled = ""};
    struct verdict_work w = {.q = q, .job = q->job, .arena = a, .v = &v};
    enum rule_action class = RULE_FAIL;
    int rc;

    hvd_stored_read(q->job->meta.status, &v.was);
    v.was_finished = state_is_final(v.was.state);
    v.restarts = v.was.restarts;
    v.replacements = v.was.replacements;
    v.next_restart_s = v.was.next_restart_s;
    verdict_count_pods(&w);
    rc = verdict_find_cause(&w);
    if (rc < 0)
        return rc;
    v.settle_s = rc > 0 ? settles_s(&v.cause, q->now_wall_s) : 0;
    v.has_cause = rc > 0 && v.settle_s == 0;
    if (v.has_cause && !w.is_worn_out)
        class = cause_class(q->job, &v.cause);
    v.cue = v.was_finished ? CUE_NONE : verdict_choose_cue(&w, class);
    v.state = hvd_next(v.was.state, v.cue);
    verdict_set_step(&w, class);
    v.has_cause = v.cue == CUE_DOOMED || v.cue == CUE_BROKEN;
    if (v.state != STATE_RESTARTING)
        v.next_restart_s = 0;
    settle_world(&w);
    if (w.is_out_of_memory)
        return -ENOMEM;
    *ret = v;
    return 0;
}

bool verdict_is_step(const struct hvd_verdict *v)
{
    return v->cue != CUE_NONE;
}
