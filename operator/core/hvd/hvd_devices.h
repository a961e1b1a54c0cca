/* SPDX-License-Identifier: Apache-2.0 */
/* How many GPUs a pod template's first container requests. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_DEVICES_H
#define OPERATOR_CORE_HVD_HVD_DEVICES_H

#include "operator/doc/node.h"

struct devices {
    uint64_t n;        /* number of GPUs: whole ones, MIG parts, and one per claim */
    uint32_t n_claims; /* number of claims in n; a claim may be for several devices */
};

/* Counts nvidia.com/gpu, amd.com/gpu and nvidia.com/mig-*, by limits, else by requests,
 * and the resources.claims that are in spec.resourceClaims. An invalid amount counts as
 * 0: the API server refuses such a pod. */
struct devices devices_count(const struct node *pod_template);
bool device_is_gpu(const char *resource);

#endif
