/* SPDX-License-Identifier: Apache-2.0 */
/* Called by elastic_job.c. */
#include "runtime/launch/discovery_watch.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/capture.h"
#include "runtime/launch/discovery.h"

#define PERIOD_NS NS_PER_S /* as Horovod */

void discovery_watch_begin(struct discovery_watch *w,
                           const struct discovery_watch_config *c,
                           uint64_t now_ns)
{
    *w = (struct discovery_watch){.c = *c, .child = {.stdout_fd = -1, .stderr_fd = -1}};
    w->due_ns = c->command ? now_ns + PERIOD_NS : UINT64_MAX;
    strbuf_init(&w->out, DISCOVERY_MAX_BYTES);
}

/* Ends a run. */
static void watch_stop(struct discovery_watch *w)
{
    if (w->child.pid > 0) {
        (void)kill(-w->child.pid, SIGKILL); /* background processes, too */
        guard_remove(w->c.guard, w->child.pid);
    }
    w->child.pid = 0;
    fd_close(&w->child.stdout_fd);
    fd_close(&w->child.stderr_fd);
}

void discovery_watch_end(struct discovery_watch *w)
{
    const pid_t pid = w->child.pid;

    watch_stop(w);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    strbuf_release(&w->out);
}

static int watch_start(struct discovery_watch *w, uint64_t now_ns, struct err *err)
{
    char shell[] = "sh", flag[] = "-c";
    AUTOFREE char *script = mem_strdup(w->c.command);
    char *argv[] = {shell, flag, script, NULL};
    const struct spawn s = {.path = "/bin/sh",
                            .argv = argv,
                            .envp = w->c.env,
                            .signals = w->c.signals,
                            .guard = w->c.guard};
    int rc = script ? spawn_child(&s, &w->child, err)
                    : err_set(err, -ENOMEM, "out of memory for %s", w->c.command);

    if (rc < 0) {
        w->child = (struct child){.stdout_fd = -1, .stderr_fd = -1};
        w->due_ns = now_ns + PERIOD_NS;
        return err_recode(err, -EINVAL);
    }
    (void)fd_nonblock(w->child.stdout_fd, true); /* cannot fail for a pipe */
    (void)fd_nonblock(w->child.stderr_fd, true);
    strbuf_release(&w->out);
    strbuf_init(&w->out, DISCOVERY_MAX_BYTES);
    w->due_ns = now_ns + w->c.timeout_ns;
    return 0;
}

void discovery_watch_fds(const struct discovery_watch *w, struct pollfd *fds)
{
    fds[0] = (struct pollfd){.fd = w->child.stdout_fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = w->child.stderr_fd, .events = POLLIN};
}

uint64_t discovery_watch_next_ns(const struct discovery_watch *w)
{
    return w->due_ns;
}

/* The script has exited. */
static int
watch_take(struct discovery_watch *w, int status, struct hostlist *ret, struct err *err)
{
    int rc = capture_check_status(w->c.command, status, err);

    if (rc < 0)
        return rc;
    return discovery_parse(w->c.slots, w->c.command, &w->out, ret, err) < 0 ? -EINVAL
                                                                            : 1;
}

int discovery_watch_serve(struct discovery_watch *w,
                          uint64_t now_ns,
                          struct hostlist *ret,
                          struct err *err)
{
    int status, rc;

    if (!w->c.command || (w->child.pid == 0 && now_ns < w->due_ns))
        return 0;
    if (w->child.pid == 0)
        return watch_start(w, now_ns, err);
    capture_take_output(&w->child, &w->out, 0);
    if (waitpid(w->child.pid, &status, WNOHANG) == w->child.pid) {
        capture_take_output(&w->child, &w->out, 0);
        watch_stop(w);
        w->due_ns = now_ns + PERIOD_NS;
        return watch_take(w, status, ret, err);
    }
    if (now_ns < w->due_ns && strbuf_status(&w->out) == 0)
        return 0;
    rc = strbuf_status(&w->out) < 0
             ? err_set(err, -EINVAL, "%s writes more than %u bytes", w->c.command,
                       DISCOVERY_MAX_BYTES)
             : err_set(err, -EINVAL, "%s did not exit within %g s", w->c.command,
                       (double)w->c.timeout_ns / 1e9);
    (void)kill(-w->child.pid, SIGKILL);
    (void)waitpid(w->child.pid, NULL, 0);
    watch_stop(w);
    w->due_ns = now_ns + PERIOD_NS;
    return rc;
}
