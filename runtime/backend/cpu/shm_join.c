/* SPDX-License-Identifier: Apache-2.0 */
/* Creating, passing and mapping the shared segment.
 *
 *   follower                                  leader (lowest rank of the host)
 *   connect to abstract socket          ->    accept; SO_PEERCRED: same user
 *   SO_PEERCRED: same user
 *   auth_client(ROLE_SHM)              <-->   auth_server(ROLE_SHM)
 *   "my rank"                           ->    a candidate, and not twice
 *                                       <-    the memfd by SCM_RIGHTS
 *   map, lock own byte, "done"          ->    ok[line]
 *
 * The segment is an unnamed memfd of fixed size (sealed against resizing, so that no
 * peer can make our access fault): nothing is in /dev/shm, nothing remains after a
 * crash.
 *
 * Liveness: every member holds a POSIX record lock on byte `line` of the memfd. Such a
 * lock belongs to the process, is dropped by the kernel when it exits, and is not
 * inherited by fork, unlike an open socket (a DataLoader worker would keep a dead
 * rank's connection open). For the same reason the process must not close another
 * descriptor of this memfd: that would drop the lock.
 *
 * Called by group.c. */
#include "runtime/backend/cpu/shm_join.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/backend/cpu/shm.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

/* From <linux/memfd.h> and <fcntl.h>; older C libraries lack them. */
#define MFD_CLOEXEC_       1u
#define MFD_ALLOW_SEALING_ 2u
#define F_ADD_SEALS_       1033
#define SEALS_RESIZE       (1 | 2 | 4) /* SEAL, SHRINK, GROW */

#define AUTH_SLICE_NS                                                                  \
    (5 * NS_PER_S) /* bound for one connection, so that it does not block later ones */

void shm_map_release(struct shm_map *m)
{
    if (m->mem)
        munmap(m->mem, m->n_bytes);
    fd_close(&m->fd);
    *m = (struct shm_map){.fd = -1};
}

static socklen_t abstract_addr(const char *name, struct sockaddr_un *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->sun_family = AF_UNIX;
    size_t n = strnlen(name, sizeof(ret->sun_path) - 1);
    memcpy(ret->sun_path + 1, name, n); /* sun_path[0] stays NUL: abstract */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

int shm_listen(int *ret_fd, char *ret_name, size_t name_bytes, struct err *err)
{
    uint8_t rnd[16];
    char hex[2 * sizeof(rnd) + 1];
    int rc = random_bytes(rnd, sizeof(rnd));
    if (rc < 0)
        return err_errno(err, -rc, "random bytes");
    hex_encode(rnd, sizeof(rnd), hex);
    snprintf(ret_name, name_bytes, "ringmaster-%s", hex);
    CLEANUP(fd_close)
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "Unix socket");
    struct sockaddr_un sa;
    socklen_t n = abstract_addr(ret_name, &sa);
    if (bind(fd, (const struct sockaddr *)&sa, n) != 0)
        return err_errno(err, errno, "bind abstract Unix socket");
    if (listen(fd, SHM_MAX_RANKS) != 0)
        return err_errno(err, errno, "listen on abstract Unix socket");
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int check_user(int fd, struct err *err)
{
    struct ucred c;
    socklen_t n = sizeof(c);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) != 0)
        return err_errno(err, errno, "SO_PEERCRED");
    if (c.uid != geteuid())
        return err_set(
            err, -EACCES,
            "shared memory: the peer runs as user %u, this process as user %u",
            (unsigned)c.uid, (unsigned)geteuid());
    return 0;
}

static int lock_line(int fd, uint32_t line)
{
    struct flock l = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)line, .l_len = 1};
    return fcntl(fd, F_SETLK, &l) == 0 ? 0 : -errno;
}

bool shm_is_alive(const struct shm_map *m, uint32_t line)
{
    struct flock l = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)line, .l_len = 1};
    return fcntl(m->fd, F_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

static int
map_fd(int fd, size_t n_bytes, uint32_t line, struct shm_map *ret, struct err *err)
{
    void *mem = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mem == MAP_FAILED)
        return err_errno(err, errno, "map %zu bytes of shared memory", n_bytes);
    int rc = lock_line(fd, line);
    if (rc < 0) {
        munmap(mem, n_bytes);
        return err_errno(err, -rc, "lock byte %u of the shared segment", line);
    }
    *ret = (struct shm_map){.fd = fd, .mem = mem, .n_bytes = n_bytes};
    return 0;
}

static int make_segment(const struct shm_join *j, struct shm_map *ret, struct err *err)
{
    uint32_t small, slot;
    size_t n_bytes = shm_size(j->n, j->max_bytes, &small, &slot);
    CLEANUP(fd_close)
    int fd =
        (int)syscall(SYS_memfd_create, "ringmaster", MFD_CLOEXEC_ | MFD_ALLOW_SEALING_);
    if (fd < 0)
        return err_errno(err, errno, "memfd_create");
    if (ftruncate(fd, (off_t)n_bytes) != 0)
        return err_errno(err, errno, "shared segment of %zu bytes", n_bytes);
    if (fcntl(fd, F_ADD_SEALS_, SEALS_RESIZE) != 0)
        return err_errno(err, errno, "seal the shared segment");
    int rc = map_fd(fd, n_bytes, j->line, ret, err);
    if (rc < 0)
        return rc;
    fd = -1;
    shm_format(ret->mem, j->n, j->max_bytes);
    return 0;
}

static int send_fd(int sock, int fd, uint64_t deadline_ns)
{
    char byte = 'M';
    struct iovec iov = {&byte, 1};
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } u;
    memset(&u, 0, sizeof(u));
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = u.buf,
                       .msg_controllen = sizeof(u.buf)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    for (;;) {
        if (sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
            return 0;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int rc = fd_wait(sock, POLLOUT, deadline_ns);
        if (rc < 0)
            return rc;
    }
}

static int receive_fd(int sock, uint64_t deadline_ns, int *ret_fd)
{
    char byte;
    struct iovec iov = {&byte, 1};
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } u;
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = u.buf,
                       .msg_controllen = sizeof(u.buf)};
    for (;;) {
        ssize_t n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n == 0)
            return -EPIPE;
        if (n > 0)
            break;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int rc = fd_wait(sock, POLLIN, deadline_ns);
        if (rc < 0)
            return rc;
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS
        || c->cmsg_len != CMSG_LEN(sizeof(int)))
        return -EPROTO;
    memcpy(ret_fd, CMSG_DATA(c), sizeof(*ret_fd));
    return 0;
}

static uint64_t join_wait_slice(uint64_t deadline_ns)
{
    uint64_t end = clock_now_ns() + AUTH_SLICE_NS;
    return end < deadline_ns ? end : deadline_ns;
}

/* Serves one accepted connection; *ret_line is its member. */
static int serve_one(const struct shm_join *j,
                     int sock,
                     const struct shm_map *m,
                     const bool *has_it,
                     uint32_t *ret_line,
                     struct err *err)
{
    uint64_t until = join_wait_slice(j->deadline_ns);
    int rc = check_user(sock, err);
    if (rc == 0)
        rc = auth_server(sock, j->id, ROLE_SHM, ROLE_SHM, until, NULL, err);
    if (rc < 0)
        return rc;
    uint32_t rank, line = 0;
    rc = fd_read_full(sock, &rank, sizeof(rank), until);
    if (rc < 0)
        return err_errno(err, -rc, "shared memory handshake");
    while (line < j->n && j->ranks[line] != rank)
        line++;
    if (line == j->n || has_it[line])
        return err_set(err, -EPROTO, "shared memory: rank %u is not expected", rank);
    char done = 0;
    rc = send_fd(sock, m->fd, until);
    if (rc == 0)
        rc = fd_read_full(sock, &done, 1, until);
    if (rc < 0 || done != 'D')
        return err_errno(err, rc < 0 ? -rc : EPROTO, "shared memory: rank %u", rank);
    *ret_line = line;
    return 0;
}

/* -ETIMEDOUT: no connection before the deadline. */
static int
next_follower(const struct shm_join *j, int listen_fd, int *ret_sock, struct err *err)
{
    for (;;) {
        uint64_t now = clock_now_ns();
        int rc = j->w->check(j->w->arg, j->rank, err);
        if (rc < 0)
            return rc;
        if (now >= j->deadline_ns)
            return -ETIMEDOUT;
        *ret_sock = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (*ret_sock >= 0)
            return 0;
        (void)fd_wait(listen_fd, POLLIN, now + WAIT_SLICE_NS); /* then check again */
    }
}

int shm_join_lead(const struct shm_join *j,
                  int listen_fd,
                  struct shm_map *ret,
                  bool *ret_ok,
                  struct err *err)
{
    struct shm_map m = {.fd = -1};
    int rc = make_segment(j, &m, err);
    if (rc < 0)
        return rc;
    memset(ret_ok, 0, j->n * sizeof(*ret_ok));
    ret_ok[j->line] = true;
    /* a refused follower does not try again, so each connection counts */
    for (uint32_t n_seen = 1; n_seen < j->n; n_seen++) {
        CLEANUP(fd_close) int sock = -1;
        rc = next_follower(j, listen_fd, &sock, err);
        if (rc == -ETIMEDOUT) {
            log_warn("some ranks of this host did not join shared memory, they use TCP",
                     "leader=%u joined=%u expected=%u", j->rank, n_seen, j->n);
            break;
        }
        if (rc < 0) {
            shm_map_release(&m);
            return rc;
        }
        struct err why = ERR_INIT;
        uint32_t line = 0;
        if (serve_one(j, sock, &m, ret_ok, &line, &why) == 0) {
            ret_ok[line] = true;
        } else {
            log_warn("shared memory handshake refused", "cause=\"%s\"", why.text);
        }
    }
    *ret = m;
    return 0;
}

/* fd is taken over on success. */
static int
take_segment(const struct shm_join *j, int fd, struct shm_map *ret, struct err *err)
{
    uint32_t small, slot;
    size_t n_bytes = shm_size(j->n, j->max_bytes, &small, &slot);
    off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0 || (size_t)size != n_bytes)
        return err_set(err, -EPROTO, "shared segment has %lld bytes, expected %zu",
                       (long long)size, n_bytes);
    return map_fd(fd, n_bytes, j->line, ret, err);
}

int shm_join_follow(const struct shm_join *j,
                    const char *name,
                    struct shm_map *ret,
                    struct err *err)
{
    CLEANUP(fd_close) int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock < 0)
        return err_errno(err, errno, "Unix socket");
    struct sockaddr_un sa;
    socklen_t n = abstract_addr(name, &sa);
    if (connect(sock, (const struct sockaddr *)&sa, n) != 0)
        return err_errno(err, errno, "connect to rank %u's Unix socket", j->ranks[0]);
    (void)fd_nonblock(sock, true); /* only the deadlines require it */
    int rc = check_user(sock, err);
    if (rc == 0)
        rc = auth_client(sock, j->id, ROLE_SHM, ROLE_SHM, j->deadline_ns, NULL, err);
    if (rc < 0)
        return rc;
    CLEANUP(fd_close) int fd = -1;
    rc = fd_write_full(sock, &j->rank, sizeof(j->rank), j->deadline_ns);
    if (rc == 0)
        rc = receive_fd(sock, j->deadline_ns, &fd);
    if (rc < 0)
        return err_errno(err, -rc, "shared segment from rank %u", j->ranks[0]);
    struct shm_map m = {.fd = -1};
    rc = take_segment(j, fd, &m, err);
    if (rc < 0)
        return rc;
    fd = -1;
    rc = fd_write_full(sock, "D", 1, j->deadline_ns);
    if (rc < 0) {
        shm_map_release(&m);
        return err_errno(err, -rc, "shared memory handshake with rank %u", j->ranks[0]);
    }
    *ret = m;
    return 0;
}
