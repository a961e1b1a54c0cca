/* SPDX-License-Identifier: Apache-2.0 */
/* While a plan lasts no rank sends anything to rank 0, so each rank keeps its own sums and
 * sends them at the end of the world (engine/step.c). What is printed is decided in
 * core/report.c. */
#include "runtime/observe/reporter.h"

#include <errno.h>
#include <stdio.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

static const char DRY_RUN_WARNING[] =
    "horovod: dry run: allreduces of every other ten steps move no data, the trained "
    "weights are useless (HVD_DRY_RUN)\n";

int reporter_init(struct reporter *r,
                  uint32_t rank,
                  uint32_t size,
                  bool is_dry_run,
                  const struct control_member *members,
                  const struct stats *stats)
{
    r->is_on = true;
    r->size = size;
    r->members = members;
    r->stats = stats;
    if (is_dry_run)
        r->dry = mem_zalloc(sizeof(*r->dry));
    if (rank == 0) {
        r->totals = mem_calloc(size, sizeof(*r->totals));
        r->has = mem_calloc(size, sizeof(*r->has));
    }
    if ((is_dry_run && !r->dry) || (rank == 0 && (!r->totals || !r->has)))
        return -ENOMEM;
    if (is_dry_run && rank == 0)
        log_print(DRY_RUN_WARNING);
    return 0;
}

void reporter_release(struct reporter *r)
{
    mem_free(r->dry);
    mem_free(r->totals);
    mem_free(r->has);
}

/* --- sums --- */

static uint64_t sum_kinds(const struct stats *s, enum stats_id first)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < STATS_KINDS; i++)
        sum += stats_word(s->page, first + i);
    return sum;
}

void reporter_batch(struct reporter *r,
                    size_t n_tensors,
                    uint64_t bytes,
                    uint64_t waited_ns)
{
    r->now.v[REPORT_STEP_TENSORS] += n_tensors;
    r->now.v[REPORT_STEP_BYTES] += bytes;
    r->now.v[REPORT_STEP_WAIT_NS] += waited_ns;
}

void reporter_step(struct reporter *r, uint64_t ns)
{
    if (!r->is_on)
        return;
    r->now.v[REPORT_STEP_BLOCKED_NS] = stats_word(r->stats->page, STATS_BLOCKED_NS);
    if (ns > 0) {
        for (int i = REPORT_STEP_BLOCKED_NS; i <= REPORT_STEP_BYTES; i++)
            r->sums.v[i] += r->now.v[i] - r->at.v[i];
        r->sums.v[REPORT_STEPS]++;
        r->sums.v[REPORT_STEP_NS] += ns;
        if (r->dry)
            dry_run_measure(r->dry, ns);
    }
    r->at = r->now;
}

bool reporter_is_dry(struct reporter *r,
                     uint64_t plan,
                     uint32_t n_plan,
                     size_t n_tensors)
{
    return dry_run_next(r->dry, plan, n_plan, n_tensors);
}

static struct report_totals reporter_totals(const struct reporter *r, uint64_t now_ns)
{
    const struct stats *s = r->stats;
    struct report_totals t = r->sums;

    t.v[REPORT_AGE_NS] = now_ns - s->begin_ns;
    t.v[REPORT_BLOCKED_NS] = stats_word(s->page, STATS_BLOCKED_NS);
    t.v[REPORT_WAIT_NS] = stats_word(s->page, STATS_WAIT_NS);
    t.v[REPORT_TENSORS] = sum_kinds(s, STATS_TENSORS);
    t.v[REPORT_BYTES] = sum_kinds(s, STATS_BYTES_IN);
    t.v[REPORT_ALLREDUCE_NS] = stats_word(s->page, STATS_ALLREDUCE_NS);
    t.v[REPORT_BUS_BYTES] = stats_word(s->page, STATS_BUS_BYTES);
    t.v[REPORT_BATCHES] = stats_word(s->page, STATS_BATCHES);
    t.v[REPORT_DEVICE_BATCHES] = stats_word(s->page, STATS_DEVICE_BATCHES);
    return t;
}

/* --- the end --- */

bool reporter_take_message(struct reporter *r, uint64_t now_ns, struct strbuf *out)
{
    struct report_totals t;

    if (r->has_sent)
        return false;
    r->has_sent = true;
    t = reporter_totals(r, now_ns);
    report_totals_pack(&t, out);
    return strbuf_status(out) == 0;
}

void reporter_receive(struct reporter *r, uint32_t rank, const uint8_t *p, size_t n)
{
    struct err err = ERR_INIT;

    if (!r->is_on || rank >= r->size || !r->totals)
        return;
    if (report_totals_unpack(p, n, &r->totals[rank], &err) == 0)
        r->has[rank] = true;
    else
        log_warn("the totals of a rank are malformed", "rank=%u cause=\"%s\"", rank,
                 err.text);
}

void reporter_set_cause(struct reporter *r, const char *cause)
{
    if (!r->cause[0])
        (void)snprintf(r->cause, sizeof(r->cause), "%s", cause);
}

static const char *reporter_host_of(void *arg, uint32_t rank)
{
    return ((const struct reporter *)arg)->members[rank].host;
}

void reporter_print(struct reporter *r, uint64_t now_ns)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    struct job_report report = {.n_ranks = r->size,
                                .totals = r->totals,
                                .has = r->has,
                                .host_of = reporter_host_of,
                                .arg = r,
                                .cause = r->cause,
                                .is_dry = r->dry != NULL};

    if (!r->is_on || !r->totals || r->has_printed)
        return;
    r->has_printed = true;
    r->totals[0] = reporter_totals(r, now_ns);
    r->has[0] = true;
    if (r->dry)
        report.dry = dry_run_result(r->dry);
    strbuf_init(&text, 8192);
    job_report_write(&report, &text);
    if (strbuf_status(&text) < 0)
        log_warn("out of memory for the report", "variable=HVD_REPORT");
    else
        log_print(strbuf_str(&text));
}
