/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a set of indices, which the status keeps and anybody can edit. */
#include "tests/unit/unit.h"

#include "operator/core/index_set.h"
#include "runtime/base/mem.h"

static void index_set_text(const struct index_set *s, char ret[64])
{
    struct strbuf text;

    strbuf_init(&text, 63);
    index_set_write(s, &text);
    assert_int_equal(strbuf_status(&text), 0);
    (void)snprintf(ret, 64, "%s", strbuf_str(&text));
    strbuf_release(&text);
}

UNIT_TEST(what_was_read_is_written_with_ranges_joined)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {NULL, ""},
        {"", ""},
        {"0", "0"},
        {"0,3-5", "0,3-5"},
        {"3,4,5,7", "3-5,7"},
        {"3,4,0,9", "3-4"}, /* not ascending: of what an editor wrote, no loops */
        {"0-8191,0-8191", "0-8191"},
        {"5,5", "5"},
        {"63,64", "63-64"},
        {"8190-8191", "8190-8191"},
        {"0-8191", "0-8191"},
        {"7-5", ""}, /* an empty range */
        /* what cannot be read ends the reading */
        {"1,8192", "1"},
        {"1,99999999999999999999", "1"},
        {"1,-2", "1"},
        {"1,2-", "1"},
        {"1,2-x", "1"},
        {"1, 2", "1"},
        {"1,,2", "1"},
        {"x", ""},
        {"1x,2", "1"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct index_set s;
        char got[64];

        index_set_read(rows[i].text, &s);
        index_set_text(&s, got);
        assert_string_equal(got, rows[i].want);
    }
}

UNIT_TEST(an_index_above_the_maximum_is_never_in_a_set)
{
    struct index_set all;

    index_set_read("0-8191", &all);
    assert_true(index_set_has(&all, INDEX_SET_MAX - 1));
    assert_false(index_set_has(&all, INDEX_SET_MAX));
    assert_false(index_set_has(&all, UINT32_MAX));
}

/* The longest text: every second index. It is read as it was written. */
UNIT_TEST(the_longest_text_fits)
{
    struct index_set odd = {0}, again;
    struct strbuf text;

    for (uint32_t i = 1; i < INDEX_SET_MAX; i += 2)
        index_set_add(&odd, i);
    strbuf_init(&text, 6 * INDEX_SET_MAX);
    index_set_write(&odd, &text);
    assert_int_equal(strbuf_status(&text), 0);
    index_set_read(strbuf_str(&text), &again);
    assert_memory_equal(&odd, &again, sizeof(odd));
    strbuf_release(&text);
}

UNIT_MAIN(NULL, NULL)
