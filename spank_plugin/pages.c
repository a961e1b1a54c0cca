/* SPDX-License-Identifier: Apache-2.0 */
/* In /dev/shm and the user's own, not in /run: ranks write there as long as they run, and
 * what they write counts as their memory. Made by the task and not before it, because only
 * a task is sure to see the /dev/shm of a job container. /dev/shm is sticky, so no other
 * user can replace the folder; a folder that another user made first is recognised by its
 * owner. Root removes through a descriptor of the user's own folder, in which the user
 * could remove the same files; it leaves a folder on which the user has mounted
 * something. */
#include "spank_plugin/pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/contract/step_pages.h"

#define PAGES_PATH_MAX 128
#define PAGES_FILES    (1u << 20) /* that root removes at most */
#define PAGES_WRITE_NS (10 * NS_PER_S)

static void pages_path(const char *name, char ret[PAGES_PATH_MAX])
{
    (void)snprintf(ret, PAGES_PATH_MAX, STEP_PAGES_PATH "%s", name);
}

/* What the kernel knows, without a question to a file system. False: it fails. */
static bool pages_stat(int fd, struct statx *ret)
{
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_UID,
                 ret)
           == 0;
}

/* -1 if it is missing, not a folder of this user, or not in /dev/shm: a user can mount
 * a file system of his own (FUSE) on the folder, whose program answers when it likes.
 * O_PATH does not ask it, and "." then is the folder that was looked at. */
static int pages_open(const char *path, uid_t uid)
{
    const int flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    CLEANUP(fd_close)
    int shm = open(STEP_PAGES_PARENT, O_PATH | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(fd_close) int found = open(path, O_PATH | flags);
    struct statx own, st;

    if (shm < 0 || found < 0 || !pages_stat(shm, &own) || !pages_stat(found, &st))
        return -1;
    if (st.stx_uid != uid || st.stx_dev_major != own.stx_dev_major
        || st.stx_dev_minor != own.stx_dev_minor) {
        errno = EPERM;
        return -1;
    }
    return openat(found, ".", O_RDONLY | flags);
}

static int pages_write_task(int dir_fd,
                            const char *path,
                            const struct place *place,
                            const char *stats_dir,
                            struct err *err)
{
    char name[32], text[CONTRACT_PATH_MAX + 32];
    int n = snprintf(text, sizeof(text), "%ld %u %s\n", (long)getpid(), place->size,
                     stats_dir);
    int rc;

    (void)snprintf(name, sizeof(name), STEP_TASK_PREFIX "%u", place->rank);
    CLEANUP(fd_close)
    int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                    0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot make %s/%s", path, name);
    rc = fd_write_full(fd, text, (size_t)n, clock_now_ns() + PAGES_WRITE_NS);
    return rc < 0 ? err_errno(err, -rc, "cannot write %s/%s", path, name) : 0;
}

int pages_make(const char *name,
               const struct place *place,
               const char *set,
               char *ret_dir,
               size_t size_bytes,
               struct err *err)
{
    char path[PAGES_PATH_MAX];
    CLEANUP(fd_close) int fd = -1;
    int rc;

    pages_path(name, path);
    /* an outer step's is not this one's */
    if (!set || *set != '/' || strlen(set) >= CONTRACT_PATH_MAX || strchr(set, '\n')
        || strncmp(set, STEP_PAGES_PATH, strlen(STEP_PAGES_PATH)) == 0)
        set = path;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make %s", path);
    fd = pages_open(path, geteuid());
    if (fd < 0)
        return err_errno(err, errno, "cannot use %s", path);
    rc = pages_write_task(fd, path, place, set, err);
    if (rc < 0)
        return rc;
    (void)snprintf(ret_dir, size_bytes, "%s", set);
    return 0;
}

void pages_remove(const char *name, uid_t uid)
{
    char path[PAGES_PATH_MAX];
    const struct dirent *entry;
    int fd;
    DIR *d;

    pages_path(name, path);
    fd = pages_open(path, uid);
    if (fd < 0)
        return;
    d = fdopendir(fd);
    if (!d) {
        fd_close(&fd);
        return;
    }
    for (uint32_t i = 0; i < PAGES_FILES && (entry = readdir(d)) != NULL; i++)
        (void)unlinkat(fd, entry->d_name, 0); /* a folder stays */
    (void)closedir(d);
    (void)rmdir(path); /* fails if something has stayed */
}
