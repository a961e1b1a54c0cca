/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous server: one thread around epoll that owns every connection and the
 * world.
 *
 *   listen_fd --acceptor--> rdv_conn --on_frame--> rdv_world
 *               wire/accept   conn.c: frames       world.c: rounds
 *
 *   other threads: rdv_server_fail, rdv_server_stop --lock, wake_fd--> the thread
 *
 * Every PUT has exactly one answer: ALL, or REFUSED (deadline of the member, failure,
 * stop). A connection that has not joined yet has 10 s. On stop, waiting members are refused, then
 * queued output is flushed for at most STOP_FLUSH_MS, so that a world whose server runs
 * in rank 0 completes its last round even when rank 0 stops at once.
 *
 * Threads: `lock` guards is_stopping and cause; n_seen is atomic (relaxed: a count that
 * is only displayed); everything else belongs to the thread once it runs. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/contract/waiting.h"
#include "runtime/rendezvous/conn.h"
#include "runtime/rendezvous/parts.h"

#define STOP_FLUSH_MS 2000u
#define EVENTS_A_TURN 64

struct rdv_server {
    /* set before the thread starts */
    struct token token;
    char *job_id;
    struct auth_id id;
    int listen_fd, epoll_fd, wake_fd;
    pthread_t thread;
    pid_t pid; /* owner of the thread: a forked child has none */
    /* under lock */
    pthread_mutex_t lock;
    bool is_stopping;
    char *cause;
    /* any thread */
    _Atomic uint32_t n_seen;
    /* owned by the thread */
    rdv_report_fn report;   /* NULL: none */
    struct rdv_world world; /* of all ranks; parts are linked behind it: parts.h */
    struct acceptor acceptor;
    struct rdv_conn *first;
    bool is_failed;
    char why[RDV_MAX_TEXT_BYTES + 1];
};

/* --- the thread: events --- */

static void send_round(const struct rdv_world *w, struct rdv_msg *msg)
{
    for (uint32_t i = 0; i < w->size; i++)
        if (w->v[i].owner)
            rdv_conn_send(w->v[i].owner, RDV_ALL, msg);
    rdv_msg_unref(msg);
}

/* Sends code and text to every waiting member and withdraws its blob. */
static void refuse_waiting(struct rdv_world *w, enum rdv_code code, const char *text)
{
    for (uint32_t i = 0; i < w->size; i++) {
        if (!w->v[i].has_put)
            continue;
        rdv_world_withdraw(w, i);
        rdv_conn_refuse(w->v[i].owner, code, text);
    }
}

static void refuse_all(struct rdv_server *s)
{
    for (struct rdv_world *w = &s->world; w; w = w->next)
        refuse_waiting(w, RDV_CODE_CANCELED, s->why);
}

static void on_join(struct rdv_server *s,
                    struct rdv_conn *c,
                    const struct frame *f,
                    uint64_t now_ns)
{
    struct rdv_world *w = NULL;
    struct err err = ERR_INIT;
    struct rdv_join join;
    uint32_t place = 0;
    void *old = NULL;
    int rc = c->is_member ? err_set(&err, -EPROTO, "duplicate JOIN")
                          : rdv_join_parse(f->p, f->n, &join, &err);

    if (rc == 0)
        rc = rdv_parts_find(&s->world, &join, &w, &place, &err);
    if (rc == 0)
        rc = rdv_world_join(w, place, w->size, c, &old, &err);
    if (rc) {
        rdv_conn_refuse(c, RDV_CODE_INVALID, err.text);
        rdv_conn_drain(c, now_ns);
        return;
    }
    if (old) {
        struct rdv_conn *o = old;
        char text[256];

        (void)snprintf(text, sizeof(text),
                       "rank %u connected again from %s and replaces the one from %s "
                       "(two processes with one rank?)",
                       join.rank, c->addr, o->addr); /* fits */
        o->is_member = false;
        rdv_conn_refuse(o, RDV_CODE_STALE, text);
        rdv_conn_drain(o, now_ns);
    }
    c->is_member = true;
    c->world = w;
    c->rank = place;
    atomic_store_explicit(&s->n_seen, s->world.n_seen, memory_order_relaxed);
    rdv_conn_send(c, RDV_WELCOME, NULL);
}

/* This put may be the one after which two worlds can never be full. */
static void look_for_clash(struct rdv_server *s, const struct rdv_conn *c)
{
    char text[RDV_MAX_TEXT_BYTES];
    struct rdv_world *other =
        rdv_parts_clash(&s->world, c->world, c->rank, text, sizeof(text));

    if (!other)
        return;
    refuse_waiting(other, RDV_CODE_INVALID, text);
    refuse_waiting(c->world, RDV_CODE_INVALID, text);
}

static void
on_put(struct rdv_server *s, struct rdv_conn *c, const struct frame *f, uint64_t now_ns)
{
    struct err err = ERR_INIT;
    struct rdv_put put;
    int rc = !c->is_member ? err_set(&err, -EPROTO, "PUT before JOIN")
                           : rdv_put_parse(f->p, f->n, &put, &err);

    if (rc == 0 && s->is_failed) {
        rdv_conn_refuse(c, RDV_CODE_CANCELED, s->why);
        return;
    }
    if (rc == 0)
        rc = rdv_world_put(c->world, c->rank, &put, now_ns, &err);
    if (rc) {
        rdv_conn_refuse(c, rc == -ESTALE ? RDV_CODE_STALE : RDV_CODE_INVALID, err.text);
        rdv_conn_drain(c, now_ns);
        return;
    }
    if (!rdv_world_is_full(c->world)) {
        look_for_clash(s, c);
        return;
    }
    struct rdv_msg *msg = rdv_world_finish(c->world);
    if (msg)
        send_round(c->world, msg);
    else
        refuse_waiting(c->world, RDV_CODE_CANCELED,
                       "the rendezvous server ran out of memory for a round");
}

static void on_frame(void *arg, struct rdv_conn *c, const struct frame *f)
{
    struct rdv_server *s = arg;
    uint64_t now_ns = clock_now_ns();

    if (f->type == RDV_JOIN)
        on_join(s, c, f, now_ns);
    else if (f->type == RDV_PUT)
        on_put(s, c, f, now_ns);
    else
        c->is_dead = true;
}

static int
server_watch(struct rdv_server *s, int op, int fd, uint32_t events, void *tag)
{
    struct epoll_event ev = {.events = events, .data.ptr = tag};

    return epoll_ctl(s->epoll_fd, op, fd, &ev) < 0 ? -errno : 0;
}

static void server_admit(void *arg, const struct admitted *m)
{
    struct rdv_server *s = arg;
    struct rdv_conn *c = rdv_conn_new(m, clock_now_ns());
    int fd = m->fd;

    if (!c) {
        fd_close(&fd);
        return;
    }
    c->events = EPOLLIN;
    if (server_watch(s, EPOLL_CTL_ADD, fd, c->events, c)) {
        rdv_conn_free(c);
        return;
    }
    c->next = s->first;
    s->first = c;
}

/* Frees dead connections and updates the epoll events of live ones. */
static void server_reap(struct rdv_server *s)
{
    for (struct rdv_conn **at = &s->first; *at;) {
        struct rdv_conn *c = *at;

        if (!c->is_dead && c->events != rdv_conn_events(c)) {
            c->events = rdv_conn_events(c);
            c->is_dead = server_watch(s, EPOLL_CTL_MOD, c->in.fd, c->events, c) != 0;
        }
        if (!c->is_dead) {
            at = &c->next;
            continue;
        }
        if (c->is_member)
            rdv_world_leave(c->world, c->rank, c);
        *at = c->next;
        /* Closing alone would leave it in epoll while a process that was forked
         * meanwhile holds a copy of the descriptor. */
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->in.fd, NULL);
        rdv_conn_free(c);
    }
}

void rdv_log_waiting(const char *text, uint64_t waited_s)
{
    log_event(LOG_WARN, text, WAITING_DETAILS, (unsigned long long)waited_s);
}

/* Reports the missing ranks of a world if that is due; returns when it is due next. */
static uint64_t report_world(struct rdv_world *w, uint64_t now_ns, rdv_report_fn report)
{
    char who[400], text[RDV_MAX_TEXT_BYTES];

    if (rdv_world_needs_line(w, now_ns)) {
        rdv_world_missing(w, who, sizeof(who));
        (void)snprintf(text, sizeof(text), "waiting for %.380s", who); /* cut at end */
        report(text, (now_ns - w->since_ns) / NS_PER_S);
    }
    return w->n_put > 0 ? w->line_ns : UINT64_MAX;
}

/* Refuses members whose deadline has passed; returns the next deadline, at most
 * `next`. */
static uint64_t expire_world(struct rdv_world *w, uint64_t now_ns, uint64_t next)
{
    for (uint32_t i = 0; w->n_put && i < w->size; i++) {
        struct rdv_member *m = &w->v[i];

        if (!m->has_put)
            continue;
        if (m->deadline_ns > now_ns) {
            next = m->deadline_ns < next ? m->deadline_ns : next;
            continue;
        }
        char who[400], text[RDV_MAX_TEXT_BYTES];
        rdv_world_missing(w, who, sizeof(who));
        (void)snprintf(text, sizeof(text), "waited %g s for %.370s",
                       (double)m->wait_ms / 1000.0, who); /* may be truncated */
        rdv_world_withdraw(w, i);
        rdv_conn_refuse(m->owner, RDV_CODE_TIMEOUT, text);
    }
    return next;
}

/* Applies all deadlines; returns the next one. */
static uint64_t server_expire(struct rdv_server *s, uint64_t now_ns)
{
    uint64_t next = door_next_ns(s->acceptor.door);

    for (struct rdv_conn *c = s->first; c; c = c->next) {
        if (c->is_member || c->is_dead)
            continue;
        if (c->deadline_ns <= now_ns)
            c->is_dead = true;
        else if (c->deadline_ns < next)
            next = c->deadline_ns;
    }
    for (struct rdv_world *w = &s->world; w; w = w->next) {
        next = expire_world(w, now_ns, next);
        if (s->report)
            next = earlier_ns(next, report_world(w, now_ns, s->report));
    }
    return next;
}

/* Handles the requests of other threads; true: stop. */
static bool take_requests(struct rdv_server *s)
{
    uint64_t count;
    bool is_new_cause = false;

    if (read(s->wake_fd, &count, sizeof(count)) < 0) {
        /* EAGAIN: no wake-up was written; the flags are checked anyway. */
    }
    (void)pthread_mutex_lock(&s->lock); /* a default mutex does not fail */
    bool stop = s->is_stopping;
    if (s->cause && !s->is_failed) {
        (void)snprintf(s->why, sizeof(s->why), "%s", s->cause); /* may be truncated */
        is_new_cause = true;
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (is_new_cause) {
        s->is_failed = true;
        refuse_all(s);
    }
    return stop;
}

static void server_handle_event(struct rdv_server *s, const struct epoll_event *ev)
{
    struct rdv_conn *c = ev->data.ptr;

    if (ev->data.ptr == &s->wake_fd)
        return; /* take_requests runs every turn */
    if (ev->data.ptr == &s->acceptor)
        return; /* it is served every turn */
    if (c->is_dead)
        return;
    if (ev->events & EPOLLOUT)
        rdv_conn_flush(c);
    if (ev->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        rdv_conn_read(c, on_frame, s);
}

static bool server_has_output(const struct rdv_server *s)
{
    for (const struct rdv_conn *c = s->first; c; c = c->next)
        if (c->is_member && c->out_first)
            return true;
    return false;
}

static void server_turn(struct rdv_server *s, uint64_t deadline_ns)
{
    struct epoll_event ev[EVENTS_A_TURN];
    uint64_t now_ns = clock_now_ns();
    uint64_t next = server_expire(s, now_ns);

    server_reap(s);
    if (next > deadline_ns)
        next = deadline_ns;
    int n = epoll_wait(s->epoll_fd, ev, EVENTS_A_TURN, clock_left_ms(next));
    for (int i = 0; i < n; i++)
        server_handle_event(s, &ev[i]);
    acceptor_serve(&s->acceptor, &s->id, server_admit, s);
}

static void *server_main(void *arg)
{
    struct rdv_server *s = arg;

    while (!take_requests(s))
        server_turn(s, UINT64_MAX);
    if (!s->is_failed)
        (void)snprintf(s->why, sizeof(s->why),
                       "the launcher has stopped the rendezvous"); /* fits */
    s->is_failed = true;
    refuse_all(s);

    uint64_t until = clock_now_ns() + STOP_FLUSH_MS * NS_PER_MS;
    while (server_has_output(s) && clock_left_ms(until) > 0) {
        server_turn(s, until);
        (void)take_requests(s); /* resets wake_fd */
    }
    return NULL;
}

/* --- other threads --- */

static void server_free(struct rdv_server *s)
{
    if (!s)
        return;
    while (s->first) {
        struct rdv_conn *c = s->first;

        s->first = c->next;
        rdv_conn_free(c);
    }
    acceptor_close(&s->acceptor);
    rdv_parts_release(&s->world);
    rdv_world_release(&s->world);
    fd_close(&s->listen_fd);
    fd_close(&s->epoll_fd);
    fd_close(&s->wake_fd);
    (void)pthread_mutex_destroy(&s->lock); /* not held any more */
    token_wipe(&s->token);
    mem_free(s->job_id);
    mem_free(s->cause);
    mem_free(s);
}

static int server_open(struct rdv_server *s, struct err *err)
{
    static const struct accept_kind kind = {.name = "rendezvous",
                                            .mine = ROLE_RENDEZVOUS_SERVER,
                                            .theirs = ROLE_RENDEZVOUS_CLIENT};
    int rc = acceptor_open(&s->acceptor, &kind, err);

    if (rc < 0)
        return rc;
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll_fd < 0)
        return err_errno(err, errno, "epoll");
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake_fd < 0)
        return err_errno(err, errno, "eventfd");
    rc = server_watch(s, EPOLL_CTL_ADD, s->wake_fd, EPOLLIN, &s->wake_fd);
    if (rc == 0)
        rc = server_watch(s, EPOLL_CTL_ADD, door_fd(s->acceptor.door), EPOLLIN,
                          &s->acceptor);
    if (rc)
        return err_errno(err, -rc, "epoll_ctl");
    return door_listen(s->acceptor.door, s->listen_fd, false, err);
}

int rdv_server_start(int listen_fd,
                     const struct auth_id *id,
                     uint32_t size,
                     rdv_report_fn report,
                     struct rdv_server **ret,
                     struct err *err)
{
    struct rdv_server *s = mem_zalloc(sizeof(*s));

    if (!s)
        return err_set(err, -ENOMEM, "out of memory for the rendezvous server");
    s->listen_fd = listen_fd;
    s->report = report;
    s->pid = getpid();
    s->epoll_fd = s->wake_fd = -1;
    s->token = *id->token;
    s->job_id = mem_strdup(id->job_id);
    s->id = (struct auth_id){&s->token, s->job_id, id->generation};
    (void)pthread_mutex_init(&s->lock,
                             NULL); /* a default mutex: cannot fail on Linux */

    int rc = s->job_id ? 0 : err_set(err, -ENOMEM, "out of memory for the job's name");
    if (rc == 0)
        rc = rdv_world_init(&s->world, size, err);
    if (rc == 0)
        rc = fd_nonblock(listen_fd, true);
    if (rc == 0)
        rc = server_open(s, err);
    if (rc == 0) {
        rc = -thread_start(&s->thread, server_main, s);
        if (rc)
            (void)err_errno(err, -rc, "cannot start the rendezvous thread");
    }
    if (rc) {
        s->listen_fd = -1; /* remains the caller's */
        server_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

uint32_t rdv_server_joined(const struct rdv_server *s)
{
    return atomic_load_explicit(&s->n_seen, memory_order_relaxed);
}

static void server_wake(struct rdv_server *s)
{
    uint64_t one = 1;

    if (write(s->wake_fd, &one, sizeof(one)) < 0) {
        /* Only EAGAIN, at 2^64 - 2 unread wake-ups: the thread is awake. */
    }
}

void rdv_server_fail(struct rdv_server *s, const char *cause)
{
    (void)pthread_mutex_lock(&s->lock); /* a default mutex does not fail */
    if (!s->cause) {
        s->cause = mem_strndup(cause, RDV_MAX_TEXT_BYTES);
        if (!s->cause) /* out of memory: the cause is lost, the failure is not */
            s->is_stopping = true;
    }
    (void)pthread_mutex_unlock(&s->lock);
    server_wake(s);
}

void rdv_server_stop(struct rdv_server *s)
{
    if (!s || s->pid != getpid())
        return;
    (void)pthread_mutex_lock(&s->lock); /* a default mutex does not fail */
    s->is_stopping = true;
    (void)pthread_mutex_unlock(&s->lock);
    server_wake(s);
    (void)pthread_join(s->thread, NULL); /* bounded by STOP_FLUSH_MS */
    server_free(s);
}
