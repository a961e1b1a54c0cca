/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "runtime/base/thread.h"
#include "tests/unit/unit.h"

static void *mask_get(void *arg)
{
    (void)pthread_sigmask(SIG_SETMASK, NULL, arg);
    return NULL;
}

UNIT_TEST(a_thread_blocks_signals_and_its_creator_does_not)
{
    sigset_t in_thread, before, after;
    pthread_t t;

    (void)pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(thread_start(&t, mask_get, &in_thread), 0);
    assert_int_equal(pthread_join(t, NULL), 0);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_true(sigismember(&in_thread, SIGTERM) == 1);
    assert_true(sigismember(&in_thread, SIGINT) == 1);
    assert_true(sigismember(&in_thread, SIGUSR1) == 1);
    for (int s = 1; s < SIGRTMIN; s++)
        assert_int_equal(sigismember(&after, s), sigismember(&before, s));
}

UNIT_MAIN(NULL, NULL)
