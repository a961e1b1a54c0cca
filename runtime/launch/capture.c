/* SPDX-License-Identifier: Apache-2.0 */
/* The command runs like a rank, in its own process group that the guard knows.
 * Signals are served meanwhile, so that neither Ctrl-C nor a command that hangs
 * leaves processes behind. The call returns when the command itself has exited, even
 * if other processes still hold its pipe. Called by discovery.c, check_build.c,
 * gpu_info.c and step_srun.c; its parts by discovery_watch.c. */
#include "runtime/launch/capture.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/contract/failure.h"

struct run {
    struct child child;
    struct strbuf *out;
    int status;
    bool has_ended;
};

void capture_take_output(struct child *child, struct strbuf *out, uint64_t limit_ns)
{
    char buf[4096];
    ssize_t n;
    while (child->stdout_fd >= 0
           && (n = read(child->stdout_fd, buf, sizeof(buf))) != -1) {
        if (n == 0)
            fd_close(&child->stdout_fd);
        strbuf_add(out, buf, (size_t)n);
    }
    while (child->stderr_fd >= 0
           && (n = read(child->stderr_fd, buf, sizeof(buf))) != -1) {
        if (n == 0)
            fd_close(&child->stderr_fd);
        (void)fd_write_full(2, buf, (size_t)n, clock_now_ns() + limit_ns);
    }
}

int capture_check_status(const char *name, int status, struct err *err)
{
    if (WIFSIGNALED(status))
        return err_set(err, -EINVAL, "%s was killed by %s", name,
                       signal_name(WTERMSIG(status)));
    if (WEXITSTATUS(status))
        return err_set(err, -EINVAL, "%s exited with code %d", name,
                       WEXITSTATUS(status));
    return 0;
}

static void capture_take_signals(struct capture *c, struct run *r)
{
    int sig, status;
    pid_t pid;
    while ((sig = signals_next(c->signals)) > 0)
        if (signals_is_stop(sig))
            c->signal = sig;
    while ((pid = signals_reap(&status)) > 0) {
        if (pid == c->guard->pid)
            c->guard->pid = 0;
        if (c->on_end && pid != r->child.pid)
            c->on_end(c->on_end_arg, pid);
        if (pid == r->child.pid) {
            r->status = status;
            r->has_ended = true;
        }
    }
}

static int capture_wait(struct capture *c, struct run *r, struct err *err)
{
    uint64_t deadline_ns = clock_now_ns() + c->timeout_ms * 1000000;
    while (!r->has_ended) {
        struct pollfd p[3] = {{.fd = c->signals->fd, .events = POLLIN},
                              {.fd = r->child.stdout_fd, .events = POLLIN},
                              {.fd = r->child.stderr_fd, .events = POLLIN}};
        (void)poll(p, 3, clock_left_ms(deadline_ns));
        capture_take_signals(c, r);
        capture_take_output(&r->child, r->out, NS_PER_S);
        if (c->signal)
            return err_set(err, -EINVAL, "stopped by %s", signal_name(c->signal));
        if (r->has_ended)
            break;
        if (strbuf_status(r->out) < 0)
            return err_set(err, -EINVAL, "%s writes more than %zu bytes", c->name,
                           r->out->max);
        if (clock_now_ns() >= deadline_ns)
            return err_set(err, -EINVAL, "%s did not exit within %g s%s%s%s", c->name,
                           (double)c->timeout_ms / 1000, c->option ? " (" : "",
                           c->option ? c->option : "", c->option ? ")" : "");
    }
    return capture_check_status(c->name, r->status, err);
}

int capture_run(struct capture *c, struct strbuf *out, struct err *err)
{
    struct run r = {.out = out};
    struct spawn s = {.path = c->path,
                      .argv = c->argv,
                      .envp = c->env,
                      .signals = c->signals,
                      .guard = c->guard};
    int rc = spawn_child(&s, &r.child, err);
    if (rc < 0)
        return rc;
    (void)fd_nonblock(r.child.stdout_fd, true); /* cannot fail for a pipe */
    (void)fd_nonblock(r.child.stderr_fd, true);
    rc = capture_wait(c, &r, err);
    (void)kill(-r.child.pid, SIGKILL); /* background processes */
    if (!r.has_ended)
        (void)waitpid(r.child.pid, NULL, 0);
    guard_remove(c->guard, r.child.pid);
    capture_take_output(&r.child, out, NS_PER_S);
    fd_close(&r.child.stdout_fd);
    fd_close(&r.child.stderr_fd);
    return rc;
}
