/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes that are kubectl.
 *
 * They get our environment, and our standard input if it is a terminal, so that a credential
 * plug-in can ask the user. If we die, the kernel ends them
 * (PR_SET_PDEATHSIG); Ctrl-C reaches them as members of our process group. */
#include "operator/cli/kubectl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "operator/cli/core/job_view.h"
#include "operator/doc/json.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define NOT_FOUND  127
#define ERROR_MAX  65536
#define QUIET_MS   2000 /* an error message is followed by the end sooner */
#define STATUS_MAX 255

static const char no_kubectl[] =
    "kubectl is not in PATH; kubectl-hvd runs it to reach the cluster";

void kubectl_add(struct kubectl *k, const char *word)
{
    if (!k)
        return;
    if (k->n < KUBECTL_MAX_ARGS)
        k->argv[k->n++] = word;
    k->argv[k->n] = NULL;
}

struct kubectl *kubectl_new(struct cli *c, const char *ns, const char *const *words)
{
    struct kubectl *k = arena_alloc(&c->arena, sizeof(*k));

    if (!k)
        return NULL;
    kubectl_add(k, "kubectl");
    for (; *words; words++)
        kubectl_add(k, *words);
    for (size_t i = 0; i < c->args.n_pass; i++)
        kubectl_add(k, c->args.pass[i]);
    ns = ns ? ns : c->args.value[CLI_OPT_NAMESPACE];
    if (ns && *ns) {
        kubectl_add(k, "--namespace");
        kubectl_add(k, ns);
    }
    return k;
}

static void kubectl_exec(const struct kubectl *k)
{
    union {
        const char *const *from;
        char *const *to;
    } argv = {.from = k->argv};

    execvp("kubectl", argv.to);
}

static _Noreturn void run_child(const struct kubectl *k, int out, int err_fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (null < 0 || (!isatty(STDIN_FILENO) && dup2(null, STDIN_FILENO) < 0)
        || dup2(out, STDOUT_FILENO) < 0
        || (err_fd >= 0 && dup2(err_fd, STDERR_FILENO) < 0))
        _exit(1);
    kubectl_exec(k);
    _exit(errno == ENOENT ? NOT_FOUND : 126);
}

int kubectl_wait(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return STATUS_MAX;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int kubectl_fork(
    const struct kubectl *k, int out, int err_fd, pid_t *ret_pid, struct err *err)
{
    pid_t pid;

    if (!k)
        return err_set(err, -ENOMEM, "out of memory");
    (void)fflush(NULL);
    pid = fork();
    if (pid < 0)
        return err_errno(err, errno, "kubectl: cannot start it");
    if (pid == 0)
        run_child(k, out, err_fd);
    *ret_pid = pid;
    return 0;
}

int kubectl_spawn(const struct kubectl *k,
                  bool has_errors,
                  int *ret_fd,
                  pid_t *ret_pid,
                  struct err *err)
{
    int fd[2], rc;

    if (pipe2(fd, O_CLOEXEC) < 0)
        return err_errno(err, errno, "kubectl: cannot start it");
    rc = kubectl_fork(k, fd[1], has_errors ? fd[1] : -1, ret_pid, err);
    fd_close(&fd[1]);
    if (rc < 0)
        fd_close(&fd[0]);
    else
        *ret_fd = fd[0];
    return rc;
}

/* Reads what is there; false at the end. */
static bool kubectl_drain(struct pollfd *p, struct strbuf *out)
{
    char part[65536];
    ssize_t n;

    if (!(p->revents & (POLLIN | POLLHUP | POLLERR)))
        return true;
    n = read(p->fd, part, sizeof(part));
    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0)
        return false;
    strbuf_add(out, part, (size_t)n);
    return true;
}

/* Prints what kubectl has written to standard error and waits for: a credential plug-in
 * that asks the user to open a page, say. */
static size_t kubectl_show(const struct strbuf *text, size_t n_shown)
{
    CLEANUP(strbuf_release) struct strbuf out;

    strbuf_init(&out, 8 * ERROR_MAX);
    text_put_safe(&out, strbuf_str(text) + n_shown, text->n - n_shown, true);
    (void)fputs(strbuf_str(&out), stderr);
    return text->n;
}

/* Both pipes until their ends. */
static void
kubectl_collect(int out_fd, int err_fd, struct strbuf *out, struct strbuf *text)
{
    struct pollfd p[2] = {{out_fd, POLLIN, 0}, {err_fd, POLLIN, 0}};
    size_t n_shown = 0;

    while (p[0].fd >= 0 || p[1].fd >= 0) {
        int n = poll(p, 2, text->n > n_shown ? QUIET_MS : -1);

        if (n < 0 && errno != EINTR)
            return;
        if (n == 0)
            n_shown = kubectl_show(text, n_shown);
        if (n <= 0)
            continue;
        if (p[0].fd >= 0 && !kubectl_drain(&p[0], out))
            p[0].fd = -1;
        if (p[1].fd >= 0 && !kubectl_drain(&p[1], text))
            p[1].fd = -1;
    }
}

int kubectl_read(const struct kubectl *k,
                 struct strbuf *out,
                 const char *what,
                 struct err *err)
{
    CLEANUP(fd_close) int out_fd = -1;
    CLEANUP(fd_close) int err_fd = -1;
    CLEANUP(strbuf_release) struct strbuf text;
    int fd[2], efd[2], rc, status;
    pid_t pid = 0;

    strbuf_init(&text, ERROR_MAX);
    if (pipe2(fd, O_CLOEXEC) < 0)
        return err_errno(err, errno, "kubectl: cannot start it");
    out_fd = fd[0];
    if (pipe2(efd, O_CLOEXEC) < 0) {
        fd_close(&fd[1]);
        return err_errno(err, errno, "kubectl: cannot start it");
    }
    err_fd = efd[0];
    rc = kubectl_fork(k, fd[1], efd[1], &pid, err);
    fd_close(&fd[1]);
    fd_close(&efd[1]);
    if (rc < 0)
        return rc;
    kubectl_collect(out_fd, err_fd, out, &text);
    status = kubectl_wait(pid);
    if (status == NOT_FOUND && text.n == 0)
        return err_set(err, -ENOEXEC, "%s", no_kubectl);
    if (status != 0)
        return kube_refusal(strbuf_str(&text), what, err);
    if (strbuf_status(out) < 0)
        return err_set(err, -E2BIG, "kubectl: answered more than %u MiB",
                       CLI_MAX_BYTES >> 20);
    return 0;
}

int kubectl_json(struct cli *c,
                 const struct kubectl *k,
                 const char *what,
                 const struct node **ret,
                 struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf out;
    struct node *o = NULL;
    int rc;

    strbuf_init(&out, CLI_MAX_BYTES);
    rc = kubectl_read(k, &out, what, err);
    if (rc == 0 && out.n > strspn(strbuf_str(&out), " \n")) {
        rc = json_read(&c->arena, out.p, out.n, &o, err);
        if (rc < 0)
            (void)err_prefix(err, "kubectl's answer");
    }
    if (rc == 0)
        *ret = o;
    return rc;
}

int kubectl_become(struct cli *c, struct kubectl *k)
{
    if (!k)
        return cli_fail("out of memory");
    if (cli_print(c) != 0)
        return 1;
    kubectl_exec(k);
    return cli_fail(errno == ENOENT ? no_kubectl : "kubectl: cannot be run");
}

int kubectl_copy(const struct kubectl *k, int fd)
{
    struct err err = ERR_INIT;
    pid_t pid = 0;
    int status;

    if (kubectl_fork(k, fd, -1, &pid, &err) < 0)
        return cli_fail(err.text);
    status = kubectl_wait(pid);
    return status == NOT_FOUND ? cli_fail(no_kubectl) : status;
}
