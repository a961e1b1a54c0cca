/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that run twice: with three ranks, and with six in a control tree by twos, where
 * ranks 1 and 2 stand between rank 0 and the rest. */
#ifndef TESTS_UNIT_HVD_TREE_H
#define TESTS_UNIT_HVD_TREE_H

#include <stdbool.h>

#include "tests/unit/unit.h"

static int n_ranks;

static void tree_run(bool is_tree, void (*fn)(void))
{
    n_ranks = is_tree ? 6 : 3;
    if (is_tree)
        (void)setenv("HVD_CONTROL_FANOUT", "2", 1);
    fn();
    (void)unsetenv("HVD_CONTROL_FANOUT");
}

#define TREE_TEST(name)                                                                \
    static void name##_both(void);                                                     \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        tree_run(false, name##_both);                                                  \
    }                                                                                  \
    UNIT_TEST(name##_in_a_tree)                                                        \
    {                                                                                  \
        tree_run(true, name##_both);                                                   \
    }                                                                                  \
    static void name##_both(void)

#endif
