/* SPDX-License-Identifier: Apache-2.0 */
/* The seat is an atomic flag and no mutex, because callbacks run in it and may call
 * everything but wait and shutdown. A thread in seat_wait takes it if it is free, else
 * it sleeps on done_cond until its op has ended or the seat is free. The background
 * thread takes it only while no thread waits; meanwhile it naps, doubling short naps.
 *
 * Sleeping. A thread that blocks for frames first counts itself in n_polling and then
 * checks the queue. A submitter first pushes and then checks n_polling (all seq_cst).
 * So no submission is missed. While the background thread naps and no thread waits, a
 * lone submission is left for the hvd_wait that usually follows; the nap ends after
 * NAP_MIN_NS, or at once with a second submission.
 *
 * Leaving. seat_keep lets no other thread take the seat again. A thread in seat_wait
 * counts itself in n_waiters before it reads the op's status; the thread that leaves
 * first ends all ops and then reads n_waiters (all seq_cst). So either that thread finds
 * its op ended and touches nothing else, or it is waited for (seat_await_empty).
 *
 * Locks: none is held while another is taken; README.md lists them. */
#include "runtime/engine/seat.h"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/thread.h"

static const uint64_t NAP_MIN_NS = 500000, NAP_MAX_NS = 50 * NS_PER_MS;
static const uint64_t SPIN_NS = 100000, SPIN_CROWDED_NS = 20000;
static const uint64_t DOZE_NS = 2 * NS_PER_MS, SEAT_NS = 50 * NS_PER_MS;
static const uint64_t QUIESCE_NS = NS_PER_S;
static const uint64_t FOREVER_NS = 3600 * NS_PER_S, EXACT_NS = 50 * NS_PER_MS;

/* --- taking and leaving the seat --- */

static bool seat_take_any(struct seat *s)
{
    bool is_taken = false;

    return atomic_compare_exchange_strong(&s->is_taken, &is_taken, true);
}

/* Fails once a thread wants to keep the seat. */
static bool seat_take(struct seat *s)
{
    return !atomic_load_explicit(&s->is_kept, memory_order_relaxed)
           && !atomic_load_explicit(&s->is_taken, memory_order_relaxed)
           && seat_take_any(s);
}

static void seat_broadcast_done(struct seat *s)
{
    (void)pthread_mutex_lock(&s->lock);
    (void)pthread_cond_broadcast(&s->done_cond);
    (void)pthread_mutex_unlock(&s->lock);
}

void seat_wake_waiters(struct seat *s)
{
    if (atomic_load(&s->n_sleepers) > 0)
        seat_broadcast_done(s);
}

/* The step may have consumed the wake-up of a later submission or moved the next
 * deadline: a thread that blocks for frames must check these again. */
static void seat_wake_poller(struct seat *s)
{
    if (atomic_load(&s->n_polling) > 0
        && (atomic_load(&s->e->queue.n_new) > 0
            || atomic_load(&s->next_ns) < atomic_load(&s->poll_until_ns)))
        control_wake(s->e->control);
}

static void seat_leave(struct seat *s)
{
    /* The background thread handles a running agreement and transfers from here on, after
     * its nap. */
    if (engine_is_agreeing(s->e) || (s->e->transfers.n > 0 && !s->e->has_failed))
        atomic_store(&s->next_ns, 0);
    atomic_store(&s->is_taken, false);
    /* For a thread that gave up waiting for the seat, which then stays taken. */
    if (atomic_load(&s->is_abandoned) && seat_take_any(s))
        s->hooks.end(s->hooks.arg);
    seat_wake_waiters(s);
    seat_wake_poller(s);
}

/* Waits until op (may be NULL) has reached state, the seat is free, or the deadline. */
static void seat_await(struct seat *s,
                       const struct op *op,
                       enum op_state state,
                       uint64_t deadline_ns)
{
    struct timespec ts =
        clock_timespec(earlier_ns(deadline_ns, clock_now_ns() + FOREVER_NS));
    int rc = 0;

    (void)pthread_mutex_lock(&s->lock);
    atomic_fetch_add(&s->n_sleepers, 1);
    while (rc == 0 && atomic_load(&s->is_taken) && (!op || !op_has_reached(op, state)))
        rc = pthread_cond_timedwait(&s->done_cond, &s->lock, &ts);
    atomic_fetch_sub(&s->n_sleepers, 1);
    (void)pthread_mutex_unlock(&s->lock);
}

/* --- sleeping --- */

/* Uses epoll_wait for long waits only, because its resolution is a millisecond. */
void seat_await_frames(struct seat *s, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns(), ns = deadline_ns > now ? deadline_ns - now : 0;
    struct pollfd p = {.fd = control_epoll_fd(s->e->control), .events = POLLIN};
    struct timespec ts = clock_timespec(ns);
    struct epoll_event ev;

    if (ns > 0 && ns < EXACT_NS)
        (void)ppoll(&p, 1, &ts, NULL); /* whatever the result, the caller checks */
    else
        (void)epoll_wait(p.fd, &ev, 1, clock_left_ms(deadline_ns)); /* likewise */
}

static void seat_poll(struct seat *s, uint64_t deadline_ns)
{
    atomic_store(&s->poll_until_ns, deadline_ns);
    atomic_fetch_add(&s->n_polling, 1);
    if (atomic_load(&s->e->queue.n_new) == 0)
        seat_await_frames(s, deadline_ns);
    atomic_fetch_sub(&s->n_polling, 1);
}

/* In the seat, during an agreement: the words of other ranks wake this thread, but
 * frames do not, so it sleeps in slices and reads frames after each. */
static void seat_doze(struct seat *s, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    uint64_t ns = deadline_ns > now ? earlier_ns(deadline_ns - now, DOZE_NS) : 0;

    atomic_fetch_add(&s->n_dozing, 1);
    if (atomic_load(&s->e->queue.n_new) == 0 && ns > 0)
        s->e->backend->ops->doze(s->e->backend, ns);
    atomic_fetch_sub(&s->n_dozing, 1);
}

static void seat_end_doze(struct seat *s)
{
    if (atomic_load(&s->n_dozing) > 0)
        s->e->backend->ops->nudge(s->e->backend);
}

void seat_sleep(struct seat *s, uint64_t deadline_ns, bool awaits)
{
    uint64_t until = earlier_ns(deadline_ns, atomic_load(&s->next_ns));

    if (engine_is_agreeing(s->e)) {
        seat_doze(s, until);
        return;
    }
    if (awaits)
        flights_await(s->flights, true);
    seat_poll(s, until);
    if (awaits)
        flights_await(s->flights, false);
}

/* Of the background thread. is_beside: only while a thread waits; the last one to leave
 * ends the nap. */
static void seat_nap(struct seat *s, uint64_t ns, bool is_beside)
{
    uint64_t until = clock_now_ns() + ns;
    struct timespec ts = clock_timespec(until);

    (void)pthread_mutex_lock(&s->lock);
    atomic_store(&s->nap_until_ns, until);
    if (!s->must_stop && (!is_beside || atomic_load(&s->e->n_waiters) > 0))
        (void)pthread_cond_timedwait(&s->nap_cond, &s->lock, &ts); /* early is fine */
    atomic_store(&s->nap_until_ns, 0);
    (void)pthread_mutex_unlock(&s->lock);
}

static void seat_end_nap(struct seat *s)
{
    (void)pthread_mutex_lock(&s->lock);
    (void)pthread_cond_signal(&s->nap_cond);
    (void)pthread_mutex_unlock(&s->lock);
}

void seat_wake(struct seat *s)
{
    seat_end_doze(s);
    control_wake(s->e->control);
    if (atomic_load(&s->nap_until_ns) > 0 && atomic_load(&s->e->n_waiters) == 0)
        seat_end_nap(s);
}

void seat_notice_new(struct seat *s)
{
    seat_end_doze(s);
    if (atomic_load(&s->n_polling) > 0)
        control_wake(s->e->control);
    else if (atomic_load(&s->nap_until_ns) > 0 && atomic_load(&s->e->n_waiters) == 0
             && atomic_load(&s->e->queue.n_outstanding) > 1)
        seat_end_nap(s);
}

/* --- waiting --- */

static bool seat_step_at(struct seat *s, uint64_t now_ns)
{
    uint64_t next_ns = atomic_load(&s->next_ns);
    bool moved = s->hooks.step(s->hooks.arg, now_ns, &next_ns);

    atomic_store(&s->next_ns, next_ns);
    return moved;
}

bool seat_step(struct seat *s)
{
    return seat_step_at(s, clock_now_ns());
}

/* The first of the threads that wait counts the begin, at a time that is read anyway. */
static void seat_count_begin(struct seat *s, bool *is_first, uint64_t now_ns)
{
    if (*is_first)
        stats_block_begin(&s->e->observe.stats, now_ns);
    *is_first = false;
}

static void seat_drive(struct seat *s,
                       const struct op *op,
                       enum op_state state,
                       uint64_t deadline_ns,
                       bool *is_first)
{
    uint64_t spin_ns = s->is_crowded ? SPIN_CROWDED_NS : SPIN_NS;
    uint64_t spin_until = 0; /* 0: something was done since the clock was read */

    while (!op_has_reached(op, state)) {
        uint64_t now = clock_now_ns();
        bool moved;

        seat_count_begin(s, is_first, now);
        moved = seat_step_at(s, now);
        if (moved)
            spin_until = 0;
        if (moved && s->e->transfers.n == 0)
            continue; /* transfers of other threads may move for as long as they like */
        now = clock_now_ns();
        if (now >= deadline_ns || engine_is_over(s->e) || atomic_load(&s->is_kept))
            return;
        if (moved)
            continue;
        if (spin_until == 0)
            spin_until = now + spin_ns;
        if (now < spin_until) {
            (void)sched_yield(); /* another rank may wait for this processor */
            continue;
        }
        seat_sleep(s, deadline_ns, state == OP_ENDED);
    }
}

/* Counted in n_waiters. Returns the time at its end. */
static uint64_t seat_wait_inside(struct seat *s,
                                 const struct op *op,
                                 enum op_state state,
                                 uint64_t deadline_ns,
                                 bool *is_first)
{
    uint64_t now;

    atomic_fetch_add(&s->n_waits, 1);
    do {
        if (seat_take(s)) {
            seat_drive(s, op, state, deadline_ns, is_first);
            seat_leave(s);
        } else {
            if (*is_first)
                seat_count_begin(s, is_first, clock_now_ns());
            seat_end_doze(s); /* the background thread gives the seat up */
            seat_await(s, op, state, deadline_ns);
        }
        now = clock_now_ns();
    } while (!op_has_reached(op, state) && now < deadline_ns);
    atomic_store(&s->last_wait_ns, now);
    return now;
}

int seat_wait(struct seat *s, struct op *op, enum op_state state, uint64_t deadline_ns)
{
    uint64_t ended_ns;
    bool is_first;

    if (op_has_reached(op, state))
        return op_status(op);
    is_first = atomic_fetch_add(&s->e->n_waiters, 1) == 0;
    if (!op_has_reached(op, state)) /* again: see "Leaving" */
        ended_ns = seat_wait_inside(s, op, state, deadline_ns, &is_first);
    else
        ended_ns = clock_now_ns();
    seat_count_begin(s, &is_first, ended_ns); /* it did not wait */
    if (atomic_fetch_sub(&s->e->n_waiters, 1) == 1) {
        stats_block_end(&s->e->observe.stats, ended_ns);
        if (atomic_load(&s->nap_until_ns)
            > atomic_load(&s->last_wait_ns) + 2 * NAP_MIN_NS)
            seat_end_nap(s);
    }
    if (atomic_load(&s->is_kept))
        seat_broadcast_done(s); /* for seat_await_empty */
    return op_status(op);
}

/* --- the background thread --- */

static bool thread_should_stop(struct seat *s)
{
    bool r;

    (void)pthread_mutex_lock(&s->lock);
    r = s->must_stop;
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

/* Until a thread waits, or nothing is left to do. */
static void thread_run_steps(struct seat *s)
{
    while (atomic_load(&s->e->n_waiters) == 0 && !engine_is_over(s->e)
           && !atomic_load(&s->is_kept)) {
        if (seat_step(s))
            continue;
        if (!engine_is_agreeing(s->e))
            break;
        seat_doze(s, atomic_load(&s->next_ns));
    }
}

/* One round; the nap it took, 0 if it worked. */
static uint64_t thread_run_round(struct seat *s, uint64_t last_nap_ns, uint32_t *seen)
{
    uint32_t waits = atomic_load(&s->n_waits);
    bool is_same = waits == *seen;
    uint64_t ns = NAP_MIN_NS;

    *seen = waits;
    if (engine_is_over(s->e)) {
        seat_nap(s, FOREVER_NS, false);
        return NAP_MIN_NS;
    }
    if (atomic_load(&s->e->n_waiters) > 0) {
        if (is_same && last_nap_ns > 0)
            ns = earlier_ns(last_nap_ns * 2, NAP_MAX_NS);
        seat_nap(s, ns, true);
        return ns;
    }
    if (clock_now_ns() < atomic_load(&s->last_wait_ns) + NAP_MIN_NS
        && atomic_load(&s->e->queue.n_outstanding) <= 1) {
        seat_nap(s, ns, false);
        return ns;
    }
    seat_poll(s, atomic_load(&s->next_ns));
    if (atomic_load(&s->e->n_waiters) > 0)
        return 0;
    if (!seat_take(s)) {
        seat_nap(s, ns, false);
        return ns;
    }
    thread_run_steps(s);
    seat_leave(s);
    return 0;
}

static void *thread_main(void *arg)
{
    struct seat *s = arg;
    struct op_owner *owner = s->owner;
    uint64_t nap_ns = 0;
    uint32_t seen = 0;

    settings_move_to_core(&s->e->settings);
    (void)pthread_setname_np(pthread_self(), "hvd-coordinator");
    clock_wake_on_time();
    while (!thread_should_stop(s))
        nap_ns = thread_run_round(s, nap_ns, &seen);
    (void)pthread_mutex_lock(&s->lock);
    s->has_stopped = true;
    (void)pthread_cond_broadcast(&s->done_cond);
    (void)pthread_mutex_unlock(&s->lock);
    op_owner_unref(owner);
    return NULL;
}

/* --- life --- */

void seat_init(struct seat *s,
               struct engine *e,
               struct flights *f,
               bool is_crowded,
               const struct seat_hooks *hooks)
{
    s->e = e;
    s->flights = f;
    s->is_crowded = is_crowded;
    s->hooks = *hooks;
    (void)pthread_mutex_init(&s->lock, NULL);
    clock_init_cond(&s->done_cond);
    clock_init_cond(&s->nap_cond);
}

void seat_release(struct seat *s)
{
    (void)pthread_cond_destroy(&s->done_cond);
    (void)pthread_cond_destroy(&s->nap_cond);
    (void)pthread_mutex_destroy(&s->lock);
}

int seat_start(struct seat *s, struct op_owner *owner, struct err *err)
{
    int rc;

    s->owner = owner;
    atomic_fetch_add(&owner->refs, 1); /* the thread's */
    rc = thread_start(&s->thread, thread_main, s);
    s->has_thread = rc == 0;
    if (rc == 0)
        return 0;
    op_owner_unref(owner);
    return err_errno(err, rc, "cannot start the coordinator's thread");
}

bool seat_stop(struct seat *s, uint64_t deadline_ns)
{
    struct timespec ts = clock_timespec(deadline_ns);
    bool stopped;
    int rc = 0;

    if (!s->has_thread)
        return true;
    (void)pthread_mutex_lock(&s->lock);
    s->must_stop = true;
    (void)pthread_cond_broadcast(&s->nap_cond);
    (void)pthread_mutex_unlock(&s->lock);
    control_wake(s->e->control);
    (void)pthread_mutex_lock(&s->lock);
    while (!s->has_stopped && rc == 0)
        rc = pthread_cond_timedwait(&s->done_cond, &s->lock, &ts);
    stopped = s->has_stopped;
    (void)pthread_mutex_unlock(&s->lock);
    (void)(stopped ? pthread_join(s->thread, NULL) : pthread_detach(s->thread));
    s->has_thread = false;
    return stopped;
}

bool seat_await_empty(struct seat *s, uint64_t deadline_ns)
{
    struct timespec ts = clock_timespec(deadline_ns);
    int rc = 0;

    (void)pthread_mutex_lock(&s->lock);
    while (atomic_load(&s->e->n_waiters) > 1 && rc == 0) /* 1: seat_keep's own */
        rc = pthread_cond_timedwait(&s->done_cond, &s->lock, &ts);
    (void)pthread_mutex_unlock(&s->lock);
    return rc == 0;
}

bool seat_keep(struct seat *s, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    uint64_t half = now + (deadline_ns > now ? (deadline_ns - now) / 2 : 0);

    atomic_fetch_add(&s->e->n_waiters, 1);
    atomic_store(&s->is_kept, true);
    control_wake(s->e->control);
    seat_end_doze(s);
    while (!seat_take_any(s)) {
        now = clock_now_ns();
        if (deadline_ns < now + QUIESCE_NS && atomic_load(&s->flights->is_quiescing))
            deadline_ns = now + QUIESCE_NS; /* to leave the seat after that */
        if (now >= deadline_ns)
            return false;
        if (now >= half)
            atomic_store(&s->e->is_hurried, true);
        seat_await(s, NULL, OP_ENDED, now + SEAT_NS);
    }
    return true;
}

void seat_abandon(struct seat *s)
{
    atomic_store(&s->is_abandoned, true);
    if (seat_take_any(s))
        s->hooks.end(s->hooks.arg);
}
