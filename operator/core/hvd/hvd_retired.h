/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of an elastic job whose pods have retired: horovodrun found that no process
 * works in them, and their agents have exited. The second pod of a worker that retires on
 * one node is followed by one that avoids this node. Pure.
 *
 *   status.retiredWorkers: [{index: 1, node: n1, count: 2}] */
#ifndef OPERATOR_CORE_HVD_HVD_RETIRED_H
#define OPERATOR_CORE_HVD_HVD_RETIRED_H

#include "operator/core/pod.h"
#include "operator/doc/node.h"

#define HVD_RETIRED_MAX 64 /* workers; the one that has retired first is forgotten */

struct hvd_retired_worker {
    uint32_t index;
    const char *node; /* of its last pod that has retired; borrowed */
    uint32_t count;   /* pods in a row that have retired there */
};
struct hvd_retired {
    struct hvd_retired_worker v[HVD_RETIRED_MAX];
    size_t n;
};

/* The agent of this pod has retired it. */
bool pod_has_retired(const struct pod *p);
/* Borrows from status. Entries that are malformed are left out. */
void hvd_retired_read(const struct node *status, struct hvd_retired *ret);
void hvd_retired_add(struct hvd_retired *r, uint32_t index, const char *node);
/* Sets status.retiredWorkers, unless there are none. */
void hvd_retired_write(const struct hvd_retired *r,
                       struct build *b,
                       struct node *status);
/* The node that the next pod of this worker avoids; NULL: none. */
const char *hvd_retired_node(const struct hvd_retired *r, uint32_t index);
/* A pod with this spec avoids that node, if another one has room for it. */
void hvd_retired_avoid(struct build *b, struct node *spec, const char *node);

#endif
