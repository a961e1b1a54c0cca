/* SPDX-License-Identifier: Apache-2.0 */
/* One step of the coordinator, run by the thread in the seat (coordinator.c):
 *
 *   queue -> core/member -> up to rank 0          (on rank 0 into the table at once)
 *   control: requests of other ranks, answers, goodbyes, losses
 *   rank 0: core/negotiate -> answers -> down to all, its own member too
 *   core/member -> RUN: carry.c -> backend -> op_finish
 *               -> AGREE: the backend's agreement, while a plan lasts
 *
 * I1  Answers are carried out in their order, each exactly once; rank 0 reads the same
 *     bytes that it has sent to the other ranks.
 *
 * I2  After the backend or the world has failed nothing is posted; every op ends with
 *     the cause.
 *
 * I3  Communication (queue, control, negotiation) never posts, so it may run inside a
 *     backend's wait: the next tensors are negotiated while this one is moved.
 *
 * I4  An agreement that has started is polled until it completes, because other ranks
 *     may continue from it; only the end of the world interrupts that. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine/coordinator.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

/* An agreement that found nothing in common is repeated after a little while. */
static const uint64_t OFFER_WAIT_MIN_NS = 20000, OFFER_WAIT_MAX_NS = NS_PER_MS;
/* A rank that waits longer in an agreement goes back to negotiation, where rank 0 can
 * report the missing ranks. */
static const uint64_t PLAN_WAIT_LIMIT_NS = 2 * NS_PER_S;
static const uint64_t END_GRACE_NS = NS_PER_S;

/* --- ends --- */

void step_fail_all(struct coordinator *co, int status, const char *text)
{
    struct op *op;

    while ((op = tensor_queue_evict(&co->queue))) {
        observe_end(&co->observe, op, status);
        op_finish(op, status, text);
        op_unref(op);
    }
    flights_fail(co, status, text);
    coordinator_wake_sleepers(co);
}

static void world_mark_broken(struct coordinator *co, const char *cause)
{
    int life = (int)life_next((enum life)atomic_load(&co->life), LIFE_EV_FAILED);

    atomic_store(&co->life, life);
    co->has_failed = true;
    if (co->backend)
        co->backend->ops->abort(co->backend);
    /* also without batches in flight: then the device is parked and not closed */
    device_abort(&co->gpu);
    tensor_queue_close(&co->queue, HVD_ABORTED, cause);
    if (co->rank == 0)
        log_error("the world is broken, all operations fail", "cause=\"%s\"", cause);
    else
        log_info("the world is broken, all operations fail", "cause=\"%s\"", cause);
    step_fail_all(co, HVD_ABORTED, cause);
}

static void world_mark_ended(struct coordinator *co)
{
    int life = (int)life_next((enum life)atomic_load(&co->life), LIFE_EV_ENDED);

    atomic_store(&co->life, life);
    tensor_queue_close(&co->queue, HVD_PRECONDITION, co->end_text);
    step_fail_all(co, HVD_PRECONDITION, co->end_text);
}

int coordinator_status(struct coordinator *co, struct err *err)
{
    int rc;

    (void)pthread_mutex_lock(&co->queue.lock);
    rc = co->queue.is_closed
             ? err_set(err, co->queue.closed_status, "%s", co->queue.closed_text)
             : 0;
    (void)pthread_mutex_unlock(&co->queue.lock);
    return rc;
}

/* --- messages --- */

static uint64_t stall_first_ns(const struct stall *s)
{
    if (s->warn_ns > 0 && s->fail_ns > 0)
        return s->warn_ns < s->fail_ns ? s->warn_ns : s->fail_ns;
    return s->warn_ns > 0 ? s->warn_ns : s->fail_ns;
}

static int step_receive_requests(
    struct coordinator *co, uint32_t rank, const void *p, size_t n, struct err *err)
{
    struct message_reader in;
    uint64_t now = clock_now_ns();
    int rc = message_open(&in, p, n, err);

    if (rc == 0)
        rc = negotiate_receive(co->negotiate, rank, &in, now, err);
    if (co->stall_next_ns == UINT64_MAX && stall_first_ns(&co->stall) > 0
        && negotiate_pending(co->negotiate) > 0)
        co->stall_next_ns = now + stall_first_ns(&co->stall);
    return rc;
}

static int
step_receive_answers(struct coordinator *co, const void *p, size_t n, struct err *err)
{
    int rc = member_receive(co->member, p, n, err);
    const char *late = member_is_late(co->member);

    if (late) {
        log_warn("other ranks wait for a tensor that this rank has not submitted",
                 "rank=%u tensor=\"%s\"", co->rank, late);
        co->report_late(late);
    }
    return rc;
}

/* Rank 0: sends answers for all that is ready. */
static int step_send_answers(struct coordinator *co, struct err *err)
{
    const struct tuning *t = autotune_take_news(&co->autotune);
    int rc = 0;

    if (t)
        negotiate_tune(co->negotiate, t);
    while (rc == 0 && negotiate_has_news(co->negotiate) && !co->has_end) {
        strbuf_clear(&co->out);
        if (negotiate_write(co->negotiate, &co->out) < 0)
            return err_set(err, -ENOMEM, "rank 0 is out of memory for answers");
        observe_sent(&co->observe, co->out.n, control_n_below(co->control));
        (void)control_down(co->control, co->out.p,
                           co->out.n); /* the pump reports a loss */
        rc = step_receive_answers(co, co->out.p, co->out.n, err);
    }
    return rc;
}

static void step_send_requests(struct coordinator *co)
{
    observe_sent(&co->observe, co->out.n, 1);
    (void)control_up(co->control, co->out.p, co->out.n); /* the pump reports a loss */
}

/* The window is not kept open when a thread waits, because it usually has nothing more
 * to submit, and when the step is complete. */
static bool step_is_gathering(struct coordinator *co)
{
    return co->gather.until_ns > 0
           && gather_holds(&co->gather, clock_now_ns(),
                           atomic_load(&co->n_waiters) > 0 || co->has_end
                               || member_has_whole_plan(co->member));
}

/* Sends new requests to rank 0, and on rank 0 answers to all. That a plan must be left
 * is sent at once. */
static void step_flush(struct coordinator *co)
{
    struct err err = ERR_INIT;
    int rc = 0;

    while (rc == 0 && (member_is_in_plan(co->member) || !step_is_gathering(co))
           && member_take_up(co->member, &co->out)) {
        if (strbuf_status(&co->out) < 0)
            rc = err_set(&err, -ENOMEM, "rank %u is out of memory for requests",
                         co->rank);
        else if (co->rank == 0)
            rc = step_receive_requests(co, 0, co->out.p, co->out.n, &err);
        else
            step_send_requests(co);
    }
    if (rc == 0 && co->rank == 0)
        rc = step_send_answers(co, &err);
    if (rc < 0)
        control_abort(co->control, err.text);
}

static void step_submit_op(struct coordinator *co, struct op *op)
{
    int rc;

    observe_submit(&co->observe, op);
    op->part.req = &op->req;
    gather_add(&co->gather, &op->req, op->submitted_ns);
    rc = member_submit(co->member, &op->part);
    if (rc == -EBUSY) {
        carry_finish(co, op, HVD_INVALID_ARGUMENT,
                     "this rank has joined: nothing can be submitted until all ranks "
                     "have");
        coordinator_wake_sleepers(co);
    } else if (rc < 0) {
        control_abort(co->control, "out of memory for an operation");
    }
}

static bool step_submit_new(struct coordinator *co)
{
    struct op *op = tensor_queue_take(&co->queue), *next;
    bool any = op != NULL;

    if (atomic_load(&co->life) != LIFE_READY)
        return false; /* operations submitted later fail when the world ends */
    for (; op; op = next) {
        next = op->next;
        step_submit_op(co, op);
    }
    if (any) {
        observe_cycle(&co->observe);
        co->offer_at_ns = 0;
    }
    return any;
}

int coordinator_on_up(
    void *arg, uint32_t rank, const uint8_t *p, size_t n, struct err *err)
{
    struct coordinator *co = arg;

    if (trace_is_message(p, n))
        return timeline_on_up(&co->observe.timeline, rank, p, n, clock_now_ns(), err);
    if (co->has_end) /* the operation fails on that rank, with the end of the world */
        return 0;
    observe_received(&co->observe, n);
    return step_receive_requests(co, rank, p, n, err);
}

int coordinator_on_down(void *arg, const uint8_t *p, size_t n, struct err *err)
{
    struct coordinator *co = arg;

    if (trace_is_message(p, n))
        return timeline_on_down(&co->observe.timeline, p, n, clock_now_ns(), err);
    observe_received(&co->observe, n);
    observe_sent(&co->observe, n,
                 control_n_below(co->control)); /* control has forwarded it already */
    return step_receive_answers(co, p, n, err);
}

void coordinator_on_ended(void *arg, const char *who)
{
    struct coordinator *co = arg;

    timeline_leave(&co->observe.timeline, clock_now_ns());
    co->has_end = true;
    co->end_at_ns = clock_now_ns() + END_GRACE_NS;
    (void)snprintf(co->end_text, sizeof(co->end_text),
                   "Horovod has been shut down: %.440s", who);
}

/* Everything but posting. *moved is set when something happened. */
static int step_communicate(struct coordinator *co, bool *moved, struct err *err)
{
    int rc;

    if (step_submit_new(co))
        *moved = true;
    rc = control_pump(co->control, err);
    if (rc == 0)
        step_flush(co);
    return rc;
}

int coordinator_interrupted(void *arg, struct err *err)
{
    struct coordinator *co = arg;
    bool moved;

    if (atomic_load(&co->is_hurried))
        return err_set(err, -ESHUTDOWN, "this rank is shutting down");
    return step_communicate(co, &moved, err);
}

/* True: the world is to end, at the next step. */
static bool step_check_stall(struct coordinator *co)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    uint64_t now = clock_now_ns();
    char cause[MESSAGE_TEXT_MAX];

    if (co->rank != 0 || now < co->stall_next_ns)
        return false;
    strbuf_init(&text, 4096);
    switch (stall_step(&co->stall, co->negotiate, now, &text, &co->stall_next_ns)) {
    case STALL_NONE:
        break;
    case STALL_WARN:
        log_warn("stalled: some ranks have not submitted tensors that other ranks wait "
                 "for, still waiting",
                 "%s", strbuf_str(&text));
        if (co->settings.reports_late)
            negotiate_report_late(co->negotiate);
        break;
    case STALL_FAIL:
        (void)snprintf(cause, sizeof(cause),
                       "stalled (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS): %.400s",
                       strbuf_str(&text));
        control_abort(co->control, cause);
        return true;
    }
    return false;
}

/* --- carrying out --- */

static void step_fail(struct coordinator *co, bool is_ours, const char *reason)
{
    co->has_failed = true;
    if (atomic_load(&co->is_hurried))
        return;
    if (is_ours)
        control_abort(co->control, reason);
    else
        control_suspect(co->control, reason);
}

static uint64_t step_wait_limit_ns(const struct coordinator *co)
{
    uint64_t look = stall_first_ns(&co->stall);

    return look > 0 && look / 2 < PLAN_WAIT_LIMIT_NS ? look / 2 : PLAN_WAIT_LIMIT_NS;
}

static void agreement_end(struct coordinator *co)
{
    bool is_empty;

    (void)member_agreed(co->member, co->agreed, &is_empty);
    if (!is_empty) {
        co->offer_wait_ns = co->offer_at_ns = 0;
    } else {
        co->offer_wait_ns = co->offer_wait_ns == 0 ? OFFER_WAIT_MIN_NS
                            : co->offer_wait_ns < OFFER_WAIT_MAX_NS / 2
                                ? co->offer_wait_ns * 2
                                : OFFER_WAIT_MAX_NS;
        co->offer_at_ns = clock_now_ns() + co->offer_wait_ns;
    }
}

/* True: the current agreement is over. */
static bool agreement_poll(struct coordinator *co)
{
    struct err err = ERR_INIT;
    bool is_done = false;
    int rc = co->backend->ops->agree_poll(co->backend, co->agreed, &is_done, &err);

    if (rc < 0) {
        step_fail(co, false, err.text);
        return false;
    }
    if (is_done)
        agreement_end(co);
    else if (clock_now_ns() - co->agree_begin_ns > step_wait_limit_ns(co))
        member_leave_plan(co->member);
    return is_done;
}

static void agreement_begin(struct coordinator *co, const struct member_act *act)
{
    struct err err = ERR_INIT;

    co->agree_begin_ns = clock_now_ns();
    if (co->backend->ops->agree_begin(co->backend, act->words, act->n_words, &err) < 0)
        step_fail(co, false, err.text);
}

/* FAIL and JOIN are about one operation of ours. */
static struct op *act_first_op(const struct member_act *act)
{
    return op_of(act->items[0].op);
}

static void step_tune(struct coordinator *co, const struct tuning *t)
{
    gather_set(&co->gather, t->gather_ns, t->fusion_bytes);
    for (size_t i = 0; i < co->sets->n; i++) {
        struct backend *b = co->sets->v[i]->backend;

        if (b && b->ops->tune)
            (void)b->ops->tune(b, t); /* a backend may ignore it */
    }
    autotune_apply(&co->autotune, t);
}

static void step_do_act(struct coordinator *co, const struct member_act *act)
{
    struct err err = ERR_INIT;
    bool is_ours = true;
    struct op *op;

    switch (act->kind) {
    case MEMBER_RUN:
        if (carry_run(co, act, &is_ours, &err) < 0)
            step_fail(co, is_ours, err.text);
        break;
    case MEMBER_FAIL:
        carry_finish(co, act_first_op(act), HVD_INVALID_ARGUMENT, act->text);
        coordinator_wake_sleepers(co);
        break;
    case MEMBER_JOIN:
        op = act_first_op(act);
        op->joined_last = act->last_joined;
        carry_finish(co, op, HVD_OK, NULL);
        coordinator_wake_sleepers(co);
        break;
    case MEMBER_PAIR:
        if (carry_pair(co, act->set_id, &err) < 0)
            step_fail(co, false, err.text);
        break;
    case MEMBER_SET:
        if (carry_set(co, act, &err) < 0)
            step_fail(co, false, err.text);
        break;
    case MEMBER_TUNE:
        step_tune(co, act->tuning);
        break;
    case MEMBER_AGREE:
        agreement_begin(co, act);
        break;
    case MEMBER_NOTHING:
        break;
    }
}

static bool step_may_offer(struct coordinator *co)
{
    return !step_is_gathering(co)
           && (co->offer_at_ns == 0 || clock_now_ns() >= co->offer_at_ns);
}

/* Does all that can be done now. True: something was done. */
static bool step_carry_out(struct coordinator *co)
{
    struct member_act act;
    struct err err = ERR_INIT;
    bool moved = false;

    /* A window also ends during an agreement: step_next_ns comes after it. */
    (void)step_is_gathering(co);
    while (!co->has_failed) {
        if (member_is_agreeing(co->member)) {
            if (!agreement_poll(co))
                break;
            moved = true;
        }
        if (co->has_end && member_is_in_plan(co->member)
            && !member_has_todo(co->member))
            break; /* no rank enters an agreement any more */
        if (member_next(co->member, step_may_offer(co), &act, &err) < 0) {
            step_fail(co, true, err.text);
            break;
        }
        if (act.kind == MEMBER_NOTHING)
            break;
        moved = true;
        step_do_act(co, &act);
    }
    step_flush(co); /* a plan was left or must be */
    return moved;
}

/* A rank has left: is everything that was answered before carried out? What is agreed
 * counts, and the current agreement may still agree on something. */
static bool world_is_at_end(struct coordinator *co)
{
    if (!co->has_end)
        return false;
    if (timeline_awaits_events(&co->observe.timeline) && !co->has_failed
        && clock_now_ns() < co->end_at_ns)
        return false; /* the last timeline events of other ranks have not arrived */
    if (co->has_failed || clock_now_ns() >= co->end_at_ns)
        return co->has_failed || member_is_in_plan(co->member)
               || !member_has_todo(co->member);
    return !member_is_agreeing(co->member) && !co->flights.head
           && (member_is_in_plan(co->member) || !member_has_todo(co->member));
}

bool step_leave_plan(struct coordinator *co)
{
    if (!member_is_agreeing(co->member) || co->has_failed)
        return false;
    member_leave_plan(co->member);
    step_flush(co);
    return true;
}

static uint64_t step_next_ns(const struct coordinator *co)
{
    uint64_t a = control_next_ns(co->control);

    if (co->rank == 0 && co->stall_next_ns < a)
        a = co->stall_next_ns;
    if (co->gather.until_ns > 0)
        a = co->gather.until_ns < a ? co->gather.until_ns : a;
    else if (member_has_offer(co->member) && co->offer_at_ns < a)
        a = co->offer_at_ns;
    if (co->has_end && co->end_at_ns < a)
        a = co->end_at_ns;
    if (flights_next_ns(co) < a && !co->has_failed)
        a = flights_next_ns(co);
    return timeline_next_ns(&co->observe.timeline) < a
               ? timeline_next_ns(&co->observe.timeline)
               : a;
}

/* True: something on the GPU has ended. */
static bool step_retire_flights(struct coordinator *co)
{
    struct err err = ERR_INIT;
    int rc = co->has_failed ? 0 : flights_retire(co, &err);

    if (rc < 0)
        step_fail(co, false, err.text);
    else if (!co->has_failed && flights_check_stall(co, &err) < 0)
        step_fail(co, true, err.text);
    return rc != 0;
}

bool step_once(struct coordinator *co)
{
    struct err err = ERR_INIT;
    int life = atomic_load(&co->life);
    bool moved = false;

    if (life == LIFE_DOWN || life == LIFE_ABORTED)
        return false;
    if (step_communicate(co, &moved, &err) < 0) {
        world_mark_broken(co, err.text);
        return true;
    }
    if (step_retire_flights(co))
        moved = true;
    if (step_carry_out(co))
        moved = true;
    if (world_is_at_end(co)) {
        world_mark_ended(co);
        return true;
    }
    if (step_check_stall(co))
        moved = true;
    observe_step(&co->observe);
    atomic_store(&co->next_ns, step_next_ns(co));
    return moved;
}
