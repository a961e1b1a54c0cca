/* SPDX-License-Identifier: Apache-2.0 */
/* The states of one world on one rank:
 *
 *   JOINING --joined--> READY --leave--> DRAINING --ended--> DOWN
 *      |                 |  |               |                 ^
 *      |                 |  '-----------ended-----------------'
 *      |                 |                  |
 *      '-----failed------+------failed------'
 *                        v
 *                     ABORTED
 *
 * leave moves JOINING to DRAINING too. All other events leave the state as it is. DOWN
 * and ABORTED are final: the next world is a new object.
 *
 * READY and DRAINING carry out answers; operations are submitted only in READY. */
#include "runtime/core/lifecycle.h"

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/mem.h"

static const struct {
    uint8_t from, ev, to;
} edges[] = {
    {LIFE_JOINING, LIFE_EV_JOINED, LIFE_READY},
    {LIFE_JOINING, LIFE_EV_FAILED, LIFE_ABORTED},
    {LIFE_JOINING, LIFE_EV_LEAVE, LIFE_DRAINING},
    {LIFE_READY, LIFE_EV_LEAVE, LIFE_DRAINING},
    {LIFE_READY, LIFE_EV_ENDED, LIFE_DOWN},
    {LIFE_READY, LIFE_EV_FAILED, LIFE_ABORTED},
    {LIFE_DRAINING, LIFE_EV_ENDED, LIFE_DOWN},
    {LIFE_DRAINING, LIFE_EV_FAILED, LIFE_ABORTED},
};

static const char *const names[] = {
    [LIFE_JOINING] = "joining",   [LIFE_READY] = "ready",
    [LIFE_DRAINING] = "draining", [LIFE_DOWN] = "down",
    [LIFE_ABORTED] = "aborted",
};
_Static_assert(ARRAY_LEN(names) == LIFE_COUNT, "one name per state");

enum life life_next(enum life from, enum life_event ev)
{
    for (size_t i = 0; i < ARRAY_LEN(edges); i++)
        if (edges[i].from == from && edges[i].ev == ev)
            return (enum life)edges[i].to;
    return from;
}

bool life_accepts(enum life l)
{
    return l == LIFE_READY;
}

const char *life_name(enum life l)
{
    return (unsigned)l < LIFE_COUNT ? names[l] : "?";
}
