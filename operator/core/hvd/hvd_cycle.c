/* SPDX-License-Identifier: Apache-2.0 */
/* The table of edges.
 *
 *                      .--------------cleared--------------.
 *                      v                                   |
 *   .--cleared--> PENDING --run--> RUNNING             SUSPENDED
 *   |              | ^  '--resize--'  |                    ^
 *   |              | '-----resize-----'                    |
 *   |              |                  |                    |
 *   |              '------ broken ----+--> RESTARTING      |
 *   |                      remake            | |           |
 *   '----------------------------------------' |           |
 *                                              |           |
 *   PENDING, RUNNING, RESTARTING --suspend-----+-----------'
 *   PENDING, RUNNING --done--> SUCCEEDED
 *   PENDING, RUNNING --doomed--> FAILED
 *   PENDING, RUNNING, RESTARTING --expired--> FAILED
 *   PENDING --refused--> FAILED
 *
 * (resize leads from PENDING to itself, and from RUNNING back to PENDING. scale and
 * replace, of elastic jobs, lead from PENDING and RUNNING to itself. renew leads from
 * PENDING, and from RUNNING of an elastic job, to RESTARTING.)
 *
 * A state is stored in the status before anything is done in it. In each state all
 * existing pods have the same meaning:
 *   PENDING     pods are of the current generation; missing ones are created
 *   RUNNING     pods are of the current generation; a missing one is lost, and created
 *               again if it is one of an elastic job
 *   RESTARTING, SUSPENDED   pods are of an earlier generation; all are deleted. The
 *               state ends when no pod exists or is expected, so that two generations
 *               never run at the same time
 *   SUCCEEDED, FAILED       never left
 * Each edge into PENDING except the first starts a new generation, so that a view of an
 * older pod is never mistaken for one of these. Pure; called by hvd_verdict.c. */
#include "operator/core/hvd/hvd_cycle.h"

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/mem.h"

static const struct hvd_cycle_edge {
    enum job_state from;
    enum hvd_cue cue;
    enum job_state to;
} edges[] = {
    {STATE_PENDING, CUE_REFUSED, STATE_FAILED},
    {STATE_PENDING, CUE_DONE, STATE_SUCCEEDED},
    {STATE_PENDING, CUE_DOOMED, STATE_FAILED},
    {STATE_PENDING, CUE_SUSPEND, STATE_SUSPENDED},
    {STATE_PENDING, CUE_EXPIRED, STATE_FAILED},
    {STATE_PENDING, CUE_BROKEN, STATE_RESTARTING},
    {STATE_PENDING, CUE_REMAKE, STATE_RESTARTING},
    {STATE_PENDING, CUE_RESIZE, STATE_PENDING},
    {STATE_PENDING, CUE_SCALE, STATE_PENDING},
    {STATE_PENDING, CUE_REPLACE, STATE_PENDING},
    {STATE_PENDING, CUE_RENEW, STATE_RESTARTING},
    {STATE_PENDING, CUE_RUN, STATE_RUNNING},
    {STATE_RUNNING, CUE_DONE, STATE_SUCCEEDED},
    {STATE_RUNNING, CUE_DOOMED, STATE_FAILED},
    {STATE_RUNNING, CUE_SUSPEND, STATE_SUSPENDED},
    {STATE_RUNNING, CUE_EXPIRED, STATE_FAILED},
    {STATE_RUNNING, CUE_BROKEN, STATE_RESTARTING},
    {STATE_RUNNING, CUE_REMAKE, STATE_RESTARTING},
    {STATE_RUNNING, CUE_RESIZE, STATE_PENDING},
    {STATE_RUNNING, CUE_SCALE, STATE_RUNNING},
    {STATE_RUNNING, CUE_REPLACE, STATE_RUNNING},
    {STATE_RUNNING, CUE_RENEW, STATE_RESTARTING},
    {STATE_RESTARTING, CUE_SUSPEND, STATE_SUSPENDED},
    {STATE_RESTARTING, CUE_EXPIRED, STATE_FAILED},
    {STATE_RESTARTING, CUE_CLEARED, STATE_PENDING},
    {STATE_SUSPENDED, CUE_CLEARED, STATE_PENDING},
};

const char *hvd_cue_name(enum hvd_cue c)
{
    static const char *const names[] = {
        [CUE_REFUSED] = "refused", [CUE_DONE] = "done",       [CUE_DOOMED] = "doomed",
        [CUE_SUSPEND] = "suspend", [CUE_EXPIRED] = "expired", [CUE_BROKEN] = "broken",
        [CUE_REMAKE] = "remake",   [CUE_RESIZE] = "resize",   [CUE_CLEARED] = "cleared",
        [CUE_SCALE] = "scale",     [CUE_REPLACE] = "replace", [CUE_RENEW] = "renew",
        [CUE_RUN] = "run",         [CUE_NONE] = "none",
    };
    _Static_assert(ARRAY_LEN(names) == CUE_COUNT, "one name per cue");

    return names[c];
}

static const struct hvd_cycle_edge *cycle_find_edge(enum job_state from,
                                                    enum hvd_cue cue)
{
    for (size_t i = 0; i < ARRAY_LEN(edges); i++) {
        if (edges[i].from == from && edges[i].cue == cue)
            return &edges[i];
    }
    return NULL;
}

bool hvd_has_edge(enum job_state from, enum hvd_cue cue)
{
    return cycle_find_edge(from, cue) != NULL;
}

enum job_state hvd_next(enum job_state from, enum hvd_cue cue)
{
    const struct hvd_cycle_edge *e = cycle_find_edge(from, cue);

    return e ? e->to : from;
}
