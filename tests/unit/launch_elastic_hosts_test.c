/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of an elastic job, and the causes of failures. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/launch/core/elastic_cause.h"
#include "runtime/launch/core/elastic_hosts.h"

#define S 1000000000ull

/* "a:2 b:1" */
static uint32_t list_apply(struct elastic_hosts *h, const char *text)
{
    struct hostlist list;
    uint32_t n_left;

    hostlist_init(&list);
    if (*text)
        assert_int_equal(hostlist_parse_hosts(text, &list, NULL), 0);
    n_left = elastic_hosts_apply(h, &list);
    hostlist_release(&list);
    return n_left;
}

/* "0:a=2,1:b=0": the numbers that were used, with name and slots. */
static const char *hosts_show(const struct elastic_hosts *h)
{
    static char text[200];
    int n = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < h->n; i++)
        if (h->v[i].name[0])
            n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%u:%s=%u",
                          n > 0 ? "," : "", i, h->v[i].name, h->v[i].slots);
    return text;
}

static void hosts_init(struct elastic_hosts *h, uint32_t n, uint32_t slots)
{
    assert_int_equal(elastic_hosts_init(h, n, slots, NULL), 0);
}

UNIT_TEST(a_host_keeps_its_number)
{
    CLEANUP(elastic_hosts_release) struct elastic_hosts h;

    hosts_init(&h, 4, 8);
    assert_int_equal(list_apply(&h, "a:2,b:1"), 0);
    assert_int_equal(list_apply(&h, "b:3"), 0);
    assert_string_equal(hosts_show(&h), "0:a=0,1:b=3");
    assert_int_equal(list_apply(&h, "c:1,a:1"), 0);
    assert_string_equal(hosts_show(&h), "0:a=1,1:b=0,2:c=1");
}

UNIT_TEST(only_what_has_changed_is_marked)
{
    CLEANUP(elastic_hosts_release) struct elastic_hosts h;

    hosts_init(&h, 4, 8);
    (void)list_apply(&h, "a:2,b:1");
    for (uint32_t i = 0; i < h.n; i++)
        h.v[i].has_changed = false;
    (void)list_apply(&h, "b:1,a:3");
    assert_true(h.v[0].has_changed);
    assert_false(h.v[1].has_changed);
    assert_false(h.v[2].has_changed);
}

UNIT_TEST(a_number_is_given_again_when_nobody_has_it)
{
    CLEANUP(elastic_hosts_release) struct elastic_hosts h;
    uint32_t host;

    hosts_init(&h, 2, 8);
    (void)list_apply(&h, "a:1,b:1");
    assert_true(elastic_hosts_next(&h, 0, &host));
    assert_int_equal(host, 0);
    assert_int_equal(list_apply(&h, "c:1"),
                     1); /* the end of a and b is not served yet */
    h.v[0].has_changed = h.v[1].has_changed = false;
    assert_int_equal(list_apply(&h, "c:1,d:1"), 1); /* a is still connected */
    assert_string_equal(hosts_show(&h), "0:a=0,1:c=1");
    elastic_hosts_lose(&h, 0, 0);
    assert_int_equal(list_apply(&h, "c:1,d:1"), 0);
    assert_string_equal(hosts_show(&h), "0:d=1,1:c=1");
}

UNIT_TEST(slots_beyond_the_limit_are_not_used)
{
    CLEANUP(elastic_hosts_release) struct elastic_hosts h;

    hosts_init(&h, 2, 4);
    (void)list_apply(&h, "a:9");
    assert_string_equal(hosts_show(&h), "0:a=4");
}

UNIT_TEST(a_lost_host_is_tried_again_after_a_time_that_grows)
{
    static const uint64_t wait_s[] = {1, 2, 4, 8, 8, 8};
    CLEANUP(elastic_hosts_release) struct elastic_hosts h;
    uint64_t now = 0;
    uint32_t host;

    hosts_init(&h, 1, 1);
    (void)list_apply(&h, "a:1");
    for (size_t i = 0; i < ARRAY_LEN(wait_s); i++) {
        assert_true(elastic_hosts_next(&h, now, &host));
        assert_false(elastic_hosts_next(&h, now, &host));
        elastic_hosts_lose(&h, 0, now);
        assert_true(elastic_hosts_next_ns(&h) == now + wait_s[i] * S);
        assert_false(elastic_hosts_next(&h, now + wait_s[i] * S - 1, &host));
        now += wait_s[i] * S;
    }
    assert_true(elastic_hosts_next(&h, now, &host));
    elastic_hosts_set_ready(&h, 0);
    elastic_hosts_lose(&h, 0, now);
    assert_true(elastic_hosts_next_ns(&h) == now + S);
}

UNIT_TEST(a_host_that_is_not_listed_is_not_tried)
{
    CLEANUP(elastic_hosts_release) struct elastic_hosts h;
    uint32_t host;

    hosts_init(&h, 2, 1);
    (void)list_apply(&h, "a:1");
    (void)list_apply(&h, "");
    assert_false(elastic_hosts_next(&h, S, &host));
    assert_true(elastic_hosts_next_ns(&h) == UINT64_MAX);
}

UNIT_TEST(listed_hosts_that_are_not_ready_are_missing)
{
    CLEANUP(elastic_hosts_release) struct elastic_hosts h;

    hosts_init(&h, 4, 8);
    assert_int_equal(elastic_hosts_missing(&h), 0);
    assert_false(elastic_hosts_are_ready(&h));
    assert_int_equal(list_apply(&h, "a:2,b:1"), 0);
    assert_int_equal(elastic_hosts_missing(&h), 2);
    elastic_hosts_set_ready(&h, 0);
    assert_int_equal(elastic_hosts_missing(&h), 1);
    assert_int_equal(list_apply(&h, "a:2"), 0);
    assert_int_equal(elastic_hosts_missing(&h), 0);
    assert_true(elastic_hosts_are_ready(&h));
    elastic_hosts_lose(&h, 0, S);
    assert_int_equal(elastic_hosts_missing(&h), 1);
}

/* --- causes --- */

static uint64_t cause_of(int code, int sig, const char *why, const char *tail)
{
    AUTOFREE struct report *r = mem_zalloc(sizeof(*r));

    assert_non_null(r);
    r->blames = -1;
    r->f.exit_code = code;
    r->f.signal = sig;
    (void)snprintf(r->f.why, sizeof(r->f.why), "%s", why);
    (void)snprintf(r->tail, sizeof(r->tail), "%s", tail);
    return elastic_cause(r);
}

UNIT_TEST(the_same_failure_has_the_same_cause)
{
    const uint64_t first = cause_of(1, 0, "", "at step 4\nValueError: bad pid 12\n");

    assert_true(first != 0);
    assert_true(first == cause_of(1, 0, "", "at step 99\nValueError: bad pid 3\n\n"));
    assert_true(first != cause_of(1, 0, "", "at step 4\nKeyError: bad pid 12\n"));
    assert_true(first != cause_of(2, 0, "", "at step 4\nValueError: bad pid 12\n"));
    assert_true(first != cause_of(1, 0, "Xid 79", "ValueError: bad pid 12\n"));
}

UNIT_TEST(what_a_killed_process_wrote_last_is_no_cause)
{
    assert_true(cause_of(0, 9, "", "step 1\n") == cause_of(0, 9, "", "loss nan\n"));
    assert_true(cause_of(0, 9, "", "step 1\n") != cause_of(0, 11, "", "step 1\n"));
}

UNIT_TEST(a_failure_because_of_another_process_has_no_cause)
{
    struct report r = {.blames = 2, .f = {.exit_code = 1}};

    assert_true(elastic_cause(&r) == 0);
    assert_true(cause_of(FAILURE_OTHER_RANK, 0, "", "") == 0);
}

UNIT_MAIN(NULL, NULL)
