/* SPDX-License-Identifier: Apache-2.0 */
/* What a HorovodJob's spec says: decoding with defaults, every sentence about what is
 * wrong, what is counted and derived. */
#include "tests/unit/unit.h"

#include "operator/core/hvd/hvd_devices.h"
#include "operator/core/hvd/hvd_elastic.h"
#include "operator/core/hvd/hvd_stored.h"
#include "runtime/base/mem.h"
#include "tests/unit/hvd_job_fixture.h"
#include "tests/unit/torture.h"

#define RULES "runPolicy: {failureRules: ["
#define PATH  "spec.replicaSpecs.Worker.template.spec.containers[0]"

UNIT_TEST(absent_fields_have_defaults)
{
    const struct hvd_run *run;
    CLEANUP(fixture_release) struct fixture f;

    open_good(&f, ROLES);
    run = &f.job.run;
    assert_int_equal(f.job.slots, 1);
    assert_int_equal(f.job.world_generation, 0);
    assert_int_equal(f.job.framework, FRAMEWORK_HOROVOD);
    assert_int_equal(f.job.success, SUCCESS_ALL_WORKERS);
    assert_int_equal(f.job.role[ROLE_WORKER].n, 1);
    for (int r = ROLE_LAUNCHER; r < ROLE_COUNT; r++) {
        assert_int_equal(f.job.role[r].n, 0);
        assert_false(f.job.role[r].is_set);
    }
    for (int k = 0; k < KNOB_COUNT; k++)
        assert_null(f.job.knob[k]);
    assert_null(f.job.shm_size);
    assert_null(f.job.rdma_resource);
    assert_int_equal(run->clean, CLEAN_RUNNING);
    assert_int_equal(run->ttl_s, -1);
    assert_int_equal(run->deadline_s, -1);
    assert_int_equal(run->backoff_limit, 0);
    assert_false(run->is_suspended);
    assert_null(run->managed_by);
    assert_int_equal(run->n_rules, 0);
    assert_false(run->scheduling.has_gang);
    assert_int_equal(run->scheduling.min_available, -1);
    assert_string_equal(run->scheduling.queue, "");
    assert_true(hvd_job_is_ours(&f.job));
}

UNIT_TEST(set_fields_are_read)
{
    const struct hvd_run *run;
    CLEANUP(fixture_release) struct fixture f;

    open_good(&f, TF ", runPolicy: {cleanPodPolicy: All, ttlSecondsAfterFinished: 0, "
                     "activeDeadlineSeconds: 1, backoffLimit: 1000, suspend: true, "
                     "managedBy: ringmaster.dev/hvd-operator, schedulingPolicy: {gang: "
                     "none, minAvailable: 3, queue: q, minResources: {cpu: 4}, "
                     "priorityClass: p, scheduleTimeoutSeconds: 5}}, successPolicy: "
                     "Worker0, shmSize: 1Gi, rdma: {resourceName: a/b}, " ROLES);
    run = &f.job.run;
    assert_int_equal(run->clean, CLEAN_ALL);
    assert_int_equal(run->ttl_s, 0);
    assert_int_equal(run->deadline_s, 1);
    assert_int_equal(run->backoff_limit, 1000);
    assert_true(run->is_suspended);
    assert_true(run->scheduling.has_gang);
    assert_int_equal(run->scheduling.gang, GANG_NONE);
    assert_int_equal(run->scheduling.min_available, 3);
    assert_int_equal(run->scheduling.schedule_timeout_s, 5);
    assert_string_equal(run->scheduling.queue, "q");
    assert_string_equal(run->scheduling.priority_class, "p");
    assert_int_equal(node_int(run->scheduling.min_resources, "cpu", 0), 4);
    assert_int_equal(f.job.success, SUCCESS_WORKER0);
    assert_string_equal(f.job.shm_size, "1Gi");
    assert_string_equal(f.job.rdma_resource, "a/b");
    assert_int_equal(f.job.rdma_count, 1);
    assert_true(hvd_job_is_ours(&f.job));
}

UNIT_TEST(the_world_is_that_of_the_stored_status)
{
    static const struct {
        const char *status;
        uint32_t generation;
    } t[] = {{"{}", 0},
             {"{generation: 7}", 7},
             {"{generation: -1}", 0},
             {"{generation: 4294967296}", 0},
             {"{generation: x}", 0}};

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(fixture_release) struct fixture f;

        open_job(&f, "d", ROLES, t[i].status);
        assert_int_equal(f.job.world_generation, t[i].generation);
    }
}

UNIT_TEST(a_job_of_another_controller_is_not_ours)
{
    CLEANUP(fixture_release) struct fixture f;

    open_good(&f, "runPolicy: {managedBy: kueue.x-k8s.io/multikueue}, " ROLES);
    assert_false(hvd_job_is_ours(&f.job));
}

/* Where MultiKueue sets it for kinds that it does not know. */
UNIT_TEST(the_controller_may_be_named_in_the_spec_itself)
{
    static const struct {
        const char *spec;
        bool is_ours;
    } t[] = {
        {"managedBy: kueue.x-k8s.io/multikueue, " ROLES, false},
        {"managedBy: ringmaster.dev/hvd-operator, " ROLES, true},
        {"managedBy: a.b/c, runPolicy: {managedBy: a.b/c}, " ROLES, false},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(fixture_release) struct fixture f;

        open_good(&f, t[i].spec);
        assert_int_equal(hvd_job_is_ours(&f.job), t[i].is_ours);
    }
}

UNIT_TEST(the_gpus_of_a_worker_are_its_slots)
{
    static const struct {
        const char *pod; /* of a spec, before containers */
        const char *resources;
        uint32_t n, claims, slots;
    } t[] = {
        {"", "{}", 0, 0, 1},
        {"", "{limits: {cpu: 64}}", 0, 0, 1},
        {"", "{limits: {nvidia.com/gpu: 8}}", 8, 0, 8},
        {"", "{limits: {nvidia.com/gpu: '8'}}", 8, 0, 8},
        {"", "{limits: {nvidia.com/gpu: 0}}", 0, 0, 1},
        {"", "{limits: {nvidia.com/gpu: 500m}}", 0, 0, 1},
        {"", "{limits: {nvidia.com/gpu: -1}}", 0, 0, 1},
        {"", "{limits: {nvidia.com/gpu: x}}", 0, 0, 1},
        {"", "{limits: {nvidia.com/gpu: 9223372036854775807}}", 0, 0, 1},
        {"", "{limits: [1, 2]}", 0, 0, 1},
        {"", "{requests: {amd.com/gpu: 2}}", 2, 0, 2},
        {"", "{requests: {amd.com/gpu: 2}, limits: {amd.com/gpu: 4}}", 4, 0, 4},
        {"", "{limits: {nvidia.com/mig-1g.5gb: 3, nvidia.com/mig-2g.10gb: 1}}", 4, 0,
         4},
        {"", "{limits: {gpu.intel.com/i915: 1}}", 0, 0, 1},
        {"resourceClaims: [{name: g}], ", "{claims: [{name: g}]}", 1, 1, 1},
        {"resourceClaims: [{name: g}, {name: h}], ",
         "{claims: [{name: g, request: a}, {name: g, request: b}, {name: h}]}", 3, 3,
         3},
        {"resourceClaims: [{name: g}], ", "{claims: [{name: other}, 5]}", 0, 0, 1},
        {"resourceClaims: [{name: g}], ",
         "{claims: [{name: g}], limits: {nvidia.com/gpu: 1}}", 2, 1, 2},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct devices d;
        CLEANUP(fixture_release) struct fixture f;
        char spec[512];

        (void)snprintf(spec, sizeof(spec),
                       "replicaSpecs: {Worker: {template: {spec: {%scontainers: "
                       "[{name: c, image: i, command: [x], resources: %s}, {name: "
                       "side, image: s, resources: {limits: {nvidia.com/gpu: 1}}}]}}}}",
                       t[i].pod, t[i].resources);
        open_good(&f, spec);
        d = devices_count(f.job.role[ROLE_WORKER].pod_template);
        if (d.n != t[i].n || d.n_claims != t[i].claims || f.job.slots != t[i].slots)
            fail_msg("%s: %llu GPUs, %u claims, %u slots", t[i].resources,
                     (unsigned long long)d.n, d.n_claims, f.job.slots);
    }
}

UNIT_TEST(rules_are_kept_in_order)
{
    const struct failure_rule *r;
    CLEANUP(fixture_release) struct fixture f;

    open_good(
        &f, RULES
        "{action: Fail, onExitCodes: {operator: NotIn, values: [1, 255]}}, "
        "{action: Restart, onSignals: [SIGKILL, 6, '15']}, "
        "{action: Ignore, onPodConditions: [{type: DisruptionTarget}, {type: Mine, "
        "status: 'False'}]}, "
        "{action: Restart, onReasons: [OOMKilled, Evicted]}]}, " ROLES);
    assert_int_equal(f.job.run.n_rules, 4);
    r = f.job.run.rule;
    assert_int_equal(r[0].action, RULE_FAIL);
    assert_int_equal(r[0].subject, RULE_EXIT_CODES);
    assert_true(r[0].is_not_in);
    assert_int_equal(r[0].n, 2);
    assert_int_equal(r[0].number[1], 255);
    assert_int_equal(r[1].action, RULE_RESTART);
    assert_int_equal(r[1].subject, RULE_SIGNALS);
    assert_int_equal(r[1].n, 3);
    assert_int_equal(r[1].number[0], SIGKILL);
    assert_int_equal(r[1].number[1], SIGABRT);
    assert_int_equal(r[1].number[2], SIGTERM);
    assert_int_equal(r[2].action, RULE_IGNORE);
    assert_int_equal(r[2].subject, RULE_POD_CONDITIONS);
    assert_string_equal(r[2].condition[0].type, "DisruptionTarget");
    assert_string_equal(r[2].condition[0].status, "True");
    assert_string_equal(r[2].condition[1].status, "False");
    assert_int_equal(r[3].subject, RULE_REASONS);
    assert_int_equal(r[3].n, 2);
    assert_string_equal(r[3].reason[1], "Evicted");
}

/* --- sentences ------------------------------------------------------------------- */

#define ELASTIC(min, max)                                                              \
    "elasticPolicy: {minReplicas: " #min ", maxReplicas: " #max "}, "
#define RULE "spec.runPolicy.failureRules[0]"

static const struct {
    const char *spec, *problem;
} wrong[] = {
    {"successPolicy: Most, " ROLES,
     "spec.successPolicy: \"Most\" is not one of AllWorkers, Worker0, Launcher"},
    {"successPolicy: Launcher, " ROLES,
     "spec.successPolicy: \"Launcher\" needs spec.replicaSpecs.Launcher"},
    {"framework: torch, " ROLES,
     "spec.framework: \"torch\" is not one of horovod, tensorflow"},
    {TF ", slotsPerWorker: 2, " ROLES,
     "spec.slotsPerWorker: 2 is not 1: with framework tensorflow each pod runs its "
     "command once, with all its GPUs"},
    {TF ", horovod: {autotune: true}, " ROLES,
     "spec.horovod: has no effect with framework tensorflow; remove it"},
    {TF ", replicaSpecs: {Worker: {" TEMPLATE "}, Launcher: {" TEMPLATE "}}",
     "spec.replicaSpecs.Launcher: is for framework horovod, and framework is "
     "tensorflow"},
    {"replicaSpecs: {Worker: {" TEMPLATE "}, PS: {" TEMPLATE "}}",
     "spec.replicaSpecs.PS: is for framework tensorflow, and framework is horovod"},
    {"replicaSpecs: {Worker: {" TEMPLATE "}, Chief: {replicas: 1, " TEMPLATE "}}",
     "spec.replicaSpecs.Chief.replicas: is unknown to this version of hvd-operator"},
    {"replicaSpecs: {Worker: {" TEMPLATE "}, Master: {" TEMPLATE "}}",
     "spec.replicaSpecs.Master: is unknown to this version of hvd-operator"},
    {"replicaSpecs: {Worker: {replicas: 8193, " TEMPLATE "}}",
     "spec.replicaSpecs.Worker.replicas: 8193 is above 8192"},
    {TF ", replicaSpecs: {Worker: {replicas: 8192, " TEMPLATE "}}",
     "do not fit into TF_CONFIG"},
    {"replicaSpecs: {}", "spec.replicaSpecs.Worker: missing"},
    {"replicaSpecs: {Worker: {" TEMPLATE "}, Launcher: {template: {spec: {containers: "
     "[{name: c, image: i}]}}}}",
     "spec.replicaSpecs.Launcher.template.spec.containers[0].command: missing: "},
    {"replicaSpecs: {Worker: {" TEMPLATE "}, Launcher: {" TEMPLATE "}}",
     PATH ".command: with a Launcher the workers run hvd-agent serve, and the launcher "
          "starts programs in them; remove it"},
    {"horovod: {metricsPort: 7171}, " ROLES,
     "spec.horovod.metricsPort: 7171 is a port of the agents; choose another than 7171 "
     "and 7172"},
    {"horovod: {metricsPort: 9100}, replicaSpecs: {Worker: {" TEMPLATE
     "}, Launcher: {" TEMPLATE "}}",
     "spec.horovod.metricsPort: has no effect with a Launcher"},
    {"successPolicy: Worker0, " ROLES,
     "spec.successPolicy: \"Worker0\" needs framework tensorflow"},
    {"successPolicy: AllWorkers, replicaSpecs: {Worker: {template: {spec: {containers: "
     "[{name: c, image: i}]}}}, Launcher: {" TEMPLATE "}}",
     "spec.successPolicy: must be Launcher with a Launcher: the workers finish only "
     "with the job"},
    {"slotsPerWorker: 4, replicaSpecs: {Worker: {template: {spec: {containers: "
     "[{name: c, image: i, command: [x], resources: {limits: {amd.com/gpu: 2}}}]}}}}",
     "spec.slotsPerWorker: 4 is above 2, the GPUs that a worker's first container "
     "requests"},
    {"replicaSpecs: {Worker: {template: {spec: {containers: [{name: c, image: i, "
     "command: [x], resources: {limits: {amd.com/gpu: 200}}}]}}}}",
     "spec.slotsPerWorker: missing; a worker has 200 GPUs, and its slots can be 1 to "
     "128"},
    {"shmSize: big, " ROLES, "spec.shmSize: "},
    {"shmSize: true, " ROLES,
     "spec.shmSize: must be a quantity, for example 16Gi, is a boolean"},
    {"shmSize: 1Gi, replicaSpecs: {Worker: {template: {spec: {containers: [{name: c, "
     "image: i, command: [x], volumeMounts: [{name: v, mountPath: /dev/shm}]}]}}}}",
     PATH ".volumeMounts[0].mountPath: \"/dev/shm\" is used by Ringmaster itself; "
          "choose another"},
    {"replicaSpecs: {Worker: {template: {spec: {volumes: {name: v}, containers: "
     "[{name: c, image: i, command: [x]}]}}}}",
     "spec.replicaSpecs.Worker.template.spec.volumes: must be an array, is an object"},
    {"replicaSpecs: {Worker: {template: {spec: {containers: [{name: c, image: i, "
     "command: [x], env: {A: b}}]}}}}",
     PATH ".env: must be an array, is an object"},
    {"rdma: {count: 65}, " ROLES, "spec.rdma.resourceName: missing; the name of"},
    {"rdma: {resourceName: a/b, count: 65}, " ROLES, "spec.rdma.count: 65 is above 64"},
    {"rdma: {resourceName: a/b}, replicaSpecs: {Worker: {template: {spec: {containers: "
     "[{name: c, image: i, command: [x], resources: {limits: {a/b: 1}}}]}}}}",
     PATH ".resources.limits: a/b is also added by spec.rdma; remove one of the two"},
    {"horovod: {fusionThresholdMB: -1}, " ROLES,
     "spec.horovod.fusionThresholdMB: -1 is below 0"},
    {"horovod: {cycleTimeMs: 10000.5}, " ROLES,
     "spec.horovod.cycleTimeMs: 10000.5 is not from 0 to 10000"},
    {"horovod: {autotune: 1}, " ROLES,
     "spec.horovod.autotune: must be true or false, is an integer"},
    {"horovod: {logLevel: DEBUG}, " ROLES,
     "spec.horovod.logLevel: \"DEBUG\" is not one of trace, debug, info, warning, "
     "error, fatal"},
    {"horovod: {timelineFilename: ''}, " ROLES,
     "spec.horovod.timelineFilename: is empty"},
    {"horovod: {startTimeoutSeconds: 0}, " ROLES,
     "spec.horovod.startTimeoutSeconds: 0 is below 1"},
    {"horovod: {speed: 1}, " ROLES,
     "spec.horovod.speed: is unknown to this version of hvd-operator"},
    {"runPolicy: {backoffLimit: 1001}, " ROLES,
     "spec.runPolicy.backoffLimit: 1001 is above 1000"},
    {"runPolicy: {activeDeadlineSeconds: 0}, " ROLES,
     "spec.runPolicy.activeDeadlineSeconds: 0 is below 1"},
    {"runPolicy: {suspend: 'yes'}, " ROLES,
     "spec.runPolicy.suspend: must be true or false, is a string"},
    {"runPolicy: {managedBy: ''}, " ROLES, "spec.runPolicy.managedBy: is empty"},
    {"managedBy: 5, " ROLES, "spec.managedBy: must be a string, is an integer"},
    {"managedBy: a.b/c, runPolicy: {managedBy: a.b/d}, " ROLES,
     "spec.managedBy: \"a.b/c\" and spec.runPolicy.managedBy, \"a.b/d\", differ; set "
     "one "
     "of them"},
    {"runPolicy: {schedulingPolicy: {gang: kube-batch}}, " ROLES,
     "spec.runPolicy.schedulingPolicy.gang: \"kube-batch\" is not one of none, "
     "volcano, scheduler-plugins"},
    {"runPolicy: {schedulingPolicy: {minResources: {cpu: lots}}}, " ROLES,
     "spec.runPolicy.schedulingPolicy.minResources.cpu: "},
    {RULES "5]}, " ROLES, RULE ": must be an object, is an integer"},
    {RULES "{onReasons: [A]}]}, " ROLES,
     RULE ".action: missing; Fail, Restart or Ignore"},
    {RULES "{action: Retry, onReasons: [A]}]}, " ROLES,
     RULE ".action: \"Retry\" is not one of Fail, Restart, Ignore"},
    {RULES "{action: Fail}]}, " ROLES,
     RULE ": must have exactly one of onExitCodes, onSignals, onPodConditions, "
          "onReasons, has 0"},
    {RULES "{action: Fail, onReasons: [A], onSignals: [SIGINT]}]}, " ROLES,
     RULE ": must have exactly one of onExitCodes, onSignals, onPodConditions, "
          "onReasons, has 2"},
    {RULES "{action: Fail, onExitCodes: {values: [1]}}]}, " ROLES,
     RULE ".onExitCodes.operator: missing; In or NotIn"},
    {RULES "{action: Fail, onExitCodes: {operator: In}}]}, " ROLES,
     RULE ".onExitCodes.values: missing"},
    {RULES "{action: Fail, onExitCodes: {operator: In, values: []}}]}, " ROLES,
     RULE ".onExitCodes.values: has 0 entries, needs at least 1"},
    {RULES "{action: Fail, onExitCodes: {operator: In, values: [0]}}]}, " ROLES,
     RULE ".onExitCodes.values[0]: must be an exit code from 1 to 255"},
    {RULES "{action: Fail, onSignals: [KILL]}]}, " ROLES,
     RULE ".onSignals[0]: KILL is not a signal; write a name, for example SIGKILL, or "
          "a number, 1 to 64"},
    {RULES "{action: Fail, onSignals: [65]}]}, " ROLES,
     RULE ".onSignals[0]: an integer is not a signal; "},
    {RULES "{action: Fail, onPodConditions: [{status: 'True'}]}]}, " ROLES,
     RULE ".onPodConditions[0].type: missing"},
    {RULES "{action: Fail, onPodConditions: [{type: A, status: Maybe}]}]}, " ROLES,
     RULE ".onPodConditions[0].status: \"Maybe\" is not one of True, False, Unknown"},
    {RULES "{action: Fail, onReasons: ['']}]}, " ROLES,
     RULE ".onReasons[0]: must be a word such as OOMKilled"},
    {RULES "{action: Fail, onReason: [A]}]}, " ROLES,
     RULE ".onReason: is unknown to this version of hvd-operator"},
    {"elasticPolicy: {}, " ROLES, "spec.elasticPolicy.minReplicas: missing"},
    {"elasticPolicy: {minReplicas: 1}, " ROLES,
     "spec.elasticPolicy.maxReplicas: missing"},
    {"elasticPolicy: {minReplicas: 0, maxReplicas: 1}, " ROLES,
     "spec.elasticPolicy.minReplicas: 0 is below 1"},
    {ELASTIC(3, 2) ROLES, "spec.elasticPolicy.minReplicas: 3 is above 2, maxReplicas"},
    {ELASTIC(2, 3) ROLES, "spec.replicaSpecs.Worker.replicas: 1 is below 2, "
                          "spec.elasticPolicy.minReplicas"},
    {ELASTIC(1, 3) "replicaSpecs: {Worker: {replicas: 4, " TEMPLATE "}}",
     "spec.replicaSpecs.Worker.replicas: 4 is above 3, spec.elasticPolicy.maxReplicas"},
    {"elasticPolicy: {minReplicas: 1, maxReplicas: 8192, spares: 1}, " ROLES,
     "spec.elasticPolicy.spares: 1 and maxReplicas, 8192, are more than 8192 workers "
     "together"},
    {"slotsPerWorker: 16, elasticPolicy: {minReplicas: 1, maxReplicas: 4096, spares: "
     "1}, " ROLES,
     "spec.elasticPolicy.maxReplicas: 4096 and spares, 1, of 16 slots are more than "
     "the 65536 ranks of an elastic job"},
    {"elasticPolicy: {minReplicas: 1, maxReplicas: 2, maxRestart: 1}, " ROLES,
     "spec.elasticPolicy.maxRestart: is unknown to this version of hvd-operator"},
    {TF ", " ELASTIC(1, 2) ROLES, "spec.elasticPolicy: is for framework horovod, and "
                                  "framework is tensorflow"},
    {"successPolicy: AllWorkers, " ELASTIC(1, 2) ROLES,
     "spec.successPolicy: must be Launcher with elasticPolicy: the job ends with the "
     "launcher pod that the operator adds"},
    {ELASTIC(1, 2) "replicaSpecs: {Worker: {template: {spec: {containers: [{name: c, "
                   "image: i}]}}}}",
     PATH ".command: missing"},
    {ELASTIC(1, 2) "replicaSpecs: {Worker: {" TEMPLATE "}, Launcher: {" TEMPLATE "}}",
     PATH ".command: with a Launcher the workers run hvd-agent serve"},
    {ELASTIC(1, 2) "replicaSpecs: {Worker: {template: {spec: {containers: [" C
                   "], volumes: [{name: ringmaster-world}]}}}}",
     "volumes[0].name: \"ringmaster-world\" is used by Ringmaster itself"},
    {ELASTIC(1, 2) "replicaSpecs: {Worker: {template: {spec: {containers: [{name: c, "
                   "image: i}]}}}, Launcher: {template: {spec: {containers: [{name: c, "
                   "image: i, command: [x], env: [{name: HVD_WORLD_FILE}]}]}}}}",
     "Launcher.template.spec.containers[0].env[0].name: HVD_WORLD_FILE is set by the "
     "operator; remove it"},
};

UNIT_TEST(each_problem_has_a_message)
{
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        CLEANUP(fixture_release) struct fixture f;

        open_job(&f, "d", wrong[i].spec, NULL);
        if (!strstr(strbuf_str(&f.problems), wrong[i].problem))
            fail_msg("%s: says \"%s\"", wrong[i].spec, strbuf_str(&f.problems));
    }
}

UNIT_TEST(an_elastic_job_has_bounds_and_a_launcher)
{
    struct fixture f;

    open_good(&f, ELASTIC(1, 2) ROLES);
    assert_true(f.job.elastic.is_set);
    assert_int_equal(f.job.elastic.min, 1);
    assert_int_equal(f.job.elastic.max, 2);
    assert_int_equal(f.job.elastic.spares, 0);
    assert_int_equal(f.job.elastic.max_restarts, -1);
    assert_int_equal(f.job.elastic.reset_limit, -1);
    assert_true(f.job.elastic.makes_launcher);
    assert_int_equal(f.job.role[ROLE_LAUNCHER].n, 1);
    assert_int_equal(f.job.success, SUCCESS_LAUNCHER);
    fixture_release(&f);
    open_good(&f,
              "elasticPolicy: {minReplicas: 2, maxReplicas: 9, spares: 3, "
              "maxRestarts: 0, resetLimit: 5}, replicaSpecs: {Worker: {replicas: 2, "
              "template: {spec: {containers: [{name: c, image: i}]}}}, Launcher: "
              "{" TEMPLATE "}}");
    assert_int_equal(f.job.elastic.spares, 3);
    assert_int_equal(f.job.elastic.max_restarts, 0);
    assert_int_equal(f.job.elastic.reset_limit, 5);
    assert_false(f.job.elastic.makes_launcher);
    assert_int_equal(hvd_most_workers(&f.job), 12);
    fixture_release(&f);
    open_good(&f, ROLES);
    assert_false(f.job.elastic.is_set);
    assert_int_equal(hvd_most_workers(&f.job), 1);
    fixture_release(&f);
}

UNIT_TEST(the_size_of_an_elastic_job_is_with_its_spares)
{
    static const struct {
        const char *status;
        uint32_t pods, wanted;
    } t[] = {{"{}", 3, 2},
             {"{state: Running, generation: 2, workerReplicas: 4}", 5, 2},
             {"{state: Suspended, generation: 2, workerReplicas: 0}", 3, 2}};

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(fixture_release) struct fixture f;

        open_job(&f, "d",
                 "elasticPolicy: {minReplicas: 1, maxReplicas: 9, spares: 1}, "
                 "replicaSpecs: {Worker: {replicas: 2, " TEMPLATE "}}",
                 t[i].status);
        hvd_stored_apply(&f.job, false);
        assert_int_equal(f.job.role[ROLE_WORKER].n, t[i].pods);
        assert_int_equal(f.job.spec_workers, t[i].wanted);
    }
}

UNIT_TEST(retired_workers_are_read_if_they_are_complete)
{
    struct hvd_retired r;
    CLEANUP(fixture_release) struct fixture f;

    open_job(
        &f, "d", ROLES,
        "{retiredWorkers: [{index: 1, node: a, count: 2}, {index: -1, node: a, "
        "count: 2}, {index: 2, count: 2}, {index: 3, node: a, count: 0}, {node: a, "
        "count: 2}, 7, {index: 4, node: b, count: 1}]}");
    hvd_retired_read(f.job.meta.status, &r);
    assert_int_equal(r.n, 2);
    assert_string_equal(hvd_retired_node(&r, 1), "a");
    assert_null(hvd_retired_node(&r, 4)); /* not yet */
    assert_null(hvd_retired_node(&r, 5));
    hvd_retired_read(NULL, &r);
    assert_int_equal(r.n, 0);
}

UNIT_TEST(the_worker_that_has_retired_first_is_forgotten)
{
    struct hvd_retired r = {.n = 0};

    for (uint32_t i = 0; i < 2 * (HVD_RETIRED_MAX + 1); i++)
        hvd_retired_add(&r, i / 2, "a");
    assert_int_equal(r.n, HVD_RETIRED_MAX);
    assert_null(hvd_retired_node(&r, 0));
    assert_string_equal(hvd_retired_node(&r, 1), "a");
    assert_string_equal(hvd_retired_node(&r, HVD_RETIRED_MAX), "a");
    hvd_retired_add(&r, 1, "b");
    assert_null(hvd_retired_node(&r, 1)); /* another node */
}

UNIT_TEST(two_thousand_workers_fit_into_tf_config)
{
    CLEANUP(fixture_release) struct fixture f;

    open_good(&f, TF ", replicaSpecs: {Worker: {replicas: 2000, " TEMPLATE "}}");
}

UNIT_TEST(names_are_as_long_as_the_longest_role)
{
    char name[64] = {0};
    struct fixture f;

    memset(name, 'a', 54); /* and "-worker-0" make 63 */
    open_job(&f, name, ROLES, NULL);
    assert_string_equal(strbuf_str(&f.problems), "");
    fixture_release(&f);
    open_job(&f, name,
             "replicaSpecs: {Worker: {template: {spec: {containers: [{name: c, image: "
             "i}]}}}, Launcher: {" TEMPLATE "}}",
             NULL);
    assert_non_null(
        strstr(strbuf_str(&f.problems), "the last launcher would be named"));
    fixture_release(&f);
}

UNIT_TEST(too_many_rules_are_refused)
{
    CLEANUP(strbuf_release) struct strbuf text;
    CLEANUP(fixture_release) struct fixture f;

    strbuf_init(&text, 65536);
    strbuf_puts(&text, RULES);
    for (int i = 0; i < JOB_MAX_RULES + 1; i++)
        strbuf_puts(&text, "{action: Fail, onReasons: [A]}, ");
    strbuf_puts(&text, "]}, " ROLES);
    open_job(&f, "d", strbuf_str(&text), NULL);
    assert_string_equal(strbuf_str(&f.problems),
                        "spec.runPolicy.failureRules: has 21 entries, 20 are "
                        "allowed\n");
}

static int decode_once(void *arg)
{
    struct job_meta meta = {.kind = KUBE_JOB, .ns = "ns", .name = "d", .uid = "u"};
    struct strbuf problems;
    struct arena a;
    struct hvd_job job;
    int rc;

    arena_init(&a, 1u << 20);
    strbuf_init(&problems, 65536);
    hvd_job_init(&job, &meta);
    rc = hvd_decode_spec(arg, &a, &job, &problems);
    if (rc == 0)
        rc = strbuf_status(&problems);
    strbuf_release(&problems);
    arena_release(&a);
    return rc;
}

UNIT_TEST(out_of_memory_is_reported)
{
    CLEANUP(arena_release) struct arena a;

    arena_init(&a, 1u << 20);
    torture(decode_once,
            read_yaml(&a,
                      "spec: {shmSize: 5, horovod: {cycleTimeMs: 0.5, cacheCapacity: "
                      "1}, " RULES "{action: Fail, onSignals: [9]}, {action: Fail, "
                      "onReasons: [A]}]}, " ROLES "}\n"));
}

UNIT_MAIN(NULL, NULL)
