/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent await --hostfile FILE -- COMMAND
 *
 *   look up COMMAND -> connect to hvd-agent serve of each host in turn -> exec COMMAND
 *
 * Pods start in any order and may pull images for a long time, but programs that start
 * ranks on other hosts have time limits of their own. Started after all hosts can be
 * reached, they find all of them. One TCP connection per host is enough, without any
 * data: the command authenticates itself. The hosts are tried one after another, since
 * all are needed.
 *
 * The command replaces this process: same pid, descriptors and signals. Therefore there
 * is no thread and no signalfd here. A handler exits after a stop signal, because
 * process 1 ignores signals without a handler; exec removes the handler. Called by
 * agent_main.c. */
#include "runtime/launch/await.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/command.h"
#include "runtime/launch/core/words.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/serve_env.h"
#include "runtime/launch/termination.h"

#define SLICE_NS (10 * NS_PER_S) /* one progress message per slice */
#define PAUSE_NS (NS_PER_S / 5)

struct await {
    struct serve_env env;
    const char *hostfile, *message; /* options */
    char *const *command;
    char path[PATH_MAX];
    struct hostlist hosts;
    uint64_t deadline_ns;
};

static int await_refuse_usage(const char *what)
{
    fprintf(stderr, "hvd-agent: await: %s (see hvd-agent --help)\n", what);
    return 2;
}

/* 0, or 2 after an error message. */
static int await_read_words(struct await *a, char *const *argv)
{
    static const char *const names[] = {"--hostfile", "--termination-log"};
    const char *values[ARRAY_LEN(names)] = {NULL};
    struct err err = ERR_INIT;
    ssize_t i = words_take(argv, names, values, ARRAY_LEN(names), &err);
    if (i < 0)
        return await_refuse_usage(err.text);
    a->hostfile = values[0];
    a->message = values[1];
    a->command = argv + i + (argv[i] && strcmp(argv[i], "--") == 0);
    if (!a->hostfile)
        return await_refuse_usage("--hostfile is missing: the hosts to wait for");
    if (!a->command[0])
        return await_refuse_usage(
            "a command is missing: hvd-agent await --hostfile FILE -- "
            "horovodrun ...");
    return 0;
}

/* Reports a failure on stderr and to the operator. Returns code. */
static int await_fail(const struct await *a, int code, const char *why)
{
    AUTOFREE struct report *r = mem_zalloc(sizeof(*r));
    fprintf(stderr, "hvd-agent[await]: %s\n", why);
    if (!r)
        return code;
    report_init(r, "", code, clock_wall_us());
    (void)gethostname(r->f.host, sizeof(r->f.host) - 1);
    (void)snprintf(r->f.why, sizeof(r->f.why), "%.230s", why);
    termination_write(a->message ? a->message : "", r);
    return code;
}

static void await_on_stop(int sig)
{
    _exit(128 + sig);
}

/* Signals that nohup ignores stay ignored. */
static void await_handle_signals(void)
{
    static const int stops[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < ARRAY_LEN(stops); i++)
        if (signal(stops[i], await_on_stop) == SIG_IGN)
            (void)signal(stops[i], SIG_IGN);
}

/* Tries to connect to one host for one time slice. */
static int await_reach_host(const struct await *a, const char *host, struct err *err)
{
    CLEANUP(fd_close) int fd = -1;
    uint64_t slice = clock_now_ns() + SLICE_NS;
    return tcp_connect(host, a->env.port,
                       slice < a->deadline_ns ? slice : a->deadline_ns, true, &fd, err);
}

/* 0, or the exit code after an error message. */
static int await_host(const struct await *a, size_t i)
{
    const char *host = a->hosts.v[i].name;
    struct err err = ERR_INIT;
    char why[400];
    while (await_reach_host(a, host, &err) < 0) {
        if (clock_now_ns() >= a->deadline_ns) {
            (void)snprintf(why, sizeof(why),
                           "waited %u s for host %.80s (%zu of %zu), which could not "
                           "be reached: check its pod: %.90s",
                           a->env.start_timeout_s, host, i + 1, a->hosts.n, err.text);
            return await_fail(a, FAILURE_LATE, why);
        }
        log_info("waiting for hosts", "missing=%s present=%zu of=%zu cause=\"%s\"",
                 host, i, a->hosts.n, err.text);
        (void)fd_wait(-1, 0, clock_now_ns() + PAUSE_NS);
        err = (struct err)ERR_INIT;
    }
    return 0;
}

static int await_prepare(struct await *a)
{
    struct err err = ERR_INIT;
    int code = command_find(a->command[0], getenv("PATH"), a->path, &err);
    if (code)
        return await_fail(a, code, err.text);
    if (serve_env_read(&a->env, &err) < 0
        || hostfile_read(a->hostfile, &a->hosts, &err) < 0)
        return await_fail(a, 125, err.text);
    a->deadline_ns = clock_now_ns() + a->env.start_timeout_s * NS_PER_S;
    return 0;
}

static int await_run(struct await *a)
{
    struct err err = ERR_INIT;
    int code = await_prepare(a);
    for (size_t i = 0; !code && i < a->hosts.n; i++)
        code = await_host(a, i);
    if (code)
        return code;
    log_info("all hosts can be reached", "hosts=%zu command=\"%s\"", a->hosts.n,
             a->path);
    if (a->message) /* for horovodrun, which writes the first failure */
        /* on failure there is only no message */
        (void)setenv("HVD_TERMINATION_LOG", a->message, 1);
    (void)execv(a->path, a->command);
    (void)err_errno(&err, errno, "command %s cannot be executed", a->path);
    return await_fail(a, 126, err.text);
}

int agent_await(char *const *argv)
{
    struct await a = {.hostfile = NULL};
    int code = await_read_words(&a, argv);
    if (code)
        return code;
    log_set_tag("hvd-agent", "await");
    log_set_level(LOG_INFO);
    hostlist_init(&a.hosts);
    await_handle_signals();
    code = await_run(&a);
    hostlist_release(&a.hosts);
    return code;
}
