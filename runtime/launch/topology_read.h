/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot of this host's CPUs, GPUs and NICs. */
#ifndef RUNTIME_LAUNCH_TOPOLOGY_READ_H
#define RUNTIME_LAUNCH_TOPOLOGY_READ_H

#include "runtime/launch/core/topology.h"

struct topology_source {
    const char *root;            /* of /sys, /proc and /dev; "" : this host's */
    const char *visible_devices; /* CUDA_VISIBLE_DEVICES, NULL: not set */
};

/* Reads what exists: a container may hide any part. Uses the CPUs in allowed; NULL:
 * those that this process may run on. -ENOMEM, or -errno of the affinity mask. */
int topology_read(const struct topology_source *s,
                  const struct cpuset *allowed,
                  struct topology *ret,
                  struct err *err);
void topology_release(struct topology *t); /* accepts a zeroed struct */

#endif
