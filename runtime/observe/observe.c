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

static struct trace_event *observe_new_event(struct observer *o,
                                             enum trace_kind kind,
                                             uint64_t ns,
                                             const struct tensor_request *q)
{
    struct trace_event *ev = timeline_slot(&o->timeline, kind, ns);

    if (!ev)
        return NULL;
    trace_name(ev, q->process_set, q->name);
    ev->coll = (uint8_t)q->coll;
    ev->dtype = (uint8_t)q->dtype;
    return ev;
}

static void event_put(struct observer *o,
                      enum trace_kind kind,
                      uint64_t ns,
                      const struct tensor_request *q)
{
    if (observe_new_event(o, kind, ns, q))
        timeline_put(&o->timeline);
}

static void event_put_activity(struct observer *o,
                               enum trace_activity activity,
                               uint64_t ns,
                               const struct tensor_request *q)
{
    struct trace_event *ev = observe_new_event(o, TRACE_ACTIVITY, ns, q);

    if (!ev)
        return;
    ev->activity = (uint8_t)activity;
    timeline_put(&o->timeline);
}

void observe_submit(struct observer *o, const struct op *op)
{
    if (timeline_is_on(&o->timeline))
        event_put(o, TRACE_NEGOTIATE, op->submitted_ns, &op->req);
}

void observe_request(void *arg, uint32_t rank, const struct tensor_request *q)
{
    struct observer *o = arg;
    struct trace_event *ev;

    if (!timeline_is_on(&o->timeline))
        return;
    ev = observe_new_event(o, TRACE_TICK, clock_now_ns(), q);
    if (!ev)
        return;
    ev->rank = rank;
    timeline_put(&o->timeline);
}

void observe_cycle(struct observer *o)
{
    if (timeline_is_on(&o->timeline)
        && atomic_load_explicit(&o->timeline.marks_cycles, memory_order_relaxed)
        && timeline_slot(&o->timeline, TRACE_CYCLE, clock_now_ns()))
        timeline_put(&o->timeline);
}

void observe_run(struct observer *o, const struct member_act *act)
{
    uint64_t now;

    if (!timeline_is_on(&o->timeline))
        return;
    now = clock_now_ns();
    for (size_t i = 0; i < act->n_items; i++)
        if (act->items[i].op)
            event_put(o, TRACE_START, now, act->items[i].req);
}

void observe_allocate(struct observer *o, const struct op *op)
{
    if (timeline_is_on(&o->timeline))
        event_put_activity(o, TRACE_ALLOCATE_OUTPUT, clock_now_ns(), &op->req);
}

/* --- NaN --- */

static bool op_has_input(const struct op *op)
{
    return (op->req.coll != COLL_BROADCAST && op->req.coll != COLL_SENDRECV)
           || op->me == op->root;
}

int observe_nonfinite(const struct observer *o,
                      const struct op *op,
                      const struct nonfinite *bad,
                      struct err *err)
{
    char name[NAME_SHOWN_MAX];

    return err_set(
        err, -EDOM,
        "%s on rank %u (host %s): element %llu of %llu in tensor %s, input of "
        "%s (%llu such elements; HVD_NANCHECK)",
        bad->is_nan ? "NaN" : "infinity", o->rank, o->settings->host,
        (unsigned long long)bad->at, (unsigned long long)op->count,
        name_shown(op->req.name, name), collective_name(op->req.coll),
        (unsigned long long)bad->n);
}

static int
op_check_finite(const struct observer *o, const struct op *op, struct err *err)
{
    struct nonfinite bad;

    if (!op_has_input(op) || !nonfinite_find(op->req.dtype, op->data, op->count, &bad))
        return 0;
    return observe_nonfinite(o, op, &bad, err);
}

/* --- what the member counts --- */

/* A plan's tensors repeat: each time all of them were carried out is a step. */
static void
stats_count_steps(struct observer *o, const struct member_counts *c, uint64_t now_ns)
{
    struct stats *s = &o->stats;
    uint32_t n_plan = member_plan_size(o->member);

    if (n_plan == 0 || c->n_plans != s->plan_no) { /* no plan, or another */
        s->plan_no = c->n_plans;
        s->plan_from = c->n_before_plan;
        stats_no_step(s);
    }
    if (n_plan == 0)
        return;
    while (c->n_planned - s->plan_from >= n_plan) {
        s->plan_from += n_plan;
        reporter_step(&o->reporter, stats_step(s, now_ns));
    }
}

static void stats_update_counts(struct observer *o, uint64_t now_ns)
{
    struct member_counts c = member_counts(o->member);
    struct stats *s = &o->stats;

    stats_set(s, STATS_HITS, c.n_hits);
    stats_set(s, STATS_MISSES, c.n_requests);
    stats_set(s, STATS_PLANS, c.n_plans);
    stats_set(s, STATS_LEAVES, c.n_leaves);
    stats_set(s, STATS_PLANNED, c.n_planned);
    stats_set(s, STATS_AGREEMENTS, c.n_rounds);
    stats_copy_blocked(s, now_ns);
    stats_count_steps(o, &c, now_ns);
}

/* --- batches --- */

int observe_transfer(struct observer *o,
                     const struct member_act *act,
                     uint64_t *ret_ns,
                     struct err *err)
{
    bool is_on = timeline_is_on(&o->timeline);
    uint64_t now;

    for (size_t i = 0; o->settings->nancheck && i < act->n_items; i++) {
        int r = act->items[i].op ? op_check_finite(o, op_of(act->items[i].op), err) : 0;

        if (r < 0)
            return r;
    }
    now = clock_now_ns();
    for (size_t i = 0; is_on && i < act->n_items; i++)
        if (act->items[i].op)
            event_put_activity(o, TRACE_TRANSFER, now, act->items[i].req);
    *ret_ns = now;
    return 0;
}

void observe_device(struct observer *o, const struct device_counts *c)
{
    struct stats *s = &o->stats;

    stats_add(s, STATS_READY_NS, c->ready_ns - o->device_ready_ns);
    o->device_ready_ns = c->ready_ns;
    stats_set(s, STATS_DEVICE_PACKED, c->packed_bytes);
    stats_set(s, STATS_DEVICE_DIRECT, c->direct_bytes);
    stats_set(s, STATS_DEVICE_REGISTERED, c->registered_bytes);
    stats_set(s, STATS_DEVICE_SM, (uint64_t)c->sm);
    stats_set(s, STATS_DEVICE_NCCL, (uint64_t)c->nccl);
    stats_set(s, STATS_DEVICE_CUDA, (uint64_t)c->cuda);
}

static uint64_t events_put_activity(struct observer *o,
                                    const struct member_act *act,
                                    enum trace_activity activity)
{
    const uint64_t now = clock_now_ns();

    for (size_t i = 0; timeline_is_on(&o->timeline) && i < act->n_items; i++)
        if (act->items[i].op)
            event_put_activity(o, activity, now, act->items[i].req);
    return now;
}

void observe_init_device(struct observer *o, const struct member_act *act)
{
    (void)events_put_activity(o, act, TRACE_INIT_DEVICE);
}

uint64_t observe_posted(struct observer *o, const struct member_act *act)
{
    stats_add(&o->stats, STATS_DEVICE_BATCHES, 1);
    return events_put_activity(o, act, TRACE_DEVICE);
}

void observe_transferred(struct observer *o,
                         const struct member_act *act,
                         uint32_t n_members,
                         uint64_t began_ns)
{
    uint64_t bytes = 0, waited_ns = 0, last_ns = 0, now = clock_now_ns();
    size_t n_ops = 0;

    for (size_t i = 0; i < act->n_items; i++) {
        const struct op *op = act->items[i].op ? op_of(act->items[i].op) : NULL;

        if (!op)
            continue;
        n_ops++;
        bytes += op->bytes;
        waited_ns += began_ns - op->submitted_ns;
        if (!op_is_posted(op) && last_ns < op->submitted_ns)
            last_ns = op->submitted_ns;
    }
    reporter_batch(&o->reporter, n_ops, bytes, waited_ns);
    stats_update_counts(o,
                        now); /* before waiters wake, so they read complete counters */
    stats_batch(&o->stats, act->items[0].req->coll, act->n_items, n_members, bytes,
                waited_ns, now - began_ns);
    if (last_ns > 0) /* else the device counts: observe_device */
        stats_add(&o->stats, STATS_READY_NS, now - last_ns);
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

void observe_end(struct observer *o, const struct op *op, int status)
{
    struct trace_event *ev;

    stats_tensor(&o->stats, op->req.coll, status == HVD_OK,
                 op_has_input(op) ? op->bytes : 0,
                 status == HVD_OK ? op_output_bytes(op) : 0);
    if (!timeline_is_on(&o->timeline))
        return;
    ev = observe_new_event(o, TRACE_END, clock_now_ns(), &op->req);
    if (!ev)
        return;
    ev->bytes = op->bytes;
    if (op_is_posted(op))
        ev->activity = TRACE_DEVICE;
    timeline_put(&o->timeline);
}

/* --- messages --- */

void observe_sent(struct observer *o, size_t n, uint32_t n_peers)
{
    stats_add(&o->stats, STATS_SENT, n_peers);
    stats_add(&o->stats, STATS_SENT_BYTES, (uint64_t)n * n_peers);
}

void observe_received(struct observer *o, size_t n)
{
    stats_add(&o->stats, STATS_RECEIVED, 1);
    stats_add(&o->stats, STATS_RECEIVED_BYTES, n);
}

void observe_step(struct observer *o, bool moved, uint64_t now_ns)
{
    if (moved)
        stats_update_counts(o, now_ns);
    if (timeline_next_ns(&o->timeline) != UINT64_MAX)
        timeline_step(&o->timeline, clock_now_ns());
}

/* --- life --- */

int observe_init(struct observer *o,
                 const struct settings *s,
                 uint32_t rank,
                 uint32_t size,
                 const struct member *member,
                 const struct control_member *members,
                 const struct timeline_link *link)
{
    o->rank = rank;
    o->settings = s;
    o->member = member;
    /* The launcher reads the pages of the whole job, so the page has the rank in the
     * job. */
    stats_init(&o->stats, s->stats_dir, s->job_rank, s->job_size, s->generation,
               clock_now_ns());
    timeline_init(&o->timeline, rank, size, link);
    return s->reports ? reporter_init(&o->reporter, rank, size, s->is_dry_run, members,
                                      &o->stats)
                      : 0;
}

void observe_release(struct observer *o)
{
    timeline_release(&o->timeline);
    reporter_release(&o->reporter);
    stats_release(&o->stats);
}

void observe_start(struct observer *o)
{
    const struct settings *s = o->settings;
    struct err err = ERR_INIT;

    if (o->rank == 0 && s->timeline[0]
        && timeline_start(&o->timeline, s->timeline, s->timeline_mark_cycles,
                          s->timeline_all, &err)
               < 0)
        log_warn("cannot start the timeline, continuing without it", "cause=\"%s\"",
                 err.text);
}
