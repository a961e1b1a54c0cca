/* SPDX-License-Identifier: Apache-2.0 */
/* A rank dies with its launcher by PR_SET_PDEATHSIG, but the processes that the rank
 * started (the python below a shell, DataLoader workers) do not. The guard holds one
 * end of a pipe. When the launcher exits for any reason, the pipe ends; the guard then
 * kills the remaining process groups and removes the scratch folder. It has no other
 * descriptor and its own group, so it neither holds the terminal nor dies of Ctrl-C. As
 * PID 1 of a pod the agent needs no guard: the kernel kills the whole pod. Called by
 * local_ranks.c, agent.c, horovodrun.c and remote_agent.c. */
#include "runtime/launch/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define GUARD_MAX_GROUPS 8192

struct groups {
    int32_t v[GUARD_MAX_GROUPS];
    size_t n;
};

static void groups_apply(struct groups *g, int32_t word)
{
    if (word > 0 && g->n < GUARD_MAX_GROUPS)
        g->v[g->n++] = word;
    for (size_t i = 0; word < 0 && i < g->n; i++)
        if (g->v[i] == -word) {
            g->v[i] = g->v[--g->n];
            return;
        }
}

static void guard_main(int fd, const struct scratch_folder *scratch)
{
    struct groups *g = mem_zalloc(sizeof(*g));
    int32_t word;
    ssize_t n;
    if (!g)
        return;
    do {
        n = read(fd, &word, sizeof(word));
        if (n == (ssize_t)sizeof(word))
            groups_apply(g, word);
    } while (n == (ssize_t)sizeof(word) || (n < 0 && errno == EINTR));
    for (size_t i = 0; i < g->n; i++)
        (void)kill(-g->v[i], SIGKILL); /* it may have exited */
    scratch_remove(scratch);
    mem_free(g);
}

int guard_start(struct guard *g, const struct scratch_folder *scratch, struct err *err)
{
    int fd[2];
    memset(g, 0, sizeof(*g));
    g->fd = -1;
    if (pipe2(fd, O_CLOEXEC) < 0)
        return err_errno(err, errno, "pipe for the guard process");
    pid_t pid = fork();
    if (pid < 0) {
        int saved = errno;
        (void)close(fd[0]);
        (void)close(fd[1]);
        return err_errno(err, saved, "cannot start the guard process");
    }
    if (pid == 0) {
        (void)setpgid(0, 0);
        (void)prctl(PR_SET_NAME, "hvd-guard", 0, 0, 0);
        fd_close_others(fd[0]);
        guard_main(fd[0], scratch);
        _exit(0);
    }
    (void)close(fd[0]);
    g->pid = pid;
    g->fd = fd[1];
    return 0;
}

static void guard_send(struct guard *g, int32_t word)
{
    /* a broken pipe means that the guard was killed; the ranks still have pdeathsig */
    if (g->pid)
        (void)fd_write_full(g->fd, &word, sizeof(word), clock_now_ns() + NS_PER_S);
}

void guard_add(struct guard *g, pid_t group)
{
    guard_send(g, (int32_t)group);
}

void guard_remove(struct guard *g, pid_t group)
{
    guard_send(g, -(int32_t)group);
}

void guard_stop(struct guard *g)
{
    if (!g->pid)
        return;
    fd_close(&g->fd);
    (void)waitpid(g->pid, NULL, 0); /* exits at once: its pipe has ended */
    g->pid = 0;
}
