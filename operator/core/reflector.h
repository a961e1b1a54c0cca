/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one list-and-watch, as a table of edges. Pure; watch.c does what the
 * state says. */
#ifndef OPERATOR_CORE_REFLECTOR_H
#define OPERATOR_CORE_REFLECTOR_H

#include <stdint.h>

enum refl_state {
    REFL_LISTING,  /* pages of a list are being read */
    REFL_WATCHING, /* a watch is open */
    REFL_BACKOFF,  /* waiting before the next try; then list or watch as need_list says
                    */
};
#define REFL_STATE_COUNT 3

enum refl_event {
    REFL_LISTED,    /* the last page is in */
    REFL_WATCH_END, /* the server closed the watch in good order */
    REFL_EXPIRED,   /* 410 Gone: the resourceVersion is too old */
    REFL_ERROR,     /* anything else went wrong */
    REFL_TIMER,     /* the back-off is over */
};
#define REFL_EVENT_COUNT 5

#define REFL_FIRST_BACKOFF_NS                                                          \
    800000000ull /* doubled each time, plus up to half as jitter */
#define REFL_MAX_BACKOFF_NS 10000000000ull

struct reflector {
    enum refl_state state;
    uint64_t backoff_ns; /* of the next failure */
    uint64_t wake_ns;    /* BACKOFF: when to go on */
    int need_list;       /* BACKOFF: 1 list, 0 watch from the last resourceVersion */
    uint32_t n_restarts; /* lists and watches begun after the first list */
    int has_expired;     /* the last watch did, before it told anything */
};

void reflector_init(struct reflector *r);
/* Takes one event; an event that the state has no edge for changes nothing. random32 is
 * the jitter. Returns the new state. was_short: the watch could not be opened, or ended
 * at once, which is an error in disguise and backed off. After one that was not short
 * the back-off begins afresh, however it ended. */
enum refl_state reflector_next(struct reflector *r,
                               enum refl_event ev,
                               int was_short,
                               uint64_t now_ns,
                               uint32_t random32);

#endif
