/* SPDX-License-Identifier: Apache-2.0 */
/* The table row of MPIJobs. Its parts are mpi_job.c (the job), mpi_view.c (what is
 * observed), mpi_plan.c (the actions), mpi_status.c (the status and events) and
 * mpi_objects.c and mpi_pods.c (the objects). Pure; called by the reconcile shell. */
#include <errno.h>

#include "operator/core/mpi/mpi_config.h"
#include "operator/core/mpi/mpi_objects.h"
#include "operator/core/mpi/mpi_pods.h"
#include "operator/core/mpi/mpi_plan.h"
#include "operator/core/mpi/mpi_status.h"

static void mpi_front_shape(const struct job_meta *meta, struct job_shape *ret)
{
    const struct mpi_job *job = (const struct mpi_job *)meta;

    *ret = (struct job_shape){.n[ROLE_WORKER] = job->worker.n};
}

/* Problems of the job in this cluster. A finished job has none: it needs nothing
 * more. */
static int
find_flaw(const struct question *q, const struct mpi_view *v, struct mpi_job *job)
{
    const char *domain = q->cfg->cluster_domain ? q->cfg->cluster_domain : "";
    int rc = 0;

    if (!job->flaws && !v->was_finished)
        job->flaws = mpi_config_flaw(job, domain, q->arena, &rc);
    return rc;
}

static int mpi_front_decide(const struct question *given, struct decision *ret)
{
    struct mpi_job job = *(const struct mpi_job *)given->job;
    struct mpi_view v = mpi_view_make(given);
    struct question q = *given;
    int rc = find_flaw(given, &v, &job);

    q.job = &job.meta;
    *ret = (struct decision){.reason = "", .message = ""};
    if (rc == 0)
        rc = mpi_plan_make(&q, &v, ret);
    return rc < 0 ? rc : mpi_status_make(&q, &v, ret);
}

static struct node *mpi_front_build(struct build *b,
                                    const struct job_meta *meta,
                                    const struct object_config *cfg,
                                    const struct action *x,
                                    const struct secrets *secrets,
                                    struct err *err)
{
    const struct mpi_job *job = (const struct mpi_job *)meta;
    struct node *o = NULL;

    if (x->kind == KUBE_POD)
        o = mpi_worker(b, job, cfg, x->index);
    else if (x->kind == KUBE_BATCH)
        o = mpi_launcher(b, job, cfg);
    else if (x->kind == KUBE_SECRET)
        o = mpi_secret(b, job, secrets);
    if (!o)
        (void)err_set(err, -ENOMEM, "%s: does not fit in memory", x->name);
    return o;
}

const struct front front_mpijob = {
    .kind = KUBE_MPIJOB,
    .component = "mpi-job-controller",
    .open = mpi_job_open,
    .is_ours = mpi_job_is_ours,
    .shape = mpi_front_shape,
    .decide = mpi_front_decide,
    .build = mpi_front_build,
};
