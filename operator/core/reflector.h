/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of one list-and-watch. Pure; watch.c acts on the states. */
#ifndef OPERATOR_CORE_REFLECTOR_H
#define OPERATOR_CORE_REFLECTOR_H

#include <stdint.h>

enum refl_state {
    REFL_LISTING,  /* pages of a list are being read */
    REFL_WATCHING, /* a watch is open */
    REFL_BACKOFF,  /* waiting before the next try; then list or watch, by need_list */
};
#define REFL_STATE_COUNT 3

enum refl_event {
    REFL_LISTED,    /* the last page was received */
    REFL_WATCH_END, /* the server closed the watch regularly */
    REFL_EXPIRED,   /* 410 Gone: the resourceVersion is too old */
    REFL_ERROR,     /* anything else went wrong */
    REFL_TIMER,     /* the back-off is over */
    REFL_SILENT,    /* a watch ended for which nothing was sent, not even a bookmark */
};
#define REFL_EVENT_COUNT      6

/* The back-off is doubled after each failure; up to half of it is added as jitter. */
#define REFL_FIRST_BACKOFF_NS 800000000ull
#define REFL_MAX_BACKOFF_NS   10000000000ull

struct reflector {
    enum refl_state state;
    uint64_t backoff_ns; /* back-off after the next failure */
    uint64_t wake_ns;    /* BACKOFF: when it ends */
    int need_list;       /* BACKOFF: 1 list, 0 watch from the last resourceVersion */
    uint32_t n_restarts; /* lists and watches that were started after the first list */
    int has_expired;     /* the last watch expired before its first event */
};

void reflector_init(struct reflector *r);
/* Processes one event; an event without an edge in this state changes nothing. random32
 * is the jitter. Returns the new state. was_short: the watch could not be opened or
 * ended at once, which counts as an error. A watch that was not short resets the back-
 * off, however it ended. */
enum refl_state reflector_next(struct reflector *r,
                               enum refl_event ev,
                               int was_short,
                               uint64_t now_ns,
                               uint32_t random32);

#endif
