/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by remote_agent.c and remote_tree.c. One thread. */
#ifndef RUNTIME_LAUNCH_REMOTE_AGENT_STATE_H
#define RUNTIME_LAUNCH_REMOTE_AGENT_STATE_H

#include "runtime/launch/local_ranks.h"
#include "runtime/launch/environment.h"
#include "runtime/launch/links.h"
#include "runtime/launch/remote_agent.h"
#include "runtime/launch/scratch.h"

struct remote_agent {
    struct signals *signals;
    struct guard guard;
    struct scratch_folder scratch;
    struct channel up;
    bool is_up; /* the channel is open */
    struct token root;
    char own[HOST_NAME_MAX_BYTES], theirs[HOST_NAME_MAX_BYTES];
    struct errand e;
    bool has_job;
    uint32_t host, end;
    struct strbuf blob; /* the encoded JOB, for other agents */
    struct environment env;
    struct local_ranks_config config;
    char path[PATH_MAX], dir[PATH_MAX];
    struct option_var *vars;
    struct placement placement;
    struct contract *ranks;
    uint32_t n;
    struct local_ranks *local;
    struct local_ranks_event ev;
    struct link_set links; /* agents that this one has started */
    int gpu_fd;            /* source of the line about GPUs; -1: none */
    struct strbuf gpu_line;
    int64_t credit;
    uint64_t deadline_ns; /* for JOB; later for our exit */
    bool is_ending, is_done_sent, is_reported;
};

/* Starts connecting to the agents of this agent's share of hosts, if it has one. */
int remote_tree_start(struct remote_agent *a, struct err *err);

#endif
