/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of kubectl-hvd that its transcripts (tests/cli) cannot cover in all
 * cases: safe text, ages, YAML, the prefix of log lines, kubectl's errors. */
#include "tests/unit/unit.h"

#include "operator/cli/core/job_file.h"
#include "operator/cli/core/job_view.h"
#include "operator/cli/core/jsonpath.h"
#include "operator/cli/core/page_link.h"
#include "operator/doc/json.h"
#include "operator/doc/yaml.h"
#include "runtime/base/mem.h"
#include "tests/unit/golden.h"

static void check_safe(const char *from, size_t n, bool lines, const char *want)
{
    CLEANUP(strbuf_release) struct strbuf out;

    strbuf_init(&out, 4096);
    text_put_safe(&out, from, n, lines);
    assert_string_equal(strbuf_str(&out), want);
}

UNIT_TEST(nothing_but_printable_text_reaches_a_terminal)
{
    static const struct {
        const char *from, *want;
    } rows[] = {
        {"plain", "plain"},
        {"gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x90\xb3",
         "gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x90\xb3"},
        {"\033[31m", "\\x1b[31m"},
        {"a\tb\nc", "a b c"},
        {"\r\b\177", "\\x0d\\x08\\x7f"},
        {"\xc2\x9b"
         "31m",
         "\\u{9b}31m"}, /* CSI in one character */
        {"\x9b"
         "31m",
         "\\x9b31m"}, /* the same as a bare byte */
        {"\xe2\x80\xae"
         "x",
         "\\u{202e}x"}, /* right to left */
        {"\xe2\x81\xa6\xe2\x80\x8b", "\\u{2066}\\u{200b}"},
        {"\xef\xbb\xbf", "\\u{feff}"},
        {"\xc0\xaf", "\\xc0\\xaf"},                   /* not the shortest form */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* a surrogate */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond Unicode */
        {"\xe4\xb8", "\\xe4\\xb8"},                   /* cut */
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_safe(rows[i].from, strlen(rows[i].from), false, rows[i].want);
    check_safe("a\tb\nc\0d", 7, true, "a\tb\nc\\x00d");
}

UNIT_TEST(ages_are_those_of_kubectl)
{
    static const struct {
        uint64_t s;
        const char *want;
    } rows[] = {
        {0, "0s"},      {119, "119s"},    {120, "2m"},         {599, "9m59s"},
        {600, "10m"},   {10799, "179m"},  {10800, "3h"},       {28740, "7h59m"},
        {28800, "8h"},  {172799, "47h"},  {172800, "2d"},      {180000, "2d2h"},
        {691200, "8d"}, {63072000, "2y"}, {64800000, "2y20d"}, {260000000, "8y"}};
    char text[AGE_SIZE];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_string_equal(text_age(rows[i].s, text), rows[i].want);
    assert_string_equal(text_since("2026-01-01T00:00:00Z", 1767225602, text), "2s");
    assert_string_equal(text_since("2026-01-01T00:00:09Z", 1767225602, text), "0s");
    assert_string_equal(text_since("soon", 1, text), "-");
    assert_string_equal(text_since(NULL, 1, text), "-");
}

UNIT_TEST(lines_of_a_rank_are_found_by_their_prefix)
{
    static const struct {
        const char *line, *text;
        int64_t rank;
    } rows[] = {
        {"[3]<stdout>:hello", "hello", 3},
        {"[12]<stderr>:", "", 12},
        {"[1,3]<stdout>:hello", "hello", 3},
        {"Sun Nov 29 22:33:12 2026[3]<stdout>:hello", "hello", 3},
        {"hello", NULL, -1},
        {"x[3]<stdout>:hello", NULL, -1},
        {"[3]", NULL, -1},
        {"[]<stdout>:x", NULL, -1},
        {"[3<stdout>:x", NULL, -1},
        {"", NULL, -1},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t at = 0;

        assert_int_equal(log_line_rank(rows[i].line, strlen(rows[i].line), &at),
                         rows[i].rank);
        if (rows[i].text)
            assert_string_equal(rows[i].line + at, rows[i].text);
    }
}

UNIT_TEST(the_lines_of_a_rank_are_in_the_log_of_one_container)
{
    static const char spec[] =
        "{\"replicaSpecs\":{\"Worker\":{\"template\":{\"spec\":{\"containers\":"
        "[{\"name\":\"train\"},{\"name\":\"b\"}]}}},\"Launcher\":{\"template\":{"
        "\"spec\":"
        "{\"containers\":[{\"name\":\"start\"}]}}}},\"mpiReplicaSpecs\":{\"Launcher\":"
        "{\"template\":{\"spec\":{\"containers\":[{\"name\":\"mpi\"}]}}}}}";
    static const struct {
        struct job_view v;
        int64_t rank;
        enum role role;
        uint32_t index, n_ranks;
        const char *container; /* NULL: the problem is: */
        const char *problem;
    } rows[] = {
        {{.n_workers = 2, .slots = 4}, 3, ROLE_WORKER, 0, 4, "train", NULL},
        {{.n_workers = 2, .slots = 4}, 4, ROLE_WORKER, 1, 4, "train", NULL},
        {{.n_workers = 2, .slots = 4}, -1, ROLE_WORKER, 0, 4, "train", NULL},
        {{.n_workers = 2, .slots = 4, .has_launcher = true},
         7,
         ROLE_LAUNCHER,
         0,
         8,
         "start",
         NULL},
        {{.kind = KUBE_MPIJOB, .n_workers = 1, .slots = 1, .has_launcher = true},
         0,
         ROLE_LAUNCHER,
         0,
         1,
         "mpi",
         NULL},
        {{.kind = KUBE_MPIJOB, .n_workers = 1, .slots = 1, .has_launcher = true},
         5,
         ROLE_LAUNCHER,
         0,
         1,
         "mpi",
         NULL},
        {{.n_workers = 2, .slots = 4},
         8,
         ROLE_WORKER,
         0,
         0,
         NULL,
         "8 is too large; the job has ranks 0 to 7"},
        {{.n_workers = 2}, 0, ROLE_WORKER, 0, 0, NULL, "the job has no ranks"},
        {{.n_workers = 2}, -1, ROLE_WORKER, 0, 0, "train", NULL},
        {{.n_workers = 2, .slots = 1, .is_tensorflow = true},
         0,
         ROLE_WORKER,
         0,
         0,
         NULL,
         "the job has no ranks (framework tensorflow)"},
        {{.n_workers = 2, .slots = 1, .is_tensorflow = true},
         -1,
         ROLE_WORKER,
         0,
         1,
         "train",
         NULL},
    };
    struct arena a;
    struct node *o;

    arena_init(&a, 1u << 20);
    assert_int_equal(json_read(&a, spec, strlen(spec), &o, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct job_view v = rows[i].v;
        struct log_place place = {.index = 77};
        struct err err = ERR_INIT;

        v.spec = o;
        if (rows[i].problem) {
            assert_true(log_place_find(&v, rows[i].rank, &place, &err) < 0);
            assert_string_equal(err.text, rows[i].problem);
            assert_int_equal(place.index, 77);
            continue;
        }
        assert_int_equal(log_place_find(&v, rows[i].rank, &place, &err), 0);
        assert_int_equal(place.role, rows[i].role);
        assert_int_equal(place.index, rows[i].index);
        assert_int_equal(place.n_ranks, rows[i].n_ranks);
        assert_string_equal(place.container, rows[i].container);
    }
    arena_release(&a);
}

UNIT_TEST(errors_of_kubectl_become_one_sentence)
{
    static const struct {
        const char *text;
        int code;
        const char *part;
    } rows[] = {
        {"Error from server (Forbidden): pods is forbidden: User \"a\" cannot list\n",
         -EACCES, "User \"a\" cannot list"},
        {"error: the server doesn't have a resource type \"horovodjobs\"\n", -ENOTSUP,
         "manifests/crd"},
        {"Error from server (NotFound): x \"j\" not found\n", -ENOENT,
         "job j: not found"},
        {"E1 memcache.go\nThe connection to the server h:1 was refused - did you\n",
         -ECONNREFUSED, "cannot be reached: The connection"},
        {"error: You must be logged in to the server (Unauthorized)\n", -EACCES,
         "credentials"},
        {"Warning: old\nError from server (BadRequest): container x is waiting\n", -EIO,
         "container x is waiting"},
        {"error: unable to upgrade\n", -EIO, "unable to upgrade"},
        {"W1 x\nerror: error upgrading connection: pods \"o\" is forbidden: User \"a\" "
         "cannot create resource \"pods/portforward\"\n",
         -EACCES, "no right: pods \"o\" is forbidden: User \"a\""},
        {"error: invalid argument \"x\" for \"--duration\"\nSee 'kubectl create token "
         "--help' for usage.\n",
         -EIO, "invalid argument \"x\""},
        {"", -EIO, "without a message"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = ERR_INIT;

        assert_int_equal(kube_refusal(rows[i].text, "job j", &err), rows[i].code);
        assert_non_null(strstr(err.text, rows[i].part));
        assert_null(strchr(err.text, '\n'));
    }
}

static int
page_pod_choose_from(const char *pods, const char *holder, struct page_pod *ret)
{
    struct arena a;
    struct node *o;
    struct err err = ERR_INIT;
    int rc;

    arena_init(&a, 1u << 20);
    assert_int_equal(json_read(&a, pods, strlen(pods), &o, NULL), 0);
    rc = page_choose(o, holder, ret, &err);
    assert_true(rc == err.code);
    arena_release(&a);
    return rc;
}

UNIT_TEST(the_page_is_forwarded_to_the_pod_that_the_lease_names)
{
    static const char pods[] =
        "{\"items\": ["
        "{\"metadata\": {\"name\": \"op-1\", \"deletionTimestamp\": \"x\"}, \"spec\": "
        "{\"containers\": [{\"ports\": [{\"name\": \"page\", \"containerPort\": "
        "1}]}]}, "
        "\"status\": {\"conditions\": [{\"type\": \"Ready\", \"status\": \"True\"}]}},"
        "{\"metadata\": {\"name\": \"op-12\"}, \"spec\": {\"containers\": [{}, "
        "{\"ports\": [{\"name\": \"http\", \"containerPort\": 8}, {\"name\": \"page\", "
        "\"containerPort\": 2}]}]}, "
        "\"status\": {\"conditions\": [{\"type\": \"Ready\", \"status\": \"True\"}]}},"
        "{\"metadata\": {\"name\": \"op-3\"}, \"spec\": {\"containers\": [{}]}}]}";
    struct page_pod pod;

    assert_int_equal(page_pod_choose_from(pods, "op-1_u-1", &pod),
                     0); /* it serves until it is gone */
    assert_true(pod.is_leader && pod.port == 1);
    assert_int_equal(page_pod_choose_from(pods, "op-12_u-1", &pod), 0);
    assert_true(pod.is_leader && pod.port == 2);
    assert_int_equal(page_pod_choose_from(pods, "op_u-1", &pod),
                     0); /* no such pod: a ready one */
    assert_true(!pod.is_leader && pod.port == 2);
    assert_int_equal(page_pod_choose_from(pods, NULL, &pod), 0);
    assert_true(!pod.is_leader && pod.port == 2);
    assert_int_equal(page_pod_choose_from(pods, "op-3_u-1", &pod),
                     -ENOENT); /* started without --page */
    assert_int_equal(page_pod_choose_from("{\"items\": []}", "op-1_u", &pod), -ENOENT);
}

UNIT_TEST(a_token_is_one_value_of_the_fragment)
{
    static const struct {
        const char *token, *route, *want;
    } rows[] = {
        {"aA0-._~", NULL, "#token=aA0-._~"},
        {"a+b/c==", "/horovodjobs/n/j.1",
         "#token=a%2Bb%2Fc%3D%3D&go=/horovodjobs/n/j.1"},
        {"a", "/x&token=b#\xc3", "#token=a&go=/x%26token%3Db%23%C3"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(strbuf_release) struct strbuf out;

        strbuf_init(&out, 4096);
        page_fragment(&out, rows[i].token, rows[i].route);
        assert_string_equal(strbuf_str(&out), rows[i].want);
    }
    assert_true(page_is_token("a+b/c==", 7));
    assert_false(page_is_token("", 0));
    assert_false(page_is_token("a b", 3));
    assert_false(page_is_token("a\nb", 3));
    assert_false(page_is_token("a\0b", 3));
    assert_false(page_is_token("a\"", 2));
}

UNIT_TEST(lines_of_port_forward_are_understood)
{
    struct err err = ERR_INIT;

    assert_int_equal(page_forwarded("Forwarding from 127.0.0.1:40001 -> 8090"), 40001);
    assert_int_equal(page_forwarded("Forwarding from [::1]:40001 -> 8090"), 0);
    assert_int_equal(page_forwarded("Forwarding from 127.0.0.1:70000 -> 8090"), 0);
    assert_int_equal(page_forwarded("Handling connection for 40001"), 0);
    assert_int_equal(page_refusal("Unable to listen on port 80: [x: bind: in use]\n"
                                  "error: unable to listen on any\n",
                                  80, &err),
                     -EADDRINUSE);
    assert_string_equal(err.text, "port 80 of this host cannot be used: in use");
    assert_int_equal(page_refusal("error: lost connection to pod\n", 80, &err), -EIO);
}

UNIT_TEST(written_yaml_is_read_as_the_same_tree)
{
    static const char text[] =
        "{\"a\": [], \"b\": {}, \"c\": [[1, [2]], {\"d\": null}], \"true\": \"true\", "
        "\"e\": [\"no\", \"1e3\", \"0x1f\", \"12:30\", \"-\", \"- x\", \"a: b\", \"a "
        "#b\", "
        "\"\", \" x\", \"x \", \"1\", \"~\", \"a\\nb\", \"a\\nb\\n\", \"a\\n\\nb\", "
        "\"a \\nb\", \"a\\nb\\n\\n\", \"\\n\", \"\\ta\\nb\", \"x\\u0001\", "
        "\"\\u00e9\", "
        "\"*a\", \"&a\", \"!a\", \"a:\", \"=\", \"null\", \"2026-01-01\", "
        "\"2026-01-01T00:00:00Z\", \"\\u0085a\", \"a \\u2028b\", \"\\u2029\"], "
        "\"k: 1\": 1.5, \"n\": -3, \"r\": [4., -0., 1e0, 1e22, 0.1], \"y\": true}";
    CLEANUP(arena_release) struct arena a;
    CLEANUP(strbuf_release) struct strbuf out;
    struct err err = ERR_INIT;
    struct node *one, *two;

    arena_init(&a, 1u << 20);
    strbuf_init(&out, 1u << 20);
    assert_int_equal(yaml_read(&a, text, strlen(text), &one, &err), 0);
    yaml_write(one, &out);
    assert_int_equal(yaml_read(&a, strbuf_str(&out), out.n, &two, &err), 0);
    assert_true(node_equal(one, two));
    assert_non_null(strstr(strbuf_str(&out), "\"2026-01-01T00:00:00Z\"")); /* a text */
}

UNIT_TEST(manifests_may_have_anchors_and_merge_keys)
{
    static const char text[] =
        "a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n---\nc: &x 1\nd: *x\n";
    CLEANUP(arena_release) struct arena a;
    struct err err = ERR_INIT;
    struct node *docs, *one;

    arena_init(&a, 1u << 20);
    assert_int_equal(yaml_read_all(&a, text, strlen(text), &docs, &err), 0);
    assert_int_equal(docs->n, 2);
    assert_int_equal(node_int(docs->first, "b.p", 0), 1);
    assert_int_equal(node_int(docs->first, "b.q", 0), 3);
    assert_int_equal(node_int(docs->first->next, "d", 0), 1);
    assert_int_equal(node_at(docs->first, "b.q")->line, 4);
    assert_int_equal(yaml_read_all(&a, "a: &a [*a]", 10, &docs, &err), -EINVAL);
    assert_int_equal(yaml_read_all(&a, "a: *b", 5, &docs, &err), -EINVAL);
    assert_int_equal(yaml_read(&a, "a: &b 1", 7, &one, &err), -EINVAL);
}

UNIT_TEST(a_problem_is_at_the_line_of_its_nearest_field)
{
    static const char text[] = "a:\n  b.c/d: 1\n  e:\n  - f: 1\n  - g: 2\n";
    static const struct {
        const char *path;
        uint32_t line;
    } rows[] = {{"a.b.c/d: is wrong", 2}, {"a.e[1].g: x", 5}, {"a.e[1].h: x", 5},
                {"a.e[7]: x", 4},         {"z: x", 1},        {"a", 2}};
    CLEANUP(arena_release) struct arena a;
    struct err err = ERR_INIT;
    const struct node *all;
    uint32_t line;

    arena_init(&a, 1u << 20);
    assert_int_equal(job_file_read(&a, text, strlen(text), &all, &line, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(job_file_line(all->first, rows[i].path), rows[i].line);
}

UNIT_TEST(jsonpath_knows_names_indexes_and_stars)
{
    static const char text[] = "{\"a\": [{\"b\": 1, \"c.d\": \"x\"}, {\"b\": 2}], "
                               "\"e\": {\"f\": [3, 4]}, \"g\": null}";
    static const struct {
        const char *template, *want;
    } rows[] = {
        {"{.a[0].b}", "1"},
        {"{.a[*].b}", "1 2"},
        {"{$.a[-1].b}{\"\\n\"}", "2\n"},
        {"{.a[0]['c.d']}", "x"},
        {"b={.a[0].b}, f={.e.f}.", "b=1, f=[3,4]."},
        {"{.e}", "{\"f\":[3,4]}"},
        {"{.absent.b}{.a[7]}{.a.b}{.e[0]}", ""},
        {"{.e.f[*]}", "3 4"},
        {"{\"a}b\"}", "a}b"},
        {"", ""},
    };
    static const char *const bad[] = {"{.a",    "{range .a[*]}", "{.a[?(@.b==1)]}",
                                      "{a}",    "{..b}",         "{.a[}",
                                      "{.a[]}", "{\"x}",         "{.*}"};
    CLEANUP(arena_release) struct arena a;
    struct node *root;

    arena_init(&a, 1u << 20);
    assert_int_equal(yaml_read(&a, text, strlen(text), &root, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows) + ARRAY_LEN(bad); i++) {
        bool is_bad = i >= ARRAY_LEN(rows);
        CLEANUP(strbuf_release) struct strbuf out;
        struct err err = ERR_INIT;

        strbuf_init(&out, 4096);
        assert_int_equal(
            jsonpath_write(root, is_bad ? bad[i - ARRAY_LEN(rows)] : rows[i].template,
                           &out, &err),
            is_bad ? -EINVAL : 0);
        if (is_bad)
            assert_non_null(strstr(err.text, "jsonpath: "));
        else
            assert_string_equal(strbuf_str(&out), rows[i].want);
    }
}

static void
explain_run_case(void *arg, const char *name, const char *input, struct strbuf *out)
{
    static const struct show show = {.now_s = 1767225600};
    CLEANUP(arena_release) struct arena a;
    struct build b = {.arena = &a};
    struct job_view v;
    struct explain_input in = {.v = &v};
    const struct node *doc, *tree;

    (void)arg;
    (void)name;
    arena_init(&a, GOLDEN_MAX_BYTES);
    doc = golden_yaml(&a, input);
    assert_int_equal(job_view_make(&b, node_get(doc, "job"), &v), 0);
    in.pods = node_get(doc, "pods");
    in.events = node_get(doc, "events");
    in.workloads = node_get(doc, "workloads");
    in.groups = node_get(doc, "groups");
    tree = explain_tree(&b, &in);
    assert_non_null(tree);
    explain_page(&show, tree, out);
}

UNIT_TEST(explain_lists_the_facts_in_causal_order)
{
    golden_file("tests/golden/hvd-explain.txt", explain_run_case, NULL);
}

UNIT_MAIN(NULL, NULL)
