/* SPDX-License-Identifier: Apache-2.0 */
/* doc/jsontext and doc/object: text that json_read refuses is searched, repaired and
 * read. */
#include "tests/unit/unit.h"

#include "operator/core/hvd/hvd_job.h"
#include "operator/core/mpi/mpi_job.h"
#include "operator/doc/json.h"
#include "operator/doc/object.h"
#include "runtime/base/mem.h"
#include "tests/unit/torture.h"

#define META "\"metadata\":{\"namespace\":\"n\",\"name\":\"d\",\"uid\":\"u\"}"

static struct json_span text_of(const char *s)
{
    return (struct json_span){s, strlen(s)};
}

UNIT_TEST(members_are_found_without_a_tree)
{
    struct json_span o = text_of(" { \"a\\\"}\" : \"]}\", \"b\":[1,{\"c\":2} , \"x\" ],"
                                 "\"d\":{\"e\":\"f\\\\\"} } ");
    struct json_span list = json_find(o, "b"), key, value;
    struct json_walk w;

    assert_true(span_is(list, "[1,{\"c\":2} , \"x\" ]"));
    assert_true(span_is(json_find_text(json_find(o, "d"), "e"), "f\\\\"));
    assert_int_equal(json_find(o, "c").n, 0);
    assert_int_equal(json_find_text(o, "b").n, 0);
    assert_int_equal(json_find(list, "c").n, 0);
    assert_int_equal(json_walk(&w, list), 0);
    assert_int_equal(json_walk_next(&w, &key, &value), 1);
    assert_true(span_is(value, "1") && key.n == 0);
    assert_int_equal(json_walk_next(&w, &key, &value), 1);
    assert_true(span_is(value, "{\"c\":2}"));
    assert_int_equal(json_walk_next(&w, &key, &value), 1);
    assert_true(span_is(value, "\"x\""));
    assert_int_equal(json_walk_next(&w, &key, &value), 0);
    assert_int_equal(json_walk_next(&w, &key, &value), 0);
}

UNIT_TEST(truncated_text_has_no_member)
{
    static const char text[] = "{\"a\":[1,{\"b\":\"\\\"c\"}],\"d\":12}";

    for (size_t n = 0; n < sizeof(text) - 1; n++) {
        char *cut = mem_alloc(n + 1); /* of its own size: overruns are seen */
        struct json_span key, value;
        struct json_walk w;
        int rc;

        assert_non_null(cut);
        memcpy(cut, text, n);
        rc = json_walk(&w, (struct json_span){cut, n});
        while (rc >= 0) {
            rc = json_walk_next(&w, &key, &value);
            assert_int_not_equal(rc, 0);
        }
        assert_int_equal(rc, -EINVAL);
        mem_free(cut);
    }
}

UNIT_TEST(repair_changes_only_what_is_refused)
{
    static const struct {
        const char *in, *out;
        unsigned repairs;
    } t[] = {
        {"{\"a\":[1, -2.5e3,true,null,\"\\u0001\\\\u0000\"]}",
         "{\"a\":[1, -2.5e3,true,null,\"\\u0001\\\\u0000\"]}", 0},
        {"[9223372036854775807,-9223372036854775808]",
         "[9223372036854775807,-9223372036854775808]", 0},
        {"[9223372036854775808, -18446744073709552000 ]",
         "[9223372036854775808e0, -18446744073709552000e0 ]", REPAIR_NUMBER},
        {"{\"\\u0000\":\"a\\\\\\u0000\"}", "{\"\\ufffd\":\"a\\\\\\ufffd\"}",
         REPAIR_NUL},
        {"[[{\"a\":[{\"b\":\"]\"}]},[]]]", "[[{\"a\":null},[]]]", REPAIR_DEPTH},
        {"[[[[", "[[[[", 0}, /* bad syntax stays */
        {"[\"a", "[\"a", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        unsigned depth = i == 4 ? 3 : 100;
        CLEANUP(strbuf_release) struct strbuf b;

        strbuf_init(&b, 4096);
        assert_int_equal(json_repair(text_of(t[i].in), depth, &b), t[i].repairs);
        assert_string_equal(strbuf_str(&b), t[i].out);
    }
}

/* A job whose template holds text; what it says about itself. */
static struct node *read_job(struct arena *a, const char *text, size_t n)
{
    struct err err = ERR_INIT;
    struct node *o = NULL, *again;
    struct arena other;
    struct strbuf b;

    arena_init(a, OBJECT_MAX_BYTES);
    if (object_read(a, (struct json_span){text, n}, job_rules, &o, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(node_str(o, "metadata.name"), "d");
    assert_string_equal(node_str(o, "status.state"), "Running");
    strbuf_init(&b, 4u << 20);
    json_write(o, &b);
    arena_init(&other, OBJECT_MAX_BYTES); /* the store keeps text */
    assert_int_equal(json_read(&other, b.p, b.n, &again, &err), 0);
    arena_release(&other);
    strbuf_release(&b);
    return o;
}

static void expect_problem(const struct node *o, const char *want)
{
    CLEANUP(strbuf_release) struct strbuf problems;
    struct job_meta meta;
    struct hvd_job job;
    struct arena a;

    strbuf_init(&problems, 4096);
    assert_int_equal(meta_decode(KUBE_JOB, o, &meta, NULL), 0);
    hvd_job_init(&job, &meta);
    arena_init(&a, 1u << 20);
    assert_int_equal(hvd_decode_spec(o, &a, &job, &problems), 0);
    arena_release(&a);
    if (want)
        assert_string_equal(strbuf_str(&problems), want);
    else
        assert_null(strstr(strbuf_str(&problems), "spec:"));
}

UNIT_TEST(a_job_that_cannot_be_read_is_reported)
{
    static const struct {
        const char *open, *each, *close, *problem;
        size_t n;
    } t[] = {
        {"[0", "", "]", NULL, 0},
        {"", "[", "0", NULL, 98},
        {"[18446744073709552000", "", "]", NULL, 0},
        {"\"a\\u0000b", "", "\"",
         "spec: holds the character NUL (\\u0000), which no pod can have\n", 0},
        {"{\"a\\u0000b\":1", "", "}",
         "spec: holds the character NUL (\\u0000), which no pod can have\n", 0},
        {"", "[", "0", "spec: is nested deeper than 100 levels\n", 99},
        {"", "[", "0", "spec: is nested deeper than 100 levels\n", 9999},
        {"[0", ",0", "]", NULL, 98000},
        {"\"", "aaaaaaaa", "\"", NULL, 24575},
        {"\"", "aaaaaaaa", "\"",
         "spec: has 196616 bytes as JSON, more than 196608; put large files into the "
         "image or into a ConfigMap that the pods mount\n",
         24576},
        {"[0", ",0", "]",
         "spec: has 800009 bytes as JSON, more than 196608; put large files into the "
         "image or into a ConfigMap that the pods mount\n",
         400000},
        {"[1e999", "", "]", "spec: cannot be read\n", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(strbuf_release) struct strbuf b;
        CLEANUP(arena_release) struct arena a;

        strbuf_init(&b, 4u << 20);
        strbuf_printf(&b, "{%s,\"spec\":{\"x\":%s", META, t[i].open);
        for (size_t j = 0; j < t[i].n; j++)
            strbuf_puts(&b, t[i].each);
        strbuf_puts(&b, t[i].close);
        for (size_t j = 0; *t[i].each == '[' && j < t[i].n; j++)
            strbuf_putc(&b, ']');
        strbuf_puts(&b, "},\"status\":{\"state\":\"Running\"}}");
        assert_int_equal(strbuf_status(&b), 0);
        expect_problem(read_job(&a, b.p, b.n), t[i].problem);
    }
}

UNIT_TEST(managed_fields_and_annotations_are_not_problems_of_the_spec)
{
    CLEANUP(strbuf_release) struct strbuf b;
    CLEANUP(arena_release) struct arena a;
    struct node *o;

    strbuf_init(&b, 1u << 20);
    strbuf_puts(&b, "{\"metadata\":{\"namespace\":\"n\",\"managedFields\":");
    for (int i = 0; i < 150; i++)
        strbuf_putc(&b, '[');
    for (int i = 0; i < 150; i++)
        strbuf_putc(&b, ']');
    strbuf_puts(&b, ",\"annotations\":{\"" MPI_EXTRA_TTL
                    "\":\"\\u0000\",\"a\":1},\"name\":\"d\",\"uid\":\"u\"},"
                    "\"spec\":{\"x\":9007199254740993},"
                    "\"status\":{\"state\":\"Running\"}}");
    o = read_job(&a, b.p, b.n);
    assert_null(node_get(o, OBJECT_UNREADABLE));
    assert_null(node_at(o, "metadata.managedFields"));
    assert_true(node_int(o, "spec.x", 0) == 9007199254740993);
    o = (struct node *)(uintptr_t)node_at(o, "metadata.annotations");
    assert_string_equal(node_get(o, MPI_EXTRA_TTL)->u.s, "\xef\xbf\xbd");
    assert_int_equal(o->n, 1);
}

UNIT_TEST(values_other_than_objects_are_refused)
{
    static const char *const t[] = {"",
                                    "{garbage}",
                                    "[",
                                    "7",
                                    "{\"metadata\":5,\"x\":1",
                                    "{\"metadata\":{\"name\":\"\xff\"}}"};

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err err = ERR_INIT;
        struct node *o = NULL;
        CLEANUP(arena_release) struct arena a;

        arena_init(&a, OBJECT_MAX_BYTES);
        assert_int_equal(object_read(&a, text_of(t[i]), job_rules, &o, &err), -EINVAL);
        assert_true(*err.text);
        assert_null(o);
    }
}

static int rescue_one(void *arg)
{
    static const char text[] = "{" META ",\"spec\":{\"a\":\"\\u0000\"}}";
    struct arena a;
    struct node *o;
    int rc;

    (void)arg;
    arena_init(&a, OBJECT_MAX_BYTES);
    rc = object_read(&a, text_of(text), job_rules, &o, NULL);
    assert_true(rc < 0 || node_str(o, OBJECT_UNREADABLE));
    arena_release(&a);
    return rc;
}

UNIT_TEST(out_of_memory_is_not_a_problem_of_the_object)
{
    torture(rescue_one, NULL);
}

UNIT_MAIN(NULL, NULL)
