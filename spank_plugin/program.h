/* SPDX-License-Identifier: Apache-2.0 */
/* A program that a thread of srun starts (scontrol, squeue, hvd-status), or a task before
 * its own program (python). It leads its own process group, has only its standard output,
 * and dies with the thread. */
#ifndef SPANK_PLUGIN_PROGRAM_H
#define SPANK_PLUGIN_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

struct program {
    pid_t pid;  /* 0: none */
    int out_fd; /* non-blocking; -1: closed */
};
#define PROGRAM_INIT                                                                   \
    {                                                                                  \
        .out_fd = -1                                                                   \
    }
/* argv[0] is a path. */
int program_start(struct program *p,
                  char *const *argv,
                  char *const *env,
                  struct err *err);
/* Appends what it has written. False: it has closed its output. */
bool program_read(struct program *p, struct strbuf *out);
/* Starts it, appends what it writes until it closes its output or wait_ms are over, and
 * ends it. 0, or why it cannot start. */
int program_run(char *const *argv,
                char *const *env,
                uint32_t wait_ms,
                struct strbuf *out,
                struct err *err);
/* True: it has ended; *ret is 0 if by exit(0), otherwise not. */
bool program_has_ended(struct program *p, int *ret);
/* Ends it: SIGTERM, after wait_ms SIGKILL. Accepts one that has ended. */
void program_stop(struct program *p, uint32_t wait_ms);

/* The environment of such a program: a copy without the variables of a step and those that
 * change what squeue prints. NULL: out of memory. Free with mem_free. */
char **program_environment(char *const *env);

#endif
