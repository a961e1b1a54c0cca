/* SPDX-License-Identifier: Apache-2.0 */
/*   queue -> core/member -> up to rank 0          (on rank 0 into the table at once)
 *   rank 0: core/negotiate -> answers -> down to all, its own member too
 *
 * Rank 0 reads the same bytes that it has sent to the other ranks. Nothing here posts to
 * a backend. Called by step.c and, for arriving messages, by control_pump. */
#include "runtime/engine/talk.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

static const uint64_t END_GRACE_NS = NS_PER_S;
/* Half of it is longer than any time between two steps, unless the settings say more. */
static const uint64_t PAUSE_MIN_NS = 60 * NS_PER_S;
/* The launcher's record of a stall is written again, as other ranks arrive. */
static const uint64_t STALL_SHOW_NS = 5 * NS_PER_S;

/* --- life --- */

static const char *talk_host_of(void *arg, uint32_t rank)
{
    return ((const struct talk *)arg)->e->members[rank].host;
}

void talk_init(struct talk *t,
               struct engine *e,
               void (*report_late)(const char *tensor))
{
    const struct settings *s = &e->settings;

    t->e = e;
    t->report_late = report_late;
    t->stall.warn_ns = s->stall_warn_ns;
    t->stall.fail_ns = s->stall_fail_ns;
    t->stall.deadlock_ns = s->deadlock_ns;
    t->pause_ns =
        s->peer_timeout_ns > s->stall_warn_ns ? s->peer_timeout_ns : s->stall_warn_ns;
    t->pause_ns = 2 * (t->pause_ns > PAUSE_MIN_NS ? t->pause_ns : PAUSE_MIN_NS);
    t->stall.host_of = talk_host_of;
    t->stall.arg = t;
    t->stall_next_ns = UINT64_MAX;
    strbuf_init(&t->out, MESSAGE_MAX_BYTES);
    gather_set(&t->gather, s->gather_ns, s->fusion_bytes);
}

/* Rank 0's settings apply to the whole world. */
int talk_start(struct talk *t, bool may_freeze)
{
    const struct settings *s = &t->e->settings;
    struct negotiate_config cfg = {
        .n_ranks = t->e->size,
        .fusion_bytes = s->fusion_bytes,
        .cache_capacity = s->cache_capacity,
        .may_freeze = may_freeze,
        .fuses_groups_apart = s->is_group_alone,
        .on_request = observe_request,
        .on_request_arg = &t->e->observe,
    };

    if (t->e->rank != 0)
        return 0;
    stall_file_init(&t->stall_file, s->stats_dir);
    stats_set(&t->e->observe.stats, STATS_STALL_NS, s->stall_warn_ns);
    return negotiate_new(&cfg, &t->negotiate);
}

void talk_release(struct talk *t)
{
    stall_file_hide(&t->stall_file);
    negotiate_free(t->negotiate);
    strbuf_release(&t->out);
}

/* --- receiving --- */

uint64_t talk_stall_ns(const struct talk *t)
{
    const uint64_t all[] = {t->stall.warn_ns, t->stall.fail_ns, t->stall.deadlock_ns};
    uint64_t least_ns = 0;

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i] > 0 && (least_ns == 0 || all[i] < least_ns))
            least_ns = all[i];
    return least_ns;
}

static int talk_receive_requests(
    struct talk *t, uint32_t rank, const void *p, size_t n, struct err *err)
{
    struct message_reader in;
    uint64_t now = clock_now_ns();
    int rc = message_open(&in, p, n, err);

    if (rc == 0)
        rc = negotiate_receive(t->negotiate, rank, &in, now, err);
    if (t->stall_next_ns == UINT64_MAX && talk_stall_ns(t) > 0
        && negotiate_pending(t->negotiate) > 0)
        t->stall_next_ns =
            now
            + (t->stall.warn_ns > 0 ? stall_notice_ns(&t->stall) : talk_stall_ns(t));
    return rc;
}

static int
talk_receive_answers(struct talk *t, const void *p, size_t n, struct err *err)
{
    int rc = member_receive(t->e->member, p, n, err);
    const char *late = member_is_late(t->e->member);

    if (late) {
        log_warn("other ranks wait for a tensor that this rank has not submitted",
                 "rank=%u tensor=\"%s\"", t->e->rank, late);
        t->report_late(late);
    }
    return rc;
}

int talk_on_up(void *arg, uint32_t rank, const uint8_t *p, size_t n, struct err *err)
{
    struct talk *t = arg;

    if (trace_is_message(p, n))
        return timeline_on_up(&t->e->observe.timeline, rank, p, n, clock_now_ns(), err);
    if (t->has_end) /* the operation fails on that rank, with the end of the world */
        return 0;
    observe_received(&t->e->observe, n);
    return talk_receive_requests(t, rank, p, n, err);
}

int talk_on_down(void *arg, const uint8_t *p, size_t n, struct err *err)
{
    struct talk *t = arg;
    struct observer *o = &t->e->observe;

    if (trace_is_message(p, n))
        return timeline_on_down(&o->timeline, p, n, clock_now_ns(), err);
    observe_received(o, n);
    /* control has forwarded it already */
    observe_sent(o, n, control_n_below(t->e->control));
    return talk_receive_answers(t, p, n, err);
}

void talk_on_ended(void *arg, const char *who, bool is_failure)
{
    struct talk *t = arg;

    timeline_leave(&t->e->observe.timeline, clock_now_ns());
    t->has_end = true;
    t->end_at_ns = clock_now_ns() + END_GRACE_NS;
    t->is_end_failure = is_failure;
    (void)snprintf(t->end_text, sizeof(t->end_text), "%s%.440s",
                   is_failure ? "" : "Horovod has been shut down: ", who);
}

void talk_on_report(void *arg, uint32_t rank, const uint8_t *p, size_t n)
{
    struct talk *t = arg;

    reporter_receive(&t->e->observe.reporter, rank, p, n);
}

/* --- the window --- */

/* The window is not kept open when a thread waits, because it usually has nothing more
 * to submit, and when the step is complete. */
bool talk_is_gathering(struct talk *t)
{
    return t->gather.until_ns > 0
           && gather_holds(&t->gather, clock_now_ns(),
                           atomic_load(&t->e->n_waiters) > 0 || t->has_end
                               || member_has_whole_plan(t->e->member));
}

void talk_set_gathering(struct talk *t, uint64_t window_ns, uint64_t fill_bytes)
{
    gather_set(&t->gather, window_ns, fill_bytes);
}

/* --- sending --- */

/* Rank 0: sends answers for all that is ready. */
static int talk_send_answers(struct talk *t, struct err *err)
{
    struct engine *e = t->e;
    const struct tuning *tuning = autotune_take_news(&e->autotune);
    int rc = 0;

    if (tuning)
        negotiate_tune(t->negotiate, tuning);
    while (rc == 0 && negotiate_has_news(t->negotiate) && !t->has_end) {
        strbuf_clear(&t->out);
        if (negotiate_write(t->negotiate, &t->out) < 0)
            return err_set(err, -ENOMEM, "rank 0 is out of memory for answers");
        observe_sent(&e->observe, t->out.n, control_n_below(e->control));
        /* the pump reports a loss */
        (void)control_down(e->control, t->out.p, t->out.n);
        rc = talk_receive_answers(t, t->out.p, t->out.n, err);
    }
    return rc;
}

static int talk_send_requests(struct talk *t, struct err *err)
{
    struct engine *e = t->e;

    if (strbuf_status(&t->out) < 0)
        return err_set(err, -ENOMEM, "rank %u is out of memory for requests", e->rank);
    if (e->rank == 0)
        return talk_receive_requests(t, 0, t->out.p, t->out.n, err);
    observe_sent(&e->observe, t->out.n, 1);
    (void)control_up(e->control, t->out.p, t->out.n); /* the pump reports a loss */
    return 0;
}

void talk_send(struct talk *t)
{
    struct engine *e = t->e;
    struct err err;
    int rc = 0;

    err_init(&err);
    while (rc == 0 && (member_is_in_plan(e->member) || !talk_is_gathering(t))
           && member_take_up(e->member, &t->out))
        rc = talk_send_requests(t, &err);
    if (rc == 0 && e->rank == 0)
        rc = talk_send_answers(t, &err);
    if (rc < 0)
        control_abort(e->control, err.text);
}

static void talk_submit(struct talk *t, struct op *op)
{
    struct engine *e = t->e;
    int rc;

    observe_submit(&e->observe, op);
    op->part.req = &op->req;
    gather_add(&t->gather, &op->req, op->submitted_ns);
    rc = member_submit(e->member, &op->part);
    if (rc == -EBUSY) {
        engine_finish_op(e, op, HVD_INVALID_ARGUMENT,
                         "this rank has joined: nothing can be submitted until all "
                         "ranks have");
        engine_wake_waiters(e);
    } else if (rc < 0) {
        control_abort(e->control, "out of memory for an operation");
    }
}

bool talk_take_new(struct talk *t)
{
    struct op *op = tensor_queue_take(&t->e->queue), *next;
    bool any = op != NULL;

    if (atomic_load(&t->e->life) != LIFE_READY)
        return false; /* operations submitted later fail when the world ends */
    for (; op; op = next) {
        next = op->next;
        talk_submit(t, op);
    }
    if (any)
        observe_cycle(&t->e->observe);
    return any;
}

/* --- stalls --- */

void talk_hide_stall(struct talk *t)
{
    stall_file_hide(&t->stall_file);
}

static void talk_show_stall(struct talk *t, uint64_t now_ns)
{
    struct stall_record r;
    uint64_t age_ns;

    t->stall_show_ns = now_ns + earlier_ns(t->stall.warn_ns, STALL_SHOW_NS);
    if (!t->stall_file.path[0])
        return;
    if (!stall_describe(&t->stall, t->negotiate, now_ns, &r, &age_ns)) {
        talk_hide_stall(t); /* what still waits is known to be missing on no rank */
        return;
    }
    age_ns += clock_now_ns() - now_ns;
    r.seen_wall_us = clock_wall_us();
    r.since_wall_us = r.seen_wall_us - age_ns / 1000;
    r.generation = t->e->settings.generation;
    r.pid = (uint32_t)getpid();
    stall_file_show(&t->stall_file, &r);
}

/* A stall that is over is hidden at once, one that lasts is written again. */
static void talk_update_stall(struct talk *t)
{
    uint64_t now_ns = clock_now_ns();

    if (!stall_lasts(&t->stall, t->negotiate, now_ns))
        talk_hide_stall(t);
    else if (now_ns >= t->stall_show_ns)
        talk_show_stall(t, now_ns);
}

static void talk_show_wait(struct talk *t, uint64_t now_ns)
{
    uint64_t since_ns = t->stall.waits_ns;
    uint64_t wall_ns = since_ns ? clock_wall_us() * 1000u - (now_ns - since_ns) : 0;

    stats_set(&t->e->observe.stats, STATS_WAITS_NS, wall_ns);
}

bool talk_check_stall(struct talk *t, uint64_t now_ns)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    char cause[MESSAGE_TEXT_MAX];
    enum stall_act act;

    if (t->e->rank != 0)
        return false;
    if (now_ns > t->stepped_ns + t->pause_ns)
        t->stall.resumed_ns = now_ns;
    t->stepped_ns = now_ns;
    if (t->stall_file.is_shown)
        talk_update_stall(t);
    if (now_ns < t->stall_next_ns)
        return false;
    now_ns = clock_now_ns(); /* the step may have begun before a request arrived */
    strbuf_init(&text, 4096);
    act = stall_step(&t->stall, t->negotiate, now_ns, &text, &t->stall_next_ns);
    talk_show_wait(t, now_ns);
    switch (act) {
    case STALL_NONE:
        break;
    case STALL_WARN:
        log_warn("stalled: some ranks have not submitted tensors that other ranks wait "
                 "for, still waiting",
                 "%s", strbuf_str(&text));
        talk_show_stall(t, now_ns);
        if (t->e->settings.reports_late)
            negotiate_report_late(t->negotiate);
        break;
    case STALL_FAIL:
        (void)snprintf(cause, sizeof(cause),
                       "stalled (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS): %.400s",
                       strbuf_str(&text));
        control_abort(t->e->control, cause);
        return true;
    case STALL_DEADLOCK:
        (void)snprintf(cause, sizeof(cause), "stalled (HVD_DEADLOCK_TIMEOUT): %.440s",
                       strbuf_str(&text));
        control_abort(t->e->control, cause);
        return true;
    }
    return false;
}

uint64_t talk_next_ns(const struct talk *t)
{
    uint64_t a = control_next_ns(t->e->control);

    if (t->e->rank == 0)
        a = earlier_ns(a, t->stall_next_ns);
    if (t->stall_file.is_shown)
        a = earlier_ns(a, t->stall_show_ns);
    if (t->gather.until_ns > 0)
        a = earlier_ns(a, t->gather.until_ns);
    return t->has_end ? earlier_ns(a, t->end_at_ns) : a;
}
