/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the reviews of a viewer, and what the answers say. */
#include "tests/unit/unit.h"

#include "operator/doc/json.h"
#include "operator/page/core/page_review.h"
#include "runtime/base/mem.h"

UNIT_TEST(a_token_has_the_characters_and_the_length_of_one)
{
    static char longest[PAGE_TOKEN_MAX_BYTES + 2];
    static const struct {
        const char *token;
        bool is_possible;
    } rows[] = {
        {"abcXYZ019-._~+/", true},
        {"a=", true},
        {"a==", true},
        {"", false},
        {"=", false},
        {"a=b", false},
        {"a b", false},
        {"a\"b", false},
        {"a\\b", false},
        {"a\n", false},
        {"\xc3\xa4", false},
        {"a,b", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(page_token_is_possible(rows[i].token), rows[i].is_possible);
    memset(longest, 'a', PAGE_TOKEN_MAX_BYTES);
    assert_true(page_token_is_possible(longest));
    longest[PAGE_TOKEN_MAX_BYTES] = 'a';
    assert_false(page_token_is_possible(longest));
}

UNIT_TEST(rights_are_the_same_only_in_all_parts)
{
    const struct page_right same = {"get", "", "pods", "log", "team", "a"};
    const struct page_right rows[] = {
        {"list", "", "pods", "log", "team", "a"},
        {"get", "g", "pods", "log", "team", "a"},
        {"get", "", "jobs", "log", "team", "a"},
        {"get", "", "pods", "", "team", "a"},
        {"get", "", "pods", "log", "tea", "ma"},
        {"get", "", "pods", "log", "team", ""},
        {"get", "", "pods", "log", "", "team"},
        {"get", "", "podslog", "", "team", "a"},
    };
    struct page_hash first, h;

    page_right_hash(&same, &first);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        page_right_hash(&rows[i], &h);
        assert_memory_not_equal(&h, &first, sizeof(h));
    }
    page_right_hash(&same, &h);
    assert_memory_equal(&h, &first, sizeof(h));
}

UNIT_TEST(a_denial_names_user_verb_resource_and_namespace)
{
    static const struct {
        struct page_right right;
        const char *text;
    } rows[] = {
        {{"list", "ringmaster.dev", "horovodjobs", "", "team", ""},
         "user jane may not list horovodjobs in namespace team"},
        {{"list", "ringmaster.dev", "mpijobs", "", "", ""},
         "user jane may not list mpijobs in all namespaces"},
        {{"get", "", "pods", "log", "team", ""},
         "user jane may not get pods/log in namespace team"},
        {{"get", "ringmaster.dev", "horovodjobs", "", "team", "train"},
         "user jane may not get horovodjobs train in namespace team"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct strbuf out;

        strbuf_init(&out, 4096);
        page_right_denial(&rows[i].right, "jane", &out);
        assert_string_equal(strbuf_str(&out), rows[i].text);
        strbuf_release(&out);
    }
}

#define USER                                                                           \
    "\"user\":{\"username\":\"ja\\\"ne\",\"uid\":\"u1\",\"groups\":[\"a\",\"b\"],"     \
    "\"extra\":{\"k/x\":[\"1\",\"2\"]}}"

UNIT_TEST(a_valid_token_has_an_owner)
{
    static const char *const spec =
        "{\"user\":\"ja\\\"ne\",\"uid\":\"u1\",\"groups\":[\"a\",\"b\"],"
        "\"extra\":{\"k/x\":[\"1\",\"2\"]}}";
    static const struct {
        const char *answer;
        bool is_ordinary;
        int rc;
        const char *spec;
    } rows[] = {
        {"{\"status\":{\"authenticated\":true,\"audiences\":[\"x\",\"hvd-page\"]," USER
         "}}",
         false, 1, spec},
        {"{\"status\":{\"authenticated\":true,\"audiences\":[\"hvd-pages\"]," USER "}}",
         false, 0, NULL},
        {"{\"status\":{\"authenticated\":true," USER "}}", false, 0, NULL},
        {"{\"status\":{\"authenticated\":true," USER "}}", true, 1, spec},
        {"{\"status\":{\"authenticated\":false," USER "}}", true, 0, NULL},
        {"{\"status\":{\"authenticated\":\"true\"," USER "}}", true, 0, NULL},
        {"{\"status\":{" USER "}}", true, 0, NULL},
        {"{\"status\":{\"user\":{},\"error\":\"invalid bearer token\"}}", true, 0,
         NULL},
        {"{\"status\":{\"authenticated\":true,\"user\":{\"uid\":\"1\"}}}", true, 0,
         NULL},
        {"{\"status\":{\"authenticated\":true,\"user\":{\"username\":\"\"}}}", true, 0,
         NULL},
        {"{\"status\":{\"authenticated\":true,\"user\":{\"username\":\"j\"}}}", true, 1,
         "{\"user\":\"j\"}"},
        {"[]", true, 0, NULL},
        {"{}", true, 0, NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct page_owner o = {0};
        struct node *answer;
        struct strbuf out;
        struct arena a;

        arena_init(&a, 1u << 20);
        strbuf_init(&out, 4096);
        assert_int_equal(
            json_read(&a, rows[i].answer, strlen(rows[i].answer), &answer, NULL), 0);
        assert_int_equal(page_review_read_token(answer, rows[i].is_ordinary, &o, &out),
                         rows[i].rc);
        if (rows[i].rc == 1) {
            assert_string_equal(o.spec, rows[i].spec);
            assert_int_equal(o.is_ordinary, rows[i].is_ordinary);
        }
        strbuf_release(&out);
        arena_release(&a);
    }
}

UNIT_TEST(a_right_is_asked_for_with_all_of_the_owner)
{
    static const char *const wanted =
        "{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SubjectAccessReview\","
        "\"spec\":{\"user\":\"jane\",\"groups\":[\"a\"],\"resourceAttributes\":{"
        "\"verb\":\"get\",\"group\":\"ringmaster.dev\",\"resource\":\"horovodjobs\","
        "\"subresource\":\"\",\"namespace\":\"te\\\"am\",\"name\":\"train\"}}}";
    struct page_owner o = {.spec = "{\"user\":\"jane\",\"groups\":[\"a\"]}"};
    struct page_right r = {"get", "ringmaster.dev", "horovodjobs",
                           "",    "te\"am",         "train"};
    struct strbuf out;

    strbuf_init(&out, 4096);
    page_review_write_right(&o, &r, &out);
    assert_string_equal(strbuf_str(&out), wanted);
    strbuf_release(&out);
}

UNIT_TEST(a_token_is_reviewed_for_the_page_or_as_one_of_the_cluster)
{
    struct strbuf out;

    strbuf_init_secret(&out, 4096);
    page_review_write_token("t.1", false, &out);
    assert_string_equal(strbuf_str(&out),
                        "{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":"
                        "\"TokenReview\",\"spec\":{\"token\":\"t.1\",\"audiences\":["
                        "\"hvd-page\"]}}");
    strbuf_clear(&out);
    page_review_write_token("t.1", true, &out);
    assert_string_equal(strbuf_str(&out),
                        "{\"apiVersion\":\"authentication.k8s.io/v1\","
                        "\"kind\":\"TokenReview\",\"spec\":{\"token\":"
                        "\"t.1\"}}");
    strbuf_release(&out);
}

UNIT_MAIN(NULL, NULL)
