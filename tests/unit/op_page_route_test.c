/* SPDX-License-Identifier: Apache-2.0 */
/* URLs of the status page: what each asks for, and what is refused with which sentence. */
#include "tests/unit/unit.h"

#include "operator/page/core/page_route.h"
#include "runtime/base/mem.h"

UNIT_TEST(each_page_is_found)
{
    static const struct {
        const char *path, *query;
        enum page_what what;
        enum kube_kind kind;
        const char *ns, *name;
        int64_t rank;
        uint32_t tail;
    } rows[] = {
        {"/", NULL, PAGE_GET_HTML, KUBE_JOB, "", "", -1, 200},
        {"/page.css", "", PAGE_GET_CSS, KUBE_JOB, "", "", -1, 200},
        {"/page.js", "", PAGE_GET_JS, KUBE_JOB, "", "", -1, 200},
        {"/api/v1/watch", "", PAGE_GET_WATCH, KUBE_JOB, "", "", -1, 200},
        {"/api/v1/watch", "namespace=a-1", PAGE_GET_WATCH, KUBE_JOB, "a-1", "", -1,
         200},
        {"/api/v1/jobs", "name%73pace=%61", PAGE_GET_JOBS, KUBE_JOB, "a", "", -1, 200},
        {"/api/v1/jobs/horovodjobs/ns/n", "", PAGE_GET_JOB, KUBE_JOB, "ns", "n", -1,
         200},
        {"/api/v1/jobs/mpijobs/ns/n.b-c", "", PAGE_GET_JOB, KUBE_MPIJOB, "ns", "n.b-c",
         -1, 200},
        {"/api/v1/jobs/mpijobs/%6es/%6E", "", PAGE_GET_JOB, KUBE_MPIJOB, "ns", "n", -1,
         200},
        {"/api/v1/jobs/mpijobs/ns/n/events", "", PAGE_GET_EVENTS, KUBE_MPIJOB, "ns",
         "n", -1, 200},
        {"/api/v1/jobs/horovodjobs/ns/n/ranks", "", PAGE_GET_RANKS, KUBE_JOB, "ns", "n",
         -1, 200},
        {"/api/v1/jobs/horovodjobs/ns/n/stacks", "", PAGE_GET_STACKS, KUBE_JOB, "ns",
         "n", -1, 200},
        {"/api/v1/jobs/horovodjobs/ns/n/log", NULL, PAGE_GET_LOG, KUBE_JOB, "ns", "n",
         -1, 200},
        {"/api/v1/jobs/horovodjobs/ns/n/log", "tail=2000&rank=0", PAGE_GET_LOG,
         KUBE_JOB, "ns", "n", 0, 2000},
        {"/api/v1/jobs/horovodjobs/ns/n/log", "rank=1048575&", PAGE_GET_LOG, KUBE_JOB,
         "ns", "n", 1048575, 200},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct page_route r;
        struct err err = ERR_INIT;

        assert_int_equal(page_route_parse(rows[i].path, rows[i].query, &r, &err), 0);
        assert_int_equal(r.what, rows[i].what);
        assert_int_equal(r.kind, rows[i].kind);
        assert_string_equal(r.ns, rows[i].ns);
        assert_string_equal(r.name, rows[i].name);
        assert_int_equal(r.rank, rows[i].rank);
        assert_int_equal(r.tail, rows[i].tail);
    }
}

#define JOB "/api/v1/jobs/horovodjobs/ns/n"
#define BAD_NS(text)                                                                   \
    "namespace: \"" text "\" is not the name of a namespace: at most 63 lower-case "   \
    "letters, digits and '-'"
#define BAD_NAME(text)                                                                 \
    "name: \"" text "\" is not the name of a job: at most 253 lower-case letters, "    \
    "digits, '-' and '.'"

UNIT_TEST(what_is_wrong_is_named)
{
    static const struct {
        const char *path, *query;
        int rc;
        const char *text;
    } rows[] = {
        {"", "", -ENOENT, "path: there is no \"\""},
        {"/index.html", "", -ENOENT, "path: there is no \"/index.html\""},
        {"/page.css/", "", -ENOENT, "path: there is no \"/page.css/\""},
        {"/api/v1/jobs/", "", -ENOENT, "path: there is no \"/api/v1/jobs/\""},
        {"/api/v1/jobs/horovodjobs/ns", "", -ENOENT,
         "path: there is no \"/api/v1/jobs/horovodjobs/ns\""},
        {"/api/v1/jobs/pods/ns/n", "", -ENOENT,
         "path: there is no \"/api/v1/jobs/pods/ns/n\""},
        {"/api/v1/jobs/horovodjob/ns/n", "", -ENOENT,
         "path: there is no \"/api/v1/jobs/horovodjob/ns/n\""},
        {JOB "/", "", -ENOENT, "path: there is no \"" JOB "/\""},
        {JOB "/logs", "", -ENOENT, "path: there is no \"" JOB "/logs\""},
        {JOB "/log/x", "", -ENOENT, "path: there is no \"" JOB "/log/x\""},
        {"/\n\x1b[31m\xff", "", -ENOENT, "path: there is no \"/??[31m?\""},
        {"/api/v1/jobs/horovodjobs//n", "", -EINVAL, BAD_NS("")},
        {"/api/v1/jobs/horovodjobs/../n", "", -EINVAL, BAD_NS("..")},
        {"/api/v1/jobs/horovodjobs/a.b/n", "", -EINVAL, BAD_NS("a.b")},
        {"/api/v1/jobs/horovodjobs/-a/n", "", -EINVAL, BAD_NS("-a")},
        {"/api/v1/jobs/horovodjobs/a/..", "", -EINVAL, BAD_NAME("..")},
        {"/api/v1/jobs/horovodjobs/a/b-", "", -EINVAL, BAD_NAME("b-")},
        {"/api/v1/jobs/horovodjobs/a/b..c", "", -EINVAL, BAD_NAME("b..c")},
        {"/api/v1/jobs/horovodjobs/a/b.", "", -EINVAL, BAD_NAME("b.")},
        {"/api/v1/jobs/horovodjobs/a/B", "", -EINVAL, BAD_NAME("B")},
        {"/api/v1/jobs/horovodjobs/a/b%2fc", "", -EINVAL, BAD_NAME("b%2fc")},
        {"/api/v1/jobs/horovodjobs/a/b%00", "", -EINVAL, BAD_NAME("b%00")},
        {"/api/v1/jobs/horovodjobs/a/b%", "", -EINVAL, BAD_NAME("b%")},
        {"/api/v1/jobs/horovodjobs/a/b%6", "", -EINVAL, BAD_NAME("b%6")},
        {"/api/v1/jobs/horovodjobs/a/b%g1", "", -EINVAL, BAD_NAME("b%g1")},
        {"/api/v1/jobs/horovodjobs/a/b,c=d", "", -EINVAL, BAD_NAME("b,c=d")},
        {"/api/v1/jobs", "namespace=", -EINVAL, BAD_NS("")},
        {"/api/v1/jobs", "namespace", -EINVAL, BAD_NS("")},
        {"/api/v1/jobs", "namespace=a%26b", -EINVAL, BAD_NS("a%26b")},
        {"/api/v1/jobs", "namespace=a+b", -EINVAL, BAD_NS("a+b")},
        {"/api/v1/jobs", "ns=a", -EINVAL,
         "parameter \"ns\" is unknown here; there is only namespace"},
        {"/api/v1/jobs", "=a", -EINVAL,
         "parameter \"\" is unknown here; there is only namespace"},
        {"/page.js", "v=1", -EINVAL, "parameter \"v\" is unknown here; there is none"},
        {JOB, "namespace=a", -EINVAL,
         "parameter \"namespace\" is unknown here; there is none"},
        {JOB "/log", "namespace=a", -EINVAL,
         "parameter \"namespace\" is unknown here; there is only rank and tail"},
        {JOB "/log", "rank=1&rank=2", -EINVAL, "rank: it may be given only once"},
        {JOB "/log", "rank=-1", -EINVAL,
         "rank: \"-1\" is not a number from 0 to 1048575"},
        {JOB "/log", "rank=", -EINVAL, "rank: \"\" is not a number from 0 to 1048575"},
        {JOB "/log", "rank=1048576", -EINVAL,
         "rank: \"1048576\" is not a number from 0 to 1048575"},
        {JOB "/log", "tail=0", -EINVAL, "tail: \"0\" is not a number from 1 to 2000"},
        {JOB "/log", "tail=2001", -EINVAL,
         "tail: \"2001\" is not a number from 1 to 2000"},
        {JOB "/log", "tail=1%0a", -EINVAL,
         "tail: \"1?\" is not a number from 1 to 2000"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct page_route r, before;
        struct err err = ERR_INIT;

        memset(&before, 0x5a, sizeof(before));
        r = before;
        assert_int_equal(page_route_parse(rows[i].path, rows[i].query, &r, &err),
                         rows[i].rc);
        assert_int_equal(err.code, rows[i].rc);
        assert_string_equal(err.text, rows[i].text);
        assert_memory_equal(&r, &before, sizeof(r));
        assert_int_equal(page_route_parse(rows[i].path, rows[i].query, &r, NULL),
                         rows[i].rc);
    }
}

/* A path with a name of n letters. */
static int parse_long(const char *before, size_t n, const char *after)
{
    char path[600];
    struct page_route r;
    size_t at = strlen(before);

    assert_true(at + n + strlen(after) < sizeof(path));
    memcpy(path, before, at);
    memset(path + at, 'a', n);
    memcpy(path + at + n, after, strlen(after) + 1);
    return page_route_parse(path, NULL, &r, NULL);
}

UNIT_TEST(names_are_as_long_as_kubernetes_allows)
{
    assert_int_equal(parse_long("/api/v1/jobs/mpijobs/", 63, "/n"), 0);
    assert_int_equal(parse_long("/api/v1/jobs/mpijobs/", 64, "/n"), -EINVAL);
    assert_int_equal(parse_long("/api/v1/jobs/mpijobs/ns/", 253, "/log"), 0);
    assert_int_equal(parse_long("/api/v1/jobs/mpijobs/ns/", 254, "/log"), -EINVAL);
    assert_int_equal(parse_long("/api/v1/jobs/mpijobs/ns/", 500, ""), -EINVAL);
}

UNIT_MAIN(NULL, NULL)
