/* SPDX-License-Identifier: Apache-2.0 */
/* Called by hub.c and hub_receive.c, in the hub's thread. */
#include "runtime/launch/live_lead.h"

#include <errno.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

void live_lead_init(struct live_lead *l)
{
    live_job_init(&l->job, clock_now_ns(), clock_wall_us());
    l->readers.n = 0;
}

void live_lead_release(struct live_lead *l)
{
    readers_close(&l->readers);
    live_job_release(&l->job);
}

void live_lead_meet(struct live_lead *l, uint32_t generation, uint32_t n_workers)
{
    live_job_advance(&l->job, clock_now_ns());
    live_job_meet(&l->job, generation, n_workers);
}

void live_lead_set_present(struct live_lead *l, uint32_t n_present)
{
    live_job_set_present(&l->job, n_present);
}

void live_lead_start(struct live_lead *l, uint32_t size, uint32_t slots)
{
    live_job_advance(&l->job, clock_now_ns());
    if (live_job_start(&l->job, size, slots) < 0)
        log_warn("out of memory, the job's progress is not shown", "ranks=%u", size);
}

void live_lead_end(struct live_lead *l)
{
    live_job_advance(&l->job, clock_now_ns());
    live_job_end(&l->job);
}

int live_lead_take(struct live_lead *l, const void *p, size_t n, struct err *err)
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
    return 0;
}

/* --- readers ---------------------------------------------------------------------- */

static int lead_put_report(struct live_lead *l, struct strbuf *out, struct err *err)
{
    AUTOFREE struct live_report *r = mem_alloc(sizeof(*r));

    if (!r)
        return err_set(err, -ENOMEM, "the agent is out of memory");
    live_job_advance(&l->job, clock_now_ns());
    live_job_report(&l->job, clock_wall_us(), r);
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

static int
lead_answer(void *arg, const struct live_query *q, struct strbuf *out, struct err *err)
{
    struct live_lead *l = arg;

    switch (q->kind) {
    case QUERY_REPORT:
        return lead_put_report(l, out, err);
    case QUERY_RANKS:
        lead_put_ranks(&l->job, q, out);
        return 0;
    case QUERY_STACKS:
    case QUERY_EXAMINE:
        break;
    }
    return err_set(err, -ENOSYS, "query %u is unknown to this agent",
                   (unsigned)q->kind);
}

void live_lead_serve(struct live_lead *l)
{
    readers_serve(&l->readers, lead_answer, l, clock_now_ns());
}
