/* SPDX-License-Identifier: Apache-2.0 */
/* Called by task.c. Values are read here and judged in preflight.c.
 *
 * The Python package: where the site has a runtime, it is in PYTHONPATH, and task.c has
 * looked at it. Otherwise it must be in the program's own Python. That Python is asked
 * only when its program certainly needs the package and the usual folders do not have
 * it, so a step that works does not wait for it. What is not certain is left to the
 * program, and plugin.c says where to look when it fails. */
#include "spank_plugin/first_task.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/addr.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/launch/core/memlock.h"
#include "spank_plugin/executable.h"
#include "spank_plugin/preflight.h"
#include "spank_plugin/program.h"
#include "spank_plugin/runtime_dir.h"

#define SCRIPT_MAX_BYTES (1u << 20)
#define PYTHON_MS        10000u
#define SAID_MAX_BYTES   64
#define RDMA_DEVICES     "/sys/class/infiniband/*"

static bool path_exists(const char *pattern)
{
    glob_t found = {.gl_pathc = 0};
    bool is_there = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;

    globfree(&found);
    return is_there;
}

/* --- limits ----------------------------------------------------------------------- */

/* NCCL alone uses RDMA. */
static bool step_uses_gpus(struct spank_handle *sp)
{
    const char *visible = slurm_io_getenv(sp, "CUDA_VISIBLE_DEVICES");

    return slurm_io_getenv(sp, "SLURM_GPUS_ON_NODE") || (visible && *visible)
           || access("/dev/nvidiactl", F_OK) == 0;
}

static int check_memlock(struct spank_handle *sp, struct err *err)
{
    struct rlimit limit;

    /* root has CAP_IPC_LOCK, and no limit */
    if (geteuid() == 0 || !step_uses_gpus(sp) || !path_exists(RDMA_DEVICES)
        || getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return 0;
    /* RLIM_INFINITY is MEMLOCK_UNLIMITED */
    return memlock_check(1,
                         memlock_of_task(slurm_io_getenv(sp, "SLURM_RLIMIT_MEMLOCK"),
                                         limit.rlim_cur, limit.rlim_max),
                         err);
}

static int
check_gpus(struct spank_handle *sp, const struct contract *c, struct err *err)
{
    if (slurm_io_getenv(sp, "SLURM_HET_SIZE")) /* GPUs are those of one component */
        return 0;
    return preflight_check_gpus(slurm_io_getenv(sp, "SLURMD_TRES_BIND"),
                                slurm_io_getenv(sp, "SLURM_GPUS_ON_NODE"),
                                c->place.local_size, err);
}

static int check_iface(const struct contract *c, struct err *err)
{
    char address[64];

    return *c->iface ? addr_of_iface(c->iface, address, sizeof(address), err) : 0;
}

/* --- the package ------------------------------------------------------------------ */

/* Where pip, venv, conda and Debian put packages, and PYTHONPATH. */
static bool package_is_usual(struct spank_handle *sp, const char *python)
{
    const char *dirs = slurm_io_getenv(sp, "PYTHONPATH");
    const char *home = slurm_io_getenv(sp, "HOME");
    char path[PATH_MAX + 64], prefix[PATH_MAX], *slash;

    for (size_t n; dirs && *dirs; dirs += n + (dirs[n] == ':')) {
        n = strcspn(dirs, ":");
        (void)snprintf(path, sizeof(path), "%.*s/_hvd", (int)n, dirs);
        if (access(path, F_OK) == 0)
            return true;
    }
    (void)snprintf(prefix, sizeof(prefix), "%s", python);
    for (int i = 0; i < 2 && (slash = strrchr(prefix, '/')); i++)
        *slash = '\0';
    (void)snprintf(path, sizeof(path), "%s/lib*/python3*/*-packages/_hvd", prefix);
    if (path_exists(path))
        return true;
    (void)snprintf(path, sizeof(path), "%s/.local/lib/python3*/site-packages/_hvd",
                   home ? home : "");
    return path_exists(path)
           || path_exists("/usr/local/lib/python3*/dist-packages/_hvd");
}

/* True: this Python says that it finds no package. folder: that of the script. */
static bool
python_says_absent(struct spank_handle *sp, char *python, char *folder, bool has_folder)
{
    static char c[] = "-c",
                code[] = "import sys\n"
                         "from importlib.util import find_spec\n"
                         "if len(sys.argv) > 1: sys.path[0] = sys.argv[1]\n"
                         "if not find_spec('horovod') and not find_spec('perseus'):\n"
                         "    print('absent')\n";
    char *argv[] = {python, c, code, has_folder ? folder : NULL, NULL};
    CLEANUP(strbuf_release) struct strbuf said = {0};

    strbuf_init(&said, SAID_MAX_BYTES);
    (void)program_run(argv, slurm_io_environ(sp), PYTHON_MS, &said, NULL);
    return strcmp(strbuf_str(&said), "absent\n") == 0;
}

/* The script's text, or NULL: it cannot be read here. */
static char *script_read(const char *path)
{
    char *text = NULL;
    struct stat st;
    size_t n;

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) /* a pipe is read once */
        return NULL;
    return fd_read_file(path, SCRIPT_MAX_BYTES, &text, &n, NULL) == 0 ? text : NULL;
}

static void script_put_folder(const char *path, char ret[PATH_MAX])
{
    char *slash;

    if (!realpath(path, ret))
        (void)snprintf(ret, PATH_MAX, "%s", path);
    slash = strrchr(ret, '/');
    if (slash)
        *slash = '\0';
}

static int
check_package(struct spank_handle *sp, const struct plugin_config *cfg, struct err *err)
{
    struct python_program program;
    char python[PATH_MAX], folder[PATH_MAX] = "";
    int argc = 0;
    char **argv = slurm_io_argv(sp, &argc);

    if (!argv || !runtime_dir_is_absent(cfg)
        || !python_program_find(argv, argc, &program))
        return 0;
    AUTOFREE char *text = program.path ? script_read(program.path) : NULL;
    if (program.path)
        program.text = text;
    if (!program.text || !python_program_imports_us(program.text)
        || !executable_find(argv[0], slurm_io_getenv(sp, "PATH"), python)
        || package_is_usual(sp, python))
        return 0;
    if (program.path)
        script_put_folder(program.path, folder);
    if (!python_says_absent(sp, python, folder, program.path != NULL))
        return 0;
    return err_set(err, -ENOENT,
                   "there is no Python package horovod for %.100s: not in "
                   "%s/python (plugstack.conf: dir), and %.100s finds none",
                   program.path ? program.path : "the program", cfg->dir, python);
}

int first_task_check(struct spank_handle *sp,
                     const struct plugin_config *cfg,
                     const struct contract *c,
                     struct err *err)
{
    int rc = check_gpus(sp, c, err);

    if (!rc)
        rc = check_memlock(sp, err);
    if (!rc)
        rc = check_iface(c, err);
    return rc ? rc : check_package(sp, cfg, err);
}
