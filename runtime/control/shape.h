/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of the tree that carries the control channel. Pure: every rank computes the
 * same from the hosts of all ranks and the fan-out K, without a message. */
#ifndef RUNTIME_CONTROL_SHAPE_H
#define RUNTIME_CONTROL_SHAPE_H

#include <stdint.h>

#include "runtime/control/control.h"

#define SHAPE_NONE UINT32_MAX

struct tree_shape {
    uint32_t n;
    uint32_t *parent; /* by rank; of rank 0: SHAPE_NONE; a parent is always lower */
};

/* fanout: 1 to CONTROL_FANOUT_MAX. 0 or -ENOMEM. */
int shape_init(struct tree_shape *s,
               const struct control_member *members,
               uint32_t n,
               uint32_t fanout);
void shape_release(struct tree_shape *s); /* accepts a zeroed one */

/* The children of a rank, ascending; at most max are written. How many there are: never
 * more than 2 x fanout. O(ranks). */
uint32_t
shape_children(const struct tree_shape *s, uint32_t rank, uint32_t *ret, uint32_t max);
uint32_t shape_depth(const struct tree_shape *s, uint32_t rank); /* of rank 0: 0 */
/* The next rank on the way from `from` to `to`, its parent or one of its children.
 * SHAPE_NONE: from and to are equal. O(depth). */
uint32_t shape_next(const struct tree_shape *s, uint32_t from, uint32_t to);
/* Is `rank` below `top`, or `top` itself? False for ranks that do not exist. */
bool shape_is_under(const struct tree_shape *s, uint32_t rank, uint32_t top);

#endif
