/* SPDX-License-Identifier: Apache-2.0 */
/* The streams of the status page: all rows once, then once a second what changed. A text is
 * made once for all viewers with the same scope who have the same revision.
 *
 * When MAX_STREAMS are open, a new one takes the place of the oldest one of the token that
 * has most, unless its own token would then have more. So no token keeps others out, and
 * one that serves many viewers has all places as long as they are free. Tokens count, not
 * users, because kubectl hvd page gives each viewer a token of the same account.
 *
 * Rights are checked again after check_ns. Without an answer (429, 503, too late) they count
 * on, but not for ever: viewers can use up their own budget of reviews, and would keep a
 * stream that they may not have any more. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/page/page_viewer.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"

#define PING_NS        (15 * NS_PER_S)
#define MAX_STREAMS    500u
#define KEEP_ROUNDS    5u /* of check_ns without an answer, then a stream ends */
#define MAX_ROWS_BYTES (64u << 20)

int streams_init(struct page_streams *s)
{
    s->ping = page_text_new(": ping\n\n", 8);
    s->jobs_begin = page_text_new("event: jobs\ndata: ", 18);
    s->change_begin = page_text_new("event: change\ndata: ", 20);
    s->event_end = page_text_new("\n\n", 2);
    return s->ping && s->jobs_begin && s->change_begin && s->event_end ? 0 : -ENOMEM;
}

void streams_release(struct page_streams *s)
{
    page_text_unref(s->ping);
    page_text_unref(s->jobs_begin);
    page_text_unref(s->change_begin);
    page_text_unref(s->event_end);
    page_text_unref(s->all);
}

static bool scope_is(const struct page_scope *a, const struct page_scope *b)
{
    return a->has_hvd == b->has_hvd && a->has_mpi == b->has_mpi && !a->ns == !b->ns
           && (!a->ns || strcmp(a->ns, b->ns) == 0);
}

static struct page_text *text_take(struct strbuf *b)
{
    struct page_text *t =
        strbuf_status(b) == 0 ? page_text_new(strbuf_str(b), b->n) : NULL;

    strbuf_release(b);
    return t;
}

struct page_text *streams_rows(struct page *p, const struct page_scope *scope)
{
    struct page_streams *s = &p->streams;
    uint64_t revision = page_table_revision(p->table);
    struct strbuf out;

    if (s->all && s->all_revision == revision && scope_is(&s->all_scope, scope))
        return page_text_ref(s->all);
    page_text_unref(s->all);
    strbuf_init(&out, MAX_ROWS_BYTES);
    page_table_all(p->table, scope, &out);
    s->all = text_take(&out);
    if (!s->all)
        return NULL;
    s->all_scope = *scope;
    if (scope->ns) {
        (void)snprintf(s->all_ns, sizeof(s->all_ns), "%s", scope->ns);
        s->all_scope.ns = s->all_ns;
    }
    s->all_revision = revision;
    return page_text_ref(s->all);
}

/* One event; without memory for it, or if the client is too slow, the stream ends later. */
static void
stream_send(struct page_viewer *v, struct page_text *begin, struct page_text *data)
{
    if (!data || page_call_send(v->call, begin) < 0 || page_call_send(v->call, data) < 0
        || page_call_send(v->call, v->page->streams.event_end) < 0)
        v->is_slow = true;
    v->sent_ns = clock_now_ns();
}

static void stream_send_all(struct page_viewer *v)
{
    struct page_text *rows = streams_rows(v->page, &v->scope);

    stream_send(v, v->page->streams.jobs_begin, rows);
    v->revision = page_table_revision(v->page->table);
    page_text_unref(rows);
}

struct page_scope viewer_scope(const struct page_viewer *v)
{
    return (struct page_scope){.ns = *v->route.ns ? v->route.ns : NULL,
                               .has_hvd = v->is_allowed[0],
                               .has_mpi = v->is_allowed[1]};
}

struct stream_holder { /* a token */
    uint64_t number;
    size_t n;
    struct page_viewer *oldest;
};

/* Ends a stream, for a new one of the token of that number. False: none is to go. */
static bool streams_make_place(struct page *p, uint64_t number)
{
    struct stream_holder h[MAX_STREAMS + 1] = {{.number = number, .n = 1}};
    const struct stream_holder *most = &h[0];
    size_t n = 1, i;

    for (struct page_viewer *v = p->viewers; v; v = v->next) { /* the newest first */
        if (!v->is_stream)
            continue;
        for (i = 0; i < n && h[i].number != v->number; i++)
            ;
        if (i == n)
            h[n++] = (struct stream_holder){.number = v->number};
        h[i].n++;
        h[i].oldest = v;
    }
    for (i = 1; i < n; i++) {
        if (h[i].n > most->n)
            most = &h[i];
    }
    if (most == &h[0])
        return false;
    stream_end(most->oldest, "all streams are in use, and this token has most of them");
    return true;
}

void stream_begin(struct page_viewer *v)
{
    struct page_streams *s = &v->page->streams;

    v->number = page_access_number(v->page->access, v->call->token);
    if (s->n >= MAX_STREAMS && !streams_make_place(v->page, v->number)) {
        page_call_refuse(v->call, 429,
                         "too many viewers: this operator serves 500 streams");
        return;
    }
    v->scope = viewer_scope(v);
    v->is_stream = true;
    v->checked_ns = v->allowed_ns = clock_now_ns();
    s->n++;
    page_call_stream(v->call);
    stream_send_all(v);
}

void stream_end(struct page_viewer *v, const char *why)
{
    struct strbuf out;
    struct page_text *t;

    strbuf_init(&out, 4096);
    strbuf_puts(&out, "event: end\ndata: {\"error\":\"");
    utf8_put_json(why, &out);
    strbuf_puts(&out, "\"}\n\n");
    t = text_take(&out);
    if (t)
        (void)page_call_send(v->call, t);
    page_text_unref(t);
    page_access_cancel(v->page->access, v);
    v->is_checking = false;
    v->is_stream = false;
    v->page->streams.n--;
    page_call_end(v->call);
}

void stream_not_checked(struct page_viewer *v)
{
    v->checked_ns = clock_now_ns();
    if (v->checked_ns - v->allowed_ns >= KEEP_ROUNDS * v->page->check_ns)
        stream_end(v, "the viewer's rights could not be checked for too long");
}

void stream_checked(struct page_viewer *v)
{
    struct page_scope scope = viewer_scope(v);

    if (v->refusal == 429 || v->refusal == 503) {
        stream_not_checked(v);
        return;
    }
    v->checked_ns = v->allowed_ns = clock_now_ns();
    if (v->refusal == 401 || (!scope.has_hvd && !scope.has_mpi)) {
        stream_end(v, v->why);
        return;
    }
    if (scope_is(&scope, &v->scope))
        return;
    v->scope = scope;
    stream_send_all(v);
}

/* The changes since a revision, made once for equal viewers that follow each other. */
struct change_text {
    struct page_scope scope;
    uint64_t revision;
    bool is_made, is_lost;
    struct page_text *text; /* NULL: none in this scope */
};

static void change_make(struct change_text *c, struct page_viewer *v)
{
    struct strbuf out;
    bool is_any;

    if (c->is_made && c->revision == v->revision && scope_is(&c->scope, &v->scope))
        return;
    page_text_unref(c->text);
    *c = (struct change_text){
        .scope = v->scope, .revision = v->revision, .is_made = true};
    strbuf_init(&out, MAX_ROWS_BYTES);
    is_any =
        page_table_since(v->page->table, &v->scope, v->revision, &c->is_lost, &out);
    if (is_any && !c->is_lost) {
        c->text = text_take(&out);
        c->is_lost = !c->text;
    } else {
        strbuf_release(&out);
    }
}

static void stream_send_change(struct page_viewer *v, struct change_text *c)
{
    uint64_t revision = page_table_revision(v->page->table);

    if (v->revision == revision)
        return;
    change_make(c, v);
    if (c->is_lost)
        stream_send_all(v);
    else if (c->text)
        stream_send(v, v->page->streams.change_begin, c->text);
    v->revision = revision;
}

static void stream_tick(struct page_viewer *v, struct change_text *c, uint64_t now_ns)
{
    stream_send_change(v, c);
    if (now_ns >= v->sent_ns + PING_NS) { /* what was just sent is later than now_ns */
        v->is_slow |= page_call_send(v->call, v->page->streams.ping) < 0;
        v->sent_ns = now_ns;
    }
    if (v->is_slow)
        stream_end(v, "the viewer reads too slowly");
    else if (!v->is_checking && now_ns - v->checked_ns >= v->page->check_ns)
        viewer_check(v);
}

void streams_tick(struct page *p, uint64_t now_ns)
{
    struct change_text c = {.is_made = false};
    bool leads = controller_leads(p->op);

    for (struct page_viewer *v = p->viewers; v; v = v->next) {
        if (v->is_stream && leads)
            stream_tick(v, &c, now_ns);
        else if (v->is_stream)
            stream_end(v, "this operator does not lead any more");
    }
    page_text_unref(c.text);
}
