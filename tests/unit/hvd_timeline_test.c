/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline's machinery without a world: ring, file, thread, and two ranks whose
 * clocks differ, with the test as the channel between them. Whole ranks and a real JSON
 * parser: tests/python/test_timeline.py. */
#include <inttypes.h>
#include <sys/stat.h>

#include "tests/unit/unit.h"

#include "runtime/observe/timeline.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "hvd.h"
#include "tests/unit/text_count.h"
#include "tests/unit/timed.h"

static char dir[] = "/tmp/hvd-timeline-XXXXXX";
static char path[64];

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/t.json", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static char *file_text(void)
{
    char *text = NULL;
    struct err e = ERR_INIT;

    if (fd_read_file(path, 64 << 20, &text, NULL, &e) < 0)
        fail_msg("%s", e.text);
    return text;
}

static bool is_array(const char *text)
{
    size_t n = strlen(text);

    return n > 4 && strncmp(text, "[\n{", 3) == 0
           && strcmp(text + n - 4, "}\n]\n") == 0;
}

static void wait_for(bool (*is_true)(void *arg), void *arg)
{
    uint64_t deadline = clock_now_ns() + 10 * NS_PER_S;

    while (!is_true(arg)) {
        assert_true(clock_now_ns() < deadline);
        (void)usleep(1000); /* polls: the writer's thread reports nothing */
    }
}

static void timeline_start_ok(struct timeline *t, bool is_all)
{
    struct err e = ERR_INIT;

    if (timeline_start(t, path, false, is_all, &e) < 0)
        fail_msg("%s", e.text);
}

static void link_drop(void *arg, const void *p, size_t n)
{
    (void)arg;
    (void)p;
    (void)n;
}
static const struct timeline_link no_link = {link_drop, link_drop, NULL, NULL};

static void
event_record(struct timeline *t, enum trace_kind kind, uint64_t ns, const char *name)
{
    struct trace_event *ev = timeline_slot(t, kind, ns);

    if (!ev)
        return;
    trace_name(ev, 0, name);
    timeline_put(t);
}

static void a_life(struct timeline *t, uint64_t ns, const char *name)
{
    event_record(t, TRACE_NEGOTIATE, ns, name);
    event_record(t, TRACE_START, ns + 1000, name);
    event_record(t, TRACE_ACTIVITY, ns + 2000, name);
    event_record(t, TRACE_END, ns + 3000, name);
}

static bool has_grown(void *arg)
{
    struct stat st;

    return stat(path, &st) == 0 && st.st_size > *(off_t *)arg;
}

/* Also while it is on, that is, after a crash. */
UNIT_TEST(the_file_is_valid_at_any_time)
{
    static struct timeline t;
    struct stat st;

    timeline_init(&t, 0, 1, &no_link);
    timeline_start_ok(&t, false);
    for (int i = 0; i < 5; i++) {
        AUTOFREE char *text = file_text();

        assert_true(is_array(text));
        assert_int_equal(stat(path, &st), 0);
        a_life(&t, clock_now_ns(), "x");
        wait_for(has_grown, &st.st_size);
    }
    timeline_release(&t); /* ends it */
    {
        AUTOFREE char *text = file_text();

        assert_true(is_array(text));
        assert_int_equal(text_count(text, "\"ph\":\"B\""), 15);
    }
}

UNIT_TEST(it_may_be_started_again)
{
    static struct timeline t;
    struct err e = ERR_INIT;

    timeline_init(&t, 0, 1, &no_link);
    for (int i = 0; i < 3; i++) {
        AUTOFREE char *text = NULL;

        timeline_start_ok(&t, false);
        assert_int_equal(timeline_start(&t, path, false, false, &e),
                         HVD_INVALID_ARGUMENT);
        assert_string_equal(e.text,
                            "a timeline is being written already; stop it first");
        a_life(&t, clock_now_ns(), i == 0 ? "first" : "then");
        timeline_stop(&t, true);
        timeline_stop(&t, true);
        text = file_text();
        assert_int_equal(text_count(text, "\"ph\":\"B\""), 3);
        assert_int_equal(strstr(text, "first") != NULL, i == 0);
    }
    timeline_release(&t);
}

UNIT_TEST(a_path_that_cannot_be_is_refused)
{
    static struct timeline t;
    static char too_long[2000];
    struct err e = ERR_INIT;

    timeline_init(&t, 0, 1, &no_link);
    assert_int_equal(timeline_start(&t, "/nonexistent/t.json", false, false, &e),
                     HVD_INVALID_ARGUMENT);
    assert_string_equal(e.text, "timeline: cannot create /nonexistent/t.json: No such "
                                "file or directory");
    assert_false(timeline_is_on(&t));
    memset(too_long, 'x', sizeof(too_long) - 1);
    assert_int_equal(timeline_start(&t, too_long, false, false, &e),
                     HVD_INVALID_ARGUMENT);
    log_set_level(LOG_ERROR);
    assert_int_equal(timeline_start(&t, "/dev/full", false, false, &e),
                     HVD_INVALID_ARGUMENT);
    log_set_level(LOG_WARN);
    timeline_release(&t);
}

/* The writer looks every 50 ms: a burst larger than the ring within that time. */
UNIT_TEST(events_that_do_not_fit_are_counted)
{
    static struct timeline t;
    AUTOFREE char *text = NULL;
    size_t shown;
    unsigned long dropped = 0;

    timeline_init(&t, 0, 1, &no_link);
    timeline_start_ok(&t, false);
    for (uint32_t i = 0; i < 40 * TIMELINE_SLOTS; i++)
        event_record(&t, TRACE_CYCLE, 1, "");
    timeline_stop(&t, true);
    text = file_text();
    assert_true(is_array(text));
    shown = text_count(text, "CYCLE_START");
    for (const char *p = text; (p = strstr(p, "{\"events\":")) != NULL; p++)
        dropped += strtoul(p + 10, NULL, 10);
    assert_int_equal(shown + dropped, 40 * TIMELINE_SLOTS);
    timeline_release(&t);
}

/* --- two ranks --- */

enum { SKEW_NS = 500000000, DELAY_NS = 100000 }; /* rank 1's clock is ahead */

static struct timeline two[2];
static uint64_t virtual_ns; /* rank 0's clock */
static bool is_cut;         /* rank 1 receives nothing */
static size_t n_up, n_last, n_down, largest;

static void deliver_up(void *arg, const void *p, size_t n)
{
    struct err e = ERR_INIT;

    (void)arg;
    n_up++;
    n_last += ((const uint8_t *)p)[2]; /* trace_wire.c's is_last */
    if (n > largest)
        largest = n;
    assert_true(trace_is_message(p, n));
    virtual_ns += DELAY_NS;
    if (timeline_on_up(&two[0], 1, p, n, virtual_ns, &e) < 0)
        fail_msg("%s", e.text);
}

static void deliver_down(void *arg, const void *p, size_t n)
{
    struct err e = ERR_INIT;

    (void)arg;
    n_down++;
    assert_true(trace_is_message(p, n));
    virtual_ns += DELAY_NS;
    if (!is_cut && timeline_on_down(&two[1], p, n, virtual_ns + SKEW_NS, &e) < 0)
        fail_msg("%s", e.text);
}

static void steps_for(uint64_t ns)
{
    for (uint64_t end = virtual_ns + ns; virtual_ns < end; virtual_ns += NS_PER_MS) {
        timeline_step(&two[0], virtual_ns);
        timeline_step(&two[1], virtual_ns + SKEW_NS);
    }
}

static void *run_the_seats(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg)) {
        steps_for(NS_PER_MS);
        (void)usleep(1000); /* virtual time passes no faster than real time */
    }
    return NULL;
}

/* As timeline_stop is called while somebody runs the seat. */
static void stop_while_seats_run(void)
{
    _Atomic bool is_done = false;
    pthread_t seats;

    assert_int_equal(pthread_create(&seats, NULL, run_the_seats, &is_done), 0);
    timeline_stop(&two[0], true);
    atomic_store(&is_done, true);
    assert_int_equal(pthread_join(seats, NULL), 0);
}

static void two_init(void)
{
    static const struct timeline_link link = {deliver_up, deliver_down, NULL, NULL};

    virtual_ns = clock_now_ns();
    is_cut = false;
    n_up = n_last = n_down = largest = 0;
    timeline_init(&two[0], 0, 2, &link);
    timeline_init(&two[1], 1, 2, &link);
}

static void two_start(bool is_all)
{
    two_init();
    timeline_start_ok(&two[0], is_all);
}

static void release_two(void)
{
    timeline_release(&two[0]);
    timeline_release(&two[1]);
}

static double ts_of(const char *text, const char *record, unsigned tid)
{
    for (const char *p = text; (p = strstr(p, record)) != NULL; p++) {
        double ts;
        unsigned pid, t;

        if (sscanf(strstr(p, "\"ts\":"), "\"ts\":%lf,\"pid\":%u,\"tid\":%u", &ts, &pid,
                   &t)
                == 3
            && t == tid)
            return ts;
    }
    fail_msg("no %s of rank %u", record, tid);
    return 0;
}

/* True if the stop ended with the last events of rank 1 and not with its time limit of
 * 1 s. */
static bool is_one_file_on_one_clock(void)
{
    AUTOFREE char *text = NULL;
    uint64_t began;

    two_start(true);
    assert_false(timeline_is_on(&two[1]));
    steps_for(NS_PER_MS);
    assert_true(timeline_is_on(&two[1]));
    virtual_ns += NS_PER_S;
    event_record(&two[0], TRACE_START, virtual_ns, "x");
    event_record(&two[1], TRACE_START, virtual_ns + SKEW_NS,
                 "x"); /* the same instant */
    virtual_ns += NS_PER_MS;
    event_record(&two[0], TRACE_END, virtual_ns, "x");
    event_record(&two[1], TRACE_END, virtual_ns + SKEW_NS, "x");
    steps_for(NS_PER_S);
    began = clock_now_ns();
    stop_while_seats_run();
    if (clock_now_ns() - began >= NS_PER_S) {
        release_two();
        return false;
    }
    text = file_text();
    assert_true(is_array(text));
    assert_int_equal(text_count(text, "\"name\":\"ALLREDUCE\""), 2);
    assert_int_equal(text_count(text, "\"ph\":\"E\""), 2);
    assert_non_null(strstr(text, "\"name\":\"rank 1\""));
    {
        double a = ts_of(text, "\"name\":\"ALLREDUCE\"", 0),
               b = ts_of(text, "\"name\":\"ALLREDUCE\"", 1);

        assert_true(a - b < 1 && b - a < 1); /* us */
    }
    assert_false(timeline_is_on(&two[1]));
    assert_true(timeline_next_ns(&two[1]) == UINT64_MAX);
    release_two();
    return true;
}

UNIT_TEST(all_ranks_are_in_one_file_on_one_clock)
{
    ASSERT_IN_TIME(is_one_file_on_one_clock());
}

/* Events that wait for clocks are no reason to send anything. */
UNIT_TEST(few_clocks_cause_few_messages)
{
    two_start(true);
    timeline_step(&two[0], virtual_ns);
    for (int i = 0; i < 1000; i++) {
        event_record(&two[1], TRACE_CYCLE, virtual_ns, "");
        timeline_step(&two[1], virtual_ns + SKEW_NS);
    }
    assert_int_equal(n_up, 1);
    assert_true(timeline_next_ns(&two[1]) > virtual_ns + SKEW_NS);
    stop_while_seats_run();
    release_two();
}

UNIT_TEST(clocks_are_slow_after_the_first_ones)
{
    two_start(true);
    steps_for(NS_PER_S);
    n_down = n_up = 0;
    steps_for(10 * NS_PER_S);
    assert_in_range(n_down, 35, 45);
    assert_in_range(n_up, 90, 150);
    stop_while_seats_run();
    release_two();
}

UNIT_TEST(a_full_ring_goes_up_in_parts)
{
    AUTOFREE char *text = NULL;

    two_start(true);
    steps_for(NS_PER_S);
    for (uint32_t i = 0; i < TIMELINE_SLOTS + 10; i++)
        event_record(&two[1], TRACE_CYCLE, virtual_ns + SKEW_NS, "");
    largest = 0;
    timeline_leave(&two[1], virtual_ns + SKEW_NS); /* e.g. because it shuts down */
    assert_false(timeline_is_on(&two[1]));
    assert_true(timeline_next_ns(&two[1]) == UINT64_MAX);
    assert_in_range(largest, 200 << 10, 300 << 10);
    assert_int_equal(n_last, 1);  /* of several */
    timeline_stop(&two[0], true); /* rank 1 has sent its last: no seat is needed */
    text = file_text();
    assert_true(is_array(text));
    assert_int_equal(text_count(text, "CYCLE_START"), TIMELINE_SLOTS);
    assert_non_null(strstr(text,
                           "\"name\":\"DROPPED\",\"s\":\"g\",\"args\":{\"events\":"
                           "10}"));
    release_two();
}

UNIT_TEST(a_rank_that_is_silent_costs_a_second)
{
    uint64_t began;

    two_init();
    is_cut = true;
    timeline_start_ok(&two[0], true);
    steps_for(NS_PER_S);
    began = clock_now_ns();
    stop_while_seats_run();
    assert_in_range(clock_now_ns() - began, 900 * NS_PER_MS, 20 * NS_PER_S);
    release_two();
}

UNIT_TEST(without_all_ranks_nothing_is_sent)
{
    two_start(false);
    steps_for(NS_PER_S);
    timeline_stop(&two[0], true);
    assert_int_equal(n_down + n_up, 0);
    release_two();
}

UNIT_TEST(nonsense_is_refused)
{
    static const uint8_t junk[] = {'T', 1, 9, 9};
    struct err e = ERR_INIT;

    two_init();
    assert_int_equal(timeline_on_up(&two[0], 1, junk, sizeof(junk), 1, &e), -EBADMSG);
    assert_int_equal(timeline_on_down(&two[1], junk, sizeof(junk), 1, &e), -EBADMSG);
    release_two();
}

UNIT_MAIN(make_dir, remove_dir)
