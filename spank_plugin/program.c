/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and not Slurm's functions in srun: a call that waits for slurmctld cannot be
 * ended, and a thread in it would outlive this plugin. Called by comment.c and
 * first_task.c. */
#include "spank_plugin/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/contract/slurm_step.h"

#define TICK_MS 10
#define STOP_MS 500u /* of program_run, before SIGKILL */

char **program_environment(char *const *env)
{
    size_t n = 0, n_bytes = 0, k = 0;
    char **ret, *text;

    for (; env[n]; n++)
        n_bytes += strlen(env[n]) + 1;
    ret = mem_alloc((n + 1) * sizeof(*ret) + n_bytes);
    if (!ret)
        return NULL;
    text = (char *)(ret + n + 1);
    for (size_t i = 0; i < n; i++) {
        size_t size = strlen(env[i]) + 1;

        if (slurm_step_owns(env[i]))
            continue;
        memcpy(text, env[i], size);
        ret[k++] = text;
        text += size;
    }
    ret[k] = NULL;
    return ret;
}

/* After fork in a process with threads: system calls only. */
static void program_exec(int out_fd, char *const *argv, char *const *env)
{
    sigset_t none;
    int null_fd = open("/dev/null", O_RDWR);

    (void)sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++)
        (void)signal(sig, SIG_DFL); /* fails for two of them */
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (dup2(null_fd, 0) < 0 || dup2(out_fd, 1) < 0 || dup2(null_fd, 2) < 0)
        _exit(127);
    fd_close_from(3);
    (void)execve(argv[0], argv, env);
    _exit(127);
}

int program_start(struct program *p,
                  char *const *argv,
                  char *const *env,
                  struct err *err)
{
    int pipe_fd[2];
    pid_t pid;

    if (pipe2(pipe_fd, O_CLOEXEC) != 0)
        return err_errno(err, errno, "a pipe for %s", argv[0]);
    pid = fork();
    if (pid == 0)
        program_exec(pipe_fd[1], argv, env);
    fd_close(&pipe_fd[1]);
    if (pid < 0) {
        int rc = err_errno(err, errno, "cannot start %s", argv[0]);

        fd_close(&pipe_fd[0]);
        return rc;
    }
    (void)setpgid(pid, pid); /* the child does it, too: one of the two is first */
    (void)fd_nonblock(pipe_fd[0], true);
    p->pid = pid;
    p->out_fd = pipe_fd[0];
    return 0;
}

bool program_read(struct program *p, struct strbuf *out)
{
    char text[4096];
    ssize_t n;

    while (p->out_fd >= 0 && (n = read(p->out_fd, text, sizeof(text))) != -1) {
        if (n == 0)
            fd_close(&p->out_fd);
        strbuf_add(out, text, (size_t)n);
    }
    return p->out_fd >= 0;
}

bool program_has_ended(struct program *p, int *ret)
{
    int status = -1;
    pid_t pid;

    *ret = -1;
    if (p->pid <= 0)
        return true;
    pid = waitpid(p->pid, &status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR))
        return false;
    if (pid > 0) /* else srun has reaped it */
        *ret = status;
    p->pid = 0;
    return true;
}

static bool program_wait(struct program *p, uint32_t wait_ms)
{
    uint64_t deadline_ns = clock_now_ns() + wait_ms * NS_PER_MS;
    int status;

    while (!program_has_ended(p, &status)) {
        if (clock_now_ns() >= deadline_ns)
            return false;
        (void)poll(NULL, 0, TICK_MS);
    }
    return true;
}

void program_stop(struct program *p, uint32_t wait_ms)
{
    int status;

    if (!program_has_ended(p, &status)) {
        (void)kill(-p->pid, SIGTERM);
        if (!program_wait(p, wait_ms)) {
            (void)kill(-p->pid, SIGKILL);
            (void)program_wait(p, wait_ms); /* then init reaps it */
        }
    }
    fd_close(&p->out_fd);
}

int program_run(char *const *argv,
                char *const *env,
                uint32_t wait_ms,
                struct strbuf *out,
                struct err *err)
{
    const uint64_t deadline_ns = clock_now_ns() + wait_ms * NS_PER_MS;
    struct program p = PROGRAM_INIT;
    int rc = program_start(&p, argv, env, err);

    if (rc < 0)
        return rc;
    while (program_read(&p, out) && clock_now_ns() < deadline_ns) {
        struct pollfd poll_fd = {.fd = p.out_fd, .events = POLLIN};

        (void)poll(&poll_fd, 1, clock_left_ms(deadline_ns));
    }
    program_stop(&p, STOP_MS);
    return 0;
}
