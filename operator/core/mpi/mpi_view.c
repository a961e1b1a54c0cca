/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshot -> view.
 *
 * Rules
 *  1. A launcher's Job that was created and not yet shown by a watch counts as
 *     existing. A deleted one counts as existing only if it had ended: its result is
 *     the job's.
 *  2. Workers beyond the requested number do not count; of a suspended job none does.
 *     An evicted worker that is being deleted, for example by a suspension that is
 *     over, is recreated and does not fail the job.
 *  3. The deadline counts from the job's startTime. The launcher's Job has the
 *     deadline, too, and enforces it, unless it was created late because it waited for
 *     the workers.
 * Pure; called by mpi_front.c. */
#include "operator/core/mpi/mpi_view.h"

#include <string.h>

#include "operator/core/timestamp.h"

static uint64_t stored_time_s(const struct job_meta *meta, const char *key)
{
    const char *s = node_str(meta->status, key);
    uint64_t us;

    return s && timestamp_parse_us(s, &us) == 0 ? us / 1000000u : 0;
}

static bool worker_is_evicted(const struct pod *p)
{
    return p->phase == POD_FAILED && strcmp(p->reason, "Evicted") == 0
           && !p->is_deleting;
}

static void
count_workers(const struct mpi_job *job, const struct crew *crew, struct mpi_view *v)
{
    uint32_t n_ready = 0;

    for (uint32_t i = 0; i < crew->n && i < job->worker.n; i++) {
        const struct pod *p = crew->w[i].pod;

        if (crew->w[i].state != WORKER_SEEN)
            continue;
        n_ready += p->is_ready && !p->is_deleting;
        if (job->is_suspended)
            continue;
        v->running += p->phase == POD_RUNNING;
        v->succeeded += p->phase == POD_SUCCEEDED;
        v->failed += p->phase == POD_FAILED;
        v->evicted += worker_is_evicted(p);
    }
    v->may_launch = !job->waits_for_workers || n_ready == job->worker.n;
}

static void view_read_launcher(const struct observed *seen, struct mpi_view *v)
{
    const struct batch_job *b = seen->batch;

    v->is_complete = b && b->is_complete;
    v->is_failed = b && !b->is_complete && b->is_failed;
    switch (seen->batch_state) {
    case WORKER_ABSENT:
        break;
    case WORKER_EXPECTED:
    case WORKER_SEEN:
        v->has_launcher = true;
        break;
    case WORKER_GONE:
        v->has_launcher = v->is_complete || v->is_failed;
        break;
    }
    for (uint32_t i = 0; i < seen->n_batch_pods; i++)
        v->launchers += seen->batch_pods[i]->phase == POD_RUNNING;
}

static void see_deletion(const struct pod *p, uint64_t now_s, struct mpi_view *v)
{
    uint64_t due_s = pod_gone_by_s(p);

    if (!p->is_deleting || !p->delete_wall_us)
        return;
    if (now_s >= due_s)
        v->stuck = v->stuck ? v->stuck : p;
    else if (!v->stuck_due_s || due_s < v->stuck_due_s)
        v->stuck_due_s = due_s;
}

/* A pod is created only when the former one of that name no longer exists. */
static void view_find_stuck(const struct mpi_job *job,
                            const struct observed *seen,
                            uint64_t now_s,
                            struct mpi_view *v)
{
    const struct crew *crew = &seen->crew[ROLE_WORKER];

    if (job->is_suspended || v->was_finished)
        return;
    for (uint32_t i = 0; i < crew->n && i < job->worker.n; i++) {
        if (crew->w[i].state == WORKER_SEEN)
            see_deletion(crew->w[i].pod, now_s, v);
    }
    for (uint32_t i = 0; i < seen->n_batch_pods; i++)
        see_deletion(seen->batch_pods[i], now_s, v);
}

static bool
view_is_expired(const struct mpi_job *job, const struct mpi_view *v, uint64_t now_s)
{
    bool is_ours_to_watch = !v->has_launcher || job->waits_for_workers;
    uint64_t end_s;

    if (job->deadline_s < 0 || job->is_suspended || v->is_resuming || !v->start_s)
        return false;
    return is_ours_to_watch
           && !__builtin_add_overflow(v->start_s, job->deadline_s, &end_s)
           && now_s >= end_s;
}

struct mpi_view mpi_view_make(const struct question *q)
{
    const struct mpi_job *job = (const struct mpi_job *)q->job;
    struct mpi_view v = {
        .was_finished = state_is_final(state_of_status(job->meta.status)),
        .is_resuming =
            !job->is_suspended && condition_is_true(job->meta.status, "Suspended"),
        .start_s = stored_time_s(&job->meta, "startTime"),
        .completion_s = stored_time_s(&job->meta, "completionTime"),
    };

    view_read_launcher(q->seen, &v);
    count_workers(job, &q->seen->crew[ROLE_WORKER], &v);
    v.is_expired = view_is_expired(job, &v, q->now_wall_s);
    view_find_stuck(job, q->seen, q->now_wall_s, &v);
    return v;
}

bool mpi_view_is_over(const struct mpi_view *v)
{
    return v->was_finished || v->is_complete || v->is_failed || v->is_expired
           || v->evicted > 0;
}
