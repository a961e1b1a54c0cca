/* SPDX-License-Identifier: Apache-2.0 */
/* Events as Chrome's trace format: every edge of a track, names, balance under random
 * events, the wire form, clocks. */
#include <inttypes.h>

#include "runtime/base/mem.h"
#include "runtime/core/trace.h"
#include "tests/unit/seeded.h"
#include "tests/unit/torture.h"

static struct trace_event
event_make(enum trace_kind kind, uint64_t ns, const char *name)
{
    struct trace_event ev = {.kind = (uint8_t)kind,
                             .ns = ns,
                             .coll = COLL_ALLREDUCE,
                             .dtype = DT_F32,
                             .activity = TRACE_ALLOCATE_OUTPUT};

    trace_name(&ev, 0, name);
    return ev;
}

struct fixture {
    struct strbuf out;
    struct trace *t;
};

static void fixture_init(struct fixture *f, uint64_t start_ns)
{
    strbuf_init(&f->out, 8 << 20);
    f->t = trace_new(start_ns);
    assert_non_null(f->t);
}

static void fixture_release(struct fixture *f)
{
    strbuf_release(&f->out);
    trace_free(f->t);
}

#define TRACE_TEST(name)                                                               \
    static void name##_in(struct fixture *f);                                          \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        struct fixture f;                                                              \
                                                                                       \
        fixture_init(&f, 0);                                                           \
        name##_in(&f);                                                                 \
        fixture_release(&f);                                                           \
    }                                                                                  \
    static void name##_in(struct fixture *f)

/* Returns what this event of rank 0 adds to the trace. */
static const char *event_text(struct fixture *f, const struct trace_event *ev)
{
    strbuf_clear(&f->out);
    assert_int_equal(trace_put(f->t, 0, ev, 0, &f->out), 0);
    return strbuf_str(&f->out);
}

/* The life of one tensor, as Chrome gets it. */
TRACE_TEST(a_tensor_s_life_is_nested_spans)
{
    static const char want[] =
        "[\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":"
        "\"cycles\",\"start_time_since_epoch_in_micros\":1700000000000000}},\n"
        "{\"ph\":\"i\",\"name\":\"CYCLE_START\",\"s\":\"g\",\"ts\":0.500,\"pid\":0,"
        "\"tid\":0},\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"g\"}},"
        "\n"
        "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":1,\"args\":{"
        "\"sort_index\":1}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":"
        "\"rank 0\"}},\n"
        "{\"ph\":\"B\",\"name\":\"NEGOTIATE_ALLREDUCE\",\"ts\":1.000,\"pid\":1,\"tid\":"
        "0},\n"
        "{\"ph\":\"X\",\"name\":\"1\",\"dur\":0,\"ts\":1.000,\"pid\":1,\"tid\":0},\n"
        "{\"ph\":\"X\",\"name\":\"0\",\"dur\":0,\"ts\":2.000,\"pid\":1,\"tid\":0},\n"
        "{\"ph\":\"E\",\"ts\":3.000,\"pid\":1,\"tid\":0},\n"
        "{\"ph\":\"B\",\"name\":\"ALLREDUCE\",\"ts\":3.000,\"pid\":1,\"tid\":0},\n"
        "{\"ph\":\"B\",\"name\":\"ALLOCATE_OUTPUT\",\"ts\":4.000,\"pid\":1,\"tid\":0},"
        "\n"
        "{\"ph\":\"E\",\"ts\":5.000,\"pid\":1,\"tid\":0},\n"
        "{\"ph\":\"B\",\"name\":\"CPU_ALLREDUCE\",\"ts\":5.000,\"pid\":1,\"tid\":0},\n"
        "{\"ph\":\"E\",\"ts\":6.789,\"pid\":1,\"tid\":0},\n"
        "{\"ph\":\"E\",\"args\":{\"dtype\":\"float32\",\"bytes\":4096},\"ts\":6.789,"
        "\"pid\":1,\"tid\":0}"
        "\n]\n";
    struct trace_event ev[] = {
        event_make(TRACE_CYCLE, 500, ""),      event_make(TRACE_TICK, 1000, "g"),
        event_make(TRACE_TICK, 2000, "g"),     event_make(TRACE_START, 3000, "g"),
        event_make(TRACE_ACTIVITY, 4000, "g"), event_make(TRACE_ACTIVITY, 5000, "g"),
        event_make(TRACE_END, 6789, "g"),
    };

    ev[1].rank = 1;
    ev[5].activity = TRACE_TRANSFER;
    ev[6].bytes = 4096;
    trace_head(1700000000000000, &f->out);
    for (size_t i = 0; i < ARRAY_LEN(ev); i++)
        assert_int_equal(trace_put(f->t, 0, &ev[i], 0, &f->out), 0);
    strbuf_puts(&f->out, TRACE_TAIL);
    assert_string_equal(strbuf_str(&f->out), want);
}

static struct trace_event on_gpu(enum trace_kind kind, uint64_t ns)
{
    struct trace_event ev = event_make(kind, ns, "g");

    ev.activity = TRACE_DEVICE;
    return ev;
}

/* Two steps are posted before the GPU has ended the first, then it ends both. */
TRACE_TEST(the_end_of_a_step_is_not_the_next_one_s)
{
    static const struct {
        enum trace_kind kind;
        const char *want; /* in what is written; NULL: nothing is */
    } rows[] = {
        {TRACE_START, "\"name\":\"ALLREDUCE\""},
        {TRACE_ACTIVITY, "\"name\":\"NCCL_ALLREDUCE\""},
        {TRACE_NEGOTIATE, "\"name\":\"NEGOTIATE_ALLREDUCE\""}, /* cuts it */
        {TRACE_START, "\"name\":\"ALLREDUCE\""},
        {TRACE_ACTIVITY, "\"name\":\"NCCL_ALLREDUCE\""},
        {TRACE_END, NULL}, /* the first one's */
        {TRACE_END, "\"bytes\":"},
        {TRACE_END, NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct trace_event ev = on_gpu(rows[i].kind, i + 1);
        const char *text = event_text(f, &ev);

        if (rows[i].want)
            assert_non_null(strstr(text, rows[i].want));
        else
            assert_string_equal(text, "");
    }
}

/* Then the end that is missed may have been among them. */
TRACE_TEST(lost_events_make_no_end_missed)
{
    static const enum trace_kind kinds[] = {
        TRACE_START, TRACE_ACTIVITY, TRACE_NEGOTIATE, TRACE_START, TRACE_ACTIVITY};
    struct trace_event ev;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        ev = on_gpu(kinds[i], i + 1);
        (void)event_text(f, &ev);
    }
    trace_put_dropped(f->t, 0, 6, 1, &f->out);
    ev = on_gpu(TRACE_END, 7);
    assert_non_null(strstr(event_text(f, &ev), "\"bytes\":"));
}

/* --- the edges --- */

static const char *shape_of(const char *json, char *ret)
{
    size_t n = 0;

    for (const char *p = json; (p = strstr(p, "\"ph\":\"")) != NULL; p++)
        if (p[6] != 'M')
            ret[n++] = p[6];
    ret[n] = 0;
    return ret;
}

UNIT_TEST(each_edge_ends_and_begins_what_the_table_says)
{
    /* how to get into the state, then for each kind: what it writes, and what an END
     * writes afterwards, which depends on the state */
    static const struct {
        const char *into; /* N: negotiate, S: start, A: activity */
        const char *want[TRACE_KIND_OF_TENSOR][2];
    } t[] = {
        {"", {{"B", "E"}, {"BX", "E"}, {"B", "E"}, {"", ""}, {"", ""}}},
        {"N", {{"", "E"}, {"X", "E"}, {"EB", "E"}, {"", "E"}, {"E", ""}}},
        {"S", {{"EB", "E"}, {"", "E"}, {"EB", "E"}, {"B", "EE"}, {"E", ""}}},
        {"SA", {{"EEB", "E"}, {"", "EE"}, {"EEB", "E"}, {"EB", "EE"}, {"EE", ""}}},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        for (int kind = 0; kind < TRACE_KIND_OF_TENSOR; kind++) {
            struct fixture f;
            struct trace_event ev;
            char shape[64];

            fixture_init(&f, 0);
            for (const char *p = t[i].into; *p; p++) {
                ev = event_make(*p == 'N'   ? TRACE_NEGOTIATE
                                : *p == 'S' ? TRACE_START
                                            : TRACE_ACTIVITY,
                                1, "x");
                (void)event_text(&f, &ev);
            }
            ev = event_make((enum trace_kind)kind, 2, "x");
            assert_string_equal(shape_of(event_text(&f, &ev), shape),
                                t[i].want[kind][0]);
            ev = event_make(TRACE_END, 3, "x");
            assert_string_equal(shape_of(event_text(&f, &ev), shape),
                                t[i].want[kind][1]);
            fixture_release(&f);
        }
}

/* Walks the records: spans balance and time does not go back, per pid and tid. */
static void check_balance(const char *json)
{
    enum { PIDS = 8, TIDS = 8 };
    int depth[PIDS][TIDS] = {{0}};
    double last[PIDS][TIDS] = {{0}};

    for (const char *p = json; (p = strstr(p, "{\"ph\":\"")) != NULL; p++) {
        const char *ts = strstr(p, "\"ts\":");
        unsigned pid, tid;
        double at;

        assert_non_null(ts);
        assert_int_equal(
            sscanf(ts, "\"ts\":%lf,\"pid\":%u,\"tid\":%u", &at, &pid, &tid), 3);
        assert_true(pid < PIDS && tid < TIDS);
        if (pid == 0)
            continue;
        assert_true(at >= last[pid][tid]);
        last[pid][tid] = at;
        if (p[7] == 'B')
            depth[pid][tid]++;
        if (p[7] == 'E')
            depth[pid][tid]--;
        assert_in_range(depth[pid][tid], 0, 2);
    }
    for (int i = 0; i < PIDS * TIDS; i++)
        assert_int_equal(depth[i / TIDS][i % TIDS], 0);
}

UNIT_TEST(spans_balance_for_any_events)
{
    struct seeded rnd = {8};

    for (int round = 0; round < 50; round++) {
        struct fixture f;

        fixture_init(&f, 5000);
        trace_head(1, &f.out);
        for (int i = 0; i < 500; i++) {
            char name[2] = {(char)('a' + seeded_below(&rnd, 5)), 0};
            struct trace_event ev =
                event_make((enum trace_kind)seeded_below(&rnd, TRACE_KIND_COUNT),
                           seeded_below(&rnd, 100000), name);

            assert_int_equal(trace_put(f.t, seeded_below(&rnd, 3), &ev,
                                       (int64_t)seeded_below(&rnd, 16384) - 8000,
                                       &f.out),
                             0);
        }
        trace_close(f.t, 50000, &f.out);
        check_balance(strbuf_str(&f.out));
        trace_close(f.t, 50000, &f.out); /* nothing is open any more */
        check_balance(strbuf_str(&f.out));
        fixture_release(&f);
    }
}

UNIT_TEST(ranks_are_shown_on_rank_0_s_clock)
{
    static const struct {
        int64_t ahead_ns;
        const char *name, *want;
    } rows[] = {
        {2000, "g", "\"ts\":3.000,\"pid\":1,\"tid\":3}"},
        {-2000, "h", "\"ts\":7.000,\"pid\":2,\"tid\":3}"},
        {999999, "i", "\"ts\":0.000,\"pid\":3,\"tid\":3}"}, /* before the start */
    };
    struct fixture f;

    fixture_init(&f, 1000000);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct trace_event ev = event_make(TRACE_START, 1005000, rows[i].name);

        assert_int_equal(trace_put(f.t, 3, &ev, rows[i].ahead_ns, &f.out), 0);
        assert_non_null(strstr(strbuf_str(&f.out), rows[i].want));
    }
    fixture_release(&f);
}

/* --- names --- */

TRACE_TEST(names_are_valid_json)
{
    static const struct {
        const char *name, *want;
    } t[] = {
        {"plain", "plain"},
        {"a\"b\\c", "a\\\"b\\\\c"},
        {"tab\there", "tab\\u0009here"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"\xe2\x82\xac \xf0\x9f\x98\x80", "\xe2\x82\xac \xf0\x9f\x98\x80"},
        {"bad\xff\x80 end", "bad?? end"},
        {"cut\xe2\x82", "cut??"},
        {"over\xc0\xaf", "over??"},
        {"long\xe0\x80\xaf", "long???"},
        {"surrogate\xed\xa0\x80", "surrogate???"},
        {"high\xf4\x90\x80\x80", "high????"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct trace_event ev = event_make(TRACE_START, 1, t[i].name);
        const char *text = event_text(f, &ev);
        char want[128];

        (void)snprintf(want, sizeof(want), "\"args\":{\"name\":\"%s\"}}", t[i].want);
        if (!strstr(text, want))
            fail_msg("%s: %s", want, text);
    }
}

UNIT_TEST(long_names_stay_apart)
{
    char a[TENSOR_NAME_MAX], b[TENSOR_NAME_MAX];
    struct trace_event x = {0}, y = {0};

    memset(a, 'x', sizeof(a) - 1);
    a[sizeof(a) - 1] = 0;
    memcpy(b, a, sizeof(a));
    b[sizeof(b) - 2] = 'y';
    trace_name(&x, 0, a);
    trace_name(&y, 0, b);
    assert_int_equal(strlen(x.name), TRACE_NAME_MAX - 1);
    assert_string_not_equal(x.name, y.name);
    trace_name(&y, 7, a);
    assert_string_not_equal(x.name, y.name);
    assert_non_null(strstr(y.name, "@7~"));
    trace_name(&x, 0, "g");
    assert_string_equal(x.name, "g");
    trace_name(&x, 12, "g");
    assert_string_equal(x.name, "g@12");
    a[TRACE_NAME_MAX - 1] = 0; /* just fits */
    trace_name(&x, 0, a);
    assert_string_equal(x.name, a);
}

/* --- memory --- */

static int one_life(void *arg)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct trace *t = trace_new(0);
    int rc = t ? 0 : -ENOMEM;

    (void)arg;
    strbuf_init(&out, 1 << 20);
    for (int i = 0; i < 40 && rc == 0; i++) {
        char name[16];
        struct trace_event ev;

        (void)snprintf(name, sizeof(name), "t%d", i);
        ev = event_make(TRACE_START, (uint64_t)i, name);
        rc = trace_put(t, 0, &ev, 0, &out);
    }
    trace_free(t);
    return rc;
}

UNIT_TEST(every_allocation_may_fail)
{
    torture(one_life, NULL);
}

TRACE_TEST(a_lost_record_leaves_the_track_as_it_was)
{
    struct trace_event ev = event_make(TRACE_START, 1, "x");
    char shape[64];

    (void)event_text(f, &ev);
    f->out.max = f->out.n + 4;
    ev = event_make(TRACE_END, 2, "x");
    assert_int_equal(trace_put(f->t, 0, &ev, 0, &f->out), -E2BIG);
    f->out.max = 1 << 20;
    assert_string_equal(shape_of(event_text(f, &ev), shape), "E");
}

TRACE_TEST(names_without_end_do_not_fill_the_memory)
{
    struct trace_event ev;
    char name[32];

    for (uint32_t i = 0; i < TRACE_MAX_TRACKS; i++) {
        (void)snprintf(name, sizeof(name), "noname.%u", i);
        ev = event_make(TRACE_START, 1, name);
        (void)event_text(f, &ev);
    }
    strbuf_clear(&f->out);
    ev = event_make(TRACE_START, 1, "one more");
    assert_int_equal(trace_put(f->t, 0, &ev, 0, &f->out), -ENOMEM);
    assert_int_equal(f->out.n, 0);
    ev = event_make(TRACE_END, 2, "noname.7"); /* existing tracks continue */
    assert_non_null(strstr(event_text(f, &ev), "\"ph\":\"E\""));
}

/* --- wire --- */

UNIT_TEST(messages_come_back_as_they_went)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct trace_up up = {123456789012345, -42, 7, true}, up2;
    struct trace_down down = {TRACE_ORDER_STOP, 99}, down2;
    struct trace_event ev = event_make(TRACE_ACTIVITY, 5, "grad/0"), ev2;
    struct bytes_reader in;
    struct err e = ERR_INIT;

    ev.rank = 65535;
    ev.bytes = 1ull << 40;
    ev.activity = TRACE_TRANSFER;
    ev.dtype = DT_BF16;
    ev.coll = COLL_ALLTOALL;
    strbuf_init(&out, 1 << 20);
    trace_write_up(&up, &out);
    trace_write_event(&ev, &out);
    trace_write_event(&ev, &out);
    assert_true(trace_is_message(out.p, out.n));
    in = (struct bytes_reader){.p = (const uint8_t *)out.p, .left = out.n};
    assert_int_equal(trace_read_up(&in, &up2, &e), 0);
    assert_true(up2.sent_ns == up.sent_ns && up2.least_down_ns == -42
                && up2.n_dropped == 7 && up2.is_last);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(trace_read_event(&in, &ev2, &e), 1);
        assert_true(ev2.kind == ev.kind && ev2.coll == ev.coll && ev2.ns == 5
                    && ev2.activity == ev.activity && ev2.dtype == ev.dtype
                    && ev2.rank == 65535 && ev2.bytes == 1ull << 40);
        assert_string_equal(ev2.name, "grad/0");
    }
    assert_int_equal(trace_read_event(&in, &ev2, &e), 0);

    strbuf_clear(&out);
    trace_write_down(&down, &out);
    in = (struct bytes_reader){.p = (const uint8_t *)out.p, .left = out.n};
    assert_int_equal(trace_read_down(&in, &down2, &e), 0);
    assert_true(down2.order == TRACE_ORDER_STOP && down2.sent_ns == 99);
}

UNIT_TEST(every_cut_and_every_flip_is_seen_or_harmless)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct trace_up up = {1, 2, 3, false};
    struct trace_event ev = event_make(TRACE_END, 5, "grad/0"), got;
    size_t head;

    strbuf_init(&out, 1 << 20);
    trace_write_up(&up, &out);
    head = out.n;
    trace_write_event(&ev, &out);
    for (size_t n = 0; n < out.n; n++) {
        struct bytes_reader in = {.p = (const uint8_t *)out.p, .left = n};
        struct err e = ERR_INIT;
        int r = trace_read_up(&in, &up, &e);

        assert_int_equal(r, n < head ? -EBADMSG : 0);
        if (r == 0)
            assert_int_equal(trace_read_event(&in, &got, &e), n == head ? 0 : -EBADMSG);
    }
    for (size_t i = 0; i < out.n * 8; i++) {
        struct bytes_reader in = {.p = (const uint8_t *)out.p, .left = out.n};
        struct err e = ERR_INIT;
        int r;

        out.p[i / 8] = (char)(out.p[i / 8] ^ (1 << i % 8));
        r = trace_read_up(&in, &up, &e);
        if (r == 0)
            r = trace_read_event(&in, &got, &e);
        if (r == 1) {
            assert_true(got.kind < TRACE_KIND_COUNT && got.coll < COLL_COUNT
                        && got.activity < TRACE_ACTIVITY_COUNT && got.dtype < DT_COUNT);
            assert_true(strlen(got.name) < TRACE_NAME_MAX);
        } else {
            assert_int_equal(r, -EBADMSG);
        }
        out.p[i / 8] = (char)(out.p[i / 8] ^ (1 << i % 8));
    }
    {
        static const uint8_t other[] = {'T', 2, 0};
        struct bytes_reader in = {.p = other, .left = sizeof(other)};
        struct err e = ERR_INIT;

        assert_int_equal(trace_read_up(&in, &up, &e), -EBADMSG);
        assert_string_equal(e.text, "timeline message: version 2, this is 1");
        assert_false(trace_is_message("\2\1", 2));
        assert_false(trace_is_message("", 0));
    }
}

/* --- clocks --- */

UNIT_TEST(what_both_ways_have_in_common_falls_out)
{
    struct trace_clock c = {0};

    assert_int_equal(trace_clock_ahead_ns(&c), 0);
    /* 1000 ahead; 50 each way; one of each read late */
    trace_clock_add(&c, 1050 + 7000, -1000 + 50);
    trace_clock_add(&c, 1050, -1000 + 50 + 9000);
    assert_int_equal(trace_clock_ahead_ns(&c), 1000);
    c = (struct trace_clock){0};
    trace_clock_add(&c, -5000000 + 20, 5000000 + 20); /* behind */
    assert_int_equal(trace_clock_ahead_ns(&c), -5000000);
}

UNIT_MAIN(NULL, NULL)
