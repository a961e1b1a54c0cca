/* SPDX-License-Identifier: Apache-2.0 */
/* What pods, the API server and a PodGroup say at once, and the sentence that op_why_test.c
 * expects for it. Include after cmocka.h. */
#ifndef TESTS_UNIT_OP_WHY_ROWS_H
#define TESTS_UNIT_OP_WHY_ROWS_H

#include "operator/core/why.h"

#define NOW_S 2000u
#define PODS  4
#define SINCE " (since 1970-01-01T00:15:00Z)" /* second 900 */
#define QUOTA                                                                          \
    "Pod j-worker-3: pods \"j-worker-3\" is forbidden: exceeded quota: team, "         \
    "requested: "                                                                      \
    "requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=16, limited: "           \
    "requests.nvidia.com/gpu=16"
#define QUOTA_WHY                                                                      \
    "the API server refuses worker 3's pod: quota team: requests.nvidia.com/gpu used " \
    "16 "                                                                              \
    "of 16, it needs 8"
#define NO_GPU "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
#define GATES  "Scheduling is blocked due to non-empty scheduling gates"
#define PULL                                                                           \
    "Back-off pulling image \"r/x:1\": ErrImagePull: rpc error: code = NotFound desc " \
    "= "                                                                               \
    "failed to pull and unpack image \"r/x:1\": r/x:1: not found"
#define MOUNT                                                                          \
    "MountVolume.SetUp failed for volume \"data\" : configmap \"data\" not found"

/* Status of a pod on node n<i>, bound at second 900, as JSON. */
#define SCHEDULED                                                                      \
    "{'type':'PodScheduled','status':'True','lastTransitionTime':'1970-01-01T00:15:"   \
    "00Z'}"
#define UNSCHEDULED(text)                                                              \
    "'conditions':[{'type':'PodScheduled','status':'False','reason':'Unschedulable',"  \
    "'message':'" text "'}]"
#define WAITS(reason, text)                                                            \
    "'conditions':[" SCHEDULED "],'containerStatuses':[{'name':'main','state':{"       \
    "'waiting':{'reason':'" reason "','message':'" text "'}}}]"
#define CREATING WAITS("ContainerCreating", "")
#define INIT(state)                                                                    \
    "'conditions':[" SCHEDULED                                                         \
    "],'initContainerStatuses':[{'name':'fetch','state':{" state                       \
    "}}],'containerStatuses':[{'name':'main','state':{'waiting':{'reason':"            \
    "'PodInitializing'}}}]"
#define RUNS                                                                           \
    "'phase':'Running','containerStatuses':[{'name':'main','state':{'running':{}}}]"

struct why_row {
    const char *name;
    const char *pod[PODS]; /* status; NULL: no such pod; "": no scheduler has set one */
    const char *hint[PODS]; /* of its Events */
    const char *outcome;    /* of CreateFailed */
    const char *group;      /* what Volcano's PodGroup says */
    enum obstacle first;
    const char *text;
};

/* What an hour changes is the threshold of a wait only: all waits here have lasted. */
static const struct why_row rows[] = {
    {"nothing is known", {0}, {0}, NULL, NULL, OBSTACLE_NONE, "0 of 4 workers run"},
    {"some run", {RUNS, RUNS}, {0}, NULL, NULL, OBSTACLE_NONE, "2 of 4 workers run"},
    /* refused */
    {"a quota",
     {RUNS, RUNS, RUNS},
     {0},
     QUOTA,
     NULL,
     OBSTACLE_REFUSED,
     "3 of 4 workers run; " QUOTA_WHY},
    {"the first pod", {0}, {0}, QUOTA, NULL, OBSTACLE_REFUSED, QUOTA_WHY},
    {"PodSecurity",
     {0},
     {0},
     "Pod j-worker-0: pods \"j-worker-0\" is forbidden: violates PodSecurity "
     "\"restricted:latest\": runAsNonRoot != true",
     NULL,
     OBSTACLE_REFUSED,
     "the API server refuses worker 0's pod: PodSecurity restricted:latest: "
     "runAsNonRoot "
     "!= true"},
    {"no answer",
     {0},
     {0},
     "Pod j-worker-0: no answer within 30 s",
     NULL,
     OBSTACLE_REFUSED,
     "worker 0's pod cannot be created: no answer within 30 s"},
    {"another object",
     {0},
     {0},
     "Service j: services is forbidden: User \"x\" cannot create resource \"services\"",
     NULL,
     OBSTACLE_REFUSED,
     "the API server refuses Service j: User \"x\" cannot create resource "
     "\"services\""},
    {"another object, no answer",
     {0},
     {0},
     "Secret j-token: no answer",
     NULL,
     OBSTACLE_REFUSED,
     "Secret j-token: no answer"},
    {"an MPIJob's launcher",
     {0},
     {0},
     "Job j-launcher: jobs.batch \"j-launcher\" is forbidden: exceeded quota: q",
     NULL,
     OBSTACLE_REFUSED,
     "the API server refuses the launcher's Job: quota q: exceeded"},
    {"a HorovodJob's launcher",
     {0},
     {0},
     "Pod j-launcher-0: pods \"j-launcher-0\" is forbidden: exceeded quota: q",
     NULL,
     OBSTACLE_REFUSED,
     "the API server refuses the launcher's pod: quota q: exceeded"},
    /* the scheduler */
    {"all wait",
     {UNSCHEDULED(NO_GPU), UNSCHEDULED(NO_GPU), UNSCHEDULED(NO_GPU),
      UNSCHEDULED(NO_GPU)},
     {0},
     NULL,
     NULL,
     OBSTACLE_SCHEDULER,
     "all 4 workers wait for the scheduler: 0/3 nodes are available: 3 Insufficient "
     "nvidia.com/gpu"},
    {"two wait",
     {RUNS, RUNS, UNSCHEDULED(NO_GPU), UNSCHEDULED(NO_GPU)},
     {0},
     NULL,
     NULL,
     OBSTACLE_SCHEDULER,
     "2 of 4 workers run; 2 workers wait for the scheduler: 0/3 nodes are available: 3 "
     "Insufficient nvidia.com/gpu"},
    {"one waits",
     {RUNS, RUNS, RUNS, UNSCHEDULED(NO_GPU)},
     {0},
     NULL,
     NULL,
     OBSTACLE_SCHEDULER,
     "3 of 4 workers run; worker 3 waits for the scheduler: 0/3 nodes are available: 3 "
     "Insufficient nvidia.com/gpu"},
    {"gates",
     {UNSCHEDULED(GATES), UNSCHEDULED(GATES)},
     {0},
     NULL,
     NULL,
     OBSTACLE_SCHEDULER,
     "2 workers wait for the scheduler: its scheduling gates are not removed"},
    {"each pod has its own claim",
     {UNSCHEDULED("waiting for ephemeral volume controller to create the "
                  "persistentvolumeclaim \"j-worker-0-tmp\""),
      UNSCHEDULED("waiting for ephemeral volume controller to create the "
                  "persistentvolumeclaim \"j-worker-1-tmp\"")},
     {0},
     NULL,
     NULL,
     OBSTACLE_SCHEDULER,
     "2 workers wait for the scheduler: PersistentVolumeClaim j-worker-0-tmp is not "
     "created yet"},
    {"a claim that does not exist",
     {UNSCHEDULED(
         "0/3 nodes are available: persistentvolumeclaim \"data\" not found. no "
         "new claims to deallocate")},
     {0},
     NULL,
     NULL,
     OBSTACLE_SCHEDULER,
     "worker 0 waits for the scheduler: PersistentVolumeClaim data does not exist"},
    {"no scheduler of that name",
     {"", ""},
     {0},
     NULL,
     NULL,
     OBSTACLE_SCHEDULER,
     "2 workers wait for the scheduler: none has considered it; see spec.schedulerName "
     "of "
     "the template"},
    {"two reasons",
     {UNSCHEDULED(NO_GPU), UNSCHEDULED("0/3 nodes are available: 3 "
                                       "Insufficient memory.")},
     {0},
     NULL,
     NULL,
     OBSTACLE_SCHEDULER,
     "worker 0 waits for the scheduler: 0/3 nodes are available: 3 Insufficient "
     "nvidia.com/gpu; worker 1 waits for the scheduler: 0/3 nodes are available: 3 "
     "Insufficient memory"},
    /* the gang */
    {"a PodGroup",
     {UNSCHEDULED("pod group is not ready, 4 minAvailable"), UNSCHEDULED(NO_GPU)},
     {0},
     NULL,
     "1 of 4 pods do not fit (Volcano: 3 Insufficient nvidia.com/gpu)",
     OBSTACLE_GROUP,
     "PodGroup j waits: 1 of 4 pods do not fit (Volcano: 3 Insufficient "
     "nvidia.com/gpu)"},
    {"a gang waits for a refused pod",
     {UNSCHEDULED(NO_GPU), UNSCHEDULED(NO_GPU)},
     {0},
     QUOTA,
     "2 of 4 pods do not fit",
     OBSTACLE_REFUSED,
     QUOTA_WHY},
    {"also if its PodGroup says nothing",
     {UNSCHEDULED(NO_GPU)},
     {0},
     QUOTA,
     "",
     OBSTACLE_REFUSED,
     QUOTA_WHY},
    {"without a gang it is another obstacle",
     {UNSCHEDULED(NO_GPU)},
     {0},
     QUOTA,
     NULL,
     OBSTACLE_REFUSED,
     QUOTA_WHY "; worker 0 waits for the scheduler: 0/3 nodes are available: 3 "
               "Insufficient nvidia.com/gpu"},
    {"the PodGroup says nothing",
     {UNSCHEDULED(NO_GPU)},
     {0},
     NULL,
     "",
     OBSTACLE_SCHEDULER,
     "worker 0 waits for the scheduler: 0/3 nodes are available: 3 Insufficient "
     "nvidia.com/gpu"},
    {"its pods have nodes",
     {CREATING},
     {MOUNT},
     NULL,
     "4 of 4 pods do not fit",
     OBSTACLE_VOLUME,
     "worker 0 (node n0) waits for volume data: configmap \"data\" not found" SINCE},
    /* volumes, network */
    {"a volume",
     {RUNS, CREATING},
     {NULL, MOUNT},
     NULL,
     NULL,
     OBSTACLE_VOLUME,
     "1 of 4 workers run; worker 1 (node n1) waits for volume data: configmap \"data\" "
     "not "
     "found" SINCE},
    {"only one pod was explained",
     {CREATING, CREATING, CREATING},
     {NULL, MOUNT},
     NULL,
     NULL,
     OBSTACLE_VOLUME,
     "worker 1 (node n1) waits for volume data: configmap \"data\" not found" SINCE},
    {"several were",
     {CREATING, CREATING},
     {MOUNT, MOUNT},
     NULL,
     NULL,
     OBSTACLE_VOLUME,
     "worker 0 (node n0) and 1 more wait for volume data: configmap \"data\" not "
     "found" SINCE},
    {"a network",
     {CREATING},
     {"Failed to create pod sandbox: rpc error: code = Unknown "
      "desc = failed to setup network: no plugin"},
     NULL,
     NULL,
     OBSTACLE_NETWORK,
     "worker 0 (node n0) gets no sandbox and network: failed to setup network: no "
     "plugin"},
    {"another Event",
     {CREATING},
     {"node is under pressure."},
     NULL,
     NULL,
     OBSTACLE_START,
     "worker 0 (node n0) cannot start container main: node is under pressure"},
    /* images */
    {"an image",
     {RUNS, WAITS("ImagePullBackOff", PULL)},
     {0},
     NULL,
     NULL,
     OBSTACLE_IMAGE,
     "1 of 4 workers run; worker 1 (node n1) cannot pull its image r/x:1: not found"},
    {"before and after the back-off",
     {WAITS("ImagePullBackOff", PULL),
      WAITS("ErrImagePull",
            "failed to pull and unpack image \"r/x:1\": r/x:1: not found")},
     {0},
     NULL,
     NULL,
     OBSTACLE_IMAGE,
     "worker 0 (node n0) and 1 more cannot pull the image r/x:1: not found"},
    {"no words",
     {WAITS("ErrImagePull", "")},
     {0},
     NULL,
     NULL,
     OBSTACLE_IMAGE,
     "worker 0 (node n0) cannot pull its image (ErrImagePull)"},
    {"the image of an init container",
     {INIT("'waiting':{'reason':'ImagePullBackOff','message':'" PULL "'}")},
     {0},
     NULL,
     NULL,
     OBSTACLE_IMAGE,
     "worker 0 (node n0) cannot pull the image of init container fetch, r/x:1: not "
     "found"},
    {"the status is newer than an Event",
     {WAITS("ErrImagePull", PULL)},
     {MOUNT},
     NULL,
     NULL,
     OBSTACLE_IMAGE,
     "worker 0 (node n0) cannot pull its image r/x:1: not found"},
    /* containers */
    {"a missing ConfigMap",
     {WAITS("CreateContainerConfigError", "configmap \"env\" not found")},
     {0},
     NULL,
     NULL,
     OBSTACLE_START,
     "worker 0 (node n0) cannot start container main: configmap \"env\" not found"},
    {"a missing program",
     {WAITS(
         "RunContainerError",
         "failed to create containerd task: failed to create shim task: OCI runtime "
         "create failed: runc create failed: unable to start container process: error "
         "during container init: exec: \"x\": executable file not found in $PATH: "
         "unknown")},
     {0},
     NULL,
     NULL,
     OBSTACLE_START,
     "worker 0 (node n0) cannot start container main: exec: \"x\": executable file not "
     "found in $PATH"},
    {"an init container that does not start",
     {INIT("'waiting':{'reason':'CreateContainerError','message':'no such file'}")},
     {0},
     NULL,
     NULL,
     OBSTACLE_START,
     "worker 0 (node n0) cannot start init container fetch: no such file"},
    {"it ends at once",
     {WAITS("CrashLoopBackOff", "back-off 10s restarting failed container=main"),
      WAITS("CrashLoopBackOff", "back-off 20s restarting failed container=main")},
     {0},
     NULL,
     NULL,
     OBSTACLE_START,
     "worker 0 (node n0) and 1 more cannot start container main: it ends again and "
     "again, "
     "see kubectl logs --previous"},
    /* progress */
    {"an init container runs",
     {INIT("'running':{'startedAt':'1970-01-01T00:15:00Z'}")},
     {0},
     NULL,
     NULL,
     OBSTACLE_INIT,
     "worker 0 (node n0) runs init container fetch" SINCE},
    {"volumes are set up",
     {CREATING, CREATING},
     {0},
     NULL,
     NULL,
     OBSTACLE_STARTING,
     "worker 0 (node n0) and 1 more are being started" SINCE
     ": its volumes and network are set up"},
    {"an image is pulled",
     {"'conditions':[" SCHEDULED
      ",{'type':'PodReadyToStartContainers','status':'True'}],"
      "'containerStatuses':[{'name':'main','state':{'waiting':{'reason':"
      "'ContainerCreating'}}}]"},
     {0},
     NULL,
     NULL,
     OBSTACLE_STARTING,
     "worker 0 (node n0) is being started" SINCE ": its image is pulled"},
    {"the kubelet is silent",
     {"'conditions':[" SCHEDULED "]"},
     {0},
     NULL,
     NULL,
     OBSTACLE_STARTING,
     "worker 0 (node n0) is being started" SINCE ": its kubelet has reported nothing"},
    /* several at once */
    {"progress is no obstacle beside one",
     {CREATING, INIT("'running':{'startedAt':'1970-01-01T00:15:00Z'}"),
      WAITS("ErrImagePull", PULL)},
     {0},
     NULL,
     NULL,
     OBSTACLE_IMAGE,
     "worker 2 (node n2) cannot pull its image r/x:1: not found"},
    {"the first in the chain is first",
     {WAITS("ErrImagePull", PULL), CREATING, UNSCHEDULED(NO_GPU)},
     {NULL, MOUNT},
     NULL,
     NULL,
     OBSTACLE_SCHEDULER,
     "worker 2 waits for the scheduler: 0/3 nodes are available: 3 Insufficient "
     "nvidia.com/gpu; worker 1 (node n1) waits for volume data: configmap \"data\" not "
     "found" SINCE "; 1 more waits for other reasons"},
    {"a refusal and an image",
     {RUNS, RUNS, WAITS("ErrImagePull", PULL)},
     {0},
     QUOTA,
     NULL,
     OBSTACLE_REFUSED,
     "2 of 4 workers run; " QUOTA_WHY
     "; worker 2 (node n2) cannot pull its image r/x:1: "
     "not found"},
    {"a failed pod does not wait",
     {"'phase':'Failed'," UNSCHEDULED(NO_GPU), UNSCHEDULED(NO_GPU)},
     {0},
     NULL,
     NULL,
     OBSTACLE_SCHEDULER,
     "worker 1 waits for the scheduler: 0/3 nodes are available: 3 Insufficient "
     "nvidia.com/gpu"},
};

#endif
