/* SPDX-License-Identifier: Apache-2.0 */
/* mpiexec of MPICH and Intel MPI (Hydra), and any other launcher that provides PMI-1,
 * or PMIx without Open MPI's variables:
 *
 *   PMI_RANK PMI_SIZE PMI_FD      a descriptor to the launcher's proxy
 *   PMI_PORT PMI_ID               host:port of it; the proxy sends rank and size
 *   PMIX_NAMESPACE PMIX_RANK ...  a PMIx server (prun)
 *   MPI_LOCALRANKID MPI_LOCALNRANKS   only Hydra sets local ranks
 *
 * None of them gives the address of rank 0, so ranks connect through the channel only.
 * Slurm sets PMI_* and PMIX_* too; from_slurm.c reads those. */
#include "runtime/contract/foreign.h"

/* srun --mpi=pmi2 sets PMI_* too, and a nested srun with another --mpi leaves them
 * unchanged. A nested mpiexec leaves PMI_JOBID, but sets local ranks, which Slurm never
 * does. */
static bool is_slurms(const struct env_reader *r)
{
    return env_look(r, "PMI_JOBID") && env_look(r, "SLURM_JOB_ID")
           && !env_look(r, "MPI_LOCALRANKID");
}

static bool has_fd(const struct env_reader *r)
{
    return env_look(r, "PMI_RANK") && env_look(r, "PMI_SIZE") && env_look(r, "PMI_FD")
           && !is_slurms(r);
}

static bool has_port(const struct env_reader *r)
{
    return env_look(r, "PMI_PORT") && env_look(r, "PMI_ID");
}

static bool mpiexec_is_present(const struct env_reader *r)
{
    return has_fd(r) || has_port(r)
           || (foreign_has_pmix(r) && !foreign_is_slurms_pmix(r));
}

/* Both of Hydra's pair, or none. */
static int read_local(const struct env_reader *r, struct contract *c)
{
    static const struct place_names names = {"PMI_RANK",        "PMI_SIZE",
                                             "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
                                             "cross_rank",      "cross_size"};
    struct place *p = &c->place;

    c->known = p->size == 1 ? KNOWN_ALL : KNOWN_RANK;
    if (env_look(r, "MPI_LOCALRANKID") && env_look(r, "MPI_LOCALNRANKS")) {
        int rc = env_u32(r, "MPI_LOCALRANKID", 0, WORLD_MAX_RANKS - 1, &p->local_rank);

        if (rc == 0)
            rc = env_u32(r, "MPI_LOCALNRANKS", 1, WORLD_MAX_RANKS, &p->local_size);
        if (rc)
            return rc;
        c->known = p->local_size == p->size ? KNOWN_ALL : KNOWN_LOCAL;
    }
    return place_check_named(p, &names, r->err);
}

static int read_fd(const struct env_reader *r, struct contract *c)
{
    uint32_t fd = 0;
    int rc = foreign_need(r, "PMI_RANK", 0, WORLD_MAX_RANKS - 1, &c->place.rank);

    if (rc == 0)
        rc = foreign_need(r, "PMI_SIZE", 1, WORLD_MAX_RANKS, &c->place.size);
    if (rc == 0)
        rc = foreign_need(r, "PMI_FD", 0, INT32_MAX, &fd);
    if (rc == 0)
        rc = read_local(r, c);
    if (rc)
        return rc;
    c->channel = CHANNEL_PMI;
    c->pmi_fd = (int)fd;
    return 0;
}

static int read_mpiexec(const struct env_reader *r, struct contract *c)
{
    c->hostname[0] = '\0'; /* mpiexec does not set it: the caller queries the system */
    if (has_fd(r))
        return read_fd(r, c);
    c->place.size = 0; /* read from the channel */
    c->known = KNOWN_NOTHING;
    if (!has_port(r)) {
        c->channel = CHANNEL_PMIX;
        return 0;
    }
    c->channel = CHANNEL_PMI;
    int rc = env_u32(r, "PMI_ID", 0, WORLD_MAX_RANKS - 1, &c->pmi_id);
    return rc ? rc : env_text(r, "PMI_PORT", "", c->pmi_port, sizeof(c->pmi_port));
}

const struct foreign foreign_mpiexec = {LAUNCHER_MPIEXEC, "PMI or PMIx",
                                        mpiexec_is_present, read_mpiexec};
