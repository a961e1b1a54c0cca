/* SPDX-License-Identifier: Apache-2.0 */
/* Bare srun (without --hvd): a task of a real step.
 *
 *   SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID SLURM_NODEID SLURM_STEP_ID
 * SLURM_JOB_ID SLURM_STEP_NODELIST SLURM_STEP_TASKS_PER_NODE
 *
 * The batch script, salloc's shell and the extern step are steps with reserved numbers
 * and are not ours to run in. Rank 0 is the first task of the first node of the list
 * for every distribution but arbitrary, where only srun knows; heterogeneous steps list
 * one component's nodes only. Both are an error that names srun --hvd. The rendezvous
 * is at rank 0's node, on a port from a hash of job and step. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/foreign.h"

/* Slurm's reserved step numbers begin here: 4294967290 interactive, ...291 batch,
 * ...292 extern. */
#define STEP_MAX 4294967280u

static bool is_present(const struct env_reader *r)
{
    const char *step = env_look(r, "SLURM_STEP_ID");
    uint32_t id;

    return step && parse_u32("SLURM_STEP_ID", step, 0, STEP_MAX, &id, NULL) == 0
           && env_look(r, "SLURM_PROCID") && env_look(r, "SLURM_STEP_NUM_TASKS")
           && env_look(r, "SLURM_JOB_ID");
}

struct step {
    struct hostlist hosts;
    uint32_t node_id;
};

static void step_release(struct step *s)
{
    hostlist_release(&s->hosts);
}

/* Hosts with their number of tasks. */
static int read_hosts(const struct env_reader *r, uint32_t size, struct hostlist *ret)
{
    const char *list = env_look(r, "SLURM_STEP_NODELIST");
    const char *counts = env_look(r, "SLURM_STEP_TASKS_PER_NODE");
    AUTOFREE uint32_t *v = NULL;
    size_t n = 0;

    if (!list || !counts)
        return err_set(r->err, -EINVAL,
                       "%s is unset, although srun sets it for every task",
                       list ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_STEP_NODELIST");
    int rc = hostlist_parse_slurm(list, ret, r->err);
    if (rc) {
        (void)err_prefix(r->err, "SLURM_STEP_NODELIST"); /* rc is returned */
        return rc;
    }
    rc = slurm_counts_parse(counts, HOSTLIST_MAX_HOSTS, &v, &n, r->err);
    if (rc) {
        (void)err_prefix(r->err, "SLURM_STEP_TASKS_PER_NODE"); /* rc is returned */
        return rc;
    }
    if (n != ret->n)
        return err_set(r->err, -EINVAL,
                       "SLURM_STEP_NODELIST=%.100s has %zu nodes, but "
                       "SLURM_STEP_TASKS_PER_NODE=%.100s has %zu counts",
                       list, ret->n, counts, n);
    for (size_t i = 0; i < n; i++)
        ret->v[i].slots = v[i];
    if (hostlist_slots(ret) != size)
        return err_set(r->err, -EINVAL,
                       "SLURM_STEP_TASKS_PER_NODE=%.100s is %llu tasks, but "
                       "SLURM_STEP_NUM_TASKS=%u: a heterogeneous step; use srun --hvd",
                       counts, (unsigned long long)hostlist_slots(ret), size);
    return 0;
}

static int read_place(const struct env_reader *r, struct step *s, struct place *p)
{
    const uint32_t max = WORLD_MAX_RANKS;
    uint32_t rank = 0, size = 1, local = 0;
    int rc = foreign_need(r, "SLURM_PROCID", 0, max - 1, &rank);

    if (rc == 0)
        rc = foreign_need(r, "SLURM_STEP_NUM_TASKS", 1, max, &size);
    if (rc == 0 && rank >= size)
        rc =
            err_set(r->err, -EINVAL,
                    "SLURM_PROCID=%u is not below SLURM_STEP_NUM_TASKS=%u", rank, size);
    if (rc == 0)
        rc = foreign_need(r, "SLURM_LOCALID", 0, max - 1, &local);
    if (rc == 0)
        rc = foreign_need(r, "SLURM_NODEID", 0, HOSTLIST_MAX_HOSTS - 1, &s->node_id);
    if (rc == 0)
        rc = read_hosts(r, size, &s->hosts);
    if (rc == 0 && s->node_id >= s->hosts.n)
        rc =
            err_set(r->err, -EINVAL,
                    "SLURM_NODEID=%u is not below the %zu nodes of SLURM_STEP_NODELIST",
                    s->node_id, s->hosts.n);
    if (rc == 0)
        rc = places_at(&s->hosts, 0, s->node_id, local, p, r->err);
    if (rc == 0)
        p->rank = rank; /* the distribution is Slurm's affair (cyclic, plane) */
    return rc;
}

/* Under --distribution=arbitrary rank 0 may be anywhere. */
static int
check_rank0(const struct env_reader *r, const struct step *s, const struct place *p)
{
    const char *how = env_look(r, "SLURM_DISTRIBUTION");
    bool is_arbitrary = how && strncmp(how, "arbitrary", 9) == 0;

    if (p->size == 1 || s->hosts.n == 1)
        return 0;
    if (!is_arbitrary && (p->rank != 0 || s->node_id == 0))
        return 0;
    return err_set(r->err, -EINVAL,
                   "with --distribution=arbitrary the node of rank 0 cannot be known "
                   "(SLURM_NODEID=%u, SLURM_PROCID=%u): use srun --hvd",
                   s->node_id, p->rank);
}

static int read_slurm(const struct env_reader *r, struct contract *c)
{
    CLEANUP(step_release) struct step s = {.node_id = 0};
    char seed[sizeof(c->weak_seed)];
    int rc = read_place(r, &s, &c->place);

    if (rc == 0)
        rc = check_rank0(r, &s, &c->place);
    if (rc == 0)
        rc = env_u32(r, "SLURM_RESTART_COUNT", 0, UINT32_MAX, &c->generation);
    if (rc)
        return rc;
    (void)snprintf(c->hostname, sizeof(c->hostname), "%s",
                   s.hosts.v[s.node_id].name); /* fits */
    (void)snprintf(seed, sizeof(seed), "slurm/%.40s.%.40s", env_look(r, "SLURM_JOB_ID"),
                   env_look(r, "SLURM_STEP_ID")); /* numbers: fit */
    return foreign_meet(r, c, s.hosts.v[0].name, seed, 0);
}

const struct foreign foreign_slurm = {
    LAUNCHER_SLURM, "SLURM_PROCID, SLURM_STEP_NUM_TASKS", is_present, read_slurm};
