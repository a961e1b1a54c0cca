/* SPDX-License-Identifier: Apache-2.0 */
/* How many nodes, tasks, processors, GPUs, how much memory. A worker pod becomes a node:
 * Slurm cannot place two groups of tasks with a memory limit each on one node. */
#include "spank_plugin/submit/core/submit.h"

#include <stdio.h>

#include "operator/core/quantity.h"

#define MIB      (UINT64_C(1) << 20)
#define CPUS_MAX 65535
#define GPUS_MAX 1024

/* False: absent, or a problem was added. */
static bool read_amount(struct submit *s,
                        const char *side,
                        const char *resource,
                        struct quantity *ret)
{
    const struct node *n =
        node_get(node_get(node_get(s->container, "resources"), side), resource);
    struct err err = ERR_INIT;
    char text[48] = "";

    if (!n)
        return false;
    if (n->type == NODE_INT)
        (void)snprintf(text, sizeof(text), "%lld", (long long)n->u.i);
    else if (n->type == NODE_REAL)
        (void)snprintf(text, sizeof(text), "%.9f", n->u.d);
    if (quantity_parse(n->type == NODE_STRING ? n->u.s : text, ret, &err) == 0)
        return true;
    strbuf_printf(s->problems, SUBMIT_FIRST ".resources.%s.%s: %s\n", side, resource,
                  err.text);
    return false;
}

/* That of one side, else of the other. In units, rounded up. */
static uint64_t
read_either(struct submit *s, const char *side, const char *other, const char *resource)
{
    struct quantity q = {0};

    if (!read_amount(s, side, resource, &q) && !read_amount(s, other, resource, &q))
        return 0;
    return q.units + (q.nano > 0);
}

static uint64_t size_round_up(uint64_t n, uint64_t by)
{
    return n / by + (n % by > 0);
}

void submit_read_size(struct submit *s, struct submit_size *ret)
{
    static const char *const gpus[] = {"nvidia.com/gpu", "amd.com/gpu"};
    struct submit_size z = {.tasks_per_node = s->job->slots};

    for (int r = 0; r < ROLE_COUNT; r++)
        z.nodes += s->job->role[r].n;
    if (s->job->framework == FRAMEWORK_TENSORFLOW)
        z.tasks_per_node = 1;
    z.cpus_per_task =
        size_round_up(read_either(s, "requests", "limits", "cpu"), z.tasks_per_node);
    z.memory_mib = size_round_up(read_either(s, "limits", "requests", "memory"), MIB);
    for (size_t i = 0; i < sizeof(gpus) / sizeof(gpus[0]); i++)
        z.gpus += read_either(s, "limits", "requests", gpus[i]);
    if (z.cpus_per_task > CPUS_MAX)
        strbuf_printf(s->problems,
                      SUBMIT_FIRST ".resources: requests more than %d CPUs for each "
                                   "rank\n",
                      CPUS_MAX);
    if (z.gpus > GPUS_MAX)
        strbuf_printf(s->problems,
                      SUBMIT_FIRST ".resources: requests more than %d GPUs\n",
                      GPUS_MAX);
    *ret = z;
}
