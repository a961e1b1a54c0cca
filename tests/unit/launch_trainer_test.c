/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of trainers: what is read, what becomes of it, who may report. The way from
 * Transformers' own callback is tests/launch/trainer_test.py. */
#include <math.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/trainer.h"
#include "runtime/launch/trainer_json.h"
#include "runtime/live/live_progress.h"
#include "tests/unit/torture.h"

static char dir[] = "/tmp/hvd-trainer-XXXXXX";

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char path[64];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/trainer-token", dir);
    (void)unlink(path);
    return rmdir(dir);
}

static struct trainer_report read_body(const char *text)
{
    struct trainer_report r;
    struct err e = ERR_INIT;

    if (trainer_json_read(text, strlen(text), &r, &e) < 0)
        fail_msg("%s: %s", text, e.text);
    return r;
}

/* --- bodies --- */

static int read_once(void *text)
{
    struct trainer_report r;

    return trainer_json_read(text, strlen(text), &r, NULL);
}

/* The string ends where jansson's buffer is full. */
UNIT_TEST(a_body_without_memory_for_it_is_refused)
{
    char text[] = "{\"trainerStatus\": {}, \"message\": \"14 characters.\"}";

    torture(read_once, text);
}

UNIT_TEST(a_report_of_transformers_is_read)
{
    struct trainer_report r = read_body(
        "{\"trainerStatus\": {\"lastUpdatedTime\": \"2026-11-29T22:00:00.1+00:00\", "
        "\"progressPercentage\": 40, \"estimatedRemainingSeconds\": 90, \"metrics\": "
        "[{\"name\": \"loss\", \"value\": \"0.25\"}, {\"name\": \"grad_norm\", "
        "\"value\": "
        "\"nan\"}, {\"name\": \"current_step\", \"value\": \"4\"}, {\"name\": "
        "\"total_steps\", \"value\": \"10\"}, {\"name\": \"current_epoch\", \"value\": "
        "\"1.25\"}, {\"name\": \"note\", \"value\": \"warm\"}, {\"name\": "
        "\"\\ud83d\\ude00\\n\", \"value\": -1e3}]}}");

    assert_int_equal(r.percent, 40);
    assert_true(r.current_step == 4 && r.total_steps == 10 && r.current_epoch == 1.25);
    assert_int_equal(r.n_metrics, 3);
    assert_string_equal(r.metrics[0].name, "loss");
    assert_true(r.metrics[0].value == 0.25);
    assert_true(isnan(r.metrics[1].value));
    assert_string_equal(r.metrics[2].name, "\xf0\x9f\x98\x80?");
    assert_true(r.metrics[2].value == -1000);
}

UNIT_TEST(what_is_absent_is_not_given)
{
    struct trainer_report r =
        read_body("{\"trainerStatus\": {\"metrics\": null}, \"more\": [1]}");

    assert_true(r.percent == -1 && !r.has_metrics && r.n_metrics == 0);
    assert_true(r.current_step < 0 && r.total_steps < 0 && r.current_epoch < 0);
}

UNIT_TEST(malformed_bodies_are_refused)
{
    static const struct {
        const char *body, *text;
    } cases[] = {
        {"", "not JSON: line 1, column 0: "},
        {"{", "not JSON: line 1, column 1: "},
        {"[]", "trainerStatus is not an object"},
        {"{}", "trainerStatus is not an object"},
        {"{\"trainerStatus\": 3}", "trainerStatus is not an object"},
        {"{\"trainerStatus\": {}, \"trainerStatus\": {}}", "not JSON: line 1, "},
        {"{\"trainerStatus\": {\"progressPercentage\": 101}}",
         "trainerStatus.progressPercentage is not an integer from 0 to 100"},
        {"{\"trainerStatus\": {\"progressPercentage\": 1.5}}",
         "trainerStatus.progressPercentage is not an integer from 0 to 100"},
        {"{\"trainerStatus\": {\"metrics\": {}}}",
         "trainerStatus.metrics is not an array"},
        {"{\"trainerStatus\": {\"metrics\": [{\"name\": \"a\", \"value\": \"1\"}, 3]}}",
         "trainerStatus.metrics[1] is not an object with a name and a value"},
        {"{\"trainerStatus\": {\"metrics\": [{\"name\": \"a\"}]}}",
         "trainerStatus.metrics[0] is not an object with a name and a value"},
        {"{\"trainerStatus\": {\"metrics\": [{\"name\": 1, \"value\": 1}]}}",
         "trainerStatus.metrics[0] is not an object with a name and a value"},
        {"[[[[[[[[[[[[[[[[[", "more than 16 levels"},
        {"{\"trainerStatus\": {\"a\": \"\\ud83d\"}}", "not JSON: line 1, "},
        {"\"[[[[[[[[[[[[[[[[[\\\"[\"", "not JSON: line 1, "}, /* in a string */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct trainer_report r;
        struct err e = ERR_INIT;

        assert_int_equal(
            trainer_json_read(cases[i].body, strlen(cases[i].body), &r, &e), -EINVAL);
        if (strncmp(e.text, cases[i].text, strlen(cases[i].text)) != 0)
            fail_msg("%s: %s", cases[i].body, e.text);
    }
}

/* --- progress --- */

static void
update(struct live_progress *p, int percent, double step, double total, double epoch)
{
    struct trainer_report r;

    trainer_report_init(&r);
    r.percent = percent;
    r.current_step = step;
    r.total_steps = total;
    r.current_epoch = epoch;
    trainer_progress_update(p, &r, 7);
}

UNIT_TEST(steps_are_those_of_the_callback)
{
    struct live_progress p;

    live_progress_init(&p);
    update(&p, 0, -1, 30, -1); /* on_train_begin */
    assert_true(p.step == 0 && p.total_steps == 30 && p.epoch == -1);
    update(&p, 33, 10, 30, 1);
    assert_true(p.step == 10 && p.total_steps == 30 && p.epoch == 1);
    update(&p, 36, 11, 30, 1.1);
    assert_true(p.step == 11 && p.epoch == 2);
    update(&p, 100, -1, -1, -1); /* on_train_end */
    assert_true(p.step == 30 && p.total_steps == 30 && p.epoch == 2);
    assert_true(p.updated_wall_us == 7 && p.samples == -1 && p.commit_step == -1);
}

UNIT_TEST(a_percentage_alone_is_of_100_steps)
{
    struct live_progress p;

    live_progress_init(&p);
    update(&p, -1, -1, -1, -1);
    assert_true(p.step == -1 && p.total_steps == -1);
    update(&p, 42, -1, -1, 0);
    assert_true(p.step == 42 && p.total_steps == 100 && p.epoch == 1);
    update(&p, 42, NAN, INFINITY, NAN);
    assert_true(p.step == 42 && p.total_steps == 100 && p.epoch == 1);
    update(&p, 42, 1e300, -5, 1e19);
    assert_true(p.step == 42 && p.total_steps == 100 && p.epoch == 1);
    update(&p, -1, 3, -1, -1);
    assert_true(p.step == 3);
}

UNIT_TEST(metrics_are_those_of_the_last_report)
{
    struct trainer_report r;
    struct live_progress p;
    char name[32];

    live_progress_init(&p);
    trainer_report_init(&r);
    r.has_metrics = true;
    for (int i = 0; i < LIVE_METRICS_MAX + 3; i++) {
        (void)snprintf(name, sizeof(name), "m%d", i);
        trainer_report_add(&r, name, i);
    }
    trainer_report_add(&r, "total_steps", 5); /* not shown as a metric */
    trainer_report_add(&r, "", 5);
    trainer_progress_update(&p, &r, 1);
    assert_int_equal(p.n_metrics, LIVE_METRICS_MAX);
    assert_string_equal(p.metrics[15].name, "m15");
    assert_int_equal(p.total_steps, 5);
    trainer_report_init(&r);
    trainer_progress_update(&p, &r, 2);
    assert_int_equal(p.n_metrics, LIVE_METRICS_MAX); /* not given */
    r.has_metrics = true;
    trainer_progress_update(&p, &r, 3);
    assert_int_equal(p.n_metrics, 0);
}

/* --- who may report --- */

static const char *answer_to(struct trainer *t,
                             const char *path,
                             const char *token,
                             const char *body,
                             bool local)
{
    static char text[300];
    const struct post post = {.path = path,
                              .n_path = strlen(path),
                              .bearer = token,
                              .n_bearer = strlen(token),
                              .body = body,
                              .n_body = strlen(body)};
    const char *status = trainer_answer(t, &post, local, text, sizeof(text));

    assert_int_equal(text[strlen(text) - 1], '\n');
    return status;
}

UNIT_TEST(only_who_knows_the_token_may_report)
{
    static const char body[] = "{\"trainerStatus\": {\"progressPercentage\": 50}}";
    AUTOFREE char *token = NULL;
    struct option_var vars[TRAINER_VARS];
    struct trainer *t;
    struct live_progress p = {.step = 77};
    struct err e = ERR_INIT;

    assert_int_equal(trainer_new(dir, &t, &e), 0);
    trainer_variables(t, 8082, vars);
    assert_string_equal(vars[0].name, "KUBEFLOW_TRAINER_SERVER_URL");
    assert_string_equal(vars[0].value, "http://127.0.0.1:8082/trainer-status");
    assert_string_equal(vars[1].name, "KUBEFLOW_TRAINER_SERVER_TOKEN");
    assert_int_equal(fd_read_file(vars[1].value, 1 << 20, &token, NULL, &e), 0);
    assert_int_equal(strlen(token), 64);
    assert_string_equal(answer_to(t, TRAINER_PATH, "", body, true), "401 Unauthorized");
    assert_string_equal(answer_to(t, TRAINER_PATH, "00", body, true),
                        "401 Unauthorized");
    assert_string_equal(answer_to(t, TRAINER_PATH, token, body, false),
                        "403 Forbidden");
    assert_string_equal(answer_to(t, "/metrics", token, body, true), "404 Not Found");
    assert_string_equal(answer_to(t, TRAINER_PATH, token, "{", true),
                        "400 Bad Request");
    assert_false(trainer_progress_get(t, &p));
    assert_false(trainer_progress_get(NULL, &p));
    assert_int_equal(p.step, 77);
    assert_string_equal(answer_to(t, TRAINER_PATH, token, body, true), "200 OK");
    assert_true(trainer_progress_get(t, &p));
    assert_int_equal(p.step, 50);
    assert_in_range(p.updated_wall_us, clock_wall_us() - 60000000, clock_wall_us());
    trainer_free(t);
}

UNIT_TEST(a_real_controller_is_left_alone)
{
    char a[] = "A=1", other[] = "KUBEFLOW_TRAINER_SERVER_URLS=x",
         ours[] = "KUBEFLOW_TRAINER_STATUS_TOKEN=x";
    char *const none[] = {a, other, NULL}, *const one[] = {a, ours, NULL};

    assert_false(trainer_is_elsewhere(NULL));
    assert_false(trainer_is_elsewhere(none));
    assert_true(trainer_is_elsewhere(one));
}

UNIT_MAIN(make_dir, remove_dir)
