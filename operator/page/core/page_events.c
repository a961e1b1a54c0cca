/* SPDX-License-Identifier: Apache-2.0 */
/* A namespace may have many thousand Events, and few are the job's. So a list is walked as
 * text: of each item only the name of its object is looked at, and other items are skipped
 * without a tree. A tree is made of one Event at a time, and only its line of the answer is
 * kept: PAGE_EVENTS_MAX of them, the newest; when there are twice as many, the older half
 * goes.
 *
 * Called by page_list.c. */
#include "operator/page/core/page_events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/cli/core/job_view.h"
#include "operator/core/timestamp.h"
#include "operator/doc/json.h"
#include "operator/doc/prune.h"
#include "runtime/base/mem.h"

#define EVENT_BYTES (64u << 10) /* of one Event without what is not shown */

struct page_event {
    uint64_t us, order; /* of the last one; of its addition */
    char *uid, *line;
};

struct page_events {
    char *name, *uid;
    struct page_event v[2 * PAGE_EVENTS_MAX];
    size_t n;
    uint64_t n_added;
    bool has_dropped;
    struct strbuf text;
};

static const struct prune_rule object_rules[] = {PRUNE_KEEP("kind"), PRUNE_KEEP("name"),
                                                 PRUNE_KEEP("uid"), PRUNE_END};
static const struct prune_rule metadata_rules[] = {
    PRUNE_KEEP("uid"), PRUNE_KEEP("creationTimestamp"), PRUNE_END};
static const struct prune_rule event_rules[] = {
    {.key = "metadata", .inner = metadata_rules},
    {.key = "involvedObject", .inner = object_rules},
    PRUNE_KEEP("type"),
    PRUNE_KEEP("reason"),
    PRUNE_KEEP("message"),
    PRUNE_KEEP("count"),
    PRUNE_KEEP("series"),
    PRUNE_KEEP("eventTime"),
    PRUNE_KEEP("firstTimestamp"),
    PRUNE_KEEP("lastTimestamp"),
    PRUNE_END};

struct page_events *page_events_new(const char *name, const char *uid)
{
    struct page_events *e = mem_zalloc(sizeof(*e));

    if (!e)
        return NULL;
    strbuf_init(&e->text, EVENT_BYTES);
    e->name = mem_strdup(name);
    e->uid = mem_strdup(uid);
    if (e->name && e->uid)
        return e;
    page_events_free(e);
    return NULL;
}

static void page_event_clear(struct page_event *x)
{
    mem_free(x->uid);
    mem_free(x->line);
    *x = (struct page_event){0};
}

void page_events_free(struct page_events *e)
{
    if (!e)
        return;
    for (size_t i = 0; i < e->n; i++)
        page_event_clear(&e->v[i]);
    strbuf_release(&e->text);
    mem_free(e->name);
    mem_free(e->uid);
    mem_free(e);
}

static int page_event_compare(const void *a, const void *b)
{
    const struct page_event *x = a, *y = b;

    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Sorts, and drops all but the newest. */
static void page_events_settle(struct page_events *e)
{
    size_t n_old = e->n > PAGE_EVENTS_MAX ? e->n - PAGE_EVENTS_MAX : 0;

    if (e->n > 0)
        qsort(e->v, e->n, sizeof(e->v[0]), page_event_compare);
    for (size_t i = 0; i < n_old; i++)
        page_event_clear(&e->v[i]);
    if (n_old > 0)
        memmove(e->v, e->v + n_old, (e->n - n_old) * sizeof(e->v[0]));
    e->n -= n_old;
    e->has_dropped |= n_old > 0;
}

/* The place of that uid, or a new one. */
static struct page_event *page_events_place(struct page_events *e, const char *uid)
{
    for (size_t i = 0; i < e->n; i++) {
        if (*uid && strcmp(e->v[i].uid, uid) == 0) {
            page_event_clear(&e->v[i]);
            return &e->v[i];
        }
    }
    if (e->n == ARRAY_LEN(e->v))
        page_events_settle(e);
    return &e->v[e->n++];
}

/* Users can write Events: at most so many bytes, on one line, and nothing that a terminal
 * or a browser would act on. */
static const char *event_text(struct build *b, const char *s, size_t max)
{
    CLEANUP(strbuf_release) struct strbuf safe = {0};
    size_t n = s ? strnlen(s, max) : 0;
    const char *copy;

    while (n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80) /* between characters */
        n--;
    if (n == 0)
        return "";
    strbuf_init(&safe, 4 * max);
    text_put_safe(&safe, s, n, false);
    copy = strbuf_status(&safe) == 0 ? arena_strdup(b->arena, strbuf_str(&safe)) : NULL;
    if (!copy)
        b->status = -ENOMEM;
    return copy ? copy : "";
}

static struct node *page_event_tree(struct build *b, const struct node *event)
{
    static const struct {
        const char *name, *path;
        size_t max;
    } rows[] = {
        {"type", "type", 64}, {"reason", "reason", 256}, {"message", "message", 1024}};
    struct node *o = node_object(b);
    const char *object = arena_printf(
        b->arena, "%s/%s", event_text(b, node_str(event, "involvedObject.kind"), 64),
        event_text(b, node_str(event, "involvedObject.name"), 253));

    node_set_str(b, o, "time", event_text(b, event_time(event), 64));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        node_set_str(b, o, rows[i].name,
                     event_text(b, node_str(event, rows[i].path), rows[i].max));
    if (object)
        node_set_str(b, o, "object", object);
    else
        b->status = -ENOMEM;
    node_set_int(b, o, "count", event_count(event));
    return b->status ? NULL : o;
}

static int page_events_keep(struct page_events *e, const struct node *event)
{
    struct page_event x = {.order = ++e->n_added};
    const char *uid = node_str(event, "metadata.uid");
    struct build b = {0};
    struct node *tree;
    struct arena a;

    arena_init(&a, 8 * EVENT_BYTES);
    b.arena = &a;
    tree = page_event_tree(&b, event);
    strbuf_clear(&e->text);
    if (tree)
        json_write(tree, &e->text);
    arena_release(&a);
    (void)timestamp_parse_us(event_time(event), &x.us); /* else the oldest */
    x.uid = mem_strdup(uid ? uid : "");
    x.line =
        tree && strbuf_status(&e->text) == 0 ? mem_strdup(strbuf_str(&e->text)) : NULL;
    if (!x.uid || !x.line) {
        page_event_clear(&x);
        return -ENOMEM;
    }
    *page_events_place(e, x.uid) = x;
    return 0;
}

/* Without a tree: the name of the Event's object begins with the job's. */
static bool event_may_count(const struct page_events *e, struct json_span item)
{
    struct json_span object = json_find(item, "involvedObject");
    struct json_span name = json_find_text(object, "name");
    size_t n = strlen(e->name);

    return name.n >= n && memcmp(name.p, e->name, n) == 0;
}

static int page_events_take(struct page_events *e, struct json_span item)
{
    const struct job_view v = {.name = e->name, .uid = e->uid};
    struct node *event = NULL;
    struct arena a;
    int rc;

    if (!event_may_count(e, item))
        return 0;
    strbuf_clear(&e->text);
    rc = json_prune(item, event_rules, &e->text);
    if (rc < 0)
        return rc == -ENOMEM ? rc : 0;
    arena_init(&a, 16 * EVENT_BYTES);
    rc = json_read(&a, strbuf_str(&e->text), e->text.n, &event, NULL);
    if (rc == 0 && job_has_event(&v, event))
        rc = page_events_keep(e, event);
    arena_release(&a);
    return rc == -ENOMEM ? rc : 0;
}

int page_events_add(struct page_events *e,
                    const char *text,
                    size_t n,
                    char ret_continue[PAGE_CONTINUE_SIZE])
{
    const struct json_span list = {text, n};
    struct json_span key, item, next, items = {NULL, 0};
    struct json_walk w;
    int more = 0, rc = 0;

    next = json_find_text(json_find(list, "metadata"), "continue");
    items = json_find(list, "items");
    if (items.n == 0)
        return -EINVAL;
    if (json_walk(&w, items) == 0) /* else null */
        while (rc == 0 && (more = json_walk_next(&w, &key, &item)) > 0)
            rc = page_events_take(e, item);
    if (rc < 0 || more < 0)
        return rc < 0 ? rc : more;
    (void)snprintf(ret_continue, PAGE_CONTINUE_SIZE, "%.*s",
                   next.n < PAGE_CONTINUE_SIZE ? (int)next.n : 0, next.n ? next.p : "");
    return 0;
}

void page_events_json(struct page_events *e, bool is_partial, struct strbuf *out)
{
    page_events_settle(e);
    strbuf_puts(out, "{\"events\":[");
    for (size_t i = 0; i < e->n; i++) {
        strbuf_puts(out, i > 0 ? "," : "");
        strbuf_puts(out, e->v[i].line);
    }
    strbuf_puts(out, is_partial || e->has_dropped ? "],\"truncated\":true}" : "]}");
}
