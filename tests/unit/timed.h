/* SPDX-License-Identifier: Apache-2.0 */
/* Checks with an upper time bound. Another process may hold the processors for longer
 * than the bound, so an attempt that is too late is repeated; only a bound that is
 * missed each time is a defect. Include after cmocka.h. */
#ifndef TESTS_UNIT_TIMED_H
#define TESTS_UNIT_TIMED_H

enum { TIMED_TRIES = 5 };

/* ASSERT_IN_TIME(is_lost_rank_reported(...)): the attempt is an expression that is true
 * when the bound was kept. It is evaluated until it is true, at most TIMED_TRIES times.
 * Everything but the bound is asserted within the attempt, so that a wrong result fails
 * at once. */
#define ASSERT_IN_TIME(attempt)                                                        \
    do {                                                                               \
        int tries_ = 0;                                                                \
        while (!(attempt))                                                             \
            if (++tries_ == TIMED_TRIES)                                               \
                fail_msg("too late %d times: %s", tries_, #attempt);                   \
    } while (0)

#endif
