/* SPDX-License-Identifier: Apache-2.0 */
/* When something of a plan is due, and when the next sync is. Called by hvd_plan.c,
 * hvd_status.c and hvd_front.c. */
#include "operator/core/hvd/hvd_plan_time.h"

#include <string.h>

#include "operator/core/hvd/hvd_crew.h"
#include "operator/core/hvd/hvd_elastic.h"
#include "operator/core/hvd/hvd_objects.h"
#include "operator/core/hvd/hvd_why.h"
#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"

#define REFUSED_AGAIN_MS 30000 /* no watch reports that the cause is gone */
/* Until the ranks have usually left at a commit. The pod's own grace period follows. */
#define ELASTIC_LEAVE_S  10

static const enum kube_kind gangs[] = {KUBE_VOLCANO_GROUP, KUBE_SCHEDULER_GROUP};

/* When the remaining pods of a finished job are stopped or deleted; those that have not
 * begun are deleted at once. Agents of a failed job exit by themselves before, so that
 * their pods stay with their logs: the pod that caused the failure is often not the first
 * that the API server shows as failed. */
uint64_t plan_stop_s(const struct verdict_query *q, const struct hvd_verdict *v)
{
    bool is_expired = strcmp(v->reason, "DeadlineExceeded") == 0;
    bool waits = q->job->run.clean == CLEAN_NONE
                 || (q->job->run.clean == CLEAN_RUNNING && v->state == STATE_FAILED
                     && q->job->framework == FRAMEWORK_HOROVOD);

    return waits && !is_expired ? v->was.completion_s + END_S : 0;
}

/* Surplus, or patched with a world that does not contain it. */
bool plan_is_outside(const struct verdict_query *q, uint32_t i)
{
    const struct worker *w = &q->seen->crew[ROLE_WORKER].w[i];

    return w->state == WORKER_SEEN && !w->pod->is_deleting
           && (i >= q->job->role[ROLE_WORKER].n || crew_is_leaving(w->pod, i));
}

uint64_t plan_leave_s(const struct verdict_query *q, const struct hvd_verdict *v)
{
    uint64_t wait_s = q->job->elastic.is_set ? ELASTIC_LEAVE_S : LEAVE_S;

    return v->was.resize_s ? v->was.resize_s + wait_s : 0;
}

/* A worker that has ended is always replaced, a launcher if it was removed. */
bool plan_has_ended(const struct verdict_query *q,
                    const struct hvd_verdict *v,
                    enum role role,
                    uint32_t i)
{
    const struct worker *w = &q->seen->crew[role].w[i];

    if (!q->job->elastic.is_set || i >= q->job->role[role].n || w->state != WORKER_SEEN
        || w->pod->is_deleting)
        return false;
    if (role == ROLE_LAUNCHER)
        return v->is_launcher_lost && pod_has_failed(w->pod);
    return pod_has_succeeded(w->pod) || pod_has_failed(w->pod);
}

bool plan_may_end(const struct verdict_query *q,
                  const struct hvd_verdict *v,
                  const struct pod *p,
                  uint64_t *ret_s)
{
    if (!q->job->elastic.is_set || v->state != STATE_RUNNING || !p->is_deleting
        || !*p->node || pod_has_failed(p))
        return false;
    *ret_s = pod_gone_by_s(p);
    return q->now_wall_s < *ret_s;
}

bool plan_is_forced(const struct verdict_query *q,
                    enum role role,
                    uint32_t i,
                    uint64_t *ret_s)
{
    const struct worker *w = &q->seen->crew[role].w[i];

    if (!q->job->elastic.is_set || w->state != WORKER_SEEN)
        return false;
    *ret_s = hvd_elastic_force_s(w->pod);
    return *ret_s != 0;
}

bool hvd_plan_is_ttl_over(const struct verdict_query *q, const struct hvd_verdict *v)
{
    int64_t ttl_s = q->job->run.ttl_s;

    return v->was_finished && ttl_s >= 0 && v->was.completion_s != 0
           && q->now_wall_s >= v->was.completion_s + (uint64_t)ttl_s;
}

static bool crews_expect_anything(const struct observed *seen)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        for (uint32_t i = 0; i < seen->crew[r].n; i++) {
            if (seen->crew[r].w[i].state == WORKER_EXPECTED)
                return true;
        }
    }
    return false;
}

static void requeue_at(uint64_t *ms, uint64_t now_s, uint64_t at_s)
{
    uint64_t wait_ms = at_s > now_s ? (at_s - now_s) * 1000u : 0;

    if (wait_ms > 0 && (*ms == 0 || wait_ms < *ms))
        *ms = wait_ms;
}

/* A PodGroup of a job without pods: found by a query, or a query without an answer. For
 * a finished job the query is not repeated. */
static uint64_t drop_gang_ms(const struct verdict_query *q, const struct hvd_verdict *v)
{
    if (!v->was_finished && v->was.state != STATE_SUSPENDED)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(gangs); i++) {
        enum fact_state state = q->seen->fact[gangs[i]].state;

        if (state == FACT_THERE)
            return DROP_AGAIN_MS;
        if (state == FACT_UNKNOWN && !v->was_finished
            && object_is_required(q->job, q->cfg, gangs[i]))
            return EXPECT_LOOK_MS;
    }
    return 0;
}

/* When pods of this role are deleted or released. */
static void requeue_role(uint64_t *ms,
                         const struct verdict_query *q,
                         const struct hvd_verdict *v,
                         enum role role)
{
    const struct crew *crew = &q->seen->crew[role];
    const uint64_t now_s = q->now_wall_s;
    uint64_t at_s;

    for (uint32_t i = 0; i < crew->n; i++) {
        const struct pod *p = crew->w[i].pod;

        if (role == ROLE_WORKER && plan_is_outside(q, i))
            requeue_at(ms, now_s, plan_leave_s(q, v));
        if (plan_is_forced(q, role, i, &at_s))
            requeue_at(ms, now_s, at_s);
        if (plan_has_ended(q, v, role, i))
            requeue_at(ms, now_s, hvd_elastic_again_s(p));
        if (role == ROLE_LAUNCHER && crew->w[i].state == WORKER_SEEN
            && plan_may_end(q, v, p, &at_s))
            requeue_at(ms, now_s, at_s);
    }
}

uint64_t hvd_plan_requeue_ms(const struct verdict_query *q, const struct hvd_verdict *v)
{
    const struct hvd_run *run = &q->job->run;
    uint64_t now_s = q->now_wall_s, ms = drop_gang_ms(q, v);

    if (v->was_finished) {
        requeue_at(&ms, now_s, plan_stop_s(q, v));
        if (run->ttl_s >= 0 && v->was.completion_s != 0)
            requeue_at(&ms, now_s, v->was.completion_s + (uint64_t)run->ttl_s);
        return ms;
    }
    if (crews_expect_anything(q->seen) && ms == 0)
        ms = EXPECT_LOOK_MS;
    if (q->outcome->trouble == TROUBLE_REJECTED && !state_is_final(v->state)
        && !q->outcome->is_of_spec && (ms == 0 || ms > REFUSED_AGAIN_MS))
        ms = REFUSED_AGAIN_MS;
    requeue_at(&ms, now_s, v->settle_s);
    requeue_at(&ms, now_s, hvd_why_next_s(q, v));
    if (v->state == STATE_RESTARTING)
        requeue_at(&ms, now_s, v->next_restart_s);
    if (v->state == STATE_RESTARTING || v->state == STATE_SUSPENDED)
        requeue_at(&ms, now_s, crew_stuck(q->seen, now_s).due_s);
    requeue_role(&ms, q, v, ROLE_WORKER);
    requeue_role(&ms, q, v, ROLE_LAUNCHER);
    if (run->deadline_s >= 0 && v->was.start_s != 0 && v->state != STATE_SUSPENDED)
        requeue_at(&ms, now_s, v->was.start_s + (uint64_t)run->deadline_s);
    return ms;
}
