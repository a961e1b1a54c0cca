/* SPDX-License-Identifier: Apache-2.0 */
/* job_world.c: the world's text, both ways. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/contract/job_world.h"

UNIT_TEST(worlds_come_back_as_they_were)
{
    static const struct job_world t[] = {{0, 1}, {2, 4}, {UINT32_MAX, 65536}};
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err err = ERR_INIT;
        struct job_world back = {0};
        char text[JOB_WORLD_TEXT_SIZE];
        job_world_render(&t[i], text);
        assert_int_equal(job_world_parse(text, &back, &err), 0);
        assert_int_equal(back.generation, t[i].generation);
        assert_int_equal(back.workers, t[i].workers);
    }
}

UNIT_TEST(a_line_end_is_allowed_and_nothing_else)
{
    static const char *const bad[] = {
        "",        "2",     "2 ",
        " 4",      "2  4",  "2 4 ",
        " 2 4",    "2\t4",  "-1 4",
        "+2 4",    "2 0",   "2 -1",
        "2 65537", "two 4", "2 4\n\n",
        "2\n4",    "2 4x",  "2 4\nx",
        "0x2 4",   "\n",    "4294967296 4",
        "2 4\r\n", "2 4 1", "2 0000000000000000000000000000004"};
    struct err err = ERR_INIT;
    struct job_world w = {7, 7};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(job_world_parse(bad[i], &w, &err), -EINVAL);
        assert_non_null(
            strstr(err.text, "is not a generation and a number of workers"));
        assert_int_equal(w.generation, 7);
    }
    assert_int_equal(job_world_parse("2 4\n", &w, &err), 0);
    assert_int_equal(w.generation, 2);
    assert_int_equal(w.workers, 4);
}

UNIT_MAIN(NULL, NULL)
