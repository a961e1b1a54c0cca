/* SPDX-License-Identifier: Apache-2.0 */
/* LD_PRELOAD: a network that changes data. One bit of what the process receives over
 * sockets is flipped, in the middle of the first part of at least 16 KiB that arrives
 * once the file $FLIP_WHEN exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static atomic_flag is_done = ATOMIC_FLAG_INIT;

static void bytes_flip(unsigned char *p, size_t n)
{
    const char *when = getenv("FLIP_WHEN");

    if (n >= 16384 && when && access(when, F_OK) == 0
        && !atomic_flag_test_and_set(&is_done))
        p[n / 2 / 64 * 64] ^= 0x10;
}

ssize_t recv(int fd, void *p, size_t n, int flags)
{
    ssize_t (*real)(int, void *, size_t, int) =
        (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
    ssize_t got = real(fd, p, n, flags);

    if (got > 0)
        bytes_flip(p, (size_t)got);
    return got;
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    ssize_t (*real)(int, struct msghdr *, int) =
        (ssize_t(*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");
    ssize_t got = real(fd, m, flags), left = got;

    for (size_t i = 0; i < m->msg_iovlen && left > 0; i++) {
        size_t n = m->msg_iov[i].iov_len;

        n = n < (size_t)left ? n : (size_t)left;
        bytes_flip(m->msg_iov[i].iov_base, n);
        left -= (ssize_t)n;
    }
    return got;
}
