/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the ranks of one host, for hvd-agent and horovodrun. Call from the main thread
 * only. The caller's loop:
 *
 *     local_ranks_start();
 *     while (!local_ranks_has_ended(l)) {
 *         local_ranks_step(l, fds, n, deadline);
 *         while (local_ranks_next(l, &ev))
 *             ...;
 *     }
 *
 * It starts ranks, forwards output and signals, reaps and carries out the stop
 * sequence. It does not decide that a failure ends the job: the caller does, with
 * local_ranks_stop().
 *
 * In an elastic job the caller starts each process by itself, and again when it has
 * ended; the job ends by local_ranks_stop() only. */
#ifndef RUNTIME_LAUNCH_LOCAL_RANKS_H
#define RUNTIME_LAUNCH_LOCAL_RANKS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/contract/contract.h"
#include "runtime/contract/tf_world.h"
#include "runtime/launch/core/job.h"
#include "runtime/launch/core/options.h"
#include "runtime/launch/core/verdict.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/output.h"
#include "runtime/launch/placement.h"
#include "runtime/launch/signals.h"

struct local_ranks_config {
    uint32_t n;                     /* number of ranks on this host; may be 0 */
    const struct contract *ranks;   /* n; must be valid until local_ranks_free */
    uint32_t size;                  /* of the world */
    char *const *argv, *const *env; /* the command, and the environment to inherit */
    const char *path;               /* from command_find */
    const char *dir;                /* of the installed runtime, "": none */
    const char *output_dir;         /* NULL: none */
    bool with_timestamp;
    int out_fd, err_fd;
    uint64_t signal_grace_ns;      /* see core/job.h */
    const char *stats_dir;         /* HVD_STATS_DIR of the ranks; NULL: inherited */
    const struct option_var *vars; /* n_vars variables of the ranks' environment */
    size_t n_vars;
    const struct tf_world *tf;               /* for TF_CONFIG; NULL: none */
    const struct placement *placement;       /* by index of ranks; NULL: none */
    struct output_forward forward;           /* replaces our stdout; put NULL: none */
    void (*on_reaped)(void *arg, pid_t pid); /* a child of the caller; NULL: none */
    void *on_reaped_arg;
    /* a stop signal was received and is not yet forwarded; NULL: none */
    void (*on_stop)(void *arg);
    void *on_stop_arg;
    /* The same. True: it is not forwarded, the caller ends the ranks; NULL: never. */
    bool (*defer_stop)(void *arg, int sig);
    void *defer_stop_arg;
    bool is_elastic;
};
enum local_ranks_event_kind {
    LOCAL_RANK_OK,     /* a rank exited with 0 */
    LOCAL_RANK_FAILED, /* report is filled in */
    LOCAL_SIGNAL,      /* a first stop signal was received and forwarded */
};
struct local_ranks_event {
    enum local_ranks_event_kind kind;
    uint32_t index; /* of the rank in config.ranks */
    int signal;
    bool is_expected; /* a failure after a forwarded signal or a stop */
    struct report report;
};

struct local_ranks;
/* Borrows signals and guard; guard may be zeroed. */
int local_ranks_new(const struct local_ranks_config *c,
                    struct signals *signals,
                    struct guard *guard,
                    struct local_ranks **ret,
                    struct err *err);
void local_ranks_free(
    struct local_ranks *l); /* kills ranks that still run; accepts NULL */
/* Starts all ranks. On failure nothing runs; *ret_code is 126, 127 or 125. */
int local_ranks_start(struct local_ranks *l, int *ret_code, struct err *err);
/* Elastic jobs. Starts the i-th process by config.ranks[i], which the caller may have
 * changed; the last one has ended, and its event was taken. ret_code as above. */
int local_ranks_start_one(struct local_ranks *l,
                          uint32_t i,
                          int *ret_code,
                          struct err *err);
/* The output of the i-th process has the number first + i from now on. */
void local_ranks_renumber(struct local_ranks *l, uint32_t first);
/* SIGTERM, 5 s, SIGKILL; its event is then an expected one. */
void local_ranks_stop_one(struct local_ranks *l, uint32_t i);
/* Waits for an event, at most until the deadline, and handles it. fds are polled too;
 * their revents are set. */
#define LOCAL_RANKS_CALLER_FDS 80
void local_ranks_step(struct local_ranks *l,
                      struct pollfd *fds,
                      nfds_t n,
                      uint64_t deadline_ns);
/* Takes the next event; false: none. ret is large: allocate it once. */
bool local_ranks_next(struct local_ranks *l, struct local_ranks_event *ret);
/* Handles sig like a received signal: a stop signal is forwarded, a second one kills;
 * SIGUSR1 and SIGUSR2 are forwarded. */
void local_ranks_signal(struct local_ranks *l, int sig);
void local_ranks_stop(struct local_ranks *l); /* SIGTERM, 5 s, SIGKILL; idempotent */
bool local_ranks_has_ended(const struct local_ranks *l);
pid_t local_ranks_pid(const struct local_ranks *l,
                      uint32_t index); /* 0: it does not run */
uint32_t local_ranks_running(const struct local_ranks *l);
int local_ranks_forwarded_signal(
    const struct local_ranks *l); /* the first forwarded stop signal; 0: none */
/* The first stop signal, including one received during a stop; 0: none. */
int local_ranks_received_signal(const struct local_ranks *l);
/* Writes the PATH that the ranks will have to ret. 0, or -ENOMEM. */
int local_ranks_search_path(const struct local_ranks_config *c,
                            char *ret,
                            size_t size_bytes);

#endif
