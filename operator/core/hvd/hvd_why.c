/* SPDX-License-Identifier: Apache-2.0 */
/* A job that is Pending asks for the Events of pods on their nodes and, with gang
 * scheduling, for the PodGroup of pods without a node; a suspended one with a queue of
 * Kueue for its Workload. One request of a job is at work at a time: they are in
 * different stages. Called by hvd_verdict.c and hvd_plan.c. */
#include "operator/core/hvd/hvd_why.h"

#include "operator/core/explain.h"
#include "operator/core/hvd/hvd_objects.h"

int hvd_why(const struct verdict_query *q,
            uint32_t n_pods,
            uint32_t n_running,
            struct arena *a,
            struct why *ret)
{
    struct job_shape shape = {.n = {0}};
    struct why_query wq = {.job = &q->job->meta,
                           .seen = q->seen,
                           .shape = &shape,
                           .outcome = q->outcome,
                           .n_pods = n_pods,
                           .n_running = n_running,
                           .is_gang = object_gang(q->job, q->cfg) != GANG_NONE,
                           .now_wall_s = q->now_wall_s};

    for (int r = 0; r < ROLE_COUNT; r++)
        shape.n[r] = q->job->role[r].n;
    return why_not_running(&wq, a, ret);
}

static struct inquiry_need hvd_inquiry(const struct verdict_query *q,
                                       const struct hvd_verdict *v)
{
    const struct job_meta *job = &q->job->meta;
    enum gang gang = object_gang(q->job, q->cfg);

    if (v->state == STATE_SUSPENDED && *job->kueue_queue)
        return (struct inquiry_need){
            .kind = KUBE_WORKLOAD, .name = job->name, .since_s = v->was.suspended_s};
    if (v->state == STATE_PENDING && gang != GANG_NONE)
        return inquiry_for_group(
            q->seen, gang == GANG_VOLCANO ? KUBE_VOLCANO_GROUP : KUBE_SCHEDULER_GROUP,
            job->name);
    return (struct inquiry_need){.since_s = 0};
}

int hvd_why_plan(const struct verdict_query *q,
                 const struct hvd_verdict *v,
                 uint32_t stage,
                 struct arena *a,
                 struct job_plan *plan)
{
    struct inquiry_need need = hvd_inquiry(q, v);
    int rc = 0;

    if (v->state == STATE_PENDING)
        rc = explain_add(plan, q->seen, q->now_wall_s, stage, a);
    if (rc == 0)
        rc = inquiry_add(plan, q->seen->inquiry, &need, q->now_wall_s, stage + 1, a);
    return rc;
}

static uint64_t earlier_s(uint64_t a_s, uint64_t b_s, uint64_t now_s)
{
    return b_s > now_s && (!a_s || b_s < a_s) ? b_s : a_s;
}

uint64_t hvd_why_next_s(const struct verdict_query *q, const struct hvd_verdict *v)
{
    struct inquiry_need need = hvd_inquiry(q, v);
    uint64_t now_s = q->now_wall_s, at_s = 0;

    if (v->state == STATE_PENDING) {
        at_s = earlier_s(at_s, explain_next_s(q->seen), now_s);
        at_s = earlier_s(at_s, why_next_s(q->seen, now_s), now_s);
    }
    return earlier_s(at_s, inquiry_next_s(q->seen->inquiry, &need), now_s);
}
