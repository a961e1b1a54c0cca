/* SPDX-License-Identifier: Apache-2.0 */
/* Creating, passing and mapping the shared segment.
 *
 *   follower                                  leader (lowest rank of the host)
 *   connect to abstract socket          ->    a stranger
 *   auth_client(ROLE_SHM, rank)        <-->   acceptor: a candidate, and not twice
 *   SO_PEERCRED: same user                    SO_PEERCRED: same user
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
#include <unistd.h>

#include "runtime/backend/cpu/shm.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/unix.h"
#include "runtime/wire/accept.h"

/* From <linux/memfd.h> and <fcntl.h>; older C libraries lack them. */
#define MFD_CLOEXEC_       1u
#define MFD_ALLOW_SEALING_ 2u
#define F_ADD_SEALS_       1033
#define SEALS_RESIZE       (1 | 2 | 4) /* SEAL, SHRINK, GROW */

#define RETRY_MS           10
/* Followers that the leader serves at a time, so that a host of many ranks does not cost
 * its leader as many connections. More wait in the kernel's queue. */
#define ROOM               8u

void shm_map_release(struct shm_map *m)
{
    if (m->mem)
        munmap(m->mem, m->n_bytes);
    fd_close(&m->fd);
    *m = (struct shm_map){.fd = -1};
}

static int check_user(int fd, struct err *err)
{
    struct ucred c;
    int rc = unix_read_peer(fd, &c);
    if (rc < 0)
        return err_errno(err, -rc, "SO_PEERCRED");
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

/* The buffer of a new socket has room for it. */
static int send_fd(int sock, int fd)
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
    if (sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return -errno;
    return 0;
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

/* --- the leader --- */

struct leading {
    const struct shm_join *j;
    int segment_fd;
    int *socks;       /* [n] followers that have not answered "done" yet; -1: none */
    bool *is_settled; /* [n] it has the segment or failed */
    bool *ok;         /* [n] */
    uint32_t n_left;  /* not settled */
};

static void shm_settle(struct leading *l, uint32_t line, bool ok)
{
    fd_close(&l->socks[line]);
    l->is_settled[line] = true;
    l->ok[line] = ok;
    l->n_left--;
}

static int shm_serve_follower(struct leading *l, uint32_t line, struct err *err)
{
    int rc = check_user(l->socks[line], err);
    if (rc == 0 && (rc = send_fd(l->socks[line], l->segment_fd)) < 0)
        (void)err_errno(err, -rc, "passing the segment to rank %u", l->j->ranks[line]);
    return rc;
}

static void shm_admit_follower(void *arg, const struct admitted *m)
{
    struct leading *l = arg;
    struct err why = ERR_INIT;
    uint32_t line = 0;
    int fd = m->fd;
    while (line < l->j->n && l->j->ranks[line] != m->number)
        line++;
    if (line == l->j->n || l->is_settled[line] || l->socks[line] >= 0) {
        log_warn("shared memory handshake refused", "cause=\"rank %u is not expected\"",
                 m->number);
        fd_close(&fd);
        return;
    }
    l->socks[line] = fd;
    if (shm_serve_follower(l, line, &why) == 0)
        return;
    log_warn("shared memory handshake refused", "cause=\"%s\"", why.text);
    shm_settle(l, line, false);
}

static void shm_read_done(struct leading *l, uint32_t line)
{
    char done = 0;
    ssize_t n = read(l->socks[line], &done, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != 1 || done != 'D')
        log_warn("shared memory handshake refused",
                 "cause=\"rank %u did not map the segment\"", l->j->ranks[line]);
    shm_settle(l, line, n == 1 && done == 'D');
}

static void shm_lead_once(struct leading *l, struct acceptor *a, struct pollfd *p)
{
    uint64_t due = earlier_ns(clock_now_ns() + WAIT_SLICE_NS, door_next_ns(a->door));
    uint32_t n = l->j->n, n_busy = 0;
    for (uint32_t i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = l->socks[i], .events = POLLIN};
    p[n] = (struct pollfd){.fd = door_fd(a->door), .events = POLLIN};
    (void)poll(p, n + 1, clock_left_ms(earlier_ns(due, l->j->deadline_ns)));
    for (uint32_t i = 0; i < n; i++)
        if (l->socks[i] >= 0 && p[i].revents)
            shm_read_done(l, i);
    for (uint32_t i = 0; i < n; i++)
        n_busy += l->socks[i] >= 0;
    door_set_room(a->door, n_busy < ROOM ? ROOM - n_busy : 1);
    acceptor_serve(a, l->j->id, shm_admit_follower, l);
}

/* Passes the segment until all followers are settled or the deadline has passed. */
static int shm_lead_all(struct leading *l, int listen_fd, struct err *err)
{
    static const struct accept_kind kind = {
        .name = "shared memory", .mine = ROLE_SHM, .theirs = ROLE_SHM};
    const struct shm_join *j = l->j;
    CLEANUP(acceptor_close) struct acceptor acceptor = {0};
    AUTOFREE struct pollfd *p = mem_calloc(j->n + 1u, sizeof(*p));
    int rc = p ? acceptor_open(&acceptor, &kind, err) : -ENOMEM;
    if (rc == 0)
        rc = door_listen(acceptor.door, listen_fd, true, err);
    while (rc == 0 && l->n_left > 0 && clock_now_ns() < j->deadline_ns) {
        shm_lead_once(l, &acceptor, p);
        rc = j->w->check(j->w->arg, j->rank, err);
    }
    if (rc == 0 && l->n_left > 0)
        log_warn("some ranks of this host did not join shared memory, they use TCP",
                 "leader=%u missing=%u of=%u", j->rank, l->n_left, j->n);
    for (uint32_t i = 0; i < j->n; i++)
        fd_close(&l->socks[i]);
    return rc;
}

int shm_join_lead(const struct shm_join *j,
                  int listen_fd,
                  struct shm_map *ret,
                  bool *ret_ok,
                  struct err *err)
{
    struct shm_map m = {.fd = -1};
    AUTOFREE int *socks = mem_calloc(j->n, sizeof(*socks));
    AUTOFREE bool *is_settled = mem_calloc(j->n, sizeof(*is_settled));
    struct leading l = {.j = j,
                        .socks = socks,
                        .is_settled = is_settled,
                        .ok = ret_ok,
                        .n_left = j->n - 1};
    int rc = socks && is_settled ? make_segment(j, &m, err)
                                 : err_set(err, -ENOMEM, "no memory");
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < j->n; i++) {
        socks[i] = -1;
        ret_ok[i] = i == j->line;
    }
    is_settled[j->line] = true;
    l.segment_fd = m.fd;
    rc = shm_lead_all(&l, listen_fd, err);
    if (rc < 0) {
        shm_map_release(&m);
        return rc;
    }
    *ret = m;
    return 0;
}

/* --- the followers --- */

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

/* -EAGAIN: the leader's backlog is full. */
static int shm_dial_leader(const struct shm_join *j,
                           const char *name,
                           int *ret_sock,
                           struct err *err)
{
    const struct auth_claim claim = {.id = j->id,
                                     .mine = ROLE_SHM,
                                     .theirs = ROLE_SHM,
                                     .number = j->rank,
                                     .deadline_ns = j->deadline_ns};
    int rc = unix_connect(name, ret_sock, err);
    if (rc < 0)
        return err_prefix(err, "rank %u's shared memory", j->ranks[0]), rc;
    rc = auth_client(*ret_sock, &claim, NULL, err);
    if (rc < 0)
        fd_close(ret_sock);
    return rc;
}

/* Strangers can fill the leader's backlog or the places for handshakes for a moment. */
static int shm_reach_leader(const struct shm_join *j,
                            const char *name,
                            int *ret_sock,
                            struct err *err)
{
    for (;;) {
        struct err why = ERR_INIT;
        int rc = shm_dial_leader(j, name, ret_sock, &why);
        if (rc == 0)
            return 0;
        if ((rc != -EAGAIN && rc != -EPIPE && rc != -ECONNRESET)
            || clock_now_ns() >= j->deadline_ns)
            return err_set(err, rc, "%s", why.text);
        (void)poll(NULL, 0, RETRY_MS); /* a signal cuts it short */
    }
}

int shm_join_follow(const struct shm_join *j,
                    const char *name,
                    struct shm_map *ret,
                    struct err *err)
{
    CLEANUP(fd_close) int sock = -1;
    CLEANUP(fd_close) int fd = -1;
    int rc = shm_reach_leader(j, name, &sock, err);
    if (rc < 0 || (rc = check_user(sock, err)) < 0)
        return rc;
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
