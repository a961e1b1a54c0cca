/* SPDX-License-Identifier: Apache-2.0 */
/* How `horovodrun --status` reaches a running horovodrun: a listener on the loopback
 * address, and the file STATUS_FILE in the scratch folder, which has the port and the
 * job's name. The token is in the folder, too. One thread. */
#ifndef RUNTIME_LAUNCH_LIVE_DOOR_H
#define RUNTIME_LAUNCH_LIVE_DOOR_H

#include "runtime/contract/contract.h"
#include "runtime/launch/live_lead.h"

#define STATUS_FILE   "status" /* "PORT PID JOB_ID\n" */
#define LIVE_DOOR_FDS (1 + READERS_MAX)

struct live_door {
    int listen_fd;
    struct acceptor acceptor;
    const struct token *token; /* borrowed */
    const char *job_id;        /* borrowed */
    struct live_lead *lead;    /* borrowed */
    bool is_open;
};

/* Opens it. dir has the token (scratch_write, live_door_write_token). A failure is logged:
 * the job runs without. */
void live_door_open(struct live_door *d,
                    const char *dir,
                    const struct token *token,
                    const char *job_id,
                    struct live_lead *lead);
/* For a horovodrun without ranks in its own folder. A failure is logged, too. */
void live_door_write_token(const char *dir, const struct token *token);
void live_door_close(struct live_door *d); /* accepts a zeroed one */
/* Fills LIVE_DOOR_FDS entries. */
void live_door_fds(const struct live_door *d, struct pollfd *fds);
/* Admits readers and serves the lead; after each poll. */
void live_door_serve(struct live_door *d);
uint64_t live_door_next_ns(const struct live_door *d);

#endif
