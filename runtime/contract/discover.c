/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the launcher that has started this process. The nearest launcher wins; each
 * foreign launcher is a row with a presence test and a reader (foreign.c). "Nearest" is
 * known because every launcher of ours removes the sets of outer ones: a set next to
 * our HOROVOD_* was added later, inside our task.
 *
 *   next to HOROVOD_*                                    nearest launcher
 *   TORCHELASTIC_RUN_ID                                  torchrun, inside our task
 *   OMPI_COMM_WORLD_RANK                                 mpirun, inside our task
 *   PMI_RANK and PMI_FD, or prun's PMIX_*                mpiexec, inside our task
 *   SLURM_PROCID, SLURM_STEP_NUM_TASKS of other values   bare srun, inside our task
 *   the same of equal values, or nothing                 ours (the Slurm plugin keeps
 *                                                        SLURM_* and Slurm's own PMI_*,
 *                                                        PMIX_*)
 *
 * Without HOROVOD_* the order is torchrun, Open MPI, mpiexec, Slurm: mpirun and mpiexec
 * start their daemons by srun, so that their processes have both sets; torchrun is
 * often started by any of them. RANK and WORLD_SIZE without TORCHELASTIC_RUN_ID that
 * equal another launcher's rank and size were exported by a wrapper script for
 * torch.distributed: then that other launcher is used.
 *
 * An incomplete set (RANK and WORLD_SIZE without MASTER_ADDR) is skipped if another
 * launcher is found; alone it is an error, because "single process" would train N
 * separate models. */
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

/* The foreign set that is nearer than the present HOROVOD_*; NULL: HOROVOD_* is. */
static const struct foreign *nearer_than_ours(const struct env_reader *r)
{
    if (!is_set(r, "HVD_JOB_ID") && !is_set(r, "HVD_HOST_INDEX"))
        return NULL; /* not written by us, so nothing was removed: no conclusion */
    if (is_set(r, "TORCHELASTIC_RUN_ID") && foreign_torchrun.is_present(r))
        return &foreign_torchrun;
    if (foreign_openmpi.is_present(r))
        return &foreign_openmpi;
    if (foreign_mpiexec.is_present(r))
        return &foreign_mpiexec;
    if (foreign_slurm.is_present(r)
        && !(same_number(env_look(r, "SLURM_PROCID"), env_look(r, "HOROVOD_RANK"))
             && same_number(env_look(r, "SLURM_STEP_NUM_TASKS"),
                            env_look(r, "HOROVOD_SIZE"))))
        return &foreign_slurm;
    return NULL;
}

/* A wrapper script has exported another launcher's rank and size for torch. */
static bool is_exported(const struct env_reader *r)
{
    static const char *const sets[][2] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_RANK", "PMI_SIZE"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    };

    if (is_set(r, "TORCHELASTIC_RUN_ID"))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(sets); i++)
        if (same_number(env_look(r, "RANK"), env_look(r, sets[i][0]))
            && same_number(env_look(r, "WORLD_SIZE"), env_look(r, sets[i][1])))
            return true;
    return false;
}

/* mpirun and mpiexec inside one another: both pass on the variables that they find, so
 * the inner one cannot be identified. A set of one rank belongs to the outer one, which
 * has started a launcher. */
static int choose_mpi(const struct env_reader *r, const struct foreign **f)
{
    const char *rank = env_look(r, "OMPI_COMM_WORLD_RANK");
    const char *size = env_look(r, "OMPI_COMM_WORLD_SIZE");
    const char *pmi_rank = env_look(r, "PMI_RANK"), *pmi_size = env_look(r, "PMI_SIZE");

    if (*f != &foreign_openmpi || !env_look(r, "PMI_FD")
        || (same_number(rank, pmi_rank) && same_number(size, pmi_size)))
        return 0;
    if (same_number(size, "1"))
        *f = &foreign_mpiexec;
    else if (!same_number(pmi_size, "1"))
        return err_set(
            r->err, -EINVAL,
            "OMPI_COMM_WORLD_RANK=%.20s of %.20s, but PMI_RANK=%.20s of %.20s: "
            "of two nested launchers: unset the variable of the outer one, PMI_FD or "
            "OMPI_COMM_WORLD_RANK",
            rank, size, pmi_rank ? pmi_rank : "", pmi_size ? pmi_size : "");
    return 0;
}

static const struct foreign *find_foreign(const struct env_reader *r)
{
    static const struct foreign *const order[] = {&foreign_torchrun, &foreign_openmpi,
                                                  &foreign_mpiexec, &foreign_slurm};

    for (size_t i = is_exported(r); i < ARRAY_LEN(order); i++)
        if (order[i]->is_present(r))
            return order[i];
    return foreign_torchrun.is_present(r) ? &foreign_torchrun : NULL;
}

/* torchrun in a task of the Slurm plugin passes its environment to its processes, which
 * are on this node, so the file of the step's token is there, with the same token on all
 * nodes. Not in a step inside that task, whose other nodes do not have the file: then
 * the step is not the one of HVD_JOB_ID. Worlds of several torchruns have different job
 * names, which are part of the handshake. */
static int use_steps_token(const struct env_reader *r, struct contract *c)
{
    const char *job = env_look(r, "SLURM_JOB_ID"), *step = env_look(r, "SLURM_STEP_ID");
    const char *ours = env_look(r, "HVD_JOB_ID");
    char mine[96];

    if (c->launcher != LAUNCHER_TORCHRUN || c->token_source != TOKEN_WEAK || !job
        || !step || !ours || !is_set(r, "HVD_TOKEN_FILE"))
        return 0;
    (void)snprintf(mine, sizeof(mine), "slurm.%.40s.%.40s", job, step); /* numbers */
    if (strcmp(mine, ours) != 0)
        return 0;
    c->token_source = TOKEN_FILE;
    return env_text(r, "HVD_TOKEN_FILE", "", c->token_file, sizeof(c->token_file));
}

static void contract_describe(const struct contract *c,
                              const char *from,
                              char *ret,
                              size_t size_bytes)
{
    const char *where = c->rdv_host;

    if (c->channel != CHANNEL_NONE)
        where = launcher_channel_name(c->channel);
    if (c->place.size == 1 && c->launcher == LAUNCHER_NONE)
        (void)snprintf(ret, size_bytes, "a single process: no launcher was found");
    else if (c->place.size == 0)
        (void)snprintf(ret, size_bytes, "a rank from %s: %s, the rest by %s",
                       launcher_name(c->launcher), from, where);
    else
        (void)snprintf(ret, size_bytes, "rank %u of %u from %s: %s%s%s", c->place.rank,
                       c->place.size, launcher_name(c->launcher), from,
                       c->place.size == 1 || !where[0] ? ""
                       : c->channel != CHANNEL_NONE    ? ", meeting by "
                                                       : ", meeting at ",
                       /* for the log: may be truncated */
                       c->place.size == 1 ? "" : where);
}

/* More than one process by an incomplete set, and no launcher that completes it. */
static int check_leftover(const struct env_reader *r)
{
    const char *rank = env_look(r, "RANK"), *size = env_look(r, "WORLD_SIZE");

    if (rank && size && !same_number(size, "1"))
        return err_set(
            r->err, -EINVAL,
            "RANK=%.20s and WORLD_SIZE=%.20s are set, but MASTER_ADDR or "
            "MASTER_PORT is not: set both, or unset all of them to run alone",
            rank, size);
    rank = env_look(r, "PMI_RANK");
    size = env_look(r, "PMI_SIZE");
    if (rank && size && !same_number(size, "1"))
        return err_set(r->err, -EINVAL,
                       "PMI_RANK=%.20s and PMI_SIZE=%.20s are set, but PMI_FD is not "
                       "(the connection "
                       "to mpiexec): keep it, or unset all of them to run alone",
                       rank, size);
    return 0;
}

int contract_discover(getenv_fn get,
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
        rc = f ? choose_mpi(&r, &f) : contract_parse(get, arg, &c, err);
    } else {
        f = find_foreign(&r);
        rc = f ? choose_mpi(&r, &f) : check_leftover(&r);
    }
    if (f && rc == 0) {
        from = f->from;
        c.launcher = f->launcher;
        rc = f->read(&r, &c);
        if (rc == 0)
            rc = env_text(&r, "HOROVOD_GLOO_IFACE", "", c.iface, sizeof(c.iface));
        if (rc == 0)
            rc = use_steps_token(&r, &c);
    }
    if (rc)
        return rc;
    *ret = c;
    contract_describe(&c, from, ret_why, why_bytes);
    return 0;
}

uint32_t contract_missed_tasks(const struct contract *c, getenv_fn get, void *arg)
{
    const struct env_reader r = {get, arg, NULL};
    uint32_t n = 0;

    if (c->launcher != LAUNCHER_NONE || c->place.size != 1
        || !is_set(&r, "SLURM_JOB_ID")
        || env_u32(&r, "SLURM_NTASKS", 0, UINT32_MAX, &n) != 0)
        return 0;
    return n > 1 ? n : 0;
}
