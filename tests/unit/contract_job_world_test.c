/* SPDX-License-Identifier: Apache-2.0 */
/* job_world.c: the world's text, both ways. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "runtime/base/mem.h"
#include "runtime/contract/job_world.h"

static void worlds_come_back_as_they_were(void **state)
{
    static const struct job_world t[] = {{0, 1}, {2, 4}, {UINT32_MAX, 65536}};
    (void)state;
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

static void a_line_end_is_allowed_and_nothing_else(void **state)
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
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worlds_come_back_as_they_were),
        cmocka_unit_test(a_line_end_is_allowed_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
