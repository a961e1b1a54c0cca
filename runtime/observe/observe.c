/* SPDX-License-Identifier: Apache-2.0 */
/* See observe.h. The phases of a tensor in the timeline:
 *
 *   NEGOTIATE_X        from its submission (on rank 0: from the first request) until
 *                      its turn in the common order
 *   X                  from then to its end; within it:
 *     ALLOCATE_OUTPUT  memory for a result whose size other ranks decide; in an
 *                      alltoall also the exchange of row counts
 *     CPU_X            in the backend: packing, moving, waiting for other ranks
 *
 * A step is a round of a frozen plan in which each of its tensors was carried out once.
 * Called by coordinator.c, step.c and carry.c. */
#include "runtime/observe/observe.h"

#include <errno.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/core/nonfinite.h"

/* --- timeline --- */

static struct trace_event *observe_new_event(struct coordinator *co,
                                             enum trace_kind kind,
                                             uint64_t ns,
                                             const struct tensor_request *q)
{
    struct trace_event *ev = timeline_slot(&co->timeline, kind, ns);

    if (!ev)
        return NULL;
    trace_name(ev, q->process_set, q->name);
    ev->coll = (uint8_t)q->coll;
    ev->dtype = (uint8_t)q->dtype;
    return ev;
}

static void event_put(struct coordinator *co,
                      enum trace_kind kind,
                      uint64_t ns,
                      const struct tensor_request *q)
{
    if (observe_new_event(co, kind, ns, q))
        timeline_put(&co->timeline);
}

static void event_put_activity(struct coordinator *co,
                               enum trace_activity activity,
                               uint64_t ns,
                               const struct tensor_request *q)
{
    struct trace_event *ev = observe_new_event(co, TRACE_ACTIVITY, ns, q);

    if (!ev)
        return;
    ev->activity = (uint8_t)activity;
    timeline_put(&co->timeline);
}

void observe_submit(struct coordinator *co, const struct op *op)
{
    if (timeline_is_on(&co->timeline))
        event_put(co, TRACE_NEGOTIATE, op->submitted_ns, &op->req);
}

void observe_request(void *arg, uint32_t rank, const struct tensor_request *q)
{
    struct coordinator *co = arg;
    struct trace_event *ev;

    if (!timeline_is_on(&co->timeline))
        return;
    ev = observe_new_event(co, TRACE_TICK, clock_now_ns(), q);
    if (!ev)
        return;
    ev->rank = rank;
    timeline_put(&co->timeline);
}

void observe_cycle(struct coordinator *co)
{
    if (timeline_is_on(&co->timeline)
        && atomic_load_explicit(&co->timeline.marks_cycles, memory_order_relaxed)
        && timeline_slot(&co->timeline, TRACE_CYCLE, clock_now_ns()))
        timeline_put(&co->timeline);
}

void observe_run(struct coordinator *co, const struct member_act *act)
{
    uint64_t now;

    if (!timeline_is_on(&co->timeline))
        return;
    now = clock_now_ns();
    for (size_t i = 0; i < act->n_items; i++)
        if (act->items[i].op)
            event_put(co, TRACE_START, now, act->items[i].req);
}

void observe_allocate(struct coordinator *co, const struct op *op)
{
    if (timeline_is_on(&co->timeline))
        event_put_activity(co, TRACE_ALLOCATE_OUTPUT, clock_now_ns(), &op->req);
}

/* --- NaN --- */

static bool op_has_input(const struct op *op)
{
    return (op->req.coll != COLL_BROADCAST && op->req.coll != COLL_SENDRECV)
           || op->me == op->root;
}

int observe_nonfinite(const struct coordinator *co,
                      const struct op *op,
                      const struct nonfinite *bad,
                      struct err *err)
{
    char name[NAME_SHOWN_MAX];

    return err_set(
        err, -EDOM,
        "%s on rank %u (host %s): element %llu of %llu in tensor %s, input of "
        "%s (%llu such elements; HVD_NANCHECK)",
        bad->is_nan ? "NaN" : "infinity", co->rank, co->settings.host,
        (unsigned long long)bad->at, (unsigned long long)op->count,
        name_shown(op->req.name, name), collective_name(op->req.coll),
        (unsigned long long)bad->n);
}

static int
op_check_finite(const struct coordinator *co, const struct op *op, struct err *err)
{
    struct nonfinite bad;

    if (!op_has_input(op) || !nonfinite_find(op->req.dtype, op->data, op->count, &bad))
        return 0;
    return observe_nonfinite(co, op, &bad, err);
}

/* --- what the member counts --- */

/* A plan's tensors repeat: each time all of them were carried out is a step. */
static void stats_count_steps(struct coordinator *co, const struct member_counts *c)
{
    struct stats *s = &co->stats;
    uint32_t n_plan = member_plan_size(co->member);

    if (n_plan == 0 || c->n_plans != s->plan_no) { /* no plan, or another */
        s->plan_no = c->n_plans;
        s->plan_from = c->n_planned;
        stats_no_step(s);
        return;
    }
    while (c->n_planned - s->plan_from >= n_plan) {
        s->plan_from += n_plan;
        stats_step(s, clock_now_ns());
    }
}

static void stats_update_counts(struct coordinator *co)
{
    struct member_counts c = member_counts(co->member);
    struct stats *s = &co->stats;

    stats_set(s, STATS_HITS, c.n_hits);
    stats_set(s, STATS_MISSES, c.n_requests);
    stats_set(s, STATS_PLANS, c.n_plans);
    stats_set(s, STATS_LEAVES, c.n_leaves);
    stats_set(s, STATS_PLANNED, c.n_planned);
    stats_set(s, STATS_AGREEMENTS, c.n_rounds);
    stats_count_steps(co, &c);
}

/* --- batches --- */

int observe_transfer(struct coordinator *co,
                     const struct member_act *act,
                     uint64_t *ret_ns,
                     struct err *err)
{
    bool is_on = timeline_is_on(&co->timeline);
    uint64_t now;

    for (size_t i = 0; co->settings.nancheck && i < act->n_items; i++) {
        int r =
            act->items[i].op ? op_check_finite(co, op_of(act->items[i].op), err) : 0;

        if (r < 0)
            return r;
    }
    now = clock_now_ns();
    for (size_t i = 0; is_on && i < act->n_items; i++)
        if (act->items[i].op)
            event_put_activity(co, TRACE_TRANSFER, now, act->items[i].req);
    *ret_ns = now;
    return 0;
}

void observe_device(struct coordinator *co)
{
    struct device *d = device_of(&co->gpu);
    struct stats *s = &co->stats;
    struct device_counts c;

    if (!d || !co->gpu.ops->counts)
        return;
    co->gpu.ops->counts(d, &c);
    stats_set(s, STATS_DEVICE_PACKED, c.packed_bytes);
    stats_set(s, STATS_DEVICE_DIRECT, c.direct_bytes);
    stats_set(s, STATS_DEVICE_REGISTERED, c.registered_bytes);
    stats_set(s, STATS_DEVICE_SM, (uint64_t)c.sm);
    stats_set(s, STATS_DEVICE_NCCL, (uint64_t)c.nccl);
    stats_set(s, STATS_DEVICE_CUDA, (uint64_t)c.cuda);
}

static uint64_t events_put_activity(struct coordinator *co,
                                    const struct member_act *act,
                                    enum trace_activity activity)
{
    const uint64_t now = clock_now_ns();

    for (size_t i = 0; timeline_is_on(&co->timeline) && i < act->n_items; i++)
        if (act->items[i].op)
            event_put_activity(co, activity, now, act->items[i].req);
    return now;
}

void observe_init_device(struct coordinator *co, const struct member_act *act)
{
    (void)events_put_activity(co, act, TRACE_INIT_DEVICE);
}

uint64_t observe_posted(struct coordinator *co, const struct member_act *act)
{
    stats_add(&co->stats, STATS_DEVICE_BATCHES, 1);
    return events_put_activity(co, act, TRACE_DEVICE);
}

void observe_transferred(struct coordinator *co,
                         const struct member_act *act,
                         uint32_t n_members,
                         uint64_t began_ns)
{
    uint64_t bytes = 0, waited_ns = 0;

    for (size_t i = 0; i < act->n_items; i++) {
        const struct op *op = act->items[i].op ? op_of(act->items[i].op) : NULL;

        if (!op)
            continue;
        bytes += op->bytes;
        waited_ns += began_ns - op->submitted_ns;
    }
    stats_update_counts(co); /* before waiters wake, so they read complete counters */
    stats_batch(&co->stats, act->items[0].req->coll, act->n_items, n_members, bytes,
                waited_ns, clock_now_ns() - began_ns);
}

static uint64_t op_output_bytes(const struct op *op)
{
    uint64_t n = dtype_size(op->req.dtype);

    if ((op->req.coll == COLL_REDUCE && op->me != op->root)
        || (op->req.coll == COLL_SENDRECV && op->me == op->root))
        return 0;
    if (!op_has_result(op))
        return op->bytes;
    for (int i = 0; i < op->result_ndim; i++)
        n *= (uint64_t)op->result_shape[i];
    return n;
}

void observe_end(struct coordinator *co, const struct op *op, int status)
{
    struct trace_event *ev;

    stats_tensor(&co->stats, op->req.coll, status == HVD_OK,
                 op_has_input(op) ? op->bytes : 0,
                 status == HVD_OK ? op_output_bytes(op) : 0);
    if (!timeline_is_on(&co->timeline))
        return;
    ev = observe_new_event(co, TRACE_END, clock_now_ns(), &op->req);
    if (!ev)
        return;
    ev->bytes = op->bytes;
    if (op_is_posted(op))
        ev->activity = TRACE_DEVICE;
    timeline_put(&co->timeline);
}

/* --- messages --- */

void observe_sent(struct coordinator *co, size_t n, uint32_t n_peers)
{
    stats_add(&co->stats, STATS_SENT, n_peers);
    stats_add(&co->stats, STATS_SENT_BYTES, (uint64_t)n * n_peers);
}

void observe_received(struct coordinator *co, size_t n)
{
    stats_add(&co->stats, STATS_RECEIVED, 1);
    stats_add(&co->stats, STATS_RECEIVED_BYTES, n);
}

static void timeline_send_to_root(void *arg, const void *p, size_t n)
{
    (void)control_up(((struct coordinator *)arg)->control, p,
                     n); /* the pump reports a loss */
}

static void timeline_wake_control(void *arg)
{
    control_wake(((struct coordinator *)arg)->control);
}

static void timeline_send_to_all(void *arg, const void *p, size_t n)
{
    (void)control_down(((struct coordinator *)arg)->control, p,
                       n); /* the pump reports a loss */
}

void observe_step(struct coordinator *co)
{
    stats_update_counts(co);
    if (timeline_next_ns(&co->timeline) != UINT64_MAX)
        timeline_step(&co->timeline, clock_now_ns());
}

/* --- life --- */

void observe_init(struct coordinator *co)
{
    const struct timeline_link link = {timeline_send_to_root, timeline_send_to_all,
                                       timeline_wake_control, co};

    /* The launcher reads the pages of the whole job, so the page has the rank in the
     * job. */
    stats_init(&co->stats, co->settings.stats_dir, co->settings.job_rank,
               co->settings.job_size, co->settings.generation, clock_now_ns());
    timeline_init(&co->timeline, co->rank, co->size, &link);
}

void observe_start(struct coordinator *co)
{
    const struct settings *s = &co->settings;
    struct err err = ERR_INIT;

    if (co->rank == 0 && s->timeline[0]
        && timeline_start(&co->timeline, s->timeline, s->timeline_mark_cycles,
                          s->timeline_all, &err)
               < 0)
        log_warn("cannot start the timeline, continuing without it", "cause=\"%s\"",
                 err.text);
}
