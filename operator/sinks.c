/* SPDX-License-Identifier: Apache-2.0 */
/* Events of the watches -> store -> keys in the queue. One row per watch.
 *
 *   jobs of both kinds     stored; the job is queued
 *   pods of both kinds     by label; their job is queued
 *   launcher Jobs          by our label; the MPIJob is queued
 *   PriorityClasses        only with gang scheduling; read when a PodGroup is built
 *   Services, ConfigMaps,  their metadata, by our label; a deletion queues the job.
 *   PodGroups              Nothing else of them is kept
 *
 * The last group is listed after the jobs that own them, and nothing waits for it:
 * without the right to list them the operator does everything else. Secrets are never
 * listed.
 *
 * A cluster may have only one of the two kinds of job. The watch of the other kind
 * tries again with back-off, at most 15 s apart, and nothing waits for it.
 *
 * No event is lost when memory is out: the watch repeats what the store could not take
 * (watch.h), and if the queue could not take a key, all jobs are queued later. */
#include "operator/sinks.h"

#include <errno.h>

#include "operator/core/labels.h"
#include "operator/watch.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define WENT_BACK_NS (60 * NS_PER_S)

static void sinks_wake(void *arg, const char *key)
{
    controller_wake(arg, key);
}

/* Ends the processing of an event: queues the job of key, or reports -ENOMEM so that
 * the watch repeats the event, or logs an object that cannot be used. */
static int sinks_wake_or_skip(struct controller *op,
                              enum kube_kind kind,
                              const char *key,
                              int rc,
                              const struct err *err)
{
    if (rc == -ENOMEM)
        return rc;
    if (rc < 0)
        log_warn("object skipped", "kind=%s cause=\"%s\"", kube_kind_name(kind),
                 err->code ? err->text : "a part of it is too long");
    else
        controller_wake(op, key);
    return 0;
}

/* After a list: nothing has happened to most finished jobs. */
static void sinks_sweep(void *arg, const char *key)
{
    struct controller *op = arg;

    if (store_is_finished(op->store, key))
        controller_sweep(op, key);
    else
        controller_wake(op, key);
}

/* Every job, and every deleted pod that waits for its finalizer: it may have no job. */
static void sinks_wake_all(struct controller *op)
{
    store_each_job(op->store, sinks_sweep, op);
    store_each_leaving(op->store, sinks_wake, op);
}

/* Every watch lists again, and each finds the same. */
static void sinks_go_back(void *arg)
{
    struct controller *op = arg;
    uint64_t now_ns = clock_now_ns();

    store_rewind(op->store);
    if (op->went_back_ns && now_ns - op->went_back_ns < WENT_BACK_NS)
        return;
    op->went_back_ns = now_ns;
    log_warn(
        "the API server's versions went back, as after a restore of etcd; listing all "
        "objects again",
        "watches=%d", WATCH_COUNT);
    sinks_relist(op);
}

/* --- jobs ------------------------------------------------------------------------- */

static void jobs_begin(void *arg, enum kube_kind kind)
{
    struct controller *op = arg;
    int i = kind == KUBE_JOB ? WATCH_HVD_JOBS : WATCH_MPI_JOBS;

    store_begin_jobs(op->store, kind, watcher_list_version(op->watch[i]));
}

static int jobs_end(void *arg, enum kube_kind kind)
{
    struct controller *op = arg;

    store_end_jobs(op->store, kind);
    sinks_wake_all(op);
    return 0;
}

/* The end of a list queues all jobs, the finished ones last. */
static int jobs_put(void *arg, enum kube_kind kind, struct node *object)
{
    struct controller *op = arg;
    char key[STORE_KEY_SIZE] = "";
    struct err err = ERR_INIT;
    int rc = store_put_job(op->store, kind, object, key, &err);

    if (rc == 0 || (rc > 0 && store_is_listing(op->store, kind)))
        return 0;
    return sinks_wake_or_skip(op, kind, key, rc, &err);
}

static int jobs_drop(void *arg, enum kube_kind kind, const char *ns, const char *name)
{
    char key[STORE_KEY_SIZE];

    if (store_key(kind, ns, name, key) < 0)
        return 0;
    store_drop_job(((struct controller *)arg)->store, key);
    controller_wake(arg, key); /* its pods may have been deleted before */
    return 0;
}

/* --- pods: kind is that of their jobs --------------------------------------------- */

static void pods_begin(void *arg, enum kube_kind kind)
{
    store_begin_pods(((struct controller *)arg)->store, kind);
}

static int pods_end(void *arg, enum kube_kind kind)
{
    struct controller *op = arg;
    int rc = store_end_pods(op->store, kind, sinks_wake, arg);

    if (rc == 0)
        store_each_leaving(op->store, sinks_wake, arg);
    return rc;
}

static int pods_put(void *arg, enum kube_kind kind, struct node *object)
{
    struct controller *op = arg;
    char key[STORE_KEY_SIZE] = "";
    char conditions[POD_CONDITIONS_SIZE];
    struct err err = ERR_INIT;
    struct pod pod;
    int rc;

    if (!pod_is_of(kind, object))
        return 0;
    rc = pod_decode(kind, object, conditions, &pod, &err);
    if (rc == 0)
        rc = store_put_pod(op->store, &pod, key);
    return sinks_wake_or_skip(op, KUBE_POD, key, rc, &err);
}

static int pods_drop(void *arg, enum kube_kind kind, const char *ns, const char *name)
{
    struct controller *op = arg;
    char key[STORE_KEY_SIZE];
    int rc = store_drop_pod(op->store, ns, name, key);

    (void)kind;
    if (rc == 0)
        controller_wake(op, key);
    return rc;
}

/* --- launcher Jobs ---------------------------------------------------------------- */

static void batches_begin(void *arg, enum kube_kind kind)
{
    (void)kind;
    store_begin_batches(((struct controller *)arg)->store);
}

static int batches_end(void *arg, enum kube_kind kind)
{
    (void)kind;
    store_end_batches(((struct controller *)arg)->store, sinks_wake, arg);
    return 0;
}

static int batches_put(void *arg, enum kube_kind kind, struct node *object)
{
    struct controller *op = arg;
    char key[STORE_KEY_SIZE] = "";
    struct err err = ERR_INIT;
    struct batch_job batch;
    int rc = batch_decode(object, &batch, &err);

    if (rc == 0)
        rc = store_put_batch(op->store, &batch, key);
    return sinks_wake_or_skip(op, kind, key, rc, &err);
}

static int
batches_drop(void *arg, enum kube_kind kind, const char *ns, const char *name)
{
    struct controller *op = arg;
    char key[STORE_KEY_SIZE];

    (void)kind;
    store_drop_batch(op->store, ns, name, key);
    controller_wake(op, key);
    return 0;
}

/* --- PriorityClasses -------------------------------------------------------------- */

static const struct prune_rule class_metadata_rules[] = {PRUNE_KEEP("name"), PRUNE_END};
static const struct prune_rule class_rules[] = {
    {.key = "metadata", .inner = class_metadata_rules}, PRUNE_KEEP("value"), PRUNE_END};

static void classes_begin(void *arg, enum kube_kind kind)
{
    (void)kind;
    priorities_begin(&((struct controller *)arg)->priorities);
}

static int classes_end(void *arg, enum kube_kind kind)
{
    (void)kind;
    priorities_end(&((struct controller *)arg)->priorities);
    return 0;
}

static int classes_put(void *arg, enum kube_kind kind, struct node *object)
{
    struct controller *op = arg;
    const char *name = node_str(object, "metadata.name");
    struct err err = ERR_INIT;
    int rc = name ? priorities_put(&op->priorities, name,
                                   (int32_t)node_int(object, "value", 0))
                  : err_set(&err, -EINVAL, "metadata.name is missing");

    return sinks_wake_or_skip(op, kind, "", rc, &err);
}

static int
classes_drop(void *arg, enum kube_kind kind, const char *ns, const char *name)
{
    (void)kind;
    (void)ns;
    priorities_drop(&((struct controller *)arg)->priorities, name);
    return 0;
}

/* --- objects known by metadata ---------------------------------------------------- */

static void owned_begin(void *arg, enum kube_kind kind)
{
    store_begin_owned(((struct controller *)arg)->store, kind);
}

static int owned_end(void *arg, enum kube_kind kind)
{
    store_end_owned(((struct controller *)arg)->store, kind, sinks_wake, arg);
    return 0;
}

static int owned_put(void *arg, enum kube_kind kind, struct node *object)
{
    store_put_owned(((struct controller *)arg)->store, kind, object);
    return 0;
}

static int owned_lose(void *arg, enum kube_kind kind, struct node *object)
{
    struct controller *op = arg;
    char key[STORE_KEY_SIZE];

    store_lose_owned(op->store, kind, object, key);
    controller_wake(op, key);
    return 0;
}

/* --- the table -------------------------------------------------------------------- */

#define OWNED(KIND)                                                                    \
    {                                                                                  \
        KIND, LABEL_JOB_NAME, KIND, true, false, owned_rules, owned_begin, owned_end,  \
            owned_put, NULL, owned_lose                                                \
    }

static const struct watch_row {
    enum kube_kind kind;
    const char *selector;
    enum kube_kind sink_kind; /* passed to the functions */
    bool is_optional;         /* the cluster may lack the kind */
    bool is_cluster_wide;     /* has no namespace */
    const struct prune_rule *rules;
    void (*begin)(void *arg, enum kube_kind kind);
    int (*end)(void *arg, enum kube_kind kind);
    int (*put)(void *arg, enum kube_kind kind, struct node *object);
    int (*drop)(void *arg, enum kube_kind kind, const char *ns, const char *name);
    int (*lose)(void *arg, enum kube_kind kind, struct node *object); /* or drop */
} rows[WATCH_COUNT] = {
    [WATCH_HVD_JOBS] = {KUBE_JOB, NULL, KUBE_JOB, true, false, job_rules, jobs_begin,
                        jobs_end, jobs_put, jobs_drop},
    [WATCH_MPI_JOBS] = {KUBE_MPIJOB, NULL, KUBE_MPIJOB, true, false, job_rules,
                        jobs_begin, jobs_end, jobs_put, jobs_drop},
    [WATCH_HVD_PODS] = {KUBE_POD, LABEL_JOB_NAME, KUBE_JOB, false, false, pod_rules,
                        pods_begin, pods_end, pods_put, pods_drop},
    [WATCH_MPI_PODS] = {KUBE_POD, MPI_LABEL_OPERATOR_NAME "=" MPI_OPERATOR_NAME,
                        KUBE_MPIJOB, false, false, pod_rules, pods_begin, pods_end,
                        pods_put, pods_drop},
    [WATCH_BATCHES] = {KUBE_BATCH, LABEL_JOB_NAME, KUBE_BATCH, false, false,
                       batch_rules, batches_begin, batches_end, batches_put,
                       batches_drop},
    [WATCH_PRIORITIES] = {KUBE_PRIORITY_CLASS, NULL, KUBE_PRIORITY_CLASS, false, true,
                          class_rules, classes_begin, classes_end, classes_put,
                          classes_drop},
    [WATCH_SERVICES] = OWNED(KUBE_SERVICE),
    [WATCH_CONFIGMAPS] = OWNED(KUBE_CONFIGMAP),
    [WATCH_VOLCANO_GROUPS] = OWNED(KUBE_VOLCANO_GROUP),
    [WATCH_SCHEDULER_GROUPS] = OWNED(KUBE_SCHEDULER_GROUP),
};

static bool is_wanted(enum gang gang, enum watch_id i)
{
    if (i == WATCH_PRIORITIES)
        return gang != GANG_NONE;
    if (i == WATCH_VOLCANO_GROUPS)
        return gang == GANG_VOLCANO;
    if (i == WATCH_SCHEDULER_GROUPS)
        return gang == GANG_SCHEDULER_PLUGINS;
    return true;
}

bool sinks_has_list(const struct operator_options *o,
                    enum watch_id i,
                    struct kube_request *ret)
{
    const struct watch_row *r = &rows[i];

    *ret = (struct kube_request){.kind = r->kind,
                                 .ns = r->is_cluster_wide ? NULL : o->ns,
                                 .is_metadata = r->lose != NULL};
    return is_wanted(gang_of(o->gang_scheduling), i);
}

/* The watches that the operator requires in order to act. */
static const struct watcher *sinks_required(const struct controller *op, int i)
{
    return rows[i].lose ? NULL : op->watch[i];
}

int sinks_open(struct controller *op, const struct operator_options *o)
{
    for (int i = 0; i < WATCH_COUNT; i++) {
        const struct watch_row *r = &rows[i];
        struct watch_sink sink = {.begin_list = r->begin,
                                  .end_list = r->end,
                                  .put = r->put,
                                  .drop = r->drop,
                                  .lose = r->lose,
                                  .went_back = sinks_go_back,
                                  .kind = r->sink_kind,
                                  .is_metadata = r->lose != NULL,
                                  .arg = op,
                                  .rules = r->rules};

        if (!is_wanted(op->objects.gang, (enum watch_id)i))
            continue;
        if (watcher_new(op->kube, r->kind, r->is_cluster_wide ? NULL : o->ns,
                        r->selector, o->watch_idle_ms, r->is_optional, &sink,
                        &op->watch[i])
            < 0)
            return -ENOMEM;
    }
    return 0;
}

void sinks_close(struct controller *op)
{
    for (int i = 0; i < WATCH_COUNT; i++) {
        watcher_free(op->watch[i]);
        op->watch[i] = NULL;
    }
}

bool sinks_are_listed(const struct controller *op)
{
    for (int i = 0; i < WATCH_COUNT; i++) {
        const struct watcher *w = sinks_required(op, i);

        if (w && !watcher_is_synced(w) && !watcher_is_absent(w))
            return false;
    }
    return true;
}

bool sinks_are_fresh(const struct controller *op)
{
    for (int i = 0; i < WATCH_COUNT; i++) {
        const struct watcher *w = sinks_required(op, i);

        if (w && !watcher_is_fresh(w) && !watcher_is_absent(w))
            return false;
    }
    return true;
}

bool sinks_know_jobs(const struct controller *op)
{
    return !watcher_is_absent(op->watch[WATCH_HVD_JOBS])
           || !watcher_is_absent(op->watch[WATCH_MPI_JOBS]);
}

void sinks_relist(struct controller *op)
{
    for (int i = 0; i < WATCH_COUNT; i++) {
        if (op->watch[i])
            watcher_relist(op->watch[i]);
    }
}

/* The events are in the store; only their keys were lost. */
static void sinks_queue_all(struct controller *op, uint64_t now_ns)
{
    if (!op->queue_all_ns || now_ns < op->queue_all_ns)
        return;
    op->queue_all_ns = 0;
    sinks_wake_all(op);
}

/* Objects can be assigned to their jobs only when the jobs are stored. */
static bool sink_is_due(const struct controller *op, int i)
{
    return op->watch[i] && (!rows[i].lose || controller_is_synced(op));
}

void sinks_tick(struct controller *op, uint64_t now_ns)
{
    sinks_queue_all(op, now_ns);
    for (int i = 0; i < WATCH_COUNT; i++) {
        if (sink_is_due(op, i))
            watcher_tick(op->watch[i], now_ns);
    }
}

uint64_t sinks_next_ns(const struct controller *op)
{
    uint64_t next = op->queue_all_ns ? op->queue_all_ns : UINT64_MAX;

    for (int i = 0; i < WATCH_COUNT; i++) {
        uint64_t t = sink_is_due(op, i) ? watcher_next_ns(op->watch[i]) : UINT64_MAX;

        next = t < next ? t : next;
    }
    return next;
}

uint64_t sinks_n_restarts(const struct controller *op)
{
    uint64_t n = 0;

    for (int i = 0; i < WATCH_COUNT; i++)
        n += op->watch[i] ? watcher_n_restarts(op->watch[i]) : 0;
    return n;
}

uint64_t sinks_n_events(const struct controller *op)
{
    uint64_t n = 0;

    for (int i = 0; i < WATCH_COUNT; i++)
        n += op->watch[i] ? watcher_n_events(op->watch[i]) : 0;
    return n;
}

uint64_t sinks_received_ns(const struct controller *op)
{
    uint64_t first = UINT64_MAX;

    for (int i = 0; i < WATCH_COUNT; i++) {
        const struct watcher *w = sinks_required(op, i);

        if (w && !watcher_is_absent(w) && watcher_received_ns(w) < first)
            first = watcher_received_ns(w);
    }
    return first == UINT64_MAX ? 0 : first;
}

const char *sinks_trouble(const struct controller *op)
{
    const char *why = "";

    for (int i = 0; i < WATCH_COUNT && !*why; i++)
        why = sinks_required(op, i) ? watcher_trouble(sinks_required(op, i)) : "";
    return why;
}
