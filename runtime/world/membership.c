/* SPDX-License-Identifier: Apache-2.0 */
/* What the launcher has sent, and what waits for it:
 *
 *   thread hvd-member:  FORM   -> form, change = 0     } wakes membership_join,
 *                       BREAK  -> is_broken, why       } ends the watched world
 *                       NOTIFY -> change
 *                       end of the connection -> has_gone
 *
 * Only the latest world counts: FORM of a generation that is not later, and BREAK and
 * NOTIFY of any other, are ignored. The world that the process is in, `last`, may be an
 * earlier one until membership_join is called again; then that one is over.
 *
 * Locks: `watch_lock` is held while the world is ended, so that membership_unwatch waits
 * for that; `lock` is taken under it, and a leaf.
 *
 * The claim of the slot is kept as long as the connection, unlike that of a rank: the
 * process keeps its slot between worlds.
 *
 * Called by find.c and world.c, the queries by api/. */
#include "runtime/world/membership.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/base/unix.h"
#include "runtime/wire/member_message.h"
#include "runtime/world/claim.h"
#include "hvd.h"

_Static_assert((int)HVD_ELASTIC_REMOVED == (int)MEMBER_CHANGE_REMOVED
                   && (int)HVD_ELASTIC_ADDED == (int)MEMBER_CHANGE_ADDED,
               "as launchers send them");

static const uint64_t CONNECT_LIMIT_NS = 30 * NS_PER_S; /* the launcher is busy */
static const uint64_t COMMIT_EVERY_NS = NS_PER_S;
enum { CONNECT_PAUSE_MS = 20 };
static const char GONE[] = "the launcher of this process has gone";

struct membership {
    int fd, claim_fd;
    struct member_address address;
    _Atomic bool
        is_forked;         /* this process is a child: only the parent has the thread */
    _Atomic uint32_t last; /* what membership_join returned; written by its thread */
    pthread_mutex_t lock;  /* leaf */
    pthread_cond_t changed;     /* lock */
    struct member_message form; /* lock, as all below; generation 0: none yet */
    bool has_thread;            /* until it has ended; it is detached */
    bool is_broken;             /* the world of form is */
    char why[MEMBER_WHY_BYTES];
    char gone[MEMBER_WHY_BYTES]; /* "": the launcher is there */
    uint32_t change;
    uint32_t committed; /* generation of the last COMMIT */
    uint64_t commit_ns; /* when the next one may be sent */
    pthread_mutex_t watch_lock;
    membership_end_fn end; /* watch_lock; NULL: no world to end */
    void *end_arg;
};

/* --- what the launcher says --- */

/* With the lock: the world `last` is over, and why. NULL: it is not. */
static const char *membership_over(const struct membership *m)
{
    uint32_t last = atomic_load_explicit(&m->last, memory_order_relaxed);

    if (m->gone[0])
        return m->gone;
    if (m->form.generation != last)
        return "the launcher has formed a later world";
    return m->is_broken ? m->why : NULL;
}

static void membership_end_watched(struct membership *m)
{
    char why[MEMBER_WHY_BYTES] = "";
    const char *over;

    (void)pthread_mutex_lock(&m->watch_lock);
    (void)pthread_mutex_lock(&m->lock);
    over = membership_over(m);
    if (over)
        (void)snprintf(why, sizeof(why), "%s", over);
    (void)pthread_mutex_unlock(&m->lock);
    if (over && m->end) {
        m->end(m->end_arg, why);
        m->end = NULL;
    }
    (void)pthread_mutex_unlock(&m->watch_lock);
}

/* With the lock. */
static void membership_apply(struct membership *m, const struct member_message *in)
{
    bool is_present = m->form.generation > 0 && in->generation == m->form.generation;

    switch (in->type) {
    case MEMBER_FORM:
        if (in->generation <= m->form.generation)
            break;
        m->form = *in;
        m->is_broken = false;
        m->change = 0;
        break;
    case MEMBER_BREAK:
        if (!is_present || m->is_broken)
            break;
        m->is_broken = true;
        (void)snprintf(m->why, sizeof(m->why), "%s", in->why);
        break;
    case MEMBER_NOTIFY:
        if (is_present)
            m->change |= in->change;
        break;
    case MEMBER_READY: /* those go the other way */
    case MEMBER_COMMIT:
    case MEMBER_ENDING:
        break;
    }
}

/* 1: a message; 0: none yet; -EPIPE: the end; -EPROTO. */
static int
membership_receive(struct membership *m, struct member_message *ret, struct err *err)
{
    uint8_t buf[MEMBER_MESSAGE_MAX_BYTES];
    ssize_t n = recv(m->fd, buf, sizeof(buf), 0);
    int rc;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return err_set(err, -EPIPE, "%s", GONE);
    rc = member_message_read(buf, (size_t)n, ret, err);
    return rc < 0 ? err_prefix(err, "the launcher of this process") : 1;
}

static void *membership_main(void *arg)
{
    struct membership *m = arg;
    struct member_message in;
    struct err err = ERR_INIT;
    int rc = 0;

    (void)pthread_setname_np(pthread_self(), "hvd-member");
    while (rc >= 0) {
        (void)fd_wait(m->fd, POLLIN, UINT64_MAX); /* the call below has the result */
        rc = membership_receive(m, &in, &err);
        if (rc == 0)
            continue;
        (void)pthread_mutex_lock(&m->lock);
        if (rc < 0)
            (void)snprintf(m->gone, sizeof(m->gone), "%.399s", err.text);
        else
            membership_apply(m, &in);
        (void)pthread_cond_broadcast(&m->changed);
        (void)pthread_mutex_unlock(&m->lock);
        membership_end_watched(m);
    }
    (void)pthread_mutex_lock(&m->lock);
    m->has_thread = false;
    (void)pthread_cond_broadcast(&m->changed);
    (void)pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* --- sending --- */

/* 0, -EAGAIN, or another failure. */
static int membership_send(struct membership *m, const struct member_message *out)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    int rc;

    strbuf_init(&b, MEMBER_MESSAGE_MAX_BYTES);
    member_message_write(out, &b);
    rc = strbuf_status(&b);
    if (rc == 0 && send(m->fd, b.p, b.n, MSG_NOSIGNAL) < 0)
        rc = -errno;
    return rc;
}

static int membership_report_ready(struct membership *m, struct err *err)
{
    const struct member_message out = {.type = MEMBER_READY,
                                       .generation = membership_generation(m),
                                       .slot = m->address.slot,
                                       .incarnation = m->address.incarnation};
    int rc;

    while ((rc = membership_send(m, &out)) == -EAGAIN || rc == -EINTR)
        (void)fd_wait(m->fd, POLLOUT, UINT64_MAX); /* ends when the launcher has gone */
    if (rc == -ENOMEM)
        return err_set(err, rc, "out of memory");
    return rc < 0 ? err_set(err, -EPIPE, "%s", GONE) : 0;
}

void membership_commit(struct membership *m, uint32_t generation, uint64_t now_ns)
{
    const struct member_message out = {.type = MEMBER_COMMIT, .generation = generation};
    bool is_due;

    if (atomic_load_explicit(&m->is_forked, memory_order_relaxed))
        return;
    (void)pthread_mutex_lock(&m->lock);
    is_due = m->committed != generation || now_ns >= m->commit_ns;
    if (is_due) {
        m->committed = generation;
        m->commit_ns = now_ns + COMMIT_EVERY_NS;
    }
    (void)pthread_mutex_unlock(&m->lock);
    if (is_due)
        (void)membership_send(m, &out); /* a launcher that is busy gets a later one */
}

void membership_end(struct membership *m, const char *why)
{
    struct member_message out = {.type = MEMBER_ENDING,
                                 .generation = membership_generation(m)};

    if (atomic_load_explicit(&m->is_forked, memory_order_relaxed))
        return;
    (void)snprintf(out.why, sizeof(out.why), "%s", why);
    (void)membership_send(m, &out); /* a launcher that is busy sees the exit */
}

/* --- worlds --- */

uint32_t membership_generation(const struct membership *m)
{
    return atomic_load_explicit(&m->last, memory_order_relaxed);
}

static void contract_take_form(struct contract *c, const struct member_message *form)
{
    uint32_t host = c->place.host;

    c->place = form->place;
    c->place.host = host;
    c->generation = form->generation;
    c->rank0_serves = false;
    c->rdv_port = form->rdv_port;
    (void)snprintf(c->rdv_host, sizeof(c->rdv_host), "%s", form->rdv_host);
}

/* With the lock. Returns whether the latest world is not broken. */
static bool membership_await_form(struct membership *m)
{
    while (!m->gone[0] && m->form.generation <= membership_generation(m))
        (void)pthread_cond_wait(&m->changed, &m->lock);
    if (!m->gone[0])
        atomic_store_explicit(&m->last, m->form.generation, memory_order_relaxed);
    return !m->is_broken;
}

int membership_join(struct membership *m, struct contract *c, struct err *err)
{
    bool is_whole = false;
    int rc = 0;

    if (atomic_load_explicit(&m->is_forked, memory_order_relaxed))
        return err_set(
            err, -EINVAL,
            "this process was forked from a process of an elastic job, which "
            "has the place: call hvd.init() there only");
    while (rc == 0 && !is_whole) {
        rc = membership_report_ready(m, err);
        (void)pthread_mutex_lock(&m->lock);
        if (rc == 0)
            is_whole = membership_await_form(m);
        if (m->gone[0])
            rc = err_set(err, -EPIPE, "%s", m->gone);
        else if (rc == 0)
            contract_take_form(c, &m->form);
        (void)pthread_mutex_unlock(&m->lock);
    }
    return rc;
}

int membership_check(struct membership *m, struct err *err)
{
    const char *over;
    int rc = 0;

    (void)pthread_mutex_lock(&m->lock);
    over = membership_over(m);
    if (over)
        rc = err_set(err, -ECANCELED, "%s", over);
    (void)pthread_mutex_unlock(&m->lock);
    return rc;
}

void membership_watch(struct membership *m, membership_end_fn end, void *arg)
{
    (void)pthread_mutex_lock(&m->watch_lock);
    m->end = end;
    m->end_arg = arg;
    (void)pthread_mutex_unlock(&m->watch_lock);
    membership_end_watched(m);
}

void membership_unwatch(struct membership *m)
{
    if (!m)
        return;
    (void)pthread_mutex_lock(&m->watch_lock);
    m->end = NULL;
    (void)pthread_mutex_unlock(&m->watch_lock);
}

int membership_take_change(struct membership *m)
{
    uint32_t change = 0;

    if (atomic_load_explicit(&m->is_forked, memory_order_relaxed))
        return 0;
    (void)pthread_mutex_lock(&m->lock);
    if (m->form.generation == membership_generation(m)) {
        change = m->change;
        m->change = 0;
    }
    (void)pthread_mutex_unlock(&m->lock);
    return (int)(change & (HVD_ELASTIC_REMOVED | HVD_ELASTIC_ADDED));
}

/* --- life --- */

/* The name is the launcher's, but anyone may listen at it once the launcher has gone. */
static int membership_check_peer(int fd, struct err *err)
{
    struct ucred peer;
    int rc = unix_read_peer(fd, &peer);

    if (rc < 0)
        return err_errno(err, -rc, "the launcher's socket has no credentials");
    if (peer.uid == geteuid() || peer.uid == 0)
        return 0;
    return err_set(err, -EACCES,
                   "user %u listens where HVD_ELASTIC says, not this user (%u)",
                   peer.uid, geteuid());
}

static int membership_connect(struct membership *m, struct err *err)
{
    uint64_t until_ns = clock_now_ns() + CONNECT_LIMIT_NS;
    int rc;

    while ((rc = unix_connect_packets(m->address.name, &m->fd, err)) == -EAGAIN
           && clock_now_ns() < until_ns)
        (void)poll(NULL, 0, CONNECT_PAUSE_MS); /* the backlog is full */
    if (rc < 0)
        return err_prefix(err, "the launcher of this process (HVD_ELASTIC)");
    return membership_check_peer(m->fd, err);
}

/* Detached: a process keeps it until it ends. */
static int membership_start(struct membership *m, struct err *err)
{
    pthread_t thread;
    int rc;

    m->has_thread = true;
    rc = thread_start(&thread, membership_main, m);
    if (rc == 0) {
        (void)pthread_detach(thread);
        return 0;
    }
    m->has_thread = false;
    return err_errno(err, rc, "cannot start the membership thread");
}

int membership_open(const char *text,
                    const char *job_id,
                    struct membership **ret,
                    struct err *err)
{
    struct membership *m = mem_zalloc(sizeof(*m));
    int rc;

    if (!m)
        return err_set(err, -ENOMEM, "out of memory");
    m->fd = -1;
    (void)pthread_mutex_init(&m->lock, NULL);
    (void)pthread_mutex_init(&m->watch_lock, NULL);
    clock_init_cond(&m->changed);
    rc = member_address_read(text, &m->address, err);
    if (rc == 0)
        rc = claim_slot(job_id, text, &m->claim_fd, err);
    if (rc == 0)
        rc = membership_connect(m, err);
    rc = rc < 0 ? rc : membership_start(m, err);
    if (rc < 0)
        membership_close(m);
    else
        *ret = m;
    return rc;
}

void membership_close(struct membership *m)
{
    if (!m)
        return;
    if (m->fd >= 0)
        (void)shutdown(m->fd, SHUT_RDWR); /* the thread finds its end */
    (void)pthread_mutex_lock(&m->lock);
    while (m->has_thread)
        (void)pthread_cond_wait(&m->changed, &m->lock);
    (void)pthread_mutex_unlock(&m->lock);
    fd_close(&m->fd);
    claim_drop(&m->claim_fd);
    (void)pthread_cond_destroy(&m->changed);
    (void)pthread_mutex_destroy(&m->watch_lock);
    (void)pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

void membership_forked(struct membership *m)
{
    if (!m)
        return;
    atomic_store_explicit(&m->is_forked, true, memory_order_relaxed);
    fd_close(&m->fd);
    claim_drop(&m->claim_fd);
}
