/* SPDX-License-Identifier: Apache-2.0 */
/* When the Events of a pod are requested, and which of them counts. */
#include "tests/unit/unit.h"

#include "operator/core/explain.h"
#include "operator/core/timestamp.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"

#define NOW_S 1000u

static char no_text[] = "", node[] = "n1", creating[] = "ContainerCreating";
static char pulling[] = "Back-off pulling image";

UNIT_TEST(events_of_a_pod_are_requested_when_its_status_explains_nothing)
{
    static const struct {
        const char *name;
        struct pod pod;
        bool is_due;
        uint64_t next_s;
    } t[] = {
        {"just bound",
         {.node = node, .waiting = creating, .bound_wall_us = 990000000},
         false,
         1010},
        {"bound long ago",
         {.node = node, .waiting = creating, .bound_wall_us = 980000000},
         true,
         1000},
        {"no container status",
         {.node = node, .waiting = no_text, .bound_wall_us = 1},
         true,
         20},
        {"not scheduled", {.node = node, .waiting = no_text}, false, 0},
        {"asked before",
         {.node = node, .waiting = creating, .bound_wall_us = 1, .explained_s = 971},
         false,
         1001},
        {"asked long ago",
         {.node = node, .waiting = creating, .bound_wall_us = 1, .explained_s = 970},
         true,
         1000},
        {"the status says why",
         {.node = node, .waiting = pulling, .bound_wall_us = 1},
         false,
         0},
        {"runs",
         {.node = node, .waiting = no_text, .bound_wall_us = 1, .phase = POD_RUNNING},
         false,
         0},
        {"is deleted",
         {.node = node, .waiting = no_text, .bound_wall_us = 1, .is_deleting = true},
         false,
         0},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct pod p = t[i].pod;
        struct worker w[2] = {{.state = WORKER_EXPECTED},
                              {.state = WORKER_SEEN, .pod = &p}};
        struct observed seen = {.crew[ROLE_WORKER] = {.w = w, .n = 2}};
        CLEANUP(arena_release) struct arena a;
        struct job_plan plan;

        p.name = p.uid = node;
        p.hint = no_text;
        arena_init(&a, 1u << 16);
        assert_int_equal(plan_init(&plan, 1, &a), 0);
        assert_int_equal(explain_add(&plan, &seen, NOW_S, 0, &a), 0);
        if (plan.n != t[i].is_due || explain_next_s(&seen) != t[i].next_s)
            fail_msg("%s: %zu actions, next %llu", t[i].name, plan.n,
                     (unsigned long long)explain_next_s(&seen));
        if (plan.n > 0)
            assert_int_equal(plan.v[0].index, 1);
    }
}

/* One request per job, of the pod that was explained longest ago. */
UNIT_TEST(pods_of_a_job_take_turns)
{
    static const struct {
        uint64_t explained_s[3];
        uint32_t index;
        uint64_t next_s;
    } t[] = {{{0, 0, 0}, 0, 21},
             {{970, 0, 0}, 1, 1000},
             {{960, 970, 0}, 2, 1000},
             {{960, 970, 950}, 2, 1000},
             {{960, 990, 970}, 0, 1020}};

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct pod p[3];
        struct worker w[3];
        struct observed seen = {.crew[ROLE_WORKER] = {.w = w, .n = 3}};
        CLEANUP(arena_release) struct arena a;
        struct job_plan plan;

        for (uint32_t k = 0; k < 3; k++) {
            p[k] = (struct pod){.name = node,
                                .uid = node,
                                .node = node,
                                .waiting = creating,
                                .hint = no_text,
                                .bound_wall_us = 1000000,
                                .explained_s = t[i].explained_s[k]};
            w[k] = (struct worker){.state = WORKER_SEEN, .pod = &p[k]};
        }
        arena_init(&a, 1u << 16);
        assert_int_equal(plan_init(&plan, 1, &a), 0);
        assert_int_equal(explain_next_s(&seen), t[i].next_s);
        assert_int_equal(explain_add(&plan, &seen, t[i].next_s, 0, &a), 0);
        assert_int_equal(plan.n, 1);
        assert_int_equal(plan.v[0].index, t[i].index);
    }
}

UNIT_TEST(what_each_pod_passes_through_explains_nothing)
{
    assert_false(waiting_is_usual(pulling));
    assert_true(waiting_is_usual("PodInitializing"));
    assert_true(waiting_is_usual(""));
}

#define EVENT(time, text)                                                              \
    "{\"lastTimestamp\":\"2026-11-28T10:0" time "Z\",\"message\":\"" text "\"}"

UNIT_TEST(the_latest_recent_event_counts)
{
    static const struct {
        const char *list, *text;
    } t[] = {
        {"{}", ""},
        {"{\"items\":[]}", ""},
        {"{\"items\":null}", ""},
        {"{\"items\":[7,{}]}", ""},
        {"{\"items\":[" EVENT("4:01", "old") "," EVENT("4:03", "new\\nline") "," EVENT(
             "4:02", "older") "]}",
         "new"},
        {"{\"items\":[" EVENT("2:00", "in time") "]}", "in time"},
        {"{\"items\":[" EVENT("1:59", "it may be over") "]}", ""},
        {"{\"items\":[{\"reason\":\"FailedScheduling\",\"lastTimestamp\":"
         "\"2026-11-28T10:04:59Z\",\"message\":\"no node\"}]}",
         ""},
        {"{\"items\":[" EVENT("4:01", "old") ",{\"eventTime\":\"2026-11-28T10:04:02."
                                             "000000Z\",\"lastTimestamp\":null,"
                                             "\"message\":\"of a newer API\"}]}",
         "of a newer API"},
    };
    uint64_t now_us;

    assert_int_equal(timestamp_parse_us("2026-11-28T10:05:00Z", &now_us), 0);
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(arena_release) struct arena a;
        char text[EXPLAIN_TEXT_MAX + 1];
        struct node *list;

        arena_init(&a, 1u << 16);
        assert_int_equal(json_read(&a, t[i].list, strlen(t[i].list), &list, NULL), 0);
        explain_read(list, now_us / 1000000u, text);
        assert_string_equal(text, t[i].text);
    }
}

UNIT_MAIN(NULL, NULL)
