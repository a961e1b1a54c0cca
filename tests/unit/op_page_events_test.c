/* SPDX-License-Identifier: Apache-2.0 */
/* The Events of a job, out of lists of all Events of its namespace. */
#include "tests/unit/unit.h"

#include "operator/page/core/page_events.h"
#include "runtime/base/mem.h"

#define LIST_BYTES (64u << 20)

struct events_case {
    struct page_events *e;
    struct strbuf list, out;
    size_t n;
};

static void case_begin(struct events_case *c)
{
    c->e = page_events_new("train", "uid-1");
    c->n = 0;
    strbuf_init(&c->list, LIST_BYTES);
    strbuf_init(&c->out, LIST_BYTES);
}

static void case_end(struct events_case *c)
{
    page_events_free(c->e);
    strbuf_release(&c->list);
    strbuf_release(&c->out);
}

/* more: further members, with a comma in front. */
static void case_put(struct events_case *c,
                     const char *kind,
                     const char *name,
                     const char *uid,
                     const char *more)
{
    strbuf_printf(
        &c->list,
        "%s{\"metadata\":{\"name\":\"e%zu\",\"uid\":\"e%zu\",\"managedFields\":"
        "[{\"x\":\"involvedObject\"}]},\"involvedObject\":{\"kind\":\"%s\","
        "\"name\":\"%s\",\"uid\":\"%s\"}%s}",
        c->n ? "," : "", c->n, c->n, kind, name, uid, more);
    c->n++;
}

static int case_add(struct events_case *c, char ret_next[PAGE_CONTINUE_SIZE])
{
    CLEANUP(strbuf_release) struct strbuf text;

    strbuf_init(&text, LIST_BYTES);
    strbuf_printf(&text, "{\"kind\":\"EventList\",\"metadata\":{%s},\"items\":[%s]}",
                  ret_next[0] ? "\"continue\":\"a_b-c=\"" : "", strbuf_str(&c->list));
    assert_int_equal(strbuf_status(&text), 0);
    strbuf_clear(&c->list);
    return page_events_add(c->e, strbuf_str(&text), text.n, ret_next);
}

static const char *case_json(struct events_case *c, bool is_partial)
{
    char next[PAGE_CONTINUE_SIZE] = "";

    assert_int_equal(case_add(c, next), 0);
    assert_string_equal(next, "");
    page_events_json(c->e, is_partial, &c->out);
    return strbuf_str(&c->out);
}

UNIT_TEST(events_of_the_job_its_pods_and_objects_are_taken)
{
    static const struct {
        const char *kind, *name, *uid;
        bool is_taken;
    } rows[] = {
        {"HorovodJob", "train", "uid-1", true},
        {"HorovodJob", "train", "uid-0", false}, /* an earlier job */
        {"Pod", "train-worker-0", "p", true},
        {"Pod", "train-launcher-x7k2p", "p", true},
        {"Service", "train", "s", true},
        {"Secret", "train-token", "s", true},
        {"Pod", "train-2-worker-0", "p", false},
        {"Pod", "trainer-worker-0", "p", false},
        {"Pod", "tr", "p", false},
        {"Pod", "other-worker-0", "p", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct events_case c;
        char want[200];

        case_begin(&c);
        case_put(&c, rows[i].kind, rows[i].name, rows[i].uid, "");
        (void)snprintf(want, sizeof(want),
                       "{\"events\":[{\"time\":\"\",\"type\":\"\",\"reason\":\"\","
                       "\"message\":\"\",\"object\":\"%s/%s\",\"count\":1}]}",
                       rows[i].kind, rows[i].name);
        assert_string_equal(case_json(&c, false),
                            rows[i].is_taken ? want : "{\"events\":[]}");
        case_end(&c);
    }
}

UNIT_TEST(the_oldest_is_first_whichever_fields_an_event_has)
{
    struct events_case c;

    case_begin(&c);
    case_put(&c, "Pod", "train-worker-0", "p",
             ",\"type\":\"Warning\",\"reason\":\"BackOff\",\"count\":7,\"message\":"
             "\"a\\n\\u001b[1m\","
             "\"firstTimestamp\":\"2026-11-30T04:00:00Z\",\"lastTimestamp\":\"2026-11-"
             "30T04:00:09Z\"");
    case_put(&c, "Pod", "train-worker-0", "p",
             ",\"type\":\"Normal\",\"reason\":\"Scheduled\",\"lastTimestamp\":null,"
             "\"firstTimestamp\":null,\"eventTime\":\"2026-11-30T04:00:01.500000Z\","
             "\"message\":\"gr\xc3\xbc\xc3\x9f\"");
    case_put(&c, "Pod", "train-worker-1", "p",
             ",\"eventTime\":\"2026-11-30T03:00:00Z\",\"series\":{\"count\":3,"
             "\"lastObservedTime\":\"2026-11-30T04:00:05Z\"}");
    assert_string_equal(
        case_json(&c, true),
        "{\"events\":["
        "{\"time\":\"2026-11-30T04:00:01.500000Z\",\"type\":\"Normal\",\"reason\":"
        "\"Scheduled\","
        "\"message\":\"gr\xc3\xbc\xc3\x9f\",\"object\":\"Pod/"
        "train-worker-0\",\"count\":1},"
        "{\"time\":\"2026-11-30T04:00:05Z\",\"type\":\"\",\"reason\":\"\",\"message\":"
        "\"\","
        "\"object\":\"Pod/train-worker-1\",\"count\":3},"
        "{\"time\":\"2026-11-30T04:00:09Z\",\"type\":\"Warning\",\"reason\":"
        "\"BackOff\","
        "\"message\":\"a \\\\x1b[1m\",\"object\":\"Pod/train-worker-0\",\"count\":7}"
        "],\"truncated\":true}");
    case_end(&c);
}

UNIT_TEST(pages_continue_and_an_event_on_two_of_them_counts_once)
{
    char next[PAGE_CONTINUE_SIZE] = "more";
    struct events_case c;

    case_begin(&c);
    case_put(&c, "Pod", "train-worker-0", "p", ",\"reason\":\"A\"");
    assert_int_equal(case_add(&c, next), 0);
    assert_string_equal(next, "a_b-c=");
    c.n = 0; /* the same uid */
    case_put(&c, "Pod", "train-worker-0", "p", ",\"reason\":\"B\"");
    assert_string_equal(
        case_json(&c, false),
        "{\"events\":[{\"time\":\"\",\"type\":\"\",\"reason\":\"B\",\"message\":"
        "\"\",\"object\":\"Pod/train-worker-0\",\"count\":1}]}");
    case_end(&c);
}

UNIT_TEST(of_many_events_the_newest_are_shown)
{
    struct events_case c;
    const char *json;

    case_begin(&c);
    for (unsigned i = 0; i < 5 * PAGE_EVENTS_MAX; i++) {
        char more[100];

        (void)snprintf(more, sizeof(more),
                       ",\"count\":%u,\"lastTimestamp\":\"2026-11-30T04:%02u:%02uZ\"",
                       5000 + i * 7 % 1000, i * 7 % 1000 / 60, i * 7 % 1000 % 60);
        case_put(&c, "Pod", "train-worker-0", "p", more);
    }
    json = case_json(&c, false);
    for (unsigned i = 0; i < PAGE_EVENTS_MAX; i++) {
        char want[16];

        (void)snprintf(want, sizeof(want), "\"count\":%u}", 5800 + i);
        json = strstr(json, want);
        assert_non_null(json);
    }
    assert_string_equal(json, "\"count\":5999}],\"truncated\":true}");
    assert_null(strstr(strbuf_str(&c.out), "\"count\":5799}"));
    case_end(&c);
}

UNIT_TEST(what_is_not_a_list_is_refused_and_no_memory_is_lost_for_it)
{
    static const char *const texts[] = {
        "", "{}", "[]", "{\"items\":[{\"a\":1}", "no", "{\"items\":[{]}"};
    static const char *const fine[] = {
        "{\"items\":[]}", "{\"items\":null}", "{\"items\":[7,null,\"x\",{}]}",
        "{\"items\":[{\"involvedObject\":{\"name\":\"train\"}}]}"};
    struct page_events *e = page_events_new("train", "u");
    char next[PAGE_CONTINUE_SIZE] = "x";

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_int_equal(page_events_add(e, texts[i], strlen(texts[i]), next), -EINVAL);
        assert_string_equal(next, "x");
    }
    for (size_t i = 0; i < ARRAY_LEN(fine); i++)
        assert_int_equal(page_events_add(e, fine[i], strlen(fine[i]), next), 0);
    page_events_free(e);
}

UNIT_TEST(a_long_message_is_cut_between_characters)
{
    CLEANUP(strbuf_release) struct strbuf more;
    struct events_case c;

    case_begin(&c);
    strbuf_init(&more, LIST_BYTES);
    strbuf_puts(&more, ",\"message\":\"x");
    for (size_t i = 0; i < 20000; i++)
        strbuf_puts(&more, "\xc3\xa9");
    strbuf_puts(&more, "\"");
    case_put(&c, "Pod", "train-worker-0", "p", strbuf_str(&more));
    strbuf_clear(&more);
    strbuf_puts(&more, "\"message\":\"x");
    for (size_t i = 0; i < 511; i++)
        strbuf_puts(&more, "\xc3\xa9");
    strbuf_puts(&more, "\",");
    assert_non_null(strstr(case_json(&c, false), strbuf_str(&more)));
    case_end(&c);
}

UNIT_MAIN(NULL, NULL)
