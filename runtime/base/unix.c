/* SPDX-License-Identifier: Apache-2.0 */
/* The name is random, so that no other process can listen at it first. Nothing is in the
 * file system, and nothing remains after a crash. Called by control/join.c and, for
 * shared memory, backend/cpu/cpu.c and shm_join.c; the packets by world/membership.c and
 * launch/member_door.c. */
#include "runtime/base/unix.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

enum { LISTEN_BACKLOG = 1024 };
static const char prefix[] = "hvd-";

static socklen_t unix_make_addr(const char *name, struct sockaddr_un *ret)
{
    size_t n = strnlen(name, UNIX_NAME_BYTES - 1);

    *ret = (struct sockaddr_un){.sun_family = AF_UNIX}; /* sun_path[0] = 0: abstract */
    memcpy(ret->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static int unix_open(int type, int *ret_fd, struct err *err)
{
    *ret_fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return *ret_fd < 0 ? err_errno(err, errno, "cannot make a Unix socket") : 0;
}

static int unix_listen_as(int type, const char *name, int *ret_fd, struct err *err)
{
    CLEANUP(fd_close) int fd = -1;
    struct sockaddr_un sa;
    socklen_t len = unix_make_addr(name, &sa);
    int rc = unix_open(type, &fd, err);

    if (rc < 0)
        return rc;
    if (bind(fd, (const struct sockaddr *)&sa, len) < 0
        || listen(fd, LISTEN_BACKLOG) < 0)
        return err_errno(err, errno, "cannot listen on a Unix socket");
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int unix_listen_anywhere(int type,
                                int *ret_fd,
                                char ret_name[UNIX_NAME_BYTES],
                                struct err *err)
{
    char name[UNIX_NAME_BYTES];
    uint8_t raw[16];
    int rc = random_bytes(raw, sizeof(raw));

    if (rc < 0)
        return err_errno(err, -rc, "no random bytes from the system");
    memcpy(name, prefix, sizeof(prefix) - 1);
    hex_encode(raw, sizeof(raw), name + sizeof(prefix) - 1);
    rc = unix_listen_as(type, name, ret_fd, err);
    if (rc == 0)
        memcpy(ret_name, name, sizeof(name));
    return rc;
}

static int unix_connect_as(int type, const char *name, int *ret_fd, struct err *err)
{
    CLEANUP(fd_close) int fd = -1;
    struct sockaddr_un sa;
    socklen_t len = unix_make_addr(name, &sa);
    int rc = unix_open(type, &fd, err);

    if (rc < 0)
        return rc;
    if (connect(fd, (const struct sockaddr *)&sa, len) < 0)
        return err_errno(err, errno, "cannot connect to a Unix socket");
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int unix_listen_at(const char *name, int *ret_fd, struct err *err)
{
    return unix_listen_as(SOCK_STREAM, name, ret_fd, err);
}

int unix_listen(int *ret_fd, char ret_name[UNIX_NAME_BYTES], struct err *err)
{
    return unix_listen_anywhere(SOCK_STREAM, ret_fd, ret_name, err);
}

int unix_connect(const char *name, int *ret_fd, struct err *err)
{
    return unix_connect_as(SOCK_STREAM, name, ret_fd, err);
}

int unix_listen_packets(int *ret_fd, char ret_name[UNIX_NAME_BYTES], struct err *err)
{
    return unix_listen_anywhere(SOCK_SEQPACKET, ret_fd, ret_name, err);
}

int unix_connect_packets(const char *name, int *ret_fd, struct err *err)
{
    return unix_connect_as(SOCK_SEQPACKET, name, ret_fd, err);
}

int unix_read_peer(int fd, struct ucred *ret)
{
    socklen_t n = sizeof(*ret);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret, &n) < 0 ? -errno : 0;
}
