/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a process can lock as much memory as RDMA devices need. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_MEMLOCK_H
#define RUNTIME_LAUNCH_CORE_MEMLOCK_H

#include <stdint.h>

#include "runtime/base/err.h"

#define MEMLOCK_UNLIMITED UINT64_MAX

/* -ENOBUFS, with what the node's administrator has to set. */
int memlock_check(uint64_t n_rdma, uint64_t limit_bytes, struct err *err);

/* The limit that a task of Slurm will have. Slurm sets what srun sends in
 * SLURM_RLIMIT_MEMLOCK (NULL: nothing) just before it executes the program, up to the
 * hard limit of slurmd. */
uint64_t memlock_of_task(const char *sent, uint64_t soft_bytes, uint64_t hard_bytes);

#endif
