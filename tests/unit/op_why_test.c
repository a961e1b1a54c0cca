/* SPDX-License-Identifier: Apache-2.0 */
/* Why a job does not run: one sentence for what its pods, the API server, the PodGroup and
 * Kueue say at once. */
#include "tests/unit/unit.h"

#include "operator/core/why.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"
#include "runtime/live/live_report.h"

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

static struct pod *row_pod(
    struct arena *a, const char *status, const char *hint, uint32_t i, bool is_bound)
{
    char *conditions = arena_alloc(a, POD_CONDITIONS_SIZE);
    struct pod *p = arena_alloc(a, sizeof(*p));
    char *json = arena_printf(
        a,
        "{'metadata':{'namespace':'ns','name':'j-worker-%u','uid':'u%u',"
        "'creationTimestamp':'1970-01-01T00:14:00Z'},'spec':{%s'containers':[{'name':"
        "'main'}],'initContainers':[{'name':'fetch'}]},'status':{%s}}",
        i, i, is_bound ? arena_printf(a, "'nodeName':'n%u',", i) : "", status);
    struct err err = ERR_INIT;
    struct node *object;

    /* ' stands for ", and " for \" */
    CLEANUP(strbuf_release) struct strbuf text = {0};
    strbuf_init(&text, 65536);
    for (const char *c = json; *c; c++)
        strbuf_puts(&text, *c == '\'' ? "\"" : *c == '"' ? "\\\"" : (char[]){*c, 0});
    if (json_read(a, strbuf_str(&text), text.n, &object, &err) < 0
        || pod_decode(KUBE_JOB, object, conditions, p, &err) < 0)
        fail_msg("%s: %s", strbuf_str(&text), err.text);
    if (hint)
        p->hint = arena_strdup(a, hint);
    p->role = ROLE_WORKER;
    return p;
}

static void row_check(const struct why_row *t)
{
    struct job_meta job = {.ns = "ns", .name = "j", .kueue_queue = ""};
    struct worker w[PODS] = {{.state = WORKER_ABSENT}};
    struct inquiry group = {.kind = KUBE_VOLCANO_GROUP};
    struct observed seen = {.crew[ROLE_WORKER] = {.w = w, .n = PODS},
                            .inquiry = &group};
    struct job_shape shape = {.n[ROLE_WORKER] = PODS};
    struct sync_outcome outcome = {.reason = "", .message = ""};
    struct why_query q = {.job = &job,
                          .seen = &seen,
                          .shape = &shape,
                          .outcome = &outcome,
                          .n_pods = PODS,
                          .is_gang = t->group != NULL,
                          .now_wall_s = NOW_S};
    CLEANUP(arena_release) struct arena a;
    struct why why, again;

    arena_init(&a, 1u << 20);
    for (uint32_t i = 0; i < PODS; i++) {
        if (!t->pod[i])
            continue;
        w[i].state = WORKER_SEEN;
        w[i].pod = row_pod(&a, t->pod[i], t->hint[i], i,
                           *t->pod[i] && !strstr(t->pod[i], "Unschedulable"));
        q.n_running += w[i].pod->phase == POD_RUNNING;
    }
    if (t->outcome)
        outcome = (struct sync_outcome){
            .trouble = TROUBLE_RETRY, .reason = "CreateFailed", .message = t->outcome};
    if (t->group) {
        group.result = INQUIRY_FOUND;
        group.asked_s = NOW_S - 10;
        (void)snprintf(group.text, sizeof(group.text), "%s", t->group);
    }
    assert_int_equal(why_not_running(&q, &a, &why), 0);
    if (strcmp(why.text, t->text) != 0 || why.first != t->first)
        fail_msg("%s\n  got:    %s (%d)\n  wanted: %s (%d)", t->name, why.text,
                 (int)why.first, t->text, (int)t->first);
    if (!strstr(why.text, why.detail))
        fail_msg("%s: the detail is not in the text: %s", t->name, why.detail);
    q.now_wall_s += 3600;
    assert_int_equal(why_not_running(&q, &a, &again), 0);
    if (strcmp(why.text, again.text) != 0)
        fail_msg("%s: an hour later: %s", t->name, again.text);
}

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

UNIT_TEST(the_first_obstacle_is_named_first)
{
    assert_true(ARRAY_LEN(rows) >= 40);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        row_check(&rows[i]);
}

/* A normal start passes through these in seconds. */
UNIT_TEST(a_wait_is_named_when_it_has_lasted)
{
    static const struct {
        const char *status;
        uint64_t since_s; /* of the wait */
    } t[] = {{"", 840},
             {CREATING, 900},
             {INIT("'running':{'startedAt':'1970-01-01T00:15:00Z'}"), 900}};

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(arena_release) struct arena a;
        struct job_meta job = {.ns = "ns", .name = "j"};
        struct sync_outcome outcome = {.reason = "", .message = ""};
        struct worker w = {.state = WORKER_SEEN};
        struct observed seen = {.crew[ROLE_WORKER] = {.w = &w, .n = 1}};
        struct job_shape shape = {.n[ROLE_WORKER] = 1};
        struct why_query q = {.job = &job,
                              .seen = &seen,
                              .shape = &shape,
                              .outcome = &outcome,
                              .n_pods = 1,
                              .now_wall_s = t[i].since_s + 19};
        struct why why;

        arena_init(&a, 1u << 20);
        w.pod = row_pod(&a, t[i].status, NULL, 0, *t[i].status);
        assert_int_equal(why_not_running(&q, &a, &why), 0);
        assert_string_equal(why.text, "0 of 1 workers run");
        if (!strstr(t[i].status, "Creating")) /* explain_next_s() has that one */
            assert_int_equal(why_next_s(&seen, q.now_wall_s), t[i].since_s + 20);
        q.now_wall_s++;
        assert_int_equal(why_not_running(&q, &a, &why), 0);
        assert_true(why.first != OBSTACLE_NONE);
        assert_int_equal(why_next_s(&seen, q.now_wall_s), 0);
    }
}

UNIT_TEST(a_suspended_job_names_kueue)
{
    static const struct {
        const char *queue;
        struct inquiry known;
        const char *text;
    } t[] = {
        {"", {0}, "the job is suspended by spec.runPolicy.suspend"},
        {"q",
         {0},
         "the job is suspended by spec.runPolicy.suspend; its label names Kueue's "
         "queue q"},
        {"q",
         {.kind = KUBE_WORKLOAD,
          .result = INQUIRY_FOUND,
          .asked_s = 100,
          .text = "the Workload in queue q is not admitted: no"},
         "suspended by Kueue: the Workload in queue q is not admitted: no"},
        {"q",
         {.kind = KUBE_WORKLOAD,
          .result = INQUIRY_FOUND,
          .asked_s = 99,
          .text = "of an earlier suspension"},
         "the job is suspended by spec.runPolicy.suspend; its label names Kueue's "
         "queue q"},
        {"q",
         {.kind = KUBE_WORKLOAD, .result = INQUIRY_ABSENT, .asked_s = 100},
         "the job is suspended by spec.runPolicy.suspend; Kueue has no Workload for "
         "it, "
         "though its label names queue q: does Kueue manage this kind of job?"},
        {"q",
         {.kind = KUBE_WORKLOAD, .result = INQUIRY_DENIED, .asked_s = 100},
         "the job is suspended by spec.runPolicy.suspend; its label names Kueue's "
         "queue q"},
        {"",
         {.kind = KUBE_WORKLOAD, .result = INQUIRY_FOUND, .asked_s = 100, .text = "x"},
         "the job is suspended by spec.runPolicy.suspend"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        CLEANUP(arena_release) struct arena a;
        struct job_meta job = {.name = "j", .kueue_queue = t[i].queue};

        arena_init(&a, 1u << 16);
        assert_string_equal(why_suspended(&job, &t[i].known, 100, &a), t[i].text);
    }
}

UNIT_TEST(agents_that_do_not_meet_are_counted)
{
    static const struct {
        enum live_state state;
        uint32_t n_present;
        uint64_t meeting_ms;
        bool is_named;
    } t[] = {{LIVE_MEETING, 7, 20000, true},
             {LIVE_MEETING, 7, 19999, false},
             {LIVE_MEETING, 8, 20000, false},
             {LIVE_TRAINING, 7, 20000, false}};
    struct job_meta job = {.name = "j"};
    CLEANUP(arena_release) struct arena a;

    arena_init(&a, 1u << 16);
    assert_string_equal(why_not_met(&job, NULL, &a), "");
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct live_report live = {.state = t[i].state,
                                   .n_workers = 8,
                                   .n_present = t[i].n_present,
                                   .times.meeting_ms = t[i].meeting_ms};

        assert_string_equal(why_not_met(&job, &live, &a),
                            t[i].is_named
                                ? "; only 7 of 8 agents have reached worker 0: see the "
                                  "logs of j-worker-*; DNS or a NetworkPolicy may stop "
                                  "them"
                                : "");
    }
}

UNIT_MAIN(NULL, NULL)
