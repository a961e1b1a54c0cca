/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of an MPIJob. tests/golden/mpi-objects.txt (tests/unit/golden.h) has whole
 * jobs; member config: {gang: volcano | scheduler-plugins, scheduler: name, domain:
 * name} is of the operator's. */
#include "tests/unit/unit.h"

#include "operator/core/mpi/mpi_objects.h"
#include "operator/core/mpi/mpi_pods.h"
#include "operator/core/mpi/mpi_podgroup.h"
#include "tests/unit/golden.h"
#include "tests/unit/mpi_fixture.h"

static const struct object_config plain_cfg = {.runtime_image = "r",
                                               .cluster_domain = ""};

static struct object_config objects_read_config(const struct node *o)
{
    struct object_config cfg = {
        .runtime_image = "runtime:1", .cluster_domain = "", .gang_scheduler = ""};
    const char *gang = node_str(o, "config.gang");

    if (gang) {
        cfg.gang = strcmp(gang, "volcano") == 0 ? GANG_VOLCANO : GANG_SCHEDULER_PLUGINS;
        cfg.gang_scheduler = node_str(o, "config.scheduler");
    }
    if (node_str(o, "config.domain"))
        cfg.cluster_domain = node_str(o, "config.domain");
    return cfg;
}

static void
objects_run_case(void *arg, const char *name, const char *input, struct strbuf *out)
{
    CLEANUP(fixture_release) struct mpi_fixture f;
    struct build b = {.arena = &f.arena};
    struct object_config cfg;
    struct secrets secrets = {.ssh_private = "private\n", .ssh_public = "public\n"};
    struct node *all;

    fixture_start(&f, input);
    cfg = objects_read_config(f.object);
    if (f.job->flaws)
        fail_msg("%s: %s", name, f.job->flaws);
    all = node_array(&b);
    memset(secrets.token, 0xab, sizeof(secrets.token));
    node_add(&b, all, mpi_service(&b, f.job));
    node_add(&b, all, mpi_config_map(&b, f.job, "hosts\n", "script\n"));
    node_add(&b, all, mpi_secret(&b, f.job, &secrets));
    if (f.job->worker.n > 0)
        node_add(&b, all, mpi_worker(&b, f.job, &cfg, f.job->worker.n - 1));
    node_add(&b, all, mpi_launcher(&b, f.job, &cfg));
    if (cfg.gang != GANG_NONE)
        node_add(&b, all, mpi_pod_group(&b, f.job, cfg.gang, NULL, true));
    assert_int_equal(b.status, 0);
    golden_objects(arg, name, all, out);
}

UNIT_TEST(objects_are_as_in_the_golden_file)
{
    golden_objects_file("tests/golden/mpi-objects.txt", objects_run_case);
}

/* --- resuming -------------------------------------------------------------------- */

#define JOB(meta, spec)                                                                \
    "metadata: {name: pi, namespace: lab, uid: u}\n"                                   \
    "spec: {mpiReplicaSpecs: {Launcher: {template: {metadata: {" meta                  \
    "}, spec: {containers: [{name: c, image: i}]" spec "}}}}}"
#define LABELS                                                                         \
    "\"training.kubeflow.org/operator-name\":\"mpi-operator\","                        \
    "\"training.kubeflow.org/job-name\":\"pi\","                                       \
    "\"training.kubeflow.org/job-role\":\"launcher\""

UNIT_TEST(resume_brings_scheduling_directives)
{
    static const struct object_config cfg = {.cluster_domain = ""};
    static const struct {
        const char *yaml, *patch;
        bool must_clear;
    } row[] = {
        {JOB("", ""),
         "{\"spec\":{\"template\":{\"metadata\":{\"labels\":{" LABELS
         "}},\"spec\":{\"nodeSelector\":null,\"tolerations\":null,"
         "\"schedulingGates\":null}},\"suspend\":false}}",
         false},
        {JOB("labels: {foo: bar}, annotations: {a: b}",
             ", nodeSelector: {n: x}, tolerations: [{key: t}], schedulingGates: "
             "[{name: g}], affinity: {podAffinity: {}}"),
         "{\"spec\":{\"template\":{\"metadata\":{\"labels\":{\"foo\":\"bar\"," LABELS
         "},\"annotations\":{\"a\":\"b\"}},\"spec\":{\"nodeSelector\":{\"n\":\"x\"},"
         "\"tolerations\":[{\"key\":\"t\"}],\"schedulingGates\":[{\"name\":\"g\"}]}},"
         "\"suspend\":false}}",
         true},
    };

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;
        struct build b = {.arena = &f.arena};
        CLEANUP(strbuf_release) struct strbuf out;
        bool must_clear = !row[i].must_clear;

        strbuf_init(&out, 65536);
        fixture_start(&f, row[i].yaml);
        json_write(mpi_launcher_resume(&b, f.job, &cfg, &must_clear), &out);
        assert_string_equal(strbuf_str(&out), row[i].patch);
        assert_int_equal(must_clear, row[i].must_clear);
    }
}

/* --- sshd and the agent ---------------------------------------------------------- */

UNIT_TEST(sshd_is_what_the_agent_replaces)
{
#define WORKER(launch, words)                                                          \
    "metadata: {name: pi, namespace: lab, uid: u, annotations: {" launch               \
    "}}\nspec: {mpiReplicaSpecs: {Launcher: {template: {spec: {containers: [{name: "   \
    "c}]}}}, Worker: {replicas: 1, template: {spec: {containers: [{name: c" words      \
    "}]}}}}}"
#define AGENT "ringmaster.dev/launch: agent"
#define SERVE "[\"/opt/ringmaster/bin/hvd-agent\",\"serve\"]null"
    static const struct {
        const char *yaml, *words; /* command and args that come out */
    } row[] = {
        {WORKER("", ""), "[\"/usr/sbin/sshd\",\"-De\"]null"},
        {WORKER("", ", command: [], args: []"), "[\"/usr/sbin/sshd\",\"-De\"]null"},
        {WORKER("", ", args: [-x]"), "null[\"-x\"]"},
        {WORKER("", ", command: [/usr/sbin/sshd, -De]"),
         "[\"/usr/sbin/sshd\",\"-De\"]null"},
        {WORKER(AGENT, ""), SERVE},
        {WORKER(AGENT, ", command: [sshd, -D]"), SERVE},
        {WORKER(AGENT, ", command: [/usr/sbin/sshd], args: [-De, -f, x]"), SERVE},
        {WORKER(AGENT, ", args: [/usr/sbin/sshd, -De]"), SERVE},
        {WORKER(AGENT, ", command: [sh, -c, sshd]"), "[\"sh\",\"-c\",\"sshd\"]null"},
        {WORKER(AGENT, ", command: [/sshd/run]"), "[\"/sshd/run\"]null"},
        {WORKER(AGENT, ", args: [serve]"), "null[\"serve\"]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;
        struct build b = {.arena = &f.arena};
        CLEANUP(strbuf_release) struct strbuf out;
        const struct node *c;

        strbuf_init(&out, 65536);
        fixture_start(&f, row[i].yaml);
        c = node_item(node_at(mpi_worker(&b, f.job, &plain_cfg, 0), "spec.containers"),
                      0);
        json_write(node_get(c, "command") ? node_get(c, "command") : node_null(&b),
                   &out);
        json_write(node_get(c, "args") ? node_get(c, "args") : node_null(&b), &out);
        assert_string_equal(strbuf_str(&out), row[i].words);
    }
}

UNIT_TEST(the_launcher_uses_the_port_of_the_workers)
{
#define PORTS(launcher, worker)                                                        \
    "metadata: {name: pi, namespace: lab, uid: u, annotations: {" AGENT                \
    "}}\nspec: {mpiReplicaSpecs: {Launcher: {template: {spec: {containers: [{name: "   \
    "c" launcher "}]}}}, Worker: {replicas: 1, template: {spec: {" worker "}]}}}}}"
#define SET       ", env: [{name: HVD_AGENT_PORT, value: '7'}]"
#define HOST_PORT "[{\"containerPort\":7,\"hostPort\":7}]"
    static const struct {
        const char *yaml, *launcher; /* the launcher's variable; NULL: none */
        const char *ports;           /* of the worker's container */
    } row[] = {
        {PORTS("", "containers: [{name: c"), NULL, NULL},
        {PORTS("", "containers: [{name: c" SET), "7", NULL},
        {PORTS(SET, "containers: [{name: c"), "7", NULL},
        {PORTS("", "hostNetwork: true, containers: [{name: c" SET), "7", HOST_PORT},
        {PORTS("", "hostNetwork: true, containers: [{name: c, ports: "
                   "[{containerPort: 7, hostPort: 7}]" SET),
         "7", HOST_PORT},
        {PORTS("", "hostNetwork: true, containers: [{name: c, env: [{name: "
                   "HVD_AGENT_PORT, value: x}]"),
         "x", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;
        struct build b = {.arena = &f.arena};
        const struct node *worker, *launcher;
        CLEANUP(strbuf_release) struct strbuf out;

        strbuf_init(&out, 65536);
        fixture_start(&f, row[i].yaml);
        launcher = node_item(node_at(mpi_launcher(&b, f.job, &plain_cfg),
                                     "spec.template.spec.containers"),
                             0);
        worker = node_item(
            node_at(mpi_worker(&b, f.job, &plain_cfg, 0), "spec.containers"), 0);
        launcher = node_with(node_get(launcher, "env"), "name", "HVD_AGENT_PORT");
        if (row[i].launcher)
            assert_string_equal(node_str(launcher, "value"), row[i].launcher);
        else
            assert_null(launcher);
        if (node_get(worker, "ports"))
            json_write(node_get(worker, "ports"), &out);
        assert_string_equal(strbuf_str(&out), row[i].ports ? row[i].ports : "");
    }
}

UNIT_MAIN(NULL, NULL)
