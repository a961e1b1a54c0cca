/* SPDX-License-Identifier: Apache-2.0 */
/* contract/step_comment.c: what a step writes beside a user's own text, and what is read
 * back from it. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/contract/step_comment.h"

static int
line_put(const char *comment, const char *line, char ret[2 * STEP_COMMENT_MAX])
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    int rc;

    strbuf_init(&out, 2 * STEP_COMMENT_MAX - 1);
    rc = step_comment_put(comment, 12, 3, line, &out);
    (void)snprintf(ret, 2 * STEP_COMMENT_MAX, "%s", strbuf_str(&out));
    return rc;
}

UNIT_TEST(a_users_own_text_stays)
{
    static const struct {
        const char *comment, *want;
    } rows[] = {
        {"", "hvd 12.3: new"},
        {"hvd 12.0: old", "hvd 12.3: new"},
        {"hvd 11.0: of a requeued job | x", "hvd 12.3: new"},
        {"mine", "mine | hvd 12.3: new"},
        {"mine | hvd 12.0: old", "mine | hvd 12.3: new"},
        {"a | b | hvd 12.0: old", "a | b | hvd 12.3: new"},
        {"hvd is nice", "hvd is nice | hvd 12.3: new"},
        {"hvd 12: x", "hvd 12: x | hvd 12.3: new"},
        {"see hvd 12.0: x", "see hvd 12.0: x | hvd 12.3: new"},
        {" | hvd 12.0: old", "hvd 12.3: new"},
    };
    char text[2 * STEP_COMMENT_MAX];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(line_put(rows[i].comment, "new", text), 0);
        assert_string_equal(text, rows[i].want);
    }
}

UNIT_TEST(a_line_fits_slurms_limit_and_has_no_control_characters)
{
    char text[2 * STEP_COMMENT_MAX], line[2 * STEP_COMMENT_MAX], user[STEP_COMMENT_MAX];

    memset(line, 'x', sizeof(line) - 1);
    line[sizeof(line) - 1] = '\0';
    assert_int_equal(line_put("mine", line, text), 0);
    assert_int_equal(strlen(text), STEP_COMMENT_MAX - 1);
    assert_int_equal(line_put("", "a\nb\x7f\x1b", text), 0);
    assert_string_equal(text, "hvd 12.3: a?b??");
    memset(user, 'u', sizeof(user) - 1);
    user[sizeof(user) - 1] = '\0';
    assert_int_equal(line_put(user, "new", text), -E2BIG);
    assert_string_equal(text, "");
}

UNIT_TEST(a_comment_is_read_back)
{
    static const struct {
        const char *comment;
        uint32_t job, step; /* job 0: none */
        const char *line;
    } rows[] = {
        {"mine | hvd 12.3: Training: 8 ranks", 12, 3, "Training: 8 ranks"},
        {"hvd 1.0: a | b", 1, 0, "a | b"},
        {"", 0, 0, ""},
        {"hvd 12.x: a", 0, 0, ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct step_comment c = {.job = 0};

        assert_int_equal(step_comment_read(rows[i].comment, &c), rows[i].job != 0);
        assert_int_equal(c.job, rows[i].job);
        assert_int_equal(c.step, rows[i].step);
        assert_string_equal(c.line ? c.line : "", rows[i].line);
    }
}

/* Whatever failure_sentence writes. */
UNIT_TEST(a_failure_is_read_back_from_its_sentence)
{
    static const struct failure rows[] = {
        {.rank = 0, .host = "node1", .exit_code = 3},
        {.rank = 1048575, .host = "a-b.example", .signal = 9},
        {.rank = 7, .host = "n", .exit_code = 255},
    };
    char line[512] = STEP_COMMENT_FAILED;
    const size_t n = strlen(STEP_COMMENT_FAILED);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct failure f;

        failure_sentence(&rows[i], line + n, sizeof(line) - n);
        assert_true(step_comment_failure(line, &f));
        assert_int_equal(f.rank, rows[i].rank);
        assert_string_equal(f.host, rows[i].host);
        assert_int_equal(f.exit_code, rows[i].exit_code);
        assert_int_equal(f.signal, rows[i].signal);
        assert_string_equal(f.why, line + n);
    }
}

UNIT_TEST(other_lines_name_no_rank)
{
    static const char *const sentences[] = {
        STEP_COMMENT_FAILED "node2: plugstack.conf: dir=/x: /x/python: No such file",
        STEP_COMMENT_FAILED "rank 1 on node2 was lost",
        STEP_COMMENT_FAILED "rank -1 on node2 exited with code 3",
        STEP_COMMENT_FAILED,
    };
    struct failure f;

    for (size_t i = 0; i < ARRAY_LEN(sentences); i++) {
        assert_true(step_comment_failure(sentences[i], &f));
        assert_int_equal(f.rank, -1);
        assert_string_equal(f.why, sentences[i] + strlen(STEP_COMMENT_FAILED));
    }
    assert_false(step_comment_failure("Training: 8 ranks", &f));
}

UNIT_TEST(the_row_of_a_job_is_found)
{
    static const struct {
        const char *text;
        uint32_t job;
        int rc;
        const char *word, *state, *reason, *comment;
    } rows[] = {
        {"12|12|RUNNING|None|(null)\n", 12, 0, "12", "RUNNING", "None", ""},
        {"12|12|PENDING|Resources|a|b\n", 0, 0, "12", "PENDING", "Resources", "a|b"},
        /* an array: element 4 has the number of its own */
        {"10|10_5|RUNNING|None|x\n12|10_4|RUNNING|None|y\n", 12, 0, "10_4", "RUNNING",
         "None", "y"},
        /* not started yet: one row for several */
        {"10|10_[6-9]|PENDING|Priority|x\n12|10_4|RUNNING|None|y\n", 12, 0, "10_4",
         "RUNNING", "None", "y"},
        {"12|12+0|RUNNING|None|x\n13|12+1|RUNNING|None|y\n", 12, 0, "12+0", "RUNNING",
         "None", "x"},
        {"13|12+1|FAILED|None|y\n12|12+0|FAILED|None|x\n", 0, 0, "12+0", "FAILED",
         "None", "x"},
        {"13|12+1|FAILED|None|y\n12|12+0|FAILED|None|x\n", 13, 0, "12+1", "FAILED",
         "None", "y"},
        {"12|12|RUNNING|None|two\nlines\n", 12, -EINVAL, "", "", "", ""},
        {"12|12|RUNNING\n", 12, -EINVAL, "", "", "", ""},
        {"13|13|RUNNING|None|\n", 12, -ENOENT, "", "", "", ""},
        {"", 0, -ENOENT, "", "", "", ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTOFREE char *text = mem_strdup(rows[i].text);
        struct job_record r = {.comment = ""};

        assert_int_equal(job_record_read(text, rows[i].job, &r), rows[i].rc);
        assert_string_equal(r.word, rows[i].word);
        assert_string_equal(r.state, rows[i].state);
        assert_string_equal(r.reason, rows[i].reason);
        assert_string_equal(r.comment, rows[i].comment);
    }
}

UNIT_TEST(a_heterogeneous_job_has_its_comment_at_the_first_component)
{
    static const struct {
        struct job_record r;
        uint32_t lead;
    } rows[] = {{{.job = 12, .word = "12"}, 12},
                {{.job = 15, .word = "12_3"}, 15}, /* an array: each has its own */
                {{.job = 12, .word = "12+0"}, 12},
                {{.job = 14, .word = "12+2"}, 12}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(job_record_lead(&rows[i].r), rows[i].lead);
}

UNIT_MAIN(NULL, NULL)
