/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c: line ends, pieces, the tail; each case at every way to cut the input in two.
 */
#include "runtime/launch/core/lines.h"
#include "tests/unit/launch_fixture.h"

static void lines_collect(void *arg, const char *text, size_t n)
{
    struct strbuf *out = arg;
    strbuf_putc(out, '<');
    strbuf_add(out, text, n);
    strbuf_putc(out, '>');
}

UNIT_TEST(lines_end_at_newline_and_carriage_return_however_they_arrive)
{
    static const struct {
        const char *in, *out;
    } table[] = {
        {"", ""},
        {"a\n", "<a>"},
        {"a", "<a>"},
        {"\n", "<>"},
        {"a\n\nb\n", "<a><><b>"},
        {"a\r\nb\r\n", "<a><b>"},
        {"10%\r20%\r30%\n", "<10%><20%><30%>"},
        {"\rx\r", "<x>"},
        {"a\r\n\r\nb", "<a><><b>"},
        {"a\r\r\nb", "<a><><b>"},
        {"a\r\r\rb", "<a><b>"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        size_t n = strlen(table[i].in);
        for (size_t cut = 0; cut <= n; cut++) {
            CLEANUP(lines_release) struct lines l;
            CLEANUP(strbuf_release) struct strbuf out;
            lines_init(&l);
            strbuf_init(&out, 1000);
            assert_int_equal(lines_feed(&l, table[i].in, cut, lines_collect, &out), 0);
            assert_int_equal(
                lines_feed(&l, table[i].in + cut, n - cut, lines_collect, &out), 0);
            lines_end(&l, lines_collect, &out);
            assert_string_equal(strbuf_str(&out), table[i].out);
        }
    }
}

struct sizes {
    size_t v[8], n, total;
};

static void lines_measure(void *arg, const char *text, size_t n)
{
    struct sizes *s = arg;
    (void)text;
    assert_true(s->n < 8);
    s->v[s->n++] = n;
    s->total += n;
}

UNIT_TEST(a_long_line_is_split_and_nothing_is_lost)
{
    static char big[3 * LINE_MAX_BYTES];
    static const size_t step[] = {1000, LINE_MAX_BYTES - 1, LINE_MAX_BYTES,
                                  sizeof(big)};
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = '\n';
    for (size_t k = 0; k < ARRAY_LEN(step); k++) {
        CLEANUP(lines_release) struct lines l;
        struct sizes s = {0};
        lines_init(&l);
        for (size_t at = 0; at < sizeof(big); at += step[k]) {
            size_t n = sizeof(big) - at < step[k] ? sizeof(big) - at : step[k];
            assert_int_equal(lines_feed(&l, big + at, n, lines_measure, &s), 0);
        }
        lines_end(&l, lines_measure, &s);
        assert_int_equal(s.total, sizeof(big) - 1);
        assert_int_equal(s.n, 3);
        for (size_t i = 0; i < s.n; i++)
            assert_true(s.v[i] <= LINE_MAX_BYTES);
        assert_true(l.cap <= 2 * LINE_MAX_BYTES);
    }
}

UNIT_TEST(out_of_memory_hands_the_bytes_on)
{
    CLEANUP(lines_release) struct lines l;
    struct sizes s = {0};
    lines_init(&l);
    mem_fail_after(0);
    assert_int_equal(lines_feed(&l, "abc", 3, lines_measure, &s), -12);
    mem_fail_after(-1);
    assert_int_equal(s.total, 3);
}

UNIT_TEST(the_tail_keeps_the_last_lines)
{
    static struct tail t;
    CLEANUP(strbuf_release) struct strbuf out;
    for (int i = 0; i < 25; i++) {
        char line[8] = {'l', (char)('a' + i)};
        tail_add(&t, line, 2);
    }
    strbuf_init(&out, 4096);
    tail_render(&t, 4096, &out);
    assert_int_equal(out.n, 20 * 3);
    assert_memory_equal(strbuf_str(&out), "lf\n", 3);
    assert_string_equal(strbuf_str(&out) + 57, "ly\n");
    strbuf_clear(&out);
    tail_render(&t, 8, &out); /* whole lines only */
    assert_string_equal(strbuf_str(&out), "lx\nly\n");
}

UNIT_TEST(the_tail_is_safe_to_print)
{
    static struct tail t;
    char big[TAIL_LINE_BYTES + 50];
    CLEANUP(strbuf_release) struct strbuf out;
    tail_add(&t, "\x1b[2J\tx\x7f", 7);
    memset(big, 'y', sizeof(big));
    tail_add(&t, big, sizeof(big));
    strbuf_init(&out, 4096);
    tail_render(&t, 4096, &out);
    assert_memory_equal(strbuf_str(&out), "?[2J\tx?\n", 8);
    assert_int_equal(out.n, 8 + TAIL_LINE_BYTES + 1);
}

UNIT_MAIN(NULL, NULL)
