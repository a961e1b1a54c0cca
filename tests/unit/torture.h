/* SPDX-License-Identifier: Apache-2.0 */
/* The torture loop: runs fn again and again, the first time with the first allocation
 * failing, then with the second, until none fails. fn must return -ENOMEM each time an
 * allocation failed and 0 at the end. The sanitizer finds what it leaves behind. */
#ifndef TESTS_UNIT_TORTURE_H
#define TESTS_UNIT_TORTURE_H

#include <stdbool.h>

#include "runtime/base/mem.h"
#include "tests/unit/unit.h"

enum { TORTURE_MAX = 5000 }; /* allocations of one run; a test has fewer */

static inline void torture(int (*fn)(void *arg), void *arg)
{
    for (long n = 0; n < TORTURE_MAX; n++) {
        mem_fail_after(n);
        int rc = fn(arg);
        bool was_hit = mem_fail_fired();
        mem_fail_after(-1);
        if (!was_hit) {
            assert_int_equal(rc, 0);
            assert_true(n > 0); /* no allocation at all: the loop would prove nothing */
            return;
        }
        assert_int_equal(rc, -ENOMEM);
    }
    fail_msg("no end after %d allocations", TORTURE_MAX);
}

#endif
