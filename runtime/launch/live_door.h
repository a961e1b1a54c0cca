/* SPDX-License-Identifier: Apache-2.0 */
/* How a running horovodrun is asked for its live report. One thread.
 *
 *   horovodrun --status   a listener on the loopback address, and the file STATUS_FILE in
 *                         the scratch folder, which has the port and the job's name. The
 *                         job's token is in the folder, too.
 *   the operator          a listener on all addresses, at HVD_STATUS_PORT, for readers
 *                         that have the shared token (--token-file). */
#ifndef RUNTIME_LAUNCH_LIVE_DOOR_H
#define RUNTIME_LAUNCH_LIVE_DOOR_H

#include "runtime/contract/contract.h"
#include "runtime/launch/live_lead.h"

#define STATUS_FILE   "status" /* "PORT PID JOB_ID\n" */
#define LIVE_DOOR_FDS (LIVE_ENTRIES + READERS_MAX)

enum live_entry_kind { LIVE_LOCAL, LIVE_NETWORK };
#define LIVE_ENTRIES 2
struct live_entry {
    bool is_open;
    int listen_fd;
    struct acceptor acceptor;
    const struct token *token; /* borrowed */
};
struct live_door {
    struct live_entry entry[LIVE_ENTRIES]; /* by enum live_entry_kind */
    const char *job_id;                    /* borrowed */
    struct live_lead *lead;                /* borrowed */
};

/* Opens it. dir has the token (scratch_write, live_door_write_token). A failure is logged:
 * the job runs without. */
void live_door_open(struct live_door *d,
                    const char *dir,
                    const struct token *token,
                    const char *job_id,
                    struct live_lead *lead);
/* After live_door_open, for readers with that token from other hosts. A failure is
 * logged. */
void live_door_open_network(struct live_door *d,
                            uint16_t port,
                            const struct token *root);
/* For a horovodrun without ranks in its own folder. A failure is logged, too. */
void live_door_write_token(const char *dir, const struct token *token);
void live_door_close(struct live_door *d); /* accepts a zeroed one */
/* Fills LIVE_DOOR_FDS entries. */
void live_door_fds(const struct live_door *d, struct pollfd *fds);
/* Admits readers and serves the lead; after each poll. */
void live_door_serve(struct live_door *d);
uint64_t live_door_next_ns(const struct live_door *d);

#endif
