/* SPDX-License-Identifier: Apache-2.0 */
/* What the hub knows of the job's progress, and its answers to readers. A failure here
 * never fails the job: records that do not fit memory are dropped. Called by hub.c and
 * hub_receive.c, in the hub's thread. */
#include <errno.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/hub_state.h"
#include "runtime/wire/bytes.h"

void hub_live_init(struct hub *h)
{
    live_job_init(&h->live, clock_now_ns(), clock_wall_us());
    live_job_meet(&h->live, h->meet.generation, h->meet.workers);
}

void hub_live_meet(struct hub *h)
{
    live_job_advance(&h->live, clock_now_ns());
    live_job_meet(&h->live, h->meet.generation, h->meet.workers);
}

void hub_live_start(struct hub *h)
{
    live_job_advance(&h->live, clock_now_ns());
    if (live_job_start(&h->live, meet_ranks(&h->meet), h->env.slots) < 0)
        log_warn("out of memory, no progress is shown", "ranks=%u",
                 meet_ranks(&h->meet));
}

void hub_live_end(struct hub *h)
{
    live_job_advance(&h->live, clock_now_ns());
    live_job_end(&h->live);
}

int hub_take_live(struct hub *h, const struct frame *f, struct err *err)
{
    AUTOFREE struct live_rank *r = mem_alloc(sizeof(*r));
    uint32_t generation;
    int rc;

    if (!r)
        return 0; /* the next one may fit */
    rc = live_read(f->p, f->n, &generation, r, err);
    if (rc < 0 || generation != h->meet.generation)
        return rc;
    live_job_advance(&h->live, clock_now_ns());
    live_job_take(&h->live, r);
    return 0;
}

static void
hub_put_ranks(const struct hub *h, const struct live_query *q, struct strbuf *out)
{
    const struct live_job *j = &h->live;
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
hub_answer(void *arg, const struct live_query *q, struct strbuf *out, struct err *err)
{
    struct hub *h = arg;
    AUTOFREE struct live_report *r = NULL;

    switch (q->kind) {
    case QUERY_REPORT:
        r = mem_alloc(sizeof(*r));
        if (!r)
            return err_set(err, -ENOMEM, "the agent is out of memory");
        live_job_advance(&h->live, clock_now_ns());
        live_job_set_present(&h->live, meet_present(&h->meet));
        live_job_report(&h->live, clock_wall_us(), r);
        live_report_pack(r, out);
        return 0;
    case QUERY_RANKS:
        hub_put_ranks(h, q, out);
        return 0;
    case QUERY_STACKS:
    case QUERY_EXAMINE:
        break;
    }
    return err_set(err, -ENOSYS, "query %u is unknown to this agent",
                   (unsigned)q->kind);
}

void hub_serve_readers(struct hub *h)
{
    readers_serve(&h->readers, hub_answer, h, clock_now_ns());
}
