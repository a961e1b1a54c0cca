/* SPDX-License-Identifier: Apache-2.0 */
/* One process listens. Each authenticated connection gets a child that is the agent
 * of one job (remote_agent.c) or runs one command of a remote shell (shell.c). The
 * children have nothing in common but the user.
 *
 *   strangers -> handshake (wire/accept.h) -> fork -+-> remote_agent_run()
 *                                                   '-> shell_serve()
 *
 * A client without the token costs no process. The token file is read again for each
 * complete message of a handshake, so that a new token needs no restart: a client is
 * admitted by the token that the file has at that moment. A child stops its ranks when
 * its connection or this process ends (pdeathsig SIGTERM). As process 1 of a pod this
 * process also reaps orphans. It ends after a signal, or when horovodrun has retired the
 * pod (remote_leave.c), with an exit code other than 0: a pod that was deleted has not
 * succeeded. Called by agent_main.c. */
#include "runtime/launch/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/failure.h"
#include "runtime/launch/channel.h"
#include "runtime/launch/core/shell.h"
#include "runtime/launch/core/words.h"
#include "runtime/launch/remote_agent.h"
#include "runtime/launch/gpu_info.h"
#include "runtime/launch/serve_env.h"
#include "runtime/launch/session.h"
#include "runtime/launch/shell.h"
#include "runtime/launch/signals.h"
#include "runtime/wire/accept.h"

#define MAX_JOBS 256
#define END_NS   (20 * NS_PER_S)

struct serve_state {
    struct serve_env env;
    const char *token_file, *bind;
    uint32_t port;
    struct signals signals;
    int listen_fd;
    struct acceptor acceptor;
    struct token token; /* while serve_strangers runs */
    pid_t jobs[MAX_JOBS];
    size_t n_jobs;
    bool is_ending;
    int code; /* is_ending: the exit code */
    uint64_t end_ns;
};

static int serve_refuse_usage(const char *what)
{
    fprintf(stderr, "hvd-agent: serve: %s (see hvd-agent --help)\n", what);
    return 2;
}

/* 0, or 2 after an error message. */
static int serve_read_words(struct serve_state *s, char *const *argv)
{
    static const char *const names[] = {"--token-file", "--port", "--bind"};
    const char *values[ARRAY_LEN(names)] = {s->token_file, NULL, s->bind};
    struct err err = ERR_INIT;
    ssize_t i = words_take(argv, names, values, ARRAY_LEN(names), &err);
    if (i >= 0 && argv[i])
        (void)err_set(&err, -EINVAL, "unknown option %s", argv[i]);
    else if (i >= 0 && values[1])
        (void)parse_u32("--port", values[1], 0, 65535, &s->port, &err);
    if (err.code)
        return serve_refuse_usage(err.text);
    s->token_file = values[0];
    s->bind = values[2];
    if (!s->token_file
        && (getenv("HVD_TOKEN_FILE") || access(s->env.token_file, F_OK) == 0))
        s->token_file = s->env.token_file;
    if (!s->token_file)
        return serve_refuse_usage(
            "--token-file is missing: a file from hvd-agent token that all hosts have");
    return 0;
}

/* The child. Closes all descriptors of the parent but the connection. */
static void
serve_child_main(struct serve_state *s, const struct admitted *m, pid_t parent)
{
    struct remote_peer up = {
        .root = s->token, .leave_s = s->env.leave_s, .retire_log = s->env.retire_log};
    bool is_shell = m->role == ROLE_SHELL;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    if (getppid() != parent)
        _exit(125);
    fd_close(&s->listen_fd);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null > 0)
        (void)dup2(null, 0); /* rank 0 must not read our standard input */
    fd_close(&null);
    acceptor_close(&s->acceptor);
    channel_init(&up.channel, m->fd, &m->session,
                 is_shell ? SHELL_MAX_BYTES : ERRAND_TO_AGENT_MAX_BYTES,
                 clock_now_ns());
    channel_seal(&up.channel);
    _exit(is_shell ? shell_serve(&s->signals, &up.channel)
                   : remote_agent_run(&s->signals, &up));
}

static void serve_start_job(struct serve_state *s, const struct admitted *m)
{
    pid_t parent = getpid();
    if (s->n_jobs == MAX_JOBS) {
        log_warn("job refused, too many are running", "address=%s jobs=%d", m->address,
                 MAX_JOBS);
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        serve_child_main(s, m, parent);
    if (pid < 0) {
        log_warn("job refused", "address=%s cause=\"%s\"", m->address, strerror(errno));
        return;
    }
    s->jobs[s->n_jobs++] = pid;
    log_info(m->role == ROLE_SHELL ? "command accepted" : "job accepted",
             "address=%s pid=%d", m->address, (int)pid);
}

static void serve_admit(void *arg, const struct admitted *m)
{
    int fd = m->fd;
    serve_start_job(arg, m);
    fd_close(&fd);
}

static int serve_read_token(void *arg, struct err *err)
{
    struct serve_state *s = arg;
    return token_read_file(s->token_file, &s->token, err);
}

static void serve_strangers(struct serve_state *s)
{
    struct auth_id id = {.token = &s->token, .job_id = SERVE_JOB_ID};
    acceptor_serve(&s->acceptor, &id, serve_admit, s);
    token_wipe(&s->token);
}

/* The first reason to end counts. */
static void serve_begin_end(struct serve_state *s, int code)
{
    for (size_t i = 0; i < s->n_jobs; i++)
        (void)kill(s->jobs[i], SIGTERM); /* it may have exited */
    if (!s->is_ending) {
        s->end_ns = clock_now_ns() + s->env.leave_s * NS_PER_S + END_NS;
        s->code = code;
    }
    s->is_ending = true;
    acceptor_close(&s->acceptor);
    fd_close(&s->listen_fd);
}

static void serve_reap(struct serve_state *s)
{
    int status;
    pid_t pid;
    while ((pid = signals_reap(&status)) > 0)
        for (size_t i = 0; i < s->n_jobs; i++)
            if (s->jobs[i] == pid) {
                s->jobs[i] = s->jobs[--s->n_jobs];
                log_info("process of a job or command exited", "pid=%d", (int)pid);
                if (WIFEXITED(status) && WEXITSTATUS(status) == FAILURE_RETIRED)
                    serve_begin_end(s, FAILURE_RETIRED);
                break;
            }
}

static void serve_take_signals(struct serve_state *s)
{
    int sig;
    while ((sig = signals_next(&s->signals)) > 0) {
        if (sig == SIGCHLD)
            serve_reap(s);
        if (signals_is_stop(sig))
            serve_begin_end(s, 128 + sig);
    }
}

static void serve_poll_once(struct serve_state *s)
{
    struct door *door = s->acceptor.door;
    uint64_t due = s->is_ending ? s->end_ns : door_next_ns(door);
    struct pollfd p[] = {{.fd = s->signals.fd, .events = POLLIN},
                         {.fd = s->is_ending ? -1 : door_fd(door), .events = POLLIN}};
    if (poll(p, ARRAY_LEN(p), clock_left_ms(due)) < 0)
        return;
    if (!s->is_ending)
        serve_strangers(s);
    serve_take_signals(s);
}

static int serve_open_all(struct serve_state *s, struct err *err)
{
    static const struct accept_kind kind = {.name = "serve",
                                            .mine = ROLE_AGENT_SERVE,
                                            .theirs = ROLE_REMOTE_LAUNCHER,
                                            .or_theirs = ROLE_SHELL,
                                            .refresh = serve_read_token};
    uint16_t port;
    int rc = serve_read_token(s, err); /* report errors now, not at the first job */
    token_wipe(&s->token);
    if (rc < 0 || (rc = signals_init(&s->signals, err)) < 0)
        return rc;
    gpu_info_log(&s->signals, environ);
    rc = tcp_listen(s->bind, (uint16_t)s->port, &s->listen_fd, &port, err);
    if (rc == 0)
        rc = acceptor_open(&s->acceptor, &kind, err);
    if (rc == 0)
        rc = door_listen(s->acceptor.door, s->listen_fd, false, err);
    if (rc == 0)
        log_info("serving", "address=%s port=%u version=%s", s->bind, port,
                 HVD_VERSION_STRING);
    return rc;
}

int agent_serve(char *const *argv)
{
    AUTOFREE struct serve_state *s = mem_zalloc(sizeof(*s));
    struct err err = ERR_INIT;
    if (!s)
        return 125;
    if (serve_env_read(&s->env, &err) < 0)
        return serve_refuse_usage(err.text);
    s->bind = "::";
    s->port = s->env.port;
    s->listen_fd = s->signals.fd = -1;
    int code = serve_read_words(s, argv);
    if (code)
        return code;
    log_set_tag("hvd-agent", "serve");
    log_set_level(LOG_INFO);
    if (serve_open_all(s, &err) < 0) {
        fprintf(stderr, "hvd-agent: serve: %s\n", err.text);
        code = 125;
    }
    while (!code && !(s->is_ending && (!s->n_jobs || clock_now_ns() >= s->end_ns)))
        serve_poll_once(s);
    acceptor_close(&s->acceptor);
    fd_close(&s->listen_fd);
    signals_release(&s->signals);
    return code ? code : s->code;
}
