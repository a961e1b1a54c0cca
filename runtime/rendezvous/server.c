/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous server: one thread around epoll that owns every connection and the
 * world.
 *
 *   listen_fd --hub.c--> rdv_conn --on_frame--> rdv_world
 *                        conn.c: frames         world.c: rounds, route.c: relays
 *
 *   other threads: rdv_server_fail, rdv_server_stop --lock, wake_fd--> the thread
 *
 * Every PUT has exactly one answer: ALL, or REFUSED (deadline of the member, failure,
 * stop). A connection that has not joined yet has 10 s. On stop, waiting members are refused, then
 * queued output is flushed for at most STOP_FLUSH_MS, so that a world whose server runs
 * in rank 0 completes its last round even when rank 0 stops at once.
 *
 * A connection belongs to one member and carries the frames of those that it relays for;
 * the owner of each member is the connection that it came by. A frame of a member by
 * another connection is late, and dropped.
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
#include "runtime/rendezvous/hub.h"
#include "runtime/rendezvous/parts.h"
#include "runtime/wire/bytes.h"

#define STOP_FLUSH_MS 2000u
#define RELAY_TIME_NS (2 * NS_PER_S)

struct rdv_server {
    /* set before the thread starts */
    struct token token;
    char *job_id;
    struct auth_id id;
    int listen_fd, wake_fd;
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
    struct rdv_hub hub;
    bool is_failed;
    char why[RDV_MAX_TEXT_BYTES + 1];
};

/* --- the thread: events --- */

static void
send_round(const struct rdv_server *s, const struct rdv_world *w, struct rdv_msg *msg)
{
    for (struct rdv_conn *c = s->hub.first; c; c = c->next)
        if (c->is_member && !c->is_dead && c->world == w)
            rdv_conn_send(c, RDV_ALL, msg);
    rdv_msg_unref(msg);
}

static void refuse_member(const struct rdv_world *w,
                          uint32_t place,
                          enum rdv_code code,
                          const char *text)
{
    rdv_conn_refuse(w->v[place].owner, place, w->v[place].pass, code, text);
}

static uint32_t world_depth(const struct rdv_world *w)
{
    uint32_t max = 0;

    for (uint32_t i = 0; w->route.v && i < w->size; i++) {
        uint32_t depth = route_depth(&w->route, i);

        max = depth > max ? depth : max;
    }
    return max;
}

/* Calls refuse for all waiting members. A relay that is refused closes its connections:
 * those behind it come first. */
static void
for_all_waiting(struct rdv_world *w,
                void (*refuse)(struct rdv_world *w, uint32_t place, const void *arg),
                const void *arg)
{
    for (uint32_t depth = world_depth(w) + 1; depth-- > 0;)
        for (uint32_t i = 0; i < w->size; i++)
            if (w->v[i].has_put && route_depth(&w->route, i) == depth)
                refuse(w, i, arg);
}

struct refusal {
    enum rdv_code code;
    const char *text;
};

static void refuse_one(struct rdv_world *w, uint32_t place, const void *arg)
{
    const struct refusal *r = arg;

    rdv_world_withdraw(w, place);
    refuse_member(w, place, r->code, r->text);
}

/* Sends code and text to every waiting member and withdraws its blob. */
static void refuse_waiting(struct rdv_world *w, enum rdv_code code, const char *text)
{
    const struct refusal r = {code, text};

    for_all_waiting(w, refuse_one, &r);
}

static void refuse_all(struct rdv_server *s)
{
    for (struct rdv_world *w = &s->world; w; w = w->next)
        refuse_waiting(w, RDV_CODE_CANCELED, s->why);
}

/* A connection ends or is drained: so do all that came by it. */
static void server_lose(void *arg, struct rdv_conn *c)
{
    struct rdv_world *w = c->world;

    (void)arg;
    for (uint32_t i = 0; i < w->size; i++)
        rdv_world_leave(w, i, c);
    c->is_member = false;
}

/* A later JOIN of the same rank has replaced this one. */
static void refuse_replaced(const struct rdv_join *join,
                            const struct rdv_conn *c,
                            struct rdv_conn *old,
                            uint32_t place,
                            uint32_t pass,
                            uint64_t now_ns)
{
    char text[256];

    (void)snprintf(text, sizeof(text),
                   "rank %u connected again from %s and replaces the one from %s "
                   "(two processes with one rank?)",
                   join->rank, c->addr, old->addr); /* fits */
    rdv_conn_refuse(old, place, pass, RDV_CODE_STALE, text);
    if (old->place == place) {
        server_lose(NULL, old);
        rdv_conn_drain(old, now_ns);
    }
}

static void send_place(struct rdv_conn *c,
                       const struct rdv_world *w,
                       uint32_t place,
                       uint32_t relay)
{
    CLEANUP(strbuf_release) struct strbuf b;
    struct rdv_msg *msg;

    strbuf_init(&b, 256);
    bytes_put_u32(&b, place);
    bytes_put_u32(&b, w->v[place].pass);
    if (relay != ROUTE_SERVER) {
        bytes_put_u32(&b, relay);
        bytes_put_u32(&b, route_depth(&w->route, place));
        bytes_put_u32(&b, w->route.v[relay].port);
        bytes_put_str(&b, w->route.v[relay].addr);
    }
    msg = strbuf_status(&b) ? NULL : rdv_msg_new((uint32_t)b.n);
    if (!msg) {
        c->is_dead = true; /* it tries again */
        return;
    }
    memcpy(msg->data, strbuf_str(&b), b.n);
    rdv_msg_seal(msg);
    rdv_conn_send(c, relay == ROUTE_SERVER ? RDV_WELCOME : RDV_REDIRECT, msg);
    rdv_msg_unref(msg);
}

static void on_join(struct rdv_server *s,
                    struct rdv_conn *c,
                    const struct frame *f,
                    uint64_t now_ns)
{
    struct rdv_world *w = NULL;
    struct err err = ERR_INIT;
    struct rdv_join join;
    uint32_t place = 0, relay, old_pass;
    void *old = NULL;
    int rc = c->is_member ? err_set(&err, -EPROTO, "duplicate JOIN")
                          : rdv_join_parse(f->p, f->n, &join, &err);

    if (rc == 0)
        rc = rdv_parts_find(&s->world, &join, &w, &place, &err);
    if (rc) {
        rdv_conn_refuse(c, RDV_NO_PLACE, 0, RDV_CODE_INVALID, err.text);
        rdv_conn_drain(c, now_ns);
        return;
    }
    old_pass = w->v[place].pass;
    (void)rdv_world_admit(w, place, &old); /* the pass is in the world, too */
    relay = route_enter(&w->route, place, &join, c->addr, w->round);
    if (old)
        refuse_replaced(&join, c, old, place, old_pass, now_ns);
    if (relay == ROUTE_SERVER) {
        c->world = w;
        rdv_conn_join(c, place, w->size);
        rdv_world_join(w, place, c);
        atomic_store_explicit(&s->n_seen, s->world.n_seen, memory_order_relaxed);
    }
    send_place(c, w, place, relay);
    if (relay != ROUTE_SERVER)
        rdv_conn_drain(c, now_ns);
}

/* A relay has a new member. */
static void on_enter(struct rdv_server *s, struct rdv_conn *c, const struct frame *f)
{
    struct rdv_enter enter;
    struct rdv_member *m;

    if (rdv_enter_parse(f->p, f->n, &enter, NULL) || enter.size != c->world->size) {
        c->is_dead = true;
        return;
    }
    m = &c->world->v[enter.place];
    if (m->owner || m->pass != enter.pass)
        return; /* it has joined again meanwhile */
    rdv_world_join(c->world, enter.place, c);
    atomic_store_explicit(&s->n_seen, s->world.n_seen, memory_order_relaxed);
}

static void on_left(struct rdv_conn *c, const struct frame *f)
{
    uint32_t place;

    if (rdv_left_parse(f->p, f->n, &place, NULL) || place >= c->world->size)
        c->is_dead = true;
    else
        rdv_world_leave(c->world, place, c);
}

/* This put may be the one after which two worlds can never be full. */
static void look_for_clash(struct rdv_server *s, struct rdv_world *w, uint32_t place)
{
    char text[RDV_MAX_TEXT_BYTES];
    struct rdv_world *other = rdv_parts_clash(&s->world, w, place, text, sizeof(text));

    if (!other)
        return;
    refuse_waiting(other, RDV_CODE_INVALID, text);
    refuse_waiting(w, RDV_CODE_INVALID, text);
}

static void refuse_put(
    struct rdv_conn *c, uint32_t place, int rc, const char *text, uint64_t now_ns)
{
    refuse_member(c->world, place, rc == -ESTALE ? RDV_CODE_STALE : RDV_CODE_INVALID,
                  text);
    if (c->place == place) {
        server_lose(NULL, c);
        rdv_conn_drain(c, now_ns);
    }
}

static void
on_put(struct rdv_server *s, struct rdv_conn *c, const struct frame *f, uint64_t now_ns)
{
    struct rdv_world *w = c->world;
    struct err err = ERR_INIT;
    struct rdv_put put;
    int rc = !c->is_member ? err_set(&err, -EPROTO, "PUT before JOIN")
                           : rdv_put_parse(f->p, f->n, &put, &err);

    if (rc == 0 && put.place >= w->size)
        rc = err_set(&err, -EPROTO, "PUT of place %u in a world of %u", put.place,
                     w->size);
    if (rc) {
        rdv_conn_refuse(c, RDV_NO_PLACE, 0, RDV_CODE_INVALID, err.text);
        rdv_conn_drain(c, now_ns);
        return;
    }
    if (w->v[put.place].owner != c)
        return; /* it has joined by another connection meanwhile */
    if (s->is_failed) {
        refuse_member(w, put.place, RDV_CODE_CANCELED, s->why);
        return;
    }
    rc = rdv_world_put(w, put.place, &put, now_ns, &err);
    if (rc) {
        refuse_put(c, put.place, rc, err.text, now_ns);
        return;
    }
    if (!rdv_world_is_full(w)) {
        look_for_clash(s, w, put.place);
        return;
    }
    struct rdv_msg *msg = rdv_world_finish(w);
    if (msg)
        send_round(s, w, msg);
    else
        refuse_waiting(w, RDV_CODE_CANCELED,
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
    else if (c->is_member && f->type == RDV_ENTER)
        on_enter(s, c, f);
    else if (c->is_member && f->type == RDV_LEFT)
        on_left(c, f);
    else
        c->is_dead = true;
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

/* The deadline of a member has passed, or that of its relay, which leaves it no time to
 * find another one. */
static bool member_is_due(const struct rdv_world *w, uint32_t place, uint64_t now_ns)
{
    const uint64_t deadline_ns = w->v[place].deadline_ns;

    if (deadline_ns <= now_ns)
        return true;
    if (deadline_ns > now_ns + RELAY_TIME_NS)
        return false;
    for (uint32_t p = route_parent(&w->route, place); p < w->size;
         p = route_parent(&w->route, p))
        if (w->v[p].has_put && w->v[p].deadline_ns <= now_ns)
            return true;
    return false;
}

static void expire_one(struct rdv_world *w, uint32_t place, const void *arg)
{
    const uint64_t *now_ns = arg;
    char text[RDV_MAX_TEXT_BYTES];

    if (!member_is_due(w, place, *now_ns))
        return;
    (void)snprintf(text, sizeof(text), "waited %g s for %.370s",
                   (double)w->v[place].wait_ms / 1000.0,
                   rdv_world_blame(w)); /* may be truncated */
    rdv_world_withdraw(w, place);
    refuse_member(w, place, RDV_CODE_TIMEOUT, text);
}

static uint64_t world_next_deadline(const struct rdv_world *w)
{
    uint64_t next = UINT64_MAX;

    for (uint32_t i = 0; w->n_put && i < w->size; i++)
        if (w->v[i].has_put)
            next = earlier_ns(next, w->v[i].deadline_ns);
    return next;
}

/* Refuses members whose deadline has passed; returns the next deadline. */
static uint64_t expire_world(struct rdv_world *w, uint64_t now_ns)
{
    if (world_next_deadline(w) <= now_ns)
        for_all_waiting(w, expire_one, &now_ns);
    return world_next_deadline(w);
}

/* Applies all deadlines; returns the next one. */
static uint64_t server_expire(struct rdv_server *s, uint64_t now_ns)
{
    uint64_t next = UINT64_MAX;

    for (struct rdv_world *w = &s->world; w; w = w->next) {
        next = earlier_ns(next, expire_world(w, now_ns));
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

static void server_turn(struct rdv_server *s, uint64_t deadline_ns)
{
    rdv_hub_turn(&s->hub, earlier_ns(server_expire(s, clock_now_ns()), deadline_ns));
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
    while (rdv_hub_has_output(&s->hub) && clock_left_ms(until) > 0) {
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
    rdv_hub_close(&s->hub);
    rdv_parts_release(&s->world);
    rdv_world_release(&s->world);
    fd_close(&s->listen_fd);
    fd_close(&s->wake_fd);
    (void)pthread_mutex_destroy(&s->lock); /* not held any more */
    token_wipe(&s->token);
    mem_free(s->job_id);
    mem_free(s->cause);
    mem_free(s);
}

static int server_open(struct rdv_server *s, struct err *err)
{
    int rc = rdv_hub_open(&s->hub, s->listen_fd, err);

    if (rc < 0)
        return rc;
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake_fd < 0)
        return err_errno(err, errno, "eventfd");
    rc = rdv_hub_watch(&s->hub, EPOLL_CTL_ADD, s->wake_fd, EPOLLIN);
    return rc ? err_errno(err, -rc, "epoll_ctl") : 0;
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
    s->wake_fd = -1;
    s->token = *id->token;
    s->job_id = mem_strdup(id->job_id);
    s->id = (struct auth_id){&s->token, s->job_id, id->generation};
    s->hub = (struct rdv_hub){.epoll_fd = -1,
                              .id = &s->id,
                              .on_frame = on_frame,
                              .on_gone = server_lose,
                              .arg = s};
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
