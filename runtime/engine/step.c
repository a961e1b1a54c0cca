/* SPDX-License-Identifier: Apache-2.0 */
/* One step, run by the thread in the seat (seat.c):
 *
 *   talk: new operations and messages -> core/member
 *   core/member -> RUN: carry.c -> backend -> op_finish
 *               -> AGREE: the backend's agreement, while a plan lasts
 *   flight: batches on the GPU that have ended
 *
 * I1  Answers are carried out in their order, each exactly once.
 *
 * I2  After the backend or the world has failed nothing is posted; every op ends with
 *     the cause.
 *
 * I3  Communication (queue, control, negotiation) never posts, so it may run inside a
 *     backend's wait: the next tensors are negotiated while this one is moved.
 *
 * I4  An agreement that has started is polled until it completes, because other ranks
 *     may continue from it; only the end of the world interrupts that. */
#include "runtime/engine/step.h"

#include <errno.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

/* An agreement that found nothing in common is repeated after a little while. */
static const uint64_t OFFER_WAIT_MIN_NS = 20000, OFFER_WAIT_MAX_NS = NS_PER_MS;
/* A rank that waits longer in an agreement goes back to negotiation, where rank 0 can
 * report the missing ranks. Only there does the stall time begin. */
static const uint64_t PLAN_WAIT_LIMIT_NS = 2 * NS_PER_S;
/* While a plan lasts messages are rare, and reading them is a system call, which costs as
 * much as an agreement. */
static const uint64_t PLAN_PUMP_NS = 20000;
/* Between two readings of the clock: over TCP a poll is a system call. */
enum { POLLS_A_CLOCK = 4 };

/* --- ends --- */

void step_fail_all(struct step *s, int status, const char *text)
{
    struct engine *e = s->e;
    struct op *op;

    talk_hide_stall(s->talk);
    transfers_drop(&e->transfers);
    while ((op = tensor_queue_evict(&e->queue))) {
        observe_end(&e->observe, op, status);
        op_finish(op, status, text);
        op_unref(op);
    }
    flights_fail(s->flights, status, text);
    engine_wake_waiters(e);
}

static void engine_set_life(struct engine *e, enum life_event ev)
{
    atomic_store(&e->life, (int)life_next((enum life)atomic_load(&e->life), ev));
}

static void world_mark_broken(struct step *s, const char *cause)
{
    struct engine *e = s->e;
    bool was_leaving = atomic_load(&e->life) == LIFE_DRAINING;

    engine_set_life(e, LIFE_EV_FAILED);
    e->has_failed = true;
    if (e->backend)
        e->backend->ops->abort(e->backend);
    /* also without batches in flight: then the device is parked and not closed */
    device_abort(&e->gpu);
    tensor_queue_close(&e->queue, HVD_ABORTED, cause);
    reporter_set_cause(&e->observe.reporter, cause);
    reporter_print(&e->observe.reporter, clock_now_ns());
    if (s->talk->is_end_failure && was_leaving)
        log_debug("this rank has failed, its operations too", "cause=\"%s\"", cause);
    else if (e->rank == 0)
        log_error("the world is broken, all operations fail", "cause=\"%s\"", cause);
    else
        log_info("the world is broken, all operations fail", "cause=\"%s\"", cause);
    step_fail_all(s, HVD_ABORTED, cause);
}

static void world_mark_ended(struct step *s)
{
    const char *text = s->talk->end_text;

    if (s->talk->is_end_failure) {
        world_mark_broken(s, text);
        return;
    }
    engine_set_life(s->e, LIFE_EV_ENDED);
    tensor_queue_close(&s->e->queue, HVD_PRECONDITION, text);
    step_fail_all(s, HVD_PRECONDITION, text);
}

/* This rank, or another one, cannot continue. */
static void step_fail(struct step *s, bool is_ours, const char *reason)
{
    s->e->has_failed = true;
    if (atomic_load(&s->e->is_hurried))
        return;
    if (is_ours)
        control_abort(s->e->control, reason);
    else
        control_suspect(s->e->control, reason);
}

/* The backend, or this rank before it posts, has failed. Memory that is out is this rank's
 * own failure: no loss of another rank explains it, so nobody waits for one. */
static void step_fail_act(struct step *s, int rc, bool is_ours, struct err *err)
{
    if (rc == -ENOMEM && !is_ours) {
        (void)err_prefix(err, "rank %u", s->e->rank);
        is_ours = true;
    }
    step_fail(s, is_ours, err->text);
}

/* --- communication --- */

/* Everything but posting. *moved is set when something happened. */
static int step_communicate(struct step *s, bool *moved, struct err *err)
{
    int rc;

    if (talk_take_new(s->talk)) {
        *moved = true;
        s->offer_at_ns = 0;
    }
    if (member_is_in_plan(s->e->member) && !s->e->has_failed
        && s->now_ns < s->pumped_ns + PLAN_PUMP_NS)
        return 0;
    s->pumped_ns = s->now_ns;
    rc = control_pump(s->e->control, err);
    if (rc == 0)
        talk_send(s->talk);
    return rc;
}

int step_interrupted(struct step *s, struct err *err)
{
    bool moved;

    if (atomic_load(&s->e->is_hurried))
        return err_set(err, -ESHUTDOWN, "this rank is shutting down");
    s->pumped_ns = 0; /* read messages now */
    return step_communicate(s, &moved, err);
}

/* --- agreements --- */

static uint64_t step_wait_limit_ns(const struct step *s)
{
    uint64_t stall_ns = talk_stall_ns(s->talk);

    return stall_ns > 0 ? earlier_ns(stall_ns / 8, PLAN_WAIT_LIMIT_NS)
                        : PLAN_WAIT_LIMIT_NS;
}

static void agreement_end(struct step *s)
{
    bool is_empty;

    (void)member_agreed(s->e->member, s->agreed, &is_empty);
    if (!is_empty) {
        s->offer_wait_ns = s->offer_at_ns = 0;
        return;
    }
    s->offer_wait_ns = s->offer_wait_ns == 0
                           ? OFFER_WAIT_MIN_NS
                           : earlier_ns(s->offer_wait_ns * 2, OFFER_WAIT_MAX_NS);
    s->offer_at_ns = clock_now_ns() + s->offer_wait_ns;
}

/* Whether an agreement that was just polled is polled again before the rest of the
 * step. */
static bool step_may_poll(const struct step *s, uint64_t *until_ns)
{
    uint64_t now;

    if (s->poll_ns == 0)
        return false;
    now = clock_now_ns();
    if (*until_ns == 0)
        *until_ns = now + s->poll_ns;
    return now < *until_ns;
}

/* True: the current agreement is over. */
static bool agreement_poll(struct step *s)
{
    struct backend *b = s->e->backend;
    struct err err;
    uint64_t until = 0; /* 0: the clock was not read yet */
    bool is_done = false;
    int rc = 0;

    err_init(&err);
    do {
        for (int i = 0; i < POLLS_A_CLOCK && rc == 0 && !is_done; i++)
            rc = b->ops->agree_poll(b, s->agreed, &is_done, &err);
    } while (rc == 0 && !is_done && step_may_poll(s, &until));
    if (rc < 0) {
        step_fail(s, false, err.text);
        return false;
    }
    if (is_done)
        agreement_end(s);
    else if (s->now_ns > s->agree_begin_ns + step_wait_limit_ns(s))
        member_leave_plan(s->e->member);
    return is_done;
}

static void agreement_begin(struct step *s, const struct member_act *act)
{
    struct backend *b = s->e->backend;
    struct err err;

    err_init(&err);
    s->agree_begin_ns = s->has_run ? clock_now_ns() : s->now_ns;
    if (b->ops->agree_begin(b, act->words, act->n_words, &err) < 0)
        step_fail(s, false, err.text);
}

/* --- carrying out --- */

static void step_tune(struct step *s, const struct tuning *t)
{
    const struct sets *sets = s->e->sets;

    talk_set_gathering(s->talk, t->gather_ns, t->fusion_bytes);
    for (size_t i = 0; i < sets->n; i++) {
        struct backend *b = sets->v[i]->backend;

        if (b && b->ops->tune)
            (void)b->ops->tune(b, t); /* a backend may ignore it */
    }
    autotune_apply(&s->e->autotune, t);
}

static void step_finish_act(struct step *s, const struct member_act *act, int status)
{
    struct op *op = op_of(act->items[0].op);

    op->result_rank = act->result_rank;
    engine_finish_op(s->e, op, status, act->text);
    engine_wake_waiters(s->e);
}

static void step_do_act(struct step *s, const struct member_act *act)
{
    struct err err;
    bool is_ours = false;
    int rc = 0;

    err_init(&err);
    switch (act->kind) {
    case MEMBER_RUN:
        rc = carry_run(s->carry, act, &is_ours, &err);
        s->has_run = true;
        break;
    case MEMBER_FAIL:
        step_finish_act(s, act, HVD_INVALID_ARGUMENT);
        break;
    case MEMBER_JOIN:
    case MEMBER_PROBE:
        step_finish_act(s, act, HVD_OK);
        break;
    case MEMBER_PAIR:
        rc = carry_pair(s->carry, act->set_id, &err);
        break;
    case MEMBER_SET:
        rc = carry_set(s->carry, act, &err);
        break;
    case MEMBER_TUNE:
        step_tune(s, act->tuning);
        break;
    case MEMBER_AGREE:
        agreement_begin(s, act);
        break;
    case MEMBER_NOTHING:
        break;
    }
    if (rc < 0)
        step_fail_act(s, rc, is_ours, &err);
}

static bool step_may_offer(struct step *s)
{
    return !talk_is_gathering(s->talk)
           && (s->offer_at_ns == 0 || clock_now_ns() >= s->offer_at_ns);
}

/* A round of transfers or, if an act waits, all of them. False: the world has failed. */
static bool step_move_transfers(struct step *s, bool drains)
{
    struct engine *e = s->e;
    struct err err;
    int rc;

    err_init(&err);
    rc = drains ? transfers_drain(e, &err) : transfers_step(e, &err);
    if (rc < 0)
        step_fail_act(s, rc, false, &err);
    return !e->has_failed;
}

/* Does all that can be done now. True: something was done. */
static bool step_carry_out(struct step *s)
{
    struct member *m = s->e->member;
    struct member_act act;
    struct err err;
    bool moved = false;

    err_init(&err);
    /* A window also ends during an agreement: step_next_ns comes after it. */
    (void)talk_is_gathering(s->talk);
    while (!s->e->has_failed) {
        if (s->e->transfers.n > 0 && !member_has_todo(m)) {
            moved = true;
            (void)step_move_transfers(s, false); /* a failure ends the step, too */
            break;
        }
        if (member_is_agreeing(m)) {
            if (!agreement_poll(s))
                break;
            moved = true;
        }
        if (s->talk->has_end && member_is_in_plan(m) && !member_has_todo(m))
            break; /* no rank enters an agreement any more */
        if (member_next(m, step_may_offer(s), &act, &err) < 0) {
            step_fail(s, true, err.text);
            break;
        }
        if (act.kind == MEMBER_NOTHING && s->e->transfers.n == 0)
            break;
        moved = true;
        if (act.kind == MEMBER_NOTHING)
            continue;
        if (transfer_is(&act) || step_move_transfers(s, true))
            step_do_act(s, &act);
    }
    talk_send(s->talk); /* a plan was left or must be */
    return moved;
}

/* HVD_REPORT, when everything is carried out: sends this rank's totals, and stays while
 * those of ranks below it must still be forwarded. */
static bool step_awaits_reports(struct step *s)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    struct engine *e = s->e;

    if (!e->settings.reports)
        return false;
    strbuf_init(&text, REPORT_MESSAGE_BYTES);
    if (e->rank != 0
        && reporter_take_message(&e->observe.reporter, clock_now_ns(), &text))
        control_report(e->control, text.p, text.n);
    return control_awaits_reports(e->control);
}

/* A rank has left: is everything that was answered before carried out? What is agreed
 * counts, and the current agreement may still agree on something. */
static bool step_is_at_end(struct step *s)
{
    struct engine *e = s->e;
    bool has_time, has_todo;

    if (!s->talk->has_end)
        return false;
    if (e->has_failed)
        return true;
    if (e->transfers.n > 0)
        return false;
    has_time = clock_now_ns() < s->talk->end_at_ns;
    has_todo = !member_is_in_plan(e->member) && member_has_todo(e->member);
    if (has_time && timeline_awaits_events(&e->observe.timeline))
        return false; /* the last timeline events of other ranks have not arrived */
    if (has_todo || (has_time && (member_is_agreeing(e->member) || s->flights->head)))
        return false;
    return !step_awaits_reports(s) || !has_time;
}

bool step_leave_plan(struct step *s)
{
    if (!engine_is_agreeing(s->e))
        return false;
    member_leave_plan(s->e->member);
    talk_send(s->talk);
    return true;
}

static uint64_t step_next_ns(const struct step *s)
{
    const struct engine *e = s->e;
    uint64_t a = talk_next_ns(s->talk);

    if (s->talk->gather.until_ns == 0 && member_has_offer(e->member))
        a = earlier_ns(a, s->offer_at_ns);
    if (!e->has_failed)
        a = earlier_ns(a, flights_next_ns(s->flights));
    return earlier_ns(a, timeline_next_ns(&e->observe.timeline));
}

/* True: something on the GPU has ended. */
static bool step_retire_flights(struct step *s)
{
    struct err err;
    int rc = 0;

    if (s->e->has_failed || !s->flights->head)
        return false;
    err_init(&err);
    rc = flights_retire(s->flights, &err);
    if (rc < 0)
        step_fail(s, false, err.text);
    else if (!s->e->has_failed && flights_check_stall(s->flights, &err) < 0)
        step_fail(s, true, err.text);
    return rc != 0;
}

bool step_run(struct step *s, uint64_t now_ns, uint64_t *next_ns)
{
    struct err err;
    bool moved = false;

    err_init(&err);
    if (engine_is_over(s->e))
        return false;
    s->has_run = false;
    s->now_ns = now_ns;
    if (step_communicate(s, &moved, &err) < 0) {
        world_mark_broken(s, err.text);
        return true;
    }
    if (step_retire_flights(s))
        moved = true;
    if (step_carry_out(s))
        moved = true;
    if (step_is_at_end(s)) {
        world_mark_ended(s);
        return true;
    }
    if (talk_check_stall(s->talk, s->now_ns))
        moved = true;
    observe_step(&s->e->observe, moved, s->now_ns);
    *next_ns = step_next_ns(s);
    return moved;
}
