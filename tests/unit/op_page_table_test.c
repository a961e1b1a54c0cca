/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the status page: what a row has, who sees which rows, and what changed since
 * a revision. Its history and the page of one job: op_page_detail_test.c. */
#include "tests/unit/unit.h"

#include "operator/core/store/store.h"
#include "operator/page/core/page_row.h"
#include "operator/page/core/page_table.h"
#include "runtime/base/mem.h"
#include "tests/unit/op_page_world.h"
#include "tests/unit/torture.h"

/* --- rows ------------------------------------------------------------------------ */

static const char running_row[] =
    "{\"uid\":\"u1\",\"version\":\"4711\",\"kind\":\"horovodjobs\","
    "\"namespace\":\"team\",\"name\":\"train\",\"state\":\"Running\","
    "\"reason\":\"AllWorkersRunning\",\"message\":\"all run\",\"workers\":\"2/2\","
    "\"ranks\":8,\"created\":\"2026-01-01T00:00:00Z\","
    "\"started\":\"2026-01-01T00:00:10Z\",\"restarts\":1,\"replacements\":0,"
    "\"goodput\":0.91000000000000003,\"stalled\":true,"
    "\"progress\":{\"step\":17,\"percentage\":3}}";

UNIT_TEST(a_row_has_what_kubectl_hvd_list_shows)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();

    page_world_put(w, "team/train", page_world_running, 0);
    page_world_expect_rows(w, running_row);
}

UNIT_TEST(a_row_says_who_stalls_or_delays_the_job)
{
    static const struct {
        const char *conditions, *message;
    } rows[] = {
        {"{type: Stalled, status: 'True', message: rank 6 is missing}, {type: "
         "Straggling, status: 'True', message: rank 9 is slow}",
         "\"message\":\"rank 6 is missing\""},
        {"{type: Stalled, status: 'False', message: it continues}, {type: Straggling, "
         "status: 'True', message: rank 9 is slow}",
         "\"message\":\"rank 9 is slow\""},
        {"{type: Stalled, status: 'False', message: it continues}",
         "\"message\":\"all run\""},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(page_world_close) struct page_world *w = page_world_open();
        char text[600];

        (void)snprintf(text, sizeof(text),
                       "metadata: {namespace: a, name: j, uid: u}\n"
                       "spec: {replicaSpecs: {Worker: {replicas: 1}}}\n"
                       "status: {state: Running, message: all run, conditions: [%s]}\n",
                       rows[i].conditions);
        page_world_put(w, "a/j", text, 0);
        assert_non_null(strstr(page_world_rows(w), rows[i].message));
    }
}

UNIT_TEST(a_row_is_made_of_what_the_store_keeps)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct node *o = page_world_read(w, page_world_running);

    node_drop(o, "apiVersion"); /* the watches do not keep them */
    node_drop(o, "kind");
    assert_int_equal(page_table_put(w->t, "team/train", o), 0);
    page_world_expect_rows(w, running_row);
}

UNIT_TEST(an_mpijob_has_a_row)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();

    page_world_put(w, "mpijob:a/m",
                   "metadata: {namespace: a, name: m, uid: u, deletionTimestamp: "
                   "'2026-01-01T00:00:00Z'}\n"
                   "spec: {mpiReplicaSpecs: {Launcher: {replicas: 1}, Worker: "
                   "{replicas: 3}}}\n"
                   "status: {completionTime: '2026-01-01T00:00:09Z', conditions: "
                   "[{type: Failed, status: 'True', reason: R, message: why}]}\n",
                   0);
    page_world_expect_rows(
        w, "{\"uid\":\"u\",\"kind\":\"mpijobs\",\"namespace\":\"a\",\"name\":\"m\","
           "\"state\":\"Failed\",\"reason\":\"R\",\"message\":\"why\","
           "\"workers\":\"0/3\",\"finished\":\"2026-01-01T00:00:09Z\","
           "\"terminating\":true}");
}

#define GPU_JOB                                                                        \
    "metadata: {namespace: a, name: j, uid: %s, resourceVersion: '%d', generation: "   \
    "1}\n"                                                                             \
    "spec: {replicaSpecs: {Worker: {replicas: 2%s}}}\n"                                \
    "status: {workers: 1/2, conditions: [{type: %s, status: 'True'}]}\n"
#define GPU_TEMPLATE                                                                   \
    ", template: {spec: {containers: [{name: w, image: i, command: [c], resources: "   \
    "{limits: {nvidia.com/gpu: 8}}}]}}"

static void put_gpu_job(struct page_world *w,
                        const char *uid,
                        int version,
                        const char *template,
                        const char *state)
{
    char text[600];

    (void)snprintf(text, sizeof(text), GPU_JOB, uid, version, template, state);
    page_world_put(w, "a/j", text, 0);
}

UNIT_TEST(slots_of_a_job_at_rest_are_those_that_it_had)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();

    put_gpu_job(w, "u1", 1, GPU_TEMPLATE, "Running");
    page_world_expect_member(w, "\"ranks\":16");
    put_gpu_job(w, "u1", 2, "", "Succeeded"); /* the store has dropped the template */
    page_world_expect_member(w, "\"state\":\"Succeeded\"");
    page_world_expect_member(w, "\"ranks\":16");
    put_gpu_job(w, "u2", 3, "", "Succeeded"); /* another job: not known */
    assert_null(strstr(page_world_rows(w), "ranks"));
}

UNIT_TEST(a_row_of_the_store_itself_is_equal)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct store *s = store_new();
    char key[STORE_KEY_SIZE];
    struct job_text text;
    struct node *o = page_world_read(w, page_world_running), *kept;

    assert_non_null(s);
    node_set(&w->b, o, "status",
             page_world_read(w, "conditions: [{type: Succeeded, "
                                "status: 'True', reason: R}]\n"));
    assert_int_equal(store_put_job(s, KUBE_JOB, o, key, NULL), 1);
    assert_int_equal(store_job_text(s, key, &text), 0);
    assert_true(text.is_at_rest);
    assert_null(strstr(text.p, "hunter2"));
    assert_int_equal(json_read(&w->a, text.p, text.n, &kept, NULL), 0);
    assert_int_equal(page_table_put(w->t, key, kept), 0);
    page_world_expect_member(w, "\"ranks\":8,");
    page_world_expect_member(w, "\"state\":\"Succeeded\",\"reason\":\"R\"");
    store_free(s);
}

UNIT_TEST(what_is_not_the_job_of_the_key_has_no_row)
{
    static const struct {
        const char *key, *object;
    } rows[] = {
        {"a/j", "metadata: {namespace: a, name: j}\n"},
        {"a/j", "metadata: {namespace: a, uid: u}\n"},
        {"a/j", "metadata: {namespace: b, name: j, uid: u}\n"},
        {"mpijob:a/j", "kind: HorovodJob\nmetadata: {namespace: a, name: j, uid: u}\n"},
        {"a/j", "metadata: {namespace: a, name: j, uid: "
                "0123456789012345678901234567890123456789012345678901234567890123}\n"},
        {"a/j", "[1]\n"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(page_world_close) struct page_world *w = page_world_open();

        put_gpu_job(w, "u", 1, "", "Running");
        page_world_put(w, rows[i].key, rows[i].object, -EINVAL);
        assert_int_equal(page_table_n(w->t), rows[i].key[0] == 'm');
    }
}

/* --- hostile texts --------------------------------------------------------------- */

static void put_message(struct page_world *w, const char *message)
{
    struct node *o = page_world_read(w, page_world_running);

    node_set_str(&w->b, node_child(&w->b, o, "status", NODE_OBJECT), "message",
                 message);
    assert_int_equal(w->b.status, 0);
    assert_int_equal(page_table_put(w->t, "team/train", o), 0);
}

UNIT_TEST(texts_of_users_stay_strings)
{
    static const struct {
        const char *message, *text;
    } rows[] = {
        {"a\"b\\c", "\"message\":\"a\\\"b\\\\c\""},
        {"a\nb\r\tc\x7f", "\"message\":\"a\\nb\\u000d\\u0009c\\u007f\""},
        {"</script>", "\"message\":\"</script>\""},
        {"\xc3\xa4 \xf0\x9f\x98\x80", "\"message\":\"\xc3\xa4 \xf0\x9f\x98\x80\""},
        {"\xff|\xc3|\xc0\xaf|\xed\xa0\x80|\xf0\x9f\x98", /* invalid */
         "\"message\":\"?|?|\?\?|\?\?\?|\?\?\?\""},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(page_world_close) struct page_world *w = page_world_open();

        put_message(w, rows[i].message);
        page_world_expect_member(w, rows[i].text);
        page_world_expect_json(w, page_world_rows(w));
    }
}

UNIT_TEST(a_long_message_is_cut_between_characters)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    char text[2000], expected[600];

    for (size_t i = 0; i < 1000; i += 2)
        memcpy(text + i, "\xc3\xa4", 3);
    put_message(w, text);
    (void)snprintf(expected, sizeof(expected), "\"message\":\"%.508s...\"", text);
    page_world_expect_member(w, expected);
    text[512] = '\0'; /* just fits */
    put_message(w, text);
    (void)snprintf(expected, sizeof(expected), "\"message\":\"%.512s\"", text);
    page_world_expect_member(w, expected);
}

/* status.progress.note has n bytes: each of `c`. */
static void put_progress(struct page_world *w, const char *message, size_t n, char c)
{
    struct node *o = page_world_read(w, page_world_running);
    struct node *status = node_child(&w->b, o, "status", NODE_OBJECT);
    char text[5000];

    memset(text, c, n);
    text[n] = '\0';
    node_set_str(&w->b, status, "message", message);
    node_set_str(&w->b, node_child(&w->b, status, "progress", NODE_OBJECT), "note",
                 text);
    assert_int_equal(page_table_put(w->t, "team/train", o), 0);
}

UNIT_TEST(progress_that_is_too_large_is_left_out)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    size_t room =
        PAGE_PROGRESS_MAX - strlen("{\"step\":17,\"percentage\":3,\"note\":\"\"}");

    put_progress(w, "m", room, 'x');
    page_world_expect_member(w, "\"progress\":{\"step\":17,");
    put_progress(w, "m", room + 1, 'x');
    assert_null(strstr(page_world_rows(w), "progress"));
    page_world_expect_member(w, "\"message\":\"m\"");
}

UNIT_TEST(a_row_is_bounded)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    struct node *o = page_world_read(w, page_world_running);
    struct node *status = node_child(&w->b, o, "status", NODE_OBJECT);
    struct node *condition = node_object(&w->b);
    char text[661]; /* six bytes each as JSON */

    memset(text, 1, 660);
    text[660] = '\0';
    node_set_str(&w->b, condition, "type", text);
    node_set_str(&w->b, condition, "reason", text);
    node_add(&w->b, node_child(&w->b, status, "conditions", NODE_ARRAY), condition);
    node_set_str(&w->b, status, "state", text);
    node_set_str(&w->b, status, "message", text);
    node_set_str(&w->b, node_child(&w->b, status, "progress", NODE_OBJECT), "note",
                 text);
    assert_int_equal(page_table_put(w->t, "team/train", o), 0);
    assert_true(strlen(page_world_rows(w)) <= PAGE_ROW_MAX);
    assert_null(strstr(page_world_rows(w), "progress"));
    page_world_expect_member(w, "\"reason\":\"\\u0001");
    page_world_expect_json(w, page_world_rows(w));
    node_set_str(&w->b, status, "message", "m"); /* now there is room for it */
    assert_int_equal(page_table_put(w->t, "team/train", o), 0);
    page_world_expect_member(w, "\"progress\":{");
}

/* --- scopes ---------------------------------------------------------------------- */

/* A small job; v changes its row. */
static void put_small(struct page_world *w, const char *key, const char *uid, int v)
{
    const char *path = strchr(key, ':') ? strchr(key, ':') + 1 : key;
    const char *slash = strchr(path, '/');
    char text[400];

    (void)snprintf(
        text, sizeof(text),
        "metadata: {namespace: %.*s, name: '%s', uid: '%s', resourceVersion: "
        "'%d'}\nspec: {slotsPerWorker: 1, replicaSpecs: {Worker: {template: "
        "{spec: {containers: [{name: w, image: i, command: [c]}]}}}}}\n",
        (int)(slash - path), path, slash + 1, uid, v);
    page_world_put(w, key, text, 0);
}

static const struct page_scope everything = {NULL, true, true};

static void expect_since(struct page_world *w,
                         const struct page_scope *s,
                         uint64_t revision,
                         const char *uids)
{
    CLEANUP(strbuf_release) struct strbuf out;
    bool is_lost = true;

    strbuf_init(&out, 1u << 20);
    assert_int_equal(page_table_since(w->t, s, revision, &is_lost, &out), *uids != 0);
    assert_false(is_lost);
    page_world_expect_uids(w, strbuf_str(&out), uids);
}

UNIT_TEST(a_viewer_gets_the_rows_in_scope)
{
    static const struct {
        struct page_scope scope;
        const char *uids, *kinds, *since;
    } rows[] = {
        {{NULL, true, true}, "1 2 3 4", "[\"horovodjobs\",\"mpijobs\"]", "1 2 3 4 -5"},
        {{NULL, true, false}, "1 2", "[\"horovodjobs\"]", "1 2"},
        {{NULL, false, true}, "3 4", "[\"mpijobs\"]", "3 4 -5"},
        {{"a", true, true}, "1 3", "[\"horovodjobs\",\"mpijobs\"]", "1 3 -5"},
        {{"a", true, false}, "1", "[\"horovodjobs\"]", "1"},
        {{"ab", true, true}, "2 4", "[\"horovodjobs\",\"mpijobs\"]", "2 4"},
        {{"ab", false, true}, "4", "[\"mpijobs\"]", "4"},
        {{"b", true, true}, "", "[\"horovodjobs\",\"mpijobs\"]", ""},
        {{"mpijob:a", true, true}, "", "[\"horovodjobs\",\"mpijobs\"]", ""},
        {{NULL, false, false}, "", "[]", ""},
    };
    CLEANUP(page_world_close) struct page_world *w = page_world_open();

    put_small(w, "a/j", "1", 1);
    put_small(w, "ab/j", "2", 1);
    put_small(w, "mpijob:a/j", "3", 1);
    put_small(w, "mpijob:ab/j", "4", 1);
    put_small(w, "mpijob:a/k", "5", 1);
    assert_int_equal(page_table_put(w->t, "mpijob:a/k", NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(strbuf_release) struct strbuf out;
        char kinds[80];

        strbuf_init(&out, 1u << 20);
        page_table_all(w->t, &rows[i].scope, &out);
        page_world_expect_uids(w, strbuf_str(&out), rows[i].uids);
        (void)snprintf(kinds, sizeof(kinds), "],\"kinds\":%s}", rows[i].kinds);
        assert_non_null(strstr(strbuf_str(&out), kinds));
        expect_since(w, &rows[i].scope, 0, rows[i].since);
    }
}

/* --- changes --------------------------------------------------------------------- */

UNIT_TEST(only_what_changed_is_sent)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    uint64_t at;

    assert_int_equal(page_table_revision(w->t), 0);
    put_small(w, "a/1", "1", 1);
    put_small(w, "a/2", "2", 1);
    put_small(w, "a/3", "3", 1);
    at = page_table_revision(w->t);
    expect_since(w, &everything, at, "");
    put_small(w, "a/2", "2", 1); /* as it was */
    assert_int_equal(page_table_revision(w->t), at);
    put_small(w, "a/1", "1", 2);
    put_small(w, "a/3", "3", 2);
    put_small(w, "a/1", "1", 3);
    assert_int_equal(page_table_revision(w->t), at + 3);
    expect_since(w, &everything, at, "3 1");
    expect_since(w, &everything, at + 1, "3 1");
    expect_since(w, &everything, at + 2, "1");
}

UNIT_TEST(a_job_of_the_same_name_is_another_one)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    uint64_t at;

    put_small(w, "a/1", "1", 1);
    at = page_table_revision(w->t);
    put_small(w, "a/1", "9", 1);
    expect_since(w, &everything, at, "9 -1");
    assert_int_equal(page_table_n(w->t), 1);
}

UNIT_TEST(a_job_that_cannot_be_shown_for_a_while_is_not_gone)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    uint64_t at;

    put_small(w, "a/1", "1", 1);
    at = page_table_revision(w->t);
    page_world_put(w, "a/1", "metadata: {}\n", -EINVAL);
    expect_since(w, &everything, at, "-1");
    put_small(w, "a/1", "1", 1);
    expect_since(w, &everything, at, "1");
}

static bool since_is_lost(struct page_world *w, uint64_t revision)
{
    CLEANUP(strbuf_release) struct strbuf out;
    bool is_lost = false;

    strbuf_init(&out, 1u << 20);
    if (page_table_since(w->t, &everything, revision, &is_lost, &out))
        assert_false(is_lost);
    else
        assert_int_equal(out.n, 0);
    return is_lost;
}

UNIT_TEST(deletions_are_remembered_until_there_are_too_many)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    uint64_t first = 0;

    for (int i = 0; i < 1025; i++) {
        put_small(w, "a/1", "1", 1);
        assert_int_equal(page_table_put(w->t, "a/1", NULL), 0);
        first = i == 0 ? page_table_revision(w->t) : first;
        assert_int_equal(since_is_lost(w, 0), i == 1024);
    }
    assert_true(since_is_lost(w, first - 1));
    assert_false(since_is_lost(w, first));
    assert_false(since_is_lost(w, page_table_revision(w->t)));
    assert_true(since_is_lost(w, page_table_revision(w->t) + 1)); /* of another table */
}

/* --- memory ---------------------------------------------------------------------- */

static int change_rows(void *arg)
{
    struct page_world *w = arg;
    struct page_table *t = page_table_new();
    int rc = t ? page_table_put(t, "team/train", w->object[0]) : -ENOMEM;

    for (int i = 1; rc == 0 && i < 3; i++) {
        rc = page_table_put(t, "team/train", w->object[i]);
        assert_int_equal(page_table_n(t), 1);
        if (rc < 0)
            assert_non_null(strstr(page_world_rows_of(w, t),
                                   i == 1 ? "\"all run\"" : "\"uid\":\"u1\""));
    }
    page_table_free(t);
    return rc;
}

UNIT_TEST(without_memory_the_old_row_stays)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();

    for (int i = 0; i < 3; i++)
        w->object[i] = page_world_read(w, page_world_running);
    node_set_str(&w->b, node_child(&w->b, w->object[1], "status", NODE_OBJECT),
                 "message", "another");
    node_set_str(&w->b, node_child(&w->b, w->object[2], "metadata", NODE_OBJECT), "uid",
                 "u2");
    torture(change_rows, w);
}

UNIT_TEST(bytes_are_those_of_the_rows)
{
    CLEANUP(page_world_close) struct page_world *w = page_world_open();
    size_t empty = page_table_bytes(w->t), full;

    page_world_put(w, "team/train", page_world_running, 0);
    full = page_table_bytes(w->t);
    assert_true(full >= empty + strlen(running_row));
    assert_true(full < empty + strlen(running_row) + 1000);
    assert_int_equal(page_table_put(w->t, "team/train", NULL), 0);
    assert_true(page_table_bytes(w->t) < empty + 200);
}

UNIT_MAIN(NULL, NULL)
