/* SPDX-License-Identifier: Apache-2.0 */
/* Events.
 *
 * name = <job>.<16 hex digits of SHA-256(uid, reason [, message])>: without the message
 * for EVENT_ONCE. Each event is sent by POST. If it exists, that is all, or for
 * EVENT_COUNTED it is patched (count, lastTimestamp), at most once in 30 s per name. The
 * table of recent names is a cache of fixed size: losing an entry costs one request.
 * Called by sync.c. */
#include "operator/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/timestamp.h"
#include "operator/doc/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define EVENT_NAME_SIZE   128
#define EVENT_TEXT_SIZE   (1024 + 1) /* the limit of Kubernetes, with NUL */
#define RECENT_SIZE       128
#define REPEAT_AFTER_NS   (30 * NS_PER_S)
#define EVENT_ARENA_BYTES (64u << 10)

struct recent {
    char name[EVENT_NAME_SIZE];
    uint64_t sent_ns;
    uint32_t count;
};

struct event_recorder {
    struct kube *kube;
    struct recent recent[RECENT_SIZE];
    size_t next;
};

struct event_post {
    struct event_recorder *record;
    bool is_counted;
    char ns[256], name[EVENT_NAME_SIZE];
    record_done_fn done;
    void *arg;
};

struct event_recorder *record_new(struct kube *kube)
{
    struct event_recorder *r = mem_zalloc(sizeof(*r));

    if (r)
        r->kube = kube;
    return r;
}

void record_free(struct event_recorder *r)
{
    mem_free(r);
}

static void make_name(const struct job_meta *job,
                      const struct event_note *note,
                      char ret[EVENT_NAME_SIZE])
{
    uint8_t digest[SHA256_BYTES];
    char hex[2 * 8 + 1];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, job->uid, strlen(job->uid) + 1);
    sha256_add(&s, note->reason, strlen(note->reason) + 1);
    if (note->repeat != EVENT_ONCE)
        sha256_add(&s, note->message, strlen(note->message));
    sha256_end(&s, digest);
    hex_encode(digest, 8, hex);
    (void)snprintf(ret, EVENT_NAME_SIZE, "%.63s.%s", job->name, hex);
}

static struct recent *recent_find(struct event_recorder *r, const char *name)
{
    for (size_t i = 0; i < RECENT_SIZE; i++) {
        if (strcmp(r->recent[i].name, name) == 0)
            return &r->recent[i];
    }
    return NULL;
}

static struct recent *recent_add(struct event_recorder *r, const char *name)
{
    struct recent *x = &r->recent[r->next++ % RECENT_SIZE];

    *x = (struct recent){.count = 1};
    (void)snprintf(x->name, sizeof(x->name), "%s", name);
    return x;
}

/* The event was not stored, or has expired: the next one of that name is sent again. */
static void recent_drop(struct event_recorder *r, const char *name)
{
    struct recent *x = recent_find(r, name);

    if (x)
        *x = (struct recent){0};
}

static struct node *event_object(struct build *b,
                                 const struct job_meta *job,
                                 const char *component,
                                 const struct event_note *note,
                                 const char *name)
{
    struct node *o = node_object(b), *meta = node_object(b), *about = node_object(b);
    struct node *source = node_object(b);
    char now[TIMESTAMP_SIZE], text[EVENT_TEXT_SIZE];

    timestamp_format_s(clock_wall_s(), now);
    (void)snprintf(text, sizeof(text), "%s", note->message);
    node_set_str(b, meta, "name", name);
    node_set_str(b, meta, "namespace", job->ns);
    node_set_str(b, about, "apiVersion", kube_api_version(job->kind));
    node_set_str(b, about, "kind", kube_kind_name(job->kind));
    node_set_str(b, about, "namespace", job->ns);
    node_set_str(b, about, "name", job->name);
    node_set_str(b, about, "uid", job->uid);
    node_set_str(b, source, "component", component);
    node_set_str(b, o, "apiVersion", "v1");
    node_set_str(b, o, "kind", "Event");
    node_set(b, o, "metadata", meta);
    node_set(b, o, "involvedObject", about);
    node_set_str(b, o, "type", note->is_warning ? "Warning" : "Normal");
    node_set_str(b, o, "reason", note->reason);
    node_set_str(b, o, "message", text);
    node_set(b, o, "source", source);
    node_set_str(b, o, "reportingComponent", component);
    node_set_str(b, o, "firstTimestamp", now);
    node_set_str(b, o, "lastTimestamp", now);
    node_set_int(b, o, "count", 1);
    return b->status ? NULL : o;
}

static void event_finish(struct event_post *p)
{
    record_done_fn done = p->done;
    void *arg = p->arg;

    mem_free(p);
    done(arg);
}

static void record_on_patched(void *arg, const struct kube_reply *r)
{
    struct event_post *p = arg;

    if (r->answer.cls == ANSWER_NOT_FOUND) /* Events are kept for an hour */
        recent_drop(p->record, p->name);
    else if (r->answer.cls != ANSWER_OK)
        log_debug("event not counted", "event=%s cause=\"%s\"", p->name,
                  r->answer.message);
    event_finish(p);
}

static void patch_count(struct event_post *p, uint32_t count)
{
    char now[TIMESTAMP_SIZE], body[128];
    struct err err = ERR_INIT;
    struct kube_request rq = {.method = "PATCH",
                              .kind = KUBE_EVENT,
                              .ns = p->ns,
                              .name = p->name,
                              .body = body,
                              .done = record_on_patched,
                              .arg = p};

    timestamp_format_s(clock_wall_s(), now);
    rq.body_n = (size_t)snprintf(body, sizeof(body),
                                 "{\"count\":%u,\"lastTimestamp\":\"%s\"}", count, now);
    if (kube_submit(p->record->kube, &rq, &err) < 0)
        event_finish(p);
}

static void on_posted(void *arg, const struct kube_reply *r)
{
    struct event_post *p = arg;
    struct recent *x = recent_find(p->record, p->name);

    if (r->answer.cls == ANSWER_EXISTS && p->is_counted) {
        patch_count(p, x ? ++x->count : 2);
        return;
    }
    if (r->answer.cls != ANSWER_OK && r->answer.cls != ANSWER_EXISTS) {
        recent_drop(p->record, p->name);
        log_warn("event not written, continuing", "event=%s/%s cause=\"%s\"", p->ns,
                 p->name, r->answer.message);
    }
    event_finish(p);
}

static int send_event(struct event_recorder *r,
                      const struct job_meta *job,
                      const char *component,
                      const struct event_note *note,
                      struct event_post *p,
                      struct err *err)
{
    struct kube_request rq = {.method = "POST",
                              .kind = KUBE_EVENT,
                              .ns = job->ns,
                              .done = on_posted,
                              .arg = p};
    struct strbuf body;
    struct arena arena;
    struct build b = {.arena = &arena};
    struct node *o;
    int rc;

    arena_init(&arena, EVENT_ARENA_BYTES);
    strbuf_init(&body, EVENT_ARENA_BYTES);
    o = event_object(&b, job, component, note, p->name);
    if (o)
        json_write(o, &body);
    rq.body = strbuf_str(&body);
    rq.body_n = body.n;
    rc = !o || strbuf_status(&body) ? err_set(err, -ENOMEM, "out of memory")
                                    : kube_submit(r->kube, &rq, err);
    strbuf_release(&body);
    arena_release(&arena);
    return rc;
}

void record_event(struct event_recorder *r,
                  const struct job_meta *job,
                  const char *component,
                  const struct event_note *note,
                  record_done_fn done,
                  void *arg)
{
    struct event_post *p = mem_zalloc(sizeof(*p));
    uint64_t now_ns = clock_now_ns();
    struct err err = ERR_INIT;
    struct recent *x;

    if (!p) {
        log_warn("event not written, continuing", "job=%s/%s cause=\"out of memory\"",
                 job->ns, job->name);
        done(arg);
        return;
    }
    *p = (struct event_post){.record = r,
                             .is_counted = note->repeat == EVENT_COUNTED,
                             .done = done,
                             .arg = arg};
    (void)snprintf(p->ns, sizeof(p->ns), "%s", job->ns);
    make_name(job, note, p->name);
    x = recent_find(r, p->name);
    if (x && (!p->is_counted || now_ns - x->sent_ns < REPEAT_AFTER_NS)) {
        event_finish(p);
        return;
    }
    if (x) {
        x->sent_ns = now_ns;
        patch_count(p, ++x->count);
        return;
    }
    recent_add(r, p->name)->sent_ns = now_ns;
    if (send_event(r, job, component, note, p, &err) < 0) {
        recent_drop(r, p->name);
        log_warn("event not written, continuing", "event=%s cause=\"%s\"", p->name,
                 err.text);
        event_finish(p);
    }
}
