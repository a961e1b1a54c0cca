/* SPDX-License-Identifier: Apache-2.0 */
/* Recording: the ring, and the messages between ranks about it.
 *
 * A timeline is started and stopped on rank 0 only. For a timeline of all ranks, rank 0
 * sends its clock down, quickly at first, then four times per second. A rank that
 * receives it starts to record, answers each clock at once, so that rank 0 can compare
 * both directions, and sends its events up ten times per second once CLOCKS_ENOUGH have
 * arrived. All of it is sent on the control channel between the messages about work,
 * distinguished by the first byte, in the seat of both sides. */
#include "runtime/observe/timeline.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "hvd.h"

enum { CLOCKS_ENOUGH = 8, CLOCKS_QUICK = 16 };
static const uint64_t QUICK_NS = 20 * NS_PER_MS, SLOW_NS = 250 * NS_PER_MS,
                      SEND_NS = 100 * NS_PER_MS, LAST_LIMIT_NS = NS_PER_S;
static const size_t MESSAGE_LIMIT = 256u << 10;

void timeline_init(struct timeline *t,
                   uint32_t rank,
                   uint32_t size,
                   const struct timeline_link *link)
{
    memset(t, 0, sizeof(*t));
    t->rank = rank;
    t->size = size;
    t->link = *link;
    strbuf_init(&t->out, 1u << 20);
    (void)pthread_mutex_init(&t->life, NULL);
    (void)pthread_mutex_init(&t->lock, NULL);
}

static bool timeline_ensure_ring(struct timeline *t)
{
    if (!t->slots)
        t->slots = mem_calloc(TIMELINE_SLOTS, sizeof(*t->slots));
    return t->slots != NULL;
}

/* --- start and stop --- */

static void timeline_wake(const struct timeline *t)
{
    if (atomic_load(&t->others) != OTHERS_NONE && t->link.wake)
        t->link.wake(t->link.arg);
}

int timeline_start(struct timeline *t,
                   const char *path,
                   bool marks_cycles,
                   bool wants_all,
                   struct err *err)
{
    struct timeline_file *f;
    int rc = 0;

    (void)pthread_mutex_lock(&t->life);
    if (t->file)
        rc = err_set(err, HVD_INVALID_ARGUMENT,
                     "a timeline is being written already; stop it first");
    else if (!timeline_ensure_ring(t))
        rc = err_set(err, HVD_NO_MEMORY, "out of memory for the timeline");
    if (rc == 0) { /* events left in the ring are of the last timeline */
        atomic_store(&t->read, atomic_load(&t->written));
        atomic_store(&t->n_dropped, 0);
        rc = timeline_file_open(t, path, &f, err);
    }
    if (rc == 0) {
        (void)pthread_mutex_lock(&t->lock);
        t->file = f;
        (void)pthread_mutex_unlock(&t->lock);
        atomic_store(&t->marks_cycles, marks_cycles);
        atomic_store(&t->others,
                     wants_all && t->size > 1 ? OTHERS_RECORD : OTHERS_NONE);
        atomic_store_explicit(&t->is_on, true, memory_order_release);
        timeline_wake(t);
    }
    (void)pthread_mutex_unlock(&t->life);
    return rc;
}

/* Unless the stop was sent already. */
static void timeline_request_stop(struct timeline *t)
{
    int recording = OTHERS_RECORD;

    (void)atomic_compare_exchange_strong(&t->others, &recording, OTHERS_STOP);
}

static void timeline_stop_within(struct timeline *t, uint64_t limit_ns)
{
    struct timeline_file *f = t->file; /* changes under life only */

    if (!f)
        return;
    atomic_store_explicit(&t->is_on, false, memory_order_release);
    if (atomic_load(&t->others) != OTHERS_NONE && limit_ns > 0) {
        timeline_request_stop(t);
        timeline_wake(t);
        timeline_file_wait(f, t->size - 1, clock_now_ns() + limit_ns);
    }
    atomic_store(&t->others, OTHERS_NONE);
    (void)pthread_mutex_lock(&t->lock);
    t->file = NULL;
    (void)pthread_mutex_unlock(&t->lock);
    timeline_file_close(f);
}

void timeline_stop(struct timeline *t, bool waits)
{
    (void)pthread_mutex_lock(&t->life);
    timeline_stop_within(t, waits ? LAST_LIMIT_NS : 0);
    (void)pthread_mutex_unlock(&t->life);
}

void timeline_release(struct timeline *t)
{
    timeline_stop_within(t, 0);
    mem_free(t->slots);
    t->slots = NULL;
    strbuf_release(&t->out);
    (void)pthread_mutex_destroy(&t->life);
    (void)pthread_mutex_destroy(&t->lock);
}

/* --- the ring --- */

struct trace_event *timeline_slot(struct timeline *t, enum trace_kind kind, uint64_t ns)
{
    uint64_t at = atomic_load_explicit(&t->written, memory_order_relaxed);
    struct trace_event *ev;

    if (!timeline_is_on(t))
        return NULL;
    /* acquire: the reader has taken everything out of the slot */
    if (at - atomic_load_explicit(&t->read, memory_order_acquire) >= TIMELINE_SLOTS) {
        atomic_fetch_add_explicit(&t->n_dropped, 1, memory_order_relaxed);
        return NULL;
    }
    ev = &t->slots[at % TIMELINE_SLOTS];
    *ev = (struct trace_event){.ns = ns, .kind = (uint8_t)kind};
    return ev;
}

void timeline_put(struct timeline *t)
{
    /* release: the slot is whole before the reader sees it */
    atomic_store_explicit(&t->written,
                          atomic_load_explicit(&t->written, memory_order_relaxed) + 1,
                          memory_order_release);
}

/* --- messages --- */

int timeline_on_up(struct timeline *t,
                   uint32_t rank,
                   const uint8_t *p,
                   size_t n,
                   uint64_t now_ns,
                   struct err *err)
{
    struct bytes_reader in = {.p = p, .left = n};
    struct trace_event ev;
    struct trace_up head;
    const uint8_t *events;
    int rc = trace_read_up(&in, &head, err);

    if (rc < 0)
        return rc;
    events = in.p;
    do
        rc = trace_read_event(&in, &ev, err);
    while (rc > 0);
    if (rc < 0)
        return rc;
    (void)pthread_mutex_lock(&t->lock);
    if (t->file) /* late: it has been stopped */
        rc = timeline_file_receive(t->file, rank, now_ns, &head, events,
                                   (size_t)(p + n - events));
    (void)pthread_mutex_unlock(&t->lock);
    return rc < 0 ? err_set(err, rc, "rank 0 is out of memory for the timeline") : 0;
}

int timeline_on_down(
    struct timeline *t, const uint8_t *p, size_t n, uint64_t now_ns, struct err *err)
{
    struct bytes_reader in = {.p = p, .left = n};
    struct trace_down m;
    int64_t delay_ns;
    int rc = trace_read_down(&in, &m, err);

    if (rc < 0)
        return rc;
    t->next_ns = 0; /* answer at once */
    if (m.order != TRACE_ORDER_CLOCK) {
        t->wants_last = true;
        atomic_store_explicit(&t->is_on, false, memory_order_release);
        return 0;
    }
    delay_ns = (int64_t)(now_ns - m.sent_ns);
    if (!timeline_is_on(t)) {
        if (!timeline_ensure_ring(t))
            return err_set(err, -ENOMEM, "rank %u is out of memory for the timeline",
                           t->rank);
        t->n_clocks = 0;
        t->wants_last = false;
        atomic_store(&t->read, atomic_load(&t->written));
        atomic_store_explicit(&t->is_on, true, memory_order_release);
    }
    if (t->n_clocks == 0 || delay_ns < t->least_down_ns)
        t->least_down_ns = delay_ns;
    t->n_clocks++;
    return 0;
}

/* Rank 0. */

static void
timeline_send_down(struct timeline *t, enum trace_order order, uint64_t now_ns)
{
    struct trace_down m = {order, now_ns};

    strbuf_clear(&t->out);
    trace_write_down(&m, &t->out);
    if (strbuf_status(&t->out) == 0)
        t->link.down(t->link.arg, t->out.p, t->out.n);
}

/* A rank other than 0. True: nothing is left that may be sent now. */
static bool timeline_send_up(struct timeline *t, bool is_last, uint64_t now_ns)
{
    uint64_t at = atomic_load_explicit(&t->read, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&t->written, memory_order_relaxed);
    struct trace_up head = {.least_down_ns = t->least_down_ns};
    bool may_send = is_last || t->n_clocks >= CLOCKS_ENOUGH;

    strbuf_clear(&t->out);
    head.n_dropped = atomic_exchange_explicit(&t->n_dropped, 0, memory_order_relaxed);
    head.is_last = is_last;
    head.sent_ns = now_ns;
    trace_write_up(&head, &t->out);
    if (may_send)
        for (; at < end && t->out.n < MESSAGE_LIMIT; at++)
            trace_write_event(&t->slots[at % TIMELINE_SLOTS], &t->out);
    if (is_last && at < end) { /* too much for one message */
        t->out.p[2] = 0;       /* is_last */
        is_last = false;
    }
    if (strbuf_status(&t->out) == 0)
        t->link.up(t->link.arg, t->out.p, t->out.n);
    atomic_store_explicit(&t->read, at, memory_order_relaxed);
    return at == end || !may_send;
}

static void timeline_step_rank0(struct timeline *t, uint64_t now_ns)
{
    int wanted = OTHERS_STOP;

    if (atomic_compare_exchange_strong(&t->others, &wanted, OTHERS_STOPPED)) {
        timeline_send_down(t, TRACE_ORDER_STOP, now_ns);
        t->n_clocks = 0;
        t->next_ns = 0;
        return;
    }
    if (!timeline_is_on(t) || atomic_load(&t->others) != OTHERS_RECORD
        || now_ns < t->next_ns)
        return;
    timeline_send_down(t, TRACE_ORDER_CLOCK, now_ns);
    t->n_clocks++;
    t->next_ns = now_ns + (t->n_clocks < CLOCKS_QUICK ? QUICK_NS : SLOW_NS);
}

void timeline_step(struct timeline *t, uint64_t now_ns)
{
    if (t->rank == 0) {
        timeline_step_rank0(t, now_ns);
        return;
    }
    if ((!timeline_is_on(t) && !t->wants_last) || now_ns < t->next_ns)
        return;
    t->next_ns = now_ns + SEND_NS;
    if (!timeline_send_up(t, t->wants_last, now_ns))
        t->next_ns = now_ns;
    else
        t->wants_last = false;
}

uint64_t timeline_next_ns(const struct timeline *t)
{
    if (t->rank == 0) {
        int others = atomic_load(&t->others);

        return others == OTHERS_STOP                          ? 0
               : others == OTHERS_RECORD && timeline_is_on(t) ? t->next_ns
                                                              : UINT64_MAX;
    }
    return timeline_is_on(t) || t->wants_last ? t->next_ns : UINT64_MAX;
}

void timeline_leave(struct timeline *t, uint64_t now_ns)
{
    if (t->rank == 0) {
        timeline_request_stop(t);
        return;
    }
    if (!timeline_is_on(t) && !t->wants_last)
        return;
    atomic_store_explicit(&t->is_on, false, memory_order_release);
    t->wants_last = true;
    for (int i = 0; i < 64 && t->wants_last; i++) { /* the ring, in parts */
        t->next_ns = 0;
        timeline_step(t, now_ns);
    }
}

bool timeline_awaits_events(struct timeline *t)
{
    int others = atomic_load(&t->others);
    bool awaits = false;

    if (t->rank != 0 || (others != OTHERS_STOP && others != OTHERS_STOPPED))
        return false;
    (void)pthread_mutex_lock(&t->lock);
    if (t->file)
        awaits = timeline_file_n_last(t->file) < t->size - 1;
    (void)pthread_mutex_unlock(&t->lock);
    return awaits;
}
