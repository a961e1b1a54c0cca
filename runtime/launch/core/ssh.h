/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of ssh, and what its complaints mean. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_SSH_H
#define RUNTIME_LAUNCH_CORE_SSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define SSH_MAX_WORDS 64
/* What the remote shell says when there is no hvd-agent. */
#define SSH_NO_AGENT  "ringmaster: no hvd-agent here"

struct ssh_how {
    char program[1024];  /* HVD_SSH: a program and its options, by blanks; "": ssh and
                            ours */
    char identity[1024]; /* -i; "": none */
    uint32_t port;       /* -p; 0: none */
    uint32_t connect_s;  /* ConnectTimeout */
};
struct ssh_command {
    char *v[SSH_MAX_WORDS]; /* NULL-terminated, into text */
    char text[8192];
};

/* Quotes s as one word of a POSIX shell. */
void ssh_quote(const char *s, struct strbuf *out);
/* How ssh is called so that agent_path, or else hvd-agent in PATH, runs on host. */
int ssh_command(const struct ssh_how *how,
                const char *host,
                const char *agent_path,
                struct ssh_command *ret,
                struct err *err);
/* One sentence, without the host's name, from what ssh wrote to standard error. */
void ssh_explain(const char *host, const char *said, char *ret, size_t size_bytes);

#endif
