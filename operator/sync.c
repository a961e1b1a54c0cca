/* SPDX-License-Identifier: Apache-2.0 */
/* The reconcile shell.
 *
 *   store --JSON--> job --> decide --actions--> apply (async) --> observe and decide again
 *                             |                                       |
 *                             '-----------no actions------------------+
 *   queue_done <-- store <-- status patch (async) <-- Events (async) <'
 *
 * Invariants
 *  1. Everything a sync needs is in its arena. It keeps nothing of the store across a
 *     wait: the snapshot is taken again after apply.
 *  2. Events are sent before the status that they announce, under names that make a
 *     repetition harmless: a crash in between loses nothing and doubles nothing.
 *  3. The status is written only when it differs, under the resourceVersion it was
 *     derived from. If the API server does not keep it as sent (its CRD lacks a field),
 *     it is not sent again before it changes, so writing always stops.
 *  4. One sync per key at a time (the queue ensures it).
 *  5. Changes of counts and messages alone are written at most once in 3 to 30 s
 *     (core/pace.c), those of progress as ask.c allows; all others at once. */
#include "operator/sync.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/apply.h"
#include "operator/ask.h"
#include "operator/core/release.h"
#include "operator/doc/json.h"
#include "operator/doc/object.h"
#include "operator/record.h"
#include "operator/webhook.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define SYNC_ARENA_BYTES   (64u << 20)
#define MAX_PROBLEMS_BYTES 4096u
#define MAX_PATCH_BYTES    (1u << 20)

struct sync {
    struct sync *next;
    struct controller *op;
    char key[STORE_KEY_SIZE];
    struct arena arena;
    const struct front *front;
    const struct node *object;
    struct job_meta meta;
    struct job_meta *job; /* created by front; NULL until the spec has been read */
    struct job_plan plan;
    struct sync_outcome outcome;
    struct decision decision;
    struct node *status; /* to be written */
    uint8_t status_hash[SHA256_BYTES];
    unsigned n_events_sent;
    bool is_refused;   /* the spec has problems */
    bool has_written;  /* the status was sent */
    bool is_report;    /* the status only brings progress */
    bool is_releasing; /* it ends without a decision */
    const char *again; /* why the sync must be retried; NULL: it need not */
    bool has_failed;
    uint64_t started_ns;
    size_t n_bytes;     /* of the job's JSON; see SYNC_MAX_BYTES */
    char uid[UID_SIZE]; /* of the job in the store; "" if there was none */
};

unsigned sync_room(const struct controller *op)
{
    if (op->n_syncs >= SYNC_MAX_AT_ONCE)
        return 0;
    return op->sync_bytes < SYNC_MAX_BYTES ? SYNC_MAX_NAMESPACE : 1;
}

static void sync_set_bytes(struct sync *s, size_t n)
{
    s->op->sync_bytes += n - s->n_bytes;
    s->n_bytes = n;
}

static void sync_free(struct sync *s)
{
    struct sync **p = &s->op->syncs;

    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    s->op->n_syncs--;
    sync_set_bytes(s, 0);
    arena_release(&s->arena);
    mem_free(s);
}

void sync_drop_all(struct controller *op)
{
    while (op->syncs)
        sync_free(op->syncs);
}

/* Every sync ends here. why NULL: success; otherwise the sync is retried with
 * back-off. */
static void sync_finish(struct sync *s, const char *why)
{
    struct controller *op = s->op;
    uint64_t now_ns = clock_now_ns(), delay_ns;

    metrics_sync(&op->metrics, !why, now_ns - s->started_ns);
    if (op->ask && !why && (s->has_written || ask_may_write(op->ask, s->key)))
        ask_show(op->ask, s->key);
    if (op->ask && !why && !s->is_releasing)
        ask_set(op->ask, s->key, &s->meta, &s->decision.ask);
    delay_ns = queue_done(op->queue, s->key, why != NULL, now_ns);
    op->metrics.queue_retries += why != NULL;
    if (why)
        log_warn("sync failed", "job=%s attempt=%u retry_ms=%llu cause=\"%s\"", s->key,
                 queue_n_failures(op->queue, s->key),
                 (unsigned long long)(delay_ns / NS_PER_MS), why);
    else if (s->decision.requeue_ms
             && queue_add(op->queue, s->key,
                          now_ns + s->decision.requeue_ms * NS_PER_MS)
                    < 0)
        controller_lost(op, s->key);
    sync_free(s);
}

static void sync_finish_with_outcome(struct sync *s)
{
    sync_finish(s, s->again);
}

/* --- writing the status ----------------------------------------------------------- */

static void sync_log_change(const struct sync *s)
{
    enum job_state old = state_of_status(s->meta.status);
    const struct decision *d = &s->decision;
    const char *from = s->meta.status ? state_name(old) : "new";

    if (s->meta.status && old == d->state)
        return;
    if (d->state == STATE_FAILED)
        log_info("job failed", "job=%s reason=%s cause=\"%s\"", s->key, d->reason,
                 d->message);
    else if (d->state == STATE_RESTARTING)
        log_info("job restarts", "job=%s from=%s reason=%s cause=\"%s\"", s->key, from,
                 d->reason, d->message);
    else
        log_info("job changed", "job=%s from=%s to=%s", s->key, from,
                 state_name(d->state));
}

static void sync_store_answer(struct sync *s, const struct kube_reply *r)
{
    struct build b = {.arena = &s->arena};
    char key[STORE_KEY_SIZE];
    struct node *object;
    const char *differs;
    struct arena a;

    arena_init(&a, OBJECT_MAX_BYTES);
    if (object_read(&a, (struct json_span){r->body, r->n}, job_rules, &object, NULL)
        < 0) {
        arena_release(&a);
        return; /* the watch shows it later */
    }
    differs = status_difference(s->status, node_get(object, "status"));
    if (store_status_kept(s->op->store, s->key, s->meta.uid, s->status_hash, !differs))
        log_warn("the API server does not keep the status as sent, continuing without; "
                 "is its CRD older than this operator?",
                 "job=%s field=status.%s", s->key, differs);
    if (store_take_answer(s->op->store, s->meta.kind, object, key, NULL) > 0
        && status_needs_sync(&b, s->meta.status, s->status))
        controller_wake(s->op, key);
    arena_release(&a);
}

static void on_status_written(void *arg, const struct kube_reply *r)
{
    struct sync *s = arg;

    switch (r->answer.cls) {
    case ANSWER_OK:
        metrics_status(&s->op->metrics,
                       s->meta.kind == KUBE_MPIJOB ? METRICS_MPIJOB
                                                   : METRICS_HOROVODJOB,
                       s->decision.cause, s->meta.status, s->status, clock_wall_s());
        webhook_confirm(s->op->webhook, s->meta.uid, s->status);
        sync_store_answer(s, r);
        sync_finish_with_outcome(s);
        return;
    case ANSWER_NOT_FOUND: /* deleted meanwhile, even if the watch lags */
        log_info("job was deleted", "job=%s", s->key);
        store_lose_job(s->op->store, s->key, s->meta.uid);
        controller_wake(s->op, s->key); /* for its pods */
        sync_finish(s, NULL);
        return;
    case ANSWER_CONFLICT:
        sync_finish(s, "the job was changed meanwhile");
        return;
    case ANSWER_EXISTS:
    case ANSWER_GONE:
    case ANSWER_INVALID:
    case ANSWER_FORBIDDEN:
    case ANSWER_THROTTLED:
    case ANSWER_UNAVAILABLE:
        sync_finish(s, r->answer.message);
        return;
    }
}

static void sync_write_status(struct sync *s)
{
    struct build b = {.arena = &s->arena};
    struct node *patch = node_object(&b);
    struct node *meta = node_child(&b, patch, "metadata", NODE_OBJECT);
    struct err err = ERR_INIT;
    struct kube_request rq = {.method = "PATCH",
                              .kind = s->meta.kind,
                              .ns = s->meta.ns,
                              .name = s->meta.name,
                              .sub = "status",
                              .done = on_status_written,
                              .arg = s};
    struct strbuf body;
    int rc;

    if (s->meta.resource_version)
        node_set_str(&b, meta, "resourceVersion", s->meta.resource_version);
    node_set_str(&b, meta, "uid", s->meta.uid);
    node_set(&b, patch, "status", status_patch(&b, s->meta.status, s->status));
    strbuf_init(&body, MAX_PATCH_BYTES);
    if (b.status == 0)
        json_write(patch, &body);
    rq.body = strbuf_str(&body);
    rq.body_n = body.n;
    rc = b.status || strbuf_status(&body) ? err_set(&err, -ENOMEM, "out of memory")
                                          : kube_submit(s->op->kube, &rq, &err);
    strbuf_release(&body);
    if (rc < 0) {
        sync_finish(s, err.text);
        return;
    }
    s->has_written = true;
    if (!s->is_report)
        pace_note(&s->op->pace, s->key, clock_now_ns());
    sync_log_change(s);
    webhook_hold(s->op->webhook, &s->meta, s->status, &s->decision, &s->arena);
}

/* One Event after the other, so that clients see them in order; then the status. */
static void sync_send_events(void *arg)
{
    struct sync *s = arg;

    if (s->n_events_sent < s->decision.n_notes)
        record_event(s->op->record, s->job, s->front->component,
                     &s->decision.note[s->n_events_sent++], sync_send_events, s);
    else if (s->status)
        sync_write_status(s);
    else
        sync_finish_with_outcome(s);
}

/* --- deciding --------------------------------------------------------------------- */

static int sync_observe_and_decide(struct sync *s)
{
    struct question q = {.job = s->job,
                         .outcome = &s->outcome,
                         .cfg = &s->op->objects,
                         .priorities = &s->op->priorities,
                         .now_wall_s = clock_wall_s(),
                         .arena = &s->arena};
    struct observed seen;
    struct job_shape shape;
    int rc;

    s->front->shape(s->job, &shape);
    rc = store_observe(s->op->store, s->key, s->job, &shape, clock_now_ns(), &s->arena,
                       &seen);
    if (rc == 0 && s->op->ask)
        seen.live = ask_report(s->op->ask, s->key, &s->arena, &seen.live_wall_s);
    q.seen = &seen;
    return rc < 0 ? rc : s->front->decide(&q, &s->decision);
}

/* Sets s->status if it must be written. */
static int sync_choose_status(struct sync *s)
{
    struct build b = {.arena = &s->arena};
    struct node *status = s->decision.status;
    struct sha256 sum;
    struct strbuf text;
    int rc;

    if (!status || node_equal(status, s->meta.status))
        return 0;
    strbuf_init(&text, MAX_PATCH_BYTES);
    status = status_timeless(&b, status);
    if (status)
        json_write(status, &text);
    rc = b.status ? b.status : strbuf_status(&text);
    if (rc == 0) {
        sha256_init(&sum);
        sha256_add(&sum, strbuf_str(&text), text.n);
        sha256_end(&sum, s->status_hash);
        if (!store_is_unkept(s->op->store, s->key, s->meta.uid, s->status_hash))
            s->status = s->decision.status;
    }
    strbuf_release(&text);
    return rc;
}

/* Delays the status of an unfinished job if only counts and messages changed; the job
 * is queued for that time. A status that only brings progress waits for its turn
 * (ask.c), whatever has started this sync. */
static void sync_delay_progress(struct sync *s)
{
    struct build b = {.arena = &s->arena};
    uint64_t wait_ns, wait_ms;

    if (!s->status || s->decision.was_finished)
        return;
    s->is_report = status_is_report(&b, s->meta.status, s->status);
    if (s->is_report) {
        if (!s->op->ask || !ask_may_write(s->op->ask, s->key))
            s->status = NULL;
        return;
    }
    wait_ns = pace_wait_ns(&s->op->pace, s->key, clock_now_ns());
    if (wait_ns == 0 || !status_is_progress(&b, s->meta.status, s->status))
        return;
    s->status = NULL;
    wait_ms = wait_ns / NS_PER_MS + 1;
    if (s->decision.requeue_ms == 0 || wait_ms < s->decision.requeue_ms)
        s->decision.requeue_ms = wait_ms;
}

/* Announces and writes what was decided last. */
static void sync_report(struct sync *s)
{
    if (sync_choose_status(s) < 0) {
        sync_finish(s, "out of memory");
        return;
    }
    sync_delay_progress(s);
    sync_send_events(s);
}

/* The actions have changed what can be observed: decides again, for the status. */
static void on_applied(void *arg, const struct sync_outcome *outcome)
{
    struct sync *s = arg;
    int rc;

    if (!s->is_refused)
        s->outcome = *outcome;
    if (outcome->trouble == TROUBLE_RETRY)
        s->again = outcome->message;
    rc = sync_observe_and_decide(s);
    if (rc == -ENOENT) /* deleted meanwhile */
        sync_finish(s, NULL);
    else if (rc < 0)
        sync_finish(s, "out of memory");
    else
        sync_report(s);
}

/* The problems of the spec, if any, as an outcome. -EREMOTE: another
 * controller manages it. */
static int sync_check_spec(struct sync *s)
{
    struct strbuf p;
    char *text;

    strbuf_init(&p, MAX_PROBLEMS_BYTES);
    s->job = s->front->open(s->object, &s->meta, &s->arena, &p);
    if (!s->job) {
        strbuf_release(&p);
        return -ENOMEM;
    }
    if (!s->front->is_ours(s->job)) { /* its problems do not matter */
        strbuf_release(&p);
        return -EREMOTE;
    }
    if (p.n == 0 && strbuf_status(&p) == 0) {
        strbuf_release(&p);
        return 0;
    }
    text = arena_strdup(&s->arena, strbuf_str(&p));
    strbuf_release(&p);
    if (!text)
        return -ENOMEM;
    for (char *c = text; *c; c++) { /* joins the lines, one per problem */
        if (*c == '\n')
            *c = c[1] ? ';' : '\0';
    }
    s->is_refused = true;
    s->outcome = (struct sync_outcome){.trouble = TROUBLE_REJECTED,
                                       .is_of_spec = true,
                                       .reason = "InvalidSpec",
                                       .message = text};
    return 0;
}

static void sync_log_overdue(const struct sync *s)
{
    const struct job_plan *p = &s->plan;
    unsigned n = 0;

    for (size_t i = 0; i < p->n; i++)
        n += p->v[i].verb == VERB_LOOK;
    if (n > 0)
        log_warn("the watch has not shown created objects, requesting each",
                 "job=%s objects=%u", s->key, n);
}

static int sync_decide(struct sync *s)
{
    int rc;

    s->outcome =
        (struct sync_outcome){.trouble = TROUBLE_NONE, .reason = "", .message = ""};
    rc = sync_check_spec(s);
    if (rc == 0)
        rc = sync_observe_and_decide(s);
    if (rc == 0 && s->is_refused && s->decision.was_finished) {
        s->is_refused = false;
        s->outcome.trouble = TROUBLE_NONE;
        rc = sync_observe_and_decide(s);
    }
    if (rc == 0) {
        s->plan = s->decision.plan;
        sync_log_overdue(s);
    }
    return rc;
}

static int sync_read_job(struct sync *s, struct err *err)
{
    struct job_text text = {.uid = ""};
    struct node *object;
    int rc = store_job_text(s->op->store, s->key, &text);

    (void)snprintf(s->uid, sizeof(s->uid), "%s", text.uid);
    if (rc < 0)
        return rc;
    sync_set_bytes(s, text.n);
    rc = json_read(&s->arena, text.p, text.n, &object, err);
    if (rc == 0)
        rc = meta_decode(s->front->kind, object, &s->meta, err);
    s->meta.is_at_rest = text.is_at_rest;
    s->object = object;
    return rc;
}

static void on_released(void *arg, const struct sync_outcome *outcome)
{
    sync_finish(arg, outcome->trouble == TROUBLE_NONE ? NULL : outcome->message);
}

/* Removes the finalizer of pods that the job does not keep. True: the sync continues there,
 * and the watch's events of these pods start the next one. */
static bool sync_releases(struct sync *s)
{
    int rc = release_make_plan(s->op->store, &s->meta, &s->arena, &s->plan);

    if (rc == 0 && s->plan.n == 0)
        return false;
    if (rc < 0) {
        sync_finish(s, "out of memory");
        return true;
    }
    s->is_releasing = true;
    apply_start(s->op, s->key, &s->meta, &s->plan, &s->arena, on_released, s);
    return true; /* s may have been freed */
}

/* rc, err: of sync_read_job. */
static void sync_run(struct sync *s, int rc, const struct err *err)
{
    if (rc == 0)
        webhook_confirm(s->op->webhook, s->meta.uid, s->meta.status);
    if (rc == -ENOENT)
        rc = store_key_meta(s->key, &s->arena, &s->meta);
    if (rc == 0 && sync_releases(s))
        return;
    if (rc == 0 && s->meta.is_deleting) {
        sync_finish(s, NULL);
        return;
    }
    if (rc == 0)
        rc = sync_decide(s);
    if (rc == -ENOENT || rc == -EREMOTE)
        sync_finish(s, NULL);
    else if (rc < 0)
        sync_finish(s, err->code ? err->text : "out of memory");
    else if (s->plan.n == 0)
        sync_report(s);
    else
        apply_start(s->op, s->key, s->job, &s->plan, &s->arena, on_applied, s);
}

static int sync_take_job(struct sync *s, const struct kube_reply *r, struct err *err)
{
    char key[STORE_KEY_SIZE];
    struct node *object;
    struct arena a;
    int rc;

    arena_init(&a, OBJECT_MAX_BYTES);
    rc = object_read(&a, (struct json_span){r->body, r->n}, job_rules, &object, err);
    if (rc == 0)
        rc = store_take_answer(s->op->store, s->front->kind, object, key, err);
    arena_release(&a);
    return rc < 0 ? rc : 0;
}

static void on_job_received(void *arg, const struct kube_reply *r)
{
    struct sync *s = arg;
    struct err err = ERR_INIT;
    int rc = 0;

    sync_set_bytes(s, 0);
    if (r->answer.cls == ANSWER_NOT_FOUND)
        store_lose_job(s->op->store, s->key, s->uid);
    else if (r->answer.cls != ANSWER_OK)
        rc = err_set(&err, -EIO, "%s", r->answer.message);
    else
        rc = sync_take_job(s, r, &err);
    if (rc == 0)
        rc = sync_read_job(s, &err);
    if (rc == -ENODATA)
        rc = err_set(&err, rc, "the API server's answer is not the job of the watch");
    sync_run(s, rc, &err);
}

/* The store did not keep the JSON of the job of s->uid. */
static void sync_request_job(struct sync *s)
{
    struct kube_request rq = {.method = "GET", .done = on_job_received, .arg = s};
    struct err err = ERR_INIT;
    struct job_meta meta;
    int rc = store_key_meta(s->key, &s->arena, &meta);

    sync_set_bytes(s, OBJECT_MAX_MEMBER);
    if (rc == 0) {
        rq.kind = meta.kind;
        rq.ns = meta.ns;
        rq.name = meta.name;
        rc = kube_submit(s->op->kube, &rq, &err);
    }
    if (rc < 0)
        sync_finish(s, err.code ? err.text : "out of memory");
}

void sync_start(struct controller *op, const char *key)
{
    struct sync *s = mem_zalloc(sizeof(*s));
    struct err err = ERR_INIT;
    int rc;

    if (!s) {
        (void)queue_done(op->queue, key, true, clock_now_ns());
        return;
    }
    s->op = op;
    s->started_ns = clock_now_ns();
    (void)snprintf(s->key, sizeof(s->key), "%s", key);
    s->front = front_of(store_key_kind(key));
    arena_init(&s->arena, SYNC_ARENA_BYTES);
    s->next = op->syncs;
    op->syncs = s;
    op->n_syncs++;
    rc = sync_read_job(s, &err);
    if (rc == -ENODATA)
        sync_request_job(s);
    else
        sync_run(s, rc, &err);
}
