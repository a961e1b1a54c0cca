/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a sync.
 *
 *   being deleted, or refused        nothing
 *   finished by the stored status    clean up by cleanPodPolicy; stop a launcher that
 *                                    still runs; delete the job itself by its TTL
 *   finished, not yet stored         nothing: the result is stored first
 *   suspended                        create the objects and a suspended launcher;
 *                                    delete workers and PodGroup
 *   else                             create the objects (stage 0), missing workers and,
 *                                    as launcherCreationPolicy allows, the launcher
 *
 * A missing worker is created at any time. A failed worker is deleted some seconds
 * later and so recreated, so that a retry of the launcher finds it. An evicted worker
 * fails the job, as in mpi-operator.
 *
 * The launcher is stopped through its deadline: its Job's controller then ends it as
 * usual, and the TTL of the Job still applies.
 *
 * A restart of the operator at any point gives the same plan without the actions that
 * are done. Pure; called by mpi_front.c. */
#include "operator/core/mpi/mpi_plan.h"

#include <errno.h>

#include "operator/core/labels.h"
#include "operator/core/mpi/mpi_pods.h"
#include "operator/core/mpi/mpi_planner.h"
#include "operator/core/mpi/mpi_why.h"
#include "runtime/base/mem.h"

#define FIXED_ACTIONS 16u /* all but those of workers */

void planner_again(struct planner *p, uint64_t ms)
{
    if (p->d->requeue_ms == 0 || ms < p->d->requeue_ms)
        p->d->requeue_ms = ms > 0 ? ms : 1;
}

void planner_again_at(struct planner *p, uint64_t at_s)
{
    uint64_t left_s = at_s > p->q->now_wall_s ? at_s - p->q->now_wall_s : 0;

    planner_again(p, left_s < UINT32_MAX / 1000 ? left_s * 1000 : UINT32_MAX);
}

const char *planner_keep(struct planner *p, const char *s)
{
    const char *copy = arena_strdup(p->q->arena, s);

    if (!copy)
        p->b.status = -ENOMEM;
    return copy;
}

struct action *planner_add(struct planner *p,
                           enum verb verb,
                           enum kube_kind kind,
                           uint32_t stage,
                           const char *name)
{
    return plan_add(&p->d->plan, verb, kind, stage, planner_keep(p, name));
}

/* --- workers --------------------------------------------------------------------- */

static struct action *
add_worker(struct planner *p, enum verb verb, uint32_t stage, uint32_t i)
{
    char name[MPI_NAME_SIZE];
    struct action *x;

    mpi_worker_name(p->job, i, name);
    x = planner_add(p, verb, KUBE_POD, stage, name);
    x->role = ROLE_WORKER;
    x->index = i;
    return x;
}

static void delete_worker(struct planner *p, uint32_t i)
{
    const struct pod *pod = p->q->seen->crew[ROLE_WORKER].w[i].pod;

    if (!pod->is_deleting)
        add_worker(p, VERB_DELETE, 0, i)->uid = planner_keep(p, pod->uid);
}

/* Of a finished job, those of cleanPodPolicy. Of a suspended one, all: a pod that has
 * ended would block the resumed job, and an evicted one would fail it. */
static void delete_workers(struct planner *p)
{
    const struct crew *crew = &p->q->seen->crew[ROLE_WORKER];
    bool is_all = p->job->clean != MPI_CLEAN_RUNNING || !p->v->was_finished;

    for (uint32_t i = 0; i < crew->n; i++) {
        enum pod_phase phase;

        if (crew->w[i].state != WORKER_SEEN)
            continue;
        phase = crew->w[i].pod->phase;
        if (is_all || phase == POD_RUNNING || phase == POD_PENDING)
            delete_worker(p, i);
    }
}

/* A pod that its node refused has no container that ended. Its time counts from its
 * creation, otherwise a node that always refuses would get pods without a pause. A time
 * far ahead of the local clock is ignored, so that it does not delay the worker. */
static uint64_t failed_at_s(const struct planner *p, const struct pod *pod)
{
    const uint64_t at_us[] = {pod->exit_wall_us, pod->made_wall_us};

    for (size_t i = 0; i < ARRAY_LEN(at_us); i++) {
        if (at_us[i] > 0 && at_us[i] / 1000000u <= p->q->now_wall_s + MPI_CLOCK_SKEW_S)
            return at_us[i] / 1000000u;
    }
    return 0;
}

static void replace_failed(struct planner *p, uint32_t i)
{
    const struct pod *pod = p->q->seen->crew[ROLE_WORKER].w[i].pod;
    uint64_t at_s = failed_at_s(p, pod) + MPI_REPLACE_S;

    if (pod->phase != POD_FAILED || pod->is_deleting)
        return;
    if (p->q->now_wall_s >= at_s)
        delete_worker(p, i);
    else
        planner_again_at(p, at_s);
}

/* A Job of mpi-operator does not have the label that the watch selects. It gets one, so
 * that jobs that ran under mpi-operator continue. */
static void look_for_launcher(struct planner *p)
{
    struct node *o = node_object(&p->b);
    struct node *meta = node_child(&p->b, o, "metadata", NODE_OBJECT);
    struct node *labels = node_child(&p->b, meta, "labels", NODE_OBJECT);
    char name[MPI_NAME_SIZE];

    mpi_object_name(p->job, "launcher", name);
    node_set_str(&p->b, labels, LABEL_JOB_NAME, p->job->meta.name);
    planner_add(p, VERB_LOOK, KUBE_BATCH, 0, name);
    planner_add(p, VERB_UPDATE, KUBE_BATCH, 1, name)->body = o;
}

static void look_for_expected(struct planner *p)
{
    const struct observed *seen = p->q->seen;
    const struct crew *crew = &seen->crew[ROLE_WORKER];

    for (uint32_t i = 0; i < crew->n; i++) {
        if (crew->w[i].state == WORKER_EXPECTED)
            planner_again(p, EXPECT_LOOK_MS);
        if (crew->w[i].is_overdue)
            add_worker(p, VERB_LOOK, 0, i);
    }
    if (seen->batch_state == WORKER_EXPECTED)
        planner_again(p, EXPECT_LOOK_MS);
    if (seen->is_batch_overdue)
        look_for_launcher(p);
}

static bool mpi_worker_is_missing(enum worker_state s)
{
    return s == WORKER_ABSENT || s == WORKER_GONE;
}

static void make_workers(struct planner *p)
{
    const struct crew *crew = &p->q->seen->crew[ROLE_WORKER];

    for (uint32_t i = 0; i < crew->n; i++) {
        bool is_wanted = i < p->job->worker.n;

        if (!is_wanted && crew->w[i].state == WORKER_SEEN)
            delete_worker(p, i);
        else if (is_wanted && crew->w[i].state == WORKER_SEEN)
            replace_failed(p, i);
    }
    for (uint32_t i = 0; i < crew->n && i < p->job->worker.n; i++) {
        if (mpi_worker_is_missing(crew->w[i].state))
            add_worker(p, VERB_CREATE, 1, i);
    }
}

static bool misses_worker(const struct planner *p)
{
    const struct crew *crew = &p->q->seen->crew[ROLE_WORKER];

    for (uint32_t i = 0; i < crew->n && i < p->job->worker.n; i++) {
        if (mpi_worker_is_missing(crew->w[i].state))
            return true;
    }
    return false;
}

static bool lost_worker(const struct planner *p)
{
    const struct crew *crew = &p->q->seen->crew[ROLE_WORKER];

    for (uint32_t i = 0; i < crew->n && i < p->job->worker.n; i++) {
        if (crew->w[i].state == WORKER_GONE)
            return true;
    }
    return false;
}

/* --- the launcher ---------------------------------------------------------------- */

static struct action *
patch_launcher(struct planner *p, uint32_t stage, struct node *body)
{
    char name[MPI_NAME_SIZE];
    struct action *x;

    mpi_object_name(p->job, "launcher", name);
    x = planner_add(p, VERB_UPDATE, KUBE_BATCH, stage, name);
    x->uid = planner_keep(p, p->q->seen->batch->uid);
    x->body = body;
    return x;
}

static struct node *spec_patch(struct planner *p, const char *key, struct node *value)
{
    struct node *o = node_object(&p->b);

    node_set(&p->b, node_child(&p->b, o, "spec", NODE_OBJECT), key, value);
    return o;
}

/* Adds uid and resourceVersion of the observed launcher to the first of several
 * patches: a late patch of a former leader must not undo the changes of the next
 * one. */
static void planner_fence_action(struct planner *p, const struct action *first)
{
    struct node *body = (struct node *)(uintptr_t)first->body; /* created here */

    node_set_str(&p->b, node_child(&p->b, body, "metadata", NODE_OBJECT),
                 "resourceVersion", p->q->seen->batch->resource_version);
}

/* A Job's template may change only while it is suspended and has no startTime. */
static void resume_launcher(struct planner *p)
{
    struct node *status = node_object(&p->b), *body;
    size_t first = p->d->plan.n;
    bool must_clear = false;

    if (p->q->seen->batch->has_start_time) {
        node_set(&p->b, node_child(&p->b, status, "status", NODE_OBJECT), "startTime",
                 node_null(&p->b));
        patch_launcher(p, 1, status)->sub = "status";
    }
    body = mpi_launcher_resume(&p->b, p->job, p->q->cfg, &must_clear);
    if (must_clear)
        patch_launcher(p, 2, mpi_launcher_clear(&p->b));
    patch_launcher(p, 3, body);
    planner_fence_action(p, &p->d->plan.v[first]);
}

static bool launcher_can_be_patched(const struct observed *seen)
{
    return seen->batch_state == WORKER_SEEN && !seen->batch->is_deleting
           && !seen->batch->is_complete && !seen->batch->is_failed;
}

/* The launcher's Job was deleted: its pods must have ended before another launcher does
 * the same work. Their ends trigger a sync. */
static bool launcher_has_former_pods(const struct observed *seen)
{
    for (uint32_t i = 0; i < seen->n_batch_pods; i++) {
        enum pod_phase phase = seen->batch_pods[i]->phase;

        if (phase != POD_SUCCEEDED && phase != POD_FAILED)
            return true;
    }
    return false;
}

static bool may_make_launcher(const struct planner *p)
{
    const struct observed *seen = p->q->seen;

    return mpi_worker_is_missing(seen->batch_state) && !launcher_has_former_pods(seen)
           && (p->job->is_suspended || p->v->may_launch);
}

static void make_launcher(struct planner *p)
{
    const struct observed *seen = p->q->seen;
    char name[MPI_NAME_SIZE];

    mpi_object_name(p->job, "launcher", name);
    if (may_make_launcher(p)) {
        planner_add(p, VERB_CREATE, KUBE_BATCH, 1, name);
    } else if (launcher_can_be_patched(seen)) {
        if (p->job->is_suspended && !seen->batch->is_suspended)
            planner_fence_action(
                p, patch_launcher(p, 1,
                                  spec_patch(p, "suspend", node_boolean(&p->b, true))));
        else if (!p->job->is_suspended && seen->batch->is_suspended && p->v->may_launch)
            resume_launcher(p);
    }
}

/* True if the launcher's pod exists or may be created. */
static bool launcher_has_started(const struct planner *p)
{
    const struct batch_job *b = p->q->seen->batch;

    return p->v->may_launch || (p->v->has_launcher && !(b && b->is_suspended));
}

/* --- the cases ------------------------------------------------------------------- */

static void plan_objects(struct planner *p)
{
    bool is_making = mpi_worker_is_missing(p->q->seen->batch_state)
                     || (!p->job->is_suspended && misses_worker(p));

    p->is_replacing = (p->q->seen->batch_state == WORKER_GONE && may_make_launcher(p))
                      || (!p->job->is_suspended && lost_worker(p));
    mpi_ensure_access(p, is_making);
    mpi_ensure_config(p);
    look_for_expected(p);
    if (p->job->is_suspended) {
        mpi_drop_group(p);
        delete_workers(p);
    } else {
        mpi_ensure_group(p, launcher_has_started(p));
        make_workers(p);
    }
    make_launcher(p);
}

static void await_deadline(struct planner *p)
{
    uint64_t at_s = p->v->start_s + (uint64_t)p->job->deadline_s;

    if (p->job->deadline_s >= 0 && p->v->start_s && !p->job->is_suspended
        && at_s > p->q->now_wall_s)
        planner_again_at(p, at_s);
}

static void delete_by_ttl(struct planner *p)
{
    uint64_t at_s = p->v->completion_s + (uint64_t)p->job->ttl_s;

    if (!p->job->ttl_is_of_job || p->job->ttl_s < 0 || !p->v->completion_s)
        return;
    if (p->q->now_wall_s >= at_s)
        planner_add(p, VERB_DELETE, KUBE_MPIJOB, 1, p->job->meta.name)->uid =
            p->job->meta.uid;
    else
        planner_again_at(p, at_s);
}

/* Called only after the job's result is stored: otherwise a launcher that finished and
 * was deleted while no operator ran would look like one that was deleted early, and be
 * recreated. */
static void set_launcher_ttl(struct planner *p)
{
    const struct batch_job *b = p->q->seen->batch;

    if (p->job->ttl_s >= 0 && p->q->seen->batch_state == WORKER_SEEN && !b->is_deleting
        && b->ttl_s != p->job->ttl_s)
        planner_fence_action(
            p, patch_launcher(p, 0,
                              spec_patch(p, "ttlSecondsAfterFinished",
                                         node_number(&p->b, p->job->ttl_s))));
}

static void plan_finished(struct planner *p)
{
    const struct observed *seen = p->q->seen;
    bool is_all = p->job->clean == MPI_CLEAN_ALL;
    char name[MPI_NAME_SIZE];

    mpi_object_name(p->job, "launcher", name);
    if (seen->batch_state == WORKER_ABSENT && !p->v->completion_s)
        look_for_launcher(
            p); /* mpi-operator may have left it running: it must be stopped */
    if (p->job->clean != MPI_CLEAN_NONE) {
        delete_workers(p);
        mpi_drop_group(p);
    }
    if (is_all && p->job->must_clean_launcher && seen->batch_state == WORKER_SEEN
        && !seen->batch->is_deleting) {
        planner_add(p, VERB_DELETE, KUBE_BATCH, 0, name)->uid =
            planner_keep(p, seen->batch->uid);
    } else {
        if (launcher_can_be_patched(seen) && !seen->batch->is_suspended)
            planner_fence_action(p,
                                 patch_launcher(p, 0,
                                                spec_patch(p, "activeDeadlineSeconds",
                                                           node_number(&p->b, 1))));
        else
            set_launcher_ttl(p);
    }
    delete_by_ttl(p);
}

static void sort_by_stage(struct job_plan *p)
{
    for (size_t i = 1; i < p->n; i++) { /* insertion sort: few are out of order */
        struct action x = p->v[i];
        size_t k = i;

        for (; k > 0 && p->v[k - 1].stage > x.stage; k--)
            p->v[k] = p->v[k - 1];
        p->v[k] = x;
    }
}

int mpi_plan_make(const struct question *q,
                  const struct mpi_view *v,
                  struct decision *ret)
{
    const struct mpi_job *job = (const struct mpi_job *)q->job;
    struct planner p = {.q = q, .job = job, .v = v, .d = ret, .b = {.arena = q->arena}};
    size_t cap =
        FIXED_ACTIONS + MPI_WHY_ACTIONS + 2u * (size_t)q->seen->crew[ROLE_WORKER].n;

    if (plan_init(&ret->plan, cap, q->arena) < 0)
        return -ENOMEM;
    if (job->meta.is_deleting || job->flaws)
        return 0;
    if (v->was_finished) {
        plan_finished(&p);
    } else if (!mpi_view_is_over(v)) {
        plan_objects(&p);
        mpi_why_plan(&p);
        await_deadline(&p);
        if (v->stuck_due_s)
            planner_again_at(&p, v->stuck_due_s);
    }
    sort_by_stage(&ret->plan);
    return p.b.status;
}
