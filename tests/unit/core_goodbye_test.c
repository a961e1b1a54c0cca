/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of goodbyes: what is left of an untrusted text, and which rank a cause names. */
#include "runtime/base/mem.h"
#include "runtime/core/goodbye.h"
#include "tests/unit/unit.h"

UNIT_TEST(only_printable_text_is_left)
{
    static const struct {
        const char *text, *left;
    } table[] = {
        {"", ""},
        {"bad batch", "bad batch"},
        {"  two\n\tlines \r\n", "two lines"},
        {"\033]0;title\007\033[31m", "]0;title [31m"},
        {"del\x7f!", "del !"},
        {"caf\xc3\xa9 \xe6\x89\xb9 \xf0\x9f\x98\x80",
         "caf\xc3\xa9 \xe6\x89\xb9 \xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "31m",
         "?31m"}, /* a C1 control */
        {"\xe2\x80\xae"
         "evil",
         "?evil"}, /* right to left */
        {"\xe2\x81\xa6"
         "evil",
         "?evil"},                                       /* isolate */
        {"\xe2\x80\xa8", "?"},                           /* line separator */
        {"\xd8\x9c\xef\xbb\xbf\xf3\xa0\x80\x81", "???"}, /* a mark, a BOM, a tag */
        {"\xe2\x80\x94\xe2\x81\x9e", "\xe2\x80\x94\xe2\x81\x9e"},
        {"\xff\xfe", "??"},
        {"\xc0\x80\xe0\x80\x80\xed\xa0\x80",
         "????????"},                 /* no shortest form, surrogate */
        {"\xf4\x90\x80\x80", "????"}, /* beyond Unicode */
        {"cut \xe6\x89", "cut ??"},
    };
    char ret[80];

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        goodbye_clean(table[i].text, ret, sizeof(ret));
        assert_string_equal(ret, table[i].left);
    }
}

UNIT_TEST(a_character_is_not_cut)
{
    static const char text[] = "ab\xe6\x89\xb9";

    for (size_t size = 1; size < 8; size++) {
        AUTOFREE char *ret = mem_alloc(size); /* a write beyond is seen */

        assert_non_null(ret);
        goodbye_clean(text, ret, size);
        assert_int_equal(strlen(ret), size > 5 ? 5 : size > 3 ? 2 : size - 1);
        assert_memory_equal(ret, text, strlen(ret));
    }
}

UNIT_TEST(a_cause_names_its_rank)
{
    static const struct {
        const char *text;
        int64_t rank;
    } table[] = {
        {"rank 3 (host b, pid 7) ended: ValueError", 3},
        {"rank 12 (host b, pid 7): NCCL failed", 12},
        {"Horovod has been shut down: rank 0 (host b, pid 7) exited", 0},
        {"rank 3: a bad message", -1},
        {"rank (host b)", -1},
        {"rank -1 (host b)", -1},
        {"rank 99999999999 (host b)", -1},
        {"tensor x waits for rank 3 (host b)", -1},
        {"", -1},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_int_equal(goodbye_rank(table[i].text), table[i].rank);
}

UNIT_TEST(a_stop_is_no_failure)
{
    static const struct {
        const char *text;
        bool is_stop;
    } table[] = {
        {"rank 3 (host b, pid 7) was stopped by Slurm: SIGTERM", true},
        {"rank 0 (host b, pid 7) was stopped by its launcher: SIGINT", true},
        {"rank 3 (host b, pid 7) ended by SIGTERM", false},
        {"rank 3 (host b, pid 7) ended: x (y) was stopped by me", false},
        {"rank 3 was stopped by Slurm", false},
        {"tensor x (y) was stopped by Slurm", false},
        {"rank 3 (host b", false},
        {"", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_int_equal(goodbye_is_stop(table[i].text), table[i].is_stop);
}

UNIT_MAIN(NULL, NULL)
