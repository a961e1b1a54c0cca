/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of three ranks, or of six in a control tree by twos, where ranks 1 and 2 stand
 * between rank 0 and the rest. Include before main. */
#ifndef TESTS_UNIT_HVD_TREE_H
#define TESTS_UNIT_HVD_TREE_H

#include <stdlib.h>

static int n_ranks = 3;

static int in_tree(void **state)
{
    (void)state;
    n_ranks = 6;
    return setenv("HVD_CONTROL_FANOUT", "2", 1);
}

static int in_star(void **state)
{
    (void)state;
    n_ranks = 3;
    return unsetenv("HVD_CONTROL_FANOUT");
}

#define IN_TREE(test)                                                                  \
    {                                                                                  \
#test "_in_a_tree", test, in_tree, in_star, NULL                               \
    }

#endif
