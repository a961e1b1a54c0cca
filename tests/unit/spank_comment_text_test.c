/* SPDX-License-Identifier: Apache-2.0 */
/* comment_text.c: the line in the job's comment, and its pace. */
#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "spank_plugin/comment_text.h"

UNIT_TEST(modes)
{
    assert_int_equal(comment_mode_parse("off"), COMMENT_OFF);
    assert_int_equal(comment_mode_parse("failure"), COMMENT_FAILURE);
    assert_int_equal(comment_mode_parse("progress"), COMMENT_PROGRESS);
    assert_int_equal(comment_mode_parse("fail"), -1);
}

UNIT_TEST(lines)
{
    static const struct failure seven = {.rank = 4, .host = "node3", .exit_code = 7};
    static const struct {
        enum comment_mode mode;
        struct comment_facts f;
        const char *want;
    } rows[] = {
        {COMMENT_PROGRESS,
         {8, 5, 0, false, "", NULL, ""},
         "Meeting: 5 of 8 tasks are ready"},
        {COMMENT_PROGRESS,
         {8, 8, 3, false, "", NULL, ""},
         "Starting: 3 of 8 ranks have called hvd.init()"},
        {COMMENT_PROGRESS, {8, 8, 8, false, "", NULL, ""}, "Training: 8 ranks"},
        {COMMENT_PROGRESS, {8, 8, 8, false, "", NULL, "Stalled: x"}, "Stalled: x"},
        {COMMENT_PROGRESS, {8, 8, 8, true, "", NULL, "Training: x"}, "Ended: 8 ranks"},
        {COMMENT_PROGRESS,
         {8, 8, 8, false, "", &seven, "Training: x"},
         "Failed: rank 4 on node3 exited with code 7"},
        {COMMENT_FAILURE,
         {8, 8, 8, true, "", &seven, ""},
         "Failed: rank 4 on node3 exited with code 7"},
        {COMMENT_FAILURE,
         {8, 8, 0, false, "node2: no token", &seven, ""},
         "Failed: node2: no token"},
        {COMMENT_FAILURE, {8, 5, 0, false, "", NULL, ""}, ""},
        {COMMENT_FAILURE, {8, 8, 8, true, "", NULL, ""}, ""},
        {COMMENT_OFF, {8, 8, 8, false, "x", &seven, "x"}, ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(strbuf_release) struct strbuf out = {0};

        strbuf_init(&out, 4096);
        comment_line(rows[i].mode, &rows[i].f, &out);
        assert_string_equal(strbuf_str(&out), rows[i].want);
    }
}

UNIT_TEST(pace)
{
    static const struct {
        const char *last, *line;
        uint64_t due_s; /* the step began at 100, the last line came at 200; 0: never */
    } rows[] = {
        {"", "Meeting: 1 of 8 tasks are ready", 100 + COMMENT_FIRST_S},
        {"", "Training: 8 ranks", 100 + COMMENT_FIRST_S},
        {"Training: a", "Training: a", 0},
        {"Training: a", "Training: b", 200 + COMMENT_EVERY_S},
        {"Training: a", "Stalled: a", 200 + COMMENT_STATE_S},
        {"Starting: a", "Training: a", 200 + COMMENT_STATE_S},
        {"Train: a", "Training: a", 200 + COMMENT_STATE_S},
        {"Training: a", "", 0},
        {"", "Ended: 8 ranks", 0},
    };
    static const char *const at_once[][2] = {{"", "Failed: x"},
                                             {"Training: a", "Failed: x"},
                                             {"Training: a", "Ended: 8 ranks"}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct comment_pace p = {.start_ns = 100 * NS_PER_S,
                                 .last_ns = *rows[i].last ? 200 * NS_PER_S : 0};
        uint64_t want = rows[i].due_s ? rows[i].due_s * NS_PER_S : UINT64_MAX;

        (void)snprintf(p.last, sizeof(p.last), "%s", rows[i].last);
        assert_int_equal(comment_due_ns(&p, rows[i].line), want);
    }
    for (size_t i = 0; i < ARRAY_LEN(at_once); i++) {
        struct comment_pace p = {.start_ns = 100 * NS_PER_S, .last_ns = 200 * NS_PER_S};

        (void)snprintf(p.last, sizeof(p.last), "%s", at_once[i][0]);
        assert_int_equal(comment_due_ns(&p, at_once[i][1]), 0);
    }
}

UNIT_MAIN(NULL, NULL)
