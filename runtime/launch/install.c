/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent install DEST: copies the runtime into a pod whose image does not contain
 * it. Runs as an init container, as any user, in an image without libc or shell, and
 * writes to an emptyDir. Every file is written under a temporary name and renamed,
 * so that a reader sees the old or the new file, and a second run (a restarted init
 * container) changes nothing. Modes are kept, owners are not. Called by
 * agent_main.c. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/agent.h"
#include "runtime/launch/self.h"

#define MAX_DEPTH  32
#define COPY_BYTES (256u << 10)

static int install_copy_bytes(
    int from, int to, const char *path, struct install_result *ret, struct err *err)
{
    AUTOFREE char *buf = mem_alloc(COPY_BYTES);
    if (!buf)
        return err_set(err, -ENOMEM, "out of memory");
    for (;;) {
        ssize_t n = read(from, buf, COPY_BYTES);
        if (n == 0)
            return 0;
        if (n < 0)
            return err_errno(err, errno, "cannot read %s", path);
        int rc = fd_write_full(to, buf, (size_t)n, clock_now_ns() + 600 * NS_PER_S);
        if (rc < 0)
            return err_errno(err, -rc, "cannot write %s", path);
        ret->bytes += (unsigned long long)n;
    }
}

static int install_copy_file(int from_dir,
                             int to_dir,
                             const char *name,
                             const struct stat *st,
                             struct install_result *ret,
                             struct err *err)
{
    char temporary[NAME_MAX + 32];
    CLEANUP(fd_close)
    int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (from < 0)
        return err_errno(err, errno, "cannot open %s", name);
    (void)snprintf(temporary, sizeof(temporary), ".%s.%d", name, (int)getpid());
    CLEANUP(fd_close)
    int to = openat(to_dir, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (to < 0)
        return err_errno(err, errno, "cannot create %s", temporary);
    int rc = install_copy_bytes(from, to, name, ret, err);
    if (rc == 0 && fchmod(to, st->st_mode & 07777) < 0)
        rc = err_errno(err, errno, "cannot set the mode of %s", name);
    if (rc == 0 && renameat(to_dir, temporary, to_dir, name) < 0)
        rc = err_errno(err, errno, "cannot put %s in its place", name);
    if (rc < 0)
        (void)unlinkat(to_dir, temporary, 0);
    else
        ret->files++;
    return rc;
}

static int install_copy_link(int from_dir,
                             int to_dir,
                             const char *name,
                             struct install_result *ret,
                             struct err *err)
{
    char target[PATH_MAX], temporary[NAME_MAX + 32];
    ssize_t n = readlinkat(from_dir, name, target, sizeof(target) - 1);
    if (n < 0)
        return err_errno(err, errno, "cannot read the link %s", name);
    target[n] = '\0';
    (void)snprintf(temporary, sizeof(temporary), ".%s.%d", name, (int)getpid());
    (void)unlinkat(to_dir, temporary, 0); /* of an earlier process with this pid */
    if (symlinkat(target, to_dir, temporary) < 0
        || renameat(to_dir, temporary, to_dir, name) < 0)
        return err_errno(err, errno, "cannot create the link %s", name);
    ret->files++;
    return 0;
}

static int install_copy_tree(
    int from_dir, int to_dir, int depth, struct install_result *ret, struct err *err);

static int install_copy_folder(int from_dir,
                               int to_dir,
                               const char *name,
                               const struct stat *st,
                               int depth,
                               struct install_result *ret,
                               struct err *err)
{
    /* writable while it is filled, whatever its final mode is */
    if (mkdirat(to_dir, name, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot create the folder %s", name);
    CLEANUP(fd_close)
    int from = openat(from_dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    CLEANUP(fd_close)
    int to = openat(to_dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (from < 0 || to < 0)
        return err_errno(err, errno, "cannot open the folder %s", name);
    int rc = install_copy_tree(from, to, depth + 1, ret, err);
    if (rc == 0 && fchmod(to, st->st_mode & 07777) < 0)
        rc = err_errno(err, errno, "cannot set the mode of the folder %s", name);
    return rc;
}

static int install_copy_entry(int from_dir,
                              int to_dir,
                              const char *name,
                              int depth,
                              struct install_result *ret,
                              struct err *err)
{
    struct stat st;
    if (fstatat(from_dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, errno, "cannot read the mode of %s", name);
    if (S_ISREG(st.st_mode))
        return install_copy_file(from_dir, to_dir, name, &st, ret, err);
    if (S_ISLNK(st.st_mode))
        return install_copy_link(from_dir, to_dir, name, ret, err);
    if (S_ISDIR(st.st_mode))
        return install_copy_folder(from_dir, to_dir, name, &st, depth, ret, err);
    return err_set(err, -EINVAL, "%s is neither file, folder nor link", name);
}

/* The caller keeps the descriptors. */
static int install_copy_tree(
    int from_dir, int to_dir, int depth, struct install_result *ret, struct err *err)
{
    if (depth > MAX_DEPTH)
        return err_set(err, -ELOOP, "folders are nested deeper than %d", MAX_DEPTH);
    int own = dup(from_dir);
    DIR *d = own < 0 ? NULL : fdopendir(own);
    if (!d) {
        int saved = errno;
        fd_close(&own);
        return err_errno(err, saved, "cannot list a folder");
    }
    int rc = 0;
    struct dirent *e;
    while (rc == 0 && (e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = install_copy_entry(from_dir, to_dir, e->d_name, depth, ret, err);
    (void)closedir(d);
    return rc;
}

/* A copy into the copied folder would never end. */
static int install_check_apart(const char *from, const char *dest, struct err *err)
{
    char a[PATH_MAX], b[PATH_MAX];
    if (!realpath(from, a) || !realpath(dest, b))
        return err_errno(err, errno, "cannot find %s or %s", from, dest);
    size_t n = strlen(a);
    if (!strncmp(a, b, n) && (b[n] == '/' || b[n] == '\0' || n == 1))
        return err_set(err, -EINVAL, "%s is inside %s, which is to be copied", dest,
                       from);
    return 0;
}

int install_tree(const char *from,
                 const char *dest,
                 struct install_result *ret,
                 struct err *err)
{
    struct install_result result = {0};
    if (mkdir(dest, 0755) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot create %s", dest);
    int rc = install_check_apart(from, dest, err);
    if (rc < 0)
        return rc;
    CLEANUP(fd_close) int from_fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(fd_close) int to_fd = open(dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from_fd < 0 || to_fd < 0)
        return err_errno(err, errno, "cannot open the folder %s",
                         from_fd < 0 ? from : dest);
    rc = install_copy_tree(from_fd, to_fd, 0, &result, err);
    if (rc < 0)
        return rc;
    *ret = result;
    return 0;
}

int agent_install(const char *dest)
{
    struct err err = ERR_INIT;
    struct install_result result = {0};
    char from[PATH_MAX];
    uint64_t start = clock_now_ns();
    if (self_tree(from, sizeof(from), &err) < 0
        || install_tree(from, dest, &result, &err) < 0) {
        fprintf(stderr, "hvd-agent: install to %s failed: %s\n", dest, err.text);
        return 1;
    }
    printf("hvd-agent: installed %s to %s: %llu files, %llu bytes in %llu ms\n", from,
           dest, result.files, result.bytes,
           (unsigned long long)((clock_now_ns() - start) / NS_PER_MS));
    return 0;
}
