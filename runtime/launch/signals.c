/* SPDX-License-Identifier: Apache-2.0 */
/* One signalfd instead of handlers: the loop reads signals in order and between two
 * steps. As PID 1 of a pod, signals without a handler are dropped by the kernel, but
 * blocked ones are not, so this works there too. Signals that nohup or a script's "&"
 * had ignored are neither blocked nor forwarded: the kernel continues to drop them,
 * also for the ranks, which inherit this. Called by local_ranks.c, agent.c, horovodrun.c and
 * the other main loops. */
#include "runtime/launch/signals.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

static const int taken[] = {SIGCHLD, SIGTERM, SIGINT,  SIGHUP,
                            SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};

/* A blocked signal is queued for a signalfd even if it is ignored, so an ignored one
 * must not be blocked. SIGTERM is never left ignored: a job must be stoppable. */
static bool signal_stays_ignored(int sig)
{
    struct sigaction a;
    return (sig == SIGHUP || sig == SIGINT || sig == SIGQUIT || sig == SIGTSTP)
           && sigaction(sig, NULL, &a) == 0 && !(a.sa_flags & SA_SIGINFO)
           && a.sa_handler == SIG_IGN;
}

int signals_init(struct signals *s, struct err *err)
{
    sigset_t set;
    memset(s, 0, sizeof(*s));
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(taken); i++)
        if (!signal_stays_ignored(taken[i]))
            sigaddset(&set, taken[i]);
    (void)signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would lose exit codes */
    (void)signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, &s->before) < 0)
        return err_errno(err, errno, "cannot block signals");
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0)
        return err_errno(err, errno, "signalfd");
    return 0;
}

void signals_release(struct signals *s)
{
    fd_close(&s->fd);
}

int signals_next(struct signals *s)
{
    struct signalfd_siginfo info;
    ssize_t n = read(s->fd, &info, sizeof(info));
    return n == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

bool signals_is_stop(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGQUIT;
}

int signals_pending_stop(void)
{
    sigset_t set;
    if (sigpending(&set) < 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(taken); i++)
        if (signals_is_stop(taken[i]) && sigismember(&set, taken[i]) == 1)
            return taken[i];
    return 0;
}

void signals_suspend(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    (void)raise(SIGTSTP); /* blocked: pending until the next line */
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
}

void signals_restore(const struct signals *s)
{
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &s->before, NULL);
}

pid_t signals_reap(int *ret_status)
{
    pid_t pid;
    do
        pid = waitpid(-1, ret_status, WNOHANG);
    while (pid < 0 && errno == EINTR);
    return pid > 0 ? pid : 0;
}
