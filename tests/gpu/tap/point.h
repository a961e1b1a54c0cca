/* SPDX-License-Identifier: Apache-2.0 */
/* A point of TAP, numbered and counted. */
#ifndef TESTS_GPU_TAP_POINT_H
#define TESTS_GPU_TAP_POINT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int n_points, n_failed;

__attribute__((format(printf, 2, 3))) static inline void
tap_point(bool is_good, const char *fmt, ...)
{
    va_list ap;
    n_failed += !is_good;
    (void)printf("%s %d - ", is_good ? "ok" : "not ok", ++n_points);
    va_start(ap, fmt);
    (void)vprintf(fmt, ap);
    va_end(ap);
    (void)puts("");
}

#endif
