/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign launchers, for discover.c: detect a launcher and read its variables. Pure. */
#ifndef RUNTIME_CONTRACT_FOREIGN_H
#define RUNTIME_CONTRACT_FOREIGN_H

#include "runtime/contract/env_reader.h"

struct foreign {
    enum launcher launcher;
    const char *from; /* names of the variables, for the log */
    bool (*is_present)(const struct env_reader *r);
    /* Completes ret, which contract_init has prepared. 0, or -EINVAL with an
     * error message. */
    int (*read)(const struct env_reader *r, struct contract *ret);
};
extern const struct foreign foreign_torchrun, foreign_openmpi, foreign_slurm,
    foreign_mpiexec;

/* PMIX_NAMESPACE, PMIX_RANK and the address of a server are set: PMIx_Init needs
 * these. */
bool foreign_has_pmix(const struct env_reader *r);
/* Checks that PMIX_RANK equals `rank`, which the launcher sets in the variable
 * `name`. */
int foreign_check_pmix(const struct env_reader *r, const char *name, uint32_t rank);
/* The PMIX_* variables were set by srun --mpi=pmix. */
bool foreign_is_slurms_pmix(const struct env_reader *r);

/* A number that the launcher sets for every process. */
int foreign_need(const struct env_reader *r,
                 const char *name,
                 uint32_t min,
                 uint32_t max,
                 uint32_t *ret);
/* Rank 0 serves at host and a port from 20000 to 29999 that is a hash of the job and
 * never not_port. The weak token is made of the job's name and, where the launcher
 * gives all ranks something that is not public, of `secret` ("": nothing). For size 1
 * nothing is set. */
int foreign_set_rendezvous(const struct env_reader *r,
                           struct contract *c,
                           const char *host,
                           const char *job,
                           const char *secret,
                           uint32_t not_port);

#endif
