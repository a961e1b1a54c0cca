/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the launcher: each launcher alone, launchers inside launchers, and sets that
 * contradict themselves. The variables are those that the real launchers set. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/contract/discover.h"
#include "runtime/contract/token.h"
#include "tests/unit/fake_env.h"
#include "tests/unit/torture.h"

#define OURS                                                                           \
    "HOROVOD_RANK=3 HOROVOD_SIZE=4 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 "         \
    "HOROVOD_CROSS_RANK=1 HOROVOD_CROSS_SIZE=2 HVD_HOST_INDEX=1 "                      \
    "HVD_JOB_ID=ns/demo/uid "                                                          \
    "HVD_RENDEZVOUS_ADDR=10.0.0.1 HVD_RENDEZVOUS_PORT=4000 HVD_TOKEN_FILE=/t "         \
    "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 "         \
    "LOCAL_WORLD_SIZE=2 GROUP_RANK=1 "
#define TORCHRUN                                                                       \
    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 "                \
    "GROUP_WORLD_SIZE=2 MASTER_ADDR=nodeA MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none " \
    "TORCHELASTIC_RESTART_COUNT=2 "
#define OPENMPI                                                                        \
    "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=2 "      \
    "OMPI_COMM_WORLD_LOCAL_SIZE=3 PMIX_NAMESPACE=3148349441 "                          \
    "OMPI_MCA_ess_base_jobid=3148349441 OMPI_MCA_orte_hnp_uri=4803.0;tcp://1:33 "
#define SLURM                                                                          \
    "SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=5 "           \
    "SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_NODELIST=node[1-3] "                    \
    "SLURM_STEP_TASKS_PER_NODE=2(x2),1 SLURM_NTASKS=5 "

#define PMIX                                                                           \
    "PMIX_NAMESPACE=3148349441 PMIX_RANK=2 PMIX_SERVER_URI41=1.0;tcp4://127.0.0.1:9 "
#define MPIEXEC "PMI_RANK=1 PMI_SIZE=3 PMI_FD=6 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=3 "

struct found {
    struct contract c;
    char why[256];
    struct err e;
    int rc;
};

static struct found contract_find(const char *env_text)
{
    static struct fake_env env;
    struct found f = {.e = ERR_INIT};

    env.n = 0;
    fake_set_all(&env, env_text);
    f.rc = contract_discover(fake_get, &env, &f.c, f.why, sizeof(f.why), &f.e);
    if (f.rc)
        print_message("# refused: %s\n", f.e.text);
    return f;
}

static void is_place(const struct place *p,
                     uint32_t rank,
                     uint32_t size,
                     uint32_t lr,
                     uint32_t ls,
                     uint32_t cr,
                     uint32_t cs)
{
    const struct place want = {rank, size, lr, ls, cr, cs, p->host};

    assert_memory_equal(p, &want, sizeof(want));
}

UNIT_TEST(no_launcher_means_a_single_process)
{
    struct found f = contract_find("PATH=/bin");

    assert_int_equal(f.rc, 0);
    assert_int_equal(f.c.launcher, LAUNCHER_NONE);
    is_place(&f.c.place, 0, 1, 0, 1, 0, 1);
    assert_string_equal(f.why, "a single process: no launcher was found");
}

UNIT_TEST(each_launcher_alone)
{
    struct found f = contract_find(OURS);

    assert_int_equal(f.rc, 0);
    assert_int_equal(f.c.launcher, LAUNCHER_RINGMASTER);
    is_place(&f.c.place, 3, 4, 1, 2, 1, 2);
    assert_int_equal(f.c.rdv_port, 4000);
    assert_false(f.c.rank0_serves);
    assert_string_equal(
        f.why,
        "rank 3 of 4 from horovod: HOROVOD_RANK, HOROVOD_SIZE, meeting at 10.0.0.1");

    f = contract_find(TORCHRUN);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.c.launcher, LAUNCHER_TORCHRUN);
    is_place(&f.c.place, 5, 8, 1, 4, 1, 2);
    assert_string_equal(f.c.rdv_host, "nodeA");
    assert_int_not_equal(f.c.rdv_port, 29500);
    assert_in_range(f.c.rdv_port, 20000, 29999);
    assert_true(f.c.rank0_serves);
    assert_int_equal(f.c.token_source, TOKEN_WEAK);
    assert_int_equal(f.c.generation, 2);
    assert_string_equal(f.c.master_addr, "nodeA");

    f = contract_find(OPENMPI);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.c.launcher, LAUNCHER_OPENMPI);
    is_place(&f.c.place, 2, 3, 2, 3, 0, 1);
    assert_string_equal(f.c.rdv_host, "127.0.0.1");
    assert_true(f.c.rank0_serves);

    f = contract_find(SLURM);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.c.launcher, LAUNCHER_SLURM);
    is_place(&f.c.place, 3, 5, 1, 2, 1, 2);
    assert_string_equal(f.c.rdv_host, "node1");
    assert_string_equal(f.c.hostname, "node2");
    assert_in_range(f.c.rdv_port, 20000, 29999);
    assert_true(f.c.rank0_serves);
}

UNIT_TEST(mpiexec_sets_more_or_less)
{
    static const struct {
        const char *env, *why;
        enum launcher_channel channel;
        enum place_known known;
        struct place place;
    } t[] = {
        {MPIEXEC,
         "rank 1 of 3 from mpiexec: PMI or PMIx, meeting by PMI",
         CHANNEL_PMI,
         KNOWN_ALL,
         {1, 3, 1, 3, 0, 1, 0}},
        {MPIEXEC "MPI_LOCALNRANKS=2",
         NULL,
         CHANNEL_PMI,
         KNOWN_LOCAL,
         {1, 3, 1, 2, 0, 1, 0}},
        {MPIEXEC "MPI_LOCALRANKID=",
         NULL,
         CHANNEL_PMI,
         KNOWN_RANK,
         {1, 3, 0, 1, 0, 1, 0}},
        {"PMI_RANK=0 PMI_SIZE=1 PMI_FD=6",
         "rank 0 of 1 from mpiexec: PMI or PMIx",
         CHANNEL_PMI,
         KNOWN_ALL,
         {0, 1, 0, 1, 0, 1, 0}},
        {"PMI_PORT=h:1234 PMI_ID=2 MPI_LOCALRANKID=2",
         "a rank from mpiexec: PMI or PMIx, the rest by PMI",
         CHANNEL_PMI,
         KNOWN_NOTHING,
         {0, 0, 0, 1, 0, 1, 0}},
        {PMIX,
         "a rank from mpiexec: PMI or PMIx, the rest by PMIx",
         CHANNEL_PMIX,
         KNOWN_NOTHING,
         {0, 0, 0, 1, 0, 1, 0}},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct found f = contract_find(t[i].env);

        assert_int_equal(f.rc, 0);
        assert_int_equal(f.c.launcher, LAUNCHER_MPIEXEC);
        assert_int_equal(f.c.channel, t[i].channel);
        assert_int_equal(f.c.known, t[i].known);
        assert_memory_equal(&f.c.place, &t[i].place, sizeof(t[i].place));
        assert_string_equal(f.c.rdv_host, ""); /* only by the channel */
        if (t[i].why)
            assert_string_equal(f.why, t[i].why);
    }
    assert_int_equal(contract_find(MPIEXEC).c.pmi_fd, 6);
    struct found f = contract_find("PMI_PORT=h:1234 PMI_ID=2");
    assert_string_equal(f.c.pmi_port, "h:1234");
    assert_int_equal(f.c.pmi_id, 2);
}

UNIT_TEST(open_mpi_and_slurm_by_pmix)
{
    struct found f = contract_find(OPENMPI PMIX);

    assert_int_equal(f.rc, 0);
    assert_int_equal(f.c.channel, CHANNEL_PMIX);
    assert_int_equal(f.c.known, KNOWN_ALL);
    assert_string_equal(f.c.rdv_host, "127.0.0.1"); /* in case libpmix is missing */
    assert_string_equal(f.why, "rank 2 of 3 from openmpi: OMPI_COMM_WORLD_RANK, "
                               "OMPI_COMM_WORLD_SIZE, meeting by PMIx");
    f = contract_find(OPENMPI PMIX "OMPI_COMM_WORLD_SIZE=6");
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.c.known, KNOWN_LOCAL);
    assert_string_equal(f.c.rdv_host, "");
    f = contract_find(OPENMPI PMIX "PMIX_NAMESPACE= OMPI_MCA_ess_base_jobid=5");
    assert_int_equal(f.c.channel, CHANNEL_NONE);
    assert_string_equal(f.c.rdv_host, "127.0.0.1");

    f = contract_find(SLURM PMIX "PMIX_NAMESPACE=slurm.pmix.77.0 PMIX_RANK=3");
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.c.launcher, LAUNCHER_SLURM);
    assert_int_equal(f.c.channel, CHANNEL_PMIX);
    assert_int_equal(f.c.known, KNOWN_ALL);
    assert_string_equal(f.c.rdv_host, "node1");
    f = contract_find(SLURM PMIX "PMIX_NAMESPACE=slurm.pmix.77.0 PMIX_RANK=3 "
                                 "SLURM_DISTRIBUTION=arbitrary");
    assert_int_equal(f.rc, 0); /* PMIx knows where rank 0 is */
    assert_int_equal(f.c.known, KNOWN_ALL);
    assert_string_equal(f.c.rdv_host, "");
    f = contract_find(SLURM PMIX "PMIX_NAMESPACE=slurm.pmix.77.8 PMIX_RANK=0");
    assert_int_equal(f.rc, 0); /* of an outer step */
    assert_int_equal(f.c.channel, CHANNEL_NONE);
    f = contract_find(SLURM "PMI_RANK=0 PMI_SIZE=1 PMI_FD=11 PMI_JOBID=77.8");
    assert_int_equal(f.c.launcher, LAUNCHER_SLURM);
    is_place(&f.c.place, 3, 5, 1, 2, 1, 2);
    f = contract_find(SLURM "PMI_RANK=3 PMI_SIZE=5 PMI_FD=11 PMI_JOBID=77.0");
    assert_int_equal(f.c.launcher, LAUNCHER_SLURM); /* srun --mpi=pmi2 */
    assert_int_equal(f.c.channel, CHANNEL_NONE);
}

UNIT_TEST(the_interface_is_read_under_foreign_launchers_too)
{
    struct found f = contract_find(TORCHRUN "HOROVOD_GLOO_IFACE=eth1");

    assert_int_equal(f.rc, 0);
    assert_string_equal(f.c.iface, "eth1");
}

UNIT_TEST(the_nearest_launcher_wins)
{
    static const struct {
        const char *what, *env;
        enum launcher want;
    } t[] = {
        {"torchrun inside srun", SLURM TORCHRUN, LAUNCHER_TORCHRUN},
        {"mpirun inside an allocation: its daemon is a step", SLURM OPENMPI,
         LAUNCHER_OPENMPI},
        {"torchrun inside mpirun", OPENMPI TORCHRUN, LAUNCHER_TORCHRUN},
        {"mpirun inside a task of ours", OURS OPENMPI, LAUNCHER_OPENMPI},
        {"torchrun inside a task of ours", OURS TORCHRUN, LAUNCHER_TORCHRUN},
        {"bare srun inside a task of ours", OURS SLURM, LAUNCHER_SLURM},
        {"srun --hvd: Slurm's own set stands beside ours",
         SLURM OURS "SLURM_STEP_NUM_TASKS=4", LAUNCHER_RINGMASTER},
        {"srun --hvd --mpi=pmi2",
         SLURM OURS "SLURM_STEP_NUM_TASKS=4 PMI_RANK=3 PMI_SIZE=4 PMI_FD=11 "
                    "PMI_JOBID=77.0",
         LAUNCHER_RINGMASTER},
        {"srun --hvd --mpi=pmix",
         SLURM OURS "SLURM_STEP_NUM_TASKS=4 " PMIX "PMIX_NAMESPACE=slurm.pmix.77.0",
         LAUNCHER_RINGMASTER},
        {"mpiexec inside an allocation: its proxy is a step", SLURM MPIEXEC,
         LAUNCHER_MPIEXEC},
        {"mpiexec inside srun --mpi=pmi2", SLURM MPIEXEC "PMI_JOBID=77.0",
         LAUNCHER_MPIEXEC},
        {"mpiexec inside a task of ours", OURS MPIEXEC, LAUNCHER_MPIEXEC},
        {"mpiexec, of the same rank and size, inside a task of ours",
         OURS MPIEXEC "PMI_RANK=3 PMI_SIZE=4", LAUNCHER_MPIEXEC},
        {"mpiexec inside an mpirun of one",
         OPENMPI "OMPI_COMM_WORLD_RANK=0 "
                 "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 " MPIEXEC,
         LAUNCHER_MPIEXEC},
        {"mpirun inside an mpiexec of one", OPENMPI MPIEXEC "PMI_RANK=0 PMI_SIZE=1",
         LAUNCHER_OPENMPI},
        {"prun inside an allocation", SLURM PMIX, LAUNCHER_MPIEXEC},
        {"MPI_Init in a task of ours, before hvd_init",
         OURS PMIX "OMPI_MCA_ess=singleton PMIX_RANK=0", LAUNCHER_RINGMASTER},
        {"the same with Open MPI 5", OURS PMIX "PMIX_NAMESPACE=singleton.h.4711",
         LAUNCHER_RINGMASTER},
        {"MPI_Init in a task of bare srun",
         SLURM PMIX "OMPI_MCA_ess=singleton PMIX_RANK=0", LAUNCHER_SLURM},
        {"MPI_Init in a process without a launcher",
         PMIX "OMPI_MCA_ess=singleton PMIX_RANK=0", LAUNCHER_NONE},
        {"torchrun inside mpiexec", MPIEXEC TORCHRUN, LAUNCHER_TORCHRUN},
        {"a wrapper's export for torch under mpirun",
         OPENMPI "RANK=2 WORLD_SIZE=3 MASTER_ADDR=h MASTER_PORT=1", LAUNCHER_OPENMPI},
        {"a wrapper's export for torch under mpiexec",
         MPIEXEC "RANK=1 WORLD_SIZE=3 MASTER_ADDR=h MASTER_PORT=1", LAUNCHER_MPIEXEC},
        {"a wrapper's export for torch under srun",
         SLURM "RANK=3 WORLD_SIZE=5 MASTER_ADDR=h MASTER_PORT=1", LAUNCHER_SLURM},
        {"its own numbers under mpirun",
         OPENMPI "RANK=1 WORLD_SIZE=3 MASTER_ADDR=h MASTER_PORT=1", LAUNCHER_TORCHRUN},
        {"equal to a batch script's, which is no task",
         "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=4294967291 "
         "SLURM_JOB_ID=7 RANK=0 WORLD_SIZE=1 MASTER_ADDR=h MASTER_PORT=1",
         LAUNCHER_TORCHRUN},
        {"ours from a batch script", "SLURM_JOB_ID=77 SLURM_NODEID=0 " OURS,
         LAUNCHER_RINGMASTER},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct found f = contract_find(t[i].env);

        if (f.rc || f.c.launcher != t[i].want)
            fail_msg("%s: %s", t[i].what, launcher_name(f.c.launcher));
    }
}

/* The rule above relies on what our launchers remove: start a process of ours inside
 * each other launcher. */
UNIT_TEST(our_process_inside_any_launcher_is_ours)
{
    static const char *const outer[] = {
        TORCHRUN, OPENMPI PMIX, SLURM,
        OURS,     MPIEXEC,      "PMI_PORT=h:1 PMI_ID=2 HYDI_CONTROL_FD=7"};
    static struct env_pair v[CONTRACT_MAX_ENV];
    static struct fake_env env;

    for (size_t i = 0; i < ARRAY_LEN(outer); i++) {
        struct contract c, got;
        struct err e = ERR_INIT;
        char why[256];
        size_t n = 0;

        contract_init(&c);
        c.launcher = LAUNCHER_RINGMASTER;
        c.place = (struct place){1, 2, 1, 2, 0, 1, 0};
        c.token_source = TOKEN_FD;
        c.token_fd = 5;
        c.rdv_port = 9;
        (void)snprintf(c.rdv_host, sizeof(c.rdv_host), "h");
        (void)snprintf(c.job_id, sizeof(c.job_id), "j");
        assert_int_equal(contract_render(&c, v, &n, &e), 0);
        env.n = 0;
        fake_set_all(&env, outer[i]);
        fake_start(&env, v, n);
        assert_int_equal(contract_discover(fake_get, &env, &got, why, sizeof(why), &e),
                         0);
        assert_int_equal(got.launcher, LAUNCHER_RINGMASTER);
        assert_memory_equal(&got.place, &c.place, sizeof(c.place));
    }
}

UNIT_TEST(the_batch_script_and_shells_are_not_tasks)
{
    static const char *const steps[] = {"4294967291", "4294967290", "4294967292",
                                        "4294967295", "batch",      ""};

    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        char env[1024];

        (void)snprintf(env, sizeof(env), "%sSLURM_STEP_ID=%s", SLURM, steps[i]);
        struct found f = contract_find(env);
        assert_int_equal(f.rc, 0);
        assert_int_equal(f.c.launcher, LAUNCHER_NONE);
    }
    struct found f =
        contract_find("SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=0");
    assert_int_equal(f.c.launcher, LAUNCHER_NONE); /* SLURM_STEP_NUM_TASKS is missing */
}

UNIT_TEST(torch_set_without_local_ranks)
{
    struct found f =
        contract_find("RANK=2 WORLD_SIZE=3 MASTER_ADDR=j-master-0 MASTER_PORT=23456");

    assert_int_equal(f.rc, 0); /* PyTorchJob: one process a pod */
    is_place(&f.c.place, 2, 3, 0, 1, 2, 3);
    f = contract_find("RANK=0 WORLD_SIZE=1 MASTER_ADDR=h MASTER_PORT=1");
    assert_int_equal(f.rc, 0);
    assert_string_equal(f.c.rdv_host, "");
    f = contract_find("RANK=0 WORLD_SIZE=1");
    assert_int_equal(f.rc, 0);
    f = contract_find("RANK=0");
    assert_int_equal(f.rc, 0);
    f = contract_find(
        "RANK=0 WORLD_SIZE=2 " OPENMPI); /* a script's own export under mpirun */
    assert_int_equal(f.c.launcher, LAUNCHER_OPENMPI);
}

UNIT_TEST(contradictions_show_both_values)
{
    static const struct {
        const char *env, *says;
    } t[] = {
        {OURS "HOROVOD_RANK=4", "HOROVOD_RANK=4 is not below HOROVOD_SIZE=4"},
        {TORCHRUN "RANK=8", "RANK=8 is not below WORLD_SIZE=8"},
        {TORCHRUN "LOCAL_RANK=4", "LOCAL_RANK=4 is not below LOCAL_WORLD_SIZE=4"},
        {TORCHRUN "LOCAL_WORLD_SIZE=",
         "LOCAL_RANK=1 is set but LOCAL_WORLD_SIZE is not"},
        {TORCHRUN "GROUP_RANK=2", "GROUP_RANK=2 is not below GROUP_WORLD_SIZE=2"},
        {TORCHRUN "MASTER_PORT=0", "MASTER_PORT: \"0\""},
        {"RANK=0 WORLD_SIZE=2", "RANK=0 and WORLD_SIZE=2 are set, but MASTER_ADDR"},
        {OPENMPI "OMPI_COMM_WORLD_RANK=3",
         "OMPI_COMM_WORLD_RANK=3 is not below OMPI_COMM_WORLD_SIZE=3"},
        {OPENMPI "OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_LOCAL_SIZE=3 of "
                                           "OMPI_COMM_WORLD_SIZE=6"},
        {OPENMPI "OMPI_COMM_WORLD_SIZE=6", "ranks meet by PMIx, but PMIX_NAMESPACE, "},
        {OPENMPI MPIEXEC, "OMPI_COMM_WORLD_RANK=2 of 3, but PMI_RANK=1 of 3: of two"},
        {OPENMPI PMIX "PMIX_RANK=1", "PMIX_RANK=1, but OMPI_COMM_WORLD_RANK=2"},
        {SLURM PMIX "PMIX_NAMESPACE=slurm.pmix.77.0",
         "PMIX_RANK=2, but SLURM_PROCID=3"},
        {MPIEXEC "PMI_RANK=3", "PMI_RANK=3 is not below PMI_SIZE=3"},
        {MPIEXEC "PMI_SIZE=x", "PMI_SIZE: \"x\""},
        {MPIEXEC "PMI_FD=x", "PMI_FD: \"x\""},
        {MPIEXEC "MPI_LOCALRANKID=3", "MPI_LOCALRANKID=3 is not below MPI_LOCALNRANKS"},
        {MPIEXEC "MPI_LOCALNRANKS=4", "MPI_LOCALNRANKS=4"},
        {MPIEXEC "PMI_FD=", "PMI_RANK=1 and PMI_SIZE=3 are set, but PMI_FD is not"},
        {"PMI_PORT=h:1 PMI_ID=x", "PMI_ID: \"x\""},
        {OPENMPI "PMIX_NAMESPACE= OMPI_MCA_ess_base_jobid=", "names the job"},
        {OPENMPI "OMPI_COMM_WORLD_LOCAL_RANK=", "OMPI_COMM_WORLD_LOCAL_RANK is unset"},
        {SLURM "SLURM_PROCID=5", "SLURM_PROCID=5 is not below SLURM_STEP_NUM_TASKS=5"},
        {SLURM "SLURM_STEP_NUM_TASKS=6", "is 5 tasks, but SLURM_STEP_NUM_TASKS=6"},
        {SLURM "SLURM_STEP_NODELIST=node[1-2]", "has 2 nodes"},
        {SLURM "SLURM_STEP_NODELIST=node[", "SLURM_STEP_NODELIST: node list"},
        {SLURM "SLURM_STEP_TASKS_PER_NODE=x", "SLURM_STEP_TASKS_PER_NODE: counts"},
        {SLURM "SLURM_NODEID=3", "SLURM_NODEID=3 is not below the 3 nodes"},
        {SLURM "SLURM_LOCALID=2", "no local rank 2"},
        {SLURM "SLURM_LOCALID=", "SLURM_LOCALID is unset"},
        {SLURM "SLURM_DISTRIBUTION=arbitrary", "use srun --hvd"},
        {SLURM "SLURM_PROCID=0", "use srun --hvd"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct found f = contract_find(t[i].env);

        if (f.rc != -EINVAL || !strstr(f.e.text, t[i].says))
            fail_msg("%s\n  wanted: %s", t[i].env, t[i].says);
    }
}

/* All ranks of a job derive one meeting point and one token; another job's differ. */
UNIT_TEST(ranks_agree_and_jobs_differ)
{
    static const struct {
        const char *env, *other_rank, *other_job;
    } t[] = {
        {TORCHRUN, "RANK=0 LOCAL_RANK=0 GROUP_RANK=0", "MASTER_PORT=29501"},
        {OPENMPI, "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_LOCAL_RANK=0",
         "PMIX_NAMESPACE=3148349442"},
        {SLURM, "SLURM_PROCID=4 SLURM_NODEID=2 SLURM_LOCALID=0", "SLURM_STEP_ID=1"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        char env[2048];
        struct token ta, tb, tc;
        struct found a = contract_find(t[i].env);

        (void)snprintf(env, sizeof(env), "%s %s", t[i].env, t[i].other_rank);
        struct found b = contract_find(env);
        (void)snprintf(env, sizeof(env), "%s %s", t[i].env, t[i].other_job);
        struct found c = contract_find(env);
        assert_int_equal(a.rc | b.rc | c.rc, 0);
        assert_string_equal(a.c.rdv_host, b.c.rdv_host);
        assert_int_equal(a.c.rdv_port, b.c.rdv_port);
        assert_string_equal(a.c.job_id, b.c.job_id);
        assert_int_equal(token_from_contract(&a.c, &ta, NULL), 0);
        assert_int_equal(token_from_contract(&b.c, &tb, NULL), 0);
        assert_int_equal(token_from_contract(&c.c, &tc, NULL), 0);
        assert_memory_equal(&ta, &tb, sizeof(ta));
        assert_memory_not_equal(&ta, &tc, sizeof(ta));
        assert_string_not_equal(a.c.job_id, c.c.job_id);
    }
}

/* mpirun's random key is part of the token, and is neither in the job's name nor in the
 * log. */
UNIT_TEST(open_mpis_key_is_used_and_not_shown)
{
    struct found a =
        contract_find(OPENMPI "OMPI_MCA_orte_precondition_transports=a5da-fafc");
    struct found b =
        contract_find(OPENMPI "OMPI_MCA_orte_precondition_transports=a5da-fafd");
    struct token ta, tb;

    assert_int_equal(a.rc | b.rc, 0);
    assert_string_equal(a.c.job_id, b.c.job_id);
    assert_null(strstr(a.c.job_id, "a5da"));
    assert_null(strstr(a.why, "a5da"));
    assert_int_equal(token_from_contract(&a.c, &ta, NULL), 0);
    assert_int_equal(token_from_contract(&b.c, &tb, NULL), 0);
    assert_memory_not_equal(&ta, &tb, sizeof(ta));
}

static int discover_slurm(void *arg)
{
    struct contract c;
    char why[256];

    return contract_discover(fake_get, arg, &c, why, sizeof(why), NULL);
}

UNIT_TEST(lack_of_memory_is_an_error)
{
    static struct fake_env env;

    env.n = 0;
    fake_set_all(&env, SLURM);
    torture(discover_slurm, &env);
}

/* torchrun's processes inherit the variables of the task that runs it. */
UNIT_TEST(torchrun_in_a_task_of_the_slurm_plugin_has_the_steps_token)
{
    static const struct {
        const char *step;
        enum token_source want;
    } rows[] = {
        {"SLURM_JOB_ID=77 SLURM_STEP_ID=0 HVD_JOB_ID=slurm.77.0 HVD_TOKEN_FILE=/t ",
         TOKEN_FILE},
        /* srun inside the task: other nodes do not have the file */
        {"SLURM_JOB_ID=77 SLURM_STEP_ID=1 HVD_JOB_ID=slurm.77.0 HVD_TOKEN_FILE=/t ",
         TOKEN_WEAK},
        {"SLURM_JOB_ID=77 SLURM_STEP_ID=0 HVD_JOB_ID=slurm.77.0 ", TOKEN_WEAK},
        {"SLURM_JOB_ID=77 SLURM_STEP_ID=0 HVD_JOB_ID=other HVD_TOKEN_FILE=/t ",
         TOKEN_WEAK},
        {"HVD_HOST_INDEX=0 HVD_TOKEN_FILE=/t ", TOKEN_WEAK},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[1024];
        (void)snprintf(text, sizeof(text), "HOROVOD_RANK=1 HOROVOD_SIZE=2 %s %s",
                       rows[i].step, TORCHRUN);
        struct found f = contract_find(text);
        assert_int_equal(f.rc, 0);
        assert_int_equal(f.c.launcher, LAUNCHER_TORCHRUN);
        assert_int_equal(f.c.token_source, rows[i].want);
        if (rows[i].want == TOKEN_FILE)
            assert_string_equal(f.c.token_file, "/t");
    }
}

UNIT_TEST(a_process_beside_the_tasks_of_its_job_is_noticed)
{
    static const struct {
        const char *name, *env;
        uint32_t want;
    } rows[] = {
        {"batch script", "SLURM_JOB_ID=77 SLURM_NTASKS=8 SLURM_PROCID=0 ", 8},
        {"the same, as a step",
         "SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_STEP_ID=4294967291 ", 8},
        {"one task", "SLURM_JOB_ID=77 SLURM_NTASKS=1 ", 0},
        {"unknown", "SLURM_JOB_ID=77 SLURM_NTASKS=many ", 0},
        {"no job", "SLURM_NTASKS=8 ", 0},
        {"a task", SLURM, 0},
        {"a rank of ours", SLURM OURS, 0},
        {"torchrun in the script", "SLURM_JOB_ID=77 SLURM_NTASKS=8 " TORCHRUN, 0},
        {"the same, of one rank",
         "SLURM_JOB_ID=77 SLURM_NTASKS=8 RANK=0 WORLD_SIZE=1 MASTER_ADDR=a "
         "MASTER_PORT=1 ",
         0},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        static struct fake_env env;
        struct found f = contract_find(rows[i].env);
        env.n = 0;
        fake_set_all(&env, rows[i].env);
        assert_int_equal(f.rc, 0);
        if (contract_missed_tasks(&f.c, fake_get, &env) != rows[i].want)
            fail_msg("%s", rows[i].name);
    }
}

UNIT_MAIN(NULL, NULL)
