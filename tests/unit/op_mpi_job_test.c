/* SPDX-License-Identifier: Apache-2.0 */
/* MPIJobs: defaults, what is refused and with which sentence, whose they are. */
#include "tests/unit/unit.h"

#include "tests/unit/mpi_fixture.h"

#define META       "metadata: {name: demo, namespace: ns, uid: u}\n"
#define POD        "template: {spec: {containers: [{name: c, image: i}]}}"
#define SETS       "mpiReplicaSpecs: {Launcher: {" POD "}, Worker: {replicas: 2, " POD "}}"
#define SPEC(more) META "spec: {" SETS more "}"

UNIT_TEST(defaults_are_those_of_mpi_operator)
{
    CLEANUP(fixture_release) struct mpi_fixture f;

    fixture_start(&f, SPEC(""));
    assert_string_equal(strbuf_str(&f.problems), "");
    assert_null(f.job->flaws);
    assert_int_equal(f.job->slots, 1);
    assert_false(f.job->launcher_is_worker);
    assert_false(f.job->waits_for_workers);
    assert_false(f.job->is_suspended);
    assert_false(f.job->is_agent);
    assert_int_equal(f.job->implementation, MPI_OPENMPI);
    assert_int_equal(f.job->clean, MPI_CLEAN_NONE);
    assert_string_equal(f.job->ssh_path, MPI_ROOT_SSH_PATH);
    assert_null(f.job->managed_by);
    assert_int_equal(f.job->ttl_s, -1);
    assert_int_equal(f.job->deadline_s, -1);
    assert_int_equal(f.job->backoff_limit, -1);
    assert_int_equal(f.job->min_available, -1);
    assert_int_equal(f.job->schedule_timeout_s, -1);
    assert_string_equal(f.job->launcher.restart_policy, "OnFailure");
    assert_int_equal(f.job->launcher.n, 1);
    assert_string_equal(f.job->worker.restart_policy, "Never");
    assert_int_equal(f.job->worker.n, 2);
}

UNIT_TEST(all_set_fields_are_read)
{
    CLEANUP(fixture_release) struct mpi_fixture f;

    fixture_start(
        &f,
        "metadata:\n"
        "  name: demo\n"
        "  namespace: ns\n"
        "  uid: u\n"
        "  annotations: {ringmaster.dev/launch: agent, ringmaster.dev/ttl: job, "
        "ringmaster.dev/cleanup: launcher, other: x}\n"
        "spec: {slotsPerWorker: 0, runLauncherAsWorker: true, sshAuthMountPath: /s, "
        "launcherCreationPolicy: WaitForWorkersReady, mpiImplementation: MPICH, "
        "runPolicy: {cleanPodPolicy: All, ttlSecondsAfterFinished: 0, "
        "activeDeadlineSeconds: 9999999999, backoffLimit: 3, suspend: true, "
        "managedBy: kubeflow.org/mpi-operator, schedulingPolicy: {minAvailable: 0, "
        "queue: q, minResources: {cpu: 1}, priorityClass: p, "
        "scheduleTimeoutSeconds: 7}}, mpiReplicaSpecs: {Launcher: {restartPolicy: "
        "Never, replicas: 1, " POD "}, Worker: {restartPolicy: OnFailure, "
        "replicas: 3, " POD "}, Other: {ignored: true}}}");
    assert_string_equal(strbuf_str(&f.problems), "");
    assert_int_equal(f.job->slots, 0);
    assert_true(f.job->launcher_is_worker);
    assert_true(f.job->waits_for_workers);
    assert_true(f.job->is_suspended);
    assert_true(f.job->is_agent);
    assert_true(f.job->ttl_is_of_job);
    assert_true(f.job->must_clean_launcher);
    assert_int_equal(f.job->implementation, MPI_MPICH);
    assert_int_equal(f.job->clean, MPI_CLEAN_ALL);
    assert_string_equal(f.job->ssh_path, "/s");
    assert_int_equal(f.job->ttl_s, 0);
    assert_int_equal(f.job->deadline_s, 9999999999);
    assert_int_equal(f.job->backoff_limit, 3);
    assert_int_equal(f.job->min_available, 0);
    assert_int_equal(f.job->schedule_timeout_s, 7);
    assert_string_equal(f.job->queue, "q");
    assert_string_equal(f.job->priority_class, "p");
    assert_int_equal(node_int(f.job->min_resources, "cpu", 0), 1);
    assert_string_equal(f.job->launcher.restart_policy, "Never");
    assert_string_equal(f.job->worker.restart_policy, "OnFailure");
    assert_int_equal(f.job->worker.n, 3);
}

/* What CRD defaults and mpi-operator's own take for "not said". */
UNIT_TEST(empty_words_mean_defaults)
{
    CLEANUP(fixture_release) struct mpi_fixture f;

    fixture_start(&f,
                  META "spec: {sshAuthMountPath: '', mpiImplementation: '', "
                       "launcherCreationPolicy: '', runPolicy: {managedBy: ''}, "
                       "mpiReplicaSpecs: {Launcher: {restartPolicy: '', " POD "}}}");
    assert_string_equal(strbuf_str(&f.problems), "");
    assert_string_equal(f.job->ssh_path, MPI_ROOT_SSH_PATH);
    assert_int_equal(f.job->implementation, MPI_OPENMPI);
    assert_false(f.job->waits_for_workers);
    assert_string_equal(f.job->launcher.restart_policy, "OnFailure");
    assert_true(mpi_job_is_ours(&f.job->meta));
}

#define LAUNCHER   "spec.mpiReplicaSpecs.Launcher"
#define WORKER     "spec.mpiReplicaSpecs.Worker"
#define BOTH(l, w) META "spec: {mpiReplicaSpecs: {Launcher: {" l "}, Worker: {" w "}}}"

static const struct {
    const char *yaml, *problems;
} refused[] = {
    {META, "spec: missing\n"},
    {META "spec: 3", "spec: missing\n"},
    {META "unreadable: too deep\nspec: {}", "spec: too deep\n"},
    {META "spec: {}", "spec.mpiReplicaSpecs: missing\n"},
    {META "spec: {mpiReplicaSpecs: []}",
     "spec.mpiReplicaSpecs: must be an object, is an array\n"},
    {META "spec: {mpiReplicaSpecs: {Worker: {replicas: 1, " POD "}}}",
     LAUNCHER ": missing\n"},
    {BOTH("replicas: 2, " POD, "replicas: 1, " POD),
     LAUNCHER ".replicas: 2 is above 1\n"},
    {BOTH("replicas: 0, " POD, "replicas: 1, " POD),
     LAUNCHER ".replicas: 0 is below 1\n"},
    {BOTH(POD, "replicas: 0, " POD), WORKER ".replicas: 0 is below 1\n"},
    {BOTH(POD, "replicas: 8193, " POD), WORKER ".replicas: 8193 is above 8192\n"},
    {BOTH(POD, "replicas: '2', " POD),
     WORKER ".replicas: must be an integer, is a string\n"},
    {BOTH(POD, POD), WORKER ".replicas: missing: the number of workers\n"},
    {BOTH("restartPolicy: Always, " POD, "replicas: 1, " POD),
     LAUNCHER ".restartPolicy: \"Always\" is not one of Never, OnFailure\n"},
    {BOTH(POD, "replicas: 1, restartPolicy: ExitCode, " POD),
     WORKER ".restartPolicy: \"ExitCode\" is not one of Never, OnFailure\n"},
    {BOTH("replicas: 1", "replicas: 1, " POD), LAUNCHER ".template: missing\n"},
    {BOTH("template: {}", "replicas: 1, " POD), LAUNCHER ".template.spec: missing\n"},
    {BOTH("template: {spec: {}}", "replicas: 1, " POD),
     LAUNCHER ".template.spec.containers: must hold at least one container\n"},
    {BOTH("template: {spec: {containers: []}}", "replicas: 1, " POD),
     LAUNCHER ".template.spec.containers: must hold at least one container\n"},
    {BOTH("template: {spec: {containers: {}}}", "replicas: 1, " POD),
     LAUNCHER ".template.spec.containers: must be an array, is an object\n"},
    {BOTH("template: {metadata: {labels: []}, spec: {volumes: {}, dnsConfig: "
          "{searches: a}, containers: [{env: {}, command: sh, volumeMounts: 1}]}}",
          "replicas: 1, " POD),
     LAUNCHER
     ".template.metadata.labels: must be an object, is an array\n" LAUNCHER
     ".template.spec.volumes: must be an array, is an object\n" LAUNCHER
     ".template.spec.dnsConfig.searches: must be an array, is a string\n" LAUNCHER
     ".template.spec.containers[0].command: must be an array, is a string\n" LAUNCHER
     ".template.spec.containers[0].env: must be an array, is an object\n" LAUNCHER
     ".template.spec.containers[0].volumeMounts: must be an array, is an integer\n"},
    {SPEC(", slotsPerWorker: -1"), "spec.slotsPerWorker: -1 is below 0\n"},
    {SPEC(", slotsPerWorker: 4294967296"),
     "spec.slotsPerWorker: 4294967296 is above 2147483647\n"},
    {SPEC(", mpiImplementation: LAM"),
     "spec.mpiImplementation: \"LAM\" is not one of OpenMPI, Intel, MPICH\n"},
    {SPEC(", runLauncherAsWorker: 'true'"),
     "spec.runLauncherAsWorker: must be a boolean, is a string\n"},
    {SPEC(", runPolicy: {cleanPodPolicy: Some}"),
     "spec.runPolicy.cleanPodPolicy: \"Some\" is not one of None, Running, All\n"},
    {SPEC(", runPolicy: {ttlSecondsAfterFinished: -1}"),
     "spec.runPolicy.ttlSecondsAfterFinished: -1 is below 0\n"},
    {SPEC(", runPolicy: {activeDeadlineSeconds: -2}"),
     "spec.runPolicy.activeDeadlineSeconds: -2 is below 0\n"},
    {SPEC(", runPolicy: {backoffLimit: -3}"),
     "spec.runPolicy.backoffLimit: -3 is below 0\n"},
    {SPEC(", runPolicy: {schedulingPolicy: {minAvailable: -1, minResources: []}}"),
     "spec.runPolicy.schedulingPolicy.minAvailable: -1 is below 0\n"
     "spec.runPolicy.schedulingPolicy.minResources: must be an object, is an array\n"},
    {"metadata: {name: demo, namespace: ns, uid: u, annotations: "
     "{ringmaster.dev/launch: ssh, ringmaster.dev/ttl: 5, ringmaster.dev/cleanup: "
     "all}}\nspec: {" SETS "}",
     "metadata.annotations[ringmaster.dev/launch]: \"ssh\" is not agent\n"
     "metadata.annotations[ringmaster.dev/ttl]: \"an integer\" is not job\n"
     "metadata.annotations[ringmaster.dev/cleanup]: \"all\" is not launcher\n"},
    {"metadata: {name: 1demo, namespace: ns, uid: u}\nspec: {" SETS "}",
     "metadata.name: \"1demo\" must be lower-case letters, digits and '-', starting "
     "with a letter\n"},
    {"metadata: {name: de.mo, namespace: ns, uid: u}\nspec: {" SETS "}",
     "metadata.name: \"de.mo\" must be lower-case letters, digits and '-', starting "
     "with a letter\n"},
    {"metadata: {name: "
     "a2345678901234567890123456789012345678901234567890123456, namespace: ns, uid: "
     "u}\nspec: {" SETS "}",
     "metadata.name: \"a2345678901234567890123456789012345678901234567890123456\" is "
     "too long: the last worker would be named "
     "a2345678901234567890123456789012345678901234567890123456-worker-1, 65 "
     "characters, where Kubernetes allows 63\n"},
};

UNIT_TEST(each_problem_has_a_message_with_field_and_value)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;

        fixture_start(&f, refused[i].yaml);
        if (strcmp(strbuf_str(&f.problems), refused[i].problems) != 0)
            fail_msg("%s\ngives %s\nwanted %s", refused[i].yaml,
                     strbuf_str(&f.problems), refused[i].problems);
        assert_non_null(f.job->flaws);
    }
}

/* The longest name is one that the last worker's fits with. */
UNIT_TEST(longest_name_depends_on_workers)
{
    static const struct {
        int name, workers;
        bool is_fine;
    } row[] = {{54, 10, true},
               {55, 1, false},
               {54, 11, false},
               {53, 100, true},
               {53, 101, false}};

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;
        char yaml[512];

        (void)snprintf(
            yaml, sizeof(yaml),
            "metadata: {name: %.*s, namespace: n, uid: u}\n"
            "spec: {mpiReplicaSpecs: {Launcher: {" POD "}, Worker: {replicas: %d, " POD
            "}}}",
            row[i].name,
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            row[i].workers);
        fixture_start(&f, yaml);
        assert_int_equal(f.problems.n == 0, row[i].is_fine);
    }
}

UNIT_TEST(problems_are_joined_as_in_an_event)
{
    CLEANUP(fixture_release) struct mpi_fixture f;

    fixture_start(&f, SPEC(", slotsPerWorker: -1"));
    assert_string_equal(f.job->flaws, "Found validation errors: spec.slotsPerWorker: "
                                      "-1 is below 0");
    fixture_read(&f, SPEC(", slotsPerWorker: -1, mpiImplementation: X"));
    assert_string_equal(f.job->flaws,
                        "Found validation errors: [spec.slotsPerWorker: -1 is below 0, "
                        "spec.mpiImplementation: \"X\" is not one of OpenMPI, Intel, "
                        "MPICH]");
}

UNIT_TEST(long_messages_are_cut)
{
    CLEANUP(fixture_release) struct mpi_fixture f;
    char text[1100];
    const char *cut;

    fixture_init(&f);
    memset(text, 'x', sizeof(text));
    text[1024] = '\0';
    assert_string_equal(mpi_cut(&f.arena, text), text);
    text[1024] = 'x';
    text[1025] = '\0';
    cut = mpi_cut(&f.arena, text);
    assert_int_equal(strlen(cut), 1024);
    assert_string_equal(cut + 1021, "...");
    memcpy(text + 1020, "\xc3\xa4\xc3\xa4", 4); /* not within a character */
    cut = mpi_cut(&f.arena, text);
    assert_int_equal(strlen(cut), 1023);
    assert_string_equal(cut + 1019, "x...");
}

UNIT_TEST(managed_by_selects_the_controller)
{
    static const struct {
        const char *by;
        bool is_ours;
    } row[] = {{"kubeflow.org/mpi-operator", true},
               {"ringmaster.dev/hvd-operator", true},
               {"kueue.x-k8s.io/multikueue", false},
               {"kubeflow.org/mpi-operator2", false},
               {"other", false}};
    CLEANUP(fixture_release) struct mpi_fixture f;
    char yaml[1024];

    fixture_start(&f, SPEC(""));
    assert_true(mpi_job_is_ours(&f.job->meta));
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        (void)snprintf(yaml, sizeof(yaml), SPEC(", runPolicy: {managedBy: %s}"),
                       row[i].by);
        fixture_read(&f, yaml);
        assert_int_equal(mpi_job_is_ours(&f.job->meta), row[i].is_ours);
        assert_null(f.job->flaws); /* somebody else's is not validated */
    }
}

UNIT_MAIN(NULL, NULL)
