/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of ssh, or of srun in a Slurm job, and the meaning of error messages.
 * Pure. */
#ifndef RUNTIME_LAUNCH_CORE_SSH_H
#define RUNTIME_LAUNCH_CORE_SSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define SSH_MAX_WORDS 64
/* Printed by the remote shell if there is no hvd-agent. */
#define SSH_NO_AGENT  "ringmaster: no hvd-agent here"

struct ssh_how {
    /* HVD_SSH: a program and its options, separated by blanks; "": the default */
    char program[1024];
    char identity[1024]; /* value of -i; "": none */
    uint32_t port;       /* value of -p; 0: none */
    uint32_t connect_s;  /* ConnectTimeout */
    char slurm_job[32]; /* not "": srun in place of ssh, for a node of this Slurm job */
};
struct ssh_command {
    char *v[SSH_MAX_WORDS]; /* NULL-terminated, points into text */
    char text[8192];
};

/* Quotes s as one word of a POSIX shell. */
void ssh_quote(const char *s, struct strbuf *out);
/* Builds the ssh command line that runs agent_path, or else hvd-agent in PATH, on
 * host. */
int ssh_command(const struct ssh_how *how,
                const char *host,
                const char *agent_path,
                struct ssh_command *ret,
                struct err *err);
/* One error message, without the host's name, from the standard error of ssh or srun. */
void ssh_explain(const struct ssh_how *how,
                 const char *host,
                 const char *said,
                 char *ret,
                 size_t size_bytes);

#endif
