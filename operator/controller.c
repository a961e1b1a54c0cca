/* SPDX-License-Identifier: Apache-2.0 */
/* The wiring of the parts, whether they may act, and the queue of jobs. Called by main.c
 * and by the parts. */
#include "operator/controller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "operator/ask.h"
#include "operator/elect.h"
#include "operator/record.h"
#include "operator/rival.h"
#include "operator/sinks.h"
#include "operator/sync.h"
#include "operator/webhook.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

#define RIVAL_STEPS  5u /* of mpi-operator's Lease; longer than its renewal takes */
#define QUEUE_ALL_NS (1 * NS_PER_S)

bool controller_leads(const struct controller *op)
{
    return !op->elect || elect_leads(op->elect);
}

bool controller_is_synced(const struct controller *op)
{
    return sinks_are_listed(op) && sinks_know_jobs(op);
}

bool controller_may_act(const struct controller *op)
{
    /* without any definition of a job, pods of deleted jobs have still to be released */
    return sinks_are_fresh(op) && controller_leads(op) && sinks_are_listed(op);
}

/* --- the queue -------------------------------------------------------------------- */

typedef int (*queue_fn)(struct work_queue *q, const char *key, uint64_t due_ns);

static void controller_queue(struct controller *op, const char *key, queue_fn add)
{
    /* A new leader lists and queues every job. A lapse that nothing has reported yet may
     * end without one. */
    if (!*key || (op->elect && !elect_was_leading(op->elect)))
        return;
    op->metrics.queue_adds++;
    if (add(op->queue, key, clock_now_ns()) < 0)
        controller_lost(op, key);
}

void controller_wake(struct controller *op, const char *key)
{
    controller_queue(op, key, queue_add);
}

void controller_sweep(struct controller *op, const char *key)
{
    controller_queue(op, key, queue_sweep);
}

void controller_lost(struct controller *op, const char *key)
{
    if (op->queue_all_ns)
        return;
    op->queue_all_ns = clock_now_ns() + QUEUE_ALL_NS;
    log_warn("out of memory, queueing all jobs again", "job=%s retry_ms=%llu", key,
             QUEUE_ALL_NS / NS_PER_MS);
}

/* --- wiring ----------------------------------------------------------------------- */

static void
on_identity_answer(void *arg, const char *method, int http, uint64_t took_ns)
{
    metrics_request(&((struct controller *)arg)->metrics, method, http, took_ns);
}

static bool leader_may_write(void *arg)
{
    return controller_leads(arg);
}

/* A new leader lists everything again: its watches may lag behind the former leader's
 * writes, and so may facts that no watch shows. */
static void on_lead(void *arg, bool leads)
{
    struct controller *op = arg;

    if (op->rival)
        rival_forget(op->rival);
    if (leads) {
        store_doubt(op->store);
        sinks_relist(op);
    } else {
        kube_fence(op->kube);
        if (op->ask)
            ask_forget_all(op->ask);
        webhook_forget_all(op->webhook);
    }
}

/* Also with a kubeconfig: two replicas of a Deployment are still two. */
static bool is_in_pod(const struct kube_config *config)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");

    return config->is_pod || (host && *host);
}

static int make_elect(struct controller *op,
                      const struct kube_config *config,
                      const struct operator_options *o,
                      struct err *err)
{
    struct elect_config e = {.ns = options_lock_namespace(o, config->ns),
                             .name = o->lease_name,
                             .duration_ms = o->lease_duration_ms,
                             .renew_ms = o->lease_renew_ms,
                             .retry_ms = o->lease_retry_ms,
                             .changed = on_lead,
                             .arg = op};

    if (o->is_leader_elect_set ? !o->leader_elect : !is_in_pod(config))
        return 0;
    return elect_new(op->kube, &e, &op->elect, err);
}

/* Not if our own Lease has that name. */
static int
make_rival(struct controller *op, const struct operator_options *o, struct err *err)
{
    if (!*o->rival_namespace || strcmp(o->lease_name, "mpi-operator") == 0)
        return 0;
    return rival_new(op->kube, o->rival_namespace, RIVAL_STEPS * o->lease_retry_ms,
                     &op->rival)
                   < 0
               ? err_set(err, -ENOMEM, "out of memory")
               : 0;
}

int controller_open(struct controller *op,
                    const struct kube_config *config,
                    const struct operator_options *o,
                    struct err *err)
{
    struct kube_options k = {.qps = o->qps,
                             .burst = o->burst,
                             .seen = on_identity_answer,
                             .seen_arg = op,
                             .may_write = leader_may_write,
                             .may_write_arg = op};
    int rc;

    op->objects.runtime_image = o->runtime_image;
    op->objects.cluster_domain = o->cluster_domain;
    op->objects.gang_scheduler = o->gang_scheduling;
    op->objects.gang = gang_of(o->gang_scheduling);
    op->started_ns = clock_now_ns();
    rc = kube_new(config, &k, &op->kube, err);
    if (rc < 0)
        return rc;
    op->store = store_new();
    op->queue = queue_new();
    op->record = record_new(op->kube);
    if (!op->store || !op->queue || !op->record || sinks_open(op, o) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    rc = make_rival(op, o, err);
    if (rc == 0 && o->progress_ms > 0)
        rc = ask_new(op, o, &op->ask, err);
    if (rc == 0 && o->webhook_dir)
        rc = webhook_new(op, o->webhook_dir, &op->webhook, err);
    return rc < 0 ? rc : make_elect(op, config, o, err);
}

void controller_close(struct controller *op)
{
    kube_free(op->kube); /* first: no callback runs after it */
    sync_drop_all(op);
    ask_free(op->ask);
    webhook_free(op->webhook);
    elect_free(op->elect);
    rival_free(op->rival);
    sinks_close(op);
    priorities_release(&op->priorities);
    record_free(op->record);
    queue_free(op->queue);
    store_free(op->store);
    pace_release(&op->pace);
}
