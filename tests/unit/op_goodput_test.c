/* SPDX-License-Identifier: Apache-2.0 */
/* What is read from .status.goodput, and the words for it. */
#include "tests/unit/unit.h"

#include "tests/unit/op_ledger_tale.h"

UNIT_TEST(a_goodput_that_does_not_add_up_is_not_used)
{
#define HEAD                                                                           \
    "{\"startTime\":\"2026-01-01T00:00:00Z\",\"time\":\"2026-01-01T00:00:10Z\","
#define OPEN "\"current\":{\"part\":\"down\",\"since\":\"2026-01-01T00:00:0"
    static const struct {
        const char *text;
        bool is_read;
    } rows[] = {
        {HEAD "\"seconds\":{\"down\":10}," OPEN "4Z\"}}", true},
        {HEAD "\"seconds\":{\"down\":10}}", true},
        {HEAD "\"seconds\":{\"down\":9}," OPEN "4Z\"}}", false},
        {HEAD "\"seconds\":{\"down\":-10,\"queued\":10}," OPEN "4Z\"}}", false},
        {HEAD "\"seconds\":{\"down\":10},\"current\":{\"part\":\"up\"}}", false},
        {HEAD "\"seconds\":{\"down\":10},\"current\":{\"part\":\"down\"}}", false},
        {"{\"seconds\":{\"down\":10}}", false},
        {"{}", false},
        {"{\"seconds\":7}", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(arena_release) struct arena a;
        struct node *o;
        struct ledger l;

        arena_init(&a, 1u << 16);
        assert_int_equal(json_read(&a, rows[i].text, strlen(rows[i].text), &o, NULL),
                         0);
        if (goodput_read(o, &l) != rows[i].is_read)
            fail_msg("%s", rows[i].text);
        if (rows[i].is_read)
            assert_true(l.seconds[LEDGER_DOWN] <= 10);
    }
    assert_false(goodput_read(NULL, &(struct ledger){0}));
}

UNIT_TEST(the_sentence_has_the_largest_parts_first)
{
    CLEANUP(arena_release) struct arena a;
    struct tale t;

    arena_init(&a, 1u << 16);
    tale_begin(&t);
    t.v.waiting = "insufficient nvidia.com/gpu";
    tale_pods(&t, 1, 0, 0);
    tale_sync(&t, 10);
    t.v.waiting = "";
    tale_pods(&t, 1, 461, 480);
    tale_report(&t, 9001, 480, SHARE_TRAINING, (const uint32_t[]){0, 0, 8521, 0}, 90,
                0);
    tale_fail(&t, 9001, 9001, "WorkerFailed");
    tale_restart(&t);
    tale_pods(&t, 9101, 9101, 9101);
    tale_report(&t, 9461, 9101, SHARE_TRAINING, (const uint32_t[]){0, 0, 360, 0}, 90,
                0);
    tale_report(&t, 11521, 9101, SHARE_TRAINING, (const uint32_t[]){0, 0, 2420, 0}, 99,
                0);
    assert_string_equal(
        goodput_sentence(&a, &t.l),
        "of 3 h 12 min (24 GPU h): training 92 %, queued 4 % (insufficient "
        "nvidia.com/gpu), repeated 3 % (WorkerFailed, 1 restart), down 1 % "
        "(WorkerFailed, 1 restart), pulling under 1 %");
    tale_begin(&t);
    assert_string_equal(goodput_sentence(&a, &t.l), "of 0 s: training 0 %");
}

UNIT_TEST(problems_of_pods_have_short_names)
{
    static const struct {
        const char *text, *reason;
        bool is_scheduled;
    } rows[] = {
        {"0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
         "insufficient nvidia.com/gpu", false},
        {"0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory.",
         "insufficient cpu", false},
        {"5 of 8 pods do not fit (Volcano: 0/3 nodes are unavailable: 3 Insufficient "
         "nvidia.com/gpu)",
         "insufficient nvidia.com/gpu", false},
        {"0/1 nodes are available: 1 node(s) had untolerated taint {a: b}.", "taints",
         false},
        {"0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector",
         "node selector", false},
        {"pod has unbound immediate PersistentVolumeClaims", "volume", false},
        {"Back-off pulling image \"x\"", "image", true},
        {"ImagePullBackOff", "image", true},
        {"MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found",
         "volume", true},
        {"configmap \"c\" not found", "ConfigMap", true},
        {"pods \"p\" is forbidden: exceeded quota: q", "quota", false},
        {"CrashLoopBackOff", "not started", true},
        {"what nobody expects", "not scheduled", false},
    };
    char reason[LEDGER_REASON_SIZE];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        goodput_waiting_reason(rows[i].text, rows[i].is_scheduled, reason);
        assert_string_equal(reason, rows[i].reason);
    }
}

UNIT_MAIN(NULL, NULL)
