/* SPDX-License-Identifier: Apache-2.0 */
/* hub.c: the time that hub_finish waits, whatever happens to the wall clock. */
#include "runtime/launch/hub.h"

#include <sys/syscall.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "tests/unit/launch_fixture.h"

static time_t wall_ahead_s;

/* Replaces libc's. */
int wall_clock_get(clockid_t clock, struct timespec *ret) __asm__("clock_gettime");
int wall_clock_get(clockid_t clock, struct timespec *ret)
{
    int rc = (int)syscall(SYS_clock_gettime, clock, ret);
    if (rc == 0 && clock == CLOCK_REALTIME)
        ret->tv_sec += wall_ahead_s;
    return rc;
}

/* Of a hub whose agents never come. */
static uint64_t finish_takes_ns(uint64_t limit_ns)
{
    struct agent_env env = {
        .num_workers = 2, .slots = 1, .start_timeout_s = 600, .job_id = "a/b/c"};
    struct token token = {{0}};
    struct err err = ERR_INIT;
    struct hub *h = NULL;
    assert_int_equal(hub_start(&env, &token, 30 * S, &h, &err), 0);
    uint64_t start_ns = clock_now_ns();
    hub_finish(h, start_ns + limit_ns);
    return clock_now_ns() - start_ns;
}

UNIT_TEST(a_hub_waits_until_its_deadline_and_not_a_second_less)
{
    assert_true(finish_takes_ns(900 * MS) >= 900 * MS);
}

UNIT_TEST(a_wall_clock_that_is_set_does_not_move_the_deadline)
{
    (void)alarm(60); /* it would wait for a day */
    wall_ahead_s = 86400;
    assert_true(finish_takes_ns(1500 * MS) >= 1500 * MS);
    wall_ahead_s = -86400;
    assert_true(finish_takes_ns(1500 * MS) >= 1500 * MS);
    (void)alarm(0);
}

UNIT_MAIN(NULL, NULL)
