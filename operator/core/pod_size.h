/* SPDX-License-Identifier: Apache-2.0 */
/* What a pod asks of a node, as the scheduler counts it. Pure. */
#ifndef OPERATOR_CORE_POD_SIZE_H
#define OPERATOR_CORE_POD_SIZE_H

#include "operator/core/quantity.h"
#include "operator/doc/node.h"

struct amount { /* of one resource */
    struct amount *next;
    const char *name;
    struct quantity q;
};
struct amounts { /* zeroed: nothing; in the order of first mention, in an arena */
    struct amount *first, *last;
};

/* What resources of a container, or of a pod's spec, says: requests, and limits where
 * there is no request; what is no quantity is left out: the API server refuses the pod
 * for it. *ret is zeroed by the caller. -ENOMEM. */
int amounts_of(const struct node *o, struct arena *a, struct amounts *ret);
/* All of a pod's spec. -ENOMEM. */
int pod_size(const struct node *spec, struct arena *a, struct amounts *ret);
/* to += n * from. A total beyond what a quantity can hold stays where it is. */
int amounts_add(struct amounts *to,
                const struct amounts *from,
                uint32_t n,
                struct arena *a);
struct node *amounts_node(struct build *b, const struct amounts *list);

#endif
