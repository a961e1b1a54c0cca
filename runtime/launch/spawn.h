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
    bool keeps_stdin; /* else /dev/null */
    int stdio_fd; /* not 0: its standard input and output, which it shares with us */
    const struct signals *signals;
    const struct cpuset *cpus; /* to bind it to; NULL: where we run */
    struct guard *guard;       /* knows the process group before exec; NULL: none */
};
struct child {
    pid_t pid;                /* also its process group */
    int stdout_fd, stderr_fd; /* stdout_fd -1 with stdio_fd */
};

/* The child leads a process group of its own, dies with the thread that calls this
 * (call it from the main thread) and inherits no descriptor but 0, 1 and 2. Returns 0
 * once exec has happened; else -errno of exec or fork with a sentence. */
int spawn_child(const struct spawn *s, struct child *ret, struct err *err);

#endif
