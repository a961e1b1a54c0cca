/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of a job: usual histories. */
#include "tests/unit/unit.h"

#include "tests/unit/op_ledger_tale.h"

UNIT_TEST(a_late_sync_moves_no_second)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 5, 9);
    tale_sync(&t, 100);
    tale_must_be(&t, "queued 5, pulling 4/32, training 91/728");
}

UNIT_TEST(a_watch_that_lags_moves_no_second)
{
    struct tale t;

    tale_begin(&t);
    tale_sync(&t, 1);
    tale_pods(&t, 1, 0, 0);
    tale_sync(&t, 8);
    tale_must_be(&t, "queued 8");
    tale_pods(&t, 1, 5, 0);
    tale_sync(&t, 15);
    tale_must_be(&t, "queued 5, pulling 10/80");
    tale_pods(&t, 1, 5, 9);
    tale_sync(&t, 20);
    tale_must_be(&t, "queued 5, pulling 4/32, training 11/88");
    tale_sync(&t, 100);
    tale_must_be(&t, "queued 5, pulling 4/32, training 91/728");
}

UNIT_TEST(gpus_count_from_when_their_pod_is_bound)
{
    struct tale t;

    tale_begin(&t);
    tale_pod(&t, 0, 1, 2, 4);
    tale_pod(&t, 1, 1, 0, 0);
    tale_sync(&t, 10);
    tale_must_be(&t, "queued 10/32");
    tale_pod(&t, 1, 1, 20, 30);
    tale_sync(&t, 40);
    tale_must_be(&t, "queued 20/72, pulling 10/80, training 10/80");
    t.v.n_pods = 0; /* another operator, that sees nothing of them */
    t.v.is_live = false;
    tale_sync(&t, 41);
    tale_must_be(&t, "queued 20/72, pulling 10/80, training 11/80");
}

UNIT_TEST(each_reason_to_wait_has_its_time)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 0, 0);
    tale_sync(&t, 2);
    t.v.waiting = "taints";
    tale_sync(&t, 10);
    t.v.waiting = "insufficient nvidia.com/gpu";
    tale_sync(&t, 30); /* seen now: since the last sync */
    tale_sync(&t, 40);
    t.v.waiting = "image";
    tale_pods(&t, 1, 50, 0);
    tale_sync(&t, 60);
    t.v.waiting = "";
    tale_pods(&t, 1, 50, 65);
    tale_sync(&t, 70);
    tale_must_be(&t, "queued 50, pulling 15/120, training 5/40; queued "
                     "insufficient nvidia.com/gpu 40 x1; pulling image 15 x1; "
                     "queued taints 10 x1");
}

UNIT_TEST(a_restart_is_down_until_its_pods_exist)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 2, 3);
    tale_sync(&t, 50);
    tale_fail(&t, 50, 55, "WorkerFailed"); /* seen five seconds late */
    tale_restart(&t);
    tale_sync(&t, 58);
    tale_pods(&t, 60, 61, 62);
    tale_sync(&t, 70);
    tale_fail(&t, 80, 82, "WorkerFailed");
    tale_restart(&t);
    tale_pods(&t, 90, 91, 92);
    tale_sync(&t, 100);
    tale_must_be(&t, "queued 4, pulling 3/24, training 73/584, down 20; "
                     "down WorkerFailed 20 x2");
    ledger_close(&t.l);
    tale_must_be(&t, "queued 4, pulling 3/24, training 73/584, down 20; "
                     "down WorkerFailed 20 x2");
    tale_sync(&t, 200);
    tale_must_be(&t, "queued 4, pulling 3/24, training 73/584, down 20; "
                     "down WorkerFailed 20 x2");
}

UNIT_TEST(suspension_counts_apart)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 2, 3);
    tale_sync(&t, 10);
    ledger_end_attempt(&t.l, "JobSuspended");
    ledger_switch(&t.l, LEDGER_SUSPENDED, "");
    t.v.is_live = false;
    t.pod[0].end_s = t.pod[1].end_s = after(11);
    tale_sync(&t, 30);
    ledger_switch(&t.l, LEDGER_QUEUED, "");
    tale_restart(&t);
    tale_sync(&t, 31);
    tale_pods(&t, 32, 33, 34);
    tale_sync(&t, 40);
    tale_must_be(&t, "queued 5, pulling 2/16, training 13/104, suspended 20/8");
}

UNIT_TEST(a_clock_that_is_set_back_takes_time_back)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 2, 3);
    tale_sync(&t, 10);
    tale_sync(&t, 3610);
    tale_must_be(&t, "queued 2, pulling 1/8, training 3607/28856");
    tale_sync(&t, 11);
    tale_must_be(&t, "queued 2, pulling 1/8, training 8/64");
    tale_fail(&t, 12, 3600, "Evicted"); /* a change is final, */
    ledger_switch(&t.l, LEDGER_SUSPENDED, "");
    tale_sync(&t, 20); /* so the clock cannot go back behind it */
    tale_must_be(&t, "queued 2, pulling 1/8, training 9/72, down 3588; "
                     "down Evicted 3588 x1");
    assert_int_equal(t.l.until_s, T0 + 3600);
}

UNIT_TEST(a_report_divides_the_time_since_the_last_one)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 2, 10);
    /* The agent ran from 6 on, four seconds before the last container. */
    tale_report(&t, 15, 6, SHARE_STARTING, (const uint32_t[]){6, 3, 0, 0}, -1, 0);
    tale_must_be(&t, "queued 2, pulling 8/64, starting 3/24, meeting 2/16");
    tale_sync(&t, 20); /* what it does is not known: as before */
    tale_must_be(&t, "queued 2, pulling 8/64, starting 8/64, meeting 2/16");
    tale_report(&t, 30, 6, SHARE_TRAINING, (const uint32_t[]){6, 5, 13, 0}, -1, 0);
    tale_must_be(&t, "queued 2, pulling 8/64, starting 5/40, meeting 2/16, "
                     "training 13/104");
    tale_report(&t, 45, 6, SHARE_STALLED, (const uint32_t[]){6, 5, 18, 10}, -1, 0);
    tale_report(&t, 60, 6, SHARE_STALLED, (const uint32_t[]){6, 5, 18, 25}, -1, 0);
    t.v.report = NULL;
    tale_sync(&t, 70);
    tale_must_be(&t, "queued 2, pulling 8/64, starting 5/40, meeting 2/16, "
                     "training 18/144, stalled 35/280; stalled rank 1 35 x1");
}

UNIT_TEST(steps_that_are_done_again_are_repeated)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 1, 1);
    tale_report(&t, 101, 1, SHARE_TRAINING, (const uint32_t[]){0, 0, 100, 0}, 50, 0);
    tale_fail(&t, 111, 111, "WorkerFailed");
    tale_restart(&t);
    tale_pods(&t, 121, 121, 121);
    /* It resumes from 20; 50 is done again at 141 + 10. */
    tale_report(&t, 131, 121, SHARE_TRAINING, (const uint32_t[]){0, 0, 10, 0}, -1, 0);
    tale_report(&t, 141, 121, SHARE_TRAINING, (const uint32_t[]){0, 0, 20, 0}, 40, 0);
    tale_must_be(&t, "queued 1, training 110/880, repeated 20/160, down 10; "
                     "repeated WorkerFailed 20 x1; down WorkerFailed 10 x1");
    tale_report(&t, 161, 121, SHARE_TRAINING, (const uint32_t[]){0, 0, 40, 0}, 60, 0);
    tale_must_be(&t, "queued 1, training 120/960, repeated 30/240, down 10; "
                     "repeated WorkerFailed 30 x1; down WorkerFailed 10 x1");
    /* A slow step is no repetition. */
    tale_report(&t, 191, 121, SHARE_TRAINING, (const uint32_t[]){0, 0, 70, 0}, 60, 0);
    tale_must_be(&t, "queued 1, training 150/1200, repeated 30/240, down 10; "
                     "repeated WorkerFailed 30 x1; down WorkerFailed 10 x1");
}

UNIT_TEST(without_steps_what_no_commit_saved_is_repeated)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 1, 1);
    tale_report(&t, 101, 1, SHARE_TRAINING, (const uint32_t[]){0, 0, 100, 0}, -1, 81);
    tale_fail(&t, 106, 106, "Evicted"); /* 25 s after the commit */
    tale_restart(&t);
    tale_pods(&t, 116, 116, 116);
    tale_report(&t, 126, 116, SHARE_TRAINING, (const uint32_t[]){0, 0, 10, 0}, -1, 0);
    tale_must_be(&t, "queued 1, training 105/840, repeated 10/80, down 10; "
                     "repeated Evicted 10 x1; down Evicted 10 x1");
    tale_fail(&t, 126, 126, "Evicted"); /* before it was where it had been */
    tale_restart(&t);
    tale_pods(&t, 136, 136, 136);
    tale_report(&t, 176, 136, SHARE_TRAINING, (const uint32_t[]){0, 0, 40, 0}, -1, 0);
    tale_must_be(&t, "queued 1, training 120/960, repeated 35/280, down 20; "
                     "repeated Evicted 35 x2; down Evicted 20 x2");
}

UNIT_TEST(without_steps_and_commits_nothing_is_known_to_be_repeated)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 1, 1);
    tale_report(&t, 101, 1, SHARE_TRAINING, (const uint32_t[]){0, 0, 100, 0}, -1, 0);
    tale_fail(&t, 101, 101, "Evicted");
    tale_restart(&t);
    tale_pods(&t, 111, 111, 111);
    tale_report(&t, 121, 111, SHARE_TRAINING, (const uint32_t[]){0, 0, 10, 0}, -1, 0);
    tale_must_be(&t, "queued 1, training 110/880, down 10; down Evicted 10 x1");
}

UNIT_TEST(a_job_that_is_scaled_in_place_continues_its_run)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 1, 1);
    tale_report(&t, 101, 1, SHARE_TRAINING, (const uint32_t[]){0, 0, 100, 0}, 10, 0);
    tale_sync(&t, 111);
    ledger_end_attempt(&t.l, "JobScaled");
    ledger_switch(&t.l, LEDGER_QUEUED, "");
    tale_pod(&t, 1, 112, 114, 118); /* a new one */
    tale_report(&t, 131, 1, SHARE_TRAINING, (const uint32_t[]){9, 3, 118, 0}, 11, 0);
    tale_must_be(&t, "queued 4/12, pulling 4/32, starting 3/24, meeting 2/16, "
                     "training 118/944");
}

UNIT_TEST(the_largest_losses_are_kept)
{
    struct tale t;
    char reason[32];

    tale_begin(&t);
    for (uint32_t i = 0; i < 8; i++) {
        (void)snprintf(reason, sizeof(reason), "R%u", i);
        ledger_switch(&t.l, LEDGER_DOWN, reason);
        t.v.is_live = false;
        tale_sync(&t, (i + 1) * (i + 1));
    }
    tale_must_be(&t, "down 64; down R7 15 x1; down R6 13 x1; down R5 11 x1; "
                     "down R4 9 x1; down R3 7 x1");
}

UNIT_TEST(a_job_that_runs_is_not_pulled_again)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 1, 2, 3);
    tale_report(&t, 20, 3, SHARE_TRAINING, (const uint32_t[]){0, 0, 17, 0}, -1, 0);
    tale_pod(&t, 1, 1, 2, 25); /* its container was restarted */
    tale_sync(&t, 30);
    tale_must_be(&t, "queued 2, pulling 1/8, training 27/216");
}

UNIT_TEST(times_before_the_last_change_and_after_now_are_clipped)
{
    struct tale t;

    tale_begin(&t);
    tale_pods(&t, 5, 900, 901); /* by clocks that are ahead */
    tale_sync(&t, 10);
    tale_must_be(&t, "queued 10");
    tale_report(&t, 20, 900, SHARE_TRAINING, (const uint32_t[]){9, 9, 900, 9}, -1, 990);
    tale_must_be(&t, "queued 20");
    tale_fail(&t, 0, 30, "Evicted");
    ledger_switch(&t.l, LEDGER_DOWN, "Evicted");
    tale_restart(&t);
    tale_pods(&t, 1, 2, 3); /* all before */
    tale_sync(&t, 40);
    tale_must_be(&t, "training 10/80, down 30; down Evicted 30 x1");
}

UNIT_MAIN(NULL, NULL)
