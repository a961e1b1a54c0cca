/* SPDX-License-Identifier: Apache-2.0 */
/* The script runs like a rank: in a process group of its own that the guard knows, with
 * our signals served meanwhile, so that neither Ctrl-C nor a script that hangs leaves
 * anything behind. It ends when sh has ended, whoever else still holds its pipe. Called
 * by horovodrun.c. */
#include "runtime/launch/discovery.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/contract/failure.h"
#include "runtime/launch/spawn.h"

#define OUTPUT_MAX_BYTES (4u << 20)

struct run {
    struct child child;
    struct strbuf out;
    int status;
    bool has_ended;
};

/* Reads what is there; closes at the end of the pipe. */
static void take_output(struct run *r)
{
    char buf[4096];
    ssize_t n;
    while (r->child.stdout_fd >= 0
           && (n = read(r->child.stdout_fd, buf, sizeof(buf))) != -1) {
        if (n == 0)
            fd_close(&r->child.stdout_fd);
        strbuf_add(&r->out, buf, (size_t)n);
    }
    while (r->child.stderr_fd >= 0
           && (n = read(r->child.stderr_fd, buf, sizeof(buf))) != -1) {
        if (n == 0)
            fd_close(&r->child.stderr_fd);
        (void)fd_write_full(2, buf, (size_t)n, clock_now_ns() + NS_PER_S);
    }
}

static void take_signals(struct discovery *d, struct run *r)
{
    int sig, status;
    pid_t pid;
    while ((sig = signals_next(d->signals)) > 0)
        if (signals_is_stop(sig))
            d->signal = sig;
    while ((pid = signals_reap(&status)) > 0) {
        if (pid == d->guard->pid)
            d->guard->pid = 0;
        if (pid == r->child.pid) {
            r->status = status;
            r->has_ended = true;
        }
    }
}

static int
wait_for(struct discovery *d, const char *command, struct run *r, struct err *err)
{
    uint64_t deadline_ns = clock_now_ns() + d->timeout_ms * 1000000;
    while (!r->has_ended) {
        struct pollfd p[3] = {{.fd = d->signals->fd, .events = POLLIN},
                              {.fd = r->child.stdout_fd, .events = POLLIN},
                              {.fd = r->child.stderr_fd, .events = POLLIN}};
        (void)poll(p, 3, clock_left_ms(deadline_ns));
        take_signals(d, r);
        take_output(r);
        if (d->signal)
            return err_set(err, -EINVAL, "stopped by %s", signal_name(d->signal));
        if (r->has_ended)
            break;
        if (strbuf_status(&r->out) < 0)
            return err_set(err, -EINVAL, "%s writes more than %u bytes", command,
                           OUTPUT_MAX_BYTES);
        if (clock_now_ns() >= deadline_ns)
            return err_set(err, -EINVAL,
                           "%s has not ended after %g s (--start-timeout)", command,
                           (double)d->timeout_ms / 1000);
    }
    if (WIFSIGNALED(r->status))
        return err_set(err, -EINVAL, "%s was killed by %s", command,
                       signal_name(WTERMSIG(r->status)));
    if (WEXITSTATUS(r->status))
        return err_set(err, -EINVAL, "%s exited with code %d", command,
                       WEXITSTATUS(r->status));
    return 0;
}

/* "host" alone: neither "host:2", "[::1]:2" nor "host slots=2". */
static bool has_no_slots(const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    const char *last = memrchr(line, ':', len);
    if (memchr(line, '=', len))
        return false;
    return !colon || (colon != last && line[len - 1] == ']')
           || (colon != last && !memchr(line, ']', len));
}

static int parse(const struct discovery *d,
                 const char *command,
                 const struct strbuf *out,
                 struct hostlist *ret,
                 struct err *err)
{
    struct strbuf text;
    strbuf_init(&text, 2 * OUTPUT_MAX_BYTES);
    for (const char *p = strbuf_str(out); *p;) {
        size_t whole = strcspn(p, "\n"), n = whole;
        while (n && strchr(" \t\r", p[n - 1]))
            n--;
        strbuf_add(&text, p, n);
        if (n && *p != '#' && has_no_slots(p, n))
            strbuf_printf(&text, " slots=%u", d->slots);
        strbuf_putc(&text, '\n');
        p += whole + (p[whole] == '\n');
    }
    int rc = strbuf_status(&text);
    if (rc < 0)
        rc = err_set(err, rc, "out of memory for the hosts of %s", command);
    else if ((rc = hostlist_parse_hostfile(strbuf_str(&text), ret, err)) < 0)
        err_prefix(err, "%s", command);
    else if (!ret->n)
        rc = err_set(err, -EINVAL, "%s has named no host", command);
    strbuf_release(&text);
    return rc;
}

static int
start(struct discovery *d, const char *command, struct run *r, struct err *err)
{
    char shell[] = "sh", flag[] = "-c";
    AUTOFREE char *script = mem_strdup(command);
    char *argv[] = {shell, flag, script, NULL};
    struct spawn s = {
        .path = "/bin/sh", .argv = argv, .envp = d->env, .signals = d->signals};
    if (!script)
        return err_set(err, -ENOMEM, "out of memory for %s", command);
    int rc = spawn_child(&s, &r->child, err);
    if (rc < 0)
        return rc;
    guard_add(d->guard, r->child.pid);
    (void)fd_nonblock(r->child.stdout_fd, true); /* fails for no pipe */
    (void)fd_nonblock(r->child.stderr_fd, true);
    return 0;
}

int discovery_run(struct discovery *d,
                  const char *command,
                  struct hostlist *ret,
                  struct err *err)
{
    struct run r = {.child = {.stdout_fd = -1, .stderr_fd = -1}};
    strbuf_init(&r.out, OUTPUT_MAX_BYTES);
    int rc = start(d, command, &r, err);
    if (rc == 0) {
        rc = wait_for(d, command, &r, err);
        (void)kill(-r.child.pid, SIGKILL); /* what it has left in the background */
        if (!r.has_ended)
            (void)waitpid(r.child.pid, NULL, 0);
        guard_remove(d->guard, r.child.pid);
    }
    if (rc == 0) {
        take_output(&r);
        rc = parse(d, command, &r.out, ret, err);
    }
    fd_close(&r.child.stdout_fd);
    fd_close(&r.child.stderr_fd);
    strbuf_release(&r.out);
    return rc < 0 && !d->signal ? (err_prefix(err, "--host-discovery-script"), rc) : rc;
}
