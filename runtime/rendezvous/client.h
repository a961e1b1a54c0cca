/* SPDX-License-Identifier: Apache-2.0 */
/* One member, shared by client.c (its rounds) and reach.c (its connection). No other file
 * includes it. */
#ifndef RUNTIME_RENDEZVOUS_CLIENT_H
#define RUNTIME_RENDEZVOUS_CLIENT_H

#include "runtime/rendezvous/relay.h"

struct rdv_client {
    struct frame_conn conn;
    /* Set when it is created; copies. */
    char *host, *job_id;
    uint16_t port;
    struct token token;
    struct auth_id id;
    uint32_t rank, job_size;
    uint32_t *part;          /* NULL: all ranks */
    uint32_t size;           /* of the world */
    struct rdv_relay *relay; /* for those below it; NULL: none can be */
    /* Of the connection. */
    uint32_t place, pass;
    struct rdv_redirect via; /* the relay that it leads to; port 0: to the server */
    uint32_t lost;           /* the relay that was lost last, with its port */
    uint16_t lost_port;
    bool is_found;  /* the server has proved itself: its refusal is final */
    bool is_broken; /* cannot be used again */
    bool is_cut;    /* broken because its relay has gone: reach_again may help */
    char local_addr[64];
    char server[HOST_NAME_MAX_BYTES + 16]; /* "host port n" for messages */
    uint32_t round;
};

/* Connects to the server, or to the member that it names. */
int reach_open(struct rdv_client *c, uint64_t deadline_ns, struct err *err);
/* The same when the relay has gone. */
int reach_again(struct rdv_client *c, uint64_t deadline_ns, struct err *err);
/* Sets is_broken, is_cut and the error message. */
int reach_explain(struct rdv_client *c, int rc, struct err *err);
/* "rank 3 at 10.0.0.2 port 4711, by which rank 40 reaches the rendezvous,"; only of a
 * connection to a relay. */
void reach_name_relay(const struct rdv_client *c, char *ret, size_t size_bytes);

#endif
