/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of a HorovodJob: every edge of the table and every absent edge; the
 * back-off; failure rules that do not match or exclude each other (tests/golden/plan/
 * rule.txt has those that match, and restart.txt and worker.txt jobs without rules). */
#include "tests/unit/unit.h"

#include "operator/core/hvd/hvd_class.h"
#include "operator/core/hvd/hvd_cycle.h"
#include "runtime/base/mem.h"

/* One row a state, one letter a cue in the order of the enum: P pending, R running, r
 * restarting, S suspended, + succeeded, - failed, . no edge. */
static const char *const drawn[STATE_COUNT] = {
    /*                    refused done doomed suspend expired broken remake resize
     *                    scale replace renew cleared run none */
    [STATE_PENDING] = "-+-S-rrPPPr.R.",    [STATE_RUNNING] = ".+-S-rrPRRr...",
    [STATE_RESTARTING] = "...S-......P..", [STATE_SUSPENDED] = "...........P..",
    [STATE_SUCCEEDED] = "..............",  [STATE_FAILED] = "..............",
};

static enum job_state by_letter(char c, enum job_state from)
{
    static const char letters[] = "PRrS+-";
    const char *at = strchr(letters, c);

    return c != '.' && at ? (enum job_state)(at - letters) : from;
}

UNIT_TEST(every_edge_and_no_other)
{
    for (int s = 0; s < STATE_COUNT; s++) {
        assert_int_equal(strlen(drawn[s]), CUE_COUNT);
        for (int c = 0; c < CUE_COUNT; c++) {
            enum job_state from = (enum job_state)s;
            enum hvd_cue cue = (enum hvd_cue)c;

            if (hvd_next(from, cue) != by_letter(drawn[s][c], from)
                || hvd_has_edge(from, cue) != (drawn[s][c] != '.'))
                fail_msg("%s --%s--> %s", state_name(from), hvd_cue_name(cue),
                         state_name(hvd_next(from, cue)));
        }
    }
}

UNIT_TEST(back_off_doubles_up_to_six_minutes)
{
    static const uint64_t want[] = {10, 20, 40, 80, 160, 320, 360, 360};

    for (uint32_t i = 0; i < ARRAY_LEN(want); i++)
        assert_int_equal(restart_backoff_s(i + 1), want[i]);
    assert_int_equal(restart_backoff_s(1000), 360);
    assert_int_equal(restart_backoff_s(0), 10);
}

#define EXIT(code)   .has_exit = true, .exit_code = (code), .reason = "WorkerFailed"
#define SIGNAL(sig)  .has_exit = true, .signal = (sig), .reason = "WorkerFailed"
#define OUTSIDE(why) .is_outside = true, .reason = (why)

UNIT_TEST(the_first_rule_that_matches_decides)
{
    static const int codes[] = {3, 42}, killed[] = {124, 137}, signals[] = {9};
    static const struct rule_condition on[] = {{"DisruptionTarget", "True"}};
    static const char *const reasons[] = {"OOMKilled", "StartTimeout"};
    static const struct failure_rule in3 = {
        RULE_FAIL, RULE_EXIT_CODES, false, codes, NULL, NULL, 2};
    static const struct failure_rule not3 = {
        RULE_IGNORE, RULE_EXIT_CODES, true, codes, NULL, NULL, 2};
    static const struct failure_rule fail_not3 = {
        RULE_FAIL, RULE_EXIT_CODES, true, codes, NULL, NULL, 2};
    static const struct failure_rule in137 = {
        RULE_FAIL, RULE_EXIT_CODES, false, killed, NULL, NULL, 2};
    static const struct failure_rule kill9 = {RULE_IGNORE, RULE_SIGNALS, false, signals,
                                              NULL,        NULL,         1};
    static const struct failure_rule cond = {
        RULE_FAIL, RULE_POD_CONDITIONS, false, NULL, on, NULL, 1};
    static const struct failure_rule why = {RULE_FAIL, RULE_REASONS, false, NULL,
                                            NULL,      reasons,      2};
    const struct {
        const struct failure_rule rule[2];
        size_t n;
        struct cause cause;
        enum rule_action want;
    } rows[] = {
        /* exit codes */
        {{in3}, 1, {EXIT(4)}, RULE_RESTART},
        {{in3}, 1, {SIGNAL(3)}, RULE_RESTART},
        {{in137}, 1, {SIGNAL(15)}, RULE_RESTART},
        {{in137},
         1,
         {OUTSIDE("WorkerDeleted"), .has_exit = true, .signal = 9},
         RULE_IGNORE},
        {{not3}, 1, {EXIT(3)}, RULE_RESTART},
        {{not3}, 1, {SIGNAL(15)}, RULE_IGNORE},
        {{fail_not3},
         1,
         {OUTSIDE("WorkerDeleted"), .has_exit = true, .signal = 15},
         RULE_IGNORE},
        {{fail_not3}, 1, {OUTSIDE("Evicted")}, RULE_IGNORE},
        /* signals */
        {{kill9}, 1, {EXIT(9)}, RULE_RESTART},
        /* conditions: no pod was seen */
        {{cond}, 1, {EXIT(1)}, RULE_RESTART},
        /* reasons */
        {{why}, 1, {EXIT(1)}, RULE_RESTART},
        /* order */
        {{kill9, why},
         2,
         {.has_exit = true, .signal = 9, .reason = "OOMKilled"},
         RULE_IGNORE},
        {{why, kill9},
         2,
         {.has_exit = true, .signal = 9, .reason = "OOMKilled"},
         RULE_FAIL},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct hvd_job job = {.run = {.rule = rows[i].rule, .n_rules = rows[i].n}};

        if (cause_class(&job, &rows[i].cause) != rows[i].want)
            fail_msg("row %zu", i);
    }
}

UNIT_MAIN(NULL, NULL)
