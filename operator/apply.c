/* SPDX-License-Identifier: Apache-2.0 */
/* The loop that carries plans out.
 *
 *   POST 201                   the store expects it
 *   POST 409, GET 200          AlreadyExists. The owner is this job's uid: as if
 * created (we were here before); else NameTaken, tried again, and whoever owns it is
 * left alone POST 400 413 422           InvalidPodTemplate: the job fails with the
 * server's sentence DELETE 200 404 409         gone, or another pod of that name:
 * nothing left to do GET of an expected worker  404, or another's pod of that name: the
 * store misses it; anything else, no answer too, says nothing against it anything else
 * CreateFailed / DeleteFailed, tried again with back-off
 *
 * Bodies are rendered one at a time, just before they are sent: a thousand workers do
 * not need a thousand pods in memory. Pods are created with strict field validation, so
 * that a misspelt field in the template is told and not dropped. The token is made here
 * and forgotten here. */
#include "operator/apply.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/doc/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define APPLY_WIDTH    16u
#define MAX_BODY_BYTES (2u << 20)
#define MAX_BODY_ARENA (16u << 20)

struct apply {
    struct controller *op;
    const char *key;
    const struct job *job;
    const struct plan *plan;
    struct arena *arena;
    apply_done_fn done;
    void *arg;
    size_t next; /* first action that is not started */
    unsigned n_open;
    bool is_pumping;
    struct outcome outcome;
};

struct step {
    struct apply *a;
    const struct action *action;
};

static void pump(struct apply *a);

static enum kube_kind kind_of(enum verb v)
{
    switch (v) {
    case VERB_CREATE_SECRET:
        return KUBE_SECRET;
    case VERB_CREATE_SERVICE:
        return KUBE_SERVICE;
    case VERB_CREATE_WORKER:
    case VERB_DELETE_WORKER:
    case VERB_LOOK_WORKER:
        return KUBE_POD;
    }
    return KUBE_POD;
}

static void
name_of(const struct apply *a, const struct action *x, char ret[OBJECT_NAME_SIZE])
{
    switch (x->verb) {
    case VERB_CREATE_SECRET:
        object_secret_name(a->job, ret);
        return;
    case VERB_CREATE_SERVICE:
        (void)snprintf(ret, OBJECT_NAME_SIZE, "%s", a->job->name);
        return;
    case VERB_CREATE_WORKER:
    case VERB_DELETE_WORKER:
    case VERB_LOOK_WORKER:
        object_worker_name(a->job, x->index, ret);
        return;
    }
}

/* The first trouble is kept: later ones are mostly its consequences. */
static void trouble(struct apply *a,
                    enum trouble t,
                    const char *reason,
                    const struct action *x,
                    const char *text)
{
    char name[OBJECT_NAME_SIZE];
    const char *message;

    if (a->outcome.trouble != TROUBLE_NONE)
        return;
    name_of(a, x, name);
    message = arena_printf(a->arena, "%s %s: %s", kube_kind_name(kind_of(x->verb)),
                           name, text);
    a->outcome = (struct outcome){
        .trouble = t, .reason = reason, .message = message ? message : "out of memory"};
}

static void step_done(struct step *s)
{
    struct apply *a = s->a;

    a->n_open--;
    if (!a->is_pumping)
        pump(a);
}

static void confirm(const struct step *s)
{
    struct apply *a = s->a;

    switch (s->action->verb) {
    case VERB_CREATE_SECRET:
        store_have_secret(a->op->store, a->key, a->job->uid);
        return;
    case VERB_CREATE_SERVICE:
        store_have_service(a->op->store, a->key, a->job->uid);
        return;
    case VERB_CREATE_WORKER:
    case VERB_LOOK_WORKER:
        store_expect_worker(a->op->store, a->key, a->job->uid, s->action->index,
                            clock_now_ns());
        return;
    case VERB_DELETE_WORKER:
        return;
    }
}

/* --- what is there already ---------------------------------------------------------
 */

static const char *owner_uid(const struct node *object)
{
    const struct node *owners = node_at(object, "metadata.ownerReferences");
    const char *uid = NULL;

    for (const struct node *c = owners ? owners->first : NULL; c; c = c->next) {
        if (node_bool(c, "controller", false))
            uid = node_str(c, "uid");
    }
    return uid;
}

enum whose { WHOSE_OURS, WHOSE_ANOTHERS, WHOSE_UNREADABLE };

static enum whose whose_is(const struct apply *a, const struct kube_reply *r)
{
    struct arena arena;
    struct node *object = NULL;
    const char *uid;
    enum whose w = WHOSE_UNREADABLE;

    arena_init(&arena, MAX_BODY_ARENA);
    if (json_read(&arena, r->body, r->n, &object, NULL) == 0) {
        uid = owner_uid(object);
        w = uid && strcmp(uid, a->job->uid) == 0 ? WHOSE_OURS : WHOSE_ANOTHERS;
    }
    arena_release(&arena);
    return w;
}

static void check_owner(const struct step *s, const struct kube_reply *r)
{
    switch (whose_is(s->a, r)) {
    case WHOSE_OURS:
        confirm(s);
        return;
    case WHOSE_ANOTHERS:
        trouble(s->a, TROUBLE_RETRY, "NameTaken", s->action,
                "exists and does not belong to this job; delete it, or give the job "
                "another name");
        return;
    case WHOSE_UNREADABLE:
        trouble(s->a, TROUBLE_RETRY, "CreateFailed", s->action,
                "the API server's answer is not JSON");
        return;
    }
}

static void on_existing(void *arg, const struct kube_reply *r)
{
    struct step *s = arg;

    if (r->answer.cls == ANSWER_OK)
        check_owner(s, r);
    else
        trouble(s->a, TROUBLE_RETRY, "CreateFailed", s->action, r->answer.message);
    step_done(s);
}

/* No answer is no news: the worker stays expected, and is asked for again later. */
static void on_looked(void *arg, const struct kube_reply *r)
{
    struct step *s = arg;
    struct apply *a = s->a;

    if (r->answer.cls == ANSWER_NOT_FOUND
        || (r->answer.cls == ANSWER_OK && whose_is(a, r) == WHOSE_ANOTHERS))
        store_miss_worker(a->op->store, a->key, a->job->uid, s->action->index);
    else
        confirm(s);
    step_done(s);
}

static int get(struct step *s, kube_done_fn done, struct err *err)
{
    struct apply *a = s->a;
    char name[OBJECT_NAME_SIZE];
    struct kube_request rq = {.method = "GET",
                              .kind = kind_of(s->action->verb),
                              .ns = a->job->ns,
                              .name = name,
                              .done = done,
                              .arg = s};

    name_of(a, s->action, name);
    return kube_submit(a->op->kube, &rq, err);
}

static void get_existing(struct step *s)
{
    struct err err = ERR_INIT;

    if (get(s, on_existing, &err) < 0) {
        trouble(s->a, TROUBLE_RETRY, "CreateFailed", s->action, err.text);
        step_done(s);
    }
}

/* --- create ------------------------------------------------------------------------
 */

static void on_created(void *arg, const struct kube_reply *r)
{
    struct step *s = arg;
    const struct answer *x = &r->answer;

    switch (x->cls) {
    case ANSWER_OK:
        confirm(s);
        break;
    case ANSWER_EXISTS:
        get_existing(s);
        return;
    case ANSWER_INVALID:
        trouble(s->a, TROUBLE_REJECTED, "InvalidPodTemplate", s->action, x->message);
        break;
    case ANSWER_CONFLICT:
    case ANSWER_NOT_FOUND:
    case ANSWER_GONE:
    case ANSWER_FORBIDDEN:
    case ANSWER_THROTTLED:
    case ANSWER_UNAVAILABLE:
        trouble(s->a, TROUBLE_RETRY, "CreateFailed", s->action, x->message);
        break;
    }
    step_done(s);
}

static struct node *
build_secret(struct build *b, const struct apply *a, struct err *err)
{
    uint8_t token[32];
    struct node *o;

    if (random_bytes(token, sizeof(token)) < 0) {
        (void)err_set(err, -EIO, "the system gives no random bytes");
        return NULL;
    }
    o = object_secret(b, a->job, token);
    explicit_bzero(token, sizeof(token));
    return o;
}

static struct node *build_body(struct build *b,
                               const struct apply *a,
                               const struct action *x,
                               struct err *err)
{
    switch (x->verb) {
    case VERB_CREATE_SECRET:
        return build_secret(b, a, err);
    case VERB_CREATE_SERVICE:
        return object_service(b, a->job);
    case VERB_CREATE_WORKER:
        return object_worker(b, a->job, &a->op->objects, x->index, err);
    case VERB_DELETE_WORKER: {
        struct node *o = node_object(b);
        struct node *pre = node_child(b, o, "preconditions", NODE_OBJECT);

        node_set_str(b, pre, "uid", x->uid);
        return o;
    }
    case VERB_LOOK_WORKER: /* has none */
        return NULL;
    }
    return NULL;
}

static void on_deleted(void *arg, const struct kube_reply *r)
{
    struct step *s = arg;
    enum answer_class c = r->answer.cls;

    if (c != ANSWER_OK && c != ANSWER_NOT_FOUND && c != ANSWER_CONFLICT)
        trouble(s->a, TROUBLE_RETRY, "DeleteFailed", s->action, r->answer.message);
    step_done(s);
}

static int submit(struct step *s, const struct strbuf *body, struct err *err)
{
    const struct action *x = s->action;
    bool is_delete = x->verb == VERB_DELETE_WORKER;
    char name[OBJECT_NAME_SIZE];
    struct kube_request rq = {
        .method = is_delete ? "DELETE" : "POST",
        .kind = kind_of(x->verb),
        .ns = s->a->job->ns,
        .name = is_delete ? name : NULL,
        .query = x->verb == VERB_CREATE_WORKER ? "?fieldValidation=Strict" : NULL,
        .body = strbuf_str(body),
        .body_n = body->n,
        .done = is_delete ? on_deleted : on_created,
        .arg = s};

    name_of(s->a, x, name);
    if (strbuf_status(body))
        return err_set(err, strbuf_status(body), "does not fit in %u bytes",
                       MAX_BODY_BYTES);
    return kube_submit(s->a->op->kube, &rq, err);
}

/* Renders the body and sends it. */
static int send(struct step *s, struct err *err)
{
    struct arena arena;
    struct build b = {.arena = &arena};
    struct strbuf body;
    struct node *o;
    int rc;

    arena_init(&arena, MAX_BODY_ARENA);
    strbuf_init(&body, MAX_BODY_BYTES);
    o = build_body(&b, s->a, s->action, err);
    if (o)
        json_write(o, &body);
    rc = o ? submit(s, &body, err) : (err->code ? err->code : -ENOMEM);
    if (body.p)
        explicit_bzero(body.p, body.n);
    strbuf_release(&body);
    arena_release(&arena);
    return rc;
}

static void start_step(struct apply *a, const struct action *x)
{
    struct step *s = arena_alloc(a->arena, sizeof(*s));
    struct err err = ERR_INIT;
    int rc;

    if (!s) {
        trouble(a, TROUBLE_RETRY, "CreateFailed", x, "out of memory");
        return;
    }
    *s = (struct step){.a = a, .action = x};
    a->n_open++;
    rc = x->verb == VERB_LOOK_WORKER ? get(s, on_looked, &err) : send(s, &err);
    if (rc < 0) {
        trouble(a, rc == -EINVAL ? TROUBLE_REJECTED : TROUBLE_RETRY,
                rc == -EINVAL ? "InvalidSpec" : "CreateFailed", x,
                err.code ? err.text : "out of memory");
        a->n_open--;
    }
}

static void pump(struct apply *a)
{
    const struct plan *p = a->plan;

    a->is_pumping = true;
    while (a->next < p->n && a->outcome.trouble == TROUBLE_NONE
           && a->n_open < APPLY_WIDTH) {
        const struct action *x = &p->v[a->next];

        if (a->n_open > 0 && x->stage != p->v[a->next - 1].stage)
            break;
        a->next++;
        start_step(a, x);
    }
    a->is_pumping = false;
    if (a->n_open == 0)
        a->done(a->arg, &a->outcome);
}

void apply_start(struct controller *op,
                 const char *key,
                 const struct job *job,
                 const struct plan *plan,
                 struct arena *arena,
                 apply_done_fn done,
                 void *arg)
{
    static const struct outcome no_memory = {
        .trouble = TROUBLE_RETRY, .reason = "CreateFailed", .message = "out of memory"};
    struct apply *a = arena_alloc(arena, sizeof(*a));

    if (!a) {
        done(arg, &no_memory);
        return;
    }
    *a = (struct apply){.op = op,
                        .key = key,
                        .job = job,
                        .plan = plan,
                        .arena = arena,
                        .done = done,
                        .arg = arg};
    pump(a);
}
