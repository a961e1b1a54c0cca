/* SPDX-License-Identifier: Apache-2.0 */
/* DETAIL of one job. The spec is reduced to what a reader of the page needs: no variable of
 * the environment is shown, because users put secrets there. What is passed on as the
 * status has it (goodput, failure) is bounded by the schema of the CRD, and here again.
 * Called by page.c. */
#include "operator/page/core/page_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/lastline.h"
#include "operator/core/state.h"
#include "operator/core/timestamp.h"
#include "operator/page/core/page_entry.h"
#include "operator/page/core/page_json.h"
#include "operator/page/core/page_row.h"
#include "runtime/base/mem.h"

#define COMMAND_ITEMS_MAX 64
#define COMMAND_ITEM_MAX  1024
#define CONDITIONS_MAX    32
#define CONDITION_MAX     1024        /* of its message: as the operator writes it */
#define STATUS_PART_MAX   (16u << 10) /* goodput, failure */

struct detail_writer {
    struct build b;
    const struct page_detail *d;
    struct page_view v;
    struct node *spec, *conditions, *pods, *parts; /* parts: goodput, failure */
};

/* --- spec ------------------------------------------------------------------------ */

/* The first container of the pod whose program is the user's. */
static const struct node *main_container(const struct page_view *v)
{
    static const char *const roles[] = {"Launcher", "Worker", "Chief"};
    const struct node *sets = node_get(
        v->job.spec, v->job.kind == KUBE_MPIJOB ? "mpiReplicaSpecs" : "replicaSpecs");
    const struct node *c = NULL;

    for (size_t i = 0; i < ARRAY_LEN(roles) && !c; i++)
        c = node_item(node_at(node_get(sets, roles[i]), "template.spec.containers"), 0);
    return c;
}

/* Appends strings to an array that is at most COMMAND_ITEMS_MAX long. */
static void command_add(struct build *b, struct node *command, const struct node *list)
{
    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        if (!command || command->n > COMMAND_ITEMS_MAX)
            return;
        if (command->n == COMMAND_ITEMS_MAX)
            node_add_str(b, command, "...");
        else if (c->type == NODE_STRING)
            page_json_add(b, command, c->u.s, COMMAND_ITEM_MAX);
    }
}

static void detail_spec(struct detail_writer *w)
{
    const struct page_view *v = &w->v;
    const struct node *container = main_container(v);
    struct build *b = &w->b;
    struct node *command = node_array(b);

    w->spec = node_object(b);
    node_set_int(b, w->spec, "workers", v->job.n_workers);
    if (v->slots > 0)
        node_set_int(b, w->spec, "slots", v->slots);
    if (v->job.kind == KUBE_JOB)
        node_set_str(b, w->spec, "framework",
                     v->job.is_tensorflow ? "tensorflow" : "horovod");
    page_json_set(b, w->spec, "image", node_str(container, "image"), COMMAND_ITEM_MAX);
    command_add(b, command, node_get(container, "command"));
    command_add(b, command, node_get(container, "args"));
    if (command && command->n > 0)
        node_set(b, w->spec, "command", command);
    page_json_set(b, w->spec, "queue", v->job.queue, PAGE_NAME_MAX);
}

/* --- status ---------------------------------------------------------------------- */

static void detail_conditions(struct detail_writer *w)
{
    static const struct {
        const char *key;
        size_t max;
    } members[] = {{"type", PAGE_NAME_MAX},
                   {"status", PAGE_NAME_MAX},
                   {"reason", PAGE_NAME_MAX},
                   {"message", CONDITION_MAX},
                   {"lastTransitionTime", PAGE_TIME_MAX}};
    const struct node *list = node_get(w->v.job.status, "conditions");

    w->conditions = node_array(&w->b);
    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        struct node *o = node_object(&w->b);

        if (!w->conditions || w->conditions->n == CONDITIONS_MAX)
            return;
        for (size_t i = 0; i < ARRAY_LEN(members); i++)
            page_json_set(&w->b, o, members[i].key, node_str(c, members[i].key),
                          members[i].max);
        node_add(&w->b, w->conditions, o);
    }
}

static void detail_parts(struct detail_writer *w)
{
    w->parts = node_object(&w->b);
    page_json_copy(&w->b, w->parts, "goodput", w->v.job.goodput, STATUS_PART_MAX);
    page_json_copy(&w->b, w->parts, "failure", node_get(w->v.job.status, "failure"),
                   STATUS_PART_MAX);
}

/* --- pods ------------------------------------------------------------------------ */

static const char *phase_name(enum pod_phase p)
{
    switch (p) {
    case POD_PENDING:
        return "Pending";
    case POD_RUNNING:
        return "Running";
    case POD_SUCCEEDED:
        return "Succeeded";
    case POD_FAILED:
        return "Failed";
    case POD_UNKNOWN:
        break;
    }
    return "Unknown";
}

static void
pod_set_time(struct build *b, struct node *o, const char *key, uint64_t wall_us)
{
    char text[TIMESTAMP_SIZE];

    if (wall_us)
        node_set_str(b, o, key, timestamp_format_s(wall_us / 1000000u, text));
}

static void pod_set_index(struct detail_writer *w, struct node *o, const struct pod *p)
{
    uint32_t i, slots = w->v.slots;
    char ranks[32];

    if (pod_replica_index(p, &i) < 0)
        return;
    node_set_int(&w->b, o, "index", i);
    if (!w->v.job.is_agent || p->role != ROLE_WORKER || slots == 0)
        return;
    if (slots > 1)
        (void)snprintf(ranks, sizeof(ranks), "%u-%u", i * slots, (i + 1) * slots - 1);
    else
        (void)snprintf(ranks, sizeof(ranks), "%u", i);
    node_set_str(&w->b, o, "ranks", ranks);
}

/* The last line of a termination message that a program has written. That of an agent is
 * the same in all pods of a job, and part of "failure". */
static const char *pod_last_line(struct detail_writer *w, const struct pod *p)
{
    static const char of_agent[] =
        "ringmaster-failure/"; /* runtime/contract/failure.h */
    size_t n = 0;
    const char *line = last_line_find(p->exit_text, &n), *copy;

    if (w->v.job.is_agent || n == 0
        || strncmp(line, of_agent, sizeof(of_agent) - 1) == 0)
        return "";
    copy = arena_printf(w->b.arena, "%.*s", (int)n, line);
    if (!copy)
        w->b.status = -ENOMEM;
    return copy;
}

/* Why it waits or how it ended. */
static void pod_set_why(struct detail_writer *w, struct node *o, const struct pod *p)
{
    const char *reason = *p->reason        ? p->reason
                         : *p->exit_reason ? p->exit_reason
                                           : p->wait_reason;
    struct build *b = &w->b;

    page_json_set(b, o, "waiting", *p->waiting ? p->waiting : p->hint,
                  PAGE_MESSAGE_MAX);
    page_json_set(b, o, "reason", reason, PAGE_NAME_MAX);
    page_json_set(b, o, "message", *p->message ? p->message : pod_last_line(w, p),
                  PAGE_MESSAGE_MAX);
    if (!p->has_exit)
        return;
    node_set_int(b, o, "exitCode", p->exit_code);
    if (p->exit_signal)
        node_set_int(b, o, "exitSignal", p->exit_signal);
}

static struct node *detail_pod(struct detail_writer *w, const struct pod *p)
{
    struct build *b = &w->b;
    struct node *o = node_object(b);

    page_json_set(b, o, "name", p->name, PAGE_NAME_MAX);
    if (p->role >= 0)
        node_set_str(b, o, "role", role_name((enum role)p->role));
    pod_set_index(w, o, p);
    node_set_str(b, o, "phase", phase_name(p->phase));
    node_set_bool(b, o, "ready", p->is_ready);
    if (p->is_deleting)
        node_set_bool(b, o, "terminating", true);
    page_json_set(b, o, "node", p->node, PAGE_NAME_MAX);
    page_json_set(b, o, "ip", p->ip, PAGE_TIME_MAX);
    pod_set_why(w, o, p);
    pod_set_time(b, o, "created", p->made_wall_us);
    pod_set_time(b, o, "started", p->begin_wall_us);
    pod_set_time(b, o, "finished", p->has_exit ? p->exit_wall_us : 0);
    return o;
}

/* By role, then by number. */
static int pod_compare(const void *a, const void *b)
{
    const struct pod *x = *(const struct pod *const *)a;
    const struct pod *y = *(const struct pod *const *)b;
    uint32_t i = UINT32_MAX, k = UINT32_MAX;

    if (x->role != y->role)
        return x->role < y->role ? -1 : 1;
    (void)pod_replica_index(x, &i); /* those without a number come last */
    (void)pod_replica_index(y, &k);
    if (i != k)
        return i < k ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void detail_pods(struct detail_writer *w)
{
    size_t n = w->d->n_pods;
    const struct pod **sorted =
        arena_calloc(w->b.arena, n + 1, sizeof(const struct pod *));

    w->pods = node_array(&w->b);
    if (!sorted) {
        w->b.status = -ENOMEM;
        return;
    }
    for (size_t i = 0; i < n; i++)
        sorted[i] = w->d->pods[i];
    qsort(sorted, n, sizeof(const struct pod *), pod_compare);
    for (size_t i = 0; i < n; i++)
        node_add(&w->b, w->pods, detail_pod(w, sorted[i]));
}

/* --- all ------------------------------------------------------------------------- */

static void detail_put(struct strbuf *out, const char *key, const struct node *value)
{
    strbuf_printf(out, ",\"%s\":", key);
    page_json_write(value, out);
}

static void detail_put_report(const struct page_detail *d, struct strbuf *out)
{
    uint64_t age =
        d->now_wall_s > d->report_wall_s ? d->now_wall_s - d->report_wall_s : 0;

    strbuf_puts(out, ",\"report\":");
    live_report_json(d->report, out);
    strbuf_printf(out, ",\"reportAge\":%llu", (unsigned long long)age);
}

static void detail_write(const struct detail_writer *w,
                         const struct page_entry *e,
                         struct strbuf *out)
{
    const struct page_detail *d = w->d;

    strbuf_puts(out, "{\"job\":");
    strbuf_add(out, e->row, e->row_n);
    detail_put(out, "spec", w->spec);
    detail_put(out, "conditions", w->conditions);
    for (const struct node *c = w->parts->first; c; c = c->next)
        detail_put(out, c->key, c);
    detail_put(out, "pods", w->pods);
    if (d->report)
        detail_put_report(d, out);
    if (e->history && e->history->n > 0) {
        strbuf_puts(out, ",\"history\":");
        page_history_write(e->history, out);
    }
    strbuf_printf(out, ",\"access\":{\"events\":%s,\"log\":%s}}",
                  d->may_events ? "true" : "false", d->may_log ? "true" : "false");
}

int page_table_detail(const struct page_table *t,
                      const struct page_detail *d,
                      struct strbuf *out)
{
    const struct page_entry *e = keyed_find(&t->rows, d->key);
    CLEANUP(arena_release) struct arena a = {0};
    struct detail_writer w = {.b = {.arena = &a}, .d = d};
    int rc;

    if (!e)
        return -ENOENT;
    arena_init(&a, PAGE_ARENA_MAX);
    rc = page_view_make(&w.b, d->key, d->object, e->slots, &w.v);
    if (rc < 0)
        return rc == -ENOMEM ? rc : -ENOENT;
    detail_spec(&w);
    detail_conditions(&w);
    detail_parts(&w);
    detail_pods(&w);
    if (w.b.status)
        return w.b.status;
    detail_write(&w, e, out);
    return strbuf_status(out);
}
