/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-gpu is the only program of ours that needs the image's libc. Where an image has
 * none that fits, or the program is not installed, what is left is the kernel's word in
 * /proc/driver/nvidia/version.
 *
 * A host without NVIDIA's driver costs an agent two looks at the file system. Tests set
 * HVD_TEST_ROOT to a folder that has /dev and /proc of its own. Called by agent.c,
 * serve.c and check_build.c. */
#include "runtime/launch/gpu_info.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/self.h"

#define ANSWER_MAX_BYTES 16384
#define LOG_MS           10000 /* a driver that wakes up eight GPUs takes seconds */
#define NO_NCCL          "NCCL of the system is not here; ranks look for their framework's"

static const char *test_root(void)
{
    const char *root = getenv("HVD_TEST_ROOT");

    return root ? root : "";
}

static bool has_file(const char *path)
{
    char full[PATH_MAX];

    (void)snprintf(full, sizeof(full), "%s%s", test_root(), path);
    return access(full, F_OK) == 0;
}

static void read_driver(char *ret, size_t size_bytes)
{
    char path[PATH_MAX], text[1024];

    (void)snprintf(path, sizeof(path), "%s/proc/driver/nvidia/version", test_root());
    CLEANUP(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    gpu_report_driver(text, ret, size_bytes);
}

static int run(struct capture *c,
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
    rc = access(path, X_OK) < 0 ? err_set(err, -ENOENT, "%s is not here", path)
                                : capture_run(c, out, err);
    c->path = NULL; /* they are ours */
    c->argv = NULL;
    return rc;
}

/* The kernel's driver is seen in every container, its library in those that were
 * started with GPUs. */
static void add_hint(struct gpu_report *r)
{
    static const char none[] = "no NVIDIA driver here";
    size_t n = strlen(r->problem);

    if (strncmp(r->problem, none, sizeof(none) - 1) == 0
        && has_file("/proc/driver/nvidia/version"))
        (void)snprintf(r->problem + n, sizeof(r->problem) - n,
                       "; the kernel has one: this container was started without GPUs "
                       "(limits nvidia.com/gpu, runtimeClassName nvidia, or the NVIDIA "
                       "container toolkit's --gpus)");
}

bool gpu_info_ask(struct capture *c,
                  const char *lib_dir,
                  const char *nccl,
                  struct gpu_report *ret)
{
    struct err err = ERR_INIT;
    struct strbuf out;

    strbuf_init(&out, ANSWER_MAX_BYTES);
    int rc = run(c, lib_dir, nccl, &out, &err);
    gpu_report_read(rc < 0 ? "" : strbuf_str(&out), ret);
    strbuf_release(&out);
    add_hint(ret);
    if (rc == 0)
        return true;
    (void)snprintf(ret->problem, sizeof(ret->problem),
                   "hvd-gpu cannot run here: %.300s", err.text);
    read_driver(ret->driver, sizeof(ret->driver));
    return false;
}

static const char *or_dash(const char *text)
{
    return *text ? text : "-";
}

static void log_report(const struct gpu_report *r, bool has_run)
{
    for (size_t i = 0; i < r->n_gpus; i++) {
        const struct gpu_report_gpu *g = &r->gpus[i];
        log_info("GPU", "index=%u model=\"%s\" uuid=%s memory_mib=%llu sm=%u mig=%s",
                 g->index, g->name, g->uuid, (unsigned long long)g->memory_mib, g->sm,
                 g->is_mig ? "yes" : "no");
    }
    if (*r->driver || *r->cuda)
        log_info("GPU driver", "driver=%s cuda=%s nccl=%s nccl_path=%s kernels=\"%s\"",
                 or_dash(r->driver), or_dash(r->cuda), or_dash(r->nccl),
                 or_dash(r->nccl_path), r->kernels);
    if (r->n_gpus)
        log_info("GPU links", "nvlink=\"%s\" ib=\"%s\"", or_dash(r->nvlinks),
                 or_dash(r->ib));
    if (!*r->problem)
        return;
    if (has_run && gpu_report_lacks_nccl(r))
        log_info(NO_NCCL, "cause=\"%s\"", r->problem);
    else if (has_run && has_file("/dev/nvidiactl"))
        log_warn("tensors on GPUs cannot travel here, going on", "cause=\"%s\"",
                 r->problem);
    else if (has_run) /* of the host's GPUs none is this container's */
        log_info("no GPU here", "cause=\"%s\"", r->problem);
    else
        log_info("GPUs are not told", "driver=%s cause=\"%s\"", or_dash(r->driver),
                 r->problem);
}

static void tell(const struct signals *before, char *const *env)
{
    struct signals signals;
    struct guard guard = {.fd = -1}; /* hvd-gpu dies with us */
    struct capture c = {
        .signals = &signals, .guard = &guard, .env = env, .timeout_ms = LOG_MS};
    AUTOFREE struct gpu_report *r = mem_zalloc(sizeof(*r));

    if (!r || signals_init(&signals, NULL) < 0)
        return;
    signals.before = before->before;
    bool has_run = gpu_info_ask(&c, "", "", r);
    if (!c.signal) /* else we are to go: nobody wants to know any more */
        log_report(r, has_run);
    signals_release(&signals);
}

void gpu_info_log(const struct signals *signals, char *const *env)
{
    pid_t self = getpid();

    if (!has_file("/dev/nvidiactl") && !has_file("/proc/driver/nvidia"))
        return;
    pid_t pid = fork();
    if (pid < 0)
        log_warn("GPUs are not told", "cause=\"fork: %s\"", strerror(errno));
    if (pid != 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail */
    if (getppid() == self)
        tell(signals, env);
    _exit(0);
}
