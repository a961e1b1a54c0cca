/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of the rendezvous server or of a relay: accepts, reads, writes and
 * frees them. What frames mean is the owner's. One thread. */
#ifndef RUNTIME_RENDEZVOUS_HUB_H
#define RUNTIME_RENDEZVOUS_HUB_H

#include "runtime/rendezvous/conn.h"

/* Connections that are not yet, or no longer, a member's. */
#define RDV_PASSING_MAX 8

struct rdv_hub {
    int epoll_fd;
    struct acceptor acceptor;
    const struct auth_id *id;
    struct rdv_conn *first;
    size_t n_passing; /* as of the begin of the turn, and those that came in it */
    rdv_frame_fn on_frame;
    /* A member's connection has ended and is freed afterwards. */
    void (*on_gone)(void *arg, struct rdv_conn *c);
    void *arg;
};

/* The caller has set id, on_frame, on_gone and arg, and keeps listen_fd open. After a
 * failure rdv_hub_close is called as well. */
int rdv_hub_open(struct rdv_hub *h, int listen_fd, struct err *err);
/* One more descriptor, which only ends the wait of a turn; op: EPOLL_CTL_*. 0 or
 * -errno. */
int rdv_hub_watch(struct rdv_hub *h, int op, int fd, uint32_t events);
/* Waits for events, at most until until_ns, and handles them. */
void rdv_hub_turn(struct rdv_hub *h, uint64_t until_ns);
bool rdv_hub_has_output(const struct rdv_hub *h); /* for members */
/* Frees all connections, without on_gone; the hub remains open. */
void rdv_hub_drop_all(struct rdv_hub *h);
void rdv_hub_close(struct rdv_hub *h); /* accepts a half-opened one */

#endif
