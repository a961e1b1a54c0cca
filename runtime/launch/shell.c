/* SPDX-License-Identifier: Apache-2.0 */
/* The server side of hvd-agent rsh, like sshd for `ssh HOST COMMAND`: runs COMMAND
 * with /bin/sh -c, transfers its streams over one connection and returns its exit
 * code. Unlike with sshd the command has the environment and the folder of this
 * process, which are those of the pod.
 *
 *   RUN -> [client's name resolves?] -> sh -c -> OUTPUT.. -> exited, pipes end -> END
 *   connection lost, or SIGTERM to us -> SIGTERM to the command's process group
 *     -> 5 s -> SIGKILL to all remaining descendants -> 5 s -> exit
 *
 * Nothing blocks: input and output are limited by credit. This process adopts
 * orphans of the command (subreaper), so that after a lost connection processes that
 * left the command's group are killed too: MPI's daemons give each rank its own
 * group, and a rank that survives keeps its GPU. After a normal end remaining
 * processes are left running, as with sshd; process 1 of the pod reaps them. One
 * thread. Called by serve.c. */
#include "runtime/launch/shell.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"
#include "runtime/launch/core/shell.h"
#include "runtime/launch/spawn.h"

#define FIRST_WORDS_NS (60 * NS_PER_S)
#define NAME_NS        (60 * NS_PER_S) /* for the client's host name to resolve */
#define NAME_LOOK_NS   (NS_PER_S / 5)
#define GRACE_NS       (5 * NS_PER_S)

struct shell {
    struct signals *signals;
    struct channel up;
    bool is_up;
    struct shell_run run;
    bool has_run;         /* RUN was received */
    uint64_t name_due_ns; /* then start even if the client's name does not resolve */
    pid_t pid;            /* also its process group; 0: not started */
    bool has_ended;       /* it was reaped or cannot be started */
    int code;
    int in_fd, out_fd[2];
    struct strbuf input; /* queued for in_fd */
    bool is_input_over;
    int64_t credit;
    uint32_t n_written; /* input whose credit was not yet given back */
    bool is_ending, is_killed, is_reported;
    uint64_t deadline_ns; /* for RUN; then for each step of the end */
};

static void shell_send_number(struct shell *s, enum shell_type type, uint32_t number)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    strbuf_init(&b, 4);
    bytes_put_u32(&b, number);
    if (s->is_up && strbuf_status(&b) == 0) /* the next poll detects a lost peer */
        (void)channel_send(&s->up, (uint8_t)type, strbuf_str(&b), b.n, clock_now_ns());
}

static void shell_send_output(struct shell *s, uint32_t stream, const char *p, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    strbuf_init(&b, SHELL_MAX_BYTES);
    bytes_put_u32(&b, stream);
    strbuf_add(&b, p, n);
    if (s->is_up && strbuf_status(&b) == 0)
        (void)channel_send(&s->up, SHELL_OUTPUT, strbuf_str(&b), b.n, clock_now_ns());
    s->credit -= (int64_t)n;
}

/* --- the end --- */

/* The parent of a process; 0: the process does not exist. */
static long process_parent(const char *pid)
{
    char path[300], text[512];
    const char *after;
    (void)snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    CLEANUP(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    after = strrchr(text, ')'); /* the name before it may contain any character */
    return after && strlen(after) > 4 ? strtol(after + 4, NULL, 10) : 0;
}

/* Kills all children, including adopted ones. */
static void shell_kill_children(void)
{
    struct dirent *e;
    DIR *d = opendir("/proc");
    while (d && (e = readdir(d)))
        if (e->d_name[0] > '0' && e->d_name[0] <= '9'
            && process_parent(e->d_name) == (long)getpid())
            (void)kill((pid_t)strtol(e->d_name, NULL, 10), SIGKILL);
    if (d)
        (void)closedir(d);
}

static void shell_kill_all(struct shell *s)
{
    if (s->pid && !s->has_ended)
        (void)kill(-s->pid, SIGKILL);
    shell_kill_children();
}

static void shell_begin_end(struct shell *s)
{
    if (s->is_ending)
        return;
    s->is_ending = true;
    s->deadline_ns = clock_now_ns() + GRACE_NS;
    if (s->pid) /* the group may have exited */
        (void)kill(-s->pid, SIGTERM);
}

static void shell_lose_client(struct shell *s)
{
    s->is_up = false;
    channel_release(&s->up);
    for (int k = 0; k < 2; k++)
        fd_close(&s->out_fd[k]);
    fd_close(&s->in_fd);
    if (!s->is_reported)
        shell_begin_end(s);
}

/* --- the command --- */

static bool name_resolves(const char *name)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    if (getaddrinfo(name, NULL, &hints, &list) != 0)
        return false;
    freeaddrinfo(list);
    return true;
}

static void shell_fail(struct shell *s, const char *why)
{
    char text[600];
    int n = snprintf(text, sizeof(text), "hvd-agent: %s\n", why);
    shell_send_output(s, 1, text, strnlen(text, n > 0 ? sizeof(text) : 0));
    s->has_ended = true;
    s->code = 127;
}

static void shell_end_unstarted(struct shell *s, int sig)
{
    s->has_ended = true;
    s->code = 128 + sig;
}

static void shell_start(struct shell *s)
{
    char shell[] = "/bin/sh", flag[] = "-c";
    char *argv[] = {shell, flag, s->run.command, NULL};
    struct child child;
    struct err err = ERR_INIT;
    struct spawn spawn = {.path = shell,
                          .argv = argv,
                          .envp = environ,
                          .keeps_stdin = s->run.has_input,
                          .signals = s->signals};
    int in[2] = {-1, -1}, null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || (s->run.has_input && pipe2(in, O_CLOEXEC) < 0)) {
        shell_fail(s, "no descriptor is left (see ulimit -n)");
    } else {
        if (in[0] >= 0) /* the child inherits our standard input */
            (void)dup2(in[0], 0);
        if (spawn_child(&spawn, &child, &err) < 0) {
            fd_close(&in[1]);
            shell_fail(s, err.text);
        } else {
            s->pid = child.pid;
            s->out_fd[0] = child.stdout_fd;
            s->out_fd[1] = child.stderr_fd;
            s->in_fd = in[1];
        }
        (void)dup2(null, 0);
    }
    for (int k = 0; k < 2; k++)
        (void)fd_nonblock(s->out_fd[k], true); /* cannot fail for a pipe */
    (void)fd_nonblock(s->in_fd, true);
    fd_close(&in[0]);
    fd_close(&null);
    s->deadline_ns = UINT64_MAX;
}

/* Starts the command. If it contains the client's host name, it waits until that name
 * resolves: a pod's name appears in DNS some seconds after its start, and MPICH's proxy
 * connects to its mpiexec by name, once. */
static void shell_start_when_due(struct shell *s)
{
    if (!s->has_run || s->pid || s->has_ended || s->is_ending)
        return;
    if (shell_is_named(s->run.command, s->run.from) && clock_now_ns() < s->name_due_ns
        && !name_resolves(s->run.from))
        return;
    shell_start(s);
}

/* --- frames --- */

static int shell_take_run(struct shell *s, const struct frame *f, struct err *err)
{
    if (s->has_run)
        return err_set(err, -EPROTO, "a second command on one connection");
    int rc = shell_run_read(f->p, f->n, &s->run, err);
    if (rc < 0)
        return rc;
    s->has_run = true;
    s->deadline_ns = UINT64_MAX;
    s->name_due_ns = clock_now_ns() + NAME_NS;
    return 0;
}

static int shell_take_input(struct shell *s, const struct frame *f, struct err *err)
{
    if (s->input.n + f->n > SHELL_CREDIT_BYTES || s->is_input_over)
        return err_set(err, -EPROTO, "more input than its credit allows");
    strbuf_add(&s->input, f->p, f->n);
    return strbuf_status(&s->input) < 0 ? err_set(err, -ENOMEM, "out of memory") : 0;
}

static int shell_take_frame(struct shell *s, const struct frame *f, struct err *err)
{
    uint32_t number = 0;
    int rc = f->type == SHELL_SIGNAL || f->type == SHELL_CREDIT
                 ? shell_number_read(f->p, f->n, &number, err)
                 : 0;
    if (rc < 0)
        return rc;
    switch ((enum shell_type)f->type) {
    case SHELL_RUN:
        return shell_take_run(s, f, err);
    case SHELL_INPUT:
        return shell_take_input(s, f, err);
    case SHELL_CLOSE:
        s->is_input_over = true;
        return 0;
    case SHELL_SIGNAL:
        if (!signals_is_stop((int)number) && number != SIGUSR1 && number != SIGUSR2)
            return err_set(err, -EPROTO, "signal %u cannot be forwarded", number);
        if (s->pid && !s->has_ended)
            (void)kill(-s->pid, (int)number);
        else if (!s->pid)
            shell_end_unstarted(s, (int)number);
        return 0;
    case SHELL_CREDIT:
        if (s->credit < (int64_t)1 << 40)
            s->credit += number;
        return 0;
    case SHELL_PING:
        return 0;
    case SHELL_OUTPUT:
    case SHELL_END:
        break;
    }
    return err_set(err, -EPROTO, "message %u is not for an agent", f->type);
}

static void shell_serve_up(struct shell *s)
{
    struct err err = ERR_INIT;
    struct frame f;
    uint64_t next, now_ns = clock_now_ns();
    int rc;
    channel_serve(&s->up);
    while ((rc = channel_next(&s->up, now_ns, &f, &err)) > 0) {
        rc = shell_take_frame(s, &f, &err);
        if (rc < 0)
            break;
    }
    if (rc < 0)
        log_warn("connection of a command closed", "cause=\"%s\"", err.text);
    if (rc < 0 || s->up.lost
        || channel_tick(&s->up, SHELL_PING, SHELL_PEER_NS, now_ns, &next) < 0)
        shell_lose_client(s);
}

/* --- streams --- */

static void shell_give_credit(struct shell *s, size_t n)
{
    s->n_written += (uint32_t)n;
    if (s->n_written < SHELL_CREDIT_STEP_BYTES)
        return;
    shell_send_number(s, SHELL_CREDIT, s->n_written);
    s->n_written = 0;
}

static void shell_write_input(struct shell *s)
{
    while (s->in_fd >= 0 && s->input.n) {
        ssize_t n = write(s->in_fd, s->input.p, s->input.n);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno != EINTR)
            fd_close(&s->in_fd); /* the command has closed its standard input */
        if (n <= 0)
            continue;
        memmove(s->input.p, s->input.p + n, s->input.n - (size_t)n);
        s->input.n -= (size_t)n;
        shell_give_credit(s, (size_t)n);
    }
    if (s->in_fd < 0 && s->input.n && s->pid) { /* there is no reader: drop it */
        shell_give_credit(s, s->input.n);
        strbuf_clear(&s->input);
    }
    if (s->is_input_over && !s->input.n)
        fd_close(&s->in_fd);
}

static bool shell_is_held(const struct shell *s)
{
    return s->credit <= 0;
}

static void shell_read_output(struct shell *s, int k)
{
    char buf[SHELL_CHUNK_BYTES];
    while (s->out_fd[k] >= 0 && !shell_is_held(s)) {
        size_t most =
            s->credit < (int64_t)sizeof(buf) ? (size_t)s->credit : sizeof(buf);
        ssize_t n = read(s->out_fd[k], buf, most);
        if (n > 0)
            shell_send_output(s, (uint32_t)k, buf, (size_t)n);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            fd_close(&s->out_fd[k]);
        else if (errno == EAGAIN)
            return;
    }
}

/* --- the loop --- */

/* True if there are no children, including adopted ones. */
static bool shell_reap(struct shell *s)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == s->pid && (WIFEXITED(status) || WIFSIGNALED(status))) {
            s->has_ended = true;
            s->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    return pid < 0 && errno == ECHILD;
}

static void shell_take_signals(struct shell *s)
{
    int sig;
    while ((sig = signals_next(s->signals)) > 0)
        if (signals_is_stop(sig)) { /* hvd-agent serve is ending */
            shell_begin_end(s);
            if (!s->pid)
                shell_end_unstarted(s, sig);
        }
}

static void shell_report_end(struct shell *s)
{
    if (!s->has_ended || s->is_reported || !s->is_up || s->out_fd[0] >= 0
        || s->out_fd[1] >= 0)
        return;
    shell_send_number(s, SHELL_END, (uint32_t)s->code);
    s->is_reported = true; /* now the other end closes, after it has read everything */
    s->deadline_ns = clock_now_ns() + GRACE_NS;
}

static bool shell_is_over(struct shell *s)
{
    bool is_alone = shell_reap(s);
    shell_report_end(s);
    bool is_late = clock_now_ns() >= s->deadline_ns;
    if (s->is_reported || !s->has_run)
        return !s->is_up || is_late;
    if (!s->is_ending)
        return false;
    if (!s->is_up && (is_alone || !s->pid))
        return true;
    if (is_late && s->is_killed)
        return true;
    if (is_late) {
        s->is_killed = true;
        s->deadline_ns = clock_now_ns() + GRACE_NS;
    }
    if (s->is_killed) /* repeated: children of a killed process become ours */
        shell_kill_all(s);
    return false;
}

static uint64_t shell_next_due(const struct shell *s)
{
    uint64_t due = s->deadline_ns, now_ns = clock_now_ns();
    if (s->is_up && s->up.sent_ns + SHELL_PEER_NS / 6 < due)
        due = s->up.sent_ns + SHELL_PEER_NS / 6;
    if (s->has_run && !s->pid && !s->has_ended && now_ns + NAME_LOOK_NS < due)
        due = now_ns + NAME_LOOK_NS;
    return due;
}

static void shell_serve_once(struct shell *s)
{
    struct pollfd p[6] = {
        {.fd = s->signals->fd, .events = POLLIN},
        {.fd = s->input.n ? s->in_fd : -1, .events = POLLOUT},
        {.fd = shell_is_held(s) ? -1 : s->out_fd[0], .events = POLLIN},
        {.fd = shell_is_held(s) ? -1 : s->out_fd[1], .events = POLLIN}};
    nfds_t n = 4;
    if (s->is_up) {
        channel_pollfds(&s->up, p + n);
        n += 2;
    }
    (void)poll(p, n, clock_left_ms(shell_next_due(s)));
    shell_take_signals(s);
    if (s->is_up)
        shell_serve_up(s);
    shell_start_when_due(s);
    shell_write_input(s);
    for (int k = 0; k < 2; k++)
        shell_read_output(s, k);
}

int shell_serve(struct signals *signals, struct channel *up)
{
    struct shell s = {.signals = signals,
                      .up = *up,
                      .is_up = true,
                      .in_fd = -1,
                      .out_fd = {-1, -1},
                      .credit = SHELL_CREDIT_BYTES,
                      .deadline_ns = clock_now_ns() + FIRST_WORDS_NS};
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    strbuf_init(&s.input, SHELL_CREDIT_BYTES);
    log_set_tag("hvd-agent", "shell");
    while (!shell_is_over(&s))
        shell_serve_once(&s);
    if (s.is_up)
        channel_release(&s.up);
    for (int k = 0; k < 2; k++)
        fd_close(&s.out_fd[k]);
    fd_close(&s.in_fd);
    strbuf_release(&s.input);
    mem_free(s.run.command);
    return 0;
}
