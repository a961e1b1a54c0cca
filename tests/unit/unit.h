/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka with the headers that it requires, and tests that register themselves:
 *
 *     UNIT_TEST(a_list_is_read) { ... }
 *     UNIT_MAIN(NULL, NULL)
 *
 * They run in the order of the file. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { UNIT_MAX_TESTS = 64 };

static struct CMUnitTest unit_tests[UNIT_MAX_TESTS];
static size_t unit_n_tests;

static inline void unit_add(const char *name,
                            CMUnitTestFunction f,
                            CMFixtureFunction set_up,
                            CMFixtureFunction tear_down)
{
    if (unit_n_tests == UNIT_MAX_TESTS)
        abort();
    unit_tests[unit_n_tests++] = (struct CMUnitTest){
        .name = name, .test_func = f, .setup_func = set_up, .teardown_func = tear_down};
}

/* What failed tests have left: a process that lives on keeps the pipe to prove open, and
 * prove waits for its end. */
static inline void unit_kill_children(void)
{
    char path[48];
    FILE *f;
    int pid;

    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "re");
    while (f && fscanf(f, "%d", &pid) == 1)
        if (waitpid(pid, NULL, WNOHANG) == 0 && kill(pid, SIGKILL) == 0)
            (void)printf("# process %d was left\n", pid);
    if (f)
        (void)fclose(f);
}

/* Runs all tests, or with UNIT_FILTER those whose name matches the pattern, between
 * set_up and tear_down. Returns the exit code of main. */
static inline int unit_run(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    int rc;

    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);        /* orphans become our children */
    cmocka_set_test_filter(getenv("UNIT_FILTER")); /* NULL: no filter */
    rc = _cmocka_run_group_tests("tests", unit_tests, unit_n_tests, set_up, tear_down);
    unit_kill_children();
    return rc;
}

/* set_up and tear_down run before and after the test; NULL: none. */
#define UNIT_TEST_WITH(f, set_up, tear_down)                                           \
    static void f(void **state);                                                       \
    __attribute__((constructor)) static void f##_add(void)                             \
    {                                                                                  \
        unit_add(#f, f, set_up, tear_down);                                            \
    }                                                                                  \
    static void f(__attribute__((unused)) void **state)

#define UNIT_TEST(f) UNIT_TEST_WITH(f, NULL, NULL)

#define UNIT_MAIN(set_up, tear_down)                                                   \
    int main(void)                                                                     \
    {                                                                                  \
        return unit_run(set_up, tear_down);                                            \
    }

#endif
