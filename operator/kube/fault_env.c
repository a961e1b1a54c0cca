/* SPDX-License-Identifier: Apache-2.0 */
/* Crash points by environment: HVD_CRASH=before:3 ends the process, without any
 * clean-up, before its third write is sent; after:3 once the third write was answered.
 * Never part of what is shipped. See fault.h. */
#include "operator/kube/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void crash_if(const char *when, uint64_t number)
{
    const char *s = getenv("HVD_CRASH");
    size_t n = strlen(when);

    if (!s || strncmp(s, when, n) != 0 || s[n] != ':'
        || strtoull(s + n + 1, NULL, 10) != number)
        return;
    (void)fprintf(stderr, "hvd-operator-faults: crash %s\n", s);
    _exit(FAULT_EXIT_CODE);
}

void fault_before_write(uint64_t number)
{
    crash_if("before", number);
}

void fault_after_write(uint64_t number)
{
    crash_if("after", number);
}
