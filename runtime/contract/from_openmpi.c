/* SPDX-License-Identifier: Apache-2.0 */
/* Open MPI's mpirun:
 *
 *   OMPI_COMM_WORLD_{RANK,SIZE,LOCAL_RANK,LOCAL_SIZE}, and for PMIx PMIX_NAMESPACE,
 *   PMIX_RANK and PMIX_SERVER_URI*
 *
 * Ranks meet by PMIx, over any number of hosts. On one host there is a second way, for
 * images without libpmix: the name of the job, which is the same for all its processes
 * (PMIX_NAMESPACE or OMPI_MCA_ess_base_jobid), with mpirun's own address where it is
 * given (OMPI_MCA_orte_hnp_uri), so that two mpiruns never share a seed. Over several
 * hosts these do not give the host of rank 0. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/contract/foreign.h"

static bool openmpi_is_present(const struct env_reader *r)
{
    return env_look(r, "OMPI_COMM_WORLD_RANK") && env_look(r, "OMPI_COMM_WORLD_SIZE");
}

static int openmpi_read_place(const struct env_reader *r, struct place *p)
{
    static const struct place_names names = {"OMPI_COMM_WORLD_RANK",
                                             "OMPI_COMM_WORLD_SIZE",
                                             "OMPI_COMM_WORLD_LOCAL_RANK",
                                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                                             "cross_rank",
                                             "cross_size"};
    const uint32_t max = WORLD_MAX_RANKS;

    *p = (struct place){.cross_size = 1};
    int rc = foreign_need(r, names.rank, 0, max - 1, &p->rank);
    if (rc == 0)
        rc = foreign_need(r, names.size, 1, max, &p->size);
    if (rc == 0)
        rc = foreign_need(r, names.local_rank, 0, max - 1, &p->local_rank);
    if (rc == 0)
        rc = foreign_need(r, names.local_size, 1, max, &p->local_size);
    return rc ? rc : place_check_named(p, &names, r->err);
}

static const char *or_nothing(const char *s)
{
    return s ? s : "";
}

static int lacks_pmix(const struct env_reader *r, const struct place *p)
{
    return err_set(
        r->err, -EINVAL,
        "OMPI_COMM_WORLD_LOCAL_SIZE=%u of OMPI_COMM_WORLD_SIZE=%u: over several hosts "
        "ranks meet by PMIx, but PMIX_NAMESPACE, PMIX_RANK or PMIX_SERVER_URI is "
        "unset, which mpirun sets; use horovodrun, srun --hvd or torchrun there",
        p->local_size, p->size);
}

static int read_openmpi(const struct env_reader *r, struct contract *c)
{
    const char *name = env_look(r, "PMIX_NAMESPACE");
    const char *uri = or_nothing(env_look(r, "OMPI_MCA_orte_hnp_uri"));
    const char *key = or_nothing(env_look(r, "OMPI_MCA_orte_precondition_transports"));
    char job[JOB_ID_MAX], secret[40];
    int rc = openmpi_read_place(r, &c->place);

    c->hostname[0] = '\0'; /* mpirun does not set it: the caller queries the system */
    if (rc == 0 && foreign_has_pmix(r)) {
        c->channel = CHANNEL_PMIX;
        rc = foreign_check_pmix(r, "OMPI_COMM_WORLD_RANK", c->place.rank);
    }
    if (rc)
        return rc;
    if (c->place.local_size != c->place.size) {
        c->known = KNOWN_LOCAL;
        return c->channel == CHANNEL_PMIX ? 0 : lacks_pmix(r, &c->place);
    }
    if (!name)
        name = env_look(r, "OMPI_MCA_ess_base_jobid");
    if (!name && c->place.size > 1)
        return err_set(r->err, -EINVAL,
                       "OMPI_COMM_WORLD_SIZE=%u, but neither PMIX_NAMESPACE nor "
                       "OMPI_MCA_ess_base_jobid names the job",
                       c->place.size);
    /* Cut to what fits, which is the same for all ranks. */
    (void)snprintf(job, sizeof(job), "openmpi/%.40s/%.100s", or_nothing(name), uri);
    (void)snprintf(secret, sizeof(secret), "%s", key);
    return foreign_set_rendezvous(r, c, "127.0.0.1", job, secret, 0);
}

const struct foreign foreign_openmpi = {LAUNCHER_OPENMPI,
                                        "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE",
                                        openmpi_is_present, read_openmpi};
