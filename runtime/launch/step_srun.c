/* SPDX-License-Identifier: Apache-2.0 */
/* srun leads a process group of its own: Ctrl-C ends this program, which then closes
 * srun's input, upon which the processes on the nodes end. Called by step_status.c and
 * slurm_check.c. */
#include "runtime/launch/step_srun.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/contract/slurm_step.h"
#include "runtime/launch/capture.h"
#include "runtime/launch/command.h"

#define END_NS  (3 * NS_PER_S)
#define TERM_NS (2 * NS_PER_S)

int slurm_commands_init(struct slurm_commands *s, struct err *err)
{
    size_t n = 0;
    int rc = signals_init(&s->signals, err);
    ssize_t length;

    if (rc < 0)
        return rc;
    while (environ[n])
        n++;
    s->env = mem_calloc(n + 1, sizeof(*s->env));
    if (!s->env)
        return err_set(err, -ENOMEM, "out of memory");
    n = 0;
    for (char **v = environ; *v; v++)
        if (!slurm_step_owns(*v))
            s->env[n++] = *v;
    length = readlink("/proc/self/exe", s->self, sizeof(s->self) - 1);
    if (length <= 0)
        return err_errno(err, errno, "the path of this program");
    s->self[length] = '\0';
    return 0;
}

void slurm_commands_release(struct slurm_commands *s)
{
    mem_free(s->env);
    signals_release(&s->signals);
}

/* A child of this process has ended. */
static void slurm_on_end(void *arg, pid_t pid)
{
    struct slurm_commands *s = arg;

    for (struct slurm_srun *r = s->sruns; r; r = r->next)
        if (r->child.pid == pid)
            r->child.pid = 0;
}

static int slurm_find(const char *name, char *ret_path, struct err *err)
{
    if (command_find(name, getenv("PATH"), ret_path, NULL) == 0)
        return 0;
    return err_set(err, -ENOENT, "%s is not on PATH: is Slurm installed here?", name);
}

int slurm_commands_run(struct slurm_commands *s,
                       char *const *argv,
                       uint64_t timeout_ms,
                       struct strbuf *out,
                       struct err *err)
{
    char path[PATH_MAX];
    struct guard no_guard = {.pid = 0};
    struct capture c = {.signals = &s->signals,
                        .guard = &no_guard,
                        .path = path,
                        .name = argv[0],
                        .argv = argv,
                        .env = s->env,
                        .timeout_ms = timeout_ms,
                        .on_end = slurm_on_end,
                        .on_end_arg = s};
    int rc = slurm_find(argv[0], path, err);

    rc = rc < 0 ? rc : capture_run(&c, out, err);
    if (c.signal)
        s->stop = c.signal;
    return rc;
}

int slurm_srun_start(struct slurm_commands *s,
                     char *const *argv,
                     struct slurm_srun *ret,
                     struct err *err)
{
    char path[PATH_MAX];
    struct spawn spawn = {
        .path = path, .argv = argv, .envp = s->env, .signals = &s->signals};
    int pair[2], rc = slurm_find(argv[0], path, err);

    if (rc < 0)
        return rc;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_errno(err, errno, "a socket for srun");
    spawn.stdio_fd = pair[1];
    rc = spawn_child(&spawn, &ret->child, err);
    fd_close(&pair[1]);
    if (rc < 0) {
        fd_close(&pair[0]);
        return rc;
    }
    ret->fd = pair[0];
    ret->next = s->sruns;
    s->sruns = ret;
    (void)fd_nonblock(ret->fd, true);
    (void)fd_nonblock(ret->child.stderr_fd, true);
    return 0;
}

int slurm_commands_take_signals(struct slurm_commands *s)
{
    int sig, status, stop = s->stop;
    pid_t pid;

    s->stop = 0;
    while ((sig = signals_next(&s->signals)) > 0)
        if (signals_is_stop(sig))
            stop = sig;
    while ((pid = signals_reap(&status)) > 0)
        slurm_on_end(s, pid);
    return stop;
}

void slurm_srun_take_messages(struct slurm_srun *r)
{
    char text[4096];
    ssize_t n;

    while (r->child.stderr_fd >= 0
           && (n = read(r->child.stderr_fd, text, sizeof(text))) != -1) {
        for (ssize_t i = 0; i < n; i++)
            if (((unsigned char)text[i] < 0x20 && text[i] != '\n' && text[i] != '\t')
                || text[i] == 0x7f)
                text[i] = '?';
        if (n == 0)
            fd_close(&r->child.stderr_fd);
        else
            (void)fd_write_full(2, text, (size_t)n, clock_now_ns() + NS_PER_S);
    }
}

/* True: it has ended. */
static bool
slurm_srun_wait(struct slurm_srun *r, struct slurm_commands *s, uint64_t limit_ns)
{
    uint64_t deadline_ns = clock_now_ns() + limit_ns;
    char rest[4096];

    (void)slurm_commands_take_signals(s);
    while (r->child.pid > 0 && clock_now_ns() < deadline_ns) {
        struct pollfd p[2] = {{.fd = s->signals.fd, .events = POLLIN},
                              {.fd = r->fd, .events = POLLIN}};

        (void)poll(p, 2, clock_left_ms(deadline_ns));
        if (p[1].revents && read(r->fd, rest, sizeof(rest)) == 0)
            fd_close(&r->fd);
        (void)slurm_commands_take_signals(s);
    }
    return r->child.pid == 0;
}

void slurm_srun_end(struct slurm_srun *r, struct slurm_commands *s)
{
    if (r->fd >= 0)
        (void)shutdown(r->fd, SHUT_WR);
    if (r->child.pid > 0 && !slurm_srun_wait(r, s, END_NS)) {
        (void)kill(-r->child.pid, SIGTERM);
        if (!slurm_srun_wait(r, s, TERM_NS)) {
            (void)kill(-r->child.pid, SIGKILL);
            (void)waitpid(r->child.pid, NULL, 0);
        }
    }
    for (struct slurm_srun **p = &s->sruns; *p; p = &(*p)->next)
        if (*p == r) {
            *p = r->next;
            break;
        }
    slurm_srun_take_messages(r);
    fd_close(&r->fd);
    fd_close(&r->child.stderr_fd);
}
