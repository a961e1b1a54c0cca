/* SPDX-License-Identifier: Apache-2.0 */
/* State of an elastic job, shared by elastic_job.c (the loop), elastic_agents.c (the hosts
 * and their agents), elastic_receive.c (what agents send) and elastic_live.c. No other file includes it.
 * One thread. */
#ifndef RUNTIME_LAUNCH_ELASTIC_RUN_H
#define RUNTIME_LAUNCH_ELASTIC_RUN_H

#include "runtime/launch/core/elastic_hosts.h"
#include "runtime/launch/discovery_watch.h"
#include "runtime/launch/elastic_job.h"
#include "runtime/launch/elastic_lead.h"
#include "runtime/launch/links.h"
#include "runtime/launch/live_door.h"
#include "runtime/launch/remote_hosts.h"
#include "runtime/launch/remote_output.h"

struct elastic_run {
    const struct elastic_job *c;
    struct signals *signals;
    struct token root, token;
    struct errand e;
    struct elastic_hosts hosts;
    char (*addresses)[HOST_NAME_MAX_BYTES]; /* [hosts.n] ours, as each host sees it */
    bool *is_done;                          /* [hosts.n] its agent has sent DONE */
    struct link_set links;                  /* the i-th is of host i */
    struct remote_output output;
    struct elastic_lead lead;
    struct discovery_watch discovery;
    struct live_lead live;
    struct live_door door;
    uint16_t status_port; /* HVD_STATUS_PORT; 0: only this host sees the live report */
    uint32_t live_generation; /* of the world that live has; 0: none */
    struct pollfd *fds;
    uint64_t start_ns; /* time for an agent to connect */
    uint64_t
        enough_ns; /* since then min_ranks processes wait for the first world; 0: not */
    uint64_t end_deadline_ns;
    bool is_over, has_failed;
    struct report *failure; /* has_failed: that ends the job whatever the lead says */
    int forwarded_signal;
    bool has_warned_room;
    struct err script_err; /* the last warning about the discovery script */
};

/* A failure that ends the job whatever the lead says. */
void run_fail(struct elastic_run *r, const struct report *report);

void run_send_to_all(struct elastic_run *r,
                     enum errand_type type,
                     const struct strbuf *b);

/* elastic_agents.c. The first two are callbacks of links.h. */
void run_on_open(void *arg, struct link *l);
void run_on_lost(void *arg, struct link *l);
/* Connects to the hosts that are due. */
void run_connect_due(struct elastic_run *r);
void run_apply_list(struct elastic_run *r, const struct hostlist *list);
void run_discover(struct elastic_run *r); /* takes the script's result, if any */
void run_offer_slots(struct elastic_run *r, uint32_t host);
/* The slots of a host, as remote_output.h wants them. */
struct remote_host run_slots_of(const struct elastic_run *r, uint32_t host);

/* elastic_live.c */
void run_open_live(struct elastic_run *r);
void run_close_live(struct elastic_run *r); /* accepts one that was not opened */
void run_serve_live(struct elastic_run *r); /* after each poll */

/* elastic_receive.c: a callback of links.h. */
int run_on_frame(void *arg, struct link *l, const struct frame *f, struct err *err);

#endif
