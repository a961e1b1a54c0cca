/* SPDX-License-Identifier: Apache-2.0 */
/* Pod object -> struct pod.
 *
 * The agent is the main process of container 0 and writes the first failure of the job
 * into its termination message. The end of one container counts:
 *   1. while container 0 has not ended, that of an init container that failed
 *   2. that of container 0, if it failed
 *   3. that of another container that failed
 *   4. that of container 0
 * Restartable init containers (sidecars) never count. The pod as a whole may also be
 * ended by the kubelet (status.reason "Evicted") or by the control plane (condition
 * DisruptionTarget). Texts are bounded by POD_TEXT_MAX. Pure; called by the store and
 * by the golden tests. */
#include "operator/core/pod.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/inject.h"
#include "operator/core/labels.h"
#include "operator/core/timestamp.h"
#include "operator/core/texts.h"
#include "operator/doc/object.h"
#include "runtime/base/mem.h"
#include "runtime/contract/job_world.h"

#define MAX_INDEX 8192u /* of a pod within its role, exclusive */
#define LATE_S    10    /* beyond the grace period: kubelets and watches take a while */

/* What pod_decode reads, and no more: parsing the rest was a quarter of the operator's
 * processor time (tests/bench, 200 jobs of 8 workers). */
static const struct prune_rule label_rules[] = {
    PRUNE_KEEP(LABEL_JOB_NAME),     PRUNE_KEEP(LABEL_JOB_ROLE),
    PRUNE_KEEP(LABEL_GENERATION),   PRUNE_KEEP(MPI_LABEL_JOB_NAME),
    PRUNE_KEEP(MPI_LABEL_JOB_ROLE), PRUNE_END};
static const struct prune_rule annotation_rules[] = {PRUNE_KEEP(ANNOTATION_WORLD),
                                                     PRUNE_END};
static const struct prune_rule metadata_rules[] = {
    PRUNE_KEEP("name"),
    PRUNE_KEEP("namespace"),
    PRUNE_KEEP("uid"),
    PRUNE_KEEP("creationTimestamp"),
    PRUNE_KEEP("deletionTimestamp"),
    PRUNE_KEEP("deletionGracePeriodSeconds"),
    PRUNE_KEEP("finalizers"),
    {.key = "labels", .inner = label_rules},
    {.key = "annotations", .inner = annotation_rules},
    {.key = "ownerReferences", .inner = owner_rules},
    PRUNE_END};
static const struct prune_rule container_rules[] = {
    PRUNE_KEEP("name"), PRUNE_KEEP("restartPolicy"), PRUNE_END};
static const struct prune_rule init_rules[] = {
    PRUNE_KEEP("name"), PRUNE_KEEP("restartPolicy"), PRUNE_KEEP("image"), PRUNE_END};
static const struct prune_rule spec_rules[] = {
    PRUNE_KEEP("nodeName"),
    PRUNE_KEEP("activeDeadlineSeconds"),
    {.key = "containers", .inner = container_rules},
    {.key = "initContainers", .inner = init_rules},
    PRUNE_END};
static const struct prune_rule condition_rules[] = {
    PRUNE_KEEP("type"),    PRUNE_KEEP("status"),
    PRUNE_KEEP("reason"),  PRUNE_KEEP("lastTransitionTime"),
    PRUNE_KEEP("message"), PRUNE_END};
static const struct prune_rule end_rules[] = {PRUNE_KEEP("name"), PRUNE_KEEP("state"),
                                              PRUNE_KEEP("lastState"),
                                              PRUNE_KEEP("restartCount"), PRUNE_END};
static const struct prune_rule status_rules[] = {
    PRUNE_KEEP("phase"),
    PRUNE_KEEP("podIP"),
    PRUNE_KEEP("reason"),
    PRUNE_KEEP("message"),
    {.key = "conditions", .inner = condition_rules},
    {.key = "initContainerStatuses", .inner = end_rules},
    {.key = "containerStatuses", .inner = end_rules},
    PRUNE_END};
const struct prune_rule pod_rules[] = {{.key = "metadata", .inner = metadata_rules},
                                       {.key = "spec", .inner = spec_rules},
                                       {.key = "status", .inner = status_rules},
                                       PRUNE_END};

static const size_t text_offsets[] = {
    offsetof(struct pod, ns),
    offsetof(struct pod, name),
    offsetof(struct pod, uid),
    offsetof(struct pod, owner_uid),
    offsetof(struct pod, job_name),
    offsetof(struct pod, node),
    offsetof(struct pod, reason),
    offsetof(struct pod, message),
    offsetof(struct pod, waiting),
    offsetof(struct pod, exit_container),
    offsetof(struct pod, exit_reason),
    offsetof(struct pod, exit_text),
    offsetof(struct pod, conditions),
    offsetof(struct pod, finalizer),
    offsetof(struct pod, hint),
    offsetof(struct pod, wait_reason),
    offsetof(struct pod, wait_container),
    offsetof(struct pod, ip),
};

static const struct texts texts = {text_offsets, ARRAY_LEN(text_offsets)};

/* The field is char * because a copy owns its strings; the tree is not changed through
 * it. */
static char *pod_get_text(const struct node *o, const char *path)
{
    const char *s = node_str(o, path);

    return (char *)(uintptr_t)(s ? s : "");
}

static enum pod_phase phase_of(const char *s)
{
    static const char *const names[] = {[POD_PENDING] = "Pending",
                                        [POD_RUNNING] = "Running",
                                        [POD_SUCCEEDED] = "Succeeded",
                                        [POD_FAILED] = "Failed"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], s) == 0)
            return (enum pod_phase)i;
    }
    return *s ? POD_UNKNOWN : POD_PENDING;
}

static void read_labels(const struct node *object, struct pod *p)
{
    bool is_mpi = p->job_kind == KUBE_MPIJOB;

    p->job_name = (char *)(uintptr_t)object_label(object, is_mpi ? MPI_LABEL_JOB_NAME
                                                                 : LABEL_JOB_NAME);
    p->role =
        role_find(object_label(object, is_mpi ? MPI_LABEL_JOB_ROLE : LABEL_JOB_ROLE));
    p->generation = (uint32_t)strtoul(object_label(object, LABEL_GENERATION), NULL, 10);
}

static void read_world(const struct node *object, struct pod *p)
{
    const struct node *n =
        node_get(node_at(object, "metadata.annotations"), ANNOTATION_WORLD);
    struct job_world w;

    if (n && n->type == NODE_STRING && job_world_parse(n->u.s, &w, NULL) == 0) {
        p->world_generation = w.generation;
        p->world_workers = w.workers;
    }
}

uint32_t pod_runtime(const char *image)
{
    uint32_t h = 2166136261u; /* FNV-1a */

    for (; *image; image++)
        h = (h ^ (uint8_t)*image) * 16777619u;
    return h ? h : 1;
}

static void read_runtime(const struct node *object, struct pod *p)
{
    const struct node *init =
        node_with(node_at(object, "spec.initContainers"), "name", INIT_CONTAINER);

    if (init)
        p->runtime = pod_runtime(pod_get_text(init, "image"));
}

/* --- conditions ---------------------------------------------------------------------
 *
 * What Kubernetes itself sets is two bits each, since every pod has it; others are
 * lines "MyOwn=True". */

static const char *const usual_types[] = {"PodScheduled",
                                          "Initialized",
                                          "ContainersReady",
                                          "Ready",
                                          "PodReadyToStartContainers",
                                          "DisruptionTarget"};
static const char *const condition_states[] = {"", "True", "False", "Unknown"};

static size_t word_index(const char *word, const char *const *words, size_t n)
{
    size_t i = 0;

    while (i < n && strcmp(words[i], word) != 0)
        i++;
    return i;
}

static void keep_condition(struct pod *p,
                           char text[POD_CONDITIONS_SIZE],
                           const char *type,
                           const char *status)
{
    size_t i = word_index(type, usual_types, ARRAY_LEN(usual_types));
    size_t state = word_index(status, condition_states, ARRAY_LEN(condition_states));
    size_t n = strlen(text), room = POD_CONDITIONS_SIZE - n;

    if (state == ARRAY_LEN(condition_states) || state == 0)
        return;
    if (i < ARRAY_LEN(usual_types))
        p->usual |= (uint32_t)state << (2 * i);
    else if (strlen(type) + strlen(status) + 3 <= room)
        (void)snprintf(text + n, room, "%s=%s\n", type, status);
}

bool pod_has_condition(const struct pod *p, const char *type, const char *status)
{
    size_t i = word_index(type, usual_types, ARRAY_LEN(usual_types));
    size_t n = strlen(type), k = strlen(status);

    if (i < ARRAY_LEN(usual_types))
        return strcmp(condition_states[p->usual >> (2 * i) & 3], status) == 0;
    for (const char *s = p->conditions; *s; s = strchr(s, '\n') + 1) {
        if (strncmp(s, type, n) == 0 && s[n] == '='
            && strncmp(s + n + 1, status, k) == 0 && s[n + 1 + k] == '\n')
            return true;
    }
    return false;
}

static void pod_read_conditions(const struct node *object,
                                char text_of[POD_CONDITIONS_SIZE],
                                struct pod *p)
{
    const struct node *conditions = node_at(object, "status.conditions");

    *text_of = '\0';
    p->conditions = text_of;

    for (const struct node *c = conditions ? conditions->first : NULL; c; c = c->next) {
        const char *type = pod_get_text(c, "type");
        bool is_true = strcmp(pod_get_text(c, "status"), "True") == 0;

        if (strcmp(type, "Ready") == 0)
            p->is_ready = is_true;
        if (strcmp(type, "DisruptionTarget") == 0 && is_true) {
            p->is_disrupted = true;
            if (!*p->reason) {
                p->reason = pod_get_text(c, "reason");
                p->message = pod_get_text(c, "message");
            }
        }
        keep_condition(p, text_of, type, pod_get_text(c, "status"));
        if (strcmp(type, "PodScheduled") != 0)
            continue;
        if (is_true)
            (void)timestamp_parse_us(pod_get_text(c, "lastTransitionTime"),
                                     &p->bound_wall_us); /* stays 0 */
        else if (*pod_get_text(c, "message"))
            p->waiting = pod_get_text(c, "message");
    }
}

/* t: how the container ended. */
static void read_end(const struct node *status, const struct node *t, struct pod *p)
{
    p->exit_container = pod_get_text(status, "name");
    p->exit_code = (int)node_int(t, "exitCode", 0);
    p->exit_signal = (int)node_int(t, "signal", 0);
    p->exit_reason = pod_get_text(t, "reason");
    p->exit_text = pod_get_text(t, "message");
    if (timestamp_parse_us(pod_get_text(t, "finishedAt"), &p->exit_wall_us) < 0)
        p->exit_wall_us = 0;
}

static void read_exit(const struct node *status, struct pod *p)
{
    p->has_exit = true;
    read_end(status, node_at(status, "state.terminated"), p);
}

static const struct node *container_find(const struct node *list, const char *name)
{
    return *name ? node_with(list, "name", name) : NULL;
}

static bool container_has_failed(const struct node *status)
{
    return node_int(node_at(status, "state.terminated"), "exitCode", 0) != 0;
}

/* A sidecar among the init containers: Kubernetes restarts it while the pod runs, kills
 * it at the end, and ignores its exit code. */
static bool container_is_restartable(const struct node *object,
                                     const struct node *status)
{
    const struct node *spec = container_find(node_at(object, "spec.initContainers"),
                                             pod_get_text(status, "name"));

    return strcmp(pod_get_text(spec, "restartPolicy"), "Always") == 0;
}

/* The first failed container in list, except main and restartable ones. */
static const struct node *first_failed(const struct node *object,
                                       const char *path,
                                       const struct node *main_status)
{
    const struct node *list = node_at(object, path);

    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        if (c != main_status && container_has_failed(c)
            && !container_is_restartable(object, c))
            return c;
    }
    return NULL;
}

/* Counts the containers except main; native sidecars are among the init containers. */
static bool container_other_runs(const struct node *list,
                                 const struct node *main_status)
{
    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        if (c != main_status && !node_at(c, "state.terminated"))
            return true;
    }
    return false;
}

/* Only a launcher's container is restarted in its pod. */
static void read_restarts(const struct node *main_status, struct pod *p)
{
    const struct node *last = node_at(main_status, "lastState.terminated");
    int64_t n = node_int(main_status, "restartCount", 0);

    if (p->job_kind != KUBE_MPIJOB || !last || n <= 0 || n > UINT32_MAX)
        return;
    p->n_restarts = (uint32_t)n;
    read_end(main_status, last, p);
}

static void read_exits(const struct node *object, struct pod *p)
{
    const struct node *main_spec = node_item(node_at(object, "spec.containers"), 0);
    const struct node *main_status = container_find(
        node_at(object, "status.containerStatuses"), pod_get_text(main_spec, "name"));
    bool is_main_over = node_at(main_status, "state.terminated") != NULL;
    const struct node *init =
        first_failed(object, "status.initContainerStatuses", main_status);
    const struct node *other =
        first_failed(object, "status.containerStatuses", main_status);

    p->is_init_exit = !is_main_over && init;
    p->is_held = is_main_over
                 && container_other_runs(node_at(object, "status.containerStatuses"),
                                         main_status);
    p->is_main_exit = is_main_over && (container_has_failed(main_status) || !other);
    if (p->is_init_exit)
        read_exit(init, p);
    else if (p->is_main_exit)
        read_exit(main_status, p);
    else if (other)
        read_exit(other, p);
    else
        read_restarts(main_status, p);
}

bool waiting_is_usual(const char *waiting)
{
    return !*waiting || strcmp(waiting, "ContainerCreating") == 0
           || strcmp(waiting, "PodInitializing") == 0;
}

static void read_init_start(const struct node *status, struct pod *p)
{
    uint64_t us;

    if (timestamp_parse_us(pod_get_text(status, "state.running.startedAt"), &us) < 0)
        return;
    p->init_wall_us = us;
    p->wait_container = pod_get_text(status, "name");
    p->is_init_wait = true;
}

/* The first container that waits for something unusual, else the first that waits. */
static void read_waiting(const struct node *object, bool is_init, struct pod *p)
{
    const struct node *list = node_at(object, is_init ? "status.initContainerStatuses"
                                                      : "status.containerStatuses");

    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        char *reason = pod_get_text(c, "state.waiting.reason");

        if (is_init && !container_is_restartable(object, c))
            read_init_start(c, p);
        if (!node_at(c, "state.waiting") || !waiting_is_usual(p->waiting)
            || (*p->waiting && waiting_is_usual(reason)))
            continue;
        p->wait_reason = reason;
        p->waiting = pod_get_text(c, "state.waiting.message");
        if (!*p->waiting)
            p->waiting = p->wait_reason;
        if (p->init_wall_us)
            continue;
        p->wait_container = pod_get_text(c, "name");
        p->is_init_wait = is_init;
    }
}

static void read_start(const struct node *object, struct pod *p)
{
    const struct node *list = node_at(object, "status.containerStatuses");
    uint64_t us;

    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        if (timestamp_parse_us(pod_get_text(c, "state.running.startedAt"), &us) == 0
            && us > p->run_wall_us)
            p->run_wall_us = us;
    }
}

/* As far as the status shows: it has the last two starts of a container. */
static void read_begin(const struct node *object, struct pod *p)
{
    static const char *const paths[] = {"lastState.terminated.startedAt",
                                        "state.terminated.startedAt",
                                        "state.running.startedAt"};
    const struct node *main_spec = node_item(node_at(object, "spec.containers"), 0);
    const struct node *main_status = container_find(
        node_at(object, "status.containerStatuses"), pod_get_text(main_spec, "name"));

    for (size_t i = 0; i < ARRAY_LEN(paths) && !p->begin_wall_us; i++)
        (void)timestamp_parse_us(pod_get_text(main_status, paths[i]),
                                 &p->begin_wall_us); /* stays 0 */
}

static void read_finalizers(const struct node *list, struct pod *p)
{
    for (const struct node *f = list ? list->first : NULL; f; f = f->next) {
        if (f->type != NODE_STRING)
            continue;
        if (strcmp(f->u.s, FINALIZER_TRACKING) == 0)
            p->is_tracked = true;
        else if (p->is_deleting && !*p->finalizer)
            p->finalizer = (char *)(uintptr_t)f->u.s;
    }
}

static void read_deletion(const struct node *object, struct pod *p)
{
    const char *due = pod_get_text(object, "metadata.deletionTimestamp");
    int64_t grace_s = node_int(object, "metadata.deletionGracePeriodSeconds", 0);
    uint64_t grace_us;

    p->is_deleting = *due != '\0';
    read_finalizers(node_at(object, "metadata.finalizers"), p);
    if (!p->is_deleting)
        return;
    p->grace_s = grace_s > 0 && grace_s < UINT32_MAX ? (uint32_t)grace_s : 0;
    grace_us = p->grace_s * 1000000ull;
    if (timestamp_parse_us(due, &p->delete_wall_us) == 0)
        p->delete_wall_us -=
            grace_us < p->delete_wall_us ? grace_us : p->delete_wall_us;
}

bool pod_is_of(enum kube_kind job_kind, const struct node *object)
{
    const char *owner = object_owner_kind(object);
    bool is_horovodjob = strcmp(owner, "HorovodJob") == 0;

    return !*owner || is_horovodjob == (job_kind == KUBE_JOB);
}

int pod_decode(enum kube_kind job_kind,
               const struct node *object,
               char conditions[POD_CONDITIONS_SIZE],
               struct pod *ret,
               struct err *err)
{
    struct pod p = {.job_kind = job_kind};

    texts_empty(&texts, &p);
    p.ns = pod_get_text(object, "metadata.namespace");
    p.name = pod_get_text(object, "metadata.name");
    p.uid = pod_get_text(object, "metadata.uid");
    if (!*p.ns || !*p.name || !*p.uid)
        return err_set(err, -EINVAL, "pod without name, namespace or uid");
    read_labels(object, &p);
    read_world(object, &p);
    read_runtime(object, &p);
    p.node = pod_get_text(object, "spec.nodeName");
    p.is_stopped = node_int(object, "spec.activeDeadlineSeconds", 0) == 1;
    p.ip = pod_get_text(object, "status.podIP");
    p.phase = phase_of(pod_get_text(object, "status.phase"));
    p.reason = pod_get_text(object, "status.reason");
    p.message = pod_get_text(object, "status.message");
    p.owner_uid = (char *)(uintptr_t)object_owner_uid(object);
    pod_read_conditions(object, conditions, &p);
    read_exits(object, &p);
    read_start(object, &p);
    read_begin(object, &p);
    read_waiting(object, true, &p);
    read_waiting(object, false, &p);
    (void)timestamp_parse_us(pod_get_text(object, "metadata.creationTimestamp"),
                             &p.made_wall_us); /* stays 0 */
    read_deletion(object, &p);
    *ret = p;
    return 0;
}

int pod_copy(const struct pod *from, struct pod *ret)
{
    struct pod p = *from;
    int rc = texts_copy(&texts, from, &p, POD_TEXT_MAX);

    if (rc == 0)
        *ret = p;
    return rc;
}

size_t pod_bytes(const struct pod *p)
{
    return sizeof(*p) + texts_bytes(&texts, p);
}

void pod_release(struct pod *p)
{
    texts_release(&texts, p);
}

/* A sidecar among the containers keeps the pod Running. */
static bool pod_main_is_over(const struct pod *p)
{
    return p->phase == POD_RUNNING && p->is_held && p->has_exit && p->is_main_exit;
}

static bool pod_exit_is_bad(const struct pod *p)
{
    return p->exit_code != 0 || p->exit_signal != 0;
}

bool pod_has_succeeded(const struct pod *p)
{
    return p->phase == POD_SUCCEEDED || (pod_main_is_over(p) && !pod_exit_is_bad(p));
}

bool pod_has_failed(const struct pod *p)
{
    return p->phase == POD_FAILED || (pod_main_is_over(p) && pod_exit_is_bad(p));
}

bool pod_equal(const struct pod *a, const struct pod *b)
{
    return texts_equal(&texts, a, b, POD_TEXT_MAX) && a->role == b->role
           && a->generation == b->generation
           && a->world_generation == b->world_generation
           && a->world_workers == b->world_workers && a->runtime == b->runtime
           && a->is_disrupted == b->is_disrupted && a->phase == b->phase
           && a->is_ready == b->is_ready && a->is_deleting == b->is_deleting
           && a->grace_s == b->grace_s && a->has_exit == b->has_exit
           && a->n_restarts == b->n_restarts && a->is_held == b->is_held
           && a->is_stopped == b->is_stopped && a->is_tracked == b->is_tracked
           && !a->init_wall_us == !b->init_wall_us && a->exit_code == b->exit_code
           && a->exit_signal == b->exit_signal;
}

uint64_t pod_gone_by_s(const struct pod *p)
{
    return p->delete_wall_us / 1000000u + p->grace_s + LATE_S;
}

uint32_t pod_generation(const struct pod *p)
{
    uint32_t g =
        p->world_generation > p->generation ? p->world_generation : p->generation;

    return g ? g : 1;
}

/* "demo-worker-12" of job "demo", role worker -> 12. */
int pod_replica_index(const struct pod *p, uint32_t *ret)
{
    size_t n = strlen(p->job_name), n_role;
    const char *role, *s = p->name;
    unsigned long v;
    char *end;

    if (p->role < 0)
        return -EINVAL;
    role = role_name((enum role)p->role);
    n_role = strlen(role);
    if (strncmp(s, p->job_name, n) != 0 || s[n] != '-'
        || strncmp(s + n + 1, role, n_role) != 0 || s[n + 1 + n_role] != '-')
        return -EINVAL;
    s += n + n_role + 2;
    if (*s < '0' || *s > '9' || (*s == '0' && s[1]))
        return -EINVAL;
    v = strtoul(s, &end, 10);
    if (*end || v >= MAX_INDEX)
        return -EINVAL;
    *ret = (uint32_t)v;
    return 0;
}
