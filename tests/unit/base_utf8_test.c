/* SPDX-License-Identifier: Apache-2.0 */
/* Texts from outside become printable. The lengths of characters: core_trace_test.c. */
#include "tests/unit/unit.h"

#include "runtime/base/utf8.h"

UNIT_TEST(texts_become_printable)
{
    static const struct {
        const char *text, *want;
        size_t room;
    } cases[] = {
        {"", "", 1},
        {"loss", "loss", 5},
        {"loss", "los", 4},
        {"loss", "", 1},
        {"a\nb\x7f\x01\t", "a?b???", 16},
        {"caf\xc3\xa9", "caf\xc3\xa9", 6},
        {"caf\xc3\xa9", "caf", 5}, /* not half a character */
        {"\xff\xc3\xe2\x82", "????", 16},
        {"\xed\xa0\x80", "???", 16}, /* half of a surrogate pair */
        {"\xf0\x9f\x98\x80!", "\xf0\x9f\x98\x80!", 16},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char ret[16];

        memset(ret, 0x55, sizeof(ret));
        utf8_clean(cases[i].text, ret, cases[i].room);
        assert_string_equal(ret, cases[i].want);
    }
}

UNIT_MAIN(NULL, NULL)
