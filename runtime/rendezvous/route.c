/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of route.h. A hop describes where a member was sent, not where it has arrived:
 * a member may be sent to one that is itself still on its way, and waits there in the
 * queue of the listener.
 *
 * Invariants: n_below is the number of members with this parent, n_direct that with
 * ROUTE_SERVER; following parents ends at the server or at a member that has left, never
 * in a circle. So members that wait for each other's relays never wait for themselves.
 *
 * A tree serves one formation of the world. The first member of the next formation
 * begins a new tree, although members of the old one may not have closed yet. */
#include "runtime/rendezvous/route.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/addr.h"
#include "runtime/base/mem.h"

static void route_begin(struct rdv_route *r, uint32_t round)
{
    for (uint32_t i = 0; i < r->size; i++)
        r->v[i] = (struct rdv_hop){.parent = RDV_NO_PLACE};
    r->round = round;
    r->n_direct = r->n_order = r->n_filled = 0;
    r->has_moved = false;
}

int route_init(struct rdv_route *r, uint32_t size)
{
    *r = (struct rdv_route){.size = size};
    if (size <= RDV_DIRECT_MAX)
        return 0;
    r->v = mem_calloc(size, sizeof(*r->v));
    r->order = mem_calloc(size, sizeof(*r->order));
    if (!r->v || !r->order) {
        route_release(r);
        return -ENOMEM;
    }
    route_begin(r, 0);
    return 0;
}

void route_release(struct rdv_route *r)
{
    mem_free(r->v);
    mem_free(r->order);
    *r = (struct rdv_route){0};
}

static void route_unlink(struct rdv_route *r, uint32_t place)
{
    struct rdv_hop *h = &r->v[place];

    if (h->parent == ROUTE_SERVER) {
        r->n_direct--;
    } else if (h->parent != RDV_NO_PLACE) {
        struct rdv_hop *p = &r->v[h->parent];

        p->n_below--;
        if (p->turn < r->n_filled)
            r->n_filled = p->turn;
    }
    r->has_moved = r->has_moved || h->parent != RDV_NO_PLACE;
    h->parent = RDV_NO_PLACE;
}

static bool hop_has_room(const struct rdv_hop *h)
{
    return h->port > 0 && !h->is_closed && h->n_below < RDV_FANOUT;
}

/* Whether the way from relay to the server is whole and does not pass `place`. */
static bool route_is_above(const struct rdv_route *r, uint32_t relay, uint32_t place)
{
    for (; relay < r->size; relay = r->v[relay].parent)
        if (relay == place)
            return false;
    return relay == ROUTE_SERVER;
}

/* A loopback address means the server's host, a link-local one may not be unique. */
static bool hop_can_reach(const struct rdv_hop *relay, const struct rdv_hop *member)
{
    if (strncmp(relay->addr, "fe80:", 5) == 0)
        return false;
    return !addr_is_loopback(relay->addr) || addr_is_loopback(member->addr);
}

/* The one with the fewest relays above it; of these the one that came first. */
static uint32_t route_find_relay(struct rdv_route *r, uint32_t place)
{
    uint32_t best = ROUTE_SERVER, best_depth = UINT32_MAX;

    while (r->n_filled < r->n_order && !hop_has_room(&r->v[r->order[r->n_filled]]))
        r->n_filled++;
    for (uint32_t i = r->n_filled; i < r->n_order; i++) {
        const uint32_t relay = r->order[i];

        if (!hop_has_room(&r->v[relay]) || !hop_can_reach(&r->v[relay], &r->v[place])
            || !route_is_above(r, relay, place))
            continue;
        if (!r->has_moved)
            return relay;
        const uint32_t depth = route_depth(r, relay);

        best = depth < best_depth ? relay : best;
        best_depth = depth < best_depth ? depth : best_depth;
    }
    return best;
}

/* The relay that it has lost serves no newcomer until it joins again. */
static void route_note_loss(struct rdv_route *r, const struct rdv_join *join)
{
    if (join->lost < r->size && r->v[join->lost].port == join->lost_port)
        r->v[join->lost].is_closed = true;
}

uint32_t route_enter(struct rdv_route *r,
                     uint32_t place,
                     const struct rdv_join *join,
                     const char *addr,
                     uint32_t round)
{
    const bool is_move = join->lost != RDV_NO_PLACE;

    if (!r->v)
        return ROUTE_SERVER;
    if (round > r->round && !is_move && join->round == round)
        route_begin(r, round);

    struct rdv_hop *h = &r->v[place];
    route_unlink(r, place);
    route_note_loss(r, join);
    h->n_moves = is_move ? h->n_moves + 1 : 0;
    h->port = join->port;
    h->is_closed = false;
    (void)snprintf(h->addr, sizeof(h->addr), "%s", addr); /* fits */
    if (r->n_direct < RDV_FANOUT_SERVER || h->n_moves >= RDV_MOVES_MAX
        || join->round < round)
        h->parent = ROUTE_SERVER;
    else
        h->parent = route_find_relay(r, place);
    if (h->parent == ROUTE_SERVER)
        r->n_direct++;
    else
        r->v[h->parent].n_below++;
    if (!h->has_turn) {
        h->has_turn = true;
        h->turn = r->n_order;
        r->order[r->n_order++] = place;
    }
    if (h->turn < r->n_filled)
        r->n_filled = h->turn;
    return h->parent;
}

void route_leave(struct rdv_route *r, uint32_t place)
{
    if (!r->v)
        return;
    route_unlink(r, place);
    r->v[place].is_closed = true;
}

uint32_t route_depth(const struct rdv_route *r, uint32_t place)
{
    uint32_t n = 0;

    for (uint32_t p = route_parent(r, place); p < r->size; p = route_parent(r, p))
        n++;
    return n;
}

uint32_t route_parent(const struct rdv_route *r, uint32_t place)
{
    return r->v && r->v[place].parent != RDV_NO_PLACE ? r->v[place].parent
                                                      : ROUTE_SERVER;
}
