/* SPDX-License-Identifier: Apache-2.0 */
/* List and watch.
 *
 *   state      event                    next state
 *   LISTING    listed                   WATCHING
 *   LISTING    error or expired         BACKOFF, then LISTING
 *   WATCHING   end                      WATCHING, from the last resourceVersion
 *   WATCHING   expired                  LISTING
 *   WATCHING   error, or end too soon   BACKOFF, then WATCHING
 *   WATCHING   silent                   BACKOFF, then LISTING
 *   BACKOFF    timer                    LISTING or WATCHING, as above
 *
 * "Expired" is 410 Gone. In a watch it leads to a new list at once: the server works,
 * it has only dropped the resourceVersion. If the watch that follows a list expires,
 * too, or the list itself does, there is a back-off before the next list. Otherwise a
 * server that drops versions quickly would be listed all the time.
 *
 * "Silent": after etcd was restored from a backup, a watch from a later version stays
 * open without an event until the server has reached that version again. */
#include "operator/core/reflector.h"

#include "runtime/base/mem.h"

struct refl_edge {
    enum refl_state from;
    enum refl_event ev;
    enum refl_state to;
    int need_list; /* of BACKOFF */
};

static const struct refl_edge edges[] = {
    {REFL_LISTING, REFL_LISTED, REFL_WATCHING, 0},
    {REFL_LISTING, REFL_EXPIRED, REFL_BACKOFF, 1},
    {REFL_LISTING, REFL_ERROR, REFL_BACKOFF, 1},
    {REFL_WATCHING, REFL_WATCH_END, REFL_WATCHING, 0},
    {REFL_WATCHING, REFL_EXPIRED, REFL_LISTING, 0},
    {REFL_WATCHING, REFL_ERROR, REFL_BACKOFF, 0},
    {REFL_WATCHING, REFL_SILENT, REFL_BACKOFF, 1},
    {REFL_BACKOFF, REFL_TIMER, REFL_WATCHING, 0}, /* or LISTING: need_list */
};

void reflector_init(struct reflector *r)
{
    *r = (struct reflector){.state = REFL_LISTING, .backoff_ns = REFL_FIRST_BACKOFF_NS};
}

static void
back_off(struct reflector *r, int need_list, uint64_t now_ns, uint32_t random32)
{
    uint64_t jitter_ns = r->backoff_ns / 2 * random32 / UINT32_MAX;

    r->need_list = need_list;
    r->wake_ns = now_ns + r->backoff_ns + jitter_ns;
    r->backoff_ns *= 2;
    if (r->backoff_ns > REFL_MAX_BACKOFF_NS)
        r->backoff_ns = REFL_MAX_BACKOFF_NS;
}

static const struct refl_edge *reflector_find_edge(enum refl_state from,
                                                   enum refl_event ev)
{
    for (size_t i = 0; i < ARRAY_LEN(edges); i++) {
        if (edges[i].from == from && edges[i].ev == ev)
            return &edges[i];
    }
    return NULL;
}

enum refl_state reflector_next(struct reflector *r,
                               enum refl_event ev,
                               int was_short,
                               uint64_t now_ns,
                               uint32_t random32)
{
    static const struct refl_edge again = {REFL_WATCHING, REFL_EXPIRED, REFL_BACKOFF,
                                           1};
    const struct refl_edge *e;

    if (r->state == REFL_WATCHING && ev == REFL_WATCH_END && was_short)
        ev = REFL_ERROR;
    e = reflector_find_edge(r->state, ev);
    if (!e)
        return r->state;
    if (e->from == REFL_WATCHING) {
        int has_expired = ev == REFL_EXPIRED && was_short;

        if (has_expired && r->has_expired)
            e = &again;
        r->has_expired = has_expired;
    }
    r->state = e->to;
    if (e->from == REFL_BACKOFF && r->need_list)
        r->state = REFL_LISTING;
    if ((ev == REFL_LISTED && !r->has_expired)
        || (e->from == REFL_WATCHING && !was_short))
        r->backoff_ns = REFL_FIRST_BACKOFF_NS; /* no failure until now */
    if (e->to == REFL_BACKOFF)
        back_off(r, e->need_list, now_ns, random32);
    if (ev != REFL_LISTED && e->to != REFL_BACKOFF)
        r->n_restarts++;
    return r->state;
}
