/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the ranks of one host: what hvd-agent and horovodrun have in common. One thread,
 * the main one. The caller's loop:
 *
 *     engine_start(); while (!engine_has_ended(e)) { engine_step(e, fds, n, deadline);
 *                                                    while (engine_next(e, &ev)) ...; }
 *
 * The engine starts, forwards output and signals, reaps and carries out the stop
 * sequence; it never decides that a failure ends the job: that is the caller's, by
 * engine_stop(). */
#ifndef RUNTIME_LAUNCH_ENGINE_H
#define RUNTIME_LAUNCH_ENGINE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/contract/contract.h"
#include "runtime/launch/core/job.h"
#include "runtime/launch/core/options.h"
#include "runtime/launch/core/verdict.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/output.h"
#include "runtime/launch/placement.h"
#include "runtime/launch/signals.h"

struct engine_config {
    uint32_t n;                   /* ranks here; 0 is allowed */
    const struct contract *ranks; /* n of them; valid while the engine lives */
    uint32_t size;                /* of the world */
    char *const *argv,
        *const *env;        /* command, and the environment that we were started with */
    const char *path;       /* from command_find */
    const char *dir;        /* of the installed runtime, "": none */
    const char *output_dir; /* NULL: none */
    bool with_timestamp;
    int out_fd, err_fd;
    uint64_t signal_grace_ns;      /* see struct launch_job */
    const char *stats_dir;         /* HVD_STATS_DIR of the ranks; NULL: as it is */
    const struct option_var *vars; /* of the ranks' environment: n_vars */
    size_t n_vars;
    const struct placement *placement; /* by index of ranks; NULL: none */
    struct output_forward forward;     /* of the ranks' output; put NULL: none */
};
/* HOROVOD_START_TIMEOUT of the ranks unless the user sets it. The runtime's own default
 * of 30 s is for ranks without a launcher; ours sees a rank die and tells the others,
 * so that they can wait for one that imports its framework from a cold disk. */
#define ENGINE_START_TIMEOUT_S "600"

enum engine_event_kind {
    ENGINE_RANK_OK,     /* a rank exited with 0 */
    ENGINE_RANK_FAILED, /* report is filled in */
    ENGINE_SIGNAL, /* the launcher got its first stop signal and has forwarded it */
};
struct engine_event {
    enum engine_event_kind kind;
    uint32_t index; /* of the rank in config.ranks */
    int signal;
    bool is_expected; /* RANK_FAILED after a forwarded signal or during a stop */
    struct report report;
};

struct engine;
/* signals and guard are borrowed; guard may be zeroed. */
int engine_new(const struct engine_config *c,
               struct signals *signals,
               struct guard *guard,
               struct engine **ret,
               struct err *err);
void engine_free(struct engine *e); /* kills what still runs; accepts NULL */
/* Starts all ranks. On failure nothing runs; *ret_code is 126, 127 or 125. */
int engine_start(struct engine *e, int *ret_code, struct err *err);
/* Waits for anything to happen, at most until the deadline; polls fds (revents are set)
 * too. */
#define ENGINE_CALLER_FDS 80
void engine_step(struct engine *e, struct pollfd *fds, nfds_t n, uint64_t deadline_ns);
/* ret->report is large: keep one struct for the loop. */
bool engine_next(struct engine *e, struct engine_event *ret);
/* As if the launcher had got the signal: a stop signal is forwarded, a second one
 * kills; SIGUSR1 and SIGUSR2 are forwarded. */
void engine_signal(struct engine *e, int sig);
void engine_stop(struct engine *e); /* SIGTERM, 5 s, SIGKILL; idempotent */
bool engine_has_ended(const struct engine *e);
uint32_t engine_running(const struct engine *e);
int engine_forwarded_signal(
    const struct engine *e); /* the first forwarded signal, 0: none */
/* The first stop signal, also one that came during a stop; 0: none. */
int engine_received_signal(const struct engine *e);
/* The name of a signal-free, allocation-free environment lookup: the PATH ranks will
 * have. */
int engine_search_path(const struct engine_config *c, char *ret, size_t size_bytes);

#endif
