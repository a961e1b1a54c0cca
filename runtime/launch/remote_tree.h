/* SPDX-License-Identifier: Apache-2.0 */
/* The agents that the agent of a host starts: its share of the hosts of a job. */
#ifndef RUNTIME_LAUNCH_REMOTE_TREE_H
#define RUNTIME_LAUNCH_REMOTE_TREE_H

#include "runtime/launch/links.h"
#include "runtime/launch/uplink.h"

struct remote_tree {
    struct link_set links; /* zeroed: no agents */
    /* borrowed; the caller sets them before the start */
    const struct errand *e;
    const struct strbuf *job; /* the encoded JOB, which they get too */
    struct uplink *up;
    struct signals *signals;
    struct guard *guard;
};

/* Starts connecting to the agents of hosts first .. end-1, if there are any. root is
 * copied. Release t in every case. */
int remote_tree_start(struct remote_tree *t,
                      const struct token *root,
                      uint32_t first,
                      uint32_t end,
                      struct err *err);
void remote_tree_release(struct remote_tree *t); /* accepts a zeroed struct */

#endif
