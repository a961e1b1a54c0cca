/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the hub. The hub's thread owns everything but the pipe
 * (hub.c). */
#ifndef RUNTIME_LAUNCH_HUB_STATE_H
#define RUNTIME_LAUNCH_HUB_STATE_H

#include <poll.h>
#include <pthread.h>

#include "runtime/launch/conn.h"
#include "runtime/launch/core/meet.h"
#include "runtime/launch/hub.h"
#include "runtime/launch/live_lead.h"
#include "runtime/rendezvous/rendezvous.h"

struct hub {
    pthread_t thread;
    struct agent_env env;
    struct token token;
    uint64_t peer_timeout_ns, progress_ns, linger_ns, absent_ns;
    int listen_fd, master_fd, wake[2]; /* master_fd holds master_port */
    struct acceptor acceptor;
    uint16_t rdv_port, master_port;
    /* for other workers; 127.0.0.1 until one has connected */
    char own_address[DOOR_ADDRESS_BYTES];
    struct rdv_server *server;
    struct meet meet;
    uint32_t n_broken; /* agents that failed before their HELLO */
    bool is_hold_logged;
    size_t n_reported; /* failures that were passed to the rendezvous */
    struct live_lead live;
    struct conn **conns;
    struct pollfd *fds;
    size_t n, max;
};

/* --- hub_send.c --- */
struct auth_id hub_id(const struct hub *h, uint32_t generation);
void hub_refuse(struct conn *c, const char *sentence);
void hub_send_world(struct hub *h, struct conn *c);
void hub_send_stop_to(struct hub *h, struct conn *c);
void hub_send_stop(struct hub *h); /* to all connected agents */
/* Asks all agents to examine their ranks; for live_lead.h. */
void hub_send_examine(void *arg, uint32_t number);
void hub_send_finish(struct hub *h); /* to all connected agents */
/* Starts a rendezvous server for the current world; sends the table to its members. */
int hub_start_rendezvous(struct hub *h, struct err *err);
int hub_send_table(struct hub *h, struct err *err);

/* --- hub_receive.c --- */
/* Handles a message, which changes h->meet. -errno: close the connection. */
int hub_take_frame(struct hub *h,
                   struct conn *c,
                   const struct frame *f,
                   struct err *err);

#endif
