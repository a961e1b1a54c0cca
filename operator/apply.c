/* SPDX-License-Identifier: Apache-2.0 */
/* Executes the actions of a plan.
 *
 *   CREATE  POST 201          created
 *           409, GET 200      AlreadyExists. If the owner is this job, the same as
 *                             created; if a digest says that the object must be kept
 *                             current and it differs, PATCH. Otherwise NameTaken: the
 *                             other object is left alone, and the create is retried
 *           400 413 422       InvalidPodTemplate: the job fails with the server's
 *                             message
 *   UPDATE  PATCH 404         absent: the next reconcile creates it. For kinds without
 *                             a watch the job is queued at once
 *           409 422           changed meanwhile, or another object of that name: for
 *                             kinds without a watch GET, then as for CREATE
 *   DELETE  200 404 409       deleted, or another object of that name: done
 *   EXPLAIN GET               what says why the job waits (pod_events.c, inquire.c)
 *   LOOK    GET 404, or an    the store marks the object missing. Every other result,
 *           other job's       also no answer, changes nothing
 *   anything else             CreateFailed, UpdateFailed, DeleteFailed: retried with
 *                             back-off
 *
 * Changes and deletions name the uid. An object that another client created under the
 * name of ours is never touched.
 *
 * Bodies are rendered one at a time, just before they are sent, so that a thousand
 * workers do not need a thousand pods in memory. Pods of HorovodJobs are created with
 * strict field validation: a misspelt field in the template is reported instead of
 * dropped. Secrets are created here and not kept. Called by sync.c. */
#include "operator/apply.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/doc/json.h"
#include "operator/doc/object.h"
#include "operator/inquire.h"
#include "operator/ssh_key.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define APPLY_WIDTH    16u
#define MAX_BODY_BYTES (2u << 20)
#define MAX_BODY_ARENA (16u << 20)

struct apply {
    struct controller *op;
    const char *key;
    const struct job_meta *job;
    const struct job_plan *plan;
    struct arena *arena;
    apply_done_fn done;
    void *arg;
    size_t next; /* first action that is not started */
    unsigned n_open;
    bool is_pumping;
    struct sync_outcome outcome;
    const struct action *troubled; /* the action of the outcome; NULL: no trouble */
    const struct action *looked;   /* the last LOOK that found our object; or NULL */
    char looked_uid[UID_SIZE];     /* of that object */
};

struct apply_step {
    struct apply *a;
    const struct action *action;
    bool is_patch;      /* the object to create exists: it is patched instead */
    char uid[UID_SIZE]; /* of the object to change or delete; "": not known */
};

static void apply_pump(struct apply *a);

/* Keeps the first failure: later ones are mostly its consequences. Of those that fail side
 * by side it is the first of the plan, so that the text is the same at each try. */
static void apply_set_trouble(struct apply *a,
                              enum trouble t,
                              const char *reason,
                              const struct action *x,
                              const char *text)
{
    bool is_earlier =
        a->outcome.trouble == t && x->stage == a->troubled->stage && x < a->troubled;
    const char *message;

    if (a->outcome.trouble != TROUBLE_NONE && !is_earlier)
        return;
    a->troubled = x;
    a->outcome.is_conflict &= !is_earlier;
    message =
        arena_printf(a->arena, "%s %s: %s", kube_kind_name(x->kind), x->name, text);
    a->outcome.trouble = t;
    a->outcome.reason = reason;
    a->outcome.message = message ? message : "out of memory";
}

static const char *action_failed_reason(const struct action *x)
{
    if (x->verb == VERB_UPDATE)
        return "UpdateFailed";
    return x->verb == VERB_DELETE ? "DeleteFailed" : "CreateFailed";
}

static void step_retry(const struct apply_step *s, const char *text)
{
    apply_set_trouble(s->a, TROUBLE_RETRY, action_failed_reason(s->action), s->action,
                      text);
}

static void step_done(struct apply_step *s)
{
    struct apply *a = s->a;

    a->n_open--;
    if (!a->is_pumping)
        apply_pump(a);
}

static void reply_read_uid(const struct kube_reply *r, char ret[UID_SIZE])
{
    struct json_span uid =
        json_find_text(json_find((struct json_span){r->body, r->n}, "metadata"), "uid");

    (void)snprintf(ret, UID_SIZE, "%.*s", uid.n < UID_SIZE ? (int)uid.n : 0, uid.p);
}

/* The object exists; r is the API server's answer with its current state. */
static void step_confirm(const struct apply_step *s, const struct kube_reply *r)
{
    const struct apply *a = s->a;
    const struct action *x = s->action;
    struct fact there = {.state = FACT_THERE};

    reply_read_uid(r, there.uid);
    if (!*there.uid) { /* for example an error page of a proxy */
        step_retry(s, "the API server's answer shows no object");
    } else if (x->kind == KUBE_POD) {
        store_expect_pod(a->op->store, a->key, a->job->uid, x->role, x->index,
                         there.uid, clock_now_ns());
    } else if (x->kind == KUBE_BATCH) {
        store_expect_batch(a->op->store, a->key, a->job->uid, there.uid,
                           clock_now_ns());
    } else {
        memcpy(there.digest, x->digest, sizeof(there.digest));
        store_know(a->op->store, a->key, a->job->uid, x->kind, &there);
    }
}

static void step_report_missing(const struct apply_step *s, enum fact_state state)
{
    const struct apply *a = s->a;
    const struct action *x = s->action;
    struct fact fact = {.state = state};

    if (x->kind == KUBE_POD)
        store_miss_pod(a->op->store, a->key, a->job->uid, x->role, x->index);
    else if (x->kind == KUBE_BATCH)
        store_miss_batch(a->op->store, a->key, a->job->uid);
    else
        store_know(a->op->store, a->key, a->job->uid, x->kind, &fact);
    if (state == FACT_ABSENT)
        controller_wake(a->op, a->key); /* no watch reports an absent object */
}

static int step_send(struct apply_step *s, struct err *err);

static void step_release_arena(const struct apply_step *s, struct arena *arena)
{
    if (s->action->kind == KUBE_SECRET)
        arena_wipe(arena);
    arena_release(arena);
}

/* --- existing objects ------------------------------------------------------------- */

enum whose { WHOSE_OURS, WHOSE_ANOTHERS, WHOSE_UNREADABLE };

static enum whose reply_owner(const struct apply *a,
                              const struct kube_reply *r,
                              struct arena *arena,
                              struct node **ret_object)
{
    if (json_read(arena, r->body, r->n, ret_object, NULL) < 0)
        return WHOSE_UNREADABLE;
    return strcmp(object_owner_uid(*ret_object), a->job->uid) == 0 ? WHOSE_OURS
                                                                   : WHOSE_ANOTHERS;
}

static bool action_is_kept_current(const struct action *x)
{
    static const uint8_t none[SHA256_BYTES];

    return memcmp(x->digest, none, sizeof(none)) != 0;
}

static struct node *
step_build_body(struct build *b, const struct apply_step *s, struct err *err);

/* Compares only our fields: the API server and other clients add some of their own. */
static bool step_is_current(const struct apply_step *s, const struct node *object)
{
    struct arena arena;
    struct build b = {.arena = &arena};
    struct node *wanted;
    bool is;

    arena_init(&arena, MAX_BODY_ARENA);
    wanted = step_build_body(&b, s, NULL);
    is = wanted && object_holds(object, wanted);
    step_release_arena(s, &arena);
    return is;
}

static void apply_on_patched(void *arg, const struct kube_reply *r);

static bool is_watched(enum kube_kind kind)
{
    return kind == KUBE_POD || kind == KUBE_BATCH;
}

static void step_name_taken(const struct apply_step *s)
{
    if (!is_watched(s->action->kind))
        step_report_missing(s, FACT_UNKNOWN);
    apply_set_trouble(
        s->a, TROUBLE_RETRY, "NameTaken", s->action,
        "exists and does not belong to this job; delete it, or give the job another "
        "name");
}

/* True when another request has been sent for the step. */
static bool step_adopt(struct apply_step *s, const struct kube_reply *r)
{
    struct arena arena;
    struct node *object = NULL;
    struct err err = ERR_INIT;
    bool is_open = false;

    arena_init(&arena, MAX_BODY_ARENA);
    switch (reply_owner(s->a, r, &arena, &object)) {
    case WHOSE_OURS:
        if (!is_watched(s->action->kind)
            && node_at(object, "metadata.deletionTimestamp")) {
            step_retry(s, "is being deleted");
            break;
        }
        if (!action_is_kept_current(s->action) || step_is_current(s, object)) {
            step_confirm(s, r);
            break;
        }
        s->is_patch = true;
        reply_read_uid(r, s->uid);
        is_open = step_send(s, &err) == 0;
        if (!is_open)
            step_retry(s, err.text);
        break;
    case WHOSE_ANOTHERS:
        step_name_taken(s);
        break;
    case WHOSE_UNREADABLE:
        step_retry(s, "the API server's answer is not JSON");
        break;
    }
    step_release_arena(s, &arena);
    return is_open;
}

static void on_existing(void *arg, const struct kube_reply *r)
{
    struct apply_step *s = arg;

    if (r->answer.cls == ANSWER_OK) {
        if (step_adopt(s, r))
            return;
    } else {
        step_retry(s, r->answer.message);
    }
    step_done(s);
}

/* No watch reports this, so the job is queued again. An object of another owner that
 * has the launcher's name ends the plan, so that no later action touches it. */
static void step_object_lost(const struct apply_step *s, bool is_anothers)
{
    step_report_missing(s, FACT_ABSENT);
    controller_wake(s->a->op, s->a->key);
    if (is_anothers && s->action->kind == KUBE_BATCH)
        step_name_taken(s);
}

static void step_object_found(const struct apply_step *s, const struct kube_reply *r)
{
    step_confirm(s, r);
    s->a->looked = s->action;
    reply_read_uid(r, s->a->looked_uid);
}

/* Without an answer the object stays expected and is requested again later. */
static void on_looked(void *arg, const struct kube_reply *r)
{
    struct apply_step *s = arg;
    struct arena arena;
    struct node *object = NULL;

    arena_init(&arena, MAX_BODY_ARENA);
    if (r->answer.cls == ANSWER_NOT_FOUND
        || (r->answer.cls == ANSWER_OK
            && reply_owner(s->a, r, &arena, &object) == WHOSE_ANOTHERS))
        step_object_lost(s, r->answer.cls == ANSWER_OK);
    else if (r->answer.cls == ANSWER_OK)
        step_object_found(s, r);
    step_release_arena(s, &arena);
    step_done(s);
}

static int step_get(struct apply_step *s, kube_done_fn done, struct err *err)
{
    const struct apply *a = s->a;
    struct kube_request rq = {.method = "GET",
                              .kind = s->action->kind,
                              .ns = a->job->ns,
                              .name = s->action->name,
                              .done = done,
                              .arg = s};

    return kube_submit(a->op->kube, &rq, err);
}

static void step_get_existing(struct apply_step *s)
{
    struct err err = ERR_INIT;

    if (step_get(s, on_existing, &err) < 0) {
        step_retry(s, err.text);
        step_done(s);
    }
}

/* --- create, update, delete ------------------------------------------------------- */

static void on_created(void *arg, const struct kube_reply *r)
{
    struct apply_step *s = arg;
    const struct kube_answer *x = &r->answer;

    switch (x->cls) {
    case ANSWER_OK:
        step_confirm(s, r);
        break;
    case ANSWER_EXISTS:
        step_get_existing(s);
        return;
    case ANSWER_INVALID:
        apply_set_trouble(s->a, TROUBLE_REJECTED, "InvalidPodTemplate", s->action,
                          x->message);
        break;
    case ANSWER_CONFLICT:
    case ANSWER_NOT_FOUND:
    case ANSWER_GONE:
    case ANSWER_FORBIDDEN:
    case ANSWER_THROTTLED:
    case ANSWER_UNAVAILABLE:
        step_retry(s, x->message);
        break;
    }
    step_done(s);
}

/* The object may have been replaced by one of another job, or by a newer one of
 * ours. */
static bool step_is_other(const struct apply_step *s, const struct kube_answer *x)
{
    return (x->cls == ANSWER_INVALID || x->cls == ANSWER_CONFLICT) && *s->uid
           && !s->is_patch && !is_watched(s->action->kind);
}

/* Kinds with a watch need no confirmation: the watch reports the change. */
static void apply_on_patched(void *arg, const struct kube_reply *r)
{
    struct apply_step *s = arg;
    const struct action *x = s->action;

    if (r->answer.cls == ANSWER_NOT_FOUND) {
        if (!is_watched(x->kind)) {
            step_report_missing(s, FACT_ABSENT);
            step_retry(s, r->answer.message);
        }
    } else if (step_is_other(s, &r->answer)) {
        step_get_existing(s);
        return;
    } else if (r->answer.cls != ANSWER_OK) {
        s->a->outcome.is_conflict |=
            s->a->outcome.trouble == TROUBLE_NONE && r->answer.cls == ANSWER_CONFLICT;
        step_retry(s, r->answer.message);
    } else if (s->is_patch || !is_watched(x->kind)) {
        step_confirm(s, r);
    }
    step_done(s);
}

static void on_deleted(void *arg, const struct kube_reply *r)
{
    struct apply_step *s = arg;
    enum answer_class c = r->answer.cls;

    if (c != ANSWER_OK && c != ANSWER_NOT_FOUND && c != ANSWER_CONFLICT)
        step_retry(s, r->answer.message);
    else if (!is_watched(s->action->kind))
        step_report_missing(s, FACT_ABSENT);
    step_done(s);
}

/* The API server refuses a merge patch whose uid differs from the object's. */
static void
patch_set_uid(struct build *b, const struct apply_step *s, struct node *patch)
{
    if (*s->uid && s->action->verb != VERB_DELETE)
        node_set_str(b, node_child(b, patch, "metadata", NODE_OBJECT), "uid", s->uid);
}

static struct node *
step_build_secret(struct build *b, const struct apply_step *s, struct err *err)
{
    const struct apply *a = s->a;
    struct secrets secrets;
    struct ssh_key key = {0};
    struct node *o = NULL;

    if (random_bytes(secrets.token, sizeof(secrets.token)) < 0) {
        (void)err_set(err, -EIO, "the system returns no random bytes");
        return NULL;
    }
    if (a->job->kind != KUBE_MPIJOB || ssh_key_make(&key, err) == 0) {
        secrets.ssh_private = key.private_pem;
        secrets.ssh_public = key.public_line;
        o = front_of(a->job->kind)
                ->build(b, a->job, &a->op->objects, s->action, &secrets, err);
    }
    ssh_key_wipe(&key);
    explicit_bzero(&secrets, sizeof(secrets));
    return o;
}

static struct node *
step_build_body(struct build *b, const struct apply_step *s, struct err *err)
{
    const struct apply *a = s->a;
    const struct action *x = s->action;

    if (x->verb == VERB_DELETE)
        return plan_delete_options(b, s->action, s->uid);
    if (x->body)
        return node_copy(b, x->body);
    if (x->kind == KUBE_SECRET)
        return step_build_secret(b, s, err);
    return front_of(a->job->kind)->build(b, a->job, &a->op->objects, x, NULL, err);
}

static int step_submit(struct apply_step *s, const struct strbuf *body, struct err *err)
{
    const struct action *x = s->action;
    bool is_create = x->verb == VERB_CREATE && !s->is_patch;
    bool is_strict = x->kind == KUBE_POD && s->a->job->kind == KUBE_JOB;
    struct kube_request rq = {
        .method = is_create ? "POST" : (x->verb == VERB_DELETE ? "DELETE" : "PATCH"),
        .kind = x->kind,
        .ns = s->a->job->ns,
        .name = is_create ? NULL : x->name,
        .sub = x->sub,
        .query = is_create && is_strict ? "?fieldValidation=Strict" : NULL,
        .body = strbuf_str(body),
        .body_n = body->n,
        .done = is_create ? on_created
                          : (x->verb == VERB_DELETE ? on_deleted : apply_on_patched),
        .arg = s};

    if (strbuf_status(body))
        return err_set(err, strbuf_status(body), "does not fit in %u bytes",
                       MAX_BODY_BYTES);
    return kube_submit(s->a->op->kube, &rq, err);
}

/* Renders the body and sends it. */
static int step_send(struct apply_step *s, struct err *err)
{
    struct arena arena;
    struct build b = {.arena = &arena};
    struct strbuf body;
    struct node *o;
    int rc;

    arena_init(&arena, MAX_BODY_ARENA);
    strbuf_init_secret(&body, MAX_BODY_BYTES);
    o = step_build_body(&b, s, err);
    if (o)
        patch_set_uid(&b, s, o);
    if (o && b.status == 0)
        json_write(o, &body);
    rc = o && b.status == 0 ? step_submit(s, &body, err)
                            : (err->code ? err->code : -ENOMEM);
    strbuf_release(&body);
    step_release_arena(s, &arena);
    return rc;
}

static const char *uid_of(const struct apply *a, const struct action *x)
{
    if (x->uid)
        return x->uid;
    return x->verb == VERB_UPDATE && a->looked && a->looked->kind == x->kind
                   && strcmp(a->looked->name, x->name) == 0
               ? a->looked_uid
               : "";
}

static void on_explained(void *arg)
{
    step_done(arg);
}

static void apply_start_step(struct apply *a, const struct action *x)
{
    struct apply_step *s = arena_alloc(a->arena, sizeof(*s));
    struct err err = ERR_INIT;
    int rc;

    if (!s) {
        apply_set_trouble(a, TROUBLE_RETRY, action_failed_reason(x), x,
                          "out of memory");
        return;
    }
    *s = (struct apply_step){.a = a, .action = x};
    (void)snprintf(s->uid, sizeof(s->uid), "%s", uid_of(a, x));
    a->n_open++;
    if (x->verb == VERB_EXPLAIN) {
        inquire_request(a->op, a->key, a->job, x, a->arena, on_explained, s);
        return;
    }
    rc = x->verb == VERB_LOOK ? step_get(s, on_looked, &err) : step_send(s, &err);
    if (rc < 0) {
        apply_set_trouble(a, rc == -EINVAL ? TROUBLE_REJECTED : TROUBLE_RETRY,
                          rc == -EINVAL ? "InvalidSpec" : action_failed_reason(x), x,
                          err.code ? err.text : "out of memory");
        a->n_open--;
    }
}

static void apply_pump(struct apply *a)
{
    const struct job_plan *p = a->plan;

    a->is_pumping = true;
    while (a->next < p->n && a->outcome.trouble == TROUBLE_NONE
           && a->n_open < APPLY_WIDTH) {
        const struct action *x = &p->v[a->next];

        if (a->n_open > 0 && x->stage != p->v[a->next - 1].stage)
            break;
        a->next++;
        apply_start_step(a, x);
    }
    a->is_pumping = false;
    if (a->n_open == 0)
        a->done(a->arg, &a->outcome);
}

void apply_start(struct controller *op,
                 const char *key,
                 const struct job_meta *job,
                 const struct job_plan *plan,
                 struct arena *arena,
                 apply_done_fn done,
                 void *arg)
{
    static const struct sync_outcome no_memory = {
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
    apply_pump(a);
}
