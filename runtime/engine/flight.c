/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a batch on the GPU:
 *
 *   carry_device.c posts it -> flight_add: its ops are POSTED: streams can wait for
 *   them (hvd_wait_on_stream), their names are free
 *   -> the device is done and wakes the seat -> flights_retire: they end
 *   or: the world ends -> flights_fail: the device is aborted, they end with the cause
 *
 * I1  An op is in one place: the tensor queue (by name) or one flight. Its reference
 *     moves with it.
 *
 * I2  When an op ends, the runtime no longer uses its memory: a failure waits until the
 *     device is quiet, FAIL_LIMIT_NS at most, and longer for work of the program in
 *     front of it (device_config.queue_limit_ns).
 *
 * I3  A flight that does not end is reported, and ends the world if that was requested.
 *
 * I4  In this file the seat waits for the GPU in flights_drain, where it handles
 *     control messages meanwhile, and in flights_fail (I2), nowhere else.
 *
 * Called by carry_device.c and step.c; in the seat only. */
#include "runtime/engine/flight.h"

#include <errno.h>
#include <sched.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/core/nonfinite.h"

static const uint64_t FAIL_LIMIT_NS = NS_PER_S;
static const uint64_t SPIN_NS = 100000, NAP_NS = 5 * NS_PER_MS;

static struct member_act flight_act(const struct flight *f)
{
    return (struct member_act){.kind = MEMBER_RUN, .items = f->items, .n_items = f->n};
}

struct flight *flight_new(const struct member_act *act, uint32_t n_members)
{
    const size_t n = act->n_items;
    struct flight *f =
        mem_zalloc(sizeof(*f) + n * (sizeof(*f->items) + sizeof(*f->at)));

    if (!f)
        return NULL;
    f->n_members = n_members;
    f->at = (uint32_t *)(void *)(f->items + n);
    return f;
}

void flight_add(struct flights *all,
                struct flight *f,
                struct backend *b,
                const struct member_act *act)
{
    f->b = b;
    for (size_t i = 0; i < act->n_items; i++) {
        struct op *op = act->items[i].op ? op_of(act->items[i].op) : NULL;

        if (!op)
            continue;
        f->at[f->n] = (uint32_t)i;
        f->items[f->n++] = (struct member_item){.op = &op->part, .req = &op->req};
        tensor_queue_remove(&all->e->queue, op);
        op_set_posted(op, all->e->gpu.ops->ticket_event(b, f->ticket));
    }
    if (all->tail)
        all->tail->next = f;
    else
        all->head = f;
    all->tail = f;
    all->n++;
    engine_wake_waiters(all->e);
}

static void
flight_end_op(struct flights *all, struct op *op, int status, const char *text)
{
    if (status == HVD_OK && op->has_no_memory) {
        status = HVD_NO_MEMORY;
        text = "no memory for the result";
    }
    observe_end(&all->e->observe, op, status);
    op_finish(op, status, text);
    op_unref(op);
}

static void flight_count_device(struct flights *all)
{
    struct device *d = device_of(&all->e->gpu);
    struct device_counts c;

    if (!d || !all->e->gpu.ops->counts)
        return;
    all->e->gpu.ops->counts(d, &c);
    observe_device(&all->e->observe, &c);
}

/* f has been removed from the list. */
static void
flight_end(struct flights *all, struct flight *f, int status, const char *text)
{
    struct member_act act = flight_act(f);

    /* before the threads that this batch wakes read the counters */
    flight_count_device(all);
    if (status == HVD_OK && f->n > 0) {
        observe_transferred(&all->e->observe, &act, f->n_members, f->began_ns);
        autotune_batch(&all->e->autotune, &act);
    }
    for (size_t i = 0; i < f->n; i++)
        flight_end_op(all, op_of(f->items[i].op), status, text);
    mem_free(f);
}

/* HVD_NANCHECK: what the device found in the oldest batch of b. */
static int
flight_report_nonfinite(struct flights *all, const struct flight *f, struct err *err)
{
    struct nonfinite bad;
    size_t item, i = 0;

    if (all->e->gpu.ops->bad_item(f->b, &item, &bad) < 0)
        return -EDOM; /* with poll's text */
    while (i < f->n && f->at[i] != item)
        i++;
    return i == f->n
               ? -EDOM
               : observe_nonfinite(&all->e->observe, op_of(f->items[i].op), &bad, err);
}

int flights_retire(struct flights *all, struct err *err)
{
    struct flight **link = &all->head, *last = NULL, *f;
    const struct backend *asked = NULL;
    uint64_t done = 0;
    int rc = 0, any = 0;

    while ((f = *link)) {
        if (f->b != asked) {
            rc = f->b->ops->poll(f->b, &done, err);
            asked = f->b;
        }
        if (rc == -EDOM)
            rc = flight_report_nonfinite(all, f, err);
        if (rc < 0)
            break;
        if (f->ticket > done) {
            last = f;
            link = &f->next;
            continue;
        }
        *link = f->next;
        if (all->tail == f)
            all->tail = last;
        all->n--;
        any = 1;
        flight_end(all, f, HVD_OK, NULL);
    }
    if (any)
        engine_wake_waiters(all->e);
    return rc < 0 ? rc : any;
}

/* --- stalled batches --- */

/* When the oldest batch must be reported next, or is too old. */
static uint64_t flight_due_ns(const struct flights *all, const struct flight *f)
{
    const uint64_t warn_ns = all->e->settings.stall_warn_ns,
                   fail_ns = all->e->settings.stall_fail_ns;
    uint64_t due = UINT64_MAX;

    if (warn_ns > 0)
        due = f->began_ns + (f->n_reported + 1) * warn_ns;
    return fail_ns > 0 && f->began_ns + fail_ns < due ? f->began_ns + fail_ns : due;
}

uint64_t flights_next_ns(const struct flights *all)
{
    return all->head ? flight_due_ns(all, all->head) : UINT64_MAX;
}

int flights_check_stall(const struct flights *all, struct err *err)
{
    struct flight *f = all->head;
    const uint64_t now_ns = clock_now_ns();
    unsigned long long age_s;
    const char *name;

    if (!f || now_ns < flight_due_ns(all, f))
        return 0;
    age_s = (now_ns - f->began_ns) / NS_PER_S;
    name = f->n > 0 ? f->items[0].req->name : "";
    if (all->e->settings.stall_fail_ns > 0
        && now_ns >= f->began_ns + all->e->settings.stall_fail_ns)
        return err_set(err, -ETIMEDOUT,
                       "stalled (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS): tensor "
                       "\"%.200s\" and %zu other tensors of rank %u have been in "
                       "progress on the GPU for %llu s",
                       name, f->n > 0 ? f->n - 1 : 0, all->e->rank, age_s);
    f->n_reported = (uint32_t)((now_ns - f->began_ns) / all->e->settings.stall_warn_ns);
    log_warn("stalled: tensors on the GPU are not complete; they wait for a stream or "
             "for another rank; still waiting",
             "rank=%u tensor=\"%.200s\" tensors=%zu seconds=%llu", all->e->rank, name,
             f->n, age_s);
    return 0;
}

static uint32_t flights_count(const struct flights *all, const struct backend *b)
{
    uint32_t n = 0;

    for (const struct flight *f = all->head; f; f = f->next)
        n += !b || f->b == b;
    return n;
}

void flights_await(struct flights *all, bool begins)
{
    if (all->head) /* so the device is open, and nothing closes it meanwhile */
        all->e->gpu.ops->await(device_of(&all->e->gpu), begins);
}

/* Another rank may be late by minutes: after a while the seat sleeps until a frame
 * arrives or the device wakes it. */
static void flights_wait(struct flights *all, uint64_t since_ns)
{
    const uint64_t now_ns = clock_now_ns();

    if (now_ns - since_ns < SPIN_NS) {
        (void)sched_yield();
        return;
    }
    flights_await(all, true);
    engine_sleep(all->e, now_ns + NAP_NS);
    flights_await(all, false);
}

int flights_drain(struct flights *all,
                  const struct backend *b,
                  uint32_t n,
                  struct err *err)
{
    uint64_t since_ns = clock_now_ns();
    int rc = 0;

    while (rc >= 0 && flights_count(all, b) > n) {
        rc = flights_retire(all, err);
        if (rc > 0)
            since_ns = clock_now_ns();
        if (rc != 0)
            continue;
        rc = engine_interrupted(all->e, err);
        if (rc == 0)
            flights_wait(all, since_ns);
    }
    return rc < 0 ? rc : 0;
}

void flights_fail(struct flights *all, int status, const char *text)
{
    struct device *d = device_of(&all->e->gpu);
    struct flight *f;

    if (d && all->head) {
        all->e->gpu.ops->abort(d);
        atomic_store(&all->is_quiescing, true);
        bool is_quiet = all->e->gpu.ops->quiesce(d, clock_now_ns() + FAIL_LIMIT_NS);
        atomic_store(&all->is_quiescing, false);
        if (!is_quiet)
            log_warn("work on the GPU did not stop in time, its tensors fail now",
                     "rank=%u", all->e->rank);
    }
    while ((f = all->head)) {
        all->head = f->next;
        all->n--;
        if (!all->head)
            all->tail = NULL;
        flight_end(all, f, status, text);
    }
}
