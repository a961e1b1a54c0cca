/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `hvd-agent run` share. One thread. */
#ifndef RUNTIME_LAUNCH_AGENT_STATE_H
#define RUNTIME_LAUNCH_AGENT_STATE_H

#include <limits.h>

#include "runtime/contract/agent_env.h"
#include "runtime/launch/agent.h"
#include "runtime/launch/channel.h"
#include "runtime/launch/core/message.h"
#include "runtime/launch/engine.h"
#include "runtime/launch/hub.h"
#include "runtime/launch/metrics.h"
#include "runtime/launch/scratch.h"
#include "runtime/launch/world_file.h"

enum outcome {
    GOING,
    STARTED,  /* the table is here */
    FINISHED, /* the job has ended well */
    FAILED,   /* first says why */
    HUB_GONE,
    REFORMED, /* env is of another world, in which to say HELLO */
    LEFT      /* which has no place for this worker */
};

struct agent {
    struct agent_env env; /* generation, num_workers and np are the present world's */
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
    struct world_file world_file;
    uint32_t sent_generation; /* the newest that the hub has heard of from us */
    struct channel channel;
    bool is_connected, is_done_sent, has_reported;
    bool is_leaving, is_leaving_sent; /* a signal has told us to end */
    bool has_gone_early;              /* and nobody was to lose by it */
    bool has_run;                     /* in an earlier world */
    bool is_own; /* first is this worker's own failure, which the hub has not told us */
    struct table table;
    struct contract *ranks;
    uint32_t n;
    struct engine *engine; /* NULL: no ranks */
    struct engine_event ev;
    struct report first; /* the failure that this agent ends with */
};

/* --- agent_hub.c: what is said between this agent and the hub --- */
/* A failure that is no rank's. Returns FAILED, so that callers can pass it on. */
enum outcome agent_fail(struct agent *a, int code, const char *why);
enum outcome agent_fail_signal(struct agent *a, int sig, const char *when);
void agent_send_report(struct agent *a, const struct report *r);
void agent_send_done(struct agent *a);
void agent_send_leaving(struct agent *a); /* once, where the job can be scaled */
/* Takes the world of the file, where that is newer: before the hub has heard of us. */
void agent_adopt_file(struct agent *a);
bool agent_has_place(const struct agent *a); /* in the present world */
/* Tells the hub of a newer world in the file; *ret_next_ns: when to call again, if that
 * is sooner. */
void agent_watch_file(struct agent *a, uint64_t *ret_next_ns);
/* Serves the channel; the first outcome that is not GOING. */
enum outcome agent_serve_hub(struct agent *a);
/* Heartbeat; HUB_GONE after a silence. */
enum outcome agent_tick_hub(struct agent *a, uint64_t *ret_next_ns);
enum outcome agent_reach_hub(struct agent *a);
/* HELLO, again where the connection is lost or the world changes, until STARTED,
 * FINISHED, FAILED or LEFT. */
enum outcome agent_join(struct agent *a);
/* Told to stop while no ranks run, or unable to run them: the others must hear it.
 * Waits until the hub has closed or said STOP. FAILED or LEFT. Who is told to stop
 * before its first world has begun is no failure of the job: the others go on to wait
 * for whoever takes its place. */
enum outcome agent_leave_job(struct agent *a);

#endif
