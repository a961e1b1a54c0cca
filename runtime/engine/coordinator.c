/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the parts together, and their common end. Called by world/ (life) and api/
 * (operations). */
#include "runtime/engine/coordinator.h"

#include <errno.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/engine/seat.h"
#include "runtime/engine/step.h"

static const uint64_t LEAVE_PLAN_NS = NS_PER_S;
/* Not with more ranks than processors: the other rank may need this one. */
static const uint64_t POLL_NS = 3000;
static const char SHUT_DOWN_HERE[] =
    "Horovod has been shut down: this rank called shutdown()";

struct coordinator {
    struct op_owner owner; /* first member; counted by the world, its thread and ops */
    struct engine engine;
    struct flights flights;
    struct carry carry;
    struct talk talk;
    struct step step;
    struct seat seat;
    struct leave leave; /* set before the seat is abandoned */
};

static struct coordinator *owner_coordinator(struct op_owner *o)
{
    return (struct coordinator *)(void *)o; /* it is the first member */
}

/* --- hooks: calls from one part to another that does not know it --- */

static void wake_waiters(void *arg)
{
    seat_wake_waiters(&((struct coordinator *)arg)->seat);
}

static void sleep_in_batch(void *arg, uint64_t deadline_ns)
{
    seat_await_frames(&((struct coordinator *)arg)->seat, deadline_ns);
}

static int interrupt_batch(void *arg, struct err *err)
{
    return step_interrupted(&((struct coordinator *)arg)->step, err);
}

static bool run_step(void *arg, uint64_t now_ns, uint64_t *next_ns)
{
    return step_run(&((struct coordinator *)arg)->step, now_ns, next_ns);
}

static void wake_on_device(void *arg)
{
    seat_wake(&((struct coordinator *)arg)->seat);
}

static void timeline_send_to_root(void *arg, const void *p, size_t n)
{
    /* the pump reports a loss */
    (void)control_up(((struct coordinator *)arg)->engine.control, p, n);
}

static void timeline_send_to_all(void *arg, const void *p, size_t n)
{
    /* the pump reports a loss */
    (void)control_down(((struct coordinator *)arg)->engine.control, p, n);
}

static void timeline_wake(void *arg)
{
    control_wake(((struct coordinator *)arg)->engine.control);
}

/* --- life --- */

static void coordinator_free(struct op_owner *o)
{
    struct coordinator *co = owner_coordinator(o);
    struct engine *e = &co->engine;

    seat_release(&co->seat);
    talk_release(&co->talk);
    carry_release(&co->carry);
    autotune_release(&e->autotune);
    observe_release(&e->observe);
    member_free(e->member);
    regions_release(&e->regions);
    device_release(&e->gpu);
    tensor_queue_release(&e->queue);
    mem_free(co);
}

void coordinator_unref(struct coordinator *co)
{
    op_owner_unref(co ? &co->owner : NULL);
}

static void coordinator_init_device(struct coordinator *co,
                                    const struct coordinator_config *cfg)
{
    const struct world_device_config c = {.rank = cfg->rank,
                                          .size = cfg->size,
                                          .settings = &co->engine.settings,
                                          .members = cfg->members,
                                          .nccl_hint = cfg->nccl_hint,
                                          .park = cfg->park,
                                          .wake = wake_on_device,
                                          .arg = co};

    device_init(&co->engine.gpu, &c);
}

static int coordinator_init_engine(struct coordinator *co,
                                   const struct coordinator_config *cfg)
{
    const struct timeline_link link = {timeline_send_to_root, timeline_send_to_all,
                                       timeline_wake, co};
    struct engine *e = &co->engine;

    e->rank = cfg->rank;
    e->size = cfg->size;
    e->settings = *cfg->settings;
    e->sets = cfg->sets;
    e->members = cfg->members;
    e->hooks = (struct engine_hooks){interrupt_batch, wake_waiters, sleep_in_batch, co};
    tensor_queue_init(&e->queue);
    regions_init(&e->regions);
    coordinator_init_device(co, cfg);
    if (member_new(e->rank, e->size, &e->member) < 0)
        return -ENOMEM;
    if (observe_init(&e->observe, &e->settings, e->rank, e->size, e->member, e->members,
                     &link)
        < 0)
        return -ENOMEM;
    autotune_init(&e->autotune, &e->settings, e->rank, e->size, e->members,
                  &e->observe.stats);
    return 0;
}

static void coordinator_end_in_seat(void *arg);

static int coordinator_init_parts(struct coordinator *co,
                                  const struct coordinator_config *cfg)
{
    const struct seat_hooks hooks = {run_step, coordinator_end_in_seat, co};
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    bool is_crowded = n_cpus > 0 && cfg->local_size > (uint32_t)n_cpus;
    struct engine *e = &co->engine;

    co->flights.e = e;
    co->step = (struct step){.e = e,
                             .talk = &co->talk,
                             .carry = &co->carry,
                             .flights = &co->flights,
                             .poll_ns = is_crowded ? 0 : POLL_NS};
    seat_init(&co->seat, e, &co->flights, is_crowded, &hooks);
    talk_init(&co->talk, e, cfg->report_late);
    return carry_init(&co->carry, e, &co->flights, cfg->env);
}

int coordinator_new(const struct coordinator_config *cfg,
                    struct coordinator **ret,
                    struct err *err)
{
    struct coordinator *co = mem_zalloc(sizeof(*co));
    int rc;

    if (!co)
        return err_set(err, -ENOMEM, "out of memory");
    atomic_init(&co->owner.refs, 1);
    co->owner.free = coordinator_free;
    rc = coordinator_init_engine(co, cfg);
    rc = rc < 0 ? rc : coordinator_init_parts(co, cfg);
    if (rc < 0) {
        coordinator_unref(co);
        return err_set(err, rc, "out of memory");
    }
    *ret = co;
    return 0;
}

struct control_handlers coordinator_handlers(struct coordinator *co)
{
    return (struct control_handlers){talk_on_up, talk_on_down, talk_on_ended,
                                     talk_on_report, &co->talk};
}

void coordinator_set_control(struct coordinator *co, struct control *control)
{
    co->engine.control = control;
}

int coordinator_set_backend(struct coordinator *co, struct backend *backend)
{
    co->engine.backend = backend;
    return talk_start(&co->talk, backend->ops->agree_begin != NULL);
}

static bool backend_takes_tuning(struct backend *b)
{
    return b->ops->tune && b->ops->tune(b, NULL);
}

int coordinator_start(struct coordinator *co, struct err *err)
{
    struct engine *e = &co->engine;
    int rc;

    autotune_start(&e->autotune, backend_takes_tuning(e->backend));
    atomic_store(&e->life, (int)life_next(LIFE_JOINING, LIFE_EV_JOINED));
    rc = seat_start(&co->seat, &co->owner, err);
    if (rc == 0)
        observe_start(&e->observe);
    return rc;
}

int coordinator_interrupted(struct coordinator *co, struct err *err)
{
    return step_interrupted(&co->step, err);
}

/* --- operations --- */

void coordinator_own(struct coordinator *co, struct op *op)
{
    op_set_owner(op, &co->owner);
}

bool coordinator_owns(const struct coordinator *co, const struct op *op)
{
    return op->owner == &co->owner;
}

int coordinator_submit(struct coordinator *co,
                       struct op *const *ops,
                       uint32_t n,
                       struct err *err)
{
    int rc = tensor_queue_push(&co->engine.queue, ops, n, err);

    if (rc == 0)
        seat_notice_new(&co->seat);
    return rc;
}

int coordinator_wait(struct op *op, enum op_state state, uint64_t deadline_ns)
{
    return seat_wait(&owner_coordinator(op->owner)->seat, op, state, deadline_ns);
}

/* --- the end --- */

/* In the seat, which is not released again. Completes all operations with an error: the
 * world's if there is one. */
static void coordinator_end_ops(struct coordinator *co)
{
    if (!engine_is_over(&co->engine))
        atomic_store(&co->engine.life, LIFE_DOWN);
    step_fail_all(&co->step, HVD_PRECONDITION, SHUT_DOWN_HERE);
}

/* Leaving took too long: the thread that frees the seat ends the world here. */
static void coordinator_end_in_seat(void *arg)
{
    struct coordinator *co = arg;

    if (!engine_is_over(&co->engine)) {
        timeline_leave(&co->engine.observe.timeline, clock_now_ns());
        control_leave(co->engine.control, &co->leave);
    }
    coordinator_end_ops(co);
}

/* In the seat, which this thread keeps: leaves an agreement that other ranks may still
 * complete. They enter it as soon as they receive that the plan is left. */
static void coordinator_leave_agreement(struct coordinator *co, uint64_t deadline_ns)
{
    uint64_t until = earlier_ns(deadline_ns, clock_now_ns() + LEAVE_PLAN_NS);

    while (step_leave_plan(&co->step) && !engine_is_over(&co->engine)
           && clock_now_ns() < until)
        if (!seat_step(&co->seat))
            seat_sleep(&co->seat, until, true);
}

bool coordinator_leave(struct coordinator *co,
                       const struct leave *leave,
                       uint64_t deadline_ns)
{
    struct engine *e = &co->engine;
    uint64_t now = clock_now_ns();
    /* A third of the time is kept for the thread. */
    uint64_t third_ns = deadline_ns > now ? (deadline_ns - now) / 3 : 0;
    uint64_t talk_until = now + 2 * third_ns;

    tensor_queue_close(&e->queue, HVD_PRECONDITION, SHUT_DOWN_HERE);
    co->leave = *leave;
    if (!seat_keep(&co->seat, talk_until)) {
        seat_abandon(&co->seat);
        return false;
    }
    coordinator_leave_agreement(co, talk_until);
    atomic_store(&e->life,
                 (int)life_next((enum life)atomic_load(&e->life), LIFE_EV_LEAVE));
    control_leave(e->control, leave);
    while (!engine_is_over(e) && !e->has_failed && clock_now_ns() < talk_until)
        if (!seat_step(&co->seat))
            seat_sleep(&co->seat, talk_until, true);
    coordinator_end_ops(co);
    reporter_print(&e->observe.reporter, clock_now_ns());
    now = clock_now_ns(); /* that may have taken long (flights_fail) */
    deadline_ns = now + third_ns > deadline_ns ? now + third_ns : deadline_ns;
    return seat_stop(&co->seat, deadline_ns)
           && seat_await_empty(&co->seat, deadline_ns);
}

bool coordinator_say(struct coordinator *co,
                     const struct leave *leave,
                     uint64_t deadline_ns)
{
    if (!seat_keep(&co->seat, deadline_ns))
        return false;
    control_leave(co->engine.control, leave);
    control_flush(co->engine.control, deadline_ns);
    return true;
}

void coordinator_close_device(struct coordinator *co)
{
    if (co)
        device_close(&co->engine.gpu, (enum life)atomic_load(&co->engine.life));
}

void coordinator_break(struct coordinator *co, const char *cause)
{
    control_break(co->engine.control, cause);
    seat_wake(&co->seat);
}

void coordinator_forked(const struct coordinator *co)
{
    device_forked(&co->engine.gpu);
}

int coordinator_status(struct coordinator *co, struct err *err)
{
    return tensor_queue_status(&co->engine.queue, err);
}

/* --- parts --- */

struct world_device *coordinator_gpu(struct coordinator *co)
{
    return &co->engine.gpu;
}

struct regions *coordinator_regions(struct coordinator *co)
{
    return &co->engine.regions;
}

struct observer *coordinator_observer(struct coordinator *co)
{
    return &co->engine.observe;
}
