/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshot of the host -> binding plan, for local_ranks.c and the table of --verbose.
 *
 * OMP_NUM_THREADS: by default each rank would start as many threads as the host has
 * cores. torchrun sets 1, which leaves cores idle. Here each rank gets its share. A
 * single rank that is not bound has the whole host, as without a launcher; the
 * variable is not set. Called by local_job.c, agent.c and remote_agent.c. */
#include "runtime/launch/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/topology_read.h"

#define CELL_BYTES 160
#define N_COLUMNS  5

int placement_make(const char *how, uint32_t n, struct placement *ret, struct err *err)
{
    struct topology_source source = {.root = "",
                                     .visible_devices = getenv("CUDA_VISIBLE_DEVICES")};
    memset(ret, 0, sizeof(*ret));
    ret->how = !how || !strcmp(how, "none") ? BINDING_NONE
               : !strcmp(how, "cores")      ? BINDING_CORES
                                            : BINDING_NUMA;
    int rc = topology_read(&source, NULL, &ret->topology, err);
    if (rc < 0 || (rc = binding_plan(&ret->topology, ret->how, n, &ret->plan, err)) < 0)
        return rc;
    uint32_t threads = topology_threads(&ret->topology, ret->how, n);
    if (threads)
        (void)snprintf(ret->threads, sizeof(ret->threads), "%u", threads);
    if (ret->plan.per_core > 1)
        log_warn("more ranks than cores, so cores are shared",
                 "ranks=%u cores=%zu ranks_of_a_core=%u", n, ret->topology.n_cores,
                 ret->plan.per_core);
    return 0;
}

void placement_release(struct placement *p)
{
    topology_release(&p->topology);
    binding_plan_release(&p->plan);
}

const struct cpuset *placement_set(const struct placement *p, uint32_t i)
{
    return p->how == BINDING_NONE ? NULL : &p->plan.sets[i];
}

struct row {
    char cell[N_COLUMNS][CELL_BYTES];
};

static void row_fill(const struct placement *p,
                     const struct contract *c,
                     uint32_t i,
                     const char *nics,
                     struct row *r)
{
    struct strbuf cpus;
    int32_t gpu = p->plan.gpu[i];
    const char *nic = nics ? nics : topology_nic(&p->topology, gpu, &p->plan.sets[i]);
    strbuf_init(&cpus, CELL_BYTES - 16);
    cpuset_render(&p->plan.sets[i], &cpus);
    (void)snprintf(r->cell[0], CELL_BYTES, "%u", c->place.rank);
    (void)snprintf(r->cell[1], CELL_BYTES, "%.100s", c->hostname);
    (void)snprintf(r->cell[2], CELL_BYTES, "%s%s%s",
                   p->how == BINDING_NONE ? "any of " : "", strbuf_str(&cpus),
                   strbuf_status(&cpus) < 0 ? "..." : "");
    (void)snprintf(r->cell[3], CELL_BYTES, "-");
    if (gpu >= 0)
        (void)snprintf(r->cell[3], CELL_BYTES, "%d %s", gpu,
                       p->topology.gpus[gpu].name);
    (void)snprintf(r->cell[4], CELL_BYTES, "%.100s", nic ? nic : "-");
    strbuf_release(&cpus);
}

void placement_table(const struct placement *p,
                     const struct contract *ranks,
                     uint32_t n,
                     const char *nics,
                     struct strbuf *out)
{
    static const struct row title = {{"rank", "host", "cores", "GPU", "NIC"}};
    size_t width[N_COLUMNS] = {0};
    for (int is_print = 0; is_print < 2; is_print++)
        for (uint32_t i = 0; i <= n; i++) {
            struct row r = title;
            if (i)
                row_fill(p, &ranks[i - 1], i - 1, nics, &r);
            for (size_t k = 0; k < N_COLUMNS; k++) {
                size_t len = strlen(r.cell[k]);
                bool is_last = k == N_COLUMNS - 1;
                width[k] = len > width[k] ? len : width[k];
                if (is_print)
                    strbuf_printf(out, "%-*s%s", is_last ? 0 : (int)width[k], r.cell[k],
                                  is_last ? "\n" : "  ");
            }
        }
}
