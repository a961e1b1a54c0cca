/* SPDX-License-Identifier: Apache-2.0 */
/* hostfile and discover_hosts.sh, byte for byte. */
#include "tests/unit/unit.h"

#include "operator/core/mpi/mpi_config.h"
#include "tests/unit/mpi_fixture.h"

#define POD "template: {spec: {containers: [{name: c}]}}"

static void read_job(struct mpi_fixture *f, const char *more, int workers)
{
    char yaml[512];

    (void)snprintf(yaml, sizeof(yaml),
                   "metadata: {name: pi, namespace: lab, uid: u}\n"
                   "spec: {mpiReplicaSpecs: {Launcher: {" POD
                   "}, Worker: {replicas: %d, " POD "}}%s}",
                   workers, more);
    fixture_start(f, yaml);
    assert_null(f->job->flaws);
}

UNIT_TEST(hostfile_names_every_wanted_worker)
{
    static const struct {
        const char *more;
        int workers;
        const char *domain, *want;
    } row[] = {
        {"", 1, "", "pi-worker-0.pi.lab.svc slots=1\n"},
        {", slotsPerWorker: 4", 2, "",
         "pi-worker-0.pi.lab.svc slots=4\npi-worker-1.pi.lab.svc slots=4\n"},
        {", slotsPerWorker: 0", 1, "", "pi-worker-0.pi.lab.svc slots=0\n"},
        {", mpiImplementation: Intel", 2, "",
         "pi-worker-0.pi.lab.svc:1\npi-worker-1.pi.lab.svc:1\n"},
        {", mpiImplementation: MPICH, slotsPerWorker: 8", 1, "",
         "pi-worker-0.pi.lab.svc:8\n"},
        {"", 1, "cluster.local", "pi-worker-0.pi.lab.svc.cluster.local slots=1\n"},
        {", mpiImplementation: MPICH", 1, "c.example",
         "pi-worker-0.pi.lab.svc.c.example:1\n"},
        {", runLauncherAsWorker: true", 1, "",
         "pi-launcher.pi.lab.svc slots=1\npi-worker-0.pi.lab.svc slots=1\n"},
        {", runLauncherAsWorker: true, mpiImplementation: Intel, slotsPerWorker: 2", 1,
         "d", "pi-launcher.pi.lab.svc.d:2\npi-worker-0.pi.lab.svc.d:2\n"},
        {", runLauncherAsWorker: true, mpiImplementation: MPICH", 2, "",
         "pi-launcher.pi.lab.svc:1\npi-worker-0.pi.lab.svc:1\n"
         "pi-worker-1.pi.lab.svc:1\n"},
    };

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;
        CLEANUP(strbuf_release) struct strbuf out;

        strbuf_init(&out, 4096);
        read_job(&f, row[i].more, row[i].workers);
        mpi_hostfile(&out, f.job, row[i].domain);
        assert_string_equal(strbuf_str(&out), row[i].want);
    }
}

UNIT_TEST(digests_differ_when_the_files_do)
{
    static const char *const names[] = {"pi-worker-0", "pi-worker-1"};
    static const struct {
        const char *more, *domain;
        uint32_t workers, running;
    } row[] = {
        {"", "", 2, 2},
        {"", "", 2, 1},
        {"", "", 2, 0},
        {"", "", 3, 2},
        {"", "c.example", 2, 2},
        {", slotsPerWorker: 2", "", 2, 2},
        {", mpiImplementation: Intel", "", 2, 2},
        {", runLauncherAsWorker: true", "", 2, 2},
    };
    uint8_t sum[ARRAY_LEN(row)][SHA256_BYTES], again[SHA256_BYTES];

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;

        read_job(&f, row[i].more, row[i].workers);
        mpi_config_digest(f.job, row[i].domain, names, row[i].running, sum[i]);
        mpi_config_digest(f.job, row[i].domain, names, row[i].running, again);
        assert_memory_equal(sum[i], again, SHA256_BYTES);
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(sum[i], sum[k], SHA256_BYTES);
    }
}

UNIT_TEST(hostfile_of_a_launcher_alone)
{
    CLEANUP(fixture_release) struct mpi_fixture f;
    CLEANUP(strbuf_release) struct strbuf out;

    strbuf_init(&out, 4096);
    fixture_start(&f, "metadata: {name: pi, namespace: lab, uid: u}\n"
                      "spec: {runLauncherAsWorker: true, mpiReplicaSpecs: {Launcher: "
                      "{" POD "}}}");
    mpi_hostfile(&out, f.job, "");
    assert_string_equal(strbuf_str(&out), "pi-launcher.pi.lab.svc slots=1\n");
    strbuf_clear(&out);
    mpi_discover_hosts(&out, f.job, "", NULL, 0);
    assert_string_equal(strbuf_str(&out), "#!/bin/sh\necho pi-launcher.pi.lab.svc\n");
}

UNIT_TEST(script_names_running_workers_by_name)
{
    static const struct {
        const char *more, *domain, *names, *want;
    } row[] = {
        {"", "", "", "#!/bin/sh\n"},
        {"", "", "pi-worker-0", "#!/bin/sh\necho pi-worker-0.pi.lab.svc\n"},
        /* no slots, whatever they are */
        {", slotsPerWorker: 8, mpiImplementation: Intel", "", "pi-worker-0",
         "#!/bin/sh\necho pi-worker-0.pi.lab.svc\n"},
        {"", "d.e", "pi-worker-1 pi-worker-0",
         "#!/bin/sh\necho pi-worker-0.pi.lab.svc.d.e\n"
         "echo pi-worker-1.pi.lab.svc.d.e\n"},
        /* as text, not by number */
        {"", "", "pi-worker-2 pi-worker-10 pi-worker-1",
         "#!/bin/sh\necho pi-worker-1.pi.lab.svc\necho pi-worker-10.pi.lab.svc\n"
         "echo pi-worker-2.pi.lab.svc\n"},
        {", runLauncherAsWorker: true", "", "",
         "#!/bin/sh\necho pi-launcher.pi.lab.svc\n"},
        {", runLauncherAsWorker: true", "x", "pi-worker-0",
         "#!/bin/sh\necho pi-launcher.pi.lab.svc.x\necho pi-worker-0.pi.lab.svc.x\n"},
    };

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;
        CLEANUP(strbuf_release) struct strbuf out;
        char text[64], *save = NULL;
        const char *names[4];
        size_t n = 0;

        strbuf_init(&out, 4096);
        read_job(&f, row[i].more, 11);
        (void)snprintf(text, sizeof(text), "%s", row[i].names);
        for (char *p = strtok_r(text, " ", &save); p; p = strtok_r(NULL, " ", &save))
            names[n++] = p;
        mpi_discover_hosts(&out, f.job, row[i].domain, names, n);
        assert_string_equal(strbuf_str(&out), row[i].want);
    }
}

/* The files that are there when all workers run. */
static size_t config_rendered_size(const struct mpi_job *job, const char *domain)
{
    const char **names = mem_calloc(job->worker.n, sizeof(*names));
    char(*text)[MPI_NAME_SIZE] = mem_calloc(job->worker.n, sizeof(*text));
    struct strbuf out;
    size_t n;

    assert_non_null(names);
    assert_non_null(text);
    for (uint32_t i = 0; i < job->worker.n; i++) {
        mpi_worker_name(job, i, text[i]);
        names[i] = text[i];
    }
    strbuf_init(&out, 16u << 20);
    mpi_hostfile(&out, job, domain);
    mpi_discover_hosts(&out, job, domain, names, job->worker.n);
    assert_int_equal(strbuf_status(&out), 0);
    n = out.n;
    strbuf_release(&out);
    mem_free(names);
    mem_free(text);
    return n;
}

UNIT_TEST(files_that_no_config_map_holds_are_refused)
{
    static const struct {
        const char *more, *domain;
        int workers;
    } row[] = {
        {"", "", 1024},
        {"", "", 8192},
        {"", "cluster.example.of.a.very.long.domain", 8192},
        {", slotsPerWorker: 128", "cluster.example.of.a.very.long.domain", 6500},
        {", mpiImplementation: Intel", "cluster.example.of.a.very.long.domain", 6500},
        {", runLauncherAsWorker: true", "cluster.example.of.a.very.long.domain", 7800},
    };
    size_t n_refused = 0;

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;
        const char *flaw;
        char bytes[64];
        size_t n;
        int rc = 0;

        read_job(&f, row[i].more, row[i].workers);
        n = config_rendered_size(f.job, row[i].domain);
        flaw = mpi_config_flaw(f.job, row[i].domain, &f.arena, &rc);
        assert_int_equal(rc, 0);
        assert_true((flaw != NULL) == (n > MPI_CONFIG_MAX));
        (void)snprintf(bytes, sizeof(bytes), "workers take %zu bytes", n);
        if (flaw)
            assert_non_null(strstr(flaw, bytes));
        n_refused += flaw != NULL;
    }
    assert_true(n_refused > 0 && n_refused < ARRAY_LEN(row));
}

UNIT_MAIN(NULL, NULL)
