/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by remote_agent.c and remote_keep.c. No other file includes it. */
#ifndef RUNTIME_LAUNCH_REMOTE_AGENT_STATE_H
#define RUNTIME_LAUNCH_REMOTE_AGENT_STATE_H

#include "runtime/launch/crew.h"
#include "runtime/launch/environment.h"
#include "runtime/launch/live_host.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/remote_tree.h"
#include "runtime/launch/scratch.h"
#include "runtime/launch/uplink.h"

struct remote_agent {
    struct signals *signals;
    struct guard guard;
    struct scratch_folder scratch;
    struct uplink up;
    struct remote_tree tree;
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
    struct errand_start start;
    struct tf_world tf;
    uint32_t n;
    struct local_ranks *local;
    struct member_crew *crew; /* of an elastic job: local is its */
    int keep_fd; /* where the agent of a later horovodrun connects; -1: nowhere */
    uint32_t n_leaders; /* before the present one */
    struct live_host live;
    struct local_ranks_event ev;
    int gpu_fd; /* source of the line about GPUs; -1: none */
    struct strbuf gpu_line;
    int master_fd; /* holds master_port on the host of rank 0 */
    uint16_t master_port;
    uint64_t deadline_ns; /* for JOB; later for our exit */
    bool is_ending, is_done_sent, is_reported;
    pid_t parent;
    uint64_t leave_time_ns; /* after a stop signal, of an elastic job; 0: none */
    int leave_signal; /* it was received, and the processes leave; 0: they do not */
    uint64_t leave_due_ns;
    const char *retire_log; /* "": this host is not to be retired */
    bool is_retired;
};

/* --- remote_agent.c --- */
void remote_agent_begin_end(struct remote_agent *a);
void remote_agent_send_ready(struct remote_agent *a);
/* --- remote_keep.c: processes outlive their horovodrun --- */
/* JOB of another horovodrun, which leads the job from here on. */
int remote_keep_take_successor(struct remote_agent *a,
                               uint32_t host,
                               struct bytes_reader *r,
                               struct err *err);
/* After the first JOB, which is job. 0: this process has passed frames on between
 * horovodrun and the keeper of the job, until one of them closed. -ECONNREFUSED: there is
 * none, and this one is the keeper. */
int remote_keep_join(struct remote_agent *a,
                     const struct bytes_reader *job,
                     struct err *err);
/* Takes a connection of another horovodrun, if there is one. */
void remote_keep_accept(struct remote_agent *a);
/* horovodrun is lost. False: this agent keeps nothing. */
bool remote_keep_wait(struct remote_agent *a);
/* --- remote_leave.c: this host goes --- */
/* For local_ranks.h. arg: the agent. */
bool remote_leave_begin(void *arg, int sig);
void remote_leave_serve(struct remote_agent *a);
uint64_t remote_leave_next_ns(const struct remote_agent *a);
/* RETIRE; r has the report. */
int remote_leave_retire(struct remote_agent *a,
                        const struct bytes_reader *r,
                        struct err *err);

#endif
