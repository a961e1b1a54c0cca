/* SPDX-License-Identifier: Apache-2.0 */
/* Strangers are in an array, oldest first, and in an epoll set whose descriptor the
 * caller polls. Addresses are counted in buckets: an IPv4 address or the first half of an
 * IPv6 address chooses one, so that the oldest stranger of the fullest bucket is found in
 * one pass. Called by accept.c and launch/metrics.c. */
#include "runtime/wire/door.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

enum { BUCKETS = 256, EVENTS_A_TURN = 128, ACCEPTS_A_TURN = 32, MIN_STRANGERS = 16 };

struct door {
    struct door_kind kind;
    int epoll_fd;
    struct {
        int fd;
        bool is_unix;
    } listener[DOOR_MAX_LISTENERS];
    size_t n_listeners;
    struct stranger *v[DOOR_MAX_STRANGERS]; /* oldest first */
    size_t n, max;
    size_t room, n_doubled; /* door_set_room, and how often it is doubled */
    uint64_t stuck_ns;      /* since then there is no room, and no stranger was taken */
    uint64_t held_ns;       /* when there was none last */
    bool has_taken;         /* one was taken after stuck_ns */
    uint16_t count[BUCKETS];
    uint64_t resume_ns;  /* 0: listening */
    bool waits_for_room; /* listening may resume earlier, when a stranger leaves */
    uint64_t log_ns;     /* begin of the current interval of logs */
    unsigned n_logged, n_unlogged;
    char refusal[sizeof(((struct err *)0)->text)];
};

int door_fd(const struct door *d)
{
    return d->epoll_fd;
}

/* At most a quarter of the descriptors that the process may have. */
static size_t door_limit(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur / 4 > DOOR_MAX_STRANGERS)
        return DOOR_MAX_STRANGERS;
    return r.rlim_cur / 4 > MIN_STRANGERS ? (size_t)r.rlim_cur / 4 : MIN_STRANGERS;
}

int door_open(const struct door_kind *kind, struct door **ret, struct err *err)
{
    struct door *d = mem_zalloc(sizeof(*d));

    if (!d)
        return err_set(err, -ENOMEM, "out of memory for a listener");
    d->kind = *kind;
    d->max = door_limit();
    if (kind->max > 0 && kind->max < d->max)
        d->max = kind->max;
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (d->epoll_fd < 0) {
        int rc = err_errno(err, errno, "epoll");

        mem_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

static int door_watch(struct door *d, int op, int fd, uint32_t events, void *tag)
{
    struct epoll_event ev = {.events = events, .data.ptr = tag};

    return epoll_ctl(d->epoll_fd, op, fd, &ev) < 0 ? -errno : 0;
}

int door_listen(struct door *d, int listen_fd, bool is_unix, struct err *err)
{
    size_t i = d->n_listeners;
    int rc;

    if (i == DOOR_MAX_LISTENERS)
        return err_set(err, -EINVAL, "more than %d listeners", DOOR_MAX_LISTENERS);
    rc = door_watch(d, EPOLL_CTL_ADD, listen_fd, EPOLLIN, &d->listener[i]);
    if (rc < 0)
        return err_errno(err, -rc, "epoll_ctl");
    d->listener[i].fd = listen_fd;
    d->listener[i].is_unix = is_unix;
    d->n_listeners++;
    return 0;
}

void door_set_room(struct door *d, size_t n)
{
    d->room = n;
}

/* How many strangers there may be. */
static size_t door_room(const struct door *d)
{
    size_t n = d->room << d->n_doubled;

    return d->room == 0 || n > d->max ? d->max : n;
}

/* Stops or resumes listening. */
static void door_set_listening(struct door *d, uint64_t resume_ns)
{
    for (size_t i = 0; i < d->n_listeners; i++)
        (void)door_watch(d, EPOLL_CTL_MOD, d->listener[i].fd, resume_ns ? 0 : EPOLLIN,
                         &d->listener[i]); /* it is in the set */
    d->resume_ns = resume_ns;
}

/* --- leaving --- */

static void door_log_refusal(struct door *d, const char *from, const char *cause)
{
    uint64_t now_ns = clock_now_ns();

    (void)snprintf(d->refusal, sizeof(d->refusal), "%s", cause);
    if (now_ns - d->log_ns >= DOOR_LOG_NS) {
        if (d->n_unlogged > 0)
            log_warn("more connections were refused", "listener=%s count=%u",
                     d->kind.name, d->n_unlogged);
        d->log_ns = now_ns;
        d->n_logged = d->n_unlogged = 0;
    }
    if (d->n_logged++ < DOOR_LOGS)
        log_warn("connection refused", "listener=%s address=%s cause=\"%s\"",
                 d->kind.name, from, cause);
    else
        d->n_unlogged++;
}

/* Closing alone would leave a descriptor in epoll while a forked process has a copy. */
static int stranger_detach(struct stranger *s)
{
    int fd = s->fd;

    (void)epoll_ctl(s->door->epoll_fd, EPOLL_CTL_DEL, fd, NULL); /* it is in the set */
    s->fd = -1;
    return fd;
}

int stranger_take(struct stranger *s)
{
    s->door->has_taken = true;
    return stranger_detach(s);
}

static void stranger_close(struct stranger *s)
{
    int fd = stranger_detach(s);

    fd_close(&fd);
}

static void stranger_free(struct stranger *s)
{
    if (s->door->kind.release)
        s->door->kind.release(s);
    fd_close(&s->fd);
    mem_free(s->data);
    mem_free(s);
}

/* Frees the strangers whose descriptor is gone. */
static void door_sweep(struct door *d)
{
    size_t kept = 0;

    for (size_t i = 0; i < d->n; i++) {
        struct stranger *s = d->v[i];

        if (s->fd >= 0) {
            d->v[kept++] = s;
            continue;
        }
        d->count[s->bucket]--;
        stranger_free(s);
    }
    d->n = kept;
    if (d->n < d->room)
        d->n_doubled = 0;
}

static uint64_t stranger_due_ns(const struct stranger *s)
{
    return s->since_ns + (s->has_sent ? DOOR_TOTAL_NS : DOOR_FIRST_BYTE_NS);
}

static void door_step(struct door *d, struct stranger *s, void *arg)
{
    struct err err = ERR_INIT;
    int rc = d->kind.step(arg, s, &err);

    if (rc == 0 && s->fd >= 0 && s->wants_out != s->was_out) {
        s->was_out = s->wants_out;
        rc = door_watch(d, EPOLL_CTL_MOD, s->fd, s->wants_out ? EPOLLOUT : EPOLLIN, s);
    }
    if (rc < 0 && err.code)
        door_log_refusal(d, s->address, err.text);
    if (rc < 0 && s->fd >= 0)
        stranger_close(s);
}

/* Its last bytes may complete the handshake. */
static void
door_give_up(struct door *d, struct stranger *s, void *arg, const char *cause)
{
    if (fd_wait(s->fd, POLLIN, 0) > 0)
        door_step(d, s, arg);
    if (s->fd < 0)
        return;
    door_log_refusal(d, s->address, cause);
    stranger_close(s);
}

static void door_expire(struct door *d, void *arg, uint64_t now_ns)
{
    for (size_t i = 0; i < d->n; i++) {
        struct stranger *s = d->v[i];

        if (s->fd >= 0 && now_ns >= stranger_due_ns(s))
            door_give_up(d, s, arg,
                         s->has_sent ? "its handshake took too long" : "it is silent");
    }
}

/* The oldest stranger of the fullest bucket; NULL: there is none. */
static struct stranger *door_find_victim(const struct door *d)
{
    struct stranger *victim = NULL;

    for (size_t i = 0; i < d->n; i++) {
        if (!victim || d->count[d->v[i]->bucket] > d->count[victim->bucket])
            victim = d->v[i];
    }
    return victim;
}

/* Closes a stranger, or pauses until one may be closed. False: it paused. */
static bool door_make_room(struct door *d, void *arg, uint64_t now_ns)
{
    struct stranger *s = door_find_victim(d);

    d->waits_for_room = d->n == d->max;
    if (!s) {
        door_set_listening(d, now_ns + DOOR_PAUSE_NS);
        return false;
    }
    if (now_ns < s->since_ns + DOOR_GRACE_NS) {
        door_set_listening(d, s->since_ns + DOOR_GRACE_NS);
        return false;
    }
    door_give_up(d, s, arg, "too many connections without a handshake");
    door_sweep(d);
    return true;
}

/* Whether one more stranger is too many for now; if so, it has paused. */
static bool door_holds_back(struct door *d, uint64_t now_ns)
{
    if (d->n < door_room(d) || d->n == d->max)
        return false;
    if (d->has_taken || now_ns >= d->held_ns + 4 * DOOR_STUCK_NS)
        d->stuck_ns = now_ns;
    d->has_taken = false;
    d->held_ns = now_ns;
    if (now_ns >= d->stuck_ns + DOOR_STUCK_NS) {
        d->n_doubled++;
        d->stuck_ns = now_ns;
        return false;
    }
    d->waits_for_room = true;
    door_set_listening(d, d->stuck_ns + DOOR_STUCK_NS);
    return true;
}

/* --- arriving --- */

static uint8_t address_bucket(const struct sockaddr_storage *ss)
{
    uint64_t key = 0;

    if (ss->ss_family == AF_INET)
        memcpy(&key, &((const struct sockaddr_in *)ss)->sin_addr, 4);
    if (ss->ss_family == AF_INET6) {
        const uint8_t *a = ((const struct sockaddr_in6 *)ss)->sin6_addr.s6_addr;

        memcpy(&key, a, 8);
        if (key == 0) /* an IPv4 address in IPv6 */
            memcpy(&key, a + 8, 8);
    }
    return (uint8_t)((key * 0x9e3779b97f4a7c15u) >> 56);
}

/* Takes over fd. */
static void door_add(struct door *d, int fd, bool is_unix, uint64_t now_ns)
{
    struct sockaddr_storage ss = {0};
    socklen_t len = sizeof(ss);
    struct stranger *s = mem_zalloc(sizeof(*s));

    if (s)
        s->data = mem_zalloc(d->kind.data_bytes);
    if (s && s->data && door_watch(d, EPOLL_CTL_ADD, fd, EPOLLIN, s) == 0) {
        (void)getpeername(fd, (struct sockaddr *)&ss, &len); /* for logs and limits */
        s->door = d;
        s->fd = fd;
        s->since_ns = now_ns;
        s->is_unix = is_unix;
        s->bucket = address_bucket(&ss);
        if (is_unix || tcp_peer_addr(fd, s->address, sizeof(s->address)) < 0)
            (void)snprintf(s->address, sizeof(s->address), "this host");
        d->v[d->n++] = s;
        d->count[s->bucket]++;
        return;
    }
    if (s)
        mem_free(s->data);
    mem_free(s);
    fd_close(&fd);
}

/* No descriptor or memory is left: closing a stranger helps. */
static bool error_is_scarcity(int rc)
{
    return rc == -EMFILE || rc == -ENFILE || rc == -ENOBUFS || rc == -ENOMEM;
}

static void
door_accept_some(struct door *d, size_t listener, void *arg, uint64_t now_ns)
{
    int listen_fd = d->listener[listener].fd;

    for (int i = 0; i < ACCEPTS_A_TURN && d->resume_ns == 0; i++) {
        int fd, rc;

        /* accept itself does not say: without a descriptor it fails even if nobody
         * waits */
        if (fd_wait(listen_fd, POLLIN, 0) < 0 || door_holds_back(d, now_ns)
            || (d->n == d->max && !door_make_room(d, arg, now_ns)))
            return;
        rc = tcp_accept(listen_fd, &fd);
        if (rc == 0)
            door_add(d, fd, d->listener[listener].is_unix, now_ns);
        else if (error_is_scarcity(rc))
            (void)door_make_room(d, arg, now_ns); /* or it has paused */
        else if (rc != -EAGAIN) /* of the connection, or of the listener */
            door_set_listening(d, now_ns + DOOR_PAUSE_NS);
    }
}

/* --- serving --- */

const char *door_last_refusal(const struct door *d)
{
    return d->refusal;
}

uint64_t door_next_ns(const struct door *d)
{
    uint64_t next = d->resume_ns ? d->resume_ns : UINT64_MAX;

    for (size_t i = 0; i < d->n; i++)
        next = earlier_ns(next, stranger_due_ns(d->v[i]));
    return next;
}

void door_serve(struct door *d, void *arg, uint64_t now_ns)
{
    struct epoll_event ev[EVENTS_A_TURN];
    bool has_arrivals[DOOR_MAX_LISTENERS] = {false};
    int n;

    if (d->resume_ns && d->resume_ns <= now_ns)
        door_set_listening(d, 0);
    n = epoll_wait(d->epoll_fd, ev, EVENTS_A_TURN, 0);
    for (int i = 0; i < n; i++) {
        struct stranger *s = ev[i].data.ptr;
        bool is_listener = false;

        for (size_t k = 0; k < d->n_listeners; k++) {
            if (ev[i].data.ptr == &d->listener[k])
                has_arrivals[k] = is_listener = true;
        }
        if (!is_listener)
            door_step(d, s, arg);
    }
    door_expire(d, arg, now_ns);
    door_sweep(d);
    if (d->resume_ns && d->waits_for_room && d->n < door_room(d))
        door_set_listening(d, 0);
    for (size_t k = 0; k < d->n_listeners; k++) {
        if (has_arrivals[k])
            door_accept_some(d, k, arg, now_ns);
    }
}

void door_close(struct door *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n; i++)
        stranger_free(d->v[i]);
    fd_close(&d->epoll_fd);
    mem_free(d);
}
