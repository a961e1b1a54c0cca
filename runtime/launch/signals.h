/* SPDX-License-Identifier: Apache-2.0 */
/* Signals as a descriptor; reaping of children. */
#ifndef RUNTIME_LAUNCH_SIGNALS_H
#define RUNTIME_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "runtime/base/err.h"

struct signals {
    int fd;
    sigset_t before; /* the mask that children get */
};

/* Blocks SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGTSTP in
 * this and all later threads and ignores SIGPIPE. Call before any thread exists.
 * SIGHUP, SIGINT, SIGQUIT and SIGTSTP stay ignored if they were ignored at the start
 * (nohup). */
int signals_init(struct signals *s, struct err *err);
void signals_release(struct signals *s);
int signals_next(struct signals *s); /* 0: none is pending */
bool signals_is_stop(int sig);       /* SIGTERM, SIGINT, SIGHUP, SIGQUIT */
int signals_pending_stop(void);      /* one that signals_next will return; 0: none */
/* Stops this process as SIGTSTP does by default. Returns after SIGCONT, or at once if
 * no shell could continue it (an orphaned process group, PID 1). */
void signals_suspend(void);
/* In the child, before exec: restores mask and dispositions. Async-signal-safe. */
void signals_restore(const struct signals *s);
/* Reaps one exited child, including orphans of PID 1. Returns its pid, or 0 if there is
 * none. */
pid_t signals_reap(int *ret_status);

#endif
