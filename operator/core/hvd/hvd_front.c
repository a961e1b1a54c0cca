/* SPDX-License-Identifier: Apache-2.0 */
/* The table row of HorovodJobs: it connects the shell to the hvd_*.c files. */
#include <errno.h>

#include "operator/core/front.h"
#include "operator/core/hvd/hvd_goodput.h"
#include "operator/core/hvd/hvd_live.h"
#include "operator/core/hvd/hvd_objects.h"
#include "operator/core/hvd/hvd_plan.h"
#include "operator/core/hvd/hvd_status.h"

static const struct hvd_job *job_of(const struct job_meta *meta)
{
    return (const struct hvd_job *)(const void *)meta; /* its first member */
}

static struct job_meta *hvd_open(const struct node *object,
                                 const struct job_meta *meta,
                                 struct arena *a,
                                 struct strbuf *problems)
{
    struct hvd_job *job = arena_alloc(a, sizeof(*job));

    if (!job)
        return NULL;
    hvd_job_init(job, meta);
    if (hvd_decode_spec(object, a, job, problems) < 0)
        return NULL;
    hvd_validate(job, problems);
    hvd_stored_apply(job, problems->n > 0 || strbuf_status(problems) != 0);
    return &job->meta;
}

static bool hvd_is_ours(const struct job_meta *meta)
{
    return hvd_job_is_ours(job_of(meta));
}

static void hvd_shape(const struct job_meta *meta, struct job_shape *ret)
{
    *ret = (struct job_shape){0};
    for (int r = 0; r < ROLE_COUNT; r++)
        ret->n[r] = job_of(meta)->role[r].n;
}

static int hvd_decide(const struct question *q, struct decision *ret)
{
    const struct verdict_query vq = {.job = job_of(q->job),
                                     .seen = q->seen,
                                     .outcome = q->outcome,
                                     .cfg = q->cfg,
                                     .now_wall_s = q->now_wall_s};
    struct build b = {.arena = q->arena};
    struct hvd_verdict *v = arena_alloc(q->arena, sizeof(*v));
    struct decision d = {0};
    int rc = v ? verdict_make(&vq, q->arena, v) : -ENOMEM;

    if (rc == 0)
        rc = hvd_plan_make(&vq, v, q->arena, &d.plan);
    if (rc < 0)
        return rc;
    d.status = status_make(&b, &vq, v);
    hvd_goodput_add(&b, &vq, v, d.status);
    if (!d.status || b.status)
        return -ENOMEM;
    d.n_notes = status_events(&vq, v, q->arena, d.note);
    if (d.n_notes < DECISION_MAX_NOTES)
        d.n_notes += hvd_goodput_note(&vq, v, q->arena, &d.note[d.n_notes]);
    d.requeue_ms = hvd_plan_requeue_ms(&vq, v);
    d.state = v->state;
    d.reason = v->reason;
    d.message = v->message;
    if (v->cue == CUE_BROKEN)
        d.cause = v->cause.reason;
    d.was_finished = v->was_finished;
    rc = hvd_live_target(&vq, v, q->arena, &d.ask);
    if (rc < 0)
        return rc;
    *ret = d;
    return 0;
}

static struct node *hvd_build(struct build *b,
                              const struct job_meta *meta,
                              const struct object_config *cfg,
                              const struct action *x,
                              const struct secrets *secrets,
                              struct err *err)
{
    const struct hvd_job *job = job_of(meta);

    if (x->kind == KUBE_SECRET)
        return object_secret(b, job, secrets->token);
    if (x->kind == KUBE_SERVICE)
        return object_service(b, job);
    if (x->kind == KUBE_CONFIGMAP)
        return object_hosts(b, job, cfg);
    if (x->kind == KUBE_VOLCANO_GROUP || x->kind == KUBE_SCHEDULER_GROUP)
        return object_pod_group(b, job, cfg, err);
    return object_pod(b, job, cfg, x->role, x->index, err);
}

const struct front front_horovodjob = {
    .kind = KUBE_JOB,
    .component = "hvd-operator",
    .open = hvd_open,
    .is_ours = hvd_is_ours,
    .shape = hvd_shape,
    .decide = hvd_decide,
    .build = hvd_build,
};
