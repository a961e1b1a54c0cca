/* SPDX-License-Identifier: Apache-2.0 */
/* The last view of a deleted pod counts only if the pod was of this generation: every
 * generation uses the same names. Called by hvd_cause.c, hvd_verdict.c, hvd_plan.c and
 * hvd_status.c. */
#include "operator/core/hvd/hvd_crew.h"

bool crew_is_leaving(const struct pod *p, uint32_t index)
{
    return p->world_generation != 0 && index >= p->world_workers;
}

enum seat crew_seat(const struct hvd_job *job,
                    const struct observed *seen,
                    enum role role,
                    uint32_t index,
                    const struct pod **ret_pod)
{
    const struct crew *crew = &seen->crew[role];
    const struct worker *w = index < crew->n ? &crew->w[index] : NULL;

    *ret_pod = NULL;
    if (index_set_has(&job->role[role].completed, index))
        return SEAT_COMPLETED;
    if (!w)
        return SEAT_EMPTY;
    switch (w->state) {
    case WORKER_ABSENT:
        return SEAT_EMPTY;
    case WORKER_EXPECTED:
        return SEAT_EXPECTED;
    case WORKER_SEEN:
        if (role == ROLE_WORKER && crew_is_leaving(w->pod, index))
            return SEAT_LEAVING;
        *ret_pod = w->pod;
        return SEAT_TAKEN;
    case WORKER_GONE:
        if (!w->pod || pod_generation(w->pod) < job->world_generation)
            return SEAT_EMPTY;
        *ret_pod = w->pod;
        return SEAT_LEFT;
    }
    return SEAT_EMPTY;
}

bool crew_is_tracked(const struct hvd_job *job, enum role role, uint32_t index)
{
    if (job->framework == FRAMEWORK_TENSORFLOW)
        return true;
    if (job->role[ROLE_LAUNCHER].is_set)
        return role == ROLE_LAUNCHER;
    return role == ROLE_WORKER && index == 0;
}

struct stuck crew_stuck(const struct observed *seen, uint64_t now_wall_s)
{
    struct stuck x = {0};

    for (int r = 0; r < ROLE_COUNT; r++) {
        for (uint32_t i = 0; i < seen->crew[r].n; i++) {
            const struct worker *w = &seen->crew[r].w[i];
            uint64_t due_s;

            if (w->state != WORKER_SEEN || !w->pod->is_deleting)
                continue;
            due_s = pod_gone_by_s(w->pod);
            if (now_wall_s < due_s)
                x.due_s = x.due_s && x.due_s < due_s ? x.due_s : due_s;
            else if (x.n++ == 0)
                x.p = w->pod;
        }
    }
    return x;
}

bool crew_is_empty(const struct observed *seen)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        for (uint32_t i = 0; i < seen->crew[r].n; i++) {
            enum worker_state s = seen->crew[r].w[i].state;

            if (s == WORKER_SEEN || s == WORKER_EXPECTED)
                return false;
        }
    }
    return true;
}
