/* SPDX-License-Identifier: Apache-2.0 */
/* Signals as a descriptor, and the reaping of children. */
#ifndef RUNTIME_LAUNCH_SIGNALS_H
#define RUNTIME_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "runtime/base/err.h"

struct signals {
    int fd;
    sigset_t before; /* the mask that children get back */
};

/* Blocks SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGTSTP in
 * this and all later threads and ignores SIGPIPE. Call before any thread is made.
 * SIGHUP, SIGINT, SIGQUIT and SIGTSTP stay ignored if they were when we were started
 * (nohup). */
int signals_init(struct signals *s, struct err *err);
void signals_release(struct signals *s);
int signals_next(struct signals *s); /* 0 when none waits */
bool signals_is_stop(int sig);       /* SIGTERM, SIGINT, SIGHUP, SIGQUIT */
/* Stops this process as SIGTSTP does by default; returns after SIGCONT, or at once
 * where no shell would continue it (an orphaned process group, PID 1). */
void signals_suspend(void);
/* In the child, before exec: mask and dispositions as they were. Async-signal-safe. */
void signals_restore(const struct signals *s);
/* Any ended child, orphans that PID 1 inherited included: its pid, or 0 when none is
 * left. */
pid_t signals_reap(int *ret_status);

#endif
