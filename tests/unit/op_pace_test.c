/* SPDX-License-Identifier: Apache-2.0 */
/* When a job's progress is written, and what counts as progress. */
#include "tests/unit/unit.h"

#include "operator/core/pace.h"
#include "operator/core/state.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"

#define MS 1000000ull

UNIT_TEST(progress_waits_for_its_own_job_only)
{
    struct pace p = {0};

    assert_int_equal(pace_wait_ns(&p, "ns/a", 5), 0);
    pace_note(&p, "ns/a", 1000 * MS);
    assert_int_equal(pace_wait_ns(&p, "ns/b", 1000 * MS), 0);
    assert_int_equal(pace_wait_ns(&p, "ns/a", 1000 * MS), PACE_NS);
    pace_note(&p, "ns/b", 1500 * MS);
    pace_note(&p, "ns/a", 2000 * MS);
    assert_int_equal(pace_wait_ns(&p, "ns/a", 2500 * MS), PACE_NS - 500 * MS);
    assert_int_equal(pace_wait_ns(&p, "ns/b", 1500 * MS + PACE_NS), 0);
    assert_int_equal(pace_wait_ns(&p, "ns/a", 2000 * MS + PACE_NS - 1), 1);
    assert_int_equal(pace_wait_ns(&p, "ns/a", 2000 * MS + PACE_NS), 0);
    pace_release(&p);
}

UNIT_TEST(it_waits_longer_while_many_jobs_change)
{
    struct pace p = {0};
    char key[32];

    pace_note(&p, "ns/a", 1000 * MS);
    for (unsigned i = 1; i < PACE_BUSY; i++) {
        (void)snprintf(key, sizeof(key), "ns/j%u", i);
        pace_note(&p, key, 1001 * MS);
    }
    assert_int_equal(pace_wait_ns(&p, "ns/a", 1002 * MS), PACE_NS - 2 * MS);
    pace_note(&p, "ns/one-more", 1002 * MS); /* PACE_BUSY others */
    assert_int_equal(pace_wait_ns(&p, "ns/a", 1002 * MS), PACE_BUSY_NS - 2 * MS);
    /* calm again: the wait of those that still wait is the short one */
    assert_int_equal(pace_wait_ns(&p, "ns/j1", 1001 * MS + PACE_NS), 0);
    pace_note(&p, "ns/j1", 9000 * MS);
    assert_int_equal(pace_wait_ns(&p, "ns/j1", 9000 * MS), PACE_NS);
    pace_release(&p);
}

UNIT_TEST(old_entries_take_no_memory)
{
    struct pace p = {0};
    char key[32];

    for (unsigned i = 0; i < 100000; i++) {
        (void)snprintf(key, sizeof(key), "ns/j%u", i);
        pace_note(&p, key, i * MS);
    }
    assert_true(p.n <= PACE_BUSY_NS / MS);
    pace_release(&p);
}

#define STATUS(state, workers, running, why, message)                                  \
    "{\"state\":\"" state "\",\"workers\":\"" workers "\",\"startTime\":\"t\","        \
    "\"replicaStatuses\":{\"Worker\":{\"active\":" running "}},\"conditions\":["       \
    "{\"type\":\"Created\",\"status\":\"True\",\"reason\":\"JobCreated\"},"            \
    "{\"type\":\"Running\",\"status\":\"False\",\"reason\":\"" why                     \
    "\",\"message\":\"" message "\",\"lastTransitionTime\":\"t\"}]}"

UNIT_TEST(only_counts_and_messages_are_progress)
{
    static const char old[] = STATUS("Pending", "0/8", "0", "Waiting", "none runs");
    static const struct {
        const char *old, *now;
        bool is_progress;
    } rows[] = {
        {old, STATUS("Pending", "3/8", "3", "Waiting", "3 run"), true},
        {old, STATUS("Pending", "0/8", "0", "Waiting", "no image"), true},
        {old, STATUS("Running", "8/8", "8", "Waiting", "none runs"), false},
        {old, STATUS("Pending", "0/8", "0", "Quota", "none runs"), false},
        {"{\"state\":\"Running\"}", "{\"state\":\"Running\",\"goodput\":{}}", true},
        {old, "{\"state\":\"Pending\",\"conditions\":[]}", false},
        {"{}", old, false},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(arena_release) struct arena a;
        struct build b = {.arena = &a};
        struct node *was, *now;

        arena_init(&a, 1u << 20);
        assert_int_equal(json_read(&a, rows[i].old, strlen(rows[i].old), &was, NULL),
                         0);
        assert_int_equal(json_read(&a, rows[i].now, strlen(rows[i].now), &now, NULL),
                         0);
        if (status_is_progress(&b, was, now) != rows[i].is_progress)
            fail_msg("%s", rows[i].now);
    }
}

#define INDEXES(worker, n)                                                             \
    "{\"state\":\"Running\",\"replicaStatuses\":{\"Worker\":{\"active\":" n worker "}" \
    "}"                                                                                \
    "}"

UNIT_TEST(counts_and_messages_need_no_sync)
{
    static const char none[] = INDEXES("", "3");
    static const char one[] = INDEXES(",\"completedIndexes\":\"1\"", "3");
    static const struct {
        const char *old, *now;
        bool needs_sync;
    } rows[] = {
        {none, INDEXES("", "2"), false},
        {none, one, true},
        {one, INDEXES(",\"completedIndexes\":\"1\"", "2"), false},
        {one, INDEXES(",\"completedIndexes\":\"1,2\"", "2"), true},
        {one, none, true},
        {one, "{\"state\":\"Succeeded\"}", true},
        {"{\"state\":\"Running\"}", one, true},
        {"{\"state\":\"Running\"}", none, false},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(arena_release) struct arena a;
        struct build b = {.arena = &a};
        struct node *was, *now;

        arena_init(&a, 1u << 20);
        assert_int_equal(json_read(&a, rows[i].old, strlen(rows[i].old), &was, NULL),
                         0);
        assert_int_equal(json_read(&a, rows[i].now, strlen(rows[i].now), &now, NULL),
                         0);
        if (status_needs_sync(&b, was, now) != rows[i].needs_sync)
            fail_msg("%zu: %s", i, rows[i].now);
    }
}

UNIT_MAIN(NULL, NULL)
