/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a sync.
 *
 *   job being deleted        nothing: garbage collection deletes the objects, and
 *                            release.c removes the finalizer of pods
 *   a step to another state  nothing: the state is stored first. The next sync, of this
 *                            operator or of the one after a crash, reads it from there
 *   Pending                  the Secret and the Service; once they exist, all missing
 *                            pods at once. Workers of an earlier world receive the new
 *                            one before pods are added. Surplus pods are deleted, the
 *                            highest index first, before others are created, which a
 *                            quota may not allow otherwise. Surplus pods that run are
 *                            deleted after a delay: they exit by themselves when they
 *                            receive the new world, and the other workers must not see
 *                            that as a loss
 *   Running                  surplus pods are deleted likewise; a missing pod is a
 *                            failure. Service, ConfigMap and PodGroup are recreated.
 *                            Missing pods of an elastic job are created, as in
 *                            Pending, after pods that have ended are deleted
 *   Restarting, Suspended    all pods are deleted; in Suspended also the PodGroup
 *   finished                 pods are deleted by cleanPodPolicy, or stopped by None; those
 *                            of a failed job may exit by themselves before. The
 *                            PodGroup is deleted. The job itself is deleted
 *                            ttlSecondsAfterFinished later, after the status has
 *                            reported it
 *
 * In every state the finalizer of pods is removed whose end is in the stored status.
 *
 * For a job that is not finished, a created pod that the watch has not shown for a
 * while is queried: only the API server's answer ends the expectation.
 *
 * A restart of the operator at any point gives the same plan without the actions that
 * are done. Pure. */
#include "operator/core/hvd/hvd_plan.h"

#include <errno.h>
#include <string.h>

#include "operator/core/hvd/hvd_crew.h"
#include "operator/core/hvd/hvd_elastic.h"
#include "operator/core/hvd/hvd_objects.h"
#include "operator/core/hvd/hvd_plan_time.h"
#include "operator/core/hvd/hvd_why.h"
#include "operator/core/release.h"
#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/job_world.h"

enum { STAGE_NEEDED, STAGE_PATCH, STAGE_DELETE, STAGE_ADD };

static const enum kube_kind needed[] = {KUBE_SECRET, KUBE_SERVICE, KUBE_CONFIGMAP,
                                        KUBE_VOLCANO_GROUP, KUBE_SCHEDULER_GROUP};
static const enum kube_kind gangs[] = {KUBE_VOLCANO_GROUP, KUBE_SCHEDULER_GROUP};

struct planning {
    const struct verdict_query *q;
    const struct hvd_job *job;
    const struct object_config *cfg;
    const struct observed *seen;
    const struct hvd_verdict *v;
    struct arena *arena;
    struct job_plan *plan;
    bool is_out_of_memory;
};

/* Copies the strings, because the snapshot's pods are valid only until the shell waits
 * for an answer. Adds no action when memory is out. */
static struct action *
add_pod(struct planning *g, enum verb verb, uint32_t stage, enum role role, uint32_t i)
{
    char name[OBJECT_NAME_SIZE];
    const char *copy;
    struct action *x;

    object_pod_name(g->job, role, i, name);
    copy = arena_strdup(g->arena, name);
    if (!copy) {
        g->is_out_of_memory = true;
        return NULL;
    }
    x = plan_add(g->plan, verb, KUBE_POD, stage, copy);
    x->role = role;
    x->index = i;
    return x;
}

/* The uid is a precondition of the request. */
static void action_set_uid(struct planning *g, struct action *x, const char *uid)
{
    if (x)
        x->uid = arena_strdup(g->arena, uid);
    if (!x || !x->uid)
        g->is_out_of_memory = true;
}

static void drop_pod(
    struct planning *g, uint32_t stage, enum role role, uint32_t i, const char *uid)
{
    action_set_uid(g, add_pod(g, VERB_DELETE, stage, role, i), uid);
}

/* --- the finalizer ---------------------------------------------------------------- */

/* True if the status has all that the end of the worker's pod can change. In a job that
 * is not finished this is so for a task of TensorFlow that has succeeded, and for a pod
 * that is deleted before ranks have run, or was the launcher of an elastic job: it is no
 * failure (hvd_cause.c, hvd_loss.c), but its name is needed for the next pod. */
static bool pod_end_is_stored(const struct planning *g, enum role role, uint32_t index)
{
    const struct pod *p = g->seen->crew[role].w[index].pod;
    uint64_t at_s;

    if (!state_is_live(g->v->state)
        || index_set_has(&g->job->role[role].completed, index))
        return true;
    return p->is_deleting && !pod_has_succeeded(p) && g->v->settle_s == 0
           && !plan_may_end(g->q, g->v, p, &at_s);
}

/* Removes the finalizer of pods that need not be kept. */
static void plan_release(struct planning *g)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        const struct crew *crew = &g->seen->crew[r];

        for (uint32_t i = 0; i < crew->n; i++) {
            const struct pod *p = crew->w[i].pod;

            if (crew->w[i].state == WORKER_SEEN && p->is_tracked
                && pod_end_is_stored(g, (enum role)r, i)
                && release_add_pod(g->plan, g->arena, p, (enum role)r, i) < 0)
                g->is_out_of_memory = true;
        }
    }
}

/* --- deletions ------------------------------------------------------------------- */

static bool must_clean(enum clean_policy policy, enum pod_phase phase)
{
    bool has_ended = phase == POD_SUCCEEDED || phase == POD_FAILED;

    switch (policy) {
    case CLEAN_NONE:
        return false;
    case CLEAN_RUNNING:
        return !has_ended;
    case CLEAN_ALL:
        return true;
    }
    return false;
}

static const struct node *stop_patch(struct planning *g)
{
    struct build b = {.arena = g->arena};
    struct node *o = node_object(&b);

    node_set_int(&b, node_child(&b, o, "spec", NODE_OBJECT), "activeDeadlineSeconds",
                 1);
    g->is_out_of_memory |= b.status != 0;
    return o;
}

/* The only way to stop a pod and keep its log: with activeDeadlineSeconds the kubelet
 * kills the containers. */
static void stop_pod(struct planning *g, enum role role, uint32_t i, const char *uid)
{
    struct action *x = add_pod(g, VERB_UPDATE, STAGE_NEEDED, role, i);

    action_set_uid(g, x, uid);
    if (x)
        x->body = stop_patch(g);
}

/* Of a finished job, by cleanPodPolicy None. A pod in which only another container
 * still runs has finished its work. */
static void plan_stop(struct planning *g)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        const struct crew *crew = &g->seen->crew[r];

        for (uint32_t i = 0; i < crew->n; i++) {
            const struct pod *p = crew->w[i].pod;

            if (crew->w[i].state == WORKER_SEEN && !p->is_deleting && !p->is_stopped
                && !pod_has_succeeded(p) && !pod_has_failed(p))
                stop_pod(g, (enum role)r, i, p->uid);
        }
    }
}

/* is_early: only pods that have not begun. One on a node may have, even if its kubelet has
 * not reported it yet. */
static void plan_clean(struct planning *g, enum clean_policy policy, bool is_early)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        const struct crew *crew = &g->seen->crew[r];

        for (uint32_t i = 0; i < crew->n; i++) {
            const struct pod *p = crew->w[i].pod;

            if (crew->w[i].state == WORKER_SEEN && !p->is_deleting
                && must_clean(policy, p->phase)
                && (!is_early || (p->phase == POD_PENDING && !*p->node)))
                drop_pod(g, STAGE_NEEDED, (enum role)r, i, p->uid);
        }
    }
}

static bool worker_is_at_work(const struct pod *p)
{
    return p->phase == POD_RUNNING && !pod_has_succeeded(p) && !pod_has_failed(p);
}

static void plan_delete_surplus(struct planning *g)
{
    const struct crew *crew = &g->q->seen->crew[ROLE_WORKER];

    for (uint32_t i = crew->n; i-- > 0;) {
        const struct pod *p = crew->w[i].pod;

        if (plan_is_outside(g->q, i)
            && (!worker_is_at_work(p)
                || wall_wait_is_over(g->q->now_wall_s, plan_leave_s(g->q, g->v),
                                     LEAVE_S)))
            drop_pod(g, STAGE_DELETE, ROLE_WORKER, i, p->uid);
    }
}

/* Deletes the PodGroup: without pods it would keep its place in the queue. If it is not
 * known whether it exists and belongs to the job, it is queried first. */
static void plan_drop_gang(struct planning *g)
{
    for (size_t i = 0; i < ARRAY_LEN(gangs); i++) {
        const struct fact *fact = &g->seen->fact[gangs[i]];

        if (fact->state == FACT_THERE)
            action_set_uid(g,
                           plan_add(g->plan, VERB_DELETE, gangs[i], STAGE_DELETE,
                                    g->job->meta.name),
                           fact->uid);
        else if (fact->state == FACT_UNKNOWN
                 && object_is_required(g->job, g->cfg, gangs[i]))
            (void)plan_add(g->plan, VERB_LOOK, gangs[i], STAGE_DELETE,
                           g->job->meta.name);
    }
}

static void plan_end_pods(struct planning *g)
{
    bool is_early =
        !wall_wait_is_over(g->q->now_wall_s, plan_stop_s(g->q, g->v), END_S);

    plan_clean(g, g->job->run.clean, is_early);
    if (g->job->run.clean == CLEAN_NONE && !is_early)
        plan_stop(g);
}

static void plan_end(struct planning *g, bool is_ttl_over)
{
    struct action *x;

    plan_end_pods(g);
    plan_drop_gang(g);
    if (!is_ttl_over || !g->v->was.is_ttl_reported)
        return;
    x = plan_add(g->plan, VERB_DELETE, KUBE_JOB, STAGE_DELETE, g->job->meta.name);
    x->uid = g->job->meta.uid;
}

/* --- required objects ------------------------------------------------------------ */

static void plan_look(struct planning *g)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        const struct crew *crew = &g->seen->crew[r];

        for (uint32_t i = 0; i < crew->n; i++) {
            if (crew->w[i].is_overdue)
                (void)add_pod(g, VERB_LOOK, STAGE_NEEDED, (enum role)r, i);
        }
    }
}

static struct node *world_patch(struct planning *g)
{
    struct build b = {.arena = g->arena};
    struct node *o = node_object(&b);
    struct node *meta = node_child(&b, o, "metadata", NODE_OBJECT);
    struct node *notes = node_child(&b, meta, "annotations", NODE_OBJECT);
    struct job_world w = {.generation = g->job->world_generation,
                          .workers = g->job->role[ROLE_WORKER].n};
    char text[JOB_WORLD_TEXT_SIZE];

    job_world_render(&w, text);
    node_set_str(&b, notes, ANNOTATION_WORLD, text);
    g->is_out_of_memory |= b.status != 0;
    return o;
}

/* Pods without a world cannot be scaled. Of an elastic job only the launcher has one. */
static void plan_patch_worlds(struct planning *g)
{
    const enum role role = g->job->elastic.is_set ? ROLE_LAUNCHER : ROLE_WORKER;
    const struct crew *crew = &g->seen->crew[role];
    const struct node *body = NULL;

    for (uint32_t i = 0; i < crew->n; i++) {
        const struct pod *p = crew->w[i].pod;
        struct action *x;

        if (crew->w[i].state != WORKER_SEEN || p->is_deleting
            || p->world_generation == 0
            || p->world_generation >= g->job->world_generation
            || (role == ROLE_WORKER && crew_is_leaving(p, i)))
            continue;
        if (!body)
            body = world_patch(g);
        x = add_pod(g, VERB_UPDATE, STAGE_PATCH, role, i);
        action_set_uid(g, x, p->uid);
        if (x)
            x->body = body;
    }
}

static bool
hvd_worker_is_missing(const struct planning *g, enum role role, uint32_t index)
{
    const struct pod *p;
    enum seat x = crew_seat(g->job, g->seen, role, index, &p);

    return x == SEAT_EMPTY
           || (x == SEAT_LEFT
               && (!pod_has_succeeded(p)
                   || (g->job->elastic.is_set && role == ROLE_WORKER)));
}

static void force_pod(struct planning *g, enum role role, uint32_t i, const char *uid)
{
    struct action *x = add_pod(g, VERB_DELETE, STAGE_DELETE, role, i);

    action_set_uid(g, x, uid);
    if (x)
        x->is_forced = true;
}

/* Its name is needed for the next one. */
static void plan_delete_ended(struct planning *g, enum role role)
{
    const struct crew *crew = &g->seen->crew[role];

    for (uint32_t i = 0; i < crew->n; i++) {
        const struct pod *p = crew->w[i].pod;
        uint64_t at_s;

        if (plan_has_ended(g->q, g->v, role, i)
            && wall_wait_is_over(g->q->now_wall_s, hvd_elastic_again_s(p),
                                 HVD_ELASTIC_AGAIN_S))
            drop_pod(g, STAGE_DELETE, role, i, p->uid);
        else if (plan_is_forced(g->q, role, i, &at_s) && g->q->now_wall_s >= at_s)
            force_pod(g, role, i, p->uid);
    }
}

/* Objects that depend on the size of the world are updated with it. */
static bool object_depends_on_size(enum kube_kind kind)
{
    return kind == KUBE_CONFIGMAP || kind == KUBE_VOLCANO_GROUP
           || kind == KUBE_SCHEDULER_GROUP;
}

static void plan_digest(const struct planning *g, uint8_t ret[SHA256_BYTES])
{
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, &g->job->role[ROLE_WORKER].n, sizeof(g->job->role[ROLE_WORKER].n));
    sha256_add(&s, &g->job->slots, sizeof(g->job->slots)); /* by resource claims */
    sha256_end(&s, ret);
}

/* is_again: also if it is known to exist. */
static void plan_object(struct planning *g, enum kube_kind kind, bool is_again)
{
    const struct fact *fact = &g->seen->fact[kind];
    uint8_t digest[SHA256_BYTES];
    char name[OBJECT_NAME_SIZE];
    const char *copy;
    struct action *x;

    plan_digest(g, digest);
    if (!object_is_required(g->job, g->cfg, kind)
        || (fact->state == FACT_THERE && !is_again
            && (!object_depends_on_size(kind)
                || memcmp(fact->digest, digest, sizeof(digest)) == 0)))
        return;
    object_name(g->job, kind, name);
    copy = arena_strdup(g->arena, name);
    if (!copy) {
        g->is_out_of_memory = true;
        return;
    }
    x = plan_add(g->plan,
                 fact->state == FACT_THERE && !is_again ? VERB_UPDATE : VERB_CREATE,
                 kind, STAGE_NEEDED, copy);
    if (x->verb == VERB_UPDATE)
        action_set_uid(g, x, fact->uid);
    if (object_depends_on_size(kind))
        memcpy(x->digest, digest, sizeof(digest));
}

/* Recreates objects whose deletion the watches have shown. The Secret is
 * not recreated: pods with the old token and pods with a new one would refuse each
 * other. */
static void plan_recreate(struct planning *g)
{
    for (size_t i = 0; i < ARRAY_LEN(needed); i++) {
        if (needed[i] != KUBE_SECRET && g->seen->fact[needed[i]].state == FACT_ABSENT)
            plan_object(g, needed[i], false);
    }
}

/* No watch shows the Secret: its existence is ensured when all pods are recreated. */
static void plan_needed(struct planning *g, bool is_all_missing)
{
    for (size_t i = 0; i < ARRAY_LEN(needed); i++)
        plan_object(g, needed[i],
                    needed[i] == KUBE_SECRET && is_all_missing
                        && g->job->world_generation > 1);
}

static void plan_create(struct planning *g)
{
    uint32_t n_missing = 0, n = 0;

    for (int r = 0; r < ROLE_COUNT; r++) {
        n += g->job->role[r].n;
        for (uint32_t i = 0; i < g->job->role[r].n; i++)
            n_missing += hvd_worker_is_missing(g, (enum role)r, i);
    }
    if (n_missing > 0 || !g->v->was.is_created)
        plan_needed(g, n_missing == n);
    else
        plan_recreate(g);
    plan_patch_worlds(g);
    plan_delete_surplus(g);
    plan_delete_ended(g, ROLE_WORKER);
    plan_delete_ended(g, ROLE_LAUNCHER);
    for (int r = 0; r < ROLE_COUNT && n_missing > 0; r++) {
        for (uint32_t i = 0; i < g->job->role[r].n; i++) {
            if (hvd_worker_is_missing(g, (enum role)r, i))
                (void)add_pod(g, VERB_CREATE, STAGE_ADD, (enum role)r, i);
        }
    }
}

static void plan_explain(struct planning *g)
{
    if (hvd_why_plan(g->q, g->v, STAGE_ADD, g->arena, g->plan) < 0)
        g->is_out_of_memory = true;
}

static void plan_by_state(struct planning *g, bool is_ttl_over)
{
    plan_release(g);
    switch (g->v->state) {
    case STATE_PENDING:
        plan_look(g);
        plan_create(g);
        plan_explain(g);
        break;
    case STATE_RUNNING:
        plan_look(g);
        if (g->job->elastic.is_set) {
            plan_create(g);
            break;
        }
        plan_recreate(g);
        plan_delete_surplus(g);
        break;
    case STATE_RESTARTING:
    case STATE_SUSPENDED:
        plan_look(g);
        plan_clean(g, CLEAN_ALL, false);
        if (g->v->state == STATE_SUSPENDED) {
            plan_drop_gang(g);
            plan_explain(g);
        }
        break;
    case STATE_SUCCEEDED:
    case STATE_FAILED:
        plan_end(g, is_ttl_over);
        break;
    }
}

int hvd_plan_make(const struct verdict_query *q,
                  const struct hvd_verdict *v,
                  struct arena *a,
                  struct job_plan *ret)
{
    struct job_plan p;
    struct planning g = {.q = q,
                         .job = q->job,
                         .cfg = q->cfg,
                         .seen = q->seen,
                         .v = v,
                         .arena = a,
                         .plan = &p};
    size_t cap =
        ARRAY_LEN(needed) + ARRAY_LEN(gangs) + 1 /* the job */ + HVD_WHY_ACTIONS;
    int rc;

    for (int r = 0; r < ROLE_COUNT; r++) /* released, patched and deleted; created */
        cap += 3u * (size_t)q->seen->crew[r].n + q->job->role[r].n;
    rc = plan_init(&p, cap, a);
    if (rc == 0 && !q->job->meta.is_deleting && !verdict_is_step(v))
        plan_by_state(&g, hvd_plan_is_ttl_over(q, v));
    if (g.is_out_of_memory)
        rc = -ENOMEM;
    if (rc == 0)
        *ret = p;
    return rc;
}
