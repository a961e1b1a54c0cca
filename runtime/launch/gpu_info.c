/* SPDX-License-Identifier: Apache-2.0 */
/* Runs hvd-gpu, which opens NVIDIA's libraries and therefore needs the image's libc. If
 * it cannot run, or is not installed, only the driver version in
 * /proc/driver/nvidia/version is known.
 *
 * On a host without NVIDIA's driver an agent only checks two paths. Tests set
 * HVD_TEST_ROOT to a folder with its own /dev and /proc. Called by agent.c, serve.c,
 * check_build.c, remote_agent.c and local_job.c. */
#include "runtime/launch/gpu_info.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/self.h"

#define ANSWER_MAX_BYTES 16384
#define LOG_MS           10000 /* a driver that initialises eight GPUs takes seconds */

static const char *gpu_info_test_root(void)
{
    const char *root = getenv("HVD_TEST_ROOT");

    return root ? root : "";
}

static bool gpu_info_has_file(const char *path)
{
    char full[PATH_MAX];

    (void)snprintf(full, sizeof(full), "%s%s", gpu_info_test_root(), path);
    return access(full, F_OK) == 0;
}

static void gpu_info_read_driver(char *ret, size_t size_bytes)
{
    char path[PATH_MAX], text[1024];

    (void)snprintf(path, sizeof(path), "%s/proc/driver/nvidia/version",
                   gpu_info_test_root());
    CLEANUP(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    gpu_report_driver(text, ret, size_bytes);
}

static int gpu_info_run_helper(struct capture *c,
                               const char *lib_dir,
                               const char *nccl,
                               struct strbuf *out,
                               struct err *err)
{
    char dir[PATH_MAX - 16], path[PATH_MAX], lib[PATH_MAX], hint[PATH_MAX],
        info[] = "info";
    char *argv[] = {path, info, lib, *nccl ? hint : NULL, NULL};
    int rc = self_tree(dir, sizeof(dir), err);

    if (rc < 0)
        return rc;
    (void)snprintf(path, sizeof(path), "%s/bin/hvd-gpu", dir);
    (void)snprintf(lib, sizeof(lib), "%s%s", *lib_dir ? lib_dir : dir,
                   *lib_dir ? "" : "/lib");
    (void)snprintf(hint, sizeof(hint), "%s", nccl);
    c->path = path;
    c->name = "hvd-gpu";
    c->argv = argv;
    rc = access(path, X_OK) < 0 ? err_set(err, -ENOENT, "%s does not exist", path)
                                : capture_run(c, out, err);
    c->path = NULL; /* they point to this function's arrays */
    c->argv = NULL;
    return rc;
}

/* The kernel's driver is visible in every container, its library only in containers
 * with GPUs. */
static void gpu_info_add_hint(struct gpu_report *r)
{
    static const char none[] = "no NVIDIA driver here";
    size_t n = strlen(r->problem);

    if (strncmp(r->problem, none, sizeof(none) - 1) == 0
        && gpu_info_has_file("/proc/driver/nvidia/version"))
        (void)snprintf(r->problem + n, sizeof(r->problem) - n,
                       "; the kernel has one: this container was started without GPUs "
                       "(limits nvidia.com/gpu, runtimeClassName nvidia, or the NVIDIA "
                       "container toolkit's --gpus)");
}

bool gpu_info_read(struct capture *c,
                   const char *lib_dir,
                   const char *nccl,
                   struct gpu_report *ret)
{
    struct err err = ERR_INIT;
    struct strbuf out;

    strbuf_init(&out, ANSWER_MAX_BYTES);
    int rc = gpu_info_run_helper(c, lib_dir, nccl, &out, &err);
    gpu_report_read(rc < 0 ? "" : strbuf_str(&out), ret);
    strbuf_release(&out);
    gpu_info_add_hint(ret);
    if (rc == 0)
        return true;
    (void)snprintf(ret->problem, sizeof(ret->problem),
                   "hvd-gpu cannot run here: %.300s", err.text);
    gpu_info_read_driver(ret->driver, sizeof(ret->driver));
    return false;
}

static const char *text_or_dash(const char *text)
{
    return *text ? text : "-";
}

static void gpu_info_log_report(const struct gpu_report *r, bool has_run)
{
    for (size_t i = 0; i < r->n_gpus; i++) {
        const struct gpu_report_gpu *g = &r->gpus[i];
        log_info("GPU", "index=%u model=\"%s\" uuid=%s memory_mib=%llu sm=%u mig=%s",
                 g->index, g->name, g->uuid, (unsigned long long)g->memory_mib, g->sm,
                 g->is_mig ? "yes" : "no");
    }
    if (*r->driver || *r->cuda)
        log_info("GPU driver", "driver=%s cuda=%s nccl=%s nccl_path=%s kernels=\"%s\"",
                 text_or_dash(r->driver), text_or_dash(r->cuda), text_or_dash(r->nccl),
                 text_or_dash(r->nccl_path), r->kernels);
    if (r->n_gpus)
        log_info("GPU links", "nvlink=\"%s\" ib=\"%s\"", text_or_dash(r->nvlinks),
                 text_or_dash(r->ib));
    if (!*r->problem)
        return;
    if (has_run && gpu_report_lacks_nccl(r))
        log_info(GPU_REPORT_NO_NCCL, "cause=\"%s\"", r->problem);
    else if (has_run && gpu_info_has_file("/dev/nvidiactl"))
        log_warn("GPU tensors are not possible here, continuing", "cause=\"%s\"",
                 r->problem);
    else if (has_run) /* the container has none of the host's GPUs */
        log_info("no GPU here", "cause=\"%s\"", r->problem);
    else
        log_info("GPUs are unknown", "driver=%s cause=\"%s\"", text_or_dash(r->driver),
                 r->problem);
}

/* False after a stop signal: the result is no longer needed. */
static bool gpu_info_query(const struct signals *before,
                           char *const *env,
                           struct gpu_report *ret,
                           bool *ret_has_run)
{
    struct signals signals;
    struct guard guard = {.fd = -1}; /* hvd-gpu dies with this process */
    struct capture c = {
        .signals = &signals, .guard = &guard, .env = env, .timeout_ms = LOG_MS};

    if (signals_init(&signals, NULL) < 0)
        return false;
    signals.before = before->before;
    *ret_has_run = gpu_info_read(&c, "", "", ret);
    signals_release(&signals);
    return !c.signal;
}

static void gpu_info_write_line(const struct gpu_report *r, const char *before, int fd)
{
    struct strbuf line;

    strbuf_init(&line, ANSWER_MAX_BYTES);
    strbuf_puts(&line, before);
    gpu_report_line(r, &line);
    strbuf_putc(&line, '\n');
    /* one write: the line stays whole among other output */
    if (strbuf_status(&line) == 0)
        (void)fd_write_full(fd, strbuf_str(&line), line.n, clock_now_ns() + NS_PER_S);
    strbuf_release(&line);
}

/* Closes all descriptors but *fd and standard ones: a guard, or a peer, waits until all
 * copies of its descriptor are closed. */
static void gpu_info_keep_only(int *fd)
{
    if (*fd > 3 && dup3(*fd, 3, O_CLOEXEC) == 3)
        *fd = 3;
    fd_close_from(*fd > 2 ? *fd + 1 : 3);
}

/* Forks the process that runs hvd-gpu. line: text before the output on fd; NULL: logs
 * the result. */
static void gpu_info_write(const struct signals *signals,
                           char *const *env,
                           const char *line,
                           int fd)
{
    pid_t self = getpid();

    if (!gpu_info_has_file("/dev/nvidiactl")
        && !gpu_info_has_file("/proc/driver/nvidia"))
        return;
    pid_t pid = fork();
    if (pid < 0)
        log_warn("GPUs are unknown", "cause=\"fork: %s\"", strerror(errno));
    if (pid != 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail */
    gpu_info_keep_only(&fd);
    AUTOFREE struct gpu_report *r = mem_zalloc(sizeof(*r));
    bool has_run = false;
    if (r && getppid() == self && gpu_info_query(signals, env, r, &has_run)) {
        if (line)
            gpu_info_write_line(r, line, fd);
        else
            gpu_info_log_report(r, has_run);
    }
    _exit(0);
}

void gpu_info_log(const struct signals *signals, char *const *env)
{
    gpu_info_write(signals, env, NULL, -1);
}

void gpu_info_print(const struct signals *signals,
                    char *const *env,
                    const char *before,
                    int fd)
{
    gpu_info_write(signals, env, before, fd);
}

int gpu_info_begin(const struct signals *signals, char *const *env)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1; /* without descriptors the ranks fail with a message */
    gpu_info_write(signals, env, "", ends[1]);
    fd_close(&ends[1]);
    return ends[0];
}

bool gpu_info_next(int *fd, struct strbuf *line)
{
    char buf[1024];
    ssize_t n;

    while (*fd >= 0 && (n = read(*fd, buf, sizeof(buf))) != -1) {
        strbuf_add(line, buf, (size_t)n);
        if (n == 0) {
            fd_close(fd);
            return line->n > 0;
        }
    }
    return false;
}
