/* SPDX-License-Identifier: Apache-2.0 */
/* A live report as values of the status: rounding, the time of the end, and what does not
 * count as new. */
#include "tests/unit/unit.h"

#include <math.h>

#include "operator/core/progress.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"
#include "tests/unit/torture.h"

#define NOW_S 1767225600ull /* 2026-01-01T00:00:00Z */

struct case_world {
    struct arena a;
    struct build b;
    struct live_report r;
};

static void case_open(struct case_world *c)
{
    arena_init(&c->a, 1u << 20);
    c->b = (struct build){.arena = &c->a};
    live_report_init(&c->r);
    c->r.state = LIVE_TRAINING;
}

static struct node *case_read(struct case_world *c, const char *json)
{
    struct node *o = NULL;

    if (json)
        assert_int_equal(json_read(&c->a, json, strlen(json), &o, NULL), 0);
    return o;
}

static void case_expect(struct case_world *c, const struct node *o, const char *json)
{
    CLEANUP(strbuf_release) struct strbuf text;

    strbuf_init(&text, 1u << 16);
    if (o)
        json_write(o, &text);
    assert_int_equal(c->b.status, 0);
    assert_string_equal(strbuf_str(&text), json);
}

static void case_make(struct case_world *c, const char *old, const char *json)
{
    case_expect(c, progress_make(&c->b, &c->r, NOW_S, case_read(c, old)), json);
}

UNIT_TEST(unknown_values_are_left_out)
{
    struct case_world c;

    case_open(&c);
    case_make(&c, NULL, "");
    c.r.n_steps = 17;
    case_make(
        &c, NULL,
        "{\"step\":17,\"summary\":\"17\",\"updateTime\":\"2026-01-01T00:00:00Z\"}");
    c.r.progress.epoch = 3;
    c.r.progress.total_epochs = 8;
    case_make(&c, NULL,
              "{\"step\":17,\"epoch\":3,\"totalEpochs\":8,\"percentage\":37,"
              "\"summary\":\"epoch 3/8 (37%)\","
              "\"updateTime\":\"2026-01-01T00:00:00Z\"}");
    arena_release(&c.a);
}

UNIT_TEST(rates_have_three_digits_and_whole_numbers_are_integers)
{
    static const struct {
        double v;
        const char *text;
    } rows[] = {
        {0, "0"},     {2, "2"},         {1234.5, "1230"}, {99.96, "100"},
        {0.5, "0.5"}, {0.125, "0.125"}, {1e-9, "0"},      {-1, NULL},
        {NAN, NULL},  {INFINITY, NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct case_world c;
        char json[200];

        case_open(&c);
        c.r.rates.steps_per_s = rows[i].v;
        (void)snprintf(json, sizeof(json),
                       "{\"stepsPerSecond\":%s,"
                       "\"updateTime\":\"2026-01-01T00:00:00Z\"}",
                       rows[i].text ? rows[i].text : "");
        case_make(&c, NULL, rows[i].text ? json : "");
        arena_release(&c.a);
    }
}

UNIT_TEST(the_share_of_communication_has_two_digits)
{
    struct case_world c;

    case_open(&c);
    c.r.rates.blocked_share = 0.2549;
    c.r.rates.bus_bytes_per_s = 123456789;
    case_make(&c, NULL,
              "{\"busBandwidth\":123000000,\"exposedCommunication\":0.25,"
              "\"updateTime\":\"2026-01-01T00:00:00Z\"}");
    c.r.rates.blocked_share = 1.5; /* no share */
    c.r.rates.bus_bytes_per_s = -1;
    case_make(&c, NULL, "");
    arena_release(&c.a);
}

UNIT_TEST(percentages_end_at_100)
{
    static const struct {
        int64_t step, total;
        int percentage;
    } rows[] = {{0, 10, 0}, {1, 3, 33}, {999, 1000, 99}, {10, 10, 100}, {11, 10, 100}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct case_world c;

        case_open(&c);
        c.r.progress.step = rows[i].step;
        c.r.progress.total_steps = rows[i].total;
        assert_int_equal(
            node_int(progress_make(&c.b, &c.r, NOW_S, NULL), "percentage", -1),
            rows[i].percentage);
        arena_release(&c.a);
    }
}

/* Steps of one second. */
static const struct node *
case_eta(struct case_world *c, int64_t left_s, const char *old)
{
    c->r.progress.step = 100;
    c->r.progress.total_steps = 100 + left_s;
    c->r.rates.steps_per_s = 1;
    return progress_make(&c->b, &c->r, NOW_S, case_read(c, old));
}

UNIT_TEST(the_time_of_the_end_is_rounded_up)
{
    static const struct {
        int64_t left_s;
        const char *eta, *remaining;
    } rows[] = {
        {3, "2026-01-01T00:00:10Z", "10s"},
        {55, "2026-01-01T00:01:00Z", "1m"},
        {599, "2026-01-01T00:10:00Z", "10m"},
        {700, "2026-01-01T00:12:00Z", "12m"},
        {5000, "2026-01-01T01:24:00Z", "1h24m"},
        {7200, "2026-01-01T02:10:00Z", "2h10m"},
        {90000, "2026-01-02T02:00:00Z", "1d2h"},
        {400ll * 86400, "2027-02-05T01:00:00Z", "400d1h"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct case_world c;
        const struct node *o;

        case_open(&c);
        o = case_eta(&c, rows[i].left_s, NULL);
        assert_string_equal(node_str(o, "eta"), rows[i].eta);
        assert_string_equal(node_str(o, "remaining"), rows[i].remaining);
        arena_release(&c.a);
    }
}

UNIT_TEST(the_time_of_the_end_stays_while_it_is_almost_the_same)
{
    struct case_world c;

    case_open(&c);
    assert_string_equal(
        node_str(case_eta(&c, 700, "{\"eta\":\"2026-01-01T00:11:00Z\"}"), "eta"),
        "2026-01-01T00:11:00Z");
    assert_string_equal(
        node_str(case_eta(&c, 700, "{\"eta\":\"2026-01-01T00:13:00Z\"}"), "eta"),
        "2026-01-01T00:13:00Z");
    assert_string_equal(
        node_str(case_eta(&c, 700, "{\"eta\":\"2026-01-01T00:13:01Z\"}"), "eta"),
        "2026-01-01T00:12:00Z");
    assert_string_equal(
        node_str(case_eta(&c, 3, "{\"eta\":\"2026-01-01T00:00:00Z\"}"), "eta"),
        "2026-01-01T00:00:10Z"); /* not in the past */
    assert_string_equal(node_str(case_eta(&c, 700, "{\"eta\":\"soon\"}"), "eta"),
                        "2026-01-01T00:12:00Z");
    arena_release(&c.a);
}

UNIT_TEST(without_a_rate_or_in_a_stall_no_end_is_given)
{
    struct case_world c;

    case_open(&c);
    (void)case_eta(&c, 700, NULL);
    c.r.state = LIVE_STALLED;
    assert_null(node_str(progress_make(&c.b, &c.r, NOW_S, NULL), "eta"));
    c.r.state = LIVE_TRAINING;
    c.r.rates.steps_per_s = 1e-12;
    assert_null(node_str(progress_make(&c.b, &c.r, NOW_S, NULL), "eta"));
    c.r.rates.steps_per_s = 0;
    assert_null(node_str(progress_make(&c.b, &c.r, NOW_S, NULL), "remaining"));
    c.r.progress.total_steps = 90; /* it has more than all */
    c.r.rates.steps_per_s = 1;
    assert_null(node_str(progress_make(&c.b, &c.r, NOW_S, NULL), "eta"));
    arena_release(&c.a);
}

UNIT_TEST(equal_values_keep_the_stored_progress_with_its_times)
{
    struct case_world c;
    const char *old = "{\"step\":7,\"summary\":\"7\",\"eta\":\"x\",\"remaining\":\"y\","
                      "\"updateTime\":\"z\"}";

    case_open(&c);
    c.r.progress.step = 7;
    case_make(&c, old, old);
    c.r.progress.step = 8;
    case_make(&c, old,
              "{\"step\":8,\"summary\":\"8\",\"updateTime\":\"2026-01-01T00:00:00Z\"}");
    case_expect(&c, progress_at_rest(&c.b, case_read(&c, old)),
                "{\"step\":7,\"summary\":\"7\",\"updateTime\":\"z\"}");
    arena_release(&c.a);
}

UNIT_TEST(names_of_metrics_are_text_whatever_they_are)
{
    struct case_world c;

    case_open(&c);
    c.r.progress.n_metrics = 4;
    c.r.progress.metrics[0].value = 0.123456789;
    (void)strcpy(c.r.progress.metrics[0].name, "a\xff\n\xc3\xa9<b>");
    c.r.progress.metrics[1].value = NAN;
    (void)strcpy(c.r.progress.metrics[1].name, "nan");
    c.r.progress.metrics[3].value = 1e30;
    (void)strcpy(c.r.progress.metrics[3].name, "big");
    case_make(&c, NULL,
              "{\"metrics\":{\"a??\xc3\xa9<b>\":\"0.123457\",\"nan\":\"nan\","
              "\"big\":\"1e+30\"},\"updateTime\":\"2026-01-01T00:00:00Z\"}");
    arena_release(&c.a);
}

/* --- verdicts --------------------------------------------------------------------- */

UNIT_TEST(a_stall_is_shown_with_its_verdict_or_after_a_while)
{
    struct case_world c;
    struct live_stall *s = &c.r.stall;
    struct live_verdict v;

    case_open(&c);
    assert_false(progress_stall(&c.b, &c.r).is_true);
    s->since_wall_us = NOW_S * 1000000u;
    s->seen_wall_us = s->since_wall_us + 60000000u;
    c.r.at_wall_us = s->seen_wall_us + STALL_QUIET_S * 1000000u - 1;
    assert_false(progress_stall(&c.b, &c.r).is_true);
    c.r.at_wall_us++;
    v = progress_stall(&c.b, &c.r);
    assert_true(v.is_true);
    assert_string_equal(v.reason, "Unknown");
    assert_string_equal(
        v.text, "a collective waits for an unknown rank since 2026-01-01T00:00:00Z");
    (void)strcpy(s->op, "allreduce");
    (void)strcpy(s->tensor, "grad.0");
    s->n_missing = 1;
    s->missing[0] = 3;
    assert_string_equal(progress_stall(&c.b, &c.r).text,
                        "allreduce of grad.0 waits for rank 3 since "
                        "2026-01-01T00:00:00Z");
    s->n_missing = 100;
    assert_string_equal(progress_stall(&c.b, &c.r).text,
                        "allreduce of grad.0 waits for ranks 3, 0, 0, 0 and 96 more "
                        "since 2026-01-01T00:00:00Z");
    (void)strcpy(s->text, "rank 3 is stopped");
    s->cause = LIVE_CAUSE_STOPPED;
    c.r.at_wall_us = s->seen_wall_us;
    v = progress_stall(&c.b, &c.r);
    assert_string_equal(v.reason, "Stopped");
    assert_string_equal(v.text, "rank 3 is stopped");
    arena_release(&c.a);
}

UNIT_TEST(a_straggler_is_named_with_one_digit_of_its_cost)
{
    struct case_world c;
    struct live_straggler *s = &c.r.straggler;
    struct live_verdict v;

    case_open(&c);
    assert_false(progress_straggler(&c.b, &c.r).is_true);
    *s = (struct live_straggler){.rank = 3, .cost_s = 0.0342, .share = 0.274};
    (void)strcpy(s->host, "h");
    v = progress_straggler(&c.b, &c.r);
    assert_string_equal(v.reason, "RankSlow");
    assert_string_equal(
        v.text, "rank 3 on h delays all other ranks by about 30 ms (30%) of each step");
    s->cost_s = 12.3;
    s->is_worker = true;
    v = progress_straggler(&c.b, &c.r);
    assert_string_equal(v.reason, "HostSlow");
    assert_string_equal(
        v.text,
        "the ranks on h delay all other ranks by about 10 s (30%) of each step");
    arena_release(&c.a);
}

UNIT_TEST(a_text_that_is_cut_or_hostile_is_cleaned)
{
    char text[] = "a\033[2J \xff \xc3\xa9 \xc3";

    progress_clean(text);
    assert_string_equal(text, "a?[2J ? \xc3\xa9 ?");
}

UNIT_TEST(digests_differ_only_for_what_the_status_shows)
{
    struct case_world c;
    struct live_digest a, b;

    case_open(&c);
    c.r.progress.step = 5;
    c.r.rates.steps_per_s = 1.2341;
    assert_int_equal(progress_digest(&c.r, &a), 0);
    assert_int_equal(a.verdicts, 0);
    c.r.at_wall_us = 77;
    c.r.rates.steps_per_s = 1.2342;
    c.r.times.training_ms = 99;
    assert_int_equal(progress_digest(&c.r, &b), 0);
    assert_memory_equal(&a, &b, sizeof(a));
    c.r.progress.step = 6;
    assert_int_equal(progress_digest(&c.r, &b), 0);
    assert_true(a.verdicts == b.verdicts && a.progress != b.progress);
    a = b;
    c.r.stall.since_wall_us = 1;
    (void)strcpy(c.r.stall.text, "t");
    assert_int_equal(progress_digest(&c.r, &b), 0);
    assert_true(a.verdicts != b.verdicts && a.progress != b.progress);
    a = b;
    (void)strcpy(c.r.stall.text, "another text");
    assert_int_equal(progress_digest(&c.r, &b), 0);
    assert_true(a.verdicts == b.verdicts && a.progress != b.progress);
    a = b;
    c.r.straggler.rank = 1;
    assert_int_equal(progress_digest(&c.r, &b), 0);
    assert_true(a.verdicts != b.verdicts);
    a = b;
    c.r.state = LIVE_MEETING;
    c.r.n_workers = 8;
    c.r.n_present = 7;
    assert_int_equal(progress_digest(&c.r, &b), 0);
    assert_true(a.verdicts == b.verdicts);
    c.r.times.meeting_ms = MEETING_QUIET_MS;
    assert_int_equal(progress_digest(&c.r, &b), 0);
    assert_true(a.verdicts != b.verdicts && a.progress == b.progress);
    arena_release(&c.a);
}

static int make_without_memory(void *arg)
{
    CLEANUP(arena_release) struct arena a;
    struct build b = {.arena = &a};
    const struct live_report *r = arg;
    struct live_digest digest;
    const struct node *o;

    arena_init(&a, 1u << 20);
    o = progress_make(&b, r, NOW_S, NULL);
    (void)progress_stall(&b, r);
    (void)progress_straggler(&b, r);
    assert_true(b.status != 0 || o);
    return b.status ? b.status : progress_digest(r, &digest);
}

UNIT_TEST(without_memory_it_is_reported)
{
    struct live_report r;

    live_report_init(&r);
    r.progress.step = 5;
    r.progress.total_steps = 50;
    r.rates.steps_per_s = 1;
    r.progress.n_metrics = 1;
    (void)strcpy(r.progress.metrics[0].name, "loss");
    r.stall.since_wall_us = 1;
    (void)strcpy(r.stall.text, "t");
    r.straggler.rank = 1;
    torture(make_without_memory, &r);
}

UNIT_MAIN(NULL, NULL)
