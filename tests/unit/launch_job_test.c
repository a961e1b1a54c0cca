/* SPDX-License-Identifier: Apache-2.0 */
/* job.c edge by edge: every state meets every event. */
#include "runtime/launch/core/job.h"
#include "tests/unit/launch_fixture.h"

UNIT_TEST(job_next_has_exactly_these_edges)
{
    static const struct {
        enum job_state from;
        enum job_event event;
        enum job_state to;
    } table[] = {
        {JOB_RUNNING, JOB_SIGNAL, JOB_SIGNALLED},
        {JOB_RUNNING, JOB_STOP, JOB_STOPPING},
        {JOB_RUNNING, JOB_DEADLINE, JOB_RUNNING},
        {JOB_RUNNING, JOB_ALL_EXITED, JOB_ENDED},
        {JOB_SIGNALLED, JOB_SIGNAL, JOB_KILLED},
        {JOB_SIGNALLED, JOB_STOP, JOB_STOPPING},
        {JOB_SIGNALLED, JOB_DEADLINE, JOB_KILLED},
        {JOB_SIGNALLED, JOB_ALL_EXITED, JOB_ENDED},
        {JOB_STOPPING, JOB_SIGNAL, JOB_KILLED},
        {JOB_STOPPING, JOB_STOP, JOB_STOPPING},
        {JOB_STOPPING, JOB_DEADLINE, JOB_KILLED},
        {JOB_STOPPING, JOB_ALL_EXITED, JOB_ENDED},
        {JOB_KILLED, JOB_SIGNAL, JOB_KILLED},
        {JOB_KILLED, JOB_STOP, JOB_KILLED},
        {JOB_KILLED, JOB_DEADLINE, JOB_ENDED},
        {JOB_KILLED, JOB_ALL_EXITED, JOB_ENDED},
        {JOB_ENDED, JOB_SIGNAL, JOB_ENDED},
        {JOB_ENDED, JOB_STOP, JOB_ENDED},
        {JOB_ENDED, JOB_DEADLINE, JOB_ENDED},
        {JOB_ENDED, JOB_ALL_EXITED, JOB_ENDED},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_int_equal(job_next(table[i].from, table[i].event), table[i].to);
}

UNIT_TEST(stop_is_term_then_kill_after_five_seconds)
{
    struct launch_job j;
    job_init(&j, UINT64_MAX);
    assert_int_equal(job_apply(&j, JOB_STOP, 0, 1000 * MS), SIGTERM);
    assert_int_equal(j.deadline_ns, 6000 * MS);
    assert_int_equal(job_apply(&j, JOB_STOP, 0, 2000 * MS), 0); /* says it once */
    assert_int_equal(j.deadline_ns, 6000 * MS);
    assert_int_equal(job_apply(&j, JOB_DEADLINE, 0, 6000 * MS), SIGKILL);
    assert_int_equal(job_apply(&j, JOB_ALL_EXITED, 0, 6001 * MS), 0);
    assert_int_equal(j.state, JOB_ENDED);
    assert_int_equal(j.deadline_ns, UINT64_MAX);
}

UNIT_TEST(a_signal_is_forwarded_and_a_second_one_kills)
{
    struct launch_job j;
    job_init(&j, 30000 * MS);
    assert_int_equal(job_apply(&j, JOB_SIGNAL, SIGINT, 0), SIGINT);
    assert_int_equal(j.forwarded_signal, SIGINT);
    assert_int_equal(j.deadline_ns, 30000 * MS);
    assert_int_equal(job_apply(&j, JOB_SIGNAL, SIGTERM, 1), SIGKILL);
    assert_int_equal(j.forwarded_signal, SIGINT);
}

UNIT_TEST(without_bound_a_forwarded_signal_has_no_deadline)
{
    struct launch_job j;
    job_init(&j, UINT64_MAX);
    assert_int_equal(job_apply(&j, JOB_SIGNAL, SIGTERM, 5), SIGTERM);
    assert_int_equal(j.deadline_ns, UINT64_MAX);
}

UNIT_TEST(a_process_that_cannot_be_killed_does_not_hold_the_launcher)
{
    struct launch_job j;
    job_init(&j, UINT64_MAX);
    (void)job_apply(&j, JOB_STOP, 0, 0);
    (void)job_apply(&j, JOB_DEADLINE, 0, 5000 * MS);
    assert_int_equal(j.deadline_ns, (5000ull + JOB_KILL_PATIENCE_MS) * MS);
    assert_int_equal(job_apply(&j, JOB_DEADLINE, 0, j.deadline_ns), 0);
    assert_int_equal(j.state, JOB_ENDED);
}

UNIT_MAIN(NULL, NULL)
