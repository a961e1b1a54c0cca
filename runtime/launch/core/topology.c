/* SPDX-License-Identifier: Apache-2.0 */
/* CPUs are sorted by node, package and core; each rank gets a contiguous part.
 *
 *   cores   Every rank gets the same number of whole cores. With at least as many
 *           ranks as nodes, no rank spans two nodes: a rank is placed on its GPU's
 *           node, or on the node where its part starts. Each node is divided among its
 *           ranks, and the smallest share is used for all, because the slowest rank
 *           sets the speed of all. If some node has more ranks than cores because of
 *           its GPUs, GPUs are ignored. With more ranks than cores, ranks share cores.
 *   numa    The whole node.
 *
 * Called by placement.c. */
#include "runtime/launch/core/topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

void cpuset_add(struct cpuset *s, uint32_t cpu)
{
    if (cpu < TOPOLOGY_MAX_CPUS)
        s->w[cpu / 64] |= 1ull << (cpu % 64);
}

bool cpuset_has(const struct cpuset *s, uint32_t cpu)
{
    return cpu < TOPOLOGY_MAX_CPUS && (s->w[cpu / 64] >> (cpu % 64) & 1);
}

uint32_t cpuset_count(const struct cpuset *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ARRAY_LEN(s->w); i++)
        n += (uint32_t)__builtin_popcountll(s->w[i]);
    return n;
}

void cpuset_render(const struct cpuset *s, struct strbuf *out)
{
    const char *separator = "";
    for (uint32_t i = 0; i < TOPOLOGY_MAX_CPUS; i++) {
        uint32_t first = i;
        if (!cpuset_has(s, i))
            continue;
        while (cpuset_has(s, i + 1))
            i++;
        strbuf_printf(out, "%s%u", separator, first);
        if (i > first)
            strbuf_printf(out, "-%u", i);
        separator = ",";
    }
}

int cpuset_parse(const char *text, struct cpuset *ret)
{
    struct cpuset s = {{0}};
    for (const char *p = text; *p && *p != '\n';) {
        char *end;
        unsigned long first, last;
        if (*p < '0' || *p > '9')
            return -EINVAL;
        first = last = strtoul(p, &end, 10);
        if (*end == '-' && end[1] >= '0' && end[1] <= '9')
            last = strtoul(end + 1, &end, 10);
        if (first > last || last >= TOPOLOGY_MAX_CPUS)
            return -EINVAL;
        for (; first <= last; first++)
            cpuset_add(&s, (uint32_t)first);
        if (*end != ',' && *end != '\n' && *end)
            return -EINVAL;
        p = end + (*end == ',');
    }
    *ret = s;
    return 0;
}

static int u32_compare(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

static int cpu_compare_place(const void *a, const void *b)
{
    const struct topology_cpu *x = a, *y = b;
    int c = u32_compare(x->node, y->node);
    c = c ? c : u32_compare(x->package, y->package);
    c = c ? c : u32_compare(x->core, y->core);
    return c ? c : u32_compare(x->cpu, y->cpu);
}

void topology_sort(struct topology *t)
{
    uint32_t key = 0;
    t->n_cores = t->n_nodes = 0;
    if (t->n_cpus)
        qsort(t->cpus, t->n_cpus, sizeof(*t->cpus), cpu_compare_place);
    for (size_t i = 0; i < t->n_cpus; i++) {
        struct topology_cpu *c = &t->cpus[i];
        t->n_nodes += !i || c->node != t->cpus[i - 1].node;
        t->n_cores += !i || c->core != key || c->node != t->cpus[i - 1].node
                      || c->package != t->cpus[i - 1].package;
        key = c->core;
        c->core = (uint32_t)t->n_cores - 1;
    }
}

/* Adds the hardware threads of n cores. */
static void
topology_add_cores(const struct topology *t, size_t first, size_t n, struct cpuset *set)
{
    for (size_t i = 0; i < t->n_cpus; i++)
        if (t->cpus[i].core >= first && t->cpus[i].core < first + n)
            cpuset_add(set, t->cpus[i].cpu);
}

static uint32_t topology_core_node(const struct topology *t, size_t core)
{
    for (size_t i = 0; i < t->n_cpus; i++)
        if (t->cpus[i].core == core)
            return t->cpus[i].node;
    return 0;
}

/* Finds the first core of a node and their number; false: the node has no usable
 * CPU. */
static bool topology_node_cores(const struct topology *t,
                                uint32_t node,
                                size_t *ret_first,
                                size_t *ret_n)
{
    *ret_n = 0;
    for (size_t i = 0; i < t->n_cpus; i++) {
        if (t->cpus[i].node != node)
            continue;
        if (!*ret_n)
            *ret_first = t->cpus[i].core;
        *ret_n = t->cpus[i].core - *ret_first + 1;
    }
    return *ret_n > 0;
}

static uint32_t
topology_rank_node(const struct topology *t, uint32_t i, uint32_t n, bool by_gpu)
{
    size_t first, cores;
    if (by_gpu && i < t->n_gpus && t->gpus[i].node >= 0
        && topology_node_cores(t, (uint32_t)t->gpus[i].node, &first, &cores))
        return (uint32_t)t->gpus[i].node;
    return topology_core_node(t, (size_t)i * t->n_cores / n);
}

/* Divides each node among its ranks. False: a node has more ranks than cores. */
static bool topology_divide_nodes(const struct topology *t,
                                  uint32_t n,
                                  bool by_gpu,
                                  uint32_t *nodes, /* room for n */
                                  struct cpuset *sets)
{
    size_t share = SIZE_MAX;
    for (uint32_t i = 0; i < n; i++)
        nodes[i] = topology_rank_node(t, i, n, by_gpu);
    for (uint32_t i = 0; i < n; i++) {
        size_t first = 0, cores = 0, ranks = 1;                 /* the rank itself */
        (void)topology_node_cores(t, nodes[i], &first, &cores); /* cannot fail */
        for (uint32_t k = 0; k < n; k++)
            ranks += k != i && nodes[k] == nodes[i];
        share = cores / ranks < share ? cores / ranks : share;
    }
    for (uint32_t i = 0; i < n && share; i++) {
        size_t first = 0, cores = 0, before = 0;
        (void)topology_node_cores(t, nodes[i], &first, &cores);
        for (uint32_t k = 0; k < i; k++)
            before += nodes[k] == nodes[i];
        topology_add_cores(t, first + before * share, share, &sets[i]);
    }
    return share > 0;
}

static void topology_bind_cores(const struct topology *t,
                                uint32_t n,
                                uint32_t *nodes,
                                struct binding_plan *p)
{
    size_t cores = t->n_cores ? t->n_cores : 1; /* it has one */
    size_t share = cores / n;
    if (!share) {
        p->per_core = (uint32_t)((n + cores - 1) / cores);
        for (uint32_t i = 0; i < n; i++)
            topology_add_cores(t, (size_t)i * t->n_cores / n, 1, &p->sets[i]);
        return;
    }
    if (n >= t->n_nodes
        && (topology_divide_nodes(t, n, true, nodes, p->sets)
            || topology_divide_nodes(t, n, false, nodes, p->sets)))
        return;
    for (uint32_t i = 0; i < n; i++)
        topology_add_cores(t, (size_t)i * t->n_cores / n, share, &p->sets[i]);
}

int binding_plan(const struct topology *t,
                 enum binding how,
                 uint32_t n,
                 struct binding_plan *ret,
                 struct err *err)
{
    struct binding_plan p = {.per_core = 1};
    AUTOFREE uint32_t *nodes = mem_calloc(n ? n : 1, sizeof(*nodes));
    p.sets = mem_calloc(n ? n : 1, sizeof(*p.sets));
    p.gpu = mem_calloc(n ? n : 1, sizeof(*p.gpu));
    if (!nodes || !p.sets || !p.gpu) {
        binding_plan_release(&p);
        return err_set(err, -ENOMEM, "out of memory to place %u ranks", n);
    }
    for (uint32_t i = 0; i < n; i++)
        p.gpu[i] = i < t->n_gpus ? (int32_t)i : -1;
    switch (t->n_cpus && n ? how : BINDING_NONE) {
    case BINDING_NONE:
        for (uint32_t i = 0; i < n; i++)
            topology_add_cores(t, 0, t->n_cores, &p.sets[i]);
        break;
    case BINDING_CORES:
        topology_bind_cores(t, n, nodes, &p);
        break;
    case BINDING_NUMA:
        for (uint32_t i = 0; i < n; i++) {
            size_t first = 0, cores = 0;
            (void)topology_node_cores(t, topology_rank_node(t, i, n, true), &first,
                                      &cores);
            topology_add_cores(t, first, cores, &p.sets[i]);
        }
        break;
    }
    *ret = p;
    return 0;
}

void binding_plan_release(struct binding_plan *p)
{
    mem_free(p->sets);
    mem_free(p->gpu);
    memset(p, 0, sizeof(*p));
}

uint32_t topology_threads(const struct topology *t, enum binding how, uint32_t n)
{
    double cores = (double)t->n_cores;
    bool is_limited = t->quota_cpus > 0 && t->quota_cpus < cores;
    if (n <= 1 && how == BINDING_NONE && !is_limited)
        return 0;
    double share = (is_limited ? t->quota_cpus : cores) / (n ? n : 1);
    return share < 1 ? 1 : (uint32_t)share;
}

/* Number of equal leading components of two paths. */
static size_t path_shared_depth(const char *a, const char *b)
{
    size_t depth = 0;
    for (size_t i = 0;; i++) {
        bool ends_a = !a[i] || a[i] == '/', ends_b = !b[i] || b[i] == '/';
        if (ends_a && ends_b)
            depth += i > 0;
        if (a[i] != b[i] || !a[i])
            return depth;
    }
}

static bool
cpuset_is_on_node(const struct topology *t, const struct cpuset *cpus, int32_t node)
{
    bool has_cpu = false;
    for (size_t i = 0; i < t->n_cpus; i++)
        if (cpuset_has(cpus, t->cpus[i].cpu)) {
            has_cpu = true;
            if ((int32_t)t->cpus[i].node != node)
                return false;
        }
    return has_cpu;
}

const char *
topology_nic(const struct topology *t, int32_t gpu, const struct cpuset *cpus)
{
    const struct topology_device *near = gpu >= 0 ? &t->gpus[gpu] : NULL;
    const char *best = NULL;
    size_t best_score = 0;
    for (size_t i = 0; i < t->n_nics; i++) {
        const struct topology_device *nic = &t->nics[i];
        if (!nic->is_up)
            continue;
        /* the first component, the root bus, is the same for all */
        size_t depth = near ? path_shared_depth(near->path, nic->path) : 0;
        bool is_same_node =
            nic->node >= 0
            && (near ? near->node == nic->node : cpuset_is_on_node(t, cpus, nic->node));
        size_t score = (depth > 1 ? 4 * depth : 0) + (is_same_node ? 2 : 0)
                       + (!strcmp(nic->name, t->default_nic) ? 1 : 0);
        if (!best || score > best_score) {
            best = nic->name;
            best_score = score;
        }
    }
    return best ? best : *t->default_nic ? t->default_nic : NULL;
}
