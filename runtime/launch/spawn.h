/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the process of one rank. */
#ifndef RUNTIME_LAUNCH_SPAWN_H
#define RUNTIME_LAUNCH_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/launch/core/topology.h"
#include "runtime/launch/environment.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/signals.h"

struct spawn {
    const char *path; /* from command_find */
    char *const *argv;
    char *const *envp;
    bool keeps_stdin; /* otherwise /dev/null */
    int stdio_fd;     /* not 0: socket for its standard input and output */
    const struct signals *signals;
    const struct cpuset *cpus; /* to bind it to; NULL: not bound */
    struct guard *guard;       /* gets the process group before exec; NULL: none */
};
struct child {
    pid_t pid;                /* also its process group */
    int stdout_fd, stderr_fd; /* stdout_fd -1 with stdio_fd */
};

/* Starts a child that leads its own process group, dies with the calling thread (call
 * from the main thread) and inherits no descriptors but 0, 1 and 2. Returns 0 after
 * exec has succeeded, otherwise -errno of exec or fork with err. */
int spawn_child(const struct spawn *s, struct child *ret, struct err *err);

#endif
