/* SPDX-License-Identifier: Apache-2.0 */
/* A small process that survives the launcher's SIGKILL and cleans up. */
#ifndef RUNTIME_LAUNCH_GUARD_H
#define RUNTIME_LAUNCH_GUARD_H

#include <sys/types.h>

#include "runtime/base/err.h"
#include "runtime/launch/scratch.h"

struct guard {
    pid_t pid; /* 0: none */
    int fd;    /* our end of its pipe */
};

/* Call before any thread exists. scratch is removed by the guard when the launcher
 * dies; if it is shared memory (scratch_share), it may be created after this call. */
int guard_start(struct guard *g, const struct scratch_folder *scratch, struct err *err);
void guard_add(struct guard *g, pid_t group); /* also in a forked child, before exec */
void guard_remove(struct guard *g, pid_t group);
/* Ends the guard and waits for it. Groups that were not removed are killed. Accepts a
 * zeroed struct. */
void guard_stop(struct guard *g);

#endif
