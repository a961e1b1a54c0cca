/* SPDX-License-Identifier: Apache-2.0 */
/* As core/hvd/hvd_why.c, for the workers and the launcher's pods. mpi-operator's contract
 * has no condition for a job that waits; the sentence becomes part of the messages of
 * Created and of Running=False of a suspended job. Called by mpi_status.c and mpi_plan.c. */
#include "operator/core/mpi/mpi_why.h"

#include <errno.h>

#include "operator/core/explain.h"
#include "operator/core/mpi/mpi_podgroup.h"
#include "operator/core/timestamp.h"
#include "operator/core/why.h"

#define STAGE_ASK 4 /* behind all others */

static uint64_t mpi_suspended_s(const struct mpi_job *job)
{
    const struct node *c = condition_find(job->meta.status, "Suspended");
    const char *since = node_str(c, "lastTransitionTime");
    uint64_t us = 0;

    if (!condition_is_true(job->meta.status, "Suspended") || !since
        || timestamp_parse_us(since, &us) < 0)
        return 0;
    return us / 1000000u;
}

static bool mpi_runs(const struct mpi_job *job, const struct mpi_view *v)
{
    return v->has_launcher && v->launchers >= 1 && v->running == job->worker.n;
}

const char *mpi_why(const struct question *q, const struct mpi_view *v)
{
    const struct mpi_job *job = (const struct mpi_job *)q->job;
    const struct inquiry *known = q->seen->inquiry;
    struct job_shape shape = {.n[ROLE_WORKER] = job->worker.n};
    struct why_query wq = {.job = &job->meta,
                           .seen = q->seen,
                           .shape = &shape,
                           .outcome = q->outcome,
                           .n_pods = job->worker.n + 1,
                           .n_running = v->running + v->succeeded + (v->launchers > 0),
                           .is_gang = q->cfg->gang != GANG_NONE,
                           .now_wall_s = q->now_wall_s};
    struct why why;

    if (job->is_suspended)
        return known && known->kind == KUBE_WORKLOAD && known->asked_s
                   ? why_suspended(&job->meta, known, mpi_suspended_s(job), q->arena)
                   : "";
    if (mpi_view_is_over(v) || mpi_runs(job, v))
        return "";
    if (why_not_running(&wq, q->arena, &why) < 0)
        return NULL;
    return why.first == OBSTACLE_NONE ? "" : why.text;
}

static struct inquiry_need mpi_inquiry(const struct planner *p)
{
    const struct mpi_job *job = p->job;

    if (job->is_suspended && *job->meta.kueue_queue)
        return (struct inquiry_need){.kind = KUBE_WORKLOAD,
                                     .name = job->meta.name,
                                     .since_s = mpi_suspended_s(job)};
    if (!job->is_suspended && p->q->cfg->gang != GANG_NONE && !mpi_runs(job, p->v))
        return inquiry_for_group(p->q->seen, mpi_pod_group_kind(p->q->cfg->gang),
                                 job->meta.name);
    return (struct inquiry_need){.since_s = 0};
}

static void plan_again(struct planner *p, uint64_t at_s)
{
    if (at_s > p->q->now_wall_s)
        planner_again_at(p, at_s);
}

void mpi_why_plan(struct planner *p)
{
    const struct question *q = p->q;
    struct inquiry_need need = mpi_inquiry(p);

    if (!p->job->is_suspended && !mpi_runs(p->job, p->v)) {
        if (explain_add(&p->d->plan, q->seen, q->now_wall_s, STAGE_ASK, q->arena) < 0)
            p->b.status = -ENOMEM;
        plan_again(p, explain_next_s(q->seen));
        plan_again(p, why_next_s(q->seen, q->now_wall_s));
    }
    if (inquiry_add(&p->d->plan, q->seen->inquiry, &need, q->now_wall_s, STAGE_ASK + 1,
                    q->arena)
        < 0)
        p->b.status = -ENOMEM;
    plan_again(p, inquiry_next_s(q->seen->inquiry, &need));
}
