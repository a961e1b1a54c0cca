/* SPDX-License-Identifier: Apache-2.0 */
/* The resources of a pod as the scheduler counts them. Pure. */
#ifndef OPERATOR_CORE_POD_SIZE_H
#define OPERATOR_CORE_POD_SIZE_H

#include "operator/core/quantity.h"
#include "operator/doc/node.h"

struct amount { /* the quantity of one resource */
    struct amount *next;
    const char *name;
    struct quantity q;
};
struct amounts { /* zeroed: nothing; in the order of first mention, in an arena */
    struct amount *first, *last;
};

/* Reads `resources` of a container or of a pod's spec: the requests, and the limits of
 * resources without a request. Invalid quantities are left out: the API server refuses
 * such a pod. The caller zeroes *ret. -ENOMEM. */
int amounts_of(const struct node *o, struct arena *a, struct amounts *ret);
/* The resources of a whole pod. -ENOMEM. */
int pod_size(const struct node *spec, struct arena *a, struct amounts *ret);
/* to += n * from. A total that would overflow does not change. */
int amounts_add(struct amounts *to,
                const struct amounts *from,
                uint32_t n,
                struct arena *a);
struct node *amounts_node(struct build *b, const struct amounts *list);

#endif
