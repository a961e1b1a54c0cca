/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by agent.c and agent_hub.c. Used by the main thread only. */
#ifndef RUNTIME_LAUNCH_AGENT_STATE_H
#define RUNTIME_LAUNCH_AGENT_STATE_H

#include <limits.h>

#include "runtime/contract/agent_env.h"
#include "runtime/launch/agent.h"
#include "runtime/launch/channel.h"
#include "runtime/launch/core/message.h"
#include "runtime/launch/live_host.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/hub.h"
#include "runtime/launch/metrics.h"
#include "runtime/launch/scratch.h"
#include "runtime/launch/trainer.h"
#include "runtime/launch/world_file.h"

enum outcome {
    GOING,
    STARTED,  /* TABLE was received */
    FINISHED, /* all ranks of the job have exited with 0 */
    FAILED,   /* `first` is the failure */
    HUB_GONE,
    REFORMED, /* env describes a new world: send HELLO in it */
    LEFT      /* the new world has no place for this worker */
};

struct agent {
    /* generation, num_workers and np are those of the current world */
    struct agent_env env;
    struct token token;
    char host[HOST_NAME_MAX_BYTES], path[PATH_MAX], tag[32], title[48];
    char *const *argv;
    uint64_t peer_timeout_ns, start_deadline_ns;
    struct signals signals;
    struct guard guard;
    struct scratch_folder scratch;
    struct placement placement;
    struct hub *hub;
    uint32_t metrics_port; /* 0: none */
    struct agent_metrics *metrics;
    struct trainer *trainer; /* of worker 0 */
    struct option_var trainer_vars[TRAINER_VARS];
    struct world_file world_file;
    uint32_t sent_generation; /* the newest one that was sent to the hub */
    struct channel channel;
    bool is_connected, is_done_sent, has_reported;
    bool is_leaving, is_leaving_sent; /* a stop signal was received */
    bool has_gone_early;              /* left before the start, without a failure */
    bool has_run;                     /* its ranks have run in an earlier world */
    /* `first` is this worker's own failure, not one received from the hub */
    bool is_own;
    struct table table;
    struct contract *ranks;
    uint32_t n;
    struct local_ranks *local;
    struct local_ranks_event ev;
    struct live_host live; /* what the ranks do, for the hub */
    struct report first;   /* the failure that this agent exits with */
};

/* --- agent_hub.c --- */
/* Sets `first` to a failure that no rank caused. Returns FAILED, for the caller to
 * return. */
enum outcome agent_fail(struct agent *a, int code, const char *why);
enum outcome agent_fail_signal(struct agent *a, int sig, const char *when);
void agent_send_report(struct agent *a, const struct report *r);
void agent_send_done(struct agent *a);
void agent_send_leaving(struct agent *a); /* sent once, only if the job can be scaled */
/* Takes the world of the file if it is newer. Call before HELLO. */
void agent_adopt_file(struct agent *a);
bool agent_has_place(const struct agent *a); /* in the current world */
/* Sends a newer world in the file to the hub. *ret_next_ns is lowered to the time of
 * the next call. */
void agent_watch_file(struct agent *a, uint64_t *ret_next_ns);
/* Reads and writes the channel. Returns the first outcome that is not GOING. */
enum outcome agent_serve_hub(struct agent *a);
/* Sends heartbeats. HUB_GONE if the hub was silent for peer_timeout_ns. */
enum outcome agent_tick_hub(struct agent *a, uint64_t *ret_next_ns);
enum outcome agent_reach_hub(struct agent *a);
/* Sends HELLO, again if the connection is lost or the world changes, until the outcome
 * is STARTED, FINISHED, FAILED or LEFT. */
enum outcome agent_join(struct agent *a);
/* For an agent that has no ranks and cannot run any, or has received a stop signal:
 * reports that to the hub and waits until the hub closes the connection or sends STOP.
 * FAILED or LEFT. A signal before the first world has started is no failure of the job:
 * the hub waits for a replacement. */
enum outcome agent_leave_job(struct agent *a);
/* The ranks were started: what they do is sent to the hub from now on. */
void agent_begin_live(struct agent *a, const char *stats_dir);

#endif
