/* SPDX-License-Identifier: Apache-2.0 */
/* One connection of the rendezvous server: a non-blocking handshake, then frames. Owned
 * by the server's thread. Never waits: a slow or hostile peer affects its own
 * connection only. */
#ifndef RUNTIME_RENDEZVOUS_CONN_H
#define RUNTIME_RENDEZVOUS_CONN_H

#include "runtime/wire/auth_wire.h"
#include "runtime/rendezvous/world.h"

#define RDV_HANDSHAKE_MS 10000u /* from accept to JOIN, and in DRAIN */

/* HELLO -> PROOF -> HEADER <-> BODY
 *
 * Any of them -> DRAIN (refused: input is discarded) -> closed. */
enum rdv_stage { RDV_HELLO, RDV_PROOF, RDV_HEADER, RDV_BODY, RDV_DRAIN };

struct rdv_out;
struct rdv_conn {
    struct rdv_conn *next;
    int fd;
    enum rdv_stage stage;
    bool is_member, is_dead;
    struct rdv_world *world; /* valid when is_member, as is rank, its place in it */
    uint32_t rank;
    uint64_t deadline_ns; /* before it is a member, and in DRAIN */
    uint8_t *in;
    size_t in_n, in_cap, in_need;
    uint8_t hello[AUTH_HELLO_BYTES], reply[AUTH_REPLY_BYTES];
    uint8_t header[RDV_HEADER_BYTES];
    struct auth_session session;
    struct rdv_out *out_first, *out_last;
    uint32_t n_out;
    uint32_t events; /* events registered with epoll */
    char addr[64];
};

/* Called with a whole frame of an authenticated peer. May send, refuse or set
 * is_dead. */
typedef void (*rdv_frame_fn)(void *arg,
                             struct rdv_conn *c,
                             enum rdv_type type,
                             const uint8_t *payload,
                             uint32_t n);

/* Takes ownership of fd on success. */
struct rdv_conn *rdv_conn_new(int fd, uint64_t now_ns);
void rdv_conn_free(struct rdv_conn *c);
/* Reads what is available; calls on_frame for each whole frame. */
void rdv_conn_read(struct rdv_conn *c,
                   const struct auth_id *id,
                   uint64_t now_ns,
                   rdv_frame_fn on_frame,
                   void *arg);
void rdv_conn_flush(struct rdv_conn *c); /* writes as much as the socket accepts */
/* Queues a frame and takes a reference to msg (NULL: no payload). Out of memory:
 * is_dead. */
void rdv_conn_send(struct rdv_conn *c, enum rdv_type type, struct rdv_msg *msg);
void rdv_conn_refuse(struct rdv_conn *c, enum rdv_code code, const char *text);
/* After the last frame is queued: input is discarded; closed when the peer closes or at
 * the deadline. */
void rdv_conn_drain(struct rdv_conn *c, uint64_t now_ns);
/* The EPOLL* events that it requires now. */
uint32_t rdv_conn_events(const struct rdv_conn *c);

#endif
