/* SPDX-License-Identifier: Apache-2.0 */
/* A short command whose output is wanted: a discovery script, a question to Python. */
#ifndef RUNTIME_LAUNCH_CAPTURE_H
#define RUNTIME_LAUNCH_CAPTURE_H

#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/signals.h"

struct capture {
    struct signals *signals;
    struct guard *guard;     /* kills what the command started when we are killed */
    const char *path, *name; /* of the program; in sentences */
    char *const *argv, *const *env;
    uint64_t timeout_ms;
    int signal; /* set when a signal asked us to stop meanwhile */
};

/* Its standard output in out (whose bound is the command's), its standard error is
 * ours. -EINVAL with a sentence when it fails, writes too much, takes too long or
 * somebody stops us. Nothing that it started is left in any case. */
int capture_run(struct capture *c, struct strbuf *out, struct err *err);

#endif
