/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one world as one rank sees it: an enum, an edge table and one function.
 * Pure. */
#ifndef RUNTIME_CORE_LIFECYCLE_H
#define RUNTIME_CORE_LIFECYCLE_H

#include <stdbool.h>

enum life {
    LIFE_JOINING,
    LIFE_READY,
    LIFE_DRAINING,
    LIFE_DOWN,
    LIFE_ABORTED,
    LIFE_COUNT
};

enum life_event {
    LIFE_EV_JOINED, /* control channel and backend are connected */
    LIFE_EV_LEAVE,  /* this rank leaves and has sent its goodbye */
    LIFE_EV_ENDED,  /* a rank has left; follows the last answer */
    LIFE_EV_FAILED, /* a rank is lost, or joining failed */
    LIFE_EV_COUNT
};

enum life life_next(enum life from, enum life_event ev);
bool life_accepts(enum life l); /* may new work be submitted? */
const char *life_name(enum life l);

#endif
