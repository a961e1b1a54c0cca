/* SPDX-License-Identifier: Apache-2.0 */
/* fork and exec. Everything that allocates (environment, path) is prepared before fork,
 * because another thread may hold libc's locks at that moment: between fork and exec
 * the child only makes async-signal-safe calls. Through a CLOEXEC pipe the parent
 * learns whether exec succeeded and, if not, the errno. Called by local_ranks.c, capture.c,
 * link.c and shell.c. */
#include "runtime/launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

struct pipes {
    int out[2], err[2], exec[2];
};

static void pipes_close(struct pipes *p)
{
    for (int k = 0; k < 2; k++) {
        fd_close(&p->out[k]);
        fd_close(&p->err[k]);
        fd_close(&p->exec[k]);
    }
}

static int pipes_open(struct pipes *p, struct err *err)
{
    memset(p, 0xff, sizeof(*p)); /* all -1 */
    if (pipe2(p->out, O_CLOEXEC) < 0 || pipe2(p->err, O_CLOEXEC) < 0
        || pipe2(p->exec, O_CLOEXEC) < 0) {
        int saved = errno;
        pipes_close(p);
        return err_errno(err, saved,
                         "cannot create the pipes of a rank (see ulimit -n)");
    }
    return 0;
}

#define SHELL "/bin/sh"

/* /bin/sh PATH and the arguments, for a script without "#!". NULL: no memory. */
static char **spawn_make_shell_argv(const struct spawn *s)
{
    size_t n = 0;
    union { /* execve's prototype lacks const */
        const char *in;
        char *out;
    } shell = {.in = SHELL}, path = {.in = s->path};
    while (s->argv[n])
        n++;
    char **argv = mem_calloc(n + 2, sizeof(*argv));
    if (!argv)
        return NULL;
    argv[0] = shell.out;
    argv[1] = path.out;
    for (size_t i = 1; i < n; i++)
        argv[1 + i] = s->argv[i];
    return argv;
}

/* Binds the child to its CPUs. Reports -errno, which the parent can tell from execve's
 * errno. */
static void spawn_bind_cpus(const struct spawn *s, const struct pipes *p)
{
    if (!s->cpus
        || syscall(SYS_sched_setaffinity, 0, sizeof(s->cpus->w), s->cpus->w) == 0)
        return;
    int why = -errno;
    (void)!write(p->exec[1], &why, sizeof(why));
    _exit(125);
}

static void spawn_child_main(const struct spawn *s,
                             const struct pipes *p,
                             char *const *shell_argv,
                             pid_t parent)
{
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent) /* the parent died before prctl */
        _exit(125);
    /* before exec: the program's children may survive it and the launcher */
    if (s->guard)
        guard_add(s->guard, getpid());
    if (s->stdio_fd) {
        (void)dup2(s->stdio_fd, 0);
        (void)dup2(s->stdio_fd, p->out[1]);
    } else if (!s->keeps_stdin) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null >= 0)
            (void)dup2(null, 0);
    }
    if (dup2(p->out[1], 1) < 0 || dup2(p->err[1], 2) < 0)
        _exit(125);
    signals_restore(s->signals);
    spawn_bind_cpus(s, p);
    (void)execve(s->path, s->argv, s->envp);
    if (errno == ENOEXEC) /* a script without "#!": run it like execvp */
        (void)execve(SHELL, shell_argv, s->envp);
    int why = errno;
    (void)!write(p->exec[1], &why, sizeof(why));
    _exit(127);
}

int spawn_child(const struct spawn *s, struct child *ret, struct err *err)
{
    struct pipes p;
    pid_t parent = getpid();
    AUTOFREE char **shell_argv = spawn_make_shell_argv(s);
    if (!shell_argv)
        return err_set(err, -ENOMEM, "out of memory for the arguments of %s", s->path);
    int rc = pipes_open(&p, err);
    if (rc < 0)
        return rc;
    pid_t pid = fork();
    if (pid == 0)
        spawn_child_main(s, &p, shell_argv, parent);
    if (pid < 0) {
        int saved = errno;
        pipes_close(&p);
        return err_errno(err, saved,
                         "cannot start a process (see ulimit -u, pids.max)");
    }
    (void)setpgid(pid, pid); /* in both processes, because either may be first */
    fd_close(&p.exec[1]);
    int why = 0;
    if (fd_read_full(p.exec[0], &why, sizeof(why), clock_now_ns() + 60 * NS_PER_S)
        == 0) {
        (void)waitpid(pid, NULL, 0); /* it is exiting */
        pipes_close(&p);
        if (s->guard)
            guard_remove(s->guard, pid);
        if (why < 0)
            return err_errno(err, -why, "a rank cannot be bound to its CPUs");
        if (why == ENOENT)
            return err_set(
                err, -why,
                "command %s: its interpreter (the first line after #!, or the ELF "
                "loader) does not exist",
                s->path);
        return err_errno(err, why, "command %s cannot be executed", s->path);
    }
    ret->pid = pid;
    ret->stdout_fd = s->stdio_fd ? -1 : p.out[0];
    ret->stderr_fd = p.err[0];
    p.err[0] = -1;
    if (!s->stdio_fd)
        p.out[0] = -1;
    pipes_close(&p);
    return 0;
}
