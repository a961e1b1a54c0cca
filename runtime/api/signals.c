/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that dies by a signal says so first: "rank 1 (host b, pid 7) ended by SIGSEGV".
 * Otherwise only its launcher knows, and a foreign one may not report it.
 *
 *   signal --> handler --ask_fd--> the thread "hvd-signals": goodbye, within GOODBYE_MS
 *                 |                       |
 *                 '<------done_fd---------'   then the default action, as without us
 *
 * The handler uses system calls only. What it does next depends on who sent the signal:
 *
 *   the process itself   (a fault, abort(), raise()) It waits, because the thread cannot
 *                        continue. If this thread is in the seat, there is no goodbye.
 *   another process      It returns, because this thread may be in the seat, which the
 *                        goodbye needs. The thread "hvd-signals" then raises the signal.
 *   who stops the job    (a process that this one descends from, as launchers do, the
 *                        terminal, or one of another PID namespace) The same; the
 *                        goodbye says that this rank is stopped, since all ranks get
 *                        the signal and none is the cause. A rank that receives the
 *                        goodbye before its own signal must not report a lost peer. If
 *                        another rank's failure has ended the world, SIGTERM becomes
 *                        the exit code of a consequence: for srun a signal outranks the
 *                        exit code of the rank that failed.
 *
 * Exit status and core dump are those of the default action: a handler that has waited
 * returns to the faulting instruction with the signal pending. A signal that the program
 * handles, before hvd_init or later, is the program's. A forked child has the handlers
 * until it sets its own or calls exec; in it they only take the default action.
 *
 * Called by runtime.c. The one mutable global besides the runtime is `watch`; the handler
 * reads it after signals_watch has filled it in. */
#include "runtime/api/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/api/runtime.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/contract/failure.h"
#include "runtime/contract/stacks_file.h"

/* A busy machine needs half a second for a goodbye. Without one, when the fault is in the
 * seat, the process must die within the second in which all others have to know. What the
 * handler waits longer is for the thread to begin. */
enum { GOODBYE_MS = 700, LIMIT_MS = 850 };
static const int signals[] = {SIGTERM, SIGINT, SIGSEGV, SIGBUS,
                              SIGFPE,  SIGILL, SIGABRT};

static struct {
    pid_t pid; /* 0: nothing is handled */
    int ask_fd, done_fd;
    /* the first signal, and its sender: 0: unknown; seq_cst */
    _Atomic int sig, sender;
} watch;

static void signal_take_default(int sig)
{
    const struct sigaction action = {.sa_handler = SIG_DFL};

    (void)sigaction(sig, &action, NULL);
    (void)raise(sig); /* pending until the handler returns */
}

static bool signal_is_own(const siginfo_t *info, int sig)
{
    bool may_be_fault = sig != SIGTERM && sig != SIGINT;

    return (info->si_code > 0 && may_be_fault)
           || (info->si_code <= 0 && info->si_pid == watch.pid);
}

static void signals_on(int sig, siginfo_t *info, void *context)
{
    const uint64_t one = 1, until = clock_now_ns() + LIMIT_MS * NS_PER_MS;
    struct pollfd done = {.fd = watch.done_fd, .events = POLLIN};
    bool is_ours = getpid() == watch.pid, is_own = signal_is_own(info, sig);
    int kept_errno = errno, none = 0;

    (void)context;
    if (is_ours && atomic_compare_exchange_strong(&watch.sig, &none, sig)) {
        atomic_store(&watch.sender, info->si_code <= 0 ? info->si_pid : 0);
        if (is_own)
            atomic_store(&watch.sender, watch.pid);
        (void)!write(watch.ask_fd, &one,
                     sizeof(one)); /* its counter is 0: cannot fail */
    }
    if (is_ours && is_own)
        while (poll(&done, 1, clock_left_ms(until)) < 0 && errno == EINTR)
            ;
    if (!is_ours || is_own)
        signal_take_default(sig);
    errno = kept_errno;
}

/* --- the thread --- */

/* Of a process, from /proc; 0: it cannot be read. */
static pid_t parent_of(pid_t pid)
{
    char path[32], stat[512];
    const char *p;
    FILE *f;
    size_t n;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    n = fread(stat, 1, sizeof(stat) - 1, f);
    (void)fclose(f);
    stat[n] = '\0';
    p = strrchr(stat, ')'); /* the name before it may contain anything */
    return p && strlen(p) > 4 ? (pid_t)strtol(p + 4, NULL, 10) : 0; /* ") S 123" */
}

/* Does this process descend from it, or may it? */
static bool sender_stops_job(pid_t sender)
{
    pid_t p = getppid();

    if (sender == 0)
        return true;
    if (sender == watch.pid)
        return false;
    while (p > 1 && p != sender)
        p = parent_of(p);
    return p == sender || p == 0;
}

static void goodbye_send(int sig, bool is_stop, uint64_t deadline_ns)
{
    struct leave leave = {.why = LEAVE_EXIT};
    struct world *w;

    if (runtime_get(&w, NULL) != 0)
        return;
    if (is_stop)
        (void)snprintf(leave.how, sizeof(leave.how), GOODBYE_STOPPED "%s: %s",
                       contract_is_task(&w->contract) ? "Slurm" : "its launcher",
                       signal_name(sig));
    else
        (void)snprintf(leave.how, sizeof(leave.how), "ended by %s", signal_name(sig));
    (void)coordinator_say(w->co, &leave, deadline_ns);
    runtime_put(w);
}

static void *signals_main(void *arg)
{
    uint64_t n;
    sigset_t set;
    bool is_stop;
    ssize_t got;
    pid_t sender;
    int sig;

    (void)arg;
    (void)pthread_setname_np(pthread_self(), "hvd-signals");
    (void)sigemptyset(&set);
    (void)sigaddset(&set, STACKS_SIGNAL); /* if the main thread cannot run (stacks.c) */
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    do
        got = read(watch.ask_fd, &n, sizeof(n));
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof(n))
        return NULL; /* the program has closed the descriptor */
    sig = atomic_load(&watch.sig);
    sender = atomic_load(&watch.sender);
    is_stop = sender_stops_job(sender);
    if (is_stop && sig == SIGTERM && runtime_other() == OTHER_HAS_FAILED)
        _exit(FAILURE_OTHER_RANK);
    goodbye_send(sig, is_stop, clock_now_ns() + GOODBYE_MS * NS_PER_MS);
    if (sender == watch.pid) {
        (void)!write(watch.done_fd, &n, sizeof(n)); /* the handler's thread ends us */
        return NULL;
    }
    (void)sigemptyset(&set);
    (void)sigaddset(&set, sig);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    signal_take_default(sig);
    return NULL;
}

void signals_watch(void)
{
    struct sigaction action = {.sa_sigaction = signals_on,
                               .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    struct sigaction old;
    pthread_t thread;

    if (watch.pid != 0 || getpid() == 1)
        return;
    watch.ask_fd = eventfd(0, EFD_CLOEXEC);
    watch.done_fd = eventfd(0, EFD_CLOEXEC);
    if (watch.ask_fd < 0 || watch.done_fd < 0
        || thread_start(&thread, signals_main, NULL) != 0) {
        fd_close(&watch.ask_fd);
        fd_close(&watch.done_fd);
        return;
    }
    (void)pthread_detach(thread);
    watch.pid = getpid();
    (void)sigfillset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            (void)sigaction(signals[i], &action, NULL);
}
