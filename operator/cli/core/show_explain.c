/* SPDX-License-Identifier: Apache-2.0 */
/* Why a job is in its state: the facts that the API server has, in causal order.
 *
 *   spec       refused, suspended, another controller
 *   queue      Kueue has not admitted it
 *   objects    the API server refuses to create something: quota, admission, rights
 *   gang       the PodGroup waits
 *   scheduling pods without a node, by the scheduler's message
 *   pods       pods with a node that do not run: image, volume, configuration
 *   ranks      all pods run: what the ranks do (a stall, a slow rank)
 *   failure    the first cause of the last failure
 *
 * A fact is shown once with all its pods, because a thousand pods often wait for one
 * thing. The first fact is what to repair first. */
#include "operator/cli/core/job_view.h"

#include <stdio.h>
#include <string.h>

#include "operator/core/explain.h"
#include "runtime/base/mem.h"

#define SHOWN_PODS 4

struct explaining {
    struct build *b;
    const struct explain_input *in;
    const struct job_view *v;
    struct node *facts;
};

static const char *text_or(const char *s, const char *otherwise)
{
    return s && *s ? s : otherwise;
}

static const struct node *items_of(const struct node *list)
{
    const struct node *items = node_get(list, "items");

    return items ? items->first : NULL;
}

/* Adds the fact, or the pod to the same fact. */
static void
add_fact(struct explaining *e, const char *cause, const char *text, const char *pod)
{
    struct node *fact = NULL;

    for (struct node *f = e->facts ? e->facts->first : NULL; f && !fact; f = f->next) {
        if (strcmp(text_or(node_str(f, "cause"), ""), cause) == 0
            && strcmp(text_or(node_str(f, "text"), ""), text) == 0)
            fact = f;
    }
    if (!fact) {
        fact = node_object(e->b);
        node_set_str(e->b, fact, "cause", cause);
        node_set_str(e->b, fact, "text", text);
        node_add(e->b, e->facts, fact);
    }
    if (pod)
        node_add_str(e->b, node_child(e->b, fact, "pods", NODE_ARRAY), pod);
}

static void
add_factf(struct explaining *e, const char *cause, const char *a, const char *b)
{
    const char *text = arena_printf(e->b->arena, "%s: %s", a, b);

    add_fact(e, cause, text_or(text, a), NULL);
}

static void explain_spec(struct explaining *e)
{
    const struct job_view *v = e->v;
    const struct node *failed = condition_find(v->status, "Failed");
    const char *by = node_str(v->spec, "managedBy");

    by = by ? by : node_str(v->spec, "runPolicy.managedBy");
    if (node_str(v->object, "metadata.deletionTimestamp"))
        add_fact(e, "spec", "the job is being deleted", NULL);
    if (!v->status)
        add_fact(
            e, "operator",
            "no operator has written a status: hvd-operator does not run, does not "
            "serve this namespace, or has not come to this job yet",
            NULL);
    if (by && !strstr(by, "hvd-operator"))
        add_factf(e, "spec", "managedBy names another controller", by);
    if (failed && condition_is_true(v->status, "Failed")
        && strncmp(text_or(node_str(failed, "reason"), ""), "Invalid", 7) == 0)
        add_factf(e, "spec", "the spec was refused",
                  text_or(node_str(failed, "message"), "?"));
    if (v->is_suspended)
        add_fact(e, v->queue ? "queue" : "spec",
                 v->queue
                     ? "the job is suspended; Kueue resumes it when it admits it"
                     : "the job is suspended (spec.runPolicy.suspend); kubectl hvd "
                       "resume starts it",
                 NULL);
}

static bool is_owned_by(const struct node *o, const struct job_view *v)
{
    return node_with(node_at(o, "metadata.ownerReferences"), "uid", v->uid) != NULL;
}

static void explain_queue(struct explaining *e)
{
    static const char *const types[] = {"QuotaReserved", "Admitted", "Evicted"};
    bool is_known = false;

    for (const struct node *w = items_of(e->in->workloads); w; w = w->next) {
        if (!is_owned_by(w, e->v))
            continue;
        is_known = true;
        for (size_t i = 0; i < ARRAY_LEN(types); i++) {
            const struct node *c = condition_find(node_get(w, "status"), types[i]);
            bool is_true = strcmp(text_or(node_str(c, "status"), ""), "True") == 0;

            if (c && is_true == (i == 2))
                add_factf(e, "queue",
                          arena_printf(e->b->arena, "Kueue, queue %s, %s",
                                       text_or(e->v->queue, "?"), types[i]),
                          text_or(node_str(c, "message"), "?"));
        }
    }
    if (e->v->queue && e->v->is_suspended && !is_known)
        add_factf(e, "queue", "no Workload of this job is visible; its queue is",
                  e->v->queue);
}

static void explain_objects(struct explaining *e)
{
    const struct node *c = condition_find(e->v->status, "Created");
    const char *reason = text_or(node_str(c, "reason"), "");
    static const char *const bad[] = {"CreateFailed", "NameTaken", "UpdateFailed",
                                      "DeleteFailed", "InvalidPodTemplate"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (strcmp(reason, bad[i]) == 0)
            add_factf(e, "objects", reason, text_or(node_str(c, "message"), "?"));
    }
}

static void explain_gang(struct explaining *e)
{
    for (const struct node *g = items_of(e->in->groups); g; g = g->next) {
        const char *phase = text_or(node_str(g, "status.phase"), "Pending");
        const struct node *list = node_at(g, "status.conditions"), *last = NULL;

        if (!is_owned_by(g, e->v) || strcmp(phase, "Running") == 0)
            continue;
        for (const struct node *c = list ? list->first : NULL; c; c = c->next)
            last = c;
        add_factf(e, "gang",
                  arena_printf(e->b->arena, "PodGroup %s is %s",
                               text_or(node_str(g, "metadata.name"), "?"), phase),
                  text_or(node_str(last, "message"), "its scheduler gives no message"));
    }
}

/* The last warning about the pod. */
static const char *pod_warning(struct explaining *e, const char *pod)
{
    const struct node *found = NULL;

    for (const struct node *x = items_of(e->in->events); x; x = x->next) {
        if (strcmp(text_or(node_str(x, "involvedObject.name"), ""), pod) == 0
            && strcmp(text_or(node_str(x, "type"), ""), "Warning") == 0
            && strcmp(text_or(node_str(x, "reason"), ""), "FailedScheduling") != 0)
            found = x;
    }
    return found ? arena_printf(e->b->arena, "%s: %s",
                                text_or(node_str(found, "reason"), "?"),
                                text_or(node_str(found, "message"), "?"))
                 : NULL;
}

static void explain_pod(struct explaining *e, const struct node *object)
{
    char conditions[POD_CONDITIONS_SIZE];
    struct pod pod;
    const char *warning, *text;

    if (pod_decode(e->v->kind, object, conditions, &pod, NULL) < 0
        || pod.phase != POD_PENDING)
        return;
    warning = *pod.node ? pod_warning(e, pod.name) : NULL;
    text = *pod.waiting ? arena_strdup(e->b->arena, pod.waiting) : NULL;
    if (warning && (!text || waiting_is_usual(text))) {
        text = warning;
        warning = NULL;
    }
    if (!*pod.node && !*pod.waiting)
        text = "no scheduler has considered the pod yet";
    add_fact(e, *pod.node ? "pods" : "scheduling",
             text_or(text, "the kubelet has not started its containers yet"), pod.name);
    if (warning)
        add_fact(e, "pods", warning, pod.name);
}

static void explain_pods(struct explaining *e)
{
    for (int is_bound = 0; is_bound < 2; is_bound++) {
        for (const struct node *p = items_of(e->in->pods); p; p = p->next) {
            if ((node_str(p, "spec.nodeName") != NULL) == is_bound)
                explain_pod(e, p);
        }
    }
}

static void explain_ranks(struct explaining *e)
{
    static const char *const types[] = {"Stalled", "Straggling"};

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const struct node *c = condition_find(e->v->status, types[i]);

        if (condition_is_true(e->v->status, types[i]))
            add_factf(e, "ranks", types[i], text_or(node_str(c, "message"), "?"));
    }
}

static void explain_failure(struct explaining *e)
{
    const char *s = e->v->state;
    const char *text = node_str(e->v->status, "failure.message");
    const char *next = node_str(e->v->status, "nextRestartTime");

    if (text
        && (strcmp(s, "Failed") == 0 || strcmp(s, "Restarting") == 0
            || strcmp(s, "Pending") == 0))
        add_fact(e, "failure", text, NULL);
    if (next && strcmp(s, "Restarting") == 0)
        add_factf(e, "restart", "the pods are recreated not before", next);
}

struct node *explain_tree(struct build *b, const struct explain_input *in)
{
    struct explaining e = {b, in, in->v, node_array(b)};
    struct node *o = node_object(b);

    explain_spec(&e);
    explain_queue(&e);
    explain_objects(&e);
    explain_gang(&e);
    if (!in->v->is_final)
        explain_pods(&e);
    explain_ranks(&e);
    explain_failure(&e);
    node_set_str(b, o, "job", in->v->name);
    node_set_str(b, o, "namespace", in->v->ns);
    node_set_str(b, o, "state", in->v->state);
    node_set_str(b, o, "message", in->v->message);
    node_set(b, o, "facts", e.facts);
    return b->status ? NULL : o;
}

static void put_pods(const struct node *pods, struct strbuf *out)
{
    size_t i = 0;

    if (!pods)
        return;
    strbuf_puts(out, " [");
    for (const struct node *p = pods->first; p && i < SHOWN_PODS; p = p->next, i++) {
        strbuf_puts(out, i ? ", " : "");
        text_put_safe(out, p->u.s, strlen(p->u.s), false);
    }
    if (pods->n > SHOWN_PODS)
        strbuf_printf(out, " and %zu more", pods->n - SHOWN_PODS);
    strbuf_putc(out, ']');
}

void explain_page(const struct show *s, const struct node *tree, struct strbuf *out)
{
    const char *state = text_or(node_str(tree, "state"), "?");
    const char *message = text_or(node_str(tree, "message"), "");
    const char *job = text_or(node_str(tree, "job"), "?");
    const struct node *facts = node_get(tree, "facts");
    unsigned i = 0;

    text_put_safe(out, job, strlen(job), false);
    strbuf_puts(out, " is ");
    text_put_tinted(out, state, tint_of_state(state), s->has_colour);
    strbuf_puts(out, *message ? ": " : "");
    text_put_safe(out, message, strlen(message), false);
    strbuf_putc(out, '\n');
    if (!facts || !facts->first)
        strbuf_puts(out, "nothing holds it up, as far as the API server shows\n");
    for (const struct node *f = facts ? facts->first : NULL; f; f = f->next) {
        const char *text = text_or(node_str(f, "text"), "?");

        strbuf_printf(out, "%3u. %-10s  ", ++i, text_or(node_str(f, "cause"), "?"));
        text_put_safe(out, text, strlen(text), false);
        put_pods(node_get(f, "pods"), out);
        strbuf_putc(out, '\n');
    }
}
