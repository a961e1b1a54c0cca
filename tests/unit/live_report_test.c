/* SPDX-License-Identifier: Apache-2.0 */
/* live_report.c, live_worker.c: the report and a rank's record, in both forms. */
#include "tests/unit/unit.h"

#include <math.h>

#include "runtime/base/mem.h"
#include "runtime/live/live_worker.h"
#include "runtime/wire/bytes.h"

static void report_fill(struct live_report *r)
{
    live_report_init(r);
    r->at_wall_us = 1764460800000000u;
    r->run_wall_us = 1764460000000000u;
    r->state = LIVE_STALLED;
    r->generation = 3;
    r->size = 8;
    r->slots = 4;
    r->n_workers = 2;
    r->n_present = 2;
    r->n_steps = 12;
    r->again_ms = 1500;
    r->times = (struct live_times){1000, 2500, 700001, 3};
    r->rates = (struct live_rates){2.5, 1e9, 0.25};
    r->progress.step = 400;
    r->progress.total_steps = 1000;
    r->progress.updated_wall_us = 1764460799000000u;
    r->progress.n_metrics = 2;
    strcpy(r->progress.metrics[0].name, "loss\"<b>");
    r->progress.metrics[0].value = -0.5;
    strcpy(r->progress.metrics[1].name, "accuracy");
    r->progress.metrics[1].value = NAN;
    r->stall.since_wall_us = 1764460790000000u;
    strcpy(r->stall.tensor, "grad/0");
    strcpy(r->stall.op, "ALLREDUCE");
    r->stall.n_missing = 20;
    for (uint32_t i = 0; i < LIVE_MISSING_MAX; i++)
        r->stall.missing[i] = 10 + i;
    r->stall.rank = 10;
    strcpy(r->stall.host, "b");
    r->stall.cause = LIVE_CAUSE_LOCK;
    strcpy(r->stall.text, "rank 10 waits for a lock");
    r->straggler.rank = 2;
    r->straggler.cost_s = 0.125;
    r->straggler.share = 0.3;
    r->elastic = (struct live_elastic){.min_ranks = 2,
                                       .max_ranks = 8,
                                       .n_ready = 1,
                                       .n_resets = 4,
                                       .n_excluded = 3,
                                       .excluded_ms = 29500};
    strcpy(r->elastic.failure, "rank 3 on b exited with code 1");
}

UNIT_TEST(report_packs_and_unpacks)
{
    CLEANUP(strbuf_release) struct strbuf out = {0}, again = {0};
    struct live_report r, got;
    struct err err = ERR_INIT;

    report_fill(&r);
    strbuf_init(&out, LIVE_REPORT_MAX_BYTES);
    strbuf_init(&again, LIVE_REPORT_MAX_BYTES);
    live_report_pack(&r, &out);
    assert_int_equal(strbuf_status(&out), 0);
    assert_int_equal(live_report_unpack(out.p, out.n, &got, &err), 0);
    live_report_pack(&got, &again);
    assert_int_equal(out.n, again.n);
    assert_memory_equal(out.p, again.p, out.n);
    assert_int_equal(got.stall.n_missing, 20);
    assert_int_equal(got.stall.missing[15], 25);
    assert_int_equal(got.progress.total_epochs, -1);
    assert_string_equal(got.progress.metrics[0].name, "loss\"<b>");
}

UNIT_TEST(report_as_json_leaves_unknown_values_out)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct live_report r;

    strbuf_init(&out, LIVE_REPORT_MAX_BYTES);
    live_report_init(&r);
    live_report_json(&r, &out);
    assert_string_equal(
        strbuf_str(&out),
        "{\"state\":\"Meeting\",\"generation\":0,\"ranks\":0,\"slots\":0,\"workers\":0,"
        "\"workersPresent\":0,\"planSteps\":0,\"seconds\":{\"meeting\":0.000,"
        "\"starting\":0.000,\"training\":0.000,\"stalled\":0.000},\"rates\":{},"
        "\"progress\":{}}");
    strbuf_clear(&out);
    report_fill(&r);
    live_report_json(&r, &out);
    assert_string_equal(
        strbuf_str(&out),
        "{\"time\":\"2025-11-30T00:00:00Z\",\"started\":\"2025-11-29T23:46:40Z\","
        "\"state\":\"Stalled\",\"generation\":3,\"ranks\":8,\"slots\":4,\"workers\":2,"
        "\"workersPresent\":2,\"planSteps\":12,\"askAgainMilliseconds\":1500,"
        "\"seconds\":{\"meeting\":1.000,"
        "\"starting\":2.500,\"training\":700.001,\"stalled\":0.003},\"rates\":{"
        "\"stepsPerSecond\":2.5,\"busBytesPerSecond\":1e+09,"
        "\"exposedCommunication\":0.25},\"progress\":{\"step\":400,"
        "\"totalSteps\":1000,\"updated\":\"2025-11-29T23:59:59Z\",\"metrics\":{"
        "\"loss\\\"<b>\":-0.5,\"accuracy\":null}},\"stall\":{"
        "\"since\":\"2025-11-29T23:59:50Z\",\"tensor\":\"grad/0\","
        "\"operation\":\"ALLREDUCE\",\"missingRanks\":[10,11,12,13,14,15,16,17,18,19,"
        "20,21,22,23,24,25],\"rank\":10,\"host\":\"b\",\"cause\":\"Lock\","
        "\"message\":\"rank 10 waits for a lock\",\"hasStacks\":false},\"straggler\":{"
        "\"rank\":2,\"worker\":0,\"secondsPerStep\":0.125,\"shareOfStep\":0.3,"
        "\"isWholeWorker\":false},\"elastic\":{\"minRanks\":2,\"maxRanks\":8,"
        "\"ready\":1,\"resets\":4,\"slotsExcluded\":3,\"excludedSeconds\":29.500,"
        "\"lastFailure\":\"rank 3 on b exited with code 1\"}}");
}

/* A newer writer has more sections and longer ones; an older one shorter ones. */
UNIT_TEST(report_of_another_version_is_read)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct live_report got;
    struct err err = ERR_INIT;

    strbuf_init(&out, LIVE_REPORT_MAX_BYTES);
    strbuf_puts(&out, "HVL1");
    bytes_put(&out, 99, 2);
    bytes_put_u32(&out, 3);
    strbuf_puts(&out, "new");
    bytes_put(&out, 2, 2); /* seconds: only the first field */
    bytes_put_u32(&out, 8);
    bytes_put(&out, 77, 8);
    bytes_put(&out, 3, 2); /* rates: a field more */
    bytes_put_u32(&out, 32);
    for (int i = 0; i < 4; i++)
        bytes_put_f64(&out, 1.5);
    assert_int_equal(live_report_unpack(out.p, out.n, &got, &err), 0);
    assert_int_equal(got.times.meeting_ms, 77);
    assert_int_equal(got.times.starting_ms, 0);
    assert_true(got.rates.blocked_share == 1.5);
    assert_int_equal(got.straggler.rank, -1);
}

UNIT_TEST(report_that_is_cut_is_refused)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct live_report r, got;
    size_t n_refused = 0;

    report_fill(&r);
    strbuf_init(&out, LIVE_REPORT_MAX_BYTES);
    live_report_pack(&r, &out);
    for (size_t n = 0; n < out.n; n++) {
        struct err err = ERR_INIT;
        int rc = live_report_unpack(out.p, n, &got, &err);

        /* it may end between sections */
        assert_true(rc == 0 || (rc == -EPROTO && err.text[0]));
        n_refused += rc != 0;
    }
    assert_int_equal(n_refused, out.n - 7);
}

UNIT_TEST(values_that_this_version_does_not_know_are_unknown)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct live_report r, got;
    struct err err = ERR_INIT;

    report_fill(&r);
    r.stall.cause = (enum live_cause)1000;
    strbuf_init(&out, LIVE_REPORT_MAX_BYTES);
    live_report_pack(&r, &out);
    assert_int_equal(live_report_unpack(out.p, out.n, &got, &err), 0);
    assert_int_equal(got.stall.cause, LIVE_CAUSE_UNKNOWN);
}

UNIT_TEST(numbers_that_do_not_fit_are_refused)
{
    static const struct {
        uint16_t section;
        uint64_t before; /* fields that are 0 */
        uint64_t value;
        int rc;
    } rows[] = {
        /* straggler.rank */
        {6, 0, INT32_MAX, 0},
        {6, 0, (uint64_t)INT32_MIN, 0},
        {6, 0, (uint64_t)INT32_MAX + 1, -EPROTO},
        {6, 0, UINT32_MAX, -EPROTO},
        {6, 0, (uint64_t)INT32_MIN - 1, -EPROTO},
        /* ranks, seconds.meeting */
        {1, 4, UINT32_MAX, 0},
        {1, 4, 1ull << 32, -EPROTO},
        {2, 0, UINT64_MAX, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(strbuf_release) struct strbuf out = {0};
        struct live_report got;
        struct err err = ERR_INIT;

        strbuf_init(&out, LIVE_REPORT_MAX_BYTES);
        strbuf_puts(&out, "HVL1");
        bytes_put(&out, rows[i].section, 2);
        bytes_put_u32(&out, 8 * (uint32_t)(rows[i].before + 1));
        for (uint64_t k = 0; k < rows[i].before; k++)
            bytes_put(&out, 0, 8);
        bytes_put(&out, rows[i].value, 8);
        if (live_report_unpack(out.p, out.n, &got, &err) != rows[i].rc)
            fail_msg("row %zu: %s", i, err.text);
    }
}

UNIT_TEST(rank_packs_and_unpacks)
{
    CLEANUP(strbuf_release) struct strbuf out = {0}, json = {0};
    struct live_rank r, got;
    struct err err = ERR_INIT;

    live_rank_init(&r);
    r.rank = 5;
    r.pid = 4711;
    r.state = LIVE_RANK_IN_WORLD;
    r.ready_ns = 12345678901u;
    r.cpu_ms = 1500;
    r.stall_ms = 60000;
    r.waits_us = 1764460790000000u;
    r.progress.epoch = 2;
    strbuf_init(&out, LIVE_REPORT_MAX_BYTES);
    strbuf_init(&json, LIVE_REPORT_MAX_BYTES);
    live_rank_pack(&r, &out);
    assert_int_equal(live_rank_unpack(out.p, out.n, &got, &err), 0);
    live_rank_json(&got, &json);
    assert_string_equal(
        strbuf_str(&json),
        "{\"rank\":5,\"pid\":4711,\"state\":\"InWorld\",\"age\":0.000,\"steps\":0,"
        "\"stepNanoseconds\":0,\"blockedNanoseconds\":0,\"busBytes\":0,"
        "\"allreduceNanoseconds\":0,\"readyNanoseconds\":12345678901,\"batches\":0,"
        "\"cpuSeconds\":1.500,\"residentBytes\":0,\"stoppedSeconds\":0.000,"
        "\"stallMilliseconds\":60000,\"waitsSince\":\"2025-11-29T23:59:50Z\","
        "\"progress\":{\"epoch\":2}}");
}

static int rank_collect(void *arg, const struct live_rank *r)
{
    strbuf_printf(arg, "%u ", r->rank);
    return r->rank == 9 ? -ECANCELED : 0;
}

static void ranks_pack(const uint32_t *rank, uint32_t n, struct strbuf *out)
{
    bytes_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++) {
        CLEANUP(strbuf_release) struct strbuf one = {0};
        struct live_rank r;

        live_rank_init(&r);
        r.rank = rank[i];
        strbuf_init(&one, LIVE_REPORT_MAX_BYTES);
        live_rank_pack(&r, &one);
        bytes_put_u32(out, (uint32_t)one.n);
        strbuf_add(out, one.p, one.n);
    }
}

UNIT_TEST(ranks_of_an_answer_are_read_until_the_reader_has_enough)
{
    CLEANUP(strbuf_release) struct strbuf out = {0}, seen = {0};
    const uint32_t ranks[] = {3, 4, 9, 10};
    struct err err = ERR_INIT;
    uint32_t n = 77;

    strbuf_init(&out, 4 * LIVE_REPORT_MAX_BYTES);
    strbuf_init(&seen, 100);
    ranks_pack(ranks, 2, &out);
    assert_int_equal(live_ranks_read(out.p, out.n, rank_collect, &seen, &n, &err), 0);
    assert_string_equal(strbuf_str(&seen), "3 4 ");
    assert_int_equal(n, 2);
    for (size_t i = 0; i < out.n; i++) { /* cut anywhere */
        strbuf_clear(&seen);
        n = 77;
        assert_int_equal(live_ranks_read(out.p, i, rank_collect, &seen, &n, &err),
                         -EPROTO);
        assert_int_equal(n, 77);
    }
    strbuf_clear(&out);
    strbuf_clear(&seen);
    ranks_pack(ranks, 4, &out);
    assert_int_equal(live_ranks_read(out.p, out.n, rank_collect, &seen, &n, &err),
                     -ECANCELED);
    assert_string_equal(strbuf_str(&seen), "3 4 9 ");
}

UNIT_MAIN(NULL, NULL)
