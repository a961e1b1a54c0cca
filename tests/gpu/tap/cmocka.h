/* SPDX-License-Identifier: Apache-2.0 */
/* The part of cmocka's interface that the tests of the kernels use, for machines
 * without cmocka: one program, TAP on stdout, nothing linked. */
#ifndef TESTS_GPU_TAP_CMOCKA_H
#define TESTS_GPU_TAP_CMOCKA_H

#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func,
        teardown_func; /* NULL: the kernels' tests have none */
};

static jmp_buf tap_out;
static const char *tap_filter; /* NULL: all tests */

__attribute__((format(printf, 3, 4))) _Noreturn static inline void
tap_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    (void)printf("# %s:%d: ", file, line);
    va_start(ap, fmt);
    (void)vprintf(fmt, ap);
    va_end(ap);
    (void)puts("");
    longjmp(tap_out, 1);
}

#define fail_msg(...) tap_fail(__FILE__, __LINE__, __VA_ARGS__)
#define assert_true(c)                                                                 \
    do {                                                                               \
        if (!(c))                                                                      \
            fail_msg("%s", #c);                                                        \
    } while (0)
#define assert_false(c)    assert_true(!(c))
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_null(p)     assert_true(!(p))
#define assert_int_equal(a, b)                                                         \
    tap_int((intmax_t)(a), (intmax_t)(b), #a, __FILE__, __LINE__)
#define assert_memory_equal(a, b, n) tap_memory(a, b, n, #a, __FILE__, __LINE__)
#define assert_string_equal(a, b)                                                      \
    do {                                                                               \
        if (strcmp(a, b) != 0)                                                         \
            fail_msg("%s is \"%s\", not \"%s\"", #a, a, b);                            \
    } while (0)
#define assert_in_range(v, least, most)                                                \
    assert_true((uintmax_t)(v) >= (least) && (uintmax_t)(v) <= (most))

static inline void
tap_int(intmax_t a, intmax_t b, const char *what, const char *file, int line)
{
    if (a != b)
        tap_fail(file, line, "%s is %jd, not %jd", what, a, b);
}

static inline void tap_memory(const void *a,
                              const void *b,
                              size_t n,
                              const char *what,
                              const char *file,
                              int line)
{
    const uint8_t *p = a, *q = b;
    for (size_t i = 0; i < n; i++)
        if (p[i] != q[i])
            tap_fail(file, line, "%s: byte %zu of %zu is %u, not %u", what, i, n, p[i],
                     q[i]);
}

static inline void cmocka_set_test_filter(const char *pattern)
{
    tap_filter = pattern;
}

static inline int _cmocka_run_group_tests(const char *group,
                                          const struct CMUnitTest *tests,
                                          size_t n,
                                          CMFixtureFunction set_up,
                                          CMFixtureFunction tear_down)
{
    void *state = NULL;
    (void)group, (void)set_up, (void)tear_down;
    volatile int n_failed = 0;
    volatile size_t done = 0;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    for (volatile size_t i = 0; i < n; i++) {
        if (tap_filter && fnmatch(tap_filter, tests[i].name, 0) != 0)
            continue;
        done++;
        if (setjmp(tap_out) == 0) {
            tests[i].test_func(&state);
            (void)printf("ok %zu - %s\n", done, tests[i].name);
        } else {
            n_failed++;
            (void)printf("not ok %zu - %s\n", done, tests[i].name);
        }
    }
    (void)printf("1..%zu\n", done);
    return n_failed;
}

#endif
