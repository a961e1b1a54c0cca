/* SPDX-License-Identifier: Apache-2.0 */
/*   NEW -init-> STARTING -ok-> READY -close-> CLOSING -ended-> DEAD
 *    |                            |
 *    |                            +-group---> ENQUEUING -ok-> READY
 *    |                            +-split---> SPLITTING -ok-> READY
 *    |                            +-revoke--> REVOKING  -ok-> PARKED -init-> CLOSING
 *    |                                        (its child: NEW -init-> STARTING)
 *    +-stop-> DEAD
 *
 *   all others that NCCL holds, PARKED too: -stop-> ABORTING -ended-> DEAD
 *
 * The launcher drives it until GPU_QUIET, then the watcher, which alone takes the edges
 * into and out of REVOKING and ABORTING. What the launcher left in progress cannot be
 * revoked: NCCL does not unlink its job. DEAD is never left. An edge that is not in the
 * table is a programming error: callers assert. */
#include "runtime/backend/nccl/comm_state.h"

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/mem.h"

static const struct {
    uint8_t from, ev, to;
} edges[] = {
    {COMM_NEW, COMM_EV_INIT, COMM_STARTING},
    {COMM_NEW, COMM_EV_STOP, COMM_DEAD},
    {COMM_STARTING, COMM_EV_OK, COMM_READY},
    {COMM_STARTING, COMM_EV_STOP, COMM_ABORTING},
    {COMM_READY, COMM_EV_GROUP, COMM_ENQUEUING},
    {COMM_READY, COMM_EV_SPLIT, COMM_SPLITTING},
    {COMM_READY, COMM_EV_CLOSE, COMM_CLOSING},
    {COMM_READY, COMM_EV_REVOKE, COMM_REVOKING},
    {COMM_READY, COMM_EV_STOP, COMM_ABORTING},
    {COMM_ENQUEUING, COMM_EV_OK, COMM_READY},
    {COMM_ENQUEUING, COMM_EV_STOP, COMM_ABORTING},
    {COMM_SPLITTING, COMM_EV_OK, COMM_READY},
    {COMM_SPLITTING, COMM_EV_STOP, COMM_ABORTING},
    {COMM_CLOSING, COMM_EV_ENDED, COMM_DEAD},
    {COMM_CLOSING, COMM_EV_STOP, COMM_ABORTING},
    {COMM_REVOKING, COMM_EV_OK, COMM_PARKED},
    {COMM_REVOKING, COMM_EV_STOP, COMM_ABORTING},
    {COMM_PARKED, COMM_EV_INIT, COMM_CLOSING},
    {COMM_PARKED, COMM_EV_STOP, COMM_ABORTING},
    {COMM_ABORTING, COMM_EV_ENDED, COMM_DEAD},
};

static const char *const names[] = {
    [COMM_NEW] = "new",
    [COMM_STARTING] = "starting",
    [COMM_READY] = "ready",
    [COMM_ENQUEUING] = "enqueuing",
    [COMM_SPLITTING] = "splitting",
    [COMM_CLOSING] = "closing",
    [COMM_REVOKING] = "revoking",
    [COMM_PARKED] = "parked",
    [COMM_ABORTING] = "aborting",
    [COMM_DEAD] = "dead",
};
_Static_assert(ARRAY_LEN(names) == COMM_STATE_COUNT, "one name per state");

int comm_next(enum comm_state s, enum comm_event e)
{
    for (size_t i = 0; i < ARRAY_LEN(edges); i++)
        if (edges[i].from == s && edges[i].ev == e)
            return edges[i].to;
    return -1;
}

bool comm_is_held(enum comm_state s)
{
    return s != COMM_NEW && s != COMM_DEAD;
}

const char *comm_state_name(enum comm_state s)
{
    return (unsigned)s < COMM_STATE_COUNT ? names[s] : "?";
}
