/* SPDX-License-Identifier: Apache-2.0 */
/* core/step_list.c: which step is asked, and why not. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/launch/core/step_list.h"

UNIT_TEST(words)
{
    static const struct {
        const char *word, *job;
        int64_t step; /* -1: none */
    } good[] = {{"12", "12", -1},
                {"12.0", "12", 0},
                {"12_3", "12_3", -1},
                {"12_3.4", "12_3", 4}};
    static const char *const bad[] = {
        "",      "x",  "12.",   "12.x", "12.batch",      ".1", "12_", "_1",
        "1_2_3", "-1", "12.-1", "12 ",  "12.99999999999"};
    struct err err = ERR_INIT;
    struct step_word w;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(step_word_parse(good[i].word, &w, &err), 0);
        assert_string_equal(w.job, good[i].job);
        assert_int_equal(w.has_step ? (int64_t)w.step : -1, good[i].step);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(step_word_parse(bad[i], &w, &err), -EINVAL);
        assert_non_null(strstr(err.text, "is not a job"));
    }
}

UNIT_TEST(jobs)
{
    static const struct {
        const char *text;
        uid_t uid;
        int rc;
        const char *want;
    } rows[] = {
        {"12|1000|RUNNING|alice\n", 1000, 0, ""},
        {"12|1000|RUNNING|alice\n", 0, -EACCES, "user alice's"},
        {"12|1000|RUNNING|alice\n", 1001, -EACCES, "user alice's"},
        {"12|1000|PENDING|alice\n", 1000, -ESRCH, "job 12 is PENDING"},
        {"12|1000|COMPLETED|alice\n", 1000, -ESRCH, "is COMPLETED"},
        {"12|1000|COMPLETED|alice\n", 1001, -ESRCH, "is COMPLETED"},
        {"", 1000, -ENOENT, "does not exist"},
        {"12|1000|RUN", 1000, -ENOENT, "does not exist"},
    };
    struct step_word w;

    assert_int_equal(step_word_parse("12", &w, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = ERR_INIT;
        uint32_t job = 0;

        assert_int_equal(step_list_job(rows[i].text, &w, rows[i].uid, &job, &err),
                         rows[i].rc);
        assert_non_null(strstr(err.text, rows[i].want));
        assert_int_equal(job, rows[i].rc ? 0 : 12);
    }
}

UNIT_TEST(steps)
{
    static const char one[] = "12.batch|1|batch|n1\n12.0|4|python|n[1-2]\n"
                              "12.extern|2|extern|n[1-2]\n12.3|2|hvd-status|n[1-2]\n";
    static const char two[] = "12.0|4|a|b|n[1-2]\n12.5|2|python|n3\n12.7|x|python|n3\n";
    static const struct {
        const char *text, *word;
        int rc;
        uint32_t step, n_tasks;
        const char *want; /* nodes, or in the sentence */
    } rows[] = {
        {one, "12", 0, 0, 4, "n[1-2]"},
        {one, "12.0", 0, 0, 4, "n[1-2]"},
        {one, "12.3", -ENOENT, 0, 0, "no step 3"},
        {one, "12.1", -ENOENT, 0, 0, "no step 1"},
        {two, "12", -EINVAL, 0, 0, "runs 2 steps: name one, such as 12.0 or 12.5"},
        {two, "12.0", 0, 0, 4, "n[1-2]"},
        {two, "12.5", 0, 5, 2, "n3"},
        {"", "12", -ENOENT, 0, 0, "no srun of job 12 runs"},
        {"12.batch|1|batch|n1\nrubbish\n|||\n.|", "12", -ENOENT, 0, 0, "no srun"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = ERR_INIT;
        struct step_found found = {.job = 0};
        struct step_word w;

        assert_int_equal(step_word_parse(rows[i].word, &w, NULL), 0);
        assert_int_equal(step_list_choose(rows[i].text, &w, 12, &found, &err),
                         rows[i].rc);
        if (rows[i].rc) {
            assert_non_null(strstr(err.text, rows[i].want));
            continue;
        }
        assert_int_equal(found.job, 12);
        assert_int_equal(found.step, rows[i].step);
        assert_int_equal(found.n_tasks, rows[i].n_tasks);
        assert_int_equal(found.nodes_len, strlen(rows[i].want));
        assert_memory_equal(found.nodes, rows[i].want, found.nodes_len);
    }
}

UNIT_MAIN(NULL, NULL)
