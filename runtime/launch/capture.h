/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a short command and captures its output: a discovery script, Python, hvd-gpu. */
#ifndef RUNTIME_LAUNCH_CAPTURE_H
#define RUNTIME_LAUNCH_CAPTURE_H

#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/signals.h"

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

#endif
