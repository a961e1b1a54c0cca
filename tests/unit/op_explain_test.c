/* SPDX-License-Identifier: Apache-2.0 */
/* When the Events of a pod are requested, and which of them counts. */
#include "tests/unit/unit.h"

#include "operator/core/explain.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"

#define NOW_S 1000u

static char no_text[] = "", node[] = "n1", creating[] = "ContainerCreating";
static char pulling[] = "Back-off pulling image", hint[] = "configmap \"x\" not found";

UNIT_TEST(events_of_a_pod_are_requested_when_its_status_explains_nothing)
{
    static const struct {
        const char *name;
        struct pod pod;
        bool is_due;
        uint64_t next_s;
    } t[] = {
        {"just created",
         {.node = node, .waiting = creating, .made_wall_us = 990000000},
         false,
         1010},
        {"created long ago",
         {.node = node, .waiting = creating, .made_wall_us = 980000000},
         true,
         1000},
        {"no container status",
         {.node = node, .waiting = no_text, .made_wall_us = 1},
         true,
         20},
        {"unknown time", {.node = node, .waiting = no_text}, false, 0},
        {"asked before",
         {.node = node, .waiting = creating, .made_wall_us = 1, .explained_s = 971},
         false,
         1001},
        {"asked long ago",
         {.node = node, .waiting = creating, .made_wall_us = 1, .explained_s = 970},
         true,
         1000},
        {"the status says why",
         {.node = node, .waiting = pulling, .made_wall_us = 1},
         false,
         0},
        {"not scheduled",
         {.node = no_text, .waiting = creating, .made_wall_us = 1},
         false,
         0},
        {"runs",
         {.node = node, .waiting = no_text, .made_wall_us = 1, .phase = POD_RUNNING},
         false,
         0},
        {"is deleted",
         {.node = node, .waiting = no_text, .made_wall_us = 1, .is_deleting = true},
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

UNIT_TEST(events_explain_only_what_the_status_does_not)
{
    struct pod p = {.waiting = creating, .hint = hint};

    assert_string_equal(pod_waiting(&p), hint);
    p.hint = no_text;
    assert_string_equal(pod_waiting(&p), creating);
    p.hint = hint;
    p.waiting = pulling;
    assert_string_equal(pod_waiting(&p), pulling);
    assert_false(waiting_is_usual(pulling));
    assert_true(waiting_is_usual("PodInitializing"));
    assert_true(waiting_is_usual(""));
}

#define EVENT(time, text)                                                              \
    "{\"lastTimestamp\":\"2026-11-28T10:00:" time "Z\",\"message\":\"" text "\"}"

UNIT_TEST(the_latest_event_counts)
{
    static const struct {
        const char *list, *text;
    } t[] = {
        {"{}", ""},
        {"{\"items\":[]}", ""},
        {"{\"items\":null}", ""},
        {"{\"items\":[7,{}]}", ""},
        {"{\"items\":[" EVENT("01", "old") "," EVENT("03", "new\\nline") "," EVENT(
             "02", "older") "]}",
         "new"},
        {"{\"items\":[" EVENT("01", "old") ",{\"eventTime\":\"2026-11-28T10:00:02."
                                           "000000Z\",\"lastTimestamp\":null,"
                                           "\"message\":\"of a newer API\"}]}",
         "of a newer API"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(arena_release) struct arena a;
        char text[EXPLAIN_TEXT_MAX + 1];
        struct node *list;

        arena_init(&a, 1u << 16);
        assert_int_equal(json_read(&a, t[i].list, strlen(t[i].list), &list, NULL), 0);
        explain_read(list, text);
        assert_string_equal(text, t[i].text);
    }
}

UNIT_MAIN(NULL, NULL)
