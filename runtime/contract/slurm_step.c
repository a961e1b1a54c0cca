/* SPDX-License-Identifier: Apache-2.0 */
/* From Slurm's variables to a place:
 *
 *   SLURM_PROCID, SLURM_STEP_NUM_TASKS          rank, size
 *   SLURM_LOCALID, tasks on node SLURM_NODEID   local_rank, local_size
 *   SLURM_STEP_NODELIST with                    hosts; cross_rank and cross_size
 *     SLURM_STEP_TASKS_PER_NODE                 count those with this local rank
 *
 * Seen on Slurm 22.05: in a heterogeneous step all of these span the components
 * (SPANK's items do not). */
#include "runtime/contract/slurm_step.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

void slurm_step_release(struct slurm_step *s)
{
    hostlist_release(&s->hosts);
}

static int need_text(const struct env_reader *r, const char *name, const char **ret)
{
    *ret = env_look(r, name);
    if (!*ret)
        return err_set(r->err, -EINVAL,
                       "%s is unset, although srun sets it for every task", name);
    return 0;
}

static int step_read_required(const struct env_reader *r,
                              const char *name,
                              uint32_t max,
                              uint32_t *ret)
{
    return env_need_u32(r, name, 0, max, ret, "although srun sets it for every task");
}

int slurm_step_hosts(const struct env_reader *r, struct hostlist *ret)
{
    const char *list = NULL, *counts = NULL;
    AUTOFREE uint32_t *v = NULL;
    size_t n = 0;
    int rc = need_text(r, "SLURM_STEP_NODELIST", &list);

    if (rc == 0)
        rc = need_text(r, "SLURM_STEP_TASKS_PER_NODE", &counts);
    if (rc)
        return rc;
    rc = hostlist_parse_slurm(list, ret, r->err);
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
    return 0;
}

int slurm_step_read(const struct env_reader *r, struct slurm_step *ret)
{
    uint32_t rank = 0, size = 1, local = 0, node = 0;
    int rc = step_read_required(r, "SLURM_PROCID", WORLD_MAX_RANKS - 1, &rank);

    if (rc == 0)
        rc = step_read_required(r, "SLURM_STEP_NUM_TASKS", WORLD_MAX_RANKS, &size);
    if (rc == 0 && rank >= size)
        rc =
            err_set(r->err, -EINVAL,
                    "SLURM_PROCID=%u is not below SLURM_STEP_NUM_TASKS=%u", rank, size);
    if (rc == 0)
        rc = step_read_required(r, "SLURM_LOCALID", WORLD_MAX_RANKS - 1, &local);
    if (rc == 0)
        rc = step_read_required(r, "SLURM_NODEID", HOSTLIST_MAX_HOSTS - 1, &node);
    if (rc == 0)
        rc = slurm_step_hosts(r, &ret->hosts);
    if (rc)
        return rc;
    if (node >= ret->hosts.n)
        return err_set(
            r->err, -EINVAL,
            "SLURM_NODEID=%u is not below the %zu nodes of SLURM_STEP_NODELIST", node,
            ret->hosts.n);
    if (hostlist_slots(&ret->hosts) != size)
        return err_set(r->err, -EINVAL,
                       "SLURM_STEP_TASKS_PER_NODE=%.100s is %llu tasks, but "
                       "SLURM_STEP_NUM_TASKS=%u",
                       env_look(r, "SLURM_STEP_TASKS_PER_NODE"),
                       (unsigned long long)hostlist_slots(&ret->hosts), size);
    rc = places_at(&ret->hosts, 0, node, local, &ret->place, r->err);
    if (rc == 0)
        ret->place.rank = rank;
    return rc;
}

bool slurm_step_owns(const char *variable)
{
    static const char *const prefixes[] = {"SLURM_",  "_SLURM",  "SPANK_",  "SRUN_",
                                           "SBATCH_", "SALLOC_", "SQUEUE_", "PMI"};

    if (strncmp(variable, "SLURM_CONF=", 11) == 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}
