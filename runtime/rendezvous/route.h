/* SPDX-License-Identifier: Apache-2.0 */
/* Which member of a large world connects where: to the server, or to another member that
 * relays for it. Pure; members are their places in the world. Used by the server's
 * thread only.
 *
 * A member has a hop from its JOIN until it leaves. Hops form a tree below the server: of
 * at most RDV_FANOUT_SERVER members at the server, at most RDV_FANOUT below each member,
 * and as flat as it can be. More members than that are at the server only when no relay
 * can serve them. */
#ifndef RUNTIME_RENDEZVOUS_ROUTE_H
#define RUNTIME_RENDEZVOUS_ROUTE_H

#include "runtime/rendezvous/rdv_wire.h"
#include "runtime/wire/door.h"

#define RDV_FANOUT_SERVER 8
/* The first rank of a host also has up to 17 connections for control and 11 for data while
 * a world forms: together 32. */
#define RDV_FANOUT        3
#define RDV_MOVES_MAX     3 /* relays that a member loses before it stays at the server */

#define ROUTE_SERVER      (UINT32_MAX - 1) /* a parent: the server */

struct rdv_hop {
    uint32_t parent;  /* RDV_NO_PLACE: it has not joined, or has left */
    uint32_t n_below; /* whose parent it is */
    uint32_t n_moves;
    uint32_t turn; /* its place in `order` */
    uint16_t port; /* 0: it does not relay */
    bool has_turn, is_closed;
    char addr[DOOR_ADDRESS_BYTES];
};
struct rdv_route {
    struct rdv_hop *v; /* NULL: a small world, all members are at the server */
    uint32_t size, n_direct;
    uint32_t round;                     /* in which the members of this tree began */
    uint32_t *order, n_order, n_filled; /* the first n_filled have no room */
    bool has_moved; /* a member has; before, the depth does not fall along `order` */
};

/* 0 or -ENOMEM. */
int route_init(struct rdv_route *r, uint32_t size);
void route_release(struct rdv_route *r);
/* A member of the world joins from this address, while the world is in `round`: the
 * member to connect to, or ROUTE_SERVER. */
uint32_t route_enter(struct rdv_route *r,
                     uint32_t place,
                     const struct rdv_join *join,
                     const char *addr,
                     uint32_t round);
/* Its connection is closed, or it is served in another way. */
void route_leave(struct rdv_route *r, uint32_t place);
/* The number of relays between it and the server. */
uint32_t route_depth(const struct rdv_route *r, uint32_t place);
/* Its parent; ROUTE_SERVER also where the tree does not know it. */
uint32_t route_parent(const struct rdv_route *r, uint32_t place);

#endif
