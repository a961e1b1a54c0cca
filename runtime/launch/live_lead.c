/* SPDX-License-Identifier: Apache-2.0 */
/* Called by the hub, in its thread, and by local_job.c, remote.c, remote_receive.c and
 * step_status.c, in the main thread. */
#include "runtime/launch/live_lead.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/exam.h"
#include "runtime/wire/bytes.h"

/* Two records whose begins differ by less are of one stall. */
static const uint64_t SAME_STALL_US = 2000000;

#define LOG_STACKS_MAX 32768
#define EXAM_AGAIN_MS  1000 /* a reader asks again while an examination is in progress */

void live_lead_init(struct live_lead *l, const struct live_lead_config *c)
{
    memset(l, 0, sizeof(*l));
    l->c = *c;
    live_job_init(&l->job, clock_now_ns(), clock_wall_us());
}

static void lead_forget_world(struct live_lead *l)
{
    straggle_release(&l->straggle);
    l->straggle = (struct straggle){0};
    exam_cancel(&l->exam);
    l->record = (struct stall_record){0};
}

void live_lead_release(struct live_lead *l)
{
    lead_forget_world(l);
    exam_release(&l->exam);
    readers_close(&l->readers);
    live_job_release(&l->job);
}

void live_lead_meet(struct live_lead *l, uint32_t generation, uint32_t n_workers)
{
    lead_forget_world(l);
    live_job_advance(&l->job, clock_now_ns());
    live_job_meet(&l->job, generation, n_workers);
}

void live_lead_set_present(struct live_lead *l, uint32_t n_present)
{
    live_job_set_present(&l->job, n_present);
}

void live_lead_start(struct live_lead *l, uint32_t size, uint32_t slots)
{
    struct err err = ERR_INIT;

    lead_forget_world(l);
    live_job_advance(&l->job, clock_now_ns());
    if (live_job_start(&l->job, size, slots) < 0)
        log_warn("out of memory, the job's progress is not shown", "ranks=%u", size);
    else if (straggle_init(&l->straggle, size, slots, &err) < 0)
        log_warn("no stragglers are looked for", "cause=\"%s\"", err.text);
}

void live_lead_end(struct live_lead *l)
{
    live_job_advance(&l->job, clock_now_ns());
    live_job_end(&l->job);
}

static int
lead_take_record(struct live_lead *l, const void *p, size_t n, struct err *err)
{
    AUTOFREE struct live_rank *r = mem_alloc(sizeof(*r));
    int rc;

    if (!r)
        return 0; /* the next one may fit */
    rc = live_rank_unpack(p, n, r, err);
    if (rc < 0)
        return rc;
    live_job_advance(&l->job, clock_now_ns());
    live_job_take(&l->job, r);
    if (l->straggle.n > 0)
        straggle_feed(&l->straggle, r);
    return 0;
}

/* --- stalls ----------------------------------------------------------------------- */

static const char *lead_host_of(void *arg, uint32_t rank)
{
    const struct live_lead *l = arg;

    return l->c.host_of(l->c.arg, rank);
}

static void lead_start_exam(struct live_lead *l)
{
    if (exam_begin(&l->exam, l->job.size, clock_now_ns()))
        l->c.examine(l->c.arg, l->exam.number);
}

/* NULL: it is over. */
static void lead_put_stall(struct live_lead *l, const struct live_stall *s)
{
    live_job_advance(&l->job, clock_now_ns());
    live_job_set_stall(&l->job, s, clock_wall_us());
}

/* What is known before the ranks have been examined. */
static void lead_put_record(struct live_lead *l)
{
    struct live_stall s;

    record_describe(&l->record, lead_host_of, l, clock_wall_us(), &s);
    lead_put_stall(l, &s);
}

static void lead_end_stall(struct live_lead *l)
{
    if (l->job.stall.since_wall_us > 0 && !l->c.is_silent)
        log_info("the stall is over", "tensor=\"%s\"", l->job.stall.tensor);
    l->record = (struct stall_record){0};
    exam_cancel(&l->exam);
    lead_put_stall(l, NULL);
}

/* Rank 0 writes its record again while the stall lasts, with the ranks that are missing
 * then. It computes the begin anew from two clocks. */
static bool lead_knows_stall(const struct live_lead *l, const struct stall_record *r)
{
    const uint64_t a = l->record.since_wall_us, b = r->since_wall_us;

    return a > 0 && (a < b ? b - a : a - b) < SAME_STALL_US
           && strcmp(l->record.tensor, r->tensor) == 0
           && strcmp(l->record.op, r->op) == 0
           && (l->job.stall.rank < 0
               || stall_record_is_missing(r, (uint32_t)l->job.stall.rank));
}

static int
lead_take_stall(struct live_lead *l, const char *text, size_t n, struct err *err)
{
    struct stall_record r;
    bool is_known;
    int rc;

    if (n == 0) {
        lead_end_stall(l);
        return 0;
    }
    rc = stall_record_unpack(text, n, &r, err);
    if (rc < 0)
        return rc;
    if (r.generation != l->job.generation)
        return 0; /* a rank 0 that was killed has left its file */
    is_known = lead_knows_stall(l, &r);
    l->record = r;
    if (is_known && l->job.stall.cause != LIVE_CAUSE_UNKNOWN)
        return 0;
    if (!is_known)
        lead_put_record(l);
    lead_start_exam(l); /* again, if its host was too busy for the last one */
    return 0;
}

/* A process that is stopped cannot report anything, and rank 0's stall time may be longer
 * than the time after which a silent rank ends the job. */
static void lead_check_stopped(struct live_lead *l)
{
    const struct live_rank *r = live_job_stopped(&l->job);
    CLEANUP(strbuf_release) struct strbuf who = {0};
    uint64_t now_us;

    if (!r && l->record.since_wall_us == 0 && l->job.stall.since_wall_us > 0
        && l->exam.deadline_ns == 0)
        lead_end_stall(l);
    if (!r || l->job.stall.since_wall_us > 0)
        return;
    now_us = clock_wall_us();
    struct live_stall s = {.since_wall_us = now_us - r->stopped_ms * 1000u,
                           .seen_wall_us = now_us,
                           .missing = {r->rank},
                           .n_missing = 1,
                           .rank = (int32_t)r->rank,
                           .cause = LIVE_CAUSE_STOPPED};
    const char *host = lead_host_of(l, r->rank);

    (void)snprintf(s.host, sizeof(s.host), "%s", host);
    strbuf_init(&who, sizeof(s.text) / 2);
    hang_put_rank(r->rank, host, r->pid, &who);
    (void)snprintf(s.text, sizeof(s.text),
                   "%s is stopped, by SIGSTOP, SIGTSTP or a debugger",
                   strbuf_str(&who));
    lead_put_stall(l, &s);
    lead_start_exam(l);
}

void live_lead_take_part(
    struct live_lead *l, enum live_part part, uint32_t number, const void *p, size_t n)
{
    struct err err = ERR_INIT;
    int rc = 0;

    switch (part) {
    case LIVE_PART_RECORD:
        rc = lead_take_record(l, p, n, &err);
        break;
    case LIVE_PART_STALL:
        rc = lead_take_stall(l, p, n, &err);
        break;
    case LIVE_PART_FINDING:
        rc = exam_take(&l->exam, number, p, n, &l->record, &err);
        break;
    }
    if (rc < 0)
        log_warn("progress of a rank is not shown", "cause=\"%s\"", err.text);
}

/* Not all of many stacks: the log may be a pipe whose reader is slow. */
static void lead_log_stacks(const char *text)
{
    const char *stacks = strchr(text, '\n'); /* behind the verdict's line */

    if (!stacks)
        return;
    (void)fprintf(stderr, "%.*s", LOG_STACKS_MAX, stacks + 1);
    if (strlen(stacks + 1) > LOG_STACKS_MAX)
        log_info("not all stacks are in the log; hvd-agent report --stacks and "
                 "horovodrun --status --verbose have them",
                 "bytes=%zu", strlen(stacks + 1));
}

static void lead_conclude(struct live_lead *l)
{
    struct live_stall s = l->job.stall;
    const struct stall_record *r = l->record.since_wall_us > 0 ? &l->record : NULL;
    bool is_again = s.has_stacks;

    exam_conclude(&l->exam, r, lead_host_of, l, clock_wall_us(), &s);
    if (l->job.stall.since_wall_us == 0)
        return; /* a reader has asked */
    lead_put_stall(l, &s);
    if (l->c.is_silent || (is_again && s.cause == LIVE_CAUSE_UNKNOWN))
        return;
    log_warn("the job hangs", "cause=%s verdict=\"%s\"", live_cause_name(s.cause),
             s.text);
    if (l->exam.text)
        lead_log_stacks(l->exam.text);
}

/* --- stragglers ------------------------------------------------------------------- */

static void lead_check_straggler(struct live_lead *l)
{
    struct live_straggler *s = &l->job.straggler;
    const struct straggle_verdict *v;
    int32_t before = s->rank;

    if (l->straggle.n == 0 || l->job.state == LIVE_STALLED)
        return;
    v = straggle_check(&l->straggle, clock_now_ns(), clock_wall_us());
    *s = (struct live_straggler){.rank = v->rank,
                                 .worker = v->worker,
                                 .is_worker = v->is_worker,
                                 .cost_s = v->cost_s,
                                 .share = v->share,
                                 .since_wall_us = v->since_wall_us};
    if (v->rank < 0 && before >= 0 && !l->c.is_silent)
        log_info("no rank delays the other ranks any more", "before=%d", before);
    if (v->rank < 0)
        return;
    (void)snprintf(s->host, sizeof(s->host), "%s", lead_host_of(l, (uint32_t)v->rank));
    if (v->rank != before && !l->c.is_silent)
        log_warn(v->is_worker ? "all ranks of a worker delay the other ranks"
                              : "a rank delays the other ranks",
                 "rank=%d worker=%u host=%s ms_per_step=%.3f share=%.2f", v->rank,
                 v->worker, s->host, 1e3 * v->cost_s, v->share);
}

/* --- readers ---------------------------------------------------------------------- */

static int lead_put_report(struct live_lead *l, struct strbuf *out, struct err *err)
{
    AUTOFREE struct live_report *r = mem_alloc(sizeof(*r));

    if (!r)
        return err_set(err, -ENOMEM, "the agent is out of memory");
    live_job_advance(&l->job, clock_now_ns());
    live_job_report(&l->job, clock_wall_us(), r);
    if (l->exam.deadline_ns > 0)
        r->again_ms = EXAM_AGAIN_MS;
    live_report_pack(r, out);
    return 0;
}

static void
lead_put_ranks(const struct live_job *j, const struct live_query *q, struct strbuf *out)
{
    uint32_t n = q->first < j->n_ranks ? j->n_ranks - q->first : 0;

    if (n > q->max)
        n = q->max;
    bytes_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++) {
        CLEANUP(strbuf_release) struct strbuf record = {0};

        strbuf_init(&record, LIVE_REPORT_MAX_BYTES);
        live_rank_pack(&j->ranks[q->first + i], &record);
        bytes_put_u32(out, (uint32_t)record.n);
        strbuf_add(out, strbuf_str(&record), record.n);
    }
}

/* -EINPROGRESS until the examination that this reader asked for has ended. */
static int lead_examine(struct live_lead *l, struct reader *x, struct err *err)
{
    if (l->job.n_ranks == 0)
        return err_set(err, -EAGAIN, "no ranks run that could be examined");
    if (l->exam.deadline_ns == 0 && x->ticket == 0)
        lead_start_exam(l);
    if (x->ticket == 0)
        x->ticket = l->exam.number;
    return l->exam.deadline_ns > 0 ? -EINPROGRESS : 0;
}

static int lead_answer(void *arg, struct reader *x, struct strbuf *out, struct err *err)
{
    struct live_lead *l = arg;
    int rc;

    switch (x->query.kind) {
    case QUERY_REPORT:
        return lead_put_report(l, out, err);
    case QUERY_RANKS:
        lead_put_ranks(&l->job, &x->query, out);
        return 0;
    case QUERY_EXAMINE:
        rc = lead_examine(l, x, err);
        if (rc < 0)
            return rc;
        strbuf_puts(out, l->exam.text ? l->exam.text : "");
        return 0;
    case QUERY_STACKS:
        strbuf_puts(out, l->exam.text ? l->exam.text : "");
        return 0;
    }
    return err_set(err, -ENOSYS, "query %u is unknown to this agent",
                   (unsigned)x->query.kind);
}

void live_lead_serve(struct live_lead *l)
{
    lead_check_stopped(l);
    if (exam_is_due(&l->exam, clock_now_ns()))
        lead_conclude(l);
    lead_check_straggler(l);
    readers_serve(&l->readers, lead_answer, l, clock_now_ns());
}

uint64_t live_lead_next_ns(const struct live_lead *l)
{
    uint64_t next = readers_next_ns(&l->readers);

    return l->exam.deadline_ns > 0 ? earlier_ns(next, l->exam.deadline_ns) : next;
}
