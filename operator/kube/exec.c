/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a credential plug-in.
 *
 *   exec_start --> child in a process group of its own: stdin /dev/null, two pipes
 *   exec_step  --> reads the pipes; when the child has exited, or its time is over, the
 *                  whole group is killed
 *
 * Its standard output is a secret: never logged, wiped after use. The start of its
 * standard error is part of the error message. Called by creds.c. */
#include "operator/kube/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define MAX_OUT_BYTES (1u << 20)
#define MAX_ERR_BYTES 300u /* of an error message of 480 */
#define READ_BYTES    4096u
/* Per step: more than a pipe holds, so that all output of an exited child is read; and
 * a limit for a child that writes as fast as we read. */
#define MAX_READS     (MAX_OUT_BYTES / READ_BYTES + 1)
#define INFO_VARIABLE "KUBERNETES_EXEC_INFO"

extern char **environ;

void exec_init(struct exec_run *x, const struct exec_spec *spec)
{
    *x = (struct exec_run){.spec = spec, .pid_fd = -1, .out_fd = -1, .err_fd = -1};
    strbuf_init_secret(&x->out, MAX_OUT_BYTES);
    strbuf_init(&x->err, MAX_ERR_BYTES);
}

/* Kills the child if it still runs. */
static void exec_end(struct exec_run *x)
{
    if (x->pid > 0) {
        (void)kill(-x->pid, SIGKILL); /* also its children */
        (void)waitpid(x->pid, NULL, 0);
    }
    x->pid = 0;
    fd_close(&x->pid_fd);
    fd_close(&x->out_fd);
    fd_close(&x->err_fd);
}

void exec_release(struct exec_run *x)
{
    exec_end(x);
    strbuf_release(&x->out);
    strbuf_release(&x->err);
}

bool exec_is_running(const struct exec_run *x)
{
    return x->pid > 0;
}

/* --- environment ------------------------------------------------------------------ */

static bool is_set(char *const *env, size_t n, const char *entry)
{
    size_t name = strcspn(entry, "=");

    for (size_t i = 0; i < n; i++) {
        if (strncmp(env[i], entry, name) == 0 && env[i][name] == '=')
            return true;
    }
    return false;
}

/* Our environment; variables of the kubeconfig replace those of the same name. All
 * entries are borrowed. */
static char **make_env(const struct exec_spec *spec, char *info)
{
    size_t n = 0, n_spec = 0, n_ours = 0;
    char **env;

    while (spec->env[n_spec])
        n_spec++;
    while (environ[n_ours])
        n_ours++;
    env = mem_calloc(n_spec + n_ours + 2, sizeof(*env));
    if (!env)
        return NULL;
    env[n++] = info;
    for (size_t i = 0; i < n_spec; i++)
        env[n++] = spec->env[i];
    n_spec = n;
    for (size_t i = 0; i < n_ours; i++) {
        if (!is_set(env, n_spec, environ[i]))
            env[n++] = environ[i];
    }
    return env;
}

/* --- start ------------------------------------------------------------------------ */

static int exec_spawn(struct exec_run *x, char **env, int out, int errors)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, dflt;
    int rc;

    sigemptyset(&none);
    sigemptyset(&dflt);
    sigaddset(&dflt, SIGPIPE);
    rc = posix_spawn_file_actions_init(&files);
    if (rc)
        return -rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc) {
        (void)posix_spawn_file_actions_destroy(&files);
        return -rc;
    }
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP
                                                    | POSIX_SPAWN_SETSIGMASK
                                                    | POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &dflt);
    rc = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&files, out, 1);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&files, errors, 2);
    if (rc == 0) /* not all of libcurl's are CLOEXEC */
        rc = posix_spawn_file_actions_addclosefrom_np(&files, 3);
    if (rc == 0)
        rc = posix_spawnp(&x->pid, x->spec->argv[0], &files, &attributes, x->spec->argv,
                          env);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    if (rc)
        x->pid = 0;
    return -rc;
}

static int exec_start_child(struct exec_run *x, char **env)
{
    int out[2] = {-1, -1}, errors[2] = {-1, -1}, rc = 0;

    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(errors, O_CLOEXEC) < 0)
        rc = -errno;
    if (rc == 0)
        rc = exec_spawn(x, env, out[1], errors[1]);
    fd_close(&out[1]);
    fd_close(&errors[1]);
    x->out_fd = out[0];
    x->err_fd = errors[0];
    if (rc == 0) {
        (void)fd_nonblock(x->out_fd, true);
        (void)fd_nonblock(x->err_fd, true);
        x->pid_fd = (int)syscall(SYS_pidfd_open, x->pid, 0);
        rc = x->pid_fd < 0 ? -errno : 0;
    }
    if (rc < 0)
        exec_end(x);
    return rc;
}

int exec_start(struct exec_run *x, uint64_t now_ns, struct err *err)
{
    struct strbuf info;
    char **env;
    int rc;

    strbuf_init(&info, 2u << 20);
    strbuf_printf(&info, INFO_VARIABLE "=%s", x->spec->info);
    env = strbuf_status(&info) ? NULL : make_env(x->spec, info.p);
    strbuf_clear(&x->out);
    strbuf_clear(&x->err);
    rc = env ? exec_start_child(x, env) : -ENOMEM;
    mem_free((void *)env);
    strbuf_release(&info);
    if (rc < 0)
        return err_errno(err, -rc, "exec plug-in \"%.100s\" cannot be started%s%.200s",
                         x->spec->argv[0], x->spec->install_hint ? "; " : "",
                         x->spec->install_hint ? x->spec->install_hint : "");
    x->deadline_ns = now_ns + EXEC_TIMEOUT_NS;
    return 0;
}

/* --- output and exit -------------------------------------------------------------- */

size_t exec_fds(const struct exec_run *x, struct pollfd ret[EXEC_FDS])
{
    const int fds[EXEC_FDS] = {x->pid_fd, x->out_fd, x->err_fd};
    size_t n = 0;

    for (size_t i = 0; i < EXEC_FDS; i++) {
        if (fds[i] >= 0)
            ret[n++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    }
    return n;
}

/* Reads what is available, up to MAX_READS; closes at the end. is_bounded: drops what
 * exceeds the limit. */
static int exec_drain_pipe(int *fd, struct strbuf *to, bool is_bounded)
{
    char buf[READ_BYTES];
    ssize_t n;

    for (size_t i = 0; i < MAX_READS && *fd >= 0; i++) {
        n = read(*fd, buf, sizeof(buf));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            fd_close(fd);
            break;
        }
        if (is_bounded && (size_t)n > to->max - to->n)
            n = (ssize_t)(to->max - to->n);
        strbuf_add(to, buf, (size_t)n);
    }
    explicit_bzero(buf, sizeof(buf));
    return strbuf_status(to);
}

static int
exec_failed(const struct exec_run *x, const char *how, int number, struct err *err)
{
    size_t n = x->err.n;
    const char *text = strbuf_str(&x->err);

    while (n > 0 && strchr(" \r\n", text[n - 1]))
        n--;
    return err_set(err, -EACCES, "exec plug-in \"%.100s\" %s %d%s%.*s",
                   x->spec->argv[0], how, number, n ? ": " : "", (int)n, text);
}

int exec_step(struct exec_run *x, uint64_t now_ns, struct err *err)
{
    struct pollfd gone = {.fd = x->pid_fd, .events = POLLIN};
    bool has_ended = poll(&gone, 1, 0) > 0;
    int rc = exec_drain_pipe(&x->out_fd, &x->out, false), status = 0;

    (void)exec_drain_pipe(&x->err_fd, &x->err, true);
    if (rc < 0) {
        exec_end(x);
        return err_set(err, rc, "exec plug-in \"%.100s\": prints more than %u bytes",
                       x->spec->argv[0], MAX_OUT_BYTES);
    }
    if (!has_ended && now_ns >= x->deadline_ns) {
        exec_end(x);
        return exec_failed(
            x, "timed out after seconds:", (int)(EXEC_TIMEOUT_NS / NS_PER_S), err);
    }
    if (!has_ended)
        return 0;
    (void)kill(-x->pid,
               SIGKILL); /* its remaining children, before waitpid frees the pid */
    (void)waitpid(x->pid, &status, 0);
    x->pid = 0;
    exec_end(x);
    if (WIFSIGNALED(status))
        return exec_failed(x, "was killed by signal", WTERMSIG(status), err);
    if (WEXITSTATUS(status) != 0)
        return exec_failed(x, "exited with code", WEXITSTATUS(status), err);
    return 1;
}
