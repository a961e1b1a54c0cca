/* SPDX-License-Identifier: Apache-2.0 */
/* Whole reads and writes with a deadline, and files. Waits are poll(2) with an absolute
 * deadline, so an interrupted or short transfer never stretches it. Reading first and
 * polling on EAGAIN only would block on blocking descriptors, so each turn polls; this
 * is control traffic, a few calls a connection. Writes to sockets use MSG_NOSIGNAL: no
 * SIGPIPE in other people's processes. */
#include "runtime/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

void fd_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* Linux closes it whatever close() returns */
    *fd = -1;
}

void fd_close_from(int first)
{
    /* close_range is Linux 5.9; older kernels get the loop */
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0)
        return;
    for (int i = first; i < 65536; i++)
        (void)close(i);
}

void fd_close_others(int fd)
{
    for (int i = 0; i < fd; i++)
        (void)close(i);
    fd_close_from(fd + 1);
}

int fd_nonblock(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0)
        return -errno;
    return fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0
               ? -errno
               : 0;
}

int fd_cloexec(int fd)
{
    int flags = fcntl(fd, F_GETFD);

    if (flags < 0)
        return -errno;
    return fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0 ? -errno : 0;
}

int fd_wait(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, clock_left_ms(deadline_ns));

        if (n > 0)
            return p.revents & POLLNVAL ? -EBADF : p.revents;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0 && clock_left_ms(deadline_ns) == 0)
            return -ETIMEDOUT;
    }
}

int fd_read_full(int fd, void *p, size_t n, uint64_t deadline_ns)
{
    uint8_t *out = p;

    while (n) {
        int rc = fd_wait(fd, POLLIN, deadline_ns);

        if (rc < 0)
            return rc;
        ssize_t k = read(fd, out, n);
        if (k == 0)
            return -EPIPE;
        if (k > 0) {
            out += k;
            n -= (size_t)k;
        } else if (errno == ECONNRESET) {
            return -EPIPE;
        } else if (errno != EINTR && errno != EAGAIN) {
            return -errno;
        }
    }
    return 0;
}

int fd_write_full(int fd, const void *p, size_t n, uint64_t deadline_ns)
{
    const uint8_t *in = p;
    bool is_socket = true;

    while (n) {
        int rc = fd_wait(fd, POLLOUT, deadline_ns);

        if (rc < 0)
            return rc;
        /* MSG_DONTWAIT: a blocking socket with little room must not outlive the
         * deadline. */
        ssize_t k =
            is_socket ? send(fd, in, n, MSG_NOSIGNAL | MSG_DONTWAIT) : write(fd, in, n);
        if (k >= 0) {
            in += k;
            n -= (size_t)k;
        } else if (errno == ENOTSOCK) {
            is_socket = false;
        } else if (errno == ECONNRESET) {
            return -EPIPE;
        } else if (errno != EINTR && errno != EAGAIN) {
            return -errno;
        }
    }
    return 0;
}

int fd_read_file(
    const char *path, size_t max_bytes, char **ret_text, size_t *ret_n, struct err *err)
{
    CLEANUP(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    AUTOFREE char *text = NULL;
    size_t n = 0, cap = 0;

    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path);
    for (;;) {
        if (n + 1 >= cap) {
            size_t want = cap ? cap * 2 : 4096;
            char *p = mem_alloc(want);

            if (!p)
                return err_set(err, -ENOMEM, "out of memory for %s", path);
            if (text) { /* it may be a key: realloc would leave a copy */
                memcpy(p, text, n);
                mem_wipe(text, n);
            }
            mem_free(text);
            text = p;
            cap = want;
        }
        ssize_t k = read(fd, text + n, cap - n - 1);
        if (k == 0)
            break;
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_errno(err, errno, "cannot read %s", path);
        n += (size_t)k;
        if (n > max_bytes)
            return err_set(err, -EFBIG, "%s is larger than %zu bytes", path, max_bytes);
    }
    text[n] = '\0';
    *ret_text = TAKE(text);
    if (ret_n)
        *ret_n = n;
    return 0;
}

static int write_and_sync(int fd, const void *p, size_t n, mode_t mode)
{
    if (fchmod(fd, mode) < 0)
        return -errno;
    int rc = fd_write_full(fd, p, n, UINT64_MAX);
    if (rc)
        return rc;
    /* Some file systems (FUSE, /dev) do not support fsync. The rename is still
     * atomic there. */
    if (fsync(fd) < 0 && errno != EINVAL && errno != ENOSYS)
        return -errno;
    return 0;
}

int fd_write_file(
    const char *path, const void *p, size_t n, mode_t mode, struct err *err)
{
    size_t tmp_bytes = strlen(path) + 12;
    AUTOFREE char *tmp = mem_alloc(tmp_bytes);

    if (!tmp)
        return err_set(err, -ENOMEM, "out of memory for %s", path);
    (void)snprintf(tmp, tmp_bytes, "%s.XXXXXX", path); /* measured above */

    CLEANUP(fd_close) int fd = mkostemp(tmp, O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot create a temporary file for %s", path);
    int rc = write_and_sync(fd, p, n, mode);
    if (rc == 0 && rename(tmp, path) < 0)
        rc = -errno;
    if (rc) {
        (void)unlink(tmp); /* the failure is already reported */
        return err_errno(err, -rc, "cannot write %s", path);
    }
    return 0;
}
