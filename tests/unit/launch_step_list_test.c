/* SPDX-License-Identifier: Apache-2.0 */
/* core/step_list.c: which step is asked, and why not. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/launch/core/step_list.h"

UNIT_TEST(words)
{
    static const struct {
        const char *word, *job;
        int64_t step; /* -1: none */
    } good[] = {{"12", "12", -1},      {"12.0", "12", 0},  {"12_3", "12_3", -1},
                {"12_3.4", "12_3", 4}, {"12+1", "12", -1}, {"12+1.4", "12", 4}};
    static const char *const bad[] = {
        "",      "x",  "12.",   "12.x", "12.batch",      ".1",
        "12_",   "_1", "12+",   "+1",   "12+1+1",        "12_3+1",
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
        {"12|1000|RUNNING|12|alice\n", 1000, 0, ""},
        {"12|1000|RUNNING|9_3|alice\n", 1000, 0, ""},
        {"12|1000|RUNNING|12|alice\n", 0, -EACCES, "user alice's"},
        {"12|1000|RUNNING|12|alice\n", 1001, -EACCES, "user alice's"},
        {"12|1000|PENDING|12|alice\n", 1000, -ESRCH, "job 12 is PENDING"},
        {"12|1000|COMPLETED|12|alice\n", 1000, -ESRCH, "is COMPLETED"},
        {"12|1000|COMPLETED|12|alice\n", 1001, -ESRCH, "is COMPLETED"},
        {"12|1000|RUNNING|12+0|alice\n13|1000|SUSPENDED|12+1|alice\n", 1000, -ESRCH,
         "is SUSPENDED"},
        {"", 1000, -ENOENT, "does not exist"},
        {"12|1000|RUN", 1000, -ENOENT, "does not exist"},
        {"12|1000|RUNNING|12+128|alice\n", 1000, -ENOENT, "does not exist"},
    };
    struct step_word w;

    assert_int_equal(step_word_parse("12", &w, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = ERR_INIT;
        struct step_job job = {.lead = 0};

        assert_int_equal(step_list_job(rows[i].text, &w, rows[i].uid, &job, &err),
                         rows[i].rc);
        assert_non_null(strstr(err.text, rows[i].want));
        assert_int_equal(job.lead, rows[i].rc ? 0 : 12);
        assert_int_equal(job.n, rows[i].rc ? 0 : 1);
        assert_false(job.is_het);
        assert_int_equal(job.parts[0], job.lead);
    }
}

/* squeue sorts by partition; of a later component it lists that one only. */
UNIT_TEST(components_of_a_job)
{
    static const struct {
        const char *text;
        uint32_t n;
        bool has_all;
    } rows[] = {
        {"13|0|RUNNING|12+1|root\n12|0|RUNNING|12+0|root\n", 2, true},
        {"13|0|RUNNING|12+1|root\n", 2, false},
        {"12|0|RUNNING|12+0|root\n14|0|RUNNING|12+2|root\n", 3, false},
        {"12|0|RUNNING|12+0|root\n", 1, true},
    };
    struct step_word w;

    assert_int_equal(step_word_parse("13", &w, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct step_job job;

        assert_int_equal(step_list_job(rows[i].text, &w, 0, &job, NULL), 0);
        assert_int_equal(job.lead, 12);
        assert_true(job.is_het);
        assert_int_equal(job.n, rows[i].n);
        assert_int_equal(job.has_all, rows[i].has_all);
        for (uint32_t k = 0; job.has_all && k < job.n; k++)
            assert_int_equal(job.parts[k], 12 + k);
    }
}

static void check_found(const struct step_found *found, const char *want)
{
    CLEANUP(strbuf_release) struct strbuf got = {0};

    strbuf_init(&got, 1000);
    strbuf_printf(&got, "%u:%u", found->step, found->n_tasks);
    for (uint32_t i = 0; i < found->n_parts; i++) {
        const struct step_component *c = &found->parts[i];

        strbuf_printf(&got, " %u+%u:%u on %.*s", c->job, c->index, c->n_tasks,
                      (int)c->nodes_len, c->nodes);
    }
    assert_string_equal(strbuf_str(&got), want);
}

UNIT_TEST(steps)
{
    static const char one[] = "12.batch|1|batch|n1\n12.0|4|python|n[1-2]\n"
                              "12.extern|2|extern|n[1-2]\n12.3|2|hvd-status|n[1-2]\n";
    static const char array[] = "9_3.batch|1|batch|n1\n9_3.0|4|python|n[1-2]\n";
    static const char two[] = "12.0|4|a|b|n[1-2]\n12.5|2|python|n3\n12.7|x|python|n3\n";
    static const char het[] =
        "13.0|2|python|n2\n13.1|3|python|n2\n13.2|1|hvd-status|n2\n"
        "12.1|2|python|n[1,3]\n12.2|2|hvd-status|n[1,3]\n12.3|1|a|n1\n";
    static const char het_one[] = "13.1|3|python|n2\n12.1|2|python|n[1,3]\n";
    static const struct {
        const char *text, *word;
        int rc;
        const char *want; /* what is found, or in the sentence */
        bool is_het;
    } rows[] = {
        {one, "12", 0, "0:4 12+0:4 on n[1-2]", false},
        {one, "12.0", 0, "0:4 12+0:4 on n[1-2]", false},
        {one, "12.3", -ENOENT, "no step 3", false},
        {one, "12.1", -ENOENT, "no step 1", false},
        {array, "9_3", 0, "0:4 12+0:4 on n[1-2]", false},
        {two, "12", -EINVAL, "several steps: name one, such as 12.0 or 12.5", false},
        {two, "12.0", 0, "0:4 12+0:4 on n[1-2]", false},
        {two, "12.5", 0, "5:2 12+0:2 on n3", false},
        {"", "12", -ENOENT, "no srun of job 12 runs", false},
        {"12.batch|1|batch|n1\nrubbish\n|||\n.|", "12", -ENOENT, "no srun", false},
        {het, "12.1", 0, "1:5 12+0:2 on n[1,3] 13+1:3 on n2", true},
        {het, "12.0", 0, "0:2 13+1:2 on n2", true},
        {het, "12.3", 0, "3:1 12+0:1 on n1", true},
        {het, "12.2", -ENOENT, "no step 2", true},
        {het, "12", -EINVAL, "several steps: name one, such as 12.1 or 12.", true},
        {het_one, "12", 0, "1:5 12+0:2 on n[1,3] 13+1:3 on n2", true},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct step_job job = {.lead = 12,
                                     .is_het = rows[i].is_het,
                                     .n = rows[i].is_het ? 2 : 1,
                                     .parts = {12, 13},
                                     .has_all = true};
        struct err err = ERR_INIT;
        struct step_found found;
        struct step_word w;

        assert_int_equal(step_word_parse(rows[i].word, &w, NULL), 0);
        assert_int_equal(step_list_choose(rows[i].text, &w, &job, &found, &err),
                         rows[i].rc);
        if (rows[i].rc)
            assert_non_null(strstr(err.text, rows[i].want));
        else
            check_found(&found, rows[i].want);
    }
}

UNIT_MAIN(NULL, NULL)
