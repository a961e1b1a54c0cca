/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot of the CPUs, GPUs and NICs of one host, and the placement of its ranks.
 * Pure; topology_read.h takes the snapshot. */
#ifndef RUNTIME_LAUNCH_CORE_TOPOLOGY_H
#define RUNTIME_LAUNCH_CORE_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define TOPOLOGY_MAX_CPUS    8192
#define TOPOLOGY_MAX_DEVICES 64
#define TOPOLOGY_UUID_BYTES  48

struct cpuset { /* the layout of the kernel's mask */
    uint64_t w[TOPOLOGY_MAX_CPUS / 64];
};
void cpuset_add(struct cpuset *s, uint32_t cpu);
bool cpuset_has(const struct cpuset *s, uint32_t cpu);
uint32_t cpuset_count(const struct cpuset *s);
/* Appends "0-3,8" as the kernel writes it; nothing if empty. */
void cpuset_render(const struct cpuset *s, struct strbuf *out);
/* Parses that format up to a newline. -EINVAL. */
int cpuset_parse(const char *text, struct cpuset *ret);

struct topology_cpu {
    uint32_t cpu;
    /* equal for the hardware threads of a core; topology_sort renumbers them 0, 1 .. */
    uint32_t core;
    uint32_t package, node;
};
struct topology_device {
    char name[64];  /* "eth0"; for a GPU its PCI address, for a MIG instance its UUID */
    char path[192]; /* in the tree of PCI buses: a longer common part is nearer */
    char uuid[TOPOLOGY_UUID_BYTES]; /* of an NVIDIA GPU: "GPU-.."; otherwise "" */
    int32_t node;                   /* -1: unknown */
    bool is_up;
};
struct topology {
    struct topology_cpu *cpus; /* that we may use; sorted by topology_sort */
    size_t n_cpus, n_cores, n_nodes;
    double quota_cpus; /* a container's CPU limit; 0: none */
    struct topology_device gpus[TOPOLOGY_MAX_DEVICES], nics[TOPOLOGY_MAX_DEVICES];
    size_t n_gpus, n_nics;
    char default_nic[64]; /* of the default route; "": none */
};
/* Sorts the CPUs by node, package and core; counts cores and nodes. */
void topology_sort(struct topology *t);

enum binding { BINDING_NONE, BINDING_CORES, BINDING_NUMA };
struct binding_plan {
    struct cpuset *sets; /* by local rank; all CPUs for BINDING_NONE */
    int32_t *gpu;        /* by local rank: index of its GPU; -1: none */
    uint32_t per_core;   /* largest number of ranks on one core */
};
/* Places n ranks; local rank i gets the i-th GPU. Without CPUs the sets are empty. */
int binding_plan(const struct topology *t,
                 enum binding how,
                 uint32_t n,
                 struct binding_plan *ret,
                 struct err *err);
void binding_plan_release(struct binding_plan *p); /* accepts a zeroed struct */
/* The value of OMP_NUM_THREADS for n ranks: a rank's share of the host's cores or of
 * the container's CPU limit, at least 1. 0: do not set it, because a single rank has
 * the whole host. */
uint32_t topology_threads(const struct topology *t, enum binding how, uint32_t n);
/* The NIC nearest to a GPU, or to a set of CPUs if gpu is -1: the longest common PCI
 * path, then the same node, then that of the default route. NULL: none. */
const char *
topology_nic(const struct topology *t, int32_t gpu, const struct cpuset *cpus);

#endif
