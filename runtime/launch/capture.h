/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a short command and captures its output: a discovery script, Python, hvd-gpu. */
#ifndef RUNTIME_LAUNCH_CAPTURE_H
#define RUNTIME_LAUNCH_CAPTURE_H

#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/signals.h"
#include "runtime/launch/spawn.h"

struct capture {
    struct signals *signals;
    struct guard *guard; /* kills the command's processes if this process is killed */
    const char *path, *name; /* of the program; for error messages */
    char *const *argv, *const *env;
    uint64_t timeout_ms;
    const char *option; /* that sets this time, for the error message; NULL: none */
    void (*on_end)(void *arg, pid_t pid); /* of another child; NULL: of no interest */
    void *on_end_arg;
    int signal; /* set if a stop signal was received meanwhile */
};

/* Captures standard output in out, whose bound is the limit; standard error is
 * inherited. -EINVAL if the command fails, writes too much, takes too long, or a stop
 * signal is received. No process of the command survives. */
int capture_run(struct capture *c, struct strbuf *out, struct err *err);

/* For a caller with a main loop of its own. */
/* Reads what is available in a child's pipes, which do not block, and closes a pipe at
 * its end. Standard output is appended to out. Standard error is written to ours; each
 * piece is cut if that takes more than limit_ns. */
void capture_take_output(struct child *child, struct strbuf *out, uint64_t limit_ns);
/* -EINVAL if the program was killed or its exit code is not 0. */
int capture_check_status(const char *name, int status, struct err *err);

#endif
