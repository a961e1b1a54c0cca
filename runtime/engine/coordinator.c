/* SPDX-License-Identifier: Apache-2.0 */
/* Which thread runs the coordinator, and how it sleeps. step.c has the steps.
 *
 * The seat. Exactly one thread at a time runs steps: the one that holds the seat, an
 * atomic flag and no mutex, because callbacks run in the seat and may call everything
 * but wait and shutdown. A thread in hvd_wait takes the seat if it is free, else it
 * sleeps on done_cond until its op has ended or the seat is free. The background thread
 * takes it only while no thread waits; meanwhile it naps, doubling short naps.
 *
 * Sleeping. A thread that blocks for frames first counts itself in n_polling and then
 * checks the queue. A submitter first pushes and then checks n_polling (all seq_cst).
 * So no submission is missed. While the background thread naps and no thread waits, a
 * lone submission is left for the hvd_wait that usually follows; the nap ends after
 * NAP_MIN_NS, or at once with a second submission.
 *
 * Locks: none is held while another is taken; README.md lists them. */
#include "runtime/engine/coordinator.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

static const uint64_t NAP_MIN_NS = 500000, NAP_MAX_NS = 50 * NS_PER_MS;
static const uint64_t SPIN_NS = 100000, SPIN_CROWDED_NS = 20000;
static const uint64_t DOZE_NS = 2 * NS_PER_MS, SEAT_NS = 50 * NS_PER_MS;
static const uint64_t LEAVE_PLAN_NS = NS_PER_S, QUIESCE_NS = NS_PER_S;
static const uint64_t FOREVER_NS = 3600 * NS_PER_S, EXACT_NS = 50 * NS_PER_MS;
static const char SHUT_DOWN_HERE[] =
    "Horovod has been shut down: this rank called shutdown()";

static struct coordinator *owner_coordinator(struct op_owner *o)
{
    return (struct coordinator *)(void *)o; /* it is the first member */
}

static bool coordinator_is_over(const struct coordinator *co)
{
    int life = atomic_load_explicit(&co->life, memory_order_acquire);

    return life == LIFE_DOWN || life == LIFE_ABORTED;
}

/* --- the seat --- */

static bool seat_take_any(struct coordinator *co)
{
    int free_seat = 0;

    return atomic_compare_exchange_strong(&co->seat, &free_seat, 1);
}

/* Fails once a thread wants to keep the seat (seat_keep). */
static bool seat_take(struct coordinator *co)
{
    return !atomic_load_explicit(&co->is_leaving, memory_order_relaxed)
           && atomic_load_explicit(&co->seat, memory_order_relaxed) == 0
           && seat_take_any(co);
}

void coordinator_wake_sleepers(struct coordinator *co)
{
    if (atomic_load(&co->n_sleepers) == 0)
        return;
    (void)pthread_mutex_lock(&co->lock);
    (void)pthread_cond_broadcast(&co->done_cond);
    (void)pthread_mutex_unlock(&co->lock);
}

/* The step may have consumed the wake-up of a later submission or moved the next
 * deadline: a thread that blocks for frames must check these again. */
static void coordinator_wake_poller(struct coordinator *co)
{
    if (atomic_load(&co->n_polling) > 0
        && (atomic_load(&co->queue.n_new) > 0
            || atomic_load(&co->next_ns) < atomic_load(&co->poll_until_ns)))
        control_wake(co->control);
}

static void coordinator_send_goodbye(struct coordinator *co);

static void seat_leave(struct coordinator *co)
{
    /* The background thread handles a running agreement from here on, after its nap. */
    if (member_is_agreeing(co->member) && !co->has_failed)
        atomic_store(&co->next_ns, 0);
    atomic_store(&co->seat, 0);
    /* For a thread that gave up waiting for the seat, which then stays taken. */
    if (atomic_load(&co->is_abandoned) && seat_take_any(co))
        coordinator_send_goodbye(co);
    coordinator_wake_sleepers(co);
    coordinator_wake_poller(co);
}

/* Waits until op (may be NULL) has reached state, the seat is free, or the deadline. */
static void coordinator_wait_for_seat(struct coordinator *co,
                                      const struct op *op,
                                      enum op_state state,
                                      uint64_t deadline_ns)
{
    struct timespec ts =
        clock_timespec(earlier_ns(deadline_ns, clock_now_ns() + FOREVER_NS));
    int rc = 0;

    (void)pthread_mutex_lock(&co->lock);
    atomic_fetch_add(&co->n_sleepers, 1);
    while (rc == 0 && atomic_load(&co->seat) != 0
           && (!op || !op_has_reached(op, state)))
        rc = pthread_cond_timedwait(&co->done_cond, &co->lock, &ts);
    atomic_fetch_sub(&co->n_sleepers, 1);
    (void)pthread_mutex_unlock(&co->lock);
}

/* --- sleeping --- */

/* Uses epoll_wait for long waits only, because its resolution is a millisecond. */
void coordinator_await_frames(struct coordinator *co, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns(), ns = deadline_ns > now ? deadline_ns - now : 0;
    struct pollfd p = {.fd = control_epoll_fd(co->control), .events = POLLIN};
    struct timespec ts = clock_timespec(ns);
    struct epoll_event ev;

    if (ns > 0 && ns < EXACT_NS)
        (void)ppoll(&p, 1, &ts, NULL); /* whatever the result, the caller checks */
    else
        (void)epoll_wait(p.fd, &ev, 1, clock_left_ms(deadline_ns)); /* likewise */
}

static void coordinator_poll(struct coordinator *co, uint64_t deadline_ns)
{
    atomic_store(&co->poll_until_ns, deadline_ns);
    atomic_fetch_add(&co->n_polling, 1);
    if (atomic_load(&co->queue.n_new) == 0)
        coordinator_await_frames(co, deadline_ns);
    atomic_fetch_sub(&co->n_polling, 1);
}

/* In the seat, during an agreement: the words of other ranks wake this thread, but
 * frames do not, so it sleeps in slices and reads frames after each. */
static void coordinator_doze(struct coordinator *co, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    uint64_t ns = deadline_ns > now ? earlier_ns(deadline_ns - now, DOZE_NS) : 0;

    atomic_fetch_add(&co->n_dozing, 1);
    if (atomic_load(&co->queue.n_new) == 0 && ns > 0)
        co->backend->ops->doze(co->backend, ns);
    atomic_fetch_sub(&co->n_dozing, 1);
}

static void coordinator_end_doze(struct coordinator *co)
{
    if (atomic_load(&co->n_dozing) > 0)
        co->backend->ops->nudge(co->backend);
}

/* In the seat, when a step found nothing to do; awaits: a thread waits for an op. */
static void coordinator_sleep(struct coordinator *co, uint64_t deadline_ns, bool awaits)
{
    uint64_t until = earlier_ns(deadline_ns, atomic_load(&co->next_ns));
    if (member_is_agreeing(co->member) && !co->has_failed) {
        coordinator_doze(co, until);
        return;
    }
    if (awaits)
        flights_await(co, true);
    coordinator_poll(co, until);
    if (awaits)
        flights_await(co, false);
}

/* is_beside: only while a thread waits; the last one to leave ends the nap. */
static void coordinator_nap(struct coordinator *co, uint64_t ns, bool is_beside)
{
    uint64_t until = clock_now_ns() + ns;
    struct timespec ts = clock_timespec(until);

    (void)pthread_mutex_lock(&co->lock);
    atomic_store(&co->nap_until_ns, until);
    if (!co->must_stop && (!is_beside || atomic_load(&co->n_waiters) > 0))
        (void)pthread_cond_timedwait(&co->nap_cond, &co->lock, &ts); /* early is fine */
    atomic_store(&co->nap_until_ns, 0);
    (void)pthread_mutex_unlock(&co->lock);
}

static void coordinator_end_nap(struct coordinator *co)
{
    (void)pthread_mutex_lock(&co->lock);
    (void)pthread_cond_signal(&co->nap_cond);
    (void)pthread_mutex_unlock(&co->lock);
}

void coordinator_wake(struct coordinator *co)
{
    coordinator_end_doze(co);
    control_wake(co->control);
    if (atomic_load(&co->nap_until_ns) > 0 && atomic_load(&co->n_waiters) == 0)
        coordinator_end_nap(co);
}

int coordinator_submit(struct coordinator *co,
                       struct op *const *ops,
                       uint32_t n,
                       struct err *err)
{
    int rc = tensor_queue_push(&co->queue, ops, n, err);

    if (rc < 0)
        return rc;
    coordinator_end_doze(co);
    if (atomic_load(&co->n_polling) > 0)
        control_wake(co->control);
    else if (atomic_load(&co->nap_until_ns) > 0 && atomic_load(&co->n_waiters) == 0
             && atomic_load(&co->queue.n_outstanding) > 1)
        coordinator_end_nap(co);
    return 0;
}

/* --- waiting --- */

static void coordinator_drive(struct coordinator *co,
                              const struct op *op,
                              enum op_state state,
                              uint64_t deadline_ns)
{
    uint64_t spin_ns = co->is_crowded ? SPIN_CROWDED_NS : SPIN_NS;
    uint64_t spin_until = clock_now_ns() + spin_ns;

    while (!op_has_reached(op, state)) {
        uint64_t now;

        if (step_once(co)) {
            spin_until = clock_now_ns() + spin_ns;
            continue;
        }
        now = clock_now_ns();
        if (now >= deadline_ns || coordinator_is_over(co)
            || atomic_load(&co->is_leaving))
            return;
        if (now < spin_until) {
            (void)sched_yield(); /* another rank may wait for this processor */
            continue;
        }
        coordinator_sleep(co, deadline_ns, state == OP_ENDED);
    }
}

int coordinator_wait(struct op *op, enum op_state state, uint64_t deadline_ns)
{
    struct coordinator *co = owner_coordinator(op->owner);
    uint64_t now;

    if (op_has_reached(op, state))
        return op_status(op);
    atomic_fetch_add(&co->n_waiters, 1);
    atomic_fetch_add(&co->n_waits, 1);
    do {
        if (seat_take(co)) {
            coordinator_drive(co, op, state, deadline_ns);
            seat_leave(co);
        } else {
            coordinator_end_doze(co); /* the background thread gives the seat up */
            coordinator_wait_for_seat(co, op, state, deadline_ns);
        }
        now = clock_now_ns();
    } while (!op_has_reached(op, state) && now < deadline_ns);
    atomic_store(&co->last_wait_ns, now);
    if (atomic_fetch_sub(&co->n_waiters, 1) == 1
        && atomic_load(&co->nap_until_ns) > now + 2 * NAP_MIN_NS)
        coordinator_end_nap(co);
    return op_status(op);
}

/* --- the background thread --- */

static bool thread_should_stop(struct coordinator *co)
{
    bool r;

    (void)pthread_mutex_lock(&co->lock);
    r = co->must_stop;
    (void)pthread_mutex_unlock(&co->lock);
    return r;
}

/* One round; the nap it took, 0 if it worked. */
static uint64_t
thread_run_round(struct coordinator *co, uint64_t last_nap_ns, uint32_t *seen)
{
    uint32_t waits = atomic_load(&co->n_waits);
    bool is_same = waits == *seen;
    uint64_t ns = NAP_MIN_NS;

    *seen = waits;
    if (coordinator_is_over(co)) {
        coordinator_nap(co, FOREVER_NS, false);
        return NAP_MIN_NS;
    }
    if (atomic_load(&co->n_waiters) > 0) {
        if (is_same && last_nap_ns > 0)
            ns = earlier_ns(last_nap_ns * 2, NAP_MAX_NS);
        coordinator_nap(co, ns, true);
        return ns;
    }
    if (clock_now_ns() < atomic_load(&co->last_wait_ns) + NAP_MIN_NS
        && atomic_load(&co->queue.n_outstanding) <= 1) {
        coordinator_nap(co, ns, false);
        return ns;
    }
    coordinator_poll(co, atomic_load(&co->next_ns));
    if (atomic_load(&co->n_waiters) > 0)
        return 0;
    if (!seat_take(co)) {
        coordinator_nap(co, ns, false);
        return ns;
    }
    while (atomic_load(&co->n_waiters) == 0 && !coordinator_is_over(co)
           && !atomic_load(&co->is_leaving)) {
        if (step_once(co))
            continue;
        if (!member_is_agreeing(co->member) || co->has_failed)
            break;
        coordinator_doze(co, atomic_load(&co->next_ns));
    }
    seat_leave(co);
    return 0;
}

static void *coordinator_main(void *arg)
{
    struct coordinator *co = arg;
    uint64_t nap_ns = 0;
    uint32_t seen = 0;

    settings_move_to_core(&co->settings);
    (void)pthread_setname_np(pthread_self(), "hvd-coordinator");
    clock_wake_on_time();
    while (!thread_should_stop(co))
        nap_ns = thread_run_round(co, nap_ns, &seen);
    (void)pthread_mutex_lock(&co->lock);
    co->has_stopped = true;
    (void)pthread_cond_broadcast(&co->done_cond);
    (void)pthread_mutex_unlock(&co->lock);
    coordinator_unref(co);
    return NULL;
}

/* --- life --- */

static const char *coordinator_host_of(void *arg, uint32_t rank)
{
    return ((const struct coordinator *)arg)->members[rank].host;
}

/* Rank 0's settings apply to the whole world. */
static int coordinator_new_table(struct coordinator *co)
{
    struct negotiate_config cfg = {
        .n_ranks = co->size,
        .fusion_bytes = co->settings.fusion_bytes,
        .cache_capacity = co->settings.cache_capacity,
        .may_freeze = true,
        .fuses_groups_apart = co->settings.is_group_alone,
        .on_request = observe_request,
        .on_request_arg = &co->observe,
    };

    return negotiate_new(&cfg, &co->negotiate);
}

static void coordinator_free(struct op_owner *o)
{
    struct coordinator *co = owner_coordinator(o);

    observe_release(&co->observe);
    regions_release(&co->regions);
    autotune_release(&co->autotune);
    negotiate_free(co->negotiate);
    member_free(co->member);
    codec_state_free(co->codec_state);
    mem_free(co->codec_scratch);
    tensor_queue_release(&co->queue);
    strbuf_release(&co->out);
    mem_free(co->rows);
    mem_free(co->ones);
    mem_free(co->items);
    (void)pthread_mutex_destroy(&co->gpu.lock);
    (void)pthread_cond_destroy(&co->done_cond);
    (void)pthread_cond_destroy(&co->nap_cond);
    (void)pthread_mutex_destroy(&co->lock);
    mem_free(co);
}

void coordinator_unref(struct coordinator *co)
{
    op_owner_unref(co ? &co->owner : NULL);
}

static void wake_on_device(void *arg)
{
    coordinator_wake(arg);
}

static void coordinator_init_device(struct coordinator *co,
                                    const struct coordinator_config *cfg)
{
    const struct world_device_config c = {.rank = co->rank,
                                          .size = co->size,
                                          .settings = &co->settings,
                                          .members = cfg->members,
                                          .nccl_hint = cfg->nccl_hint,
                                          .park = cfg->park,
                                          .wake = wake_on_device,
                                          .arg = co};

    device_init(&co->gpu, &c);
}

static void timeline_send_to_root(void *arg, const void *p, size_t n)
{
    (void)control_up(((struct coordinator *)arg)->control, p,
                     n); /* the pump reports a loss */
}

static void timeline_send_to_all(void *arg, const void *p, size_t n)
{
    (void)control_down(((struct coordinator *)arg)->control, p,
                       n); /* the pump reports a loss */
}

static void timeline_wake(void *arg)
{
    control_wake(((struct coordinator *)arg)->control);
}

int coordinator_new(const struct coordinator_config *cfg,
                    struct coordinator **ret,
                    struct err *err)
{
    const struct settings *s = cfg->settings;
    uint32_t size = cfg->size;
    struct coordinator *co = mem_zalloc(sizeof(*co));
    const struct timeline_link link = {timeline_send_to_root, timeline_send_to_all,
                                       timeline_wake, co};
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);

    if (!co)
        return err_set(err, -ENOMEM, "out of memory");
    atomic_init(&co->owner.refs, 1);
    co->owner.free = coordinator_free;
    co->rank = cfg->rank;
    co->size = size;
    co->settings = *s;
    co->report_late = cfg->report_late;
    co->members = cfg->members;
    co->env = cfg->env;
    co->sets = cfg->sets;
    co->is_crowded = n_cpus > 0 && cfg->local_size > (uint32_t)n_cpus;
    co->stall.warn_ns = s->stall_warn_ns;
    co->stall.fail_ns = s->stall_fail_ns;
    co->stall.host_of = coordinator_host_of;
    co->stall.arg = co;
    co->stall_next_ns = UINT64_MAX;
    atomic_init(&co->next_ns, 0);
    tensor_queue_init(&co->queue);
    coordinator_init_device(co, cfg);
    regions_init(&co->regions);
    strbuf_init(&co->out, MESSAGE_MAX_BYTES);
    (void)pthread_mutex_init(&co->lock, NULL);
    clock_init_cond(&co->done_cond);
    clock_init_cond(&co->nap_cond);
    co->rows = mem_calloc(size, sizeof(*co->rows));
    co->ones = mem_calloc(size, sizeof(*co->ones));
    for (uint32_t i = 0; co->ones && i < size; i++)
        co->ones[i] = 1;
    if (!co->rows || !co->ones || member_new(co->rank, size, &co->member) < 0
        || (co->rank == 0 && coordinator_new_table(co) < 0)) {
        coordinator_unref(co);
        return err_set(err, -ENOMEM, "out of memory");
    }
    observe_init(&co->observe, &co->settings, co->rank, size, co->member, &link);
    autotune_init(&co->autotune, &co->settings, co->rank, size, co->members,
                  &co->observe.stats);
    gather_set(&co->gather, s->gather_ns, s->fusion_bytes);
    *ret = co;
    return 0;
}

static bool backend_takes_tuning(struct backend *b)
{
    return b->ops->tune && b->ops->tune(b, NULL);
}

int coordinator_start(struct coordinator *co, struct err *err)
{
    sigset_t all, old;
    int rc;

    autotune_start(&co->autotune, backend_takes_tuning(co->backend));
    atomic_store(&co->life, (int)life_next(LIFE_JOINING, LIFE_EV_JOINED));
    atomic_fetch_add(&co->owner.refs, 1); /* the thread's */
    (void)sigfillset(&all); /* signals belong to the host program's threads */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&co->thread, NULL, coordinator_main, co);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        coordinator_unref(co);
        return err_errno(err, rc, "cannot start the coordinator's thread");
    }
    co->has_thread = true;
    observe_start(&co->observe);
    return 0;
}

static bool thread_stop(struct coordinator *co, uint64_t deadline_ns)
{
    struct timespec ts = clock_timespec(deadline_ns);
    bool stopped;
    int rc = 0;

    if (!co->has_thread)
        return true;
    (void)pthread_mutex_lock(&co->lock);
    co->must_stop = true;
    (void)pthread_cond_broadcast(&co->nap_cond);
    (void)pthread_mutex_unlock(&co->lock);
    control_wake(co->control);
    (void)pthread_mutex_lock(&co->lock);
    while (!co->has_stopped && rc == 0)
        rc = pthread_cond_timedwait(&co->done_cond, &co->lock, &ts);
    stopped = co->has_stopped;
    (void)pthread_mutex_unlock(&co->lock);
    (void)(stopped ? pthread_join(co->thread, NULL) : pthread_detach(co->thread));
    co->has_thread = false;
    return stopped;
}

/* Takes the seat permanently: no other thread takes it again. After half of the time,
 * is_hurried is set, so that a backend that blocks in the seat returns. */
static bool seat_keep(struct coordinator *co, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    uint64_t half = now + (deadline_ns > now ? (deadline_ns - now) / 2 : 0);

    atomic_fetch_add(&co->n_waiters, 1);
    atomic_store(&co->is_leaving, true);
    control_wake(co->control);
    coordinator_end_doze(co);
    while (!seat_take_any(co)) {
        now = clock_now_ns();
        if (deadline_ns < now + QUIESCE_NS && atomic_load(&co->is_quiescing))
            deadline_ns = now + QUIESCE_NS; /* to leave the seat after that */
        if (now >= deadline_ns)
            return false;
        if (now >= half)
            atomic_store(&co->is_hurried, true);
        coordinator_wait_for_seat(co, NULL, OP_ENDED, now + SEAT_NS);
    }
    return true;
}

/* In the seat, which is not released again. Completes all operations with an error: the
 * world's if there is one. */
static void coordinator_end_ops(struct coordinator *co)
{
    if (!coordinator_is_over(co))
        atomic_store(&co->life, LIFE_DOWN);
    step_fail_all(co, HVD_PRECONDITION, SHUT_DOWN_HERE);
}

static void coordinator_send_goodbye(struct coordinator *co)
{
    if (!coordinator_is_over(co)) {
        timeline_leave(&co->observe.timeline, clock_now_ns());
        control_leave(co->control, co->leave_why);
    }
    coordinator_end_ops(co);
}

/* In the seat, which this thread keeps: leaves an agreement that other ranks may still
 * complete. They enter it as soon as they receive that the plan is left. */
static void coordinator_leave_agreement(struct coordinator *co, uint64_t deadline_ns)
{
    uint64_t until = earlier_ns(deadline_ns, clock_now_ns() + LEAVE_PLAN_NS);

    while (step_leave_plan(co) && !coordinator_is_over(co) && clock_now_ns() < until)
        if (!step_once(co))
            coordinator_sleep(co, until, true);
}

bool coordinator_leave(struct coordinator *co,
                       enum leave_reason why,
                       uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns();
    /* A third of the time is kept for the thread. */
    uint64_t third_ns = deadline_ns > now ? (deadline_ns - now) / 3 : 0;
    uint64_t talk_until = now + 2 * third_ns;

    tensor_queue_close(&co->queue, HVD_PRECONDITION, SHUT_DOWN_HERE);
    co->leave_why = why;
    if (!seat_keep(co, talk_until)) {
        atomic_store(&co->is_abandoned, true);
        if (seat_take_any(co))
            coordinator_send_goodbye(co);
        return false;
    }
    coordinator_leave_agreement(co, talk_until);
    atomic_store(&co->life,
                 (int)life_next((enum life)atomic_load(&co->life), LIFE_EV_LEAVE));
    control_leave(co->control, why);
    while (!coordinator_is_over(co) && !co->has_failed && clock_now_ns() < talk_until)
        if (!step_once(co))
            coordinator_sleep(co, talk_until, true);
    coordinator_end_ops(co);
    now = clock_now_ns(); /* that may have taken long (flights_fail) */
    return thread_stop(co, now + third_ns > deadline_ns ? now + third_ns : deadline_ns);
}

void coordinator_close_device(struct coordinator *co)
{
    if (co)
        device_close(&co->gpu, (enum life)atomic_load(&co->life));
}
