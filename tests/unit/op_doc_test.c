/* SPDX-License-Identifier: Apache-2.0 */
/* operator/doc and core/timestamp: texts in, texts out. */
#include "tests/unit/unit.h"

#include "operator/core/timestamp.h"
#include "operator/doc/base64.h"
#include "operator/doc/json.h"
#include "operator/doc/yaml.h"
#include "runtime/base/mem.h"
#include "tests/unit/torture.h"

UNIT_TEST(same_json_comes_out)
{
    static const char *const t[] = {
        "{}",
        "[]",
        "{\"a\":[1,-2,true,false,null,\"x\"],\"b\":{\"c\":{}}}",
        "{\"s\":\"\\\"\\\\\\n\\u0001 \xc3\xa9\"}",
        "[9223372036854775807,-9223372036854775808]",
        "[0.5,1e+300]",
        "{\"ringmaster.dev/job-name\":\"x\"}",
    };
    CLEANUP(arena_release) struct arena a;

    arena_init(&a, 1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(strbuf_release) struct strbuf b;
        struct node *n;

        strbuf_init(&b, 4096);
        assert_int_equal(json_read(&a, t[i], strlen(t[i]), &n, NULL), 0);
        json_write(n, &b);
        if (i == 5)
            assert_string_equal(strbuf_str(&b), "[0.5,1.0000000000000001e+300]");
        else
            assert_string_equal(strbuf_str(&b), t[i]);
    }
}

UNIT_TEST(bad_json_is_refused_with_its_place)
{
    static const char *const t[] = {"",  "{",    "{\"a\":}", "[1,]",
                                    "1", "{} x", "{'a':1}"};
    CLEANUP(arena_release) struct arena a;

    arena_init(&a, 1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err e = ERR_INIT;
        struct node *n = NULL;

        assert_int_equal(json_read(&a, t[i], strlen(t[i]), &n, &e), -EINVAL);
        assert_non_null(strstr(e.text, "line 1"));
        assert_null(n);
    }
}

UNIT_TEST(trees_can_be_changed)
{
    CLEANUP(arena_release) struct arena a;
    struct build b = {.arena = &a};
    struct node *o, *copy;

    arena_init(&a, 1u << 20);
    o = node_object(&b);
    node_set_str(&b, o, "a", "1");
    node_set_str(&b, o, "b", "2");
    node_set_str(&b, o, "c", "3");
    node_set_int(&b, o, "a", 7); /* replaced in its place */
    copy = node_copy(&b, o);
    node_drop(o, "c");
    node_drop(o, "absent");
    assert_int_equal(o->n, 2);
    assert_string_equal(o->last->key, "b");
    assert_string_equal(o->first->key, "a");
    assert_false(node_equal(o, copy));
    node_set_str(&b, o, "c", "3");
    assert_true(node_equal(o, copy));
    assert_string_equal(node_str(o, "c"), "3");
    assert_null(node_str(o, "a")); /* an integer */
    assert_int_equal(node_int(o, "a", 0), 7);
    assert_null(node_at(o, "a.b.c"));
    assert_null(node_get(NULL, "a"));
    node_set(&b, o, "c", node_null(&b)); /* as if it were not there */
    assert_null(node_get(o, "c"));
    assert_null(node_at(o, "c"));
    assert_true(node_equal(o, node_copy(&b, o)));
    assert_false(node_equal(o, copy));
    assert_int_equal(b.status, 0);
}

/* node_get takes an explicit null for absent. */
static bool has_null(const struct node *o, const char *key)
{
    for (const struct node *c = o->first; c; c = c->next) {
        if (strcmp(c->key, key) == 0)
            return c->type == NODE_NULL;
    }
    return false;
}

UNIT_TEST(yaml_scalars_follow_the_json_schema)
{
    static const char text[] = "a: 1\nb: \"1\"\nc: true\nd: no\ne: 1.5\nf: ~\ng: 010\n"
                               "h: [x, {y: z}]\ni: |\n  two\n  lines\nj:\nk: -3\n"
                               "l: 99999999999999999999\n";
    CLEANUP(arena_release) struct arena a;
    struct node *n;

    arena_init(&a, 1u << 20);
    assert_int_equal(yaml_read(&a, text, strlen(text), &n, NULL), 0);
    assert_int_equal(node_int(n, "a", 0), 1);
    assert_string_equal(node_str(n, "b"), "1");
    assert_true(node_bool(n, "c", false));
    assert_string_equal(node_str(n, "d"), "no");
    assert_int_equal(node_get(n, "e")->type, NODE_REAL);
    assert_true(has_null(n, "f"));
    assert_string_equal(node_str(n, "g"), "010");
    assert_string_equal(node_str(node_item(node_get(n, "h"), 1), "y"), "z");
    assert_string_equal(node_str(n, "i"), "two\nlines\n");
    assert_true(has_null(n, "j"));
    assert_int_equal(node_int(n, "k", 0), -3);
    assert_string_equal(node_str(n, "l"), "99999999999999999999");
}

UNIT_TEST(unsupported_yaml_is_named)
{
    static const struct {
        const char *text, *says;
    } t[] = {
        {"a: &x 1\nb: *x\n", "line 1: anchors"},
        {"a: *x\n", "line 1: aliases"},
        {"a: 1\n---\nb: 2\n", "line 2: only one document"},
        {"a: 1\na: 2\n", "line 2: the same key twice"},
        {"a: !!str 1\n", "anchors and tags"},
        {"? [a]\n: 1\n", "a key must be a scalar"},
        {"a: [1\nb: 2\n", "line"},
        {"\ta: 1\n", "line 1"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err e = ERR_INIT;
        CLEANUP(arena_release) struct arena a;
        struct node *n;

        arena_init(&a, 1u << 20);
        assert_int_equal(yaml_read(&a, t[i].text, strlen(t[i].text), &n, &e), -EINVAL);
        if (!strstr(e.text, t[i].says))
            fail_msg("\"%s\" gives \"%s\"", t[i].text, e.text);
    }
}

static int read_once(void *text)
{
    struct arena a;
    struct node *n;
    int rc;

    arena_init(&a, 1u << 20);
    rc = json_read(&a, text, strlen(text), &n, NULL);
    if (rc == 0)
        rc = yaml_read(&a, text, strlen(text), &n, NULL);
    arena_release(&a);
    return rc;
}

/* Strings of 14, 30 ... 1022 characters end where jansson's buffer is full. */
UNIT_TEST(readers_report_that_memory_is_out)
{
    char text[] = "{\"a\": [1, \"two\", {\"b\": null}]}", string[1100];

    torture(read_once, text);
    for (int n = 14; n < 1024; n = 2 * n + 2) {
        (void)snprintf(string, sizeof(string), "[\"%0*d\", \"x\"]", n, 0);
        torture(read_once, string);
    }
}

UNIT_TEST(base64_both_ways)
{
    static const struct {
        const char *plain, *coded;
    } t[] = {{"", ""},
             {"f", "Zg=="},
             {"fo", "Zm8="},
             {"foo", "Zm9v"},
             {"foob", "Zm9vYg=="},
             {"fooba", "Zm9vYmE="},
             {"foobar", "Zm9vYmFy"}};
    static const char *const bad[] = {
        "Z", "Zg", "Zg=", "Z===", "Zg==Zg==", "Zm9!", "="};
    char out[64];
    size_t n;

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        base64_encode(t[i].plain, strlen(t[i].plain), out);
        assert_string_equal(out, t[i].coded);
        assert_int_equal(base64_decode(t[i].coded, out, &n), 0);
        assert_string_equal(out, t[i].plain);
        assert_int_equal(n, strlen(t[i].plain));
    }
    assert_int_equal(base64_decode("Zm9v\n Ym Fy\n", out, &n), 0);
    assert_string_equal(out, "foobar");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (base64_decode(bad[i], out, &n) == 0)
            fail_msg("\"%s\" was accepted", bad[i]);
    }
}

/* The clock may be set back after a wait of at most 10 s has begun. */
UNIT_TEST(a_wait_is_over_in_time_or_when_it_would_take_too_long)
{
    assert_false(wall_wait_is_over(99, 100, 10));
    assert_true(wall_wait_is_over(100, 100, 10));
    assert_true(wall_wait_is_over(101, 100, 10));
    assert_false(wall_wait_is_over(930, 1000, 10)); /* 60 s: the clocks differ */
    assert_true(wall_wait_is_over(929, 1000, 10));
    assert_true(wall_wait_is_over(0, 0, 0));
}

UNIT_TEST(times_both_ways)
{
    static const struct {
        const char *text;
        uint64_t us;
    } t[] = {{"1970-01-01T00:00:00Z", 0},
             {"2000-02-29T12:34:56Z", 951827696000000ull},
             {"2026-11-21T11:22:33Z", 1795260153000000ull},
             {"2100-03-01T00:00:00Z", 4107542400000000ull}};
    static const char *const bad[] = {"",
                                      "2026-11-21",
                                      "2026-11-21 11:22:33Z",
                                      "2026-11-21T11:22:33",
                                      "2026-13-21T11:22:33Z",
                                      "2026-11-21T11:22:33.Z",
                                      "2026-11-21T11:22:33+01:00",
                                      "1969-01-01T00:00:00Z"};
    char out[TIMESTAMP_SIZE];
    uint64_t us;

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        assert_int_equal(timestamp_parse_us(t[i].text, &us), 0);
        assert_int_equal(us, t[i].us);
        assert_string_equal(timestamp_format_s(us / 1000000u, out), t[i].text);
    }
    assert_int_equal(timestamp_parse_us("1970-01-01T00:00:01.5Z", &us), 0);
    assert_int_equal(us, 1500000);
    assert_int_equal(timestamp_parse_us("1970-01-01T00:00:01.123456789Z", &us), 0);
    assert_int_equal(us, 1123456);
    assert_string_equal(timestamp_format_us(1000042, out),
                        "1970-01-01T00:00:01.000042Z");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(timestamp_parse_us(bad[i], &us), -EINVAL);
    for (uint64_t day = 0; day < 200 * 366; day++) {
        assert_int_equal(timestamp_parse_us(timestamp_format_s(day * 86400, out), &us),
                         0);
        assert_int_equal(us, day * 86400 * 1000000);
    }
}

UNIT_MAIN(NULL, NULL)
