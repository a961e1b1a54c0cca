/* SPDX-License-Identifier: Apache-2.0 */
/* The page of one job: its spec without secrets, conditions, pods and live report; and the
 * history of its rates. */
#include "tests/unit/unit.h"

#include <math.h>

#include "operator/page/core/page_entry.h"
#include "tests/unit/op_page_world.h"
#include "tests/unit/torture.h"

#define NOW_S 1767225600ull /* 2026-01-01T00:00:00Z, a multiple of 15 s */

struct detail_case {
    struct page_detail d;
    const struct pod *pods[8];
};

static void case_init(struct detail_case *c, const char *key, const struct node *object)
{
    *c = (struct detail_case){
        .d = {.key = key, .object = object, .now_wall_s = NOW_S, .may_events = true}};
    c->d.pods = c->pods;
}

static void case_add_pod(struct detail_case *c, const struct pod *p)
{
    assert_true(c->d.n_pods < ARRAY_LEN(c->pods));
    c->pods[c->d.n_pods++] = p;
}

static char *text_of(const char *s)
{
    return (char *)(uintptr_t)s; /* struct pod owns its strings only as a copy */
}

static struct pod pod_of(const char *job, const char *name, enum role role)
{
    char *none = text_of("");

    return (struct pod){.ns = none,
                        .name = text_of(name),
                        .uid = none,
                        .owner_uid = none,
                        .job_name = text_of(job),
                        .node = none,
                        .ip = none,
                        .reason = none,
                        .message = none,
                        .waiting = none,
                        .wait_reason = none,
                        .wait_container = none,
                        .hint = none,
                        .exit_container = none,
                        .exit_reason = none,
                        .exit_text = none,
                        .finalizer = none,
                        .conditions = none,
                        .role = role,
                        .phase = POD_RUNNING};
}

/* The page as text, valid until the next one of this world; checked as JSON. */
static const char *case_write(struct page_world *w, const struct detail_case *c)
{
    strbuf_clear(&w->out);
    assert_int_equal(page_table_detail(w->t, &c->d, &w->out), 0);
    (void)page_world_expect_json(w, strbuf_str(&w->out));
    return strbuf_str(&w->out);
}

static void
case_expect(struct page_world *w, const struct detail_case *c, const char *s)
{
    const char *text = case_write(w, c);

    if (!strstr(text, s))
        fail_msg("no %s in %s", s, text);
}

static struct node *
open_job(struct page_world *w, struct detail_case *c, const char *key, const char *yaml)
{
    struct node *o = page_world_read(w, yaml);

    assert_int_equal(page_table_put(w->t, key, o), 0);
    case_init(c, key, o);
    return o;
}

/* --- the page of a job ----------------------------------------------------------- */

UNIT_TEST(a_page_has_the_row_and_the_spec_without_secrets)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct detail_case c;
    const char *text;

    (void)open_job(w, &c, "team/train", page_world_running);
    text = case_write(w, &c);
    assert_non_null(strstr(text, "{\"job\":{\"uid\":\"u1\",\"version\":\"4711\","));
    assert_non_null(strstr(text,
                           "\"percentage\":3}},\"spec\":{\"workers\":2,\"slots\":4,"
                           "\"framework\":\"horovod\",\"image\":\"i\","
                           "\"command\":[\"python\",\"t.py\"]},"
                           "\"conditions\":[{\"type\":\"Running\",\"status\":"
                           "\"True\",\"reason\":\"AllWorkersRunning\"},"));
    assert_non_null(strstr(text, "],\"goodput\":{\"ratio\":\"91%\"},\"pods\":[],"
                                 "\"access\":{\"events\":true,\"log\":false}}"));
    assert_null(strstr(text, "hunter2"));
    assert_null(strstr(text, "TOKEN"));
}

UNIT_TEST(the_program_of_an_mpijob_is_that_of_the_launcher)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct detail_case c;

    (void)open_job(w, &c, "mpijob:a/m",
                   "metadata: {namespace: a, name: m, uid: u, labels: "
                   "{kueue.x-k8s.io/queue-name: q}}\n"
                   "spec: {slotsPerWorker: 2, mpiReplicaSpecs: {Launcher: {template: "
                   "{spec: {containers: [{name: l, image: li, command: [mpirun], args: "
                   "[-n, '4', 5]}]}}}, Worker: {replicas: 3, template: {spec: "
                   "{containers: [{name: w, image: wi}]}}}}}\n");
    case_expect(w, &c,
                "\"spec\":{\"workers\":3,\"slots\":2,\"image\":\"li\",\"command\":"
                "[\"mpirun\",\"-n\",\"4\"],\"queue\":\"q\"}");
}

UNIT_TEST(a_long_command_is_cut)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct node *o = page_world_read(w, page_world_running), *args = node_array(&w->b);
    struct node *container = node_copy(
        &w->b,
        node_item(node_at(o, "spec.replicaSpecs.Worker.template.spec.containers"), 0));
    struct node *list = node_array(&w->b);
    struct detail_case c;
    char word[2001];
    const struct node *command;

    memset(word, 'x', 2000);
    word[2000] = '\0';
    node_add_str(&w->b, args, word);
    for (int i = 0; i < 100; i++)
        node_add_str(&w->b, args, "y");
    node_set(&w->b, container, "args", args);
    node_add(&w->b, list, container);
    node_set(
        &w->b,
        (struct node *)(uintptr_t)node_at(o, "spec.replicaSpecs.Worker.template.spec"),
        "containers", list);
    assert_int_equal(page_table_put(w->t, "team/train", o), 0);
    case_init(&c, "team/train", o);
    command = node_at(page_world_expect_json(w, case_write(w, &c)), "spec.command");
    assert_int_equal(command->n, 65); /* python t.py x... y y ... and the mark */
    assert_int_equal(strlen(node_item(command, 2)->u.s), 1024);
    assert_string_equal(node_item(command, 63)->u.s, "y");
    assert_string_equal(node_item(command, 64)->u.s, "...");
}

UNIT_TEST(the_first_failure_is_passed_on)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct detail_case c;
    struct node *o = open_job(w, &c, "team/train", page_world_running);

    node_set(
        &w->b, node_child(&w->b, o, "status", NODE_OBJECT), "failure",
        page_world_read(w, "{rank: 3, exitCode: 1, message: m, output: \"a\\nb\"}\n"));
    case_expect(w, &c,
                ",\"failure\":{\"rank\":3,\"exitCode\":1,\"message\":\"m\","
                "\"output\":\"a\\nb\"},\"pods\"");
}

UNIT_TEST(pods_say_why_they_wait_and_how_they_ended)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct pod p[4] = {pod_of("train", "train-worker-10", ROLE_WORKER),
                       pod_of("train", "train-worker-2", ROLE_WORKER),
                       pod_of("train", "train-worker-1", ROLE_WORKER),
                       pod_of("train", "\xff\"", -1)};
    struct detail_case c;

    (void)open_job(w, &c, "team/train", page_world_running);
    p[0].is_ready = true;
    p[0].node = text_of("n1");
    p[0].ip = text_of("10.0.0.1");
    p[0].made_wall_us = NOW_S * 1000000u;
    p[0].begin_wall_us = (NOW_S + 1) * 1000000u;
    p[0].exit_wall_us = NOW_S * 1000000u; /* of an earlier end */
    p[1].phase = POD_PENDING;
    p[1].hint = text_of("no such image");
    p[1].wait_reason = text_of("ErrImagePull");
    p[1].is_deleting = true;
    p[2].phase = POD_FAILED;
    p[2].has_exit = true;
    p[2].exit_code = 137;
    p[2].exit_signal = 9;
    p[2].exit_reason = text_of("OOMKilled");
    p[2].exit_text = text_of("the same as in all pods");
    p[2].exit_wall_us = (NOW_S + 2) * 1000000u;
    p[3].reason = text_of("Evicted");
    p[3].wait_reason = text_of("x");
    p[3].message = text_of("disk");
    p[3].waiting = text_of("why");
    p[3].hint = text_of("x");
    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        case_add_pod(&c, &p[i]);
    case_expect(
        w, &c,
        "\"pods\":[{\"name\":\"?\\\"\",\"phase\":\"Running\",\"ready\":false,"
        "\"waiting\":"
        "\"why\",\"reason\":\"Evicted\",\"message\":\"disk\"},"
        "{\"name\":\"train-worker-1\",\"role\":\"worker\",\"index\":1,\"ranks\":\"4-"
        "7\","
        "\"phase\":\"Failed\",\"ready\":false,\"reason\":\"OOMKilled\",\"exitCode\":"
        "137,"
        "\"exitSignal\":9,\"finished\":\"2026-01-01T00:00:02Z\"},"
        "{\"name\":\"train-worker-2\",\"role\":\"worker\",\"index\":2,\"ranks\":\"8-"
        "11\","
        "\"phase\":\"Pending\",\"ready\":false,\"terminating\":true,\"waiting\":\"no "
        "such "
        "image\",\"reason\":\"ErrImagePull\"},"
        "{\"name\":\"train-worker-10\",\"role\":\"worker\",\"index\":10,\"ranks\":"
        "\"40-43\",\"phase\":\"Running\",\"ready\":true,\"node\":\"n1\",\"ip\":"
        "\"10.0.0.1\",\"created\":\"2026-01-01T00:00:00Z\",\"started\":"
        "\"2026-01-01T00:00:01Z\"}]");
}

UNIT_TEST(a_launcher_shows_its_last_line)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"a\nthe end\n", "\"message\":\"the end\",\"exitCode\":1"},
        {"ringmaster-failure/1 rank=1", "\"ready\":false,\"exitCode\":1"},
        {"ringmaster-failure/1 rank=1\nthe end",
         "\"message\":\"the end\",\"exitCode\":1"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(page_world_close) struct page_world *w = page_world_open();
        struct pod p = pod_of("m", "m-launcher-2xq5z", ROLE_LAUNCHER);
        struct detail_case c;

        (void)open_job(w, &c, "mpijob:a/m",
                       "metadata: {namespace: a, name: m, uid: u}\n"
                       "spec: {mpiReplicaSpecs: {Worker: {replicas: 3}}}\n");
        p.has_exit = true;
        p.exit_code = 1;
        p.exit_text = text_of(rows[i].text);
        case_add_pod(&c, &p);
        case_expect(w, &c, rows[i].message);
        assert_null(strstr(strbuf_str(&w->out), "\"index\""));
        assert_null(strstr(strbuf_str(&w->out), "\"ranks\""));
    }
}

UNIT_TEST(the_live_report_has_an_age)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct detail_case c;
    struct live_report r;

    (void)open_job(w, &c, "team/train", page_world_running);
    live_report_init(&r);
    r.state = LIVE_TRAINING;
    c.d.report = &r;
    c.d.report_wall_s = NOW_S - 7;
    case_expect(w, &c, "\"report\":{\"state\":\"Training\",");
    case_expect(w, &c, "},\"reportAge\":7,\"access\"");
    c.d.report_wall_s = NOW_S + 7; /* the clock was set back */
    case_expect(w, &c, "},\"reportAge\":0,\"access\"");
}

UNIT_TEST(what_has_no_row_has_no_page)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct detail_case c;
    struct node *o = open_job(w, &c, "team/train", page_world_running);

    c.d.key = "team/other";
    assert_int_equal(page_table_detail(w->t, &c.d, &w->out), -ENOENT);
    c.d.key = "team/train";
    node_set_str(&w->b, node_child(&w->b, o, "metadata", NODE_OBJECT), "name", "other");
    assert_int_equal(page_table_detail(w->t, &c.d, &w->out), -ENOENT);
    assert_int_equal(w->out.n, 0);
}

struct detail_torture {
    struct page_world *w;
    const struct detail_case *c;
};

static int write_detail(void *arg)
{
    const struct detail_torture *t = arg;
    struct strbuf out;
    int rc;

    strbuf_init(&out, 1u << 20);
    rc = page_table_detail(t->w->t, &t->c->d, &out);
    strbuf_release(&out);
    return rc;
}

/* Every kind of allocation is the first of a block of the arena at some pod. */
UNIT_TEST(without_memory_there_is_no_page)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct pod p = pod_of("m", "m-launcher-0", ROLE_LAUNCHER);
    const struct pod *pods[600];
    char text[2001];
    struct live_report r;
    struct detail_case c;
    struct detail_torture t = {w, &c};

    (void)open_job(w, &c, "mpijob:a/m",
                   "metadata: {namespace: a, name: m, uid: u}\n"
                   "spec: {mpiReplicaSpecs: {Worker: {replicas: 3}}}\n");
    live_report_init(&r);
    page_table_note(w->t, "mpijob:a/m", &r, NOW_S);
    memset(text, 'x', 2000);
    text[2000] = '\0';
    p.exit_text = p.waiting = text;
    for (size_t i = 0; i < ARRAY_LEN(pods); i++)
        pods[i] = &p;
    c.d.pods = pods;
    c.d.n_pods = ARRAY_LEN(pods);
    c.d.report = &r;
    torture(write_detail, &t);
}

/* --- history --------------------------------------------------------------------- */

static void
rate_note(struct page_world *w, const char *key, double rate, uint64_t now_s)
{
    struct live_report r;

    live_report_init(&r);
    r.rates.steps_per_s = rate;
    r.progress.samples_per_s = rate * 10;
    page_table_note(w->t, key, &r, now_s);
}

UNIT_TEST(a_point_is_noted_every_15_s)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct detail_case c;

    rate_note(w, "team/train", 1, NOW_S); /* unknown */
    (void)open_job(w, &c, "team/train", page_world_running);
    assert_null(strstr(case_write(w, &c), "history"));
    rate_note(w, "team/train", 1.5, NOW_S);
    rate_note(w, "team/train", 9, NOW_S + 14); /* too early */
    rate_note(w, "team/train", 1234567, NOW_S + 15);
    rate_note(w, "team/train", -1, NOW_S + 30);
    rate_note(w, "team/train", INFINITY, NOW_S + 45);
    rate_note(w, "team/train", 9, NOW_S + 15); /* late */
    rate_note(w, "team/train", 0, NOW_S + 95); /* after a gap */
    case_expect(w, &c,
                ",\"history\":{\"every\":15,\"end\":\"2026-01-01T00:01:30Z\","
                "\"stepsPerSecond\":[1.5,1.235e+06,null,null,null,null,0],"
                "\"samplesPerSecond\":[15,1.235e+07,null,null,null,null,0],"
                "\"blockedShare\":[null,null,null,null,null,null,null]},\"access\"");
}

static const struct node *read_steps(struct page_world *w, const struct detail_case *c)
{
    return node_at(page_world_expect_json(w, case_write(w, c)),
                   "history.stepsPerSecond");
}

UNIT_TEST(a_history_has_at_most_an_hour)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct detail_case c;
    const struct node *v;

    (void)open_job(w, &c, "team/train", page_world_running);
    for (unsigned i = 0; i < 300; i++)
        rate_note(w, "team/train", i + 0.5, NOW_S + 15 * i);
    v = read_steps(w, &c);
    assert_int_equal(v->n, 240);
    assert_true(v->first->u.d == 60.5 && v->last->u.d == 299.5);
    rate_note(w, "team/train", 7.5, NOW_S + 15 * 1000); /* all others are too old */
    v = read_steps(w, &c);
    assert_int_equal(v->n, 240);
    assert_int_equal(v->first->type, NODE_NULL);
    assert_true(v->last->u.d == 7.5);
    rate_note(w, "team/train", 8.5, NOW_S); /* the clock was set back by hours */
    v = read_steps(w, &c);
    assert_int_equal(v->n, 1);
    assert_true(v->first->u.d == 8.5);
}

UNIT_TEST(a_history_ends_with_its_job)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct detail_case c;
    struct node *o = open_job(w, &c, "team/train", page_world_running);

    rate_note(w, "team/train", 1, NOW_S);
    node_set_str(&w->b, node_child(&w->b, o, "status", NODE_OBJECT), "message", "x");
    assert_int_equal(page_table_put(w->t, "team/train", o), 0);
    assert_non_null(strstr(case_write(w, &c), "history"));
    node_set_str(&w->b, node_child(&w->b, o, "metadata", NODE_OBJECT), "uid", "u2");
    assert_int_equal(page_table_put(w->t, "team/train", o), 0);
    assert_null(strstr(case_write(w, &c), "history"));
}

static bool has_history(struct page_world *w, unsigned job)
{
    char key[32];
    const struct page_entry *e;

    (void)snprintf(key, sizeof(key), "a/j%u", job);
    e = keyed_find(&w->t->rows, key);
    return e->history != NULL;
}

UNIT_TEST(the_histories_of_idle_jobs_go_first)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    const unsigned max = PAGE_HISTORIES_N;
    char text[120], key[32];

    for (unsigned i = 0; i < max + 2; i++) {
        (void)snprintf(key, sizeof(key), "a/j%u", i);
        (void)snprintf(text, sizeof(text),
                       "metadata: {namespace: a, name: j%u, uid: u%u}\nspec: {}\n", i,
                       i);
        page_world_put(w, key, text, 0);
        rate_note(w, key, 1, NOW_S);
    }
    assert_int_equal(w->t->n_histories, max);
    assert_true(has_history(w, max - 1));
    assert_false(has_history(w, max)); /* all others are in use */
    rate_note(w, "a/j0", 1, NOW_S + PAGE_HISTORY_IDLE_S);
    (void)snprintf(key, sizeof(key), "a/j%u", max);
    rate_note(w, key, 1, NOW_S + PAGE_HISTORY_IDLE_S);
    assert_int_equal(w->t->n_histories, max);
    assert_true(has_history(w, max));
    assert_true(has_history(w, 0));
    assert_false(has_history(w, 1));
    assert_true(has_history(w, 2));
    assert_int_equal(page_table_put(w->t, "a/j2", NULL), 0);
    assert_int_equal(w->t->n_histories, max - 1);
}

UNIT_TEST(without_memory_there_is_no_history)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct detail_case c;

    (void)open_job(w, &c, "team/train", page_world_running);
    mem_fail_after(0);
    rate_note(w, "team/train", 1, NOW_S);
    assert_true(mem_fail_fired());
    mem_fail_after(-1);
    assert_int_equal(w->t->n_histories, 0);
    rate_note(w, "team/train", 1, NOW_S);
    assert_int_equal(w->t->n_histories, 1);
}

UNIT_MAIN(NULL, NULL)
