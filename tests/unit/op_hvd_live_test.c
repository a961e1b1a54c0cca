/* SPDX-License-Identifier: Apache-2.0 */
/* What a live report changes in the status of a HorovodJob: progress, the conditions
 * Stalled and Straggling with their Events, and which pod is asked. */
#include "tests/unit/unit.h"

#include "operator/core/front.h"
#include "operator/core/state.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"

#define NOW_S 1767225600ull /* 2026-01-01T00:00:00Z */

struct live_world {
    struct arena a;
    struct build b;
    struct live_report r;
    bool has_report;
    const char *spec, *status, *phase; /* of the job; of its pods */
    struct decision d;
};

static void live_open(struct live_world *w)
{
    *w = (struct live_world){.has_report = true, .phase = "Running", .spec = ""};
    arena_init(&w->a, 8u << 20);
    w->b = (struct build){.arena = &w->a};
    live_report_init(&w->r);
    w->r.state = LIVE_TRAINING;
}

static struct node *live_read(struct live_world *w, const char *json)
{
    struct node *o;

    assert_int_equal(json_read(&w->a, json, strlen(json), &o, NULL), 0);
    return o;
}

static const struct pod *live_pod(struct live_world *w, const char *role, uint32_t i)
{
    struct pod *p = arena_alloc(&w->a, sizeof(*p));
    const char *json = arena_printf(
        &w->a,
        "{\"metadata\":{\"namespace\":\"ns\",\"name\":\"demo-%s-%u\",\"uid\":\"%c%"
        "u\","
        "\"labels\":{\"ringmaster.dev/job-name\":\"demo\",\"ringmaster.dev/job-role\":"
        "\"%s\",\"ringmaster.dev/generation\":\"1\"},\"annotations\":{"
        "\"ringmaster.dev/world\":\"1 2\"},\"ownerReferences\":[{\"controller\":true,"
        "\"kind\":\"HorovodJob\",\"uid\":\"u\"}]},\"spec\":{\"nodeName\":\"n%u\"},"
        "\"status\":{\"phase\":\"%s\",\"podIP\":\"10.0.%d.%u\"}}",
        role, i, *role == 'w' ? 'p' : 'l', i, role, i, w->phase, *role == 'l', i);

    assert_non_null(json);
    assert_int_equal(pod_decode(KUBE_JOB, live_read(w, json),
                                arena_alloc(&w->a, POD_CONDITIONS_SIZE), p, NULL),
                     0);
    return p;
}

static void live_decide(struct live_world *w)
{
    const char *json = arena_printf(
        &w->a,
        "{\"metadata\":{\"namespace\":\"ns\",\"name\":\"demo\",\"uid\":\"u\","
        "\"generation\":"
        "1},\"spec\":{%s\"replicaSpecs\":{\"Worker\":{\"replicas\":2,\"template\":{"
        "\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"command\":[\"x\"]}"
        "]}}}}"
        "}%s%s}",
        w->spec, w->status ? ",\"status\":" : "", w->status ? w->status : "");
    const struct object_config cfg = {
        .runtime_image = "r", .cluster_domain = "", .gang_scheduler = ""};
    const struct sync_outcome outcome = {.reason = "", .message = ""};
    const struct priorities none = {0};
    struct worker workers[2], launcher;
    struct observed seen = {.live_wall_s = NOW_S - 2};
    struct question q = {.seen = &seen,
                         .outcome = &outcome,
                         .cfg = &cfg,
                         .priorities = &none,
                         .now_wall_s = NOW_S,
                         .arena = &w->a};
    struct node *object;
    struct job_meta meta;
    struct strbuf problems;

    assert_non_null(json);
    object = live_read(w, json);
    assert_int_equal(meta_decode(KUBE_JOB, object, &meta, NULL), 0);
    strbuf_init(&problems, 4096);
    q.job = front_horovodjob.open(object, &meta, &w->a, &problems);
    assert_non_null(q.job);
    assert_string_equal(strbuf_str(&problems), "");
    strbuf_release(&problems);
    for (uint32_t i = 0; i < 2; i++)
        workers[i] =
            (struct worker){.state = WORKER_SEEN, .pod = live_pod(w, "worker", i)};
    seen.crew[ROLE_WORKER] = (struct crew){.w = workers, .n = 2};
    launcher = (struct worker){.state = WORKER_SEEN, .pod = live_pod(w, "launcher", 0)};
    if (strstr(w->spec, "elasticPolicy"))
        seen.crew[ROLE_LAUNCHER] = (struct crew){.w = &launcher, .n = 1};
    seen.live = w->has_report ? &w->r : NULL;
    for (int k = 0; k < KUBE_KIND_COUNT; k++)
        seen.fact[k].state = FACT_THERE;
    assert_int_equal(front_horovodjob.decide(&q, &w->d), 0);
}

/* The next sync begins with the status of the last one. */
static void live_store(struct live_world *w)
{
    struct strbuf text;

    strbuf_init(&text, 1u << 16);
    json_write(w->d.status, &text);
    w->status = arena_strdup(&w->a, strbuf_str(&text));
    strbuf_release(&text);
    assert_non_null(w->status);
}

static void live_run(struct live_world *w)
{
    w->status = "{\"generation\":1,\"workerReplicas\":2,\"conditions\":[{\"type\":"
                "\"Created\",\"status\":\"True\"},{\"type\":\"Running\",\"status\":"
                "\"True\",\"lastTransitionTime\":\"2025-01-01T00:00:00Z\"}]}";
    live_decide(w);
    assert_int_equal(w->d.state, STATE_RUNNING);
    live_store(w);
}

static void live_expect_condition(const struct live_world *w,
                                  const char *type,
                                  const char *status,
                                  const char *reason,
                                  const char *message)
{
    const struct node *c = condition_find(w->d.status, type);

    assert_non_null(c);
    assert_string_equal(node_str(c, "status"), status);
    assert_string_equal(node_str(c, "reason"), reason);
    assert_string_equal(node_str(c, "message"), message);
}

static void live_expect_events(const struct live_world *w, const char *reasons)
{
    char text[200] = "";

    for (size_t i = 0; i < w->d.n_notes; i++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s%s",
                       *text ? " " : "", w->d.note[i].is_warning ? "!" : "",
                       w->d.note[i].reason);
    assert_string_equal(text, reasons);
}

static void live_expect_target(const struct live_world *w,
                               const char *address,
                               const char *run,
                               const char *job_id)
{
    assert_string_equal(w->d.ask.address, address);
    assert_int_equal(w->d.ask.port, 7171);
    assert_string_equal(w->d.ask.run, run);
    assert_string_equal(w->d.ask.secret, "demo-token");
    assert_string_equal(w->d.ask.job_id, job_id);
}

static void live_stall(struct live_world *w, const char *text)
{
    w->r.state = LIVE_STALLED;
    w->r.stall = (struct live_stall){.since_wall_us = 1, .rank = 1};
    w->r.stall.cause = LIVE_CAUSE_STOPPED;
    (void)snprintf(w->r.stall.text, sizeof(w->r.stall.text), "%s", text);
}

UNIT_TEST(a_report_becomes_progress)
{
    struct live_world w;

    live_open(&w);
    w.r.progress.step = 5;
    live_run(&w);
    assert_int_equal(node_int(w.d.status, "progress.step", -1), 5);
    assert_string_equal(node_str(w.d.status, "progress.updateTime"),
                        "2025-12-31T23:59:58Z");
    w.has_report = false;
    live_decide(&w);
    assert_int_equal(node_int(w.d.status, "progress.step", -1), 5);
    w.has_report = true; /* of a new start: nothing is known yet */
    live_report_init(&w.r);
    w.r.rates.steps_per_s = 1;
    live_decide(&w);
    assert_int_equal(node_int(w.d.status, "progress.step", -1), 5);
    arena_release(&w.a);
}

UNIT_TEST(the_last_progress_stays_when_the_job_has_finished)
{
    struct live_world w;

    live_open(&w);
    w.r.progress.step = 5;
    w.r.progress.total_steps = 9;
    w.r.rates.steps_per_s = 1;
    live_run(&w);
    assert_non_null(node_str(w.d.status, "progress.eta"));
    w.r.progress.step = 8;
    w.phase = "Succeeded";
    live_decide(&w);
    assert_int_equal(w.d.state, STATE_SUCCEEDED);
    assert_int_equal(node_int(w.d.status, "progress.step", -1), 8);
    assert_null(node_str(w.d.status, "progress.eta"));
    assert_null(node_str(w.d.status, "progress.remaining"));
    live_store(&w);
    w.r.progress.step = 9;
    live_decide(&w);
    assert_int_equal(node_int(w.d.status, "progress.step", -1), 8);
    arena_release(&w.a);
}

UNIT_TEST(a_job_that_is_suspended_keeps_its_progress_without_its_end)
{
    struct live_world w;

    live_open(&w);
    w.r.progress.step = 5;
    w.r.progress.total_steps = 900;
    w.r.rates.steps_per_s = 1;
    live_run(&w);
    w.has_report = false;
    w.spec = "\"runPolicy\":{\"suspend\":true},";
    live_decide(&w);
    assert_int_equal(w.d.state, STATE_SUSPENDED);
    assert_int_equal(node_int(w.d.status, "progress.step", -1), 5);
    assert_null(node_str(w.d.status, "progress.eta"));
    assert_null(w.d.ask.address);
    arena_release(&w.a);
}

UNIT_TEST(a_stall_is_a_condition_with_one_event_at_each_end)
{
    struct live_world w;

    live_open(&w);
    live_run(&w);
    assert_null(condition_find(w.d.status, "Stalled"));
    live_stall(&w, "rank 1 is stopped");
    live_decide(&w);
    live_expect_condition(&w, "Stalled", "True", "Stopped",
                          "rank 1 is stopped (node n1)");
    live_expect_events(&w, "!JobStalled");
    assert_string_equal(w.d.note[0].message, "rank 1 is stopped (node n1)");
    live_store(&w);
    live_stall(&w, "rank 1 is still stopped");
    live_decide(&w);
    live_expect_condition(&w, "Stalled", "True", "Stopped",
                          "rank 1 is still stopped (node n1)");
    live_expect_events(&w, "");
    w.has_report = false; /* unknown is no end */
    live_decide(&w);
    live_expect_condition(&w, "Stalled", "True", "Stopped",
                          "rank 1 is stopped (node n1)");
    w.has_report = true;
    live_report_init(&w.r);
    live_decide(&w);
    live_expect_condition(&w, "Stalled", "False", "StallEnded", "the job continues");
    live_expect_events(&w, "StallEnded");
    live_store(&w);
    live_decide(&w);
    live_expect_condition(&w, "Stalled", "False", "StallEnded", "the job continues");
    live_expect_events(&w, "");
    arena_release(&w.a);
}

UNIT_TEST(a_straggler_is_named_with_its_node)
{
    struct live_world w;

    live_open(&w);
    live_run(&w);
    w.r.straggler =
        (struct live_straggler){.rank = 3, .worker = 0, .cost_s = 2, .share = 0.5};
    live_decide(&w);
    live_expect_condition(
        &w, "Straggling", "True", "RankSlow",
        "rank 3 on an unknown host delays all other ranks by about 2 s "
        "(50%) of each step (node n0)");
    live_expect_events(&w, "!JobStraggling");
    live_store(&w);
    live_report_init(&w.r);
    live_decide(&w);
    live_expect_events(&w, "StragglingEnded");
    arena_release(&w.a);
}

UNIT_TEST(conditions_end_with_the_job)
{
    struct live_world w;

    live_open(&w);
    live_run(&w);
    live_stall(&w, "t");
    live_decide(&w);
    live_store(&w);
    w.phase = "Succeeded";
    live_decide(&w);
    live_expect_condition(&w, "Stalled", "False", "JobFinished",
                          "the pods of that time have ended");
    live_expect_events(&w, "JobSucceeded Goodput");
    arena_release(&w.a);
}

UNIT_TEST(nothing_is_reported_of_a_job_that_does_not_run_yet)
{
    struct live_world w;

    live_open(&w);
    w.phase = "Pending";
    live_stall(&w, "t");
    w.r.progress.step = 1;
    live_decide(&w);
    assert_int_equal(w.d.state, STATE_PENDING);
    assert_null(node_get(w.d.status, "progress"));
    assert_null(condition_find(w.d.status, "Stalled"));
    arena_release(&w.a);
}

UNIT_TEST(the_agent_of_worker_0_is_asked_while_it_runs)
{
    struct live_world w;

    live_open(&w);
    live_run(&w);
    live_expect_target(&w, "10.0.0.0", "p0", "ns/demo/u");
    w.phase = "Pending";
    live_decide(&w);
    assert_null(w.d.ask.address);
    w.phase = "Succeeded";
    live_decide(&w);
    assert_null(w.d.ask.address);
    w.phase = "Running";
    w.spec = "\"framework\":\"tensorflow\",";
    live_decide(&w);
    assert_null(w.d.ask.address);
    arena_release(&w.a);
}

UNIT_TEST(the_launcher_of_an_elastic_job_is_asked)
{
    struct live_world w;

    live_open(&w);
    w.spec = "\"elasticPolicy\":{\"minReplicas\":1,\"maxReplicas\":2},";
    live_run(&w);
    live_expect_target(&w, "10.0.1.0", "l0", "horovodrun/u");
    live_stall(&w, "rank 0 on demo-worker-1 is stopped"); /* not on worker 0 */
    w.r.stall.rank = 0;
    (void)snprintf(w.r.stall.host, sizeof(w.r.stall.host), "demo-worker-1.demo.ns.svc");
    live_decide(&w);
    live_expect_condition(&w, "Stalled", "True", "Stopped",
                          "rank 0 on demo-worker-1 is stopped (node n1)");
    w.phase = "Pending";
    live_decide(&w);
    assert_null(w.d.ask.address);
    arena_release(&w.a);
}

/* The status that an old CRD did not keep must not be sent again for progress alone. */
UNIT_TEST(progress_does_not_count_in_a_status_without_times)
{
    struct live_world w;
    struct node *a, *b;

    live_open(&w);
    w.r.progress.step = 5;
    live_run(&w);
    a = status_timeless(&w.b, w.d.status);
    assert_true(status_is_progress(&w.b, live_read(&w, w.status), w.d.status));
    w.r.progress.step = 6;
    live_decide(&w);
    b = status_timeless(&w.b, w.d.status);
    assert_false(node_equal(live_read(&w, w.status), w.d.status));
    assert_true(node_equal(a, b));
    assert_true(status_is_progress(&w.b, live_read(&w, w.status), w.d.status));
    assert_true(status_is_report(&w.b, live_read(&w, w.status), w.d.status));
    assert_false(status_needs_sync(&w.b, live_read(&w, w.status), w.d.status));
    b = live_read(&w, w.status);
    node_drop(b, "startTime");
    assert_false(status_is_report(&w.b, b, w.d.status));
    live_stall(&w, "t");
    live_decide(&w);
    assert_false(status_is_report(&w.b, live_read(&w, w.status), w.d.status));
    assert_false(status_is_progress(&w.b, live_read(&w, w.status), w.d.status));
    arena_release(&w.a);
}

UNIT_MAIN(NULL, NULL)
