/* SPDX-License-Identifier: Apache-2.0 */
/* spank_box.so plays pyxis, which Debian lacks, and tests/fakes/box plays enroot:
 *
 *   user_init   nothing is started yet, as in pyxis
 *   task_init   1. the first task of a node starts the container as the user, with the
 *                  task's environment, which hooks of enroot read; its process stops
 *                  itself when all is mounted
 *               2. the container's environment, which is the image's, replaces the
 *                  task's value of each variable
 *               3. the task joins the container's user and mount namespaces
 *
 * tests/slurm/box.sh runs its tests with it, or with the real ones. The argument in
 * plugstack.conf is the program. Order and environment are those of pyxis 0.24. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC visibility push(default)
#include <slurm/spank.h>

SPANK_PLUGIN(box, 1)
#pragma GCC visibility pop

#define MAX_ENV       4096
#define MAX_ENV_BYTES (1u << 20)

static struct box {
    char image[4096]; /* "": no container */
    int shared_fd;    /* of all tasks of the node: struct box_state */
} box = {.shared_fd = -1};

struct box_state {
    pid_t pid; /* of the stopped process in the container; 0: not started, -1: failed */
    uint32_t n_started;
};

static int on_image(int val, const char *arg, int remote)
{
    (void)val;
    (void)remote;
    (void)snprintf(box.image, sizeof(box.image), "%s", arg);
    return 0;
}

static char option_name[] = "container-image", option_arg[] = "DIR",
            option_help[] = "[box] run the tasks in this folder";
static struct spank_option option = {
    .name = option_name,
    .arginfo = option_arg,
    .usage = option_help,
    .has_arg = 1,
    .cb = on_image,
};

int slurm_spank_init(spank_t sp, int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    return spank_option_register(sp, &option) == ESPANK_SUCCESS ? 0 : -1;
}

int slurm_spank_user_init(spank_t sp, int argc, char *argv[])
{
    (void)sp;
    (void)argc;
    (void)argv;
    if (!box.image[0])
        return 0;
    box.shared_fd = memfd_create("box", MFD_CLOEXEC);
    return box.shared_fd < 0 || ftruncate(box.shared_fd, sizeof(struct box_state)) ? -1
                                                                                   : 0;
}

/* What pyxis keeps from enroot. */
static bool is_kept_out(const char *var)
{
    static const char *const names[] = {
        "PATH=", "LD_LIBRARY_PATH=", "LD_PRELOAD=", "SLURM_PROCID=", "SLURM_LOCALID="};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strncmp(var, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

_Noreturn static void box_exec(spank_t sp, char *program)
{
    static char *env[MAX_ENV + 3];
    char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char version[] = "PYXIS_VERSION=0.24.0";
    char *argv[] = {program, box.image, NULL};
    char **from = NULL;
    size_t n = 0;

    if (spank_get_item(sp, S_JOB_ENV, &from) == ESPANK_SUCCESS)
        for (; *from && n < MAX_ENV; from++)
            if (!is_kept_out(*from))
                env[n++] = *from;
    env[n++] = path;
    env[n] = version;
    (void)execve(program, argv, env);
    _exit(127);
}

static pid_t box_start(spank_t sp, char *program)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        box_exec(sp, program);
    if (pid < 0 || waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) {
        slurm_error("box: the container was not started");
        return -1;
    }
    return pid;
}

static int box_import_env(spank_t sp, pid_t pid)
{
    static char text[MAX_ENV_BYTES];
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%ld/environ", (long)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    if (f)
        (void)fclose(f);
    for (char *var = text; var < text + n; var += strlen(var) + 1) {
        char *value = strchr(var, '=');
        if (!value)
            continue;
        *value++ = '\0';
        if (spank_setenv(sp, var, value, 1) != ESPANK_SUCCESS)
            return -1;
        var = value;
    }
    return n > 0 ? 0 : -1;
}

static int box_join(pid_t pid, const char *space, int type)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%ld/ns/%s", (long)pid, space);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : setns(fd, type);

    if (rc)
        slurm_error("box: %s: %s", path, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

/* Both namespaces are open while the lock is held; the user's allows to join the other. */
static int box_enter(spank_t sp, struct box_state *s, char *program)
{
    uint32_t n_tasks = 0;

    if (s->pid == 0)
        s->pid = box_start(sp, program);
    if (s->pid < 0 || box_import_env(sp, s->pid)
        || spank_get_item(sp, S_JOB_LOCAL_TASK_COUNT, &n_tasks) != ESPANK_SUCCESS
        || box_join(s->pid, "user", CLONE_NEWUSER)
        || box_join(s->pid, "mnt", CLONE_NEWNS) || chdir("/"))
        return -1;
    if (++s->n_started == n_tasks)
        (void)kill(s->pid, SIGKILL); /* the last task is inside */
    return 0;
}

int slurm_spank_task_init(spank_t sp, int argc, char *argv[])
{
    struct flock lock = {.l_type = F_WRLCK};
    struct box_state s;
    int rc;

    if (box.shared_fd < 0 || argc < 1)
        return box.image[0] ? -1 : 0;
    if (fcntl(box.shared_fd, F_SETLKW, &lock)
        || pread(box.shared_fd, &s, sizeof(s), 0) != sizeof(s))
        return -1;
    rc = box_enter(sp, &s, argv[0]);
    if (pwrite(box.shared_fd, &s, sizeof(s), 0) != sizeof(s))
        rc = -1;
    lock.l_type = F_UNLCK;
    (void)fcntl(box.shared_fd, F_SETLK, &lock);
    return rc;
}
