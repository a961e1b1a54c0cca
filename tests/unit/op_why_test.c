/* SPDX-License-Identifier: Apache-2.0 */
/* Why a job does not run: one sentence for what its pods, the API server, the PodGroup and
 * Kueue say at once. */
#include "tests/unit/unit.h"

#include "operator/core/why.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"
#include "runtime/live/live_report.h"
#include "tests/unit/op_why_rows.h"
#include "tests/unit/torture.h"

static struct pod *row_pod(
    struct arena *a, const char *status, const char *hint, uint32_t i, bool is_bound)
{
    char *conditions = arena_alloc(a, POD_CONDITIONS_SIZE);
    struct pod *p = arena_alloc(a, sizeof(*p));
    char *json = arena_printf(
        a,
        "{'metadata':{'namespace':'ns','name':'j-worker-%u','uid':'u%u',"
        "'creationTimestamp':'1970-01-01T00:14:00Z'},'spec':{%s'containers':[{'name':"
        "'main'}],'initContainers':[{'name':'fetch'}]},'status':{%s}}",
        i, i, is_bound ? arena_printf(a, "'nodeName':'n%u',", i) : "", status);
    struct err err = ERR_INIT;
    struct node *object;

    /* ' stands for ", and " for \" */
    CLEANUP(strbuf_release) struct strbuf text = {0};
    strbuf_init(&text, 65536);
    for (const char *c = json; *c; c++)
        strbuf_puts(&text, *c == '\'' ? "\"" : *c == '"' ? "\\\"" : (char[]){*c, 0});
    if (json_read(a, strbuf_str(&text), text.n, &object, &err) < 0
        || pod_decode(KUBE_JOB, object, conditions, p, &err) < 0)
        fail_msg("%s: %s", strbuf_str(&text), err.text);
    if (hint)
        p->hint = arena_strdup(a, hint);
    p->role = ROLE_WORKER;
    return p;
}

static void row_check(const struct why_row *t)
{
    struct job_meta job = {.ns = "ns", .name = "j", .kueue_queue = ""};
    struct worker w[PODS] = {{.state = WORKER_ABSENT}};
    struct inquiry group = {.kind = KUBE_VOLCANO_GROUP};
    struct observed seen = {.crew[ROLE_WORKER] = {.w = w, .n = PODS},
                            .inquiry = &group};
    struct job_shape shape = {.n[ROLE_WORKER] = PODS};
    struct sync_outcome outcome = {.reason = "", .message = ""};
    struct why_query q = {.job = &job,
                          .seen = &seen,
                          .shape = &shape,
                          .outcome = &outcome,
                          .n_pods = PODS,
                          .is_gang = t->group != NULL,
                          .now_wall_s = NOW_S};
    CLEANUP(arena_release) struct arena a;
    struct why why, again;

    arena_init(&a, 1u << 20);
    for (uint32_t i = 0; i < PODS; i++) {
        if (!t->pod[i])
            continue;
        w[i].state = WORKER_SEEN;
        w[i].pod = row_pod(&a, t->pod[i], t->hint[i], i,
                           *t->pod[i] && !strstr(t->pod[i], "Unschedulable"));
        q.n_running += w[i].pod->phase == POD_RUNNING;
    }
    if (t->outcome)
        outcome = (struct sync_outcome){
            .trouble = TROUBLE_RETRY, .reason = "CreateFailed", .message = t->outcome};
    if (t->group) {
        group.result = INQUIRY_FOUND;
        group.asked_s = NOW_S - 10;
        (void)snprintf(group.text, sizeof(group.text), "%s", t->group);
    }
    assert_int_equal(why_not_running(&q, &a, &why), 0);
    if (strcmp(why.text, t->text) != 0 || why.first != t->first)
        fail_msg("%s\n  got:    %s (%d)\n  wanted: %s (%d)", t->name, why.text,
                 (int)why.first, t->text, (int)t->first);
    if (!strstr(why.text, why.detail))
        fail_msg("%s: the detail is not in the text: %s", t->name, why.detail);
    q.now_wall_s += 3600;
    assert_int_equal(why_not_running(&q, &a, &again), 0);
    if (strcmp(why.text, again.text) != 0)
        fail_msg("%s: an hour later: %s", t->name, again.text);
}

UNIT_TEST(the_first_obstacle_is_named_first)
{
    assert_true(ARRAY_LEN(rows) >= 40);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        row_check(&rows[i]);
}

/* What a PodGroup said of earlier pods is not said of new ones. */
UNIT_TEST(an_old_answer_does_not_count)
{
    struct job_meta job = {.ns = "ns", .name = "j", .kueue_queue = ""};
    struct inquiry group = {
        .kind = KUBE_VOLCANO_GROUP, .result = INQUIRY_FOUND, .text = "of the PodGroup"};
    struct worker w = {.state = WORKER_SEEN};
    struct observed seen = {.crew[ROLE_WORKER] = {.w = &w, .n = 1}, .inquiry = &group};
    struct job_shape shape = {.n[ROLE_WORKER] = 1};
    struct sync_outcome outcome = {.reason = "", .message = ""};
    struct why_query q = {.job = &job,
                          .seen = &seen,
                          .shape = &shape,
                          .outcome = &outcome,
                          .n_pods = 1,
                          .is_gang = true,
                          .now_wall_s = NOW_S};
    CLEANUP(arena_release) struct arena a;
    struct why why;

    arena_init(&a, 1u << 20);
    w.pod = row_pod(&a, UNSCHEDULED(NO_GPU), NULL, 0, false); /* of second 840 */
    for (uint64_t asked_s = 839; asked_s < 841; asked_s++) {
        group.asked_s = asked_s;
        assert_int_equal(why_not_running(&q, &a, &why), 0);
        assert_int_equal(why.first,
                         asked_s < 840 ? OBSTACLE_SCHEDULER : OBSTACLE_GROUP);
    }
}

UNIT_TEST(the_start_of_an_init_container_is_a_change)
{
    CLEANUP(arena_release) struct arena a;
    const struct pod *waits, *runs;

    arena_init(&a, 1u << 20);
    waits = row_pod(&a, INIT("'waiting':{'reason':'PodInitializing'}"), NULL, 0, true);
    runs = row_pod(&a, INIT("'running':{'startedAt':'1970-01-01T00:15:00Z'}"), NULL, 0,
                   true);
    assert_false(pod_equal(waits, runs));
    assert_true(pod_equal(runs, runs));
}

static int why_in_little_memory(void *arg)
{
    struct why_query q = *(const struct why_query *)arg;
    struct inquiry known = {
        .kind = KUBE_WORKLOAD, .result = INQUIRY_FOUND, .asked_s = 1, .text = "t"};
    struct job_meta job = {.name = "j", .kueue_queue = "q"};
    CLEANUP(arena_release) struct arena a;
    struct why why;
    int rc;

    arena_init(&a, 1u << 20);
    rc = why_not_running(&q, &a, &why);
    if (rc == 0 && !why_suspended(&job, &known, 0, &a))
        rc = -ENOMEM;
    return rc;
}

UNIT_TEST(memory_may_run_out)
{
    static const char *const status[] = {UNSCHEDULED(NO_GPU),
                                         WAITS("ErrImagePull", PULL)};
    struct job_meta job = {.ns = "ns", .name = "j", .kueue_queue = ""};
    struct inquiry group = {
        .kind = KUBE_SCHEDULER_GROUP, .result = INQUIRY_FOUND, .asked_s = NOW_S};
    struct worker w[2];
    struct observed seen = {.crew[ROLE_WORKER] = {.w = w, .n = 2}, .inquiry = &group};
    struct job_shape shape = {.n[ROLE_WORKER] = 2};
    struct sync_outcome outcome = {
        .trouble = TROUBLE_RETRY, .reason = "CreateFailed", .message = QUOTA};
    struct why_query q = {.job = &job,
                          .seen = &seen,
                          .shape = &shape,
                          .outcome = &outcome,
                          .n_pods = 2,
                          .is_gang = true,
                          .now_wall_s = NOW_S};
    CLEANUP(arena_release) struct arena a;

    arena_init(&a, 1u << 20);
    (void)snprintf(group.text, sizeof(group.text), "its 2 pods must fit at once");
    for (uint32_t i = 0; i < 2; i++)
        w[i] = (struct worker){.state = WORKER_SEEN,
                               .pod = row_pod(&a, status[i], NULL, i, i == 1)};
    torture(why_in_little_memory, &q);
}

/* A normal start passes through these in seconds. */
UNIT_TEST(a_wait_is_named_when_it_has_lasted)
{
    static const struct {
        const char *status;
        uint64_t since_s; /* of the wait */
    } t[] = {{"", 840},
             {CREATING, 900},
             {INIT("'running':{'startedAt':'1970-01-01T00:15:00Z'}"), 900}};

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(arena_release) struct arena a;
        struct job_meta job = {.ns = "ns", .name = "j"};
        struct sync_outcome outcome = {.reason = "", .message = ""};
        struct worker w = {.state = WORKER_SEEN};
        struct observed seen = {.crew[ROLE_WORKER] = {.w = &w, .n = 1}};
        struct job_shape shape = {.n[ROLE_WORKER] = 1};
        struct why_query q = {.job = &job,
                              .seen = &seen,
                              .shape = &shape,
                              .outcome = &outcome,
                              .n_pods = 1,
                              .now_wall_s = t[i].since_s + 19};
        struct why why;

        arena_init(&a, 1u << 20);
        w.pod = row_pod(&a, t[i].status, NULL, 0, *t[i].status);
        assert_int_equal(why_not_running(&q, &a, &why), 0);
        assert_string_equal(why.text, "0 of 1 workers run");
        if (!strstr(t[i].status, "Creating")) /* explain_next_s() has that one */
            assert_int_equal(why_next_s(&seen, q.now_wall_s), t[i].since_s + 20);
        q.now_wall_s++;
        assert_int_equal(why_not_running(&q, &a, &why), 0);
        assert_true(why.first != OBSTACLE_NONE);
        assert_int_equal(why_next_s(&seen, q.now_wall_s), 0);
    }
}

UNIT_TEST(a_suspended_job_names_kueue)
{
    static const struct {
        const char *queue;
        struct inquiry known;
        const char *text;
    } t[] = {
        {"", {0}, "the job is suspended by spec.runPolicy.suspend"},
        {"q",
         {0},
         "the job is suspended by spec.runPolicy.suspend; its label names Kueue's "
         "queue q"},
        {"q",
         {.kind = KUBE_WORKLOAD,
          .result = INQUIRY_FOUND,
          .asked_s = 100,
          .text = "the Workload in queue q is not admitted: no"},
         "suspended by Kueue: the Workload in queue q is not admitted: no"},
        {"q",
         {.kind = KUBE_WORKLOAD,
          .result = INQUIRY_FOUND,
          .asked_s = 99,
          .text = "of an earlier suspension"},
         "the job is suspended by spec.runPolicy.suspend; its label names Kueue's "
         "queue q"},
        {"q",
         {.kind = KUBE_WORKLOAD, .result = INQUIRY_ABSENT, .asked_s = 100},
         "the job is suspended by spec.runPolicy.suspend; Kueue has no Workload for "
         "it, "
         "though its label names queue q: does Kueue manage this kind of job?"},
        {"q",
         {.kind = KUBE_WORKLOAD, .result = INQUIRY_DENIED, .asked_s = 100},
         "the job is suspended by spec.runPolicy.suspend; its label names Kueue's "
         "queue q"},
        {"",
         {.kind = KUBE_WORKLOAD, .result = INQUIRY_FOUND, .asked_s = 100, .text = "x"},
         "the job is suspended by spec.runPolicy.suspend"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(arena_release) struct arena a;
        struct job_meta job = {.name = "j", .kueue_queue = t[i].queue};

        arena_init(&a, 1u << 16);
        assert_string_equal(why_suspended(&job, &t[i].known, 100, &a), t[i].text);
    }
}

UNIT_TEST(agents_that_do_not_meet_are_counted)
{
    static const struct {
        enum live_state state;
        uint32_t n_present;
        uint64_t meeting_ms;
        bool is_named;
    } t[] = {{LIVE_MEETING, 7, 20000, true},
             {LIVE_MEETING, 7, 19999, false},
             {LIVE_MEETING, 8, 20000, false},
             {LIVE_TRAINING, 7, 20000, false}};
    struct job_meta job = {.name = "j"};
    CLEANUP(arena_release) struct arena a;

    arena_init(&a, 1u << 16);
    assert_string_equal(why_not_met(&job, NULL, &a), "");
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct live_report live = {.state = t[i].state,
                                   .n_workers = 8,
                                   .n_present = t[i].n_present,
                                   .times.meeting_ms = t[i].meeting_ms};

        assert_string_equal(why_not_met(&job, &live, &a),
                            t[i].is_named
                                ? "; only 7 of 8 agents have reached worker 0: see the "
                                  "logs of j-worker-*; DNS or a NetworkPolicy may stop "
                                  "them"
                                : "");
    }
}

UNIT_MAIN(NULL, NULL)
