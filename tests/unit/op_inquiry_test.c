/* SPDX-License-Identifier: Apache-2.0 */
/* When PodGroups and Workloads are requested, and what their status says. */
#include "tests/unit/unit.h"

#include "operator/core/inquiry.h"
#include "operator/core/plan.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"

static const struct inquiry_need need = {
    .kind = KUBE_WORKLOAD, .name = "j", .since_s = 1000};

UNIT_TEST(requests_become_rarer)
{
    static const struct {
        struct inquiry known;
        uint64_t next_s;
    } t[] = {
        {{.asked_s = 0}, 1020},
        {{.kind = KUBE_WORKLOAD, .asked_s = 1020, .n_asked = 1}, 1050},
        {{.kind = KUBE_WORKLOAD, .asked_s = 1050, .n_asked = 2}, 1110},
        {{.kind = KUBE_WORKLOAD, .asked_s = 1110, .n_asked = 3}, 1230},
        {{.kind = KUBE_WORKLOAD, .asked_s = 2000, .n_asked = 6}, 2600},
        {{.kind = KUBE_WORKLOAD, .asked_s = 2000, .n_asked = UINT32_MAX}, 2600},
        {{.kind = KUBE_WORKLOAD,
          .asked_s = 1020,
          .n_asked = 1,
          .result = INQUIRY_DENIED},
         1620},
        {{.kind = KUBE_VOLCANO_GROUP, .asked_s = 1019, .n_asked = 9}, 1020},
        {{.kind = KUBE_WORKLOAD, .asked_s = 900, .n_asked = 1}, 1020},
        {{.kind = KUBE_WORKLOAD, .asked_s = 999, .n_asked = 9}, 1599},
    };
    const struct inquiry_need none = {.kind = KUBE_WORKLOAD, .name = "j"};

    assert_int_equal(inquiry_next_s(NULL, &need), 1020);
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(arena_release) struct arena a;
        struct job_plan plan;

        assert_int_equal(inquiry_next_s(&t[i].known, &need), t[i].next_s);
        assert_int_equal(inquiry_next_s(&t[i].known, &none), 0);
        arena_init(&a, 1u << 16);
        assert_int_equal(plan_init(&plan, 2, &a), 0);
        assert_int_equal(inquiry_add(&plan, &t[i].known, &need, t[i].next_s - 1, 7, &a),
                         0);
        assert_int_equal(plan.n, 0);
        assert_int_equal(inquiry_add(&plan, &t[i].known, &need, t[i].next_s, 7, &a), 0);
        assert_int_equal(plan.n, 1);
        assert_int_equal(plan.v[0].verb, VERB_EXPLAIN);
        assert_int_equal(plan.v[0].kind, KUBE_WORKLOAD);
        assert_int_equal(plan.v[0].stage, 7);
    }
}

UNIT_TEST(only_pods_without_a_node_need_their_group)
{
    char empty[] = "";
    struct pod p[3] = {{.phase = POD_PENDING, .usual = 1 /* PodScheduled=True */},
                       {.phase = POD_PENDING, .usual = 2, .made_wall_us = 70000000},
                       {.phase = POD_PENDING, .usual = 2, .made_wall_us = 60000000}};
    struct worker w[3];
    struct observed seen = {.crew[ROLE_WORKER] = {.w = w, .n = 1}};

    for (size_t i = 0; i < ARRAY_LEN(w); i++) {
        p[i].conditions = empty;
        w[i] = (struct worker){.state = WORKER_SEEN, .pod = &p[i]};
    }
    assert_int_equal(inquiry_for_group(&seen, KUBE_VOLCANO_GROUP, "j").since_s, 0);
    seen.crew[ROLE_WORKER].n = 2;
    assert_int_equal(inquiry_for_group(&seen, KUBE_VOLCANO_GROUP, "j").since_s, 70);
    seen.crew[ROLE_WORKER].n = 3;
    assert_int_equal(inquiry_for_group(&seen, KUBE_VOLCANO_GROUP, "j").since_s, 60);
    p[1].is_deleting = p[2].is_deleting = true;
    assert_int_equal(inquiry_for_group(&seen, KUBE_VOLCANO_GROUP, "j").since_s, 0);
}

static void check_answer(enum kube_kind kind,
                         const char *json,
                         enum inquiry_result result,
                         const char *text)
{
    struct inquiry known = {.result = INQUIRY_UNKNOWN};
    CLEANUP(arena_release) struct arena a;
    struct node *o;

    arena_init(&a, 1u << 20);
    assert_int_equal(json_read(&a, json, strlen(json), &o, NULL), 0);
    inquiry_take(&known, kind, INQUIRY_FOUND, o, 100);
    assert_string_equal(known.text, text);
    assert_int_equal(known.result, result);
    assert_int_equal(known.kind, kind);
    assert_int_equal(known.asked_s, 100);
}

#define WORKLOAD(more)                                                                 \
    "{\"items\":[{\"metadata\":{\"creationTimestamp\":\"2026-01-02T00:00:00Z\"},"      \
    "\"spec\":{\"queueName\":\"team-a\"}," more                                        \
    "},{\"metadata\":{\"creationTimestamp\":\"2026-01-01T00:00:00Z\"}}]}"
#define CONDITION(type, status, message)                                               \
    "{\"type\":\"" type "\",\"status\":\"" status "\",\"message\":\"" message "\"}"

UNIT_TEST(the_workload_says_what_it_waits_for)
{
    static const struct {
        const char *list, *text;
    } t[] = {
        {WORKLOAD("\"status\":{\"conditions\":[" CONDITION(
             "QuotaReserved", "False",
             "couldn't assign flavors to pod set worker: insufficient unused quota for "
             "nvidia.com/gpu in flavor a100, 8 more needed") "]}"),
         "the Workload in queue team-a is not admitted: insufficient unused quota for "
         "nvidia.com/gpu in flavor a100, 8 more needed"},
        {WORKLOAD("\"status\":{\"conditions\":[" CONDITION(
             "QuotaReserved", "False", "LocalQueue team-a doesn't exist") "]}"),
         "the Workload in queue team-a is not admitted: LocalQueue team-a doesn't "
         "exist"},
        {WORKLOAD("\"status\":{\"conditions\":[" CONDITION(
             "QuotaReserved", "True", "") "],\"admissionChecks\":[{\"name\":\"a\","
                                          "\"state\":\"Ready\"},{\"name\":\"nodes\","
                                          "\"state\":\"Pending\",\"message\":\"2 of 8 "
                                          "nodes\"}]}"),
         "the Workload in queue team-a waits for admission check nodes: 2 of 8 nodes"},
        {WORKLOAD("\"status\":{\"conditions\":[" CONDITION(
             "QuotaReserved", "True", "") "," CONDITION("Admitted", "True", "") "]}"),
         "the Workload in queue team-a is admitted"},
        {WORKLOAD("\"status\":{}"),
         "the Workload in queue team-a is not considered yet"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        check_answer(KUBE_WORKLOAD, t[i].list, INQUIRY_FOUND, t[i].text);
    check_answer(KUBE_WORKLOAD, "{\"items\":[]}", INQUIRY_ABSENT, "");
    check_answer(KUBE_WORKLOAD,
                 "{\"items\":[{\"spec\":{\"queueName\":\"q\",\"active\":false}}]}",
                 INQUIRY_FOUND, "the Workload in queue q is deactivated (spec.active)");
}

UNIT_TEST(the_pod_group_says_what_it_waits_for)
{
    static const struct {
        enum kube_kind kind;
        const char *object, *text;
    } t[] = {
        {KUBE_VOLCANO_GROUP,
         "{\"status\":{\"phase\":\"Inqueue\",\"conditions\":[" CONDITION(
             "Unschedulable", "True",
             "5/8 tasks in gang unschedulable: pod group is not ready, 8 minAvailable. "
             "Origin reason is j-worker-3: 0/3 nodes are unavailable: 3 Insufficient "
             "cpu.") "]}}",
         "5 of 8 pods do not fit (Volcano: 0/3 nodes are unavailable: 3 Insufficient "
         "cpu)"},
        {KUBE_VOLCANO_GROUP,
         "{\"spec\":{\"queue\":\"ml\"},\"status\":{\"phase\":\"Pending\"}}",
         "Volcano has not admitted it to queue ml"},
        {KUBE_VOLCANO_GROUP, "{\"status\":{\"phase\":\"Pending\"}}",
         "Volcano has not admitted it to queue default"},
        {KUBE_VOLCANO_GROUP,
         "{\"status\":{\"phase\":\"Running\",\"conditions\":[" CONDITION(
             "Unschedulable", "False", "x") "]}}",
         ""},
        {KUBE_SCHEDULER_GROUP,
         "{\"spec\":{\"minMember\":8},\"status\":{\"phase\":\"Scheduling\"}}",
         "its 8 pods must fit at once"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        check_answer(t[i].kind, t[i].object, INQUIRY_FOUND, t[i].text);
}

/* Without an answer, what was known holds; a refusal or another kind replaces it. */
UNIT_TEST(answers_replace_one_another)
{
    struct inquiry known = {.result = INQUIRY_UNKNOWN};
    CLEANUP(arena_release) struct arena a;
    struct node *o;

    arena_init(&a, 1u << 16);
    assert_int_equal(json_read(&a, "{\"spec\":{\"minMember\":8}}", 24, &o, NULL), 0);
    inquiry_take(&known, KUBE_SCHEDULER_GROUP, INQUIRY_FOUND, o, 100);
    assert_int_equal(known.n_asked, 1);
    inquiry_take(&known, KUBE_SCHEDULER_GROUP, INQUIRY_UNKNOWN, NULL, 130);
    assert_int_equal(known.result, INQUIRY_FOUND);
    assert_string_equal(known.text, "its 8 pods must fit at once");
    assert_int_equal(known.n_asked, 2);
    assert_int_equal(known.asked_s, 130);
    inquiry_take(&known, KUBE_SCHEDULER_GROUP, INQUIRY_DENIED, NULL, 190);
    assert_int_equal(known.result, INQUIRY_DENIED);
    assert_string_equal(known.text, "");
    inquiry_take(&known, KUBE_SCHEDULER_GROUP, INQUIRY_FOUND, o, 1391);
    assert_int_equal(known.n_asked, 1); /* another wait, long after */
    inquiry_take(&known, KUBE_WORKLOAD, INQUIRY_UNKNOWN, NULL, 1400);
    assert_int_equal(known.result, INQUIRY_UNKNOWN);
    assert_string_equal(known.text, "");
    assert_int_equal(known.n_asked, 1);
}

UNIT_MAIN(NULL, NULL)
