/* SPDX-License-Identifier: Apache-2.0 */
/* A GET of one PodGroup, or the list of the Workloads with the label of the job's uid: Kueue
 * names them by a hash. The kinds and the rights may be missing; then nothing is known and
 * nothing fails. Called by apply.c. */
#include "operator/inquire.h"

#include <errno.h>
#include <string.h>

#include "operator/core/labels.h"
#include "operator/doc/json.h"
#include "operator/doc/object.h"
#include "operator/pod_events.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

#define INQUIRE_LIMIT                                                                  \
    "2" /* Workloads of one job: the present one, and one in deletion */
#define INQUIRE_ARENA (8u << 20)

struct inquire {
    struct controller *op;
    const char *key;
    const struct job_meta *job;
    enum kube_kind kind;
    inquire_done_fn done;
    void *arg;
};

static enum inquiry_result inquire_read(const struct inquire *q,
                                        const struct kube_reply *r,
                                        struct arena *a,
                                        struct node **ret_object)
{
    switch (r->answer.cls) {
    case ANSWER_OK:
        if (json_read(a, r->body, r->n, ret_object, NULL) < 0)
            return INQUIRY_UNKNOWN;
        if (q->kind != KUBE_WORKLOAD
            && strcmp(object_owner_uid(*ret_object), q->job->uid) != 0)
            return INQUIRY_ABSENT; /* another job's */
        return INQUIRY_FOUND;
    case ANSWER_NOT_FOUND: /* for a list: the kind */
        return q->kind == KUBE_WORKLOAD ? INQUIRY_DENIED : INQUIRY_ABSENT;
    case ANSWER_FORBIDDEN:
        return INQUIRY_DENIED;
    case ANSWER_EXISTS:
    case ANSWER_CONFLICT:
    case ANSWER_GONE:
    case ANSWER_INVALID:
    case ANSWER_THROTTLED:
    case ANSWER_UNAVAILABLE:
        return INQUIRY_UNKNOWN;
    }
    return INQUIRY_UNKNOWN;
}

static void on_inquired(void *arg, const struct kube_reply *r)
{
    const struct inquire *q = arg;
    struct node *object = NULL;
    enum inquiry_result result;
    struct arena a;

    arena_init(&a, INQUIRE_ARENA);
    result = inquire_read(q, r, &a, &object);
    if (result != INQUIRY_FOUND)
        log_debug("why a job waits is not known, continuing",
                  "job=%s kind=%s cause=\"%s\"", q->key, kube_kind_name(q->kind),
                  r->answer.message);
    store_take_inquiry(q->op->store, q->key, q->job->uid, q->kind, result,
                       result == INQUIRY_FOUND ? object : NULL, clock_wall_s());
    arena_release(&a);
    q->done(q->arg);
}

void inquire_request(struct controller *op,
                     const char *key,
                     const struct job_meta *job,
                     const struct action *x,
                     struct arena *a,
                     inquire_done_fn done,
                     void *arg)
{
    enum kube_kind kind = x->kind;
    struct inquire *q = arena_alloc(a, sizeof(*q));
    const char *selector = arena_printf(a, LABEL_KUEUE_JOB_UID "=%s", job->uid);
    struct kube_request rq = {
        .method = "GET", .kind = kind, .ns = job->ns, .done = on_inquired, .arg = q};
    struct err err = ERR_INIT;
    struct strbuf query;
    int rc = -ENOMEM;

    if (kind == KUBE_POD) {
        pod_events_request(op, job->ns, x->name, x->uid, a, done, arg);
        return;
    }
    strbuf_init(&query, 1024);
    if (kind == KUBE_WORKLOAD) {
        kube_query(&query, "labelSelector", selector);
        kube_query(&query, "limit", INQUIRE_LIMIT);
        rq.query = strbuf_str(&query);
    } else {
        rq.name = x->name;
    }
    if (q && selector && strbuf_status(&query) == 0) {
        *q = (struct inquire){
            .op = op, .key = key, .job = job, .kind = kind, .done = done, .arg = arg};
        rc = kube_submit(op->kube, &rq, &err);
    }
    strbuf_release(&query);
    if (rc < 0) {
        store_take_inquiry(op->store, key, job->uid, kind, INQUIRY_UNKNOWN, NULL,
                           clock_wall_s());
        done(arg);
    }
}
