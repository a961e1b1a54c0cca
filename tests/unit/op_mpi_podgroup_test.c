/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of PodGroups: members, priority, queue, resources. The whole objects are in
 * tests/golden/mpi-objects.txt, their kinds in tests/golden/mpi-run/gang.txt. */
#include "tests/unit/unit.h"

#include "operator/core/mpi/mpi_podgroup.h"
#include "operator/doc/json.h"
#include "tests/unit/mpi_fixture.h"

/* A role: fields of its pod's spec, and its first container's resources. */
#define ROLE(spec, res)                                                                \
    "template: {spec: {containers: [{name: c, resources: {" res "}}]" spec "}}"
#define JOB(run, launcher, worker) JOB_WITH("", run, launcher, worker)
#define JOB_WITH(ann, run, launcher, worker)                                           \
    "metadata: {name: pi, namespace: lab, uid: u, annotations: {" ann "}}\n"           \
    "spec: {runPolicy: {schedulingPolicy: {" run                                       \
    "}}, mpiReplicaSpecs: {Launcher: {" launcher "}" worker "}}"
#define WORKERS(n, role) ", Worker: {replicas: " #n ", " role "}"
#define CPU(n)           "requests: {cpu: " #n "}"

static const struct {
    const char *what, *yaml;
    enum gang gang;
    bool has_launcher;
    const char *spec;
} row[] = {
    {"everything by default, Volcano", JOB("", ROLE("", ""), WORKERS(2, ROLE("", ""))),
     GANG_VOLCANO, true, "{minMember: 3, minResources: {}}"},
    {"everything by default, scheduler-plugins",
     JOB("", ROLE("", ""), WORKERS(2, ROLE("", ""))), GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 3, scheduleTimeoutSeconds: 0}"},
    {"no worker at all", JOB("", ROLE("", CPU(2)), ""), GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 1, scheduleTimeoutSeconds: 0, minResources: {cpu: '2'}}"},
    {"everything said, Volcano",
     JOB_WITH("scheduling.volcano.sh/queue-name: other",
              "minAvailable: 2, queue: q, priorityClass: p, scheduleTimeoutSeconds: 9, "
              "minResources: {cpu: 1.0Gi, x: 3}",
              ROLE(", priorityClassName: low", CPU(1)),
              WORKERS(2, ROLE("", CPU(1)))),
     GANG_VOLCANO, true,
     "{minMember: 2, queue: q, priorityClassName: p, minResources: {cpu: '1.0Gi', x: "
     "3}}"},
    {"everything said, scheduler-plugins",
     JOB("minAvailable: 2, queue: q, priorityClass: p, scheduleTimeoutSeconds: 9, "
         "minResources: {cpu: 3}",
         ROLE("", CPU(1)),
         WORKERS(2, ROLE("", CPU(1)))),
     GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 2, scheduleTimeoutSeconds: 9, minResources: {cpu: 3}}"},
    {"queue by annotation",
     JOB_WITH("scheduling.volcano.sh/queue-name: other",
              "",
              ROLE("", ""),
              WORKERS(1, ROLE("", ""))),
     GANG_VOLCANO, true, "{minMember: 2, queue: other, minResources: {}}"},
    {"the launcher's priority class comes before the worker's",
     JOB("",
         ROLE(", priorityClassName: low", ""),
         WORKERS(1, ROLE(", priorityClassName: high", ""))),
     GANG_VOLCANO, true, "{minMember: 2, priorityClassName: low, minResources: {}}"},
    {"the worker's priority class where there is no other",
     JOB("", ROLE("", ""), WORKERS(1, ROLE(", priorityClassName: high", ""))),
     GANG_VOLCANO, true, "{minMember: 2, priorityClassName: high, minResources: {}}"},
    {"nobody needed: no resources",
     JOB("minAvailable: 0", ROLE("", CPU(1)), WORKERS(2, ROLE("", CPU(1)))),
     GANG_VOLCANO, true, "{minMember: 0}"},
    {"sum over both roles",
     JOB("",
         ROLE("", "requests: {cpu: 500m, memory: 1Gi}"),
         WORKERS(3, ROLE("", "requests: {cpu: 2, memory: 1536Mi, nvidia.com/gpu: 8}"))),
     GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 4, scheduleTimeoutSeconds: 0, minResources: {cpu: '6500m', memory: "
     "'5632Mi', nvidia.com/gpu: '24'}}"},
    {"limits only where there is no request",
     JOB("",
         ROLE("", "requests: {cpu: 1}, limits: {cpu: 4, memory: 2Gi}"),
         WORKERS(1, ROLE("", "limits: {memory: 1Gi}"))),
     GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 2, scheduleTimeoutSeconds: 0, minResources: {cpu: '1', memory: "
     "'3Gi'}}"},
    {"containers alone, not what starts before them",
     JOB("",
         "template: {spec: {overhead: {cpu: 9}, initContainers: [{name: i, resources: "
         "{requests: {cpu: 9}}}], containers: [{name: a, resources: {requests: {cpu: "
         "1}}}, {name: b, resources: {requests: {cpu: 250m}}}, {name: c}]}}",
         ""),
     GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 1, scheduleTimeoutSeconds: 0, minResources: {cpu: '1250m'}}"},
    {"fewer than all: workers give way on a tie",
     JOB("minAvailable: 2", ROLE("", CPU(10)), WORKERS(4, ROLE("", CPU(1)))),
     GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 2, scheduleTimeoutSeconds: 0, minResources: {cpu: '11'}}"},
    {"fewer than all: unknown classes tie",
     JOB("minAvailable: 2",
         ROLE(", priorityClassName: unknown", CPU(10)),
         WORKERS(4, ROLE("", CPU(1)))),
     GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 2, scheduleTimeoutSeconds: 0, minResources: {cpu: '11'}}"},
    {"fewer than all: the worker is the lower",
     JOB("minAvailable: 3",
         ROLE(", priorityClassName: high", CPU(10)),
         WORKERS(4, ROLE(", priorityClassName: low", CPU(1)))),
     GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 3, scheduleTimeoutSeconds: 0, minResources: {cpu: '12'}}"},
    {"fewer than all: the launcher is the lower, and is counted so often",
     JOB("minAvailable: 3",
         ROLE(", priorityClassName: low", CPU(10)),
         WORKERS(4, ROLE(", priorityClassName: high", CPU(1)))),
     GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 3, scheduleTimeoutSeconds: 0, minResources: {cpu: '24'}}"},
    {"one of all: the workers are not counted",
     JOB("minAvailable: 1",
         ROLE("", CPU(10)),
         WORKERS(4, ROLE("", "requests: {memory: 1Gi}"))),
     GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 1, scheduleTimeoutSeconds: 0, minResources: {cpu: '10', memory: "
     "'0'}}"},
    {"more than all",
     JOB("minAvailable: 9", ROLE("", CPU(10)), WORKERS(4, ROLE("", CPU(1)))),
     GANG_SCHEDULER_PLUGINS, true,
     "{minMember: 9, scheduleTimeoutSeconds: 0, minResources: {cpu: '14'}}"},
    {"while the launcher waits it does not count",
     JOB("", ROLE("", CPU(10)), WORKERS(4, ROLE("", CPU(1)))), GANG_VOLCANO, false,
     "{minMember: 4, minResources: {cpu: '4'}}"},
    {"while the launcher waits, fewer than all workers",
     JOB("minAvailable: 3", ROLE("", CPU(10)), WORKERS(4, ROLE("", CPU(1)))),
     GANG_VOLCANO, false, "{minMember: 3, minResources: {cpu: '3'}}"},
    {"while the launcher waits, no more than the workers",
     JOB("minAvailable: 5", ROLE("", CPU(10)), WORKERS(4, ROLE("", CPU(1)))),
     GANG_VOLCANO, false, "{minMember: 4, minResources: {cpu: '4'}}"},
    {"what is no quantity is left out",
     JOB("",
         ROLE("", "requests: {cpu: many, memory: -1, x: [1]}"),
         WORKERS(1, ROLE("", CPU(1)))),
     GANG_VOLCANO, true, "{minMember: 2, minResources: {cpu: '1'}}"},
    {"a sum beyond all bounds stays where it is",
     JOB("", ROLE("", CPU(10E)), WORKERS(4, ROLE("", CPU(6E)))), GANG_VOLCANO, true,
     "{minMember: 5, minResources: {cpu: '10E'}}"},
};

UNIT_TEST(sizes_are_those_of_mpi_operator)
{
    struct priorities p = {0};

    assert_int_equal(priorities_put(&p, "low", 10), 0);
    assert_int_equal(priorities_put(&p, "high", 1000), 0);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;
        struct build b = {.arena = &f.arena};
        CLEANUP(strbuf_release) struct strbuf out;
        struct node *o, *want;

        fixture_start(&f, row[i].yaml);
        assert_null(f.job->flaws);
        strbuf_init(&out, 65536);
        o = mpi_pod_group(&b, f.job, row[i].gang, &p, row[i].has_launcher);
        json_write(node_get(o, "spec"), &out);
        assert_int_equal(
            yaml_read(&f.arena, row[i].spec, strlen(row[i].spec), &want, NULL), 0);
        if (!node_equal(node_get(o, "spec"), want))
            fail_msg("%s gives %s\nwanted %s", row[i].what, strbuf_str(&out),
                     row[i].spec);
    }
    priorities_release(&p);
}

UNIT_MAIN(NULL, NULL)
