/* SPDX-License-Identifier: Apache-2.0 */
/* Reads CUDA_VISIBLE_DEVICES like CUDA. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_VISIBLE_H
#define RUNTIME_LAUNCH_CORE_VISIBLE_H

#include "runtime/launch/core/topology.h"

/* Keeps only the GPUs of t that the list names, in its order. Entries are numbers;
 * UUIDs "GPU-.." or unambiguous prefixes; MIG instances "MIG-GPU-../1/0", which have
 * the place of their GPU, and "MIG-..", which have the place of the host's only GPU, or
 * an unknown one. The first invalid entry ends the list: "", "-1" and "none" keep no
 * GPU. */
void visible_keep(struct topology *t, const char *list);

#endif
