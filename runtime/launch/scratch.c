/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks read the token from a file of mode 0600 in a folder of mode 0700, not from an
 * inherited descriptor: a training script that starts another one (subprocess closes
 * descriptors), or that is run twice by one shell script, would find the descriptor
 * closed or at its end. The folder is removed with the launcher, or by its guard if the
 * launcher is killed. If both are, as with their cgroup, the next start removes it: a
 * lock that no process holds shows that its owner is gone, in any PID namespace. In a
 * pod with a read-only root the first writable of several places is used. Called by
 * agent.c, remote_agent.c, horovodrun.c and local_job.c. */
#include "runtime/launch/scratch.h"

#include <dirent.h>
#include <linux/magic.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define NAME_PREFIX   "hvd-"
#define SHARED_MEMORY "/dev/shm"
#define NAME_BYTES    6 /* random, printed as hex */
#define LOCK_NAME     ".lock"

/* The name is set before the folder is created, because the guard must know the name
 * when the folder exists. */
static bool scratch_make_in(struct scratch_folder *s, const char *parent)
{
    uint8_t bytes[NAME_BYTES];
    char hex[2 * sizeof(bytes) + 1];
    if (!*parent || random_bytes(bytes, sizeof(bytes)) < 0)
        return false;
    hex_encode(bytes, sizeof(bytes), hex);
    int n = snprintf(s->dir, sizeof(s->dir), "%s/" NAME_PREFIX "%s", parent, hex);
    if (n < 0 || (size_t)n >= sizeof(s->dir))
        return false;
    (void)snprintf(s->token_file, sizeof(s->token_file), "%s/token", s->dir);
    (void)snprintf(s->hostfile, sizeof(s->hostfile), "%s/hostfile", s->dir);
    return mkdir(s->dir, 0700) == 0;
}

/* False for an incomplete name: the guard may read it while it is being written. */
static bool scratch_is_named(const char *dir)
{
    const char *name = strrchr(dir, '/');
    return name && !strncmp(name + 1, NAME_PREFIX, strlen(NAME_PREFIX))
           && strlen(name + 1) == strlen(NAME_PREFIX) + 2 * NAME_BYTES;
}

int scratch_share(struct scratch_folder **ret, struct err *err)
{
    void *p = mmap(NULL, sizeof(**ret), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_errno(err, errno, "memory to share with the guard process");
    *ret = p;
    return 0;
}

void scratch_unshare(struct scratch_folder *s)
{
    if (s)
        (void)munmap(s, sizeof(*s));
}

/* For scratch_sweep. The descriptor stays open until the process ends. The file gets its
 * name when it is locked. Without a lock the folder is never swept. */
static void scratch_lock(const char *dir)
{
    char path[CONTRACT_PATH_MAX], new_path[CONTRACT_PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/" LOCK_NAME, dir);
    (void)snprintf(new_path, sizeof(new_path), "%s/" LOCK_NAME ".new", dir);
    int fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || rename(new_path, path) < 0) {
        (void)unlink(new_path);
        fd_close(&fd);
    }
}

static bool path_is_in_memory(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

static void scratch_make_stats(struct scratch_folder *s)
{
    if (!path_is_in_memory(s->dir) && path_is_in_memory(SHARED_MEMORY)) {
        (void)snprintf(s->stats_dir, sizeof(s->stats_dir), SHARED_MEMORY "%s",
                       strrchr(s->dir, '/'));
        if (mkdir(s->stats_dir, 0700) == 0) {
            scratch_lock(s->stats_dir);
            return;
        }
    }
    memcpy(s->stats_dir, s->dir, sizeof(s->dir));
}

static void scratch_visit_in(const char *parent,
                             void (*visit)(void *arg, const char *dir),
                             void *arg)
{
    DIR *d = *parent ? opendir(parent) : NULL;
    const struct dirent *entry;
    while (d && (entry = readdir(d)) != NULL) {
        struct scratch_folder s;
        struct stat st;
        int n = snprintf(s.dir, sizeof(s.dir), "%s/%s", parent, entry->d_name);
        if (n > 0 && (size_t)n < sizeof(s.dir) && scratch_is_named(s.dir)
            && lstat(s.dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid())
            visit(arg, s.dir);
    }
    if (d)
        (void)closedir(d);
}

void scratch_visit(void (*visit)(void *arg, const char *dir), void *arg)
{
    const char *tmp = getenv("TMPDIR");
    const char *places[] = {tmp ? tmp : "", "/tmp", SHARED_MEMORY};
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (i == 0 || strcmp(places[i], places[0]) != 0)
            scratch_visit_in(places[i], visit, arg);
}

/* Removes all files: token, hostfile, their temporary files, and the ranks' pages of
 * counters. */
static void scratch_remove_files(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *entry;
    while (d && (entry = readdir(d)) != NULL)
        (void)unlinkat(dirfd(d), entry->d_name, 0); /* folders are not removed */
    if (d)
        (void)closedir(d);
}

/* Removes the folder if its owner has gone. */
static void scratch_sweep(void *arg, const char *dir)
{
    char path[CONTRACT_PATH_MAX];

    (void)arg;
    (void)snprintf(path, sizeof(path), "%s/" LOCK_NAME, dir);
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        scratch_remove_files(dir);
        (void)rmdir(dir);
    }
    fd_close(&fd);
}

int scratch_make(struct scratch_folder *s, const char *extra_dir, struct err *err)
{
    const char *tmp = getenv("TMPDIR");
    const char *places[] = {tmp ? tmp : "", "/tmp", SHARED_MEMORY, extra_dir};
    memset(s, 0, sizeof(*s));
    scratch_visit(scratch_sweep, NULL);
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (scratch_make_in(s, places[i])) {
            scratch_lock(s->dir);
            scratch_make_stats(s);
            return 0;
        }
    s->dir[0] = '\0';
    return err_set(
        err, -EROFS,
        "no writable folder for the hostfile among $TMPDIR (%s), /tmp, /dev/shm%s%s; "
        "in a pod with a read-only root mount an emptyDir at /tmp",
        tmp ? tmp : "not set", *extra_dir ? ", " : "", extra_dir);
}

int scratch_write(const struct scratch_folder *s,
                  const struct token *token,
                  const struct hostlist *hosts,
                  struct err *err)
{
    struct strbuf text;
    strbuf_init(&text, 64u << 20);
    hostlist_render_hostfile(hosts, &text);
    int rc = strbuf_status(&text);
    if (rc < 0)
        rc = err_set(err, rc, "out of memory for a hostfile of %zu hosts", hosts->n);
    else
        rc = fd_write_file(s->hostfile, strbuf_str(&text), text.n, 0644, err);
    strbuf_release(&text);
    return rc < 0 ? rc : token_write_file(s->token_file, token, err);
}

void scratch_remove(const struct scratch_folder *s)
{
    const char *const dirs[] = {s->dir, s->stats_dir};
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (scratch_is_named(dirs[i])) {
            scratch_remove_files(dirs[i]);
            (void)rmdir(dirs[i]); /* a second time if both are one */
        }
}
