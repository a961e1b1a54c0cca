/* SPDX-License-Identifier: Apache-2.0 */
/* Who has started this process? The nearest launcher wins; each foreign launcher is a
 * row with a test of presence and a reader (foreign.c). "Nearest" is known because
 * every launcher of ours removes the sets of outer ones: what stands beside our
 * HOROVOD_* came later, from inside.
 *
 *   HOROVOD_* and ...                                    nearest
 *   TORCHELASTIC_RUN_ID                                  torchrun, inside our task
 *   OMPI_COMM_WORLD_RANK                                 mpirun, inside our task
 *   SLURM_PROCID, SLURM_STEP_NUM_TASKS of other values   bare srun, inside our task
 *   ... of the same values, or nothing                   ours (the Slurm plugin keeps
 * SLURM_*)
 *
 * Without HOROVOD_*: torchrun, then Open MPI, then Slurm: mpirun starts its daemons by
 * srun, so that its processes have both sets; torchrun is often started by either.
 *
 * A set that is not whole (RANK and WORLD_SIZE without MASTER_ADDR) is skipped as long
 * as another launcher is found; alone it is an error, since "single process" would
 * train N separate models. */
#include "runtime/contract/discover.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/contract/foreign.h"

static bool same_number(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

static bool is_set(const struct env_reader *r, const char *name)
{
    return env_look(r, name) != NULL;
}

/* The foreign set that is nearer than the HOROVOD_* that is there; NULL: HOROVOD_* it
 * is. */
static const struct foreign *nearer_than_ours(const struct env_reader *r)
{
    if (!is_set(r, "HVD_JOB_ID") && !is_set(r, "HVD_HOST_INDEX"))
        return NULL; /* not written by us, so nothing was removed: no conclusion */
    if (is_set(r, "TORCHELASTIC_RUN_ID") && foreign_torchrun.is_present(r))
        return &foreign_torchrun;
    if (foreign_openmpi.is_present(r))
        return &foreign_openmpi;
    if (foreign_slurm.is_present(r)
        && !(same_number(env_look(r, "SLURM_PROCID"), env_look(r, "HOROVOD_RANK"))
             && same_number(env_look(r, "SLURM_STEP_NUM_TASKS"),
                            env_look(r, "HOROVOD_SIZE"))))
        return &foreign_slurm;
    return NULL;
}

static const struct foreign *find_foreign(const struct env_reader *r)
{
    static const struct foreign *const order[] = {&foreign_torchrun, &foreign_openmpi,
                                                  &foreign_slurm};

    for (size_t i = 0; i < ARRAY_LEN(order); i++)
        if (order[i]->is_present(r))
            return order[i];
    return NULL;
}

static void
say(const struct contract *c, const char *from, char *ret, size_t size_bytes)
{
    if (c->place.size == 1 && c->launcher == LAUNCHER_NONE)
        (void)snprintf(ret, size_bytes, "a single process: no launcher was found");
    else
        (void)snprintf(ret, size_bytes, "rank %u of %u from %s: %s%s%s", c->place.rank,
                       c->place.size, launcher_name(c->launcher), from,
                       c->rdv_host[0] ? ", meeting at " : "",
                       c->rdv_host); /* a line for the log: may be cut */
}

/* RANK and WORLD_SIZE of more than one process, and nobody to complete them. */
static int check_leftover(const struct env_reader *r)
{
    const char *rank = env_look(r, "RANK"), *size = env_look(r, "WORLD_SIZE");

    if (!rank || !size || same_number(size, "1"))
        return 0;
    return err_set(r->err, -EINVAL,
                   "RANK=%.20s and WORLD_SIZE=%.20s are set, but MASTER_ADDR or "
                   "MASTER_PORT is not: set both, or unset all of them to run alone",
                   rank, size);
}

int discover(getenv_fn get,
             void *arg,
             struct contract *ret,
             char *ret_why,
             size_t why_bytes,
             struct err *err)
{
    const struct env_reader r = {get, arg, err};
    const struct foreign *f = NULL;
    const char *from = "";
    struct contract c;
    int rc;

    contract_init(&c);
    if (is_set(&r, "HOROVOD_RANK") || is_set(&r, "HOROVOD_SIZE")) {
        f = nearer_than_ours(&r);
        from = "HOROVOD_RANK, HOROVOD_SIZE";
        rc = f ? 0 : contract_parse(get, arg, &c, err);
    } else {
        f = find_foreign(&r);
        rc = f ? 0 : check_leftover(&r);
    }
    if (f) {
        from = f->from;
        c.launcher = f->launcher;
        rc = f->read(&r, &c);
    }
    if (rc)
        return rc;
    *ret = c;
    say(&c, from, ret_why, why_bytes);
    return 0;
}
