/* SPDX-License-Identifier: Apache-2.0 */
/* Reads sysfs, not hwloc: the launcher is one static program for every image, and it
 * needs only a few small files that have not changed since Linux 2.6:
 *
 *   devices/system/cpu/cpuN/topology/   package, and which CPUs are one core
 *   devices/system/node/nodeN/cpulist   NUMA
 *   bus/pci/devices/                    class, vendor, numa_node
 *   class/net/                          operstate, type, device
 *   fs/cgroup cpu.max                   limit of the container
 *
 * A GPU counts only if its driver shows it to this container. Called by placement.c. */
#include "runtime/launch/topology_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/visible.h"

#define TEXT_MAX 8192

struct text {
    char p[TEXT_MAX];
};

static bool text_read(struct text *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads a small file; false and "" if it cannot be read. */
static bool text_read(struct text *t, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(path, sizeof(path), fmt, ap);
    va_end(ap);
    t->p[0] = '\0';
    if (len < 0 || (size_t)len >= sizeof(path))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, t->p, sizeof(t->p) - 1);
    fd_close(&fd);
    t->p[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static int cpuset_of_process(struct cpuset *ret, struct err *err)
{
    memset(ret, 0, sizeof(*ret));
    if (syscall(SYS_sched_getaffinity, 0, sizeof(ret->w), ret->w) < 0)
        return err_errno(err, errno, "sched_getaffinity");
    return 0;
}

static void cpu_read(const char *root, struct topology_cpu *c)
{
    struct text t;
    struct cpuset siblings;
    c->core = c->cpu;
    if (text_read(&t, "%s/sys/devices/system/cpu/cpu%u/topology/physical_package_id",
                  root, c->cpu)
        && strtol(t.p, NULL, 10) > 0)
        c->package = (uint32_t)strtol(t.p, NULL, 10);
    if (text_read(&t, "%s/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                  root, c->cpu)
        && cpuset_parse(t.p, &siblings) == 0 && cpuset_has(&siblings, c->cpu))
        for (c->core = 0; !cpuset_has(&siblings, c->core);)
            c->core++;
}

static void topology_read_nodes(const char *root, struct topology *t)
{
    struct text text;
    struct cpuset nodes, cpus;
    if (!text_read(&text, "%s/sys/devices/system/node/online", root)
        || cpuset_parse(text.p, &nodes) < 0)
        return;
    for (uint32_t node = 0; node < TOPOLOGY_MAX_CPUS; node++) {
        if (!cpuset_has(&nodes, node)
            || !text_read(&text, "%s/sys/devices/system/node/node%u/cpulist", root,
                          node)
            || cpuset_parse(text.p, &cpus) < 0)
            continue;
        for (size_t i = 0; i < t->n_cpus; i++)
            if (cpuset_has(&cpus, t->cpus[i].cpu))
                t->cpus[i].node = node;
    }
}

static int topology_read_cpus(const char *root,
                              const struct cpuset *allowed,
                              struct topology *t,
                              struct err *err)
{
    t->cpus = mem_calloc(cpuset_count(allowed) + 1, sizeof(*t->cpus));
    if (!t->cpus)
        return err_set(err, -ENOMEM, "out of memory for %u CPUs",
                       cpuset_count(allowed));
    for (uint32_t i = 0; i < TOPOLOGY_MAX_CPUS; i++)
        if (cpuset_has(allowed, i)) {
            t->cpus[t->n_cpus].cpu = i;
            cpu_read(root, &t->cpus[t->n_cpus++]);
        }
    topology_read_nodes(root, t);
    topology_sort(t);
    return 0;
}

/* Sets the path of a device in the tree of buses, and its node. */
static void device_read(const char *folder, struct topology_device *d)
{
    char *real = realpath(folder, NULL);
    struct text t;
    d->node = -1;
    if (!real)
        return;
    const char *inside = strstr(real, "/sys/devices/");
    (void)snprintf(d->path, sizeof(d->path), "%s",
                   inside ? inside + strlen("/sys/devices/") : real);
    /* a virtio device has no node, but the PCI device above it has one */
    if (text_read(&t, "%s/numa_node", real) || text_read(&t, "%s/../numa_node", real))
        d->node = (int32_t)strtol(t.p, NULL, 10);
    free(real); /* allocated by realpath */
}

/* True if the driver shows this NVIDIA GPU; sets its UUID. */
static bool device_is_our_nvidia(const char *root, const char *address, char *ret_uuid)
{
    struct text t;
    char path[PATH_MAX];
    if (!text_read(&t, "%s/proc/driver/nvidia/gpus/%s/information", root, address))
        return false;
    const char *uuid = strstr(t.p, "GPU-"), *minor = strstr(t.p, "Device Minor:");
    if (uuid)
        (void)snprintf(ret_uuid, TOPOLOGY_UUID_BYTES, "%.*s",
                       (int)strcspn(uuid, " \t\n"), uuid);
    if (!minor)
        return true;
    (void)snprintf(path, sizeof(path), "%s/dev/nvidia%ld", root,
                   strtol(minor + strlen("Device Minor:"), NULL, 10));
    return access(path, F_OK) == 0;
}

static bool device_is_gpu(const char *root, const char *address, char *ret_uuid)
{
    struct text t;
    char kfd[PATH_MAX];
    if (!text_read(&t, "%s/sys/bus/pci/devices/%s/class", root, address))
        return false;
    unsigned long class = strtoul(t.p, NULL, 16) >> 8;
    if (class != 0x0300 && class != 0x0302 && class != 0x0380 && class != 0x1200)
        return false;
    (void)text_read(&t, "%s/sys/bus/pci/devices/%s/vendor", root, address);
    (void)snprintf(kfd, sizeof(kfd), "%s/dev/kfd", root);
    switch (strtoul(t.p, NULL, 16)) {
    case 0x10de:
        return device_is_our_nvidia(root, address, ret_uuid);
    case 0x1002:
        return access(kfd, F_OK) == 0;
    }
    return false;
}

static int dirent_compare_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int dirent_has_no_dot(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void topology_read_gpus(const struct topology_source *s, struct topology *t)
{
    char folder[PATH_MAX];
    struct dirent **v = NULL;
    (void)snprintf(folder, sizeof(folder), "%s/sys/bus/pci/devices", s->root);
    int n = scandir(folder, &v, dirent_has_no_dot, dirent_compare_name);
    for (int i = 0; i < n; i++) {
        const char *name = v[i]->d_name;
        struct topology_device *d = &t->gpus[t->n_gpus];
        if (t->n_gpus < TOPOLOGY_MAX_DEVICES && device_is_gpu(s->root, name, d->uuid)) {
            t->n_gpus++;
            (void)snprintf(d->name, sizeof(d->name), "%.63s", name);
            (void)snprintf(folder, sizeof(folder), "%s/sys/bus/pci/devices/%s", s->root,
                           name);
            device_read(folder, d);
            d->is_up = true;
        }
        free(v[i]); /* allocated by scandir */
    }
    free(v);
    if (s->visible_devices)
        visible_keep(t, s->visible_devices);
}

static void topology_read_nic(const char *root, const char *name, struct topology *t)
{
    char folder[PATH_MAX];
    struct text text;
    struct topology_device *d = &t->nics[t->n_nics];
    (void)snprintf(folder, sizeof(folder), "%s/sys/class/net/%s/device", root, name);
    if (access(folder, F_OK) < 0
        || !text_read(&text, "%s/sys/class/net/%s/type", root, name))
        return;
    long type = strtol(text.p, NULL, 10);
    if (type != 1 && type != 32) /* neither Ethernet nor InfiniBand */
        return;
    memset(d, 0, sizeof(*d));
    (void)snprintf(d->name, sizeof(d->name), "%.63s", name);
    device_read(folder, d);
    (void)text_read(&text, "%s/sys/class/net/%s/operstate", root, name);
    d->is_up = !strncmp(text.p, "up", 2) || !strncmp(text.p, "unknown", 7);
    t->n_nics++;
}

static void topology_read_default_route(const char *root, struct topology *t)
{
    struct text text;
    char name[64], target[40];
    (void)text_read(&text, "%s/proc/net/route", root);
    for (const char *p = text.p; *p; p += strcspn(p, "\n"), p += *p == '\n')
        if (sscanf(p, "%63s %39s", name, target) == 2 && !strcmp(target, "00000000")) {
            (void)snprintf(t->default_nic, sizeof(t->default_nic), "%s", name);
            return;
        }
}

static void topology_read_nics(const char *root, struct topology *t)
{
    char folder[PATH_MAX];
    struct dirent **v = NULL;
    (void)snprintf(folder, sizeof(folder), "%s/sys/class/net", root);
    int n = scandir(folder, &v, dirent_has_no_dot, dirent_compare_name);
    for (int i = 0; i < n; i++) {
        if (t->n_nics < TOPOLOGY_MAX_DEVICES)
            topology_read_nic(root, v[i]->d_name, t);
        free(v[i]); /* scandir's */
    }
    free(v);
    topology_read_default_route(root, t);
}

static void topology_take_quota(struct topology *t, double quota, double period)
{
    double cpus = quota > 0 && period > 0 ? quota / period : 0;
    if (cpus > 0 && (t->quota_cpus <= 0 || cpus < t->quota_cpus))
        t->quota_cpus = cpus;
}

/* cgroup v2: our group and all above it; v1: the group that the container sees as its
 * own. */
static void topology_read_quota(const char *root, struct topology *t)
{
    struct text text, own;
    long quota, period;
    (void)text_read(&own, "%s/proc/self/cgroup", root);
    const char *path = strstr(own.p, "0::/");
    path = path ? path + 3 : "";
    for (size_t len = strcspn(path, "\n");;) {
        if (text_read(&text, "%s/sys/fs/cgroup%.*s/cpu.max", root, (int)len, path)
            && sscanf(text.p, "%ld %ld", &quota, &period) == 2)
            topology_take_quota(t, (double)quota, (double)period);
        if (!len)
            break;
        while (len && path[--len] != '/')
            continue;
    }
    if (text_read(&text, "%s/sys/fs/cgroup/cpu/cpu.cfs_quota_us", root)) {
        quota = strtol(text.p, NULL, 10);
        (void)text_read(&text, "%s/sys/fs/cgroup/cpu/cpu.cfs_period_us", root);
        topology_take_quota(t, (double)quota, (double)strtol(text.p, NULL, 10));
    }
}

int topology_read(const struct topology_source *s,
                  const struct cpuset *allowed,
                  struct topology *ret,
                  struct err *err)
{
    struct cpuset own;
    int rc = allowed ? 0 : cpuset_of_process(&own, err);
    memset(ret, 0, sizeof(*ret));
    if (rc < 0
        || (rc = topology_read_cpus(s->root, allowed ? allowed : &own, ret, err)) < 0)
        return rc;
    topology_read_gpus(s, ret);
    topology_read_nics(s->root, ret);
    topology_read_quota(s->root, ret);
    return 0;
}

void topology_release(struct topology *t)
{
    mem_free(t->cpus);
    memset(t, 0, sizeof(*t));
}
