/* SPDX-License-Identifier: Apache-2.0 */
/* Bare srun (without --hvd): a task of a real step.
 *
 *   SLURM_PROCID   SLURM_STEP_NUM_TASKS   SLURM_STEP_NODELIST
 *   SLURM_LOCALID  SLURM_NODEID           SLURM_STEP_TASKS_PER_NODE
 *   SLURM_JOB_ID   SLURM_STEP_ID
 *
 * The batch script, salloc's shell and the extern step are steps with reserved numbers,
 * in which no ranks run. Rank 0 is the first task of the first node of the list for
 * every distribution except arbitrary, where only srun and PMIx have the position of
 * rank 0: this returns an error that names srun --hvd. The rendezvous is at rank 0's
 * node, on a port from a hash of job and step.
 *
 * Under --mpi=pmix ranks meet by PMIx where libpmix is present. PMI of --mpi=pmi2 is
 * not used: slurmstepd answers only one init per task, so an MPI_Init after ours would
 * hang. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/foreign.h"
#include "runtime/contract/slurm_step.h"

/* Slurm's reserved step numbers begin here: 4294967290 interactive, ...291 batch,
 * ...292 extern. */
#define STEP_MAX 4294967280u

static bool slurm_is_present(const struct env_reader *r)
{
    const char *step = env_look(r, "SLURM_STEP_ID");
    uint32_t id;

    return step && parse_u32("SLURM_STEP_ID", step, 0, STEP_MAX, &id, NULL) == 0
           && env_look(r, "SLURM_PROCID") && env_look(r, "SLURM_STEP_NUM_TASKS")
           && env_look(r, "SLURM_JOB_ID");
}

/* Under --distribution=arbitrary rank 0 may be anywhere. */
static bool rank0_is_known(const struct env_reader *r, const struct slurm_step *s)
{
    const char *how = env_look(r, "SLURM_DISTRIBUTION");
    bool is_arbitrary = how && strncmp(how, "arbitrary", 9) == 0;
    const struct place *p = &s->place;

    return p->size == 1 || s->hosts.n == 1
           || (!is_arbitrary && (p->rank != 0 || p->host == 0));
}

/* Of this step: an srun of another kind inside a step of --mpi=pmix leaves the outer
 * one's variables unchanged. */
static bool has_pmix(const struct env_reader *r)
{
    const char *name = env_look(r, "PMIX_NAMESPACE");
    char mine[96];

    (void)snprintf(mine, sizeof(mine), "slurm.pmix.%.40s.%.40s",
                   env_look(r, "SLURM_JOB_ID"),
                   env_look(r, "SLURM_STEP_ID")); /* numbers: fit */
    return name && strcmp(name, mine) == 0 && foreign_has_pmix(r);
}

static int read_slurm(const struct env_reader *r, struct contract *c)
{
    CLEANUP(slurm_step_release) struct slurm_step s = {.hosts = {0}};
    char job[JOB_ID_MAX];
    int rc = slurm_step_read(r, &s);

    if (rc == 0 && has_pmix(r)) {
        c->channel = CHANNEL_PMIX;
        rc = foreign_check_pmix(r, "SLURM_PROCID", s.place.rank);
    }
    if (rc == 0 && c->channel == CHANNEL_NONE && !rank0_is_known(r, &s))
        return err_set(
            r->err, -EINVAL,
            "with --distribution=arbitrary the node of rank 0 cannot be known "
            "(SLURM_NODEID=%u, SLURM_PROCID=%u): use srun --hvd or "
            "--mpi=pmix",
            s.place.host, s.place.rank);
    if (rc == 0)
        rc = env_u32(r, "SLURM_RESTART_COUNT", 0, UINT32_MAX, &c->generation);
    if (rc)
        return rc;
    c->place = s.place;
    (void)snprintf(c->hostname, sizeof(c->hostname), "%s",
                   s.hosts.v[s.place.host].name); /* fits */
    (void)snprintf(job, sizeof(job), "slurm/%.40s.%.40s", env_look(r, "SLURM_JOB_ID"),
                   env_look(r, "SLURM_STEP_ID")); /* numbers: fit */
    if (!rank0_is_known(r, &s))
        return 0; /* by PMIx or not at all */
    return foreign_set_rendezvous(r, c, s.hosts.v[0].name, job, "", 0);
}

const struct foreign foreign_slurm = {
    LAUNCHER_SLURM, "SLURM_PROCID, SLURM_STEP_NUM_TASKS", slurm_is_present, read_slurm};
