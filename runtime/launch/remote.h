/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun on several hosts. */
#ifndef RUNTIME_LAUNCH_REMOTE_H
#define RUNTIME_LAUNCH_REMOTE_H

#include "runtime/contract/agent_env.h"
#include "runtime/contract/hostlist.h"
#include "runtime/launch/core/options.h"
#include "runtime/launch/core/verdict.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/signals.h"

#define REMOTE_DEFAULT_PORT AGENT_SERVE_PORT

struct remote_job {      /* all borrowed */
    const char *program; /* for messages */
    const char *dir;     /* a private folder of this process */
    const struct hostlist *hosts;
    uint32_t np;
    char *const *argv, *const *env;
    struct guard *guard;    /* already started */
    const char *output_dir; /* NULL: none */
    bool with_timestamp;
    const struct option_var *vars; /* n_vars variables that options set in the ranks */
    size_t n_vars;
    uint64_t start_timeout_ms; /* until all hosts must be ready */
    struct tf_roles roles;
    const char *binding; /* of --binding; NULL: none */
    const char *nics;    /* of --network-interfaces; NULL: none */
    bool is_verbose;
    bool uses_srun;    /* in place of ssh */
    const char *iface; /* of all hosts; NULL: the route to each */
    /* NULL: use ssh; otherwise hvd-agent serve runs on all hosts */
    const char *token_file;
    uint16_t agent_port;      /* 0: default */
    uint16_t ssh_port;        /* 0: ssh's own */
    const char *ssh_identity; /* NULL: ssh's own */
};
struct remote_end {
    bool has_failed;
    struct report first;  /* if has_failed */
    int forwarded_signal; /* the first stop signal that was forwarded; 0: none */
};

/* Runs the job to its end. Call before any thread exists. 0 with ret, or -errno with
 * err if nothing was started. */
int remote_run(const struct remote_job *job,
               struct signals *signals,
               struct remote_end *ret,
               struct err *err);

#endif
