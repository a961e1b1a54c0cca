/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA_VISIBLE_DEVICES as CUDA reads it. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_VISIBLE_H
#define RUNTIME_LAUNCH_CORE_VISIBLE_H

#include "runtime/launch/core/topology.h"

/* Keeps of t's GPUs what the list names, in its order: numbers; UUIDs "GPU-..", of
 * which a beginning will do that only one has; MIG instances "MIG-GPU-../1/0", which
 * are where their GPU is, and "MIG-..", which are where the host's only GPU is, or
 * nobody knows. The first entry that names nothing ends the list: "", "-1", "none"
 * leave none. */
void visible_keep(struct topology *t, const char *list);

#endif
