/* SPDX-License-Identifier: Apache-2.0 */
/* How hvd_init finds its place: the nearest launcher wins. HOROVOD_*, torchrun's set,
 * Open MPI, mpiexec (PMI-1, PMIx), a Slurm task inside a real step (never the batch
 * script or an interactive shell), else a single process. Foreign launchers provide no
 * secret: where they have a channel, ranks meet by that (../bootstrap); torchrun inside a
 * task of the Slurm plugin has the step's token; else the token is derived (TOKEN_WEAK)
 * and the caller warns once. Pure. */
#ifndef RUNTIME_CONTRACT_DISCOVER_H
#define RUNTIME_CONTRACT_DISCOVER_H

#include "runtime/contract/contract.h"

/* *ret is complete on success, except for what ret->known and ret->channel leave to
 * bootstrap_meet. ret_why: one line for the log ("rank 1 of 4 from torchrun: RANK,
 * WORLD_SIZE, MASTER_ADDR=..."), at least 256 bytes. -EINVAL when the nearest set
 * contradicts itself: the message shows both values. */
int contract_discover(getenv_fn get,
                      void *arg,
                      struct contract *ret,
                      char *ret_why,
                      size_t why_bytes,
                      struct err *err);
/* The number of tasks of the Slurm job, if this process is not one of them although the
 * job has several: it runs in the batch script or in salloc's shell, without srun. 0
 * otherwise. c: what contract_discover found. */
uint32_t contract_missed_tasks(const struct contract *c, getenv_fn get, void *arg);

#endif
