/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c on machines that exist: CPU numbers, nodes and GPUs as their kernels and
 * drivers gave them. topology_read.c on trees of files. */
#include <sys/stat.h>

#include "runtime/launch/topology_read.h"
#include "tests/unit/launch_fixture.h"

#define MAX_RANKS 16

static void
topology_add(struct topology *t, uint32_t node, uint32_t package, const char *threads)
{
    struct cpuset set;
    uint32_t core = UINT32_MAX;
    assert_int_equal(cpuset_parse(threads, &set), 0);
    for (uint32_t i = 0; i < TOPOLOGY_MAX_CPUS; i++)
        if (cpuset_has(&set, i)) {
            core = core == UINT32_MAX ? i : core; /* as sysfs: its first thread */
            t->cpus[t->n_cpus++] = (struct topology_cpu){i, core, package, node};
        }
}

static void topology_begin(struct topology *t)
{
    memset(t, 0, sizeof(*t));
    t->cpus = mem_calloc(512, sizeof(*t->cpus));
    assert_non_null(t->cpus);
}

static void add_gpu(struct topology *t, int32_t node, const char *path)
{
    struct topology_device *d = &t->gpus[t->n_gpus++];
    (void)snprintf(d->name, sizeof(d->name), "gpu%zu", t->n_gpus - 1);
    (void)snprintf(d->path, sizeof(d->path), "%s", path);
    d->node = node;
    d->is_up = true;
}

static void
add_nic(struct topology *t, const char *name, int32_t node, const char *path)
{
    struct topology_device *d = &t->nics[t->n_nics++];
    (void)snprintf(d->name, sizeof(d->name), "%s", name);
    (void)snprintf(d->path, sizeof(d->path), "%s", path);
    d->node = node;
    d->is_up = true;
}

/* Four Xeons of two cores and two threads, one node; the kernel numbers packages first,
 * then cores, then threads. */
static void old_xeon(struct topology *t)
{
    char threads[16];
    topology_begin(t);
    for (uint32_t i = 0; i < 8; i++) {
        (void)snprintf(threads, sizeof(threads), "%u,%u", i, i + 8);
        topology_add(t, 0, i % 4, threads);
    }
    topology_sort(t);
}

/* PowerNV 8335-GTW, four threads a core, nodes 0 and 8, the part that a cgroup leaves.
 */
static void topology_power9(struct topology *t)
{
    char threads[16];
    topology_begin(t);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t first = 4 * i + (i < 4 ? 0 : 72);
        (void)snprintf(threads, sizeof(threads), "%u-%u", first, first + 3);
        topology_add(t, i < 4 ? 0 : 8, i < 4 ? 0 : 8, threads);
    }
    topology_sort(t);
}

/* DGX A100: two EPYC 7742 in eight nodes; GPU nodes as in nvidia-smi topo -m. */
static void dgx_a100(struct topology *t)
{
    static const int32_t nodes[] = {3, 3, 1, 1, 7, 7, 5, 5};
    char threads[16], path[64];
    topology_begin(t);
    for (uint32_t i = 0; i < 128; i++) {
        (void)snprintf(threads, sizeof(threads), "%u,%u", i, i + 128);
        topology_add(t, i / 16, i / 64, threads);
    }
    for (size_t i = 0; i < 8; i++) {
        (void)snprintf(path, sizeof(path), "pci%zu/bridge/gpu%zu", i / 2, i);
        add_gpu(t, nodes[i], path);
        char name[8];
        (void)snprintf(name, sizeof(name), "ib%zu", i);
        (void)snprintf(path, sizeof(path), "pci%zu/bridge/ib%zu", i / 2, i);
        if (i % 2 == 0)
            add_nic(t, name, nodes[i], path);
    }
    topology_sort(t);
}

/* A cloud machine with one package and one thread a core. */
static void topology_flat(struct topology *t, uint32_t n)
{
    char threads[16];
    topology_begin(t);
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(threads, sizeof(threads), "%u", i);
        topology_add(t, 0, 0, threads);
    }
    topology_sort(t);
}

static void plan_expect(struct topology *t,
                        enum binding how,
                        uint32_t n,
                        uint32_t per_core,
                        const char *const *wanted)
{
    struct err err = ERR_INIT;
    CLEANUP(binding_plan_release) struct binding_plan p;
    assert_int_equal(binding_plan(t, how, n, &p, &err), 0);
    assert_int_equal(p.per_core, per_core);
    for (uint32_t i = 0; i < n; i++) {
        CLEANUP(strbuf_release) struct strbuf text;
        strbuf_init(&text, 4096);
        cpuset_render(&p.sets[i], &text);
        if (strcmp(strbuf_str(&text), wanted[i]) != 0)
            fail_msg("rank %u of %u: %s, wanted %s", i, n, strbuf_str(&text),
                     wanted[i]);
    }
}
#define EXPECT(t, how, n, per_core, ...)                                               \
    plan_expect(t, how, n, per_core, (const char *const[]){__VA_ARGS__})

UNIT_TEST(cores_are_divided_evenly_and_whole)
{
    CLEANUP(topology_release) struct topology t;
    old_xeon(&t);
    assert_int_equal(t.n_cores, 8);
    assert_int_equal(t.n_nodes, 1);
    EXPECT(&t, BINDING_CORES, 1, 1, "0-15");
    EXPECT(&t, BINDING_CORES, 4, 1, "0,4,8,12", "1,5,9,13", "2,6,10,14", "3,7,11,15");
    EXPECT(&t, BINDING_CORES, 3, 1, "0,4,8,12", "1,5,9,13", "2,6,10,14");
    EXPECT(&t, BINDING_CORES, 8, 1, "0,8", "4,12", "1,9", "5,13", "2,10", "6,14",
           "3,11", "7,15");
    EXPECT(&t, BINDING_NUMA, 2, 1, "0-15", "0-15");
    EXPECT(&t, BINDING_NONE, 2, 1, "0-15", "0-15");
}

UNIT_TEST(more_ranks_than_cores_share_them)
{
    CLEANUP(topology_release) struct topology t;
    old_xeon(&t);
    EXPECT(&t, BINDING_CORES, 12, 2, "0,8", "0,8", "4,12", "1,9", "1,9", "5,13", "2,10",
           "2,10", "6,14", "3,11", "3,11", "7,15");
    topology_release(&t);
    topology_flat(&t, 1);
    EXPECT(&t, BINDING_CORES, 3, 3, "0", "0", "0");
    EXPECT(&t, BINDING_CORES, 0, 1, ""); /* no rank on this host */
}

UNIT_TEST(no_rank_spans_two_nodes_without_need)
{
    CLEANUP(topology_release) struct topology t;
    topology_power9(&t);
    assert_int_equal(t.n_nodes, 2);
    EXPECT(&t, BINDING_CORES, 1, 1, "0-15,88-103");
    EXPECT(&t, BINDING_CORES, 2, 1, "0-15", "88-103");
    EXPECT(&t, BINDING_CORES, 3, 1, "0-7", "8-15", "88-95"); /* equal, none split */
    EXPECT(&t, BINDING_CORES, 8, 1, "0-3", "4-7", "8-11", "12-15", "88-91", "92-95",
           "96-99", "100-103");
    EXPECT(&t, BINDING_NUMA, 1, 1, "0-15");
    EXPECT(&t, BINDING_NUMA, 3, 1, "0-15", "0-15", "88-103");
}

UNIT_TEST(ranks_are_near_their_gpus)
{
    CLEANUP(topology_release) struct topology t;
    dgx_a100(&t);
    assert_int_equal(t.n_nodes, 8);
    EXPECT(&t, BINDING_CORES, 8, 1, "48-55,176-183", "56-63,184-191", "16-23,144-151",
           "24-31,152-159", "112-119,240-247", "120-127,248-255", "80-87,208-215",
           "88-95,216-223");
    EXPECT(&t, BINDING_NUMA, 8, 1, "48-63,176-191", "48-63,176-191", "16-31,144-159",
           "16-31,144-159", "112-127,240-255", "112-127,240-255", "80-95,208-223",
           "80-95,208-223");
}

UNIT_TEST(gpus_that_crowd_do_not_count)
{
    CLEANUP(topology_release) struct topology t;
    topology_power9(&t);
    for (int i = 0; i < 6; i++)
        add_gpu(&t, 8, ""); /* six ranks for the four cores of node 8 */
    EXPECT(&t, BINDING_CORES, 6, 1, "0-3", "4-7", "8-11", "88-91", "92-95", "96-99");
    t.n_gpus = 4;
    EXPECT(&t, BINDING_CORES, 4, 1, "88-91", "92-95", "96-99", "100-103");
    t.gpus[0].node = 5;  /* a node that has none of our CPUs */
    t.gpus[1].node = -1; /* not known */
    EXPECT(&t, BINDING_CORES, 4, 1, "0-7", "8-15", "88-95", "96-103");
}

UNIT_TEST(a_host_without_known_cpus_binds_nothing)
{
    CLEANUP(topology_release) struct topology t;
    topology_begin(&t);
    topology_sort(&t);
    EXPECT(&t, BINDING_CORES, 2, 1, "", "");
    EXPECT(&t, BINDING_NUMA, 1, 1, "");
    assert_int_equal(topology_threads(&t, BINDING_NONE, 2), 1);
}

UNIT_TEST(threads_are_a_share_of_the_cores)
{
    static const struct {
        double quota;
        enum binding how;
        uint32_t n, threads;
    } table[] = {{0, BINDING_NONE, 1, 0},   {0, BINDING_CORES, 1, 128},
                 {0, BINDING_NONE, 8, 16},  {0, BINDING_NONE, 3, 42},
                 {0, BINDING_NONE, 200, 1}, {8, BINDING_NONE, 1, 8},
                 {8, BINDING_NONE, 2, 4},   {8, BINDING_NONE, 3, 2},
                 {0.5, BINDING_NONE, 1, 1}, {2.5, BINDING_NUMA, 1, 2},
                 {500, BINDING_NONE, 1, 0}, {500, BINDING_NONE, 2, 64},
                 {0, BINDING_NONE, 0, 0}};
    CLEANUP(topology_release) struct topology t;
    dgx_a100(&t);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        t.quota_cpus = table[i].quota;
        assert_int_equal(topology_threads(&t, table[i].how, table[i].n),
                         table[i].threads);
    }
}

UNIT_TEST(the_nearest_nic_is_found)
{
    CLEANUP(topology_release) struct topology t;
    struct cpuset node_5, both;
    dgx_a100(&t);
    assert_int_equal(cpuset_parse("80-95", &node_5), 0);
    assert_int_equal(cpuset_parse("0,127", &both), 0);
    (void)snprintf(t.default_nic, sizeof(t.default_nic), "ib2");
    assert_string_equal(topology_nic(&t, 0, &both), "ib0"); /* the same bridge */
    assert_string_equal(topology_nic(&t, 7, &both), "ib6");
    assert_string_equal(topology_nic(&t, -1, &node_5), "ib6"); /* the same node */
    assert_string_equal(topology_nic(&t, -1, &both), "ib2");   /* the default route */
    t.nics[0].is_up = false;
    assert_string_equal(topology_nic(&t, 0, &both), "ib2");
    t.n_nics = 0;
    assert_string_equal(topology_nic(&t, 0, &both), "ib2");
    t.default_nic[0] = '\0';
    assert_null(topology_nic(&t, 0, &both));
}

UNIT_TEST(cpu_lists_are_read_and_written)
{
    static const struct {
        const char *text, *written;
    } good[] = {{"0-3,8\n", "0-3,8"}, {"0,1", "0-1"},     {"", ""},
                {"\n", ""},           {"63-65", "63-65"}, {"8190,8191", "8190-8191"},
                {"2,1,0,1", "0-2"},   {"0-0", "0"}};
    static const char *const bad[] = {
        "x", "1-", "-1", "3-1", "1,,2", "8192", "1 2", ",1", "99999999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        struct cpuset s;
        CLEANUP(strbuf_release) struct strbuf text;
        strbuf_init(&text, 4096);
        assert_int_equal(cpuset_parse(good[i].text, &s), 0);
        cpuset_render(&s, &text);
        assert_string_equal(strbuf_str(&text), good[i].written);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct cpuset s;
        if (cpuset_parse(bad[i], &s) != -EINVAL)
            fail_msg("\"%s\" is taken", bad[i]);
    }
}

UNIT_TEST(memory_that_runs_out_is_an_error)
{
    CLEANUP(topology_release) struct topology t;
    dgx_a100(&t);
    for (long n = 0; n < 3; n++) {
        struct err err = ERR_INIT;
        struct binding_plan p;
        mem_fail_after(n);
        assert_int_equal(binding_plan(&t, BINDING_CORES, 8, &p, &err), -ENOMEM);
        mem_fail_after(-1);
    }
}

/* --- a tree of files --- */

static void path_of(char *ret, size_t size, const char *root, const char *path)
{
    int n = snprintf(ret, size, "%s/%s", root, path);
    assert_true(n > 0 && (size_t)n < size);
    for (char *p = ret + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(ret, 0755); /* may be there */
        *p = '/';
    }
}

static void file_put(const char *root, const char *path, const char *text)
{
    char full[512];
    path_of(full, sizeof(full), root, path);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void put_link(const char *root, const char *path, const char *target)
{
    char full[512];
    path_of(full, sizeof(full), root, path);
    assert_int_equal(symlink(target, full), 0);
}

static void put_gpu(const char *root, const char *address, const char *node, int minor)
{
    char path[256], text[256];
    (void)snprintf(path, sizeof(path), "sys/devices/pci0000:80/%s/numa_node", address);
    file_put(root, path, node);
    (void)snprintf(path, sizeof(path), "sys/devices/pci0000:80/%s/class", address);
    file_put(root, path, "0x030200\n");
    (void)snprintf(path, sizeof(path), "sys/devices/pci0000:80/%s/vendor", address);
    file_put(root, path, "0x10de\n");
    (void)snprintf(path, sizeof(path), "sys/bus/pci/devices/%s", address);
    (void)snprintf(text, sizeof(text), "../../../devices/pci0000:80/%s", address);
    put_link(root, path, text);
    if (minor < 0)
        return; /* the container has it not */
    (void)snprintf(path, sizeof(path), "proc/driver/nvidia/gpus/%s/information",
                   address);
    (void)snprintf(
        text, sizeof(text),
        "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-%d234-abcd\nDevice Minor: \t %d\n",
        minor, minor);
    file_put(root, path, text);
}

static void make_tree(const char *root)
{
    char path[128], text[16];
    for (int i = 0; i < 8; i++) {
        (void)snprintf(path, sizeof(path),
                       "sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        file_put(root, path, i % 4 < 2 ? "0\n" : "1\n");
        (void)snprintf(path, sizeof(path),
                       "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        (void)snprintf(text, sizeof(text), "%d,%d\n", i % 4, i % 4 + 4);
        file_put(root, path, text);
    }
    file_put(root, "sys/devices/system/node/online", "0-1\n");
    file_put(root, "sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
    file_put(root, "sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
    put_gpu(root, "0000:81:00.0", "1\n", 0);
    put_gpu(root, "0000:82:00.0", "0\n", 1);
    put_gpu(root, "0000:83:00.0", "0\n", 2); /* its device is not here */
    put_gpu(root, "0000:84:00.0", "0\n", -1);
    file_put(root, "dev/nvidia0", "");
    file_put(root, "dev/nvidia1", "");
    file_put(root, "sys/devices/pci0000:00/0000:00:03.0/numa_node", "1\n");
    file_put(root, "sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0/type", "1\n");
    file_put(root, "sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0/operstate",
             "up\n");
    put_link(root, "sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth0/device",
             "../..");
    put_link(root, "sys/class/net/eth0",
             "../../devices/pci0000:00/0000:00:03.0/virtio0/net/eth0");
    file_put(root, "sys/devices/virtual/net/lo/type", "772\n");
    put_link(root, "sys/class/net/lo", "../../devices/virtual/net/lo");
    file_put(
        root, "proc/net/route",
        "Iface\tDestination\tGateway\neth1\t0000000A\t00000000\nbond0\t00000000\t010000"
        "0A\n");
    file_put(root, "proc/self/cgroup", "0::/pods/one\n");
    file_put(root, "sys/fs/cgroup/pods/one/cpu.max", "max 100000\n");
    file_put(root, "sys/fs/cgroup/pods/cpu.max", "300000 100000\n");
}

UNIT_TEST(a_host_is_read_from_its_files)
{
    char root[] = "/tmp/launch-topology-XXXXXX", command[64];
    struct err err = ERR_INIT;
    struct topology t;
    struct cpuset allowed;
    struct topology_source s = {.root = root};
    assert_non_null(mkdtemp(root));
    make_tree(root);
    assert_int_equal(cpuset_parse("0,2-7", &allowed), 0);
    assert_int_equal(topology_read(&s, &allowed, &t, &err), 0);
    assert_int_equal(t.n_cpus, 7);
    assert_int_equal(t.n_cores, 4);
    assert_int_equal(t.n_nodes, 2);
    EXPECT(&t, BINDING_CORES, 2, 1, "2-3,6-7", "0,4-5"); /* GPU 0 is on node 1 */
    assert_int_equal(t.n_gpus, 2);
    assert_string_equal(t.gpus[0].name, "0000:81:00.0");
    assert_string_equal(t.gpus[0].path, "pci0000:80/0000:81:00.0");
    assert_int_equal(t.gpus[0].node, 1);
    assert_int_equal(t.gpus[1].node, 0);
    assert_int_equal(t.n_nics, 1);
    assert_string_equal(t.nics[0].name, "eth0");
    assert_string_equal(t.nics[0].path, "pci0000:00/0000:00:03.0/virtio0");
    assert_int_equal(t.nics[0].node, 1); /* of the PCI device above virtio */
    assert_true(t.nics[0].is_up);
    assert_string_equal(t.default_nic, "bond0");
    assert_true(t.quota_cpus > 2.99 && t.quota_cpus < 3.01);
    topology_release(&t);
    static const struct {
        const char *visible;
        size_t n;
        const char *first;
    } visible[] = {{"1,0", 2, "0000:82:00.0"},
                   {"1", 1, "0000:82:00.0"},
                   {"", 0, ""},
                   {"0,7,1", 1, "0000:81:00.0"},
                   {"GPU-1234", 1, "0000:82:00.0"},
                   {"GPU-1", 1, "0000:82:00.0"},
                   {"-1", 0, ""},
                   {"MIG-x", 0, ""},
                   {"MIG-GPU-1234-abcd/7/0,0", 2, "MIG-GPU-1234-abcd/7/0"},
                   {"MIG-01ab-23", 1, "MIG-01ab-23"}};
    for (size_t i = 0; i < ARRAY_LEN(visible); i++) {
        s.visible_devices = visible[i].visible;
        assert_int_equal(topology_read(&s, &allowed, &t, &err), 0);
        assert_int_equal(t.n_gpus, visible[i].n);
        if (t.n_gpus)
            assert_string_equal(t.gpus[0].name, visible[i].first);
        topology_release(&t);
    }
    (void)snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

UNIT_TEST(other_gpus_and_older_limits_are_read_too)
{
    char root[] = "/tmp/launch-topology-XXXXXX", command[64];
    struct err err = ERR_INIT;
    CLEANUP(topology_release) struct topology t;
    struct cpuset allowed;
    struct topology_source s = {.root = root};
    assert_non_null(mkdtemp(root));
    assert_int_equal(cpuset_parse("0-7", &allowed), 0);
    file_put(root, "sys/bus/pci/devices/0000:c1:00.0/class",
             "0x038000\n"); /* an MI300X */
    file_put(root, "sys/bus/pci/devices/0000:c1:00.0/vendor", "0x1002\n");
    file_put(root, "sys/bus/pci/devices/0000:c1:00.0/numa_node", "-1\n");
    file_put(root, "sys/bus/pci/devices/0000:c2:00.0/class",
             "0x030000\n"); /* a server's VGA */
    file_put(root, "sys/bus/pci/devices/0000:c2:00.0/vendor", "0x1a03\n");
    file_put(root, "sys/bus/pci/devices/0000:c3:00.0/class", "0x010802\n");
    file_put(root, "sys/bus/pci/devices/0000:c3:00.0/vendor", "0x1002\n");
    file_put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
    file_put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(topology_read(&s, &allowed, &t, &err), 0);
    assert_int_equal(t.n_gpus, 0); /* its driver is not here */
    assert_true(t.quota_cpus > 1.49 && t.quota_cpus < 1.51);
    topology_release(&t);
    file_put(root, "dev/kfd", "");
    file_put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(topology_read(&s, &allowed, &t, &err), 0);
    assert_int_equal(t.n_gpus, 1);
    assert_string_equal(t.gpus[0].name, "0000:c1:00.0");
    assert_int_equal(t.gpus[0].node, -1);
    assert_true(t.quota_cpus <= 0);
    (void)snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

UNIT_TEST(a_host_that_hides_everything_has_cpus_all_the_same)
{
    struct err err = ERR_INIT;
    CLEANUP(topology_release) struct topology t;
    struct cpuset allowed;
    struct topology_source s = {.root = "/nonexistent"};
    assert_int_equal(cpuset_parse("3,5-6", &allowed), 0);
    assert_int_equal(topology_read(&s, &allowed, &t, &err), 0);
    EXPECT(&t, BINDING_CORES, 3, 1, "3", "5", "6");
    assert_int_equal(t.n_gpus + t.n_nics, 0);
    topology_release(&t);
    mem_fail_after(0);
    assert_int_equal(topology_read(&s, &allowed, &t, &err), -ENOMEM);
    mem_fail_after(-1);
}

UNIT_MAIN(NULL, NULL)
