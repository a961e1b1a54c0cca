/* SPDX-License-Identifier: Apache-2.0 */
/* The summary of HVD_REPORT: which sentences for which counters. */
#include "runtime/core/report.h"
#include "runtime/base/mem.h"
#include "tests/unit/unit.h"

enum { RANKS = 3 };
static const uint64_t MS = 1000000;
static struct report_totals totals[RANKS];
static bool has[RANKS];

static const char *host_of(void *arg, uint32_t rank)
{
    static const char *const hosts[RANKS] = {"a", "b", "c"};

    (void)arg;
    return hosts[rank];
}

/* 100 steps of 40 ms with two tensors of 50 MB in one batch each; a thread waits for 8 ms
 * of a step, a tensor for 3 ms. */
static struct job_report steady_report(void)
{
    for (int i = 0; i < RANKS; i++) {
        has[i] = true;
        totals[i] = (struct report_totals){{
            [REPORT_STEPS] = 100,
            [REPORT_STEP_NS] = 100 * 40 * MS,
            [REPORT_STEP_BLOCKED_NS] = 100 * 8 * MS,
            [REPORT_STEP_WAIT_NS] = 100 * 2 * 3 * MS,
            [REPORT_STEP_TENSORS] = 100 * 2,
            [REPORT_STEP_BYTES] = 100ull * 100000000,
            [REPORT_AGE_NS] = 5000 * MS,
            [REPORT_BLOCKED_NS] = 1000 * MS,
            [REPORT_WAIT_NS] = 240 * 3 * MS,
            [REPORT_TENSORS] = 240,
            [REPORT_BYTES] = 120ull * 100000000,
            [REPORT_ALLREDUCE_NS] = 4000 * MS,
            [REPORT_BUS_BYTES] = 16000000000,
            [REPORT_BATCHES] = 240,
        }};
    }
    return (struct job_report){.n_ranks = RANKS,
                               .totals = totals,
                               .has = has,
                               .host_of = host_of,
                               .cause = ""};
}

static void assert_text(const struct job_report *r, const char *text)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};

    strbuf_init(&out, 4096);
    job_report_write(r, &out);
    assert_string_equal(strbuf_str(&out), text);
}

static void assert_part(const struct job_report *r, const char *part, bool is_there)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};

    strbuf_init(&out, 4096);
    job_report_write(r, &out);
    if (!strstr(strbuf_str(&out), part) != !is_there)
        fail_msg("\"%s\" %s in:\n%s", part, is_there ? "is not" : "is",
                 strbuf_str(&out));
}

static const char ADVICE_BYTES[] =
    "advice: communication is a bottleneck: send fewer "
    "bytes (compression, HVD_COMPRESSION) or less often "
    "(backward_passes_per_step), or use a faster network\n";
static const char ADVICE_HIDDEN[] =
    "advice: communication is not the bottleneck: look at computation and input\n";

UNIT_TEST(a_steady_job_has_four_lines)
{
    struct job_report r = steady_report();

    totals[1].v[REPORT_STEP_WAIT_NS] = 100 * 2 * 2 * MS;
    assert_text(
        &r, "horovod: report: 100 steps of 40.0 ms; 8.0 ms (20 %) of a step waited "
            "for communication that computation did not hide\n"
            "horovod: report: 100 MB per step and rank; bus bandwidth of allreduce "
            "4.0 GB/s\n"
            "horovod: report: rank 1 (host b) was the slowest: the other ranks' "
            "tensors waited 1.0 ms for its tensors on average\n"
            "horovod: report: advice: communication is a bottleneck: send fewer bytes "
            "(compression, HVD_COMPRESSION) or less often (backward_passes_per_step), "
            "or use a faster network\n");
}

UNIT_TEST(the_advice_follows_from_the_shares_of_a_step)
{
    struct job_report r = steady_report();

    assert_part(&r, ADVICE_BYTES, true);
    for (int i = 0; i < RANKS; i++)
        totals[i].v[REPORT_STEP_BLOCKED_NS] = 100 * 3 * MS;
    assert_part(&r, ADVICE_HIDDEN, true);

    r = steady_report();
    totals[0].v[REPORT_BYTES] = 240 * 1000;
    assert_part(&r, "and the tensors are small: send them together", true);

    r = steady_report();
    totals[2].v[REPORT_STEP_WAIT_NS] = 0; /* 3 ms earlier than it, of 40 */
    assert_part(&r, ADVICE_BYTES, true);
    for (int i = 0; i < 2; i++)
        totals[i].v[REPORT_STEP_WAIT_NS] = 100 * 2 * 5 * MS;
    assert_part(&r, "advice: the ranks wait for rank 2, not only for the network",
                true);
}

UNIT_TEST(without_steps_the_whole_run_counts)
{
    struct job_report r = steady_report();

    for (int i = 0; i < RANKS; i++)
        for (int k = REPORT_STEPS; k <= REPORT_STEP_BYTES; k++)
            totals[i].v[k] = 0;
    assert_text(
        &r, "horovod: report: no steps that repeat the same tensors; the run took "
            "5000.0 ms; 1000.0 ms (20 %) of it waited for communication that "
            "computation did not hide\n"
            "horovod: report: 12 GB per rank; bus bandwidth of allreduce 4.0 GB/s\n"
            "horovod: report: rank 0 (host a) was the slowest: the other ranks' "
            "tensors waited 0 us for its tensors on average\n"
            "horovod: report: advice: communication is a bottleneck: send fewer bytes "
            "(compression, HVD_COMPRESSION) or less often (backward_passes_per_step), "
            "or use a faster network\n");
}

UNIT_TEST(nothing_at_all_is_no_division_by_zero)
{
    struct job_report r = steady_report();

    memset(totals, 0, sizeof(totals));
    assert_text(
        &r, "horovod: report: no steps that repeat the same tensors; the run took 0 "
            "us; how much of it waited for communication cannot be seen, because no "
            "thread of the program waits for it\n"
            "horovod: report: 0 B per rank\n"
            "horovod: report: rank 0 (host a) was the slowest: the other ranks' "
            "tensors waited 0 us for its tensors on average\n"
            "horovod: report: advice: run some steps with HVD_DRY_RUN=1, which "
            "measures what communication costs\n");
}

UNIT_TEST(one_rank_has_nothing_to_communicate)
{
    struct job_report r = steady_report();

    r.n_ranks = 1;
    assert_part(&r, "slowest", false);
    assert_part(&r, "advice: one rank has nothing to communicate", true);
}

/* On GPUs and in TensorFlow no thread of the program waits in the runtime. */
UNIT_TEST(waits_that_cannot_be_seen_are_no_zero)
{
    struct job_report r = steady_report();

    for (int i = 0; i < RANKS; i++)
        totals[i].v[REPORT_DEVICE_BATCHES] = 200;
    assert_part(&r, "cannot be seen", true);
    assert_part(&r, "HVD_DRY_RUN=1", true);
    r = steady_report();
    for (int i = 0; i < RANKS; i++)
        totals[i].v[REPORT_STEP_BLOCKED_NS] = 0; /* only at the start */
    assert_part(&r, "cannot be seen", true);
}

UNIT_TEST(what_is_missing_is_said)
{
    struct job_report r = steady_report();

    r.cause = "rank 1 (host b, pid 7) was lost: connection closed";
    has[1] = has[2] = false;
    assert_part(
        &r,
        "horovod: report: the job ended early: rank 1 (host b, pid 7) was lost: "
        "connection closed\n"
        "horovod: report: the totals of 2 of 3 ranks are missing, the first is "
        "rank 1 (host b)\n"
        "horovod: report: 100 steps",
        true);
    assert_part(&r, "slowest", false);
    r.cause = "";
    has[1] = true;
    assert_part(&r, "ended early", false);
    assert_part(&r, "of 1 of 3 ranks are missing, the first is rank 2 (host c)", true);
    assert_part(&r, "slowest", true);
}

UNIT_TEST(a_dry_run_compares_steps)
{
    struct job_report r = steady_report();

    r.is_dry = true;
    r.dry = (struct dry_run_result){41900000, 33000000, 16, 16};
    assert_part(&r,
                "horovod: report: dry run: a step takes 41.9 ms with communication and "
                "33.0 ms without: communication costs 21 % of a step\n"
                "horovod: report: 100 steps of 40.0 ms\n",
                true);
    assert_part(&r, ADVICE_BYTES, true);
    r.dry.without_ns = 41000000;
    assert_part(&r, ADVICE_HIDDEN, true);
    r.dry.without_ns = 43000000; /* noise */
    assert_part(&r, "costs 0 % of a step", true);
    r.dry.n_without = 0;
    assert_part(
        &r,
        "dry run: 16 steps with communication and 0 without were measured, 3 of "
        "each are needed; 30 equal steps in a row give them\n",
        true);
    assert_part(&r, "advice: run some steps with HVD_DRY_RUN=1", true);
}

UNIT_TEST(totals_survive_the_wire)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct report_totals t;
    struct err err = ERR_INIT;

    (void)steady_report();
    strbuf_init(&out, REPORT_MESSAGE_BYTES);
    report_totals_pack(&totals[1], &out);
    assert_int_equal(strbuf_status(&out), 0);
    assert_int_equal(out.n, REPORT_MESSAGE_BYTES);
    assert_int_equal(report_totals_unpack(out.p, out.n, &t, &err), 0);
    assert_memory_equal(&t, &totals[1], sizeof(t));
    for (size_t n = 0; n < out.n; n++)
        assert_int_equal(report_totals_unpack(out.p, n, &t, &err), -EBADMSG);
    out.p[0]++;
    assert_int_equal(report_totals_unpack(out.p, out.n, &t, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "totals: version 2 with 15 numbers, this is 1"));
}

UNIT_MAIN(NULL, NULL)
