/* SPDX-License-Identifier: Apache-2.0 */
/* Logs and other texts on the status page. */
#include "tests/unit/unit.h"

#include "operator/page/core/page_body.h"
#include "operator/page/core/page_log.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

UNIT_TEST(the_last_lines_of_a_rank_are_shown_without_its_prefix)
{
    static const char log[] = "starting\n[0]<stdout>:a\n[1]<stdout>:b\n[0]<stderr>:c\n"
                              "[1,0]<stdout>:d\r\n[1]<stdout>:e\n[0]<stdout>:f";
    static const struct {
        const char *text;
        int64_t rank;
        uint32_t tail;
        const char *want;
    } rows[] = {
        {log, 0, 10, "a\nc\nd\nf\n"},
        {log, 0, 2, "d\nf\n"},
        {log, 1, 1, "e\n"},
        {log, 2, 5, ""},
        {log, -1, 2, "[1]<stdout>:e\n[0]<stdout>:f\n"},
        {log, -1, 3, "[1,0]<stdout>:d\n[1]<stdout>:e\n[0]<stdout>:f\n"},
        {"", -1, 5, ""},
        {"\n", -1, 5, "\n"},
        {"a\n\nb\n", -1, 2, "\nb\n"},
        {"a\r\n\r\nb\r\n", -1, 2, "\nb\n"},
        {"10%\r20%\r30%\n", -1, 2, "20%\n30%\n"},
        {"x", -1, 5, "x\n"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(strbuf_release) struct strbuf out;

        strbuf_init(&out, 4096);
        page_log_filter(rows[i].text, strlen(rows[i].text), rows[i].rank, rows[i].tail,
                        &out);
        assert_string_equal(strbuf_str(&out), rows[i].want);
    }
}

UNIT_TEST(more_lines_are_requested_where_ranks_share_a_log)
{
    assert_int_equal(page_log_lines(200, 8, true), 3200);
    assert_int_equal(page_log_lines(200, 8, false), 200);
    assert_int_equal(page_log_lines(200, 1, true), 200);
    assert_int_equal(page_log_lines(2000, 1000, true), PAGE_LOG_LINES);
    assert_int_equal(page_log_lines(1, UINT64_MAX / 4, true), PAGE_LOG_LINES);
}

UNIT_TEST(fewer_lines_are_requested_when_the_newest_are_cut_off)
{
    AUTOFREE char *log = mem_alloc(PAGE_LOG_BYTES);

    memset(log, 'x', PAGE_LOG_BYTES);
    for (size_t i = 1024; i <= PAGE_LOG_BYTES; i += 1024)
        log[i - 1] = '\n';
    assert_int_equal(page_log_fewer(log, PAGE_LOG_BYTES - 1, 2000), 0);
    assert_int_equal(page_log_fewer(log, PAGE_LOG_BYTES, 2000), 768);
    assert_int_equal(page_log_fewer(log, PAGE_LOG_BYTES, 100), 75);
    memset(log, 'x', PAGE_LOG_BYTES);
    assert_int_equal(page_log_fewer(log, PAGE_LOG_BYTES, 2000), 1);
    assert_int_equal(page_log_fewer(log, PAGE_LOG_BYTES, 1), 0); /* no line fits */
}

static void check_text(const char *p, size_t n, const char *want)
{
    CLEANUP(strbuf_release) struct strbuf out;

    strbuf_init(&out, PAGE_BODY_MAX);
    assert_false(page_body_text(p, n, &out));
    assert_int_equal(strbuf_status(&out), 0);
    assert_string_equal(strbuf_str(&out), want);
}

UNIT_TEST(any_bytes_become_a_json_string)
{
    check_text("", 0, "\"\"");
    check_text("a \"b\"\\\n\tc", 9, "\"a \\\"b\\\"\\\\\\n\\tc\"");
    check_text("a\0b", 3, "\"a\\\\x00b\"");
    check_text("\033[31mred\r", 9, "\"\\\\x1b[31mred\\\\x0d\"");
    check_text("\xff\xc3\xa9\xc3", 4, "\"\\\\xff\xc3\xa9\\\\xc3\"");
    check_text("\xe2\x80\xae", 3, "\"\\\\u{202e}\"");
}

UNIT_TEST(the_newest_lines_of_a_long_text_are_shown)
{
    CLEANUP(strbuf_release) struct strbuf out;
    size_t n = 2u * PAGE_TEXT_MAX;
    AUTOFREE char *text = mem_alloc(n);

    strbuf_init(&out, PAGE_BODY_MAX);
    memset(text, 'x', n);
    text[n - PAGE_TEXT_MAX + 9] = '\n'; /* in the part that remains */
    memcpy(text + n - 4, "end", 3);
    text[n - 1] = '\n';
    assert_true(page_body_text(text, n, &out));
    assert_int_equal(out.n, PAGE_TEXT_MAX - 10 + 3);
    assert_string_equal(strbuf_str(&out) + out.n - 6, "end\\n\"");
    strbuf_clear(&out);
    memset(text, 1, n); /* the worst: all of it grows */
    assert_true(page_body_text(text, n, &out));
    assert_int_equal(strbuf_status(&out), 0);
    assert_int_equal(out.n, 2 + 5 * (size_t)PAGE_TEXT_MAX);
}

UNIT_TEST(an_error_is_one_sentence_in_json)
{
    CLEANUP(strbuf_release) struct strbuf out;

    strbuf_init(&out, 1000);
    page_body_error("no \"pod\"\n\xff", &out);
    assert_string_equal(strbuf_str(&out), "{\"error\":\"no \\\"pod\\\" \\\\xff\"}");
    strbuf_clear(&out);
    page_body_error("", &out);
    assert_string_equal(strbuf_str(&out), "{\"error\":\"out of memory\"}");
}

UNIT_MAIN(NULL, NULL)
