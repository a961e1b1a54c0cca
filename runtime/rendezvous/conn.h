/* SPDX-License-Identifier: Apache-2.0 */
/* One authenticated connection of the rendezvous server or of a relay. One thread.
 * Never waits: a slow peer affects its own connection only. */
#ifndef RUNTIME_RENDEZVOUS_CONN_H
#define RUNTIME_RENDEZVOUS_CONN_H

#include "runtime/rendezvous/world.h"
#include "runtime/wire/accept.h"
#include "runtime/wire/frame.h"

#define RDV_JOIN_MS 10000u /* until JOIN, and while draining */

struct rdv_out;
struct rdv_conn {
    struct rdv_conn *next;
    struct frame_conn in;
    bool is_member, is_dead;
    bool is_draining;        /* refused: input is discarded until the peer closes */
    struct rdv_world *world; /* of a member at the server */
    uint32_t place;          /* of a member, which may relay for others */
    uint64_t deadline_ns;    /* before it is a member, and while draining */
    struct rdv_out *out_first, *out_last;
    uint32_t n_out, max_out;
    uint32_t events; /* events registered with epoll */
    char addr[DOOR_ADDRESS_BYTES];
};

/* Called with each frame. May send, refuse or set is_dead. */
typedef void (*rdv_frame_fn)(void *arg, struct rdv_conn *c, const struct frame *f);

/* Takes ownership of m->fd on success. NULL: out of memory. */
struct rdv_conn *rdv_conn_new(const struct admitted *m, uint64_t now_ns);
void rdv_conn_free(struct rdv_conn *c);
/* Reads what is available; calls on_frame for each whole frame. */
void rdv_conn_read(struct rdv_conn *c, rdv_frame_fn on_frame, void *arg);
void rdv_conn_flush(struct rdv_conn *c); /* writes as much as the socket accepts */
/* Queues a frame and takes a reference to msg (NULL: no payload). Out of memory:
 * is_dead. */
void rdv_conn_send(struct rdv_conn *c, enum rdv_type type, struct rdv_msg *msg);
/* Refuses the member with this place and pass, or, RDV_NO_PLACE and 0, all that the
 * connection carries, whether they have joined or not. */
void rdv_conn_refuse(struct rdv_conn *c,
                     uint32_t place,
                     uint32_t pass,
                     enum rdv_code code,
                     const char *text);
/* The peer is a member of a world of this size: it may relay for all others. */
void rdv_conn_join(struct rdv_conn *c, uint32_t place, uint32_t size);
/* After the last frame is queued: input is discarded; closed when the peer closes or at
 * the deadline. */
void rdv_conn_drain(struct rdv_conn *c, uint64_t now_ns);
/* The EPOLL* events that it requires now. */
uint32_t rdv_conn_events(const struct rdv_conn *c);

#endif
