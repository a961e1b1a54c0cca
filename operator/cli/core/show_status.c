/* SPDX-License-Identifier: Apache-2.0 */
/* One screen about a job: what, where, why; and the tables of events, hosts and ranks. */
#include "operator/cli/core/job_view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/labels.h"
#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"

#define LAST_EVENTS 5

static const char *text_or(const char *s, const char *otherwise)
{
    return s && *s ? s : otherwise;
}

static const struct node *items_of(const struct node *list)
{
    const struct node *items = node_get(list, "items");

    return items ? items->first : NULL;
}

/* --- pods ------------------------------------------------------------------------ */

static const char *pod_label(const struct node *pod, const char *key)
{
    const struct node *n = node_get(node_at(pod, "metadata.labels"), key);

    return n && n->type == NODE_STRING ? n->u.s : "";
}

static const char *pod_role(const struct job_view *v, const struct node *pod)
{
    return pod_label(pod, v->kind == KUBE_MPIJOB ? MPI_LABEL_JOB_ROLE : LABEL_JOB_ROLE);
}

static uint32_t pod_index(const struct job_view *v, const struct node *pod)
{
    const char *s = pod_label(pod, v->kind == KUBE_MPIJOB ? MPI_LABEL_REPLICA_INDEX
                                                          : LABEL_REPLICA_INDEX);

    return (uint32_t)strtoul(s, NULL, 10);
}

/* "Running", "ImagePullBackOff", "Terminating": as kubectl get pods, and why it waits. */
static const char *
pod_state(struct arena *a, const struct node *object, const char **ret_why)
{
    char conditions[POD_CONDITIONS_SIZE];
    struct pod pod;

    *ret_why = "";
    if (pod_decode(KUBE_JOB, object, conditions, &pod, NULL) < 0)
        return "Unknown";
    if (*pod.waiting)
        *ret_why = text_or(arena_strdup(a, pod.waiting), "");
    else if (*pod.message)
        *ret_why = text_or(arena_strdup(a, pod.message), "");
    if (pod.is_deleting)
        return "Terminating";
    if (*pod.reason)
        return text_or(arena_strdup(a, pod.reason), "");
    if (pod.phase == POD_FAILED && *pod.exit_reason)
        return text_or(arena_strdup(a, pod.exit_reason), "");
    return text_or(node_str(object, "status.phase"), "Unknown");
}

/* The order of roles, then of indexes. */
static void hosts_sort(const struct node **pod, size_t n, const struct job_view *v)
{
    for (size_t i = 1; i < n; i++) {
        const struct node *p = pod[i];
        size_t k = i;

        for (; k > 0; k--) {
            int d = strcmp(pod_role(v, pod[k - 1]), pod_role(v, p));

            if (d < 0 || (d == 0 && pod_index(v, pod[k - 1]) <= pod_index(v, p)))
                break;
            pod[k] = pod[k - 1];
        }
        pod[k] = p;
    }
}

static void
hosts_ranks(struct build *b, struct node *o, const struct job_view *v, uint32_t worker)
{
    uint32_t first = worker * v->slots;
    char text[32];

    if (v->slots > 1)
        (void)snprintf(text, sizeof(text), "%u-%u", first, first + v->slots - 1);
    else
        (void)snprintf(text, sizeof(text), "%u", first);
    node_set_str(b, o, "ranks", text);
}

struct node *
hosts_tree(struct build *b, const struct job_view *v, const struct node *pods)
{
    const struct node *items = node_get(pods, "items");
    size_t n = items ? items->n : 0, i = 0;
    const struct node **pod = arena_calloc(b->arena, n + 1, sizeof(struct node *));
    struct node *all = node_array(b);

    if (!pod)
        return NULL;
    for (const struct node *p = items_of(pods); p; p = p->next)
        pod[i++] = p;
    hosts_sort(pod, n, v);
    for (i = 0; i < n; i++) {
        struct node *o = node_object(b);
        const char *role = pod_role(v, pod[i]), *why;

        if (v->is_agent && strcmp(role, "worker") == 0)
            hosts_ranks(b, o, v, pod_index(v, pod[i]));
        node_set_str(b, o, "role", role);
        node_set_int(b, o, "index", pod_index(v, pod[i]));
        node_set_int(b, o, "slots", v->slots);
        node_set_str(b, o, "pod", text_or(node_str(pod[i], "metadata.name"), ""));
        node_set_str(b, o, "node", text_or(node_str(pod[i], "spec.nodeName"), ""));
        node_set_str(b, o, "ip", text_or(node_str(pod[i], "status.podIP"), ""));
        node_set_str(b, o, "state", pod_state(b->arena, pod[i], &why));
        if (*why)
            node_set_str(b, o, "why", why);
        node_add(b, all, o);
    }
    return b->status ? NULL : all;
}

void hosts_table(struct show_table *t, const struct node *hosts)
{
    static const char *const heads[] = {"RANKS", "ROLE", "POD", "NODE", "IP", "STATE"};
    static const char *const keys[] = {"ranks", "role", "pod", "node", "ip", "state"};

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        table_head(t, heads[i]);
    for (const struct node *o = hosts ? hosts->first : NULL; o; o = o->next) {
        table_row(t);
        for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
            const char *s = text_or(node_str(o, keys[i]), "");

            table_cell(t, s, i == 5 ? tint_of_state(s) : TINT_NONE);
        }
    }
}

/* --- events ---------------------------------------------------------------------- */

const char *event_time(const struct node *e)
{
    const char *s = node_str(e, "lastTimestamp");

    s = s ? s : node_str(e, "series.lastObservedTime");
    s = s ? s : node_str(e, "eventTime");
    s = s ? s : node_str(e, "firstTimestamp");
    return text_or(s ? s : node_str(e, "metadata.creationTimestamp"), "");
}

int64_t event_count(const struct node *e)
{
    return node_int(e, "count", node_int(e, "series.count", 1));
}

static uint64_t event_us(const struct node *e)
{
    uint64_t us = 0;

    (void)timestamp_parse_us(event_time(e), &us);
    return us;
}

void events_head(struct show_table *t)
{
    static const char *const heads[] = {"LAST SEEN", "TYPE", "REASON", "OBJECT",
                                        "MESSAGE"};

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        table_head(t, heads[i]);
}

void event_row(struct show_table *t, const struct show *s, const struct node *e)
{
    const char *type = text_or(node_str(e, "type"), ""), *object;
    int64_t count = event_count(e);
    char kind[64], age[AGE_SIZE], first[AGE_SIZE];
    size_t i;

    (void)snprintf(kind, sizeof(kind), "%s",
                   text_or(node_str(e, "involvedObject.kind"), "object"));
    for (i = 0; kind[i]; i++)
        kind[i] = kind[i] >= 'A' && kind[i] <= 'Z' ? (char)(kind[i] + 32) : kind[i];
    object = arena_printf(t->arena, "%s/%s", kind,
                          text_or(node_str(e, "involvedObject.name"), ""));
    table_row(t);
    text_since(event_time(e), s->now_s, age);
    if (count > 1 && node_str(e, "firstTimestamp"))
        table_cellf(t, "%s (x%lld over %s)", age, (long long)count,
                    text_since(node_str(e, "firstTimestamp"), s->now_s, first));
    else
        table_cell(t, age, TINT_NONE);
    table_cell(t, type, tint_of_state(type));
    table_cell(t, node_str(e, "reason"), TINT_NONE);
    table_cell(t, object, TINT_NONE);
    table_cell(t, node_str(e, "message"), TINT_NONE);
}

struct timed_event {
    const struct node *e;
    uint64_t us;
};

static int timed_event_compare(const void *a, const void *b)
{
    const struct timed_event *x = a, *y = b;

    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    return strcmp(text_or(node_str(x->e, "metadata.name"), ""),
                  text_or(node_str(y->e, "metadata.name"), ""));
}

void events_rows(struct show_table *t,
                 const struct show *s,
                 const struct job_view *v,
                 const struct node *events,
                 size_t max)
{
    const struct node *items = node_get(events, "items");
    struct timed_event *all;
    size_t n = 0;

    all = arena_calloc(t->arena, (items ? items->n : 0) + 1, sizeof(*all));
    t->is_out_of_memory |= !all;
    for (const struct node *e = items_of(events); e && all; e = e->next) {
        if (job_has_event(v, e))
            all[n++] = (struct timed_event){e, event_us(e)};
    }
    if (n == 0)
        return;
    qsort(all, n, sizeof(*all), timed_event_compare);
    for (size_t i = n > max ? n - max : 0; i < n; i++)
        event_row(t, s, all[i].e);
}

/* --- one screen ------------------------------------------------------------------ */

struct status_writer {
    struct build *b;
    const struct show *s;
    const struct job_view *v;
    struct strbuf *out;
};

static void put_line(struct status_writer *w, const char *name, const char *text)
{
    if (!text || !*text)
        return;
    text_put_tinted(w->out, name, TINT_HEAD, w->s->has_colour);
    for (size_t n = strlen(name); n < 15; n++)
        strbuf_putc(w->out, ' ');
    text_put_safe(w->out, text, strlen(text), false);
    strbuf_putc(w->out, '\n');
}

static void put_title(struct status_writer *w)
{
    const struct job_view *v = w->v;
    const char *name = text_safe(w->b->arena, v->name);

    text_put_tinted(w->out, name, TINT_HEAD, w->s->has_colour);
    strbuf_printf(w->out, " (%s in ", job_kind_word(v->kind));
    text_put_safe(w->out, v->ns, strlen(v->ns), false);
    strbuf_puts(w->out, ") is ");
    text_put_tinted(w->out, text_safe(w->b->arena, v->state), tint_of_state(v->state),
                    w->s->has_colour);
    strbuf_putc(w->out, '\n');
    put_line(w, "Why", v->message);
}

static void put_times(struct status_writer *w)
{
    const struct node *st = w->v->status;
    const char *start = node_str(st, "startTime"),
               *end = node_str(st, "completionTime");
    char made[AGE_SIZE], since[AGE_SIZE];
    uint64_t from, to;

    text_since(node_str(w->v->object, "metadata.creationTimestamp"), w->s->now_s, made);
    if (end && start && timestamp_parse_us(start, &from) == 0
        && timestamp_parse_us(end, &to) == 0 && to >= from)
        put_line(w, "Time",
                 arena_printf(w->b->arena, "created %s ago; ran for %s", made,
                              text_age((to - from) / 1000000, since)));
    else if (start)
        put_line(w, "Time",
                 arena_printf(w->b->arena, "created %s ago; started %s ago", made,
                              text_since(start, w->s->now_s, since)));
    else
        put_line(w, "Time", arena_printf(w->b->arena, "created %s ago", made));
    if (node_str(st, "nextRestartTime"))
        put_line(w, "Next start", node_str(st, "nextRestartTime"));
}

static void put_size(struct status_writer *w)
{
    const struct job_view *v = w->v;
    const char *restarts = node_text(w->b->arena, v->status, "restarts");
    const char *replacements = node_text(w->b->arena, v->status, "replacements");

    put_line(w, "Workers",
             arena_printf(w->b->arena, "%s ready, %u slot%s each%s%s", v->workers,
                          v->slots, v->slots == 1 ? "" : "s",
                          v->has_launcher ? ", with a launcher" : "",
                          v->is_tensorflow ? ", framework tensorflow" : ""));
    if (restarts)
        put_line(w, "Restarts",
                 arena_printf(w->b->arena, "%s counted, %s not counted", restarts,
                              text_or(replacements, "0")));
}

static void add_part(struct strbuf *b, const char *text, const char *unit)
{
    if (text && *text)
        strbuf_printf(b, "%s%s%s", b->n ? ", " : "", text, unit);
}

static void put_progress(struct status_writer *w)
{
    const struct node *p = w->v->progress;
    const struct node *exposed = node_get(p, "exposedCommunication");
    bool is_all = exposed && exposed->type == NODE_INT && exposed->u.i > 0;
    struct arena *a = w->b->arena;
    struct strbuf text;
    uint64_t us;
    char age[AGE_SIZE];

    if (!p)
        return;
    strbuf_init(&text, 4096);
    add_part(&text, node_text(a, p, "summary"), "");
    if (!node_get(p, "summary"))
        add_part(&text, node_text(a, p, "step"), " steps");
    add_part(&text, node_text(a, p, "stepsPerSecond"), " steps/s");
    add_part(&text, node_text(a, p, "samplesPerSecond"), " samples/s");
    if (node_str(p, "eta") && timestamp_parse_us(node_str(p, "eta"), &us) == 0
        && us / 1000000 > w->s->now_s)
        strbuf_printf(&text, ", ends in %s", text_age(us / 1000000 - w->s->now_s, age));
    if (is_all || (exposed && exposed->type == NODE_REAL)) /* 1 is whole */
        strbuf_printf(&text, ", %.0f%% of the time waits for communication",
                      is_all ? 100 : exposed->u.d * 100);
    put_line(w, "Progress", strbuf_str(&text));
    strbuf_clear(&text);
    for (const struct node *m = node_get(p, "metrics") ? node_get(p, "metrics")->first
                                                       : NULL;
         m; m = m->next)
        strbuf_printf(&text, "%s%s %s", text.n ? ", " : "", m->key,
                      m->type == NODE_STRING ? m->u.s : "?");
    put_line(w, "Metrics", strbuf_str(&text));
    strbuf_release(&text);
}

/* Where the job's time went, and what cost most. */
static void put_goodput(struct status_writer *w)
{
    const struct node *g = w->v->goodput, *list = node_get(g, "losses");
    struct strbuf text;
    char age[AGE_SIZE];

    if (!g)
        return;
    strbuf_init(&text, 4096);
    add_part(&text, node_text(w->b->arena, g, "ratio"), " training");
    for (const struct node *l = list ? list->first : NULL; l; l = l->next) {
        int64_t s = node_int(l, "seconds", 0);
        const char *reason = text_or(node_str(l, "reason"), "");

        strbuf_printf(&text, "%s%s %s%s%s%s", text.n ? ", " : "",
                      text_or(node_str(l, "part"), "lost"),
                      text_age(s > 0 ? (uint64_t)s : 0, age), *reason ? " (" : "",
                      reason, *reason ? ")" : "");
    }
    put_line(w, "Goodput", strbuf_str(&text));
    strbuf_release(&text);
}

/* Conditions that say what is wrong with a job that runs. */
static void put_live_conditions(struct status_writer *w)
{
    static const char *const types[] = {"Stalled", "Straggling"};

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const struct node *c = condition_find(w->v->status, types[i]);

        if (condition_is_true(w->v->status, types[i]))
            put_line(w, types[i],
                     arena_printf(w->b->arena, "%s: %s",
                                  text_or(node_str(c, "reason"), "?"),
                                  text_or(node_str(c, "message"), "")));
    }
}

static void put_failure(struct status_writer *w)
{
    const struct node *f = node_get(w->v->status, "failure");
    const char *output = node_str(f, "output");

    if (!f)
        return;
    put_line(w, "First failure", text_or(node_str(f, "message"), "?"));
    if (node_get(f, "rank") || node_str(f, "pod"))
        put_line(w, "",
                 arena_printf(w->b->arena, "rank %s, pod %s, node %s, at %s",
                              text_or(node_text(w->b->arena, f, "rank"), "-"),
                              text_or(node_str(f, "pod"), "-"),
                              text_or(node_str(f, "node"), "-"),
                              text_or(node_str(f, "time"), "-")));
    for (const char *p = output; p && *p;) {
        size_t n = strcspn(p, "\n");

        strbuf_puts(w->out, "  | ");
        text_put_safe(w->out, p, n, false);
        strbuf_putc(w->out, '\n');
        p += n + (p[n] == '\n');
    }
}

static void put_conditions(struct status_writer *w)
{
    const struct node *list = node_get(w->v->status, "conditions");
    struct show_table t;
    char age[AGE_SIZE];

    if (!list || !list->first)
        return;
    table_init(&t, w->b->arena);
    table_head(&t, "CONDITION");
    table_head(&t, "STATUS");
    table_head(&t, "SINCE");
    table_head(&t, "REASON");
    table_head(&t, "MESSAGE");
    for (const struct node *c = list->first; c; c = c->next) {
        table_row(&t);
        table_cell(&t, node_str(c, "type"), TINT_NONE);
        table_cell(&t, node_str(c, "status"), TINT_NONE);
        table_cell(&t, text_since(node_str(c, "lastTransitionTime"), w->s->now_s, age),
                   TINT_NONE);
        table_cell(&t, node_str(c, "reason"), TINT_NONE);
        table_cell(&t, node_str(c, "message"), TINT_NONE);
    }
    strbuf_putc(w->out, '\n');
    table_write(&t, true, w->s->has_colour, w->out);
}

int status_page(struct build *b,
                const struct show *s,
                const struct job_view *v,
                const struct node *pods,
                const struct node *events,
                struct strbuf *out)
{
    struct status_writer w = {b, s, v, out};
    struct node *hosts = hosts_tree(b, v, pods);
    struct show_table t;

    put_title(&w);
    put_times(&w);
    put_size(&w);
    put_progress(&w);
    put_goodput(&w);
    put_live_conditions(&w);
    put_failure(&w);
    put_conditions(&w);
    table_init(&t, b->arena);
    hosts_table(&t, hosts);
    if (hosts && hosts->first) {
        strbuf_putc(out, '\n');
        table_write(&t, true, s->has_colour, out);
    }
    table_init(&t, b->arena);
    events_head(&t);
    events_rows(&t, s, v, events, LAST_EVENTS);
    if (t.first) {
        strbuf_putc(out, '\n');
        table_write(&t, true, s->has_colour, out);
    }
    return b->status ? -ENOMEM : 0;
}
