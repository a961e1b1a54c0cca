/* SPDX-License-Identifier: Apache-2.0 */
/* The CPUs, GPUs and NICs of one host, as a snapshot, and who of its ranks goes where.
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
/* "0-3,8" as the kernel writes it; "" when empty. */
void cpuset_render(const struct cpuset *s, struct strbuf *out);
/* Reads that; ends at a newline. -EINVAL without a sentence. */
int cpuset_parse(const char *text, struct cpuset *ret);

struct topology_cpu {
    uint32_t cpu;
    uint32_t core; /* equal for the hardware threads of a core; topology_sort numbers
                      them 0, 1 .. in order of place */
    uint32_t package, node;
};
struct topology_device {
    char name[64];  /* "eth0"; a GPU's is its PCI address, a MIG instance's its UUID */
    char path[192]; /* in the tree of PCI buses: nearer where more of it is the same */
    char uuid[TOPOLOGY_UUID_BYTES]; /* of an NVIDIA GPU: "GPU-.."; "" */
    int32_t node;                   /* -1: not known */
    bool is_up;
};
struct topology {
    struct topology_cpu *cpus; /* that we may use; in order after topology_sort */
    size_t n_cpus, n_cores, n_nodes;
    double quota_cpus; /* a container's CPU limit; 0: none */
    struct topology_device gpus[TOPOLOGY_MAX_DEVICES], nics[TOPOLOGY_MAX_DEVICES];
    size_t n_gpus, n_nics;
    char default_nic[64]; /* of the default route, "": none */
};
/* Orders CPUs by node, package, core and counts. */
void topology_sort(struct topology *t);

enum binding { BINDING_NONE, BINDING_CORES, BINDING_NUMA };
struct binding_plan {
    struct cpuset *sets; /* by local rank; of all CPUs for BINDING_NONE. mem_free */
    int32_t *gpu;        /* by local rank: index of its GPU, -1: none. mem_free */
    uint32_t per_core;   /* most ranks that share one core; 1: none does */
};
/* Places n ranks; the GPU of local rank i is the i-th. Without any CPU sets are empty.
 */
int binding_plan(const struct topology *t,
                 enum binding how,
                 uint32_t n,
                 struct binding_plan *ret,
                 struct err *err);
void binding_plan_release(struct binding_plan *p); /* accepts a zeroed struct */
/* For OMP_NUM_THREADS of n ranks: a rank's share of the host's cores or of the
 * container's CPU limit, at least 1. 0, leave it alone: a rank that has the whole host,
 * as without a launcher, and knows it. */
uint32_t topology_threads(const struct topology *t, enum binding how, uint32_t n);
/* The NIC nearest to a GPU, or to a set of CPUs where gpu is -1: most of the PCI path
 * the same, then the same node, then the default route's. NULL: none. */
const char *
topology_nic(const struct topology *t, int32_t gpu, const struct cpuset *cpus);

#endif
