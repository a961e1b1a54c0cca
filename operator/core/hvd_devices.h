/* SPDX-License-Identifier: Apache-2.0 */
/* How many GPUs a pod template's first container requests. Pure. */
#ifndef OPERATOR_CORE_HVD_DEVICES_H
#define OPERATOR_CORE_HVD_DEVICES_H

#include "operator/doc/node.h"

struct devices {
    uint64_t n;        /* GPUs: whole ones, MIG parts, and one for each claim */
    uint32_t n_claims; /* claims among them; a claim may be for several devices */
};

/* Of nvidia.com/gpu, amd.com/gpu, nvidia.com/mig-*: limits, else requests. Of
 * resources.claims those that are in spec.resourceClaims. An invalid amount counts as
 * 0: the API server refuses such a pod. */
struct devices devices_count(const struct node *pod_template);
bool device_is_gpu(const char *resource);

#endif
