/* SPDX-License-Identifier: Apache-2.0 */
/* A list of Events by field selector: the API server reads all Events of the namespace for
 * it, so it is sent rarely. Called by inquire.c. */
#include "operator/pod_events.h"

#include <errno.h>

#include "operator/core/explain.h"
#include "operator/doc/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

#define EVENTS_LIMIT "50"
#define EVENTS_ARENA (8u << 20)

struct pod_events {
    struct controller *op;
    const char *ns, *pod, *uid;
    pod_events_done_fn done;
    void *arg;
};

static void on_events(void *arg, const struct kube_reply *r)
{
    const struct pod_events *p = arg;
    char hint[EXPLAIN_TEXT_MAX + 1];
    struct arena a;
    struct node *list;
    bool is_read;

    arena_init(&a, EVENTS_ARENA);
    is_read =
        r->answer.cls == ANSWER_OK && json_read(&a, r->body, r->n, &list, NULL) == 0;
    if (is_read)
        explain_read(list, clock_wall_s(), hint);
    else
        log_debug("events of a pod not read, continuing", "pod=%s/%s cause=\"%s\"",
                  p->ns, p->pod, r->answer.message);
    store_explain_pod(p->op->store, p->ns, p->pod, p->uid, is_read ? hint : NULL,
                      clock_wall_s());
    arena_release(&a);
    p->done(p->arg);
}

void pod_events_request(struct controller *op,
                        const char *ns,
                        const char *pod,
                        const char *uid,
                        struct arena *a,
                        pod_events_done_fn done,
                        void *arg)
{
    struct pod_events *p = arena_alloc(a, sizeof(*p));
    const char *selector = arena_printf(a, "involvedObject.uid=%s,type=Warning", uid);
    struct kube_request rq = {
        .method = "GET", .kind = KUBE_EVENT, .ns = ns, .done = on_events, .arg = p};
    struct err err = ERR_INIT;
    struct strbuf query;
    int rc = -ENOMEM;

    strbuf_init(&query, 1024);
    kube_query(&query, "fieldSelector", selector);
    kube_query(&query, "limit", EVENTS_LIMIT);
    rq.query = strbuf_str(&query);
    if (p && selector && strbuf_status(&query) == 0) {
        *p = (struct pod_events){
            .op = op, .ns = ns, .pod = pod, .uid = uid, .done = done, .arg = arg};
        rc = kube_submit(op->kube, &rq, &err);
    }
    strbuf_release(&query);
    if (rc < 0) {
        store_explain_pod(op->store, ns, pod, uid, NULL, clock_wall_s());
        done(arg);
    }
}
