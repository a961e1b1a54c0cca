/* SPDX-License-Identifier: Apache-2.0 */
/* A table of the status page, objects for it as YAML, and what a viewer would read. */
#ifndef TESTS_UNIT_OP_PAGE_WORLD_H
#define TESTS_UNIT_OP_PAGE_WORLD_H

#include "operator/doc/json.h"
#include "operator/doc/yaml.h"
#include "operator/page/core/page_table.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "tests/unit/unit.h"

static const char page_world_running[] =
    "apiVersion: ringmaster.dev/v1beta1\n"
    "kind: HorovodJob\n"
    "metadata: {namespace: team, name: train, uid: u1, resourceVersion: '4711',\n"
    "  creationTimestamp: '2026-01-01T00:00:00Z'}\n"
    "spec: {slotsPerWorker: 4, replicaSpecs: {Worker: {replicas: 2, template: {spec:\n"
    "  {containers: [{name: w, image: i, command: [python, t.py], env:\n"
    "  [{name: TOKEN, value: hunter2}]}]}}}}}\n"
    "status: {state: Running, message: all run, workers: 2/2, restarts: 1,\n"
    "  replacements: 0, startTime: '2026-01-01T00:00:10Z', goodput: {ratio: 91%},\n"
    "  progress: {step: 17, percentage: 3},\n"
    "  conditions: [{type: Running, status: 'True', reason: AllWorkersRunning},\n"
    "    {type: Stalled, status: 'True'}, {type: Straggling, status: 'False'}]}\n";

struct page_world {
    struct arena a;
    struct build b;
    struct page_table *t;
    struct node *object[3];
    struct strbuf out;
};

static inline struct page_world *page_world_open(void)
{
    struct page_world *w = mem_zalloc(sizeof(*w));

    assert_non_null(w);
    arena_init(&w->a, 64u << 20);
    w->b = (struct build){.arena = &w->a};
    w->t = page_table_new();
    assert_non_null(w->t);
    strbuf_init(&w->out, 16u << 20);
    return w;
}

static inline void page_world_close(struct page_world **w)
{
    page_table_free((*w)->t);
    strbuf_release(&(*w)->out);
    arena_release(&(*w)->a);
    mem_free(*w);
}

static inline struct node *page_world_read(struct page_world *w, const char *yaml)
{
    struct err err = ERR_INIT;
    struct node *docs = NULL;

    if (yaml_read_all(&w->a, yaml, strlen(yaml), &docs, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(docs && docs->n == 1);
    return node_copy(&w->b, docs->first);
}

static inline void
page_world_put(struct page_world *w, const char *key, const char *yaml, int rc)
{
    assert_int_equal(page_table_put(w->t, key, page_world_read(w, yaml)), rc);
}

/* The array of all rows without its brackets; valid until the next call. */
static inline const char *page_world_rows_of(struct page_world *w,
                                             const struct page_table *t)
{
    static const struct page_scope all = {NULL, true, true};
    static const char head[] = "{\"jobs\":[";
    static const char tail[] = "],\"kinds\":[\"horovodjobs\",\"mpijobs\"]}";

    strbuf_clear(&w->out);
    page_table_all(t, &all, &w->out);
    assert_int_equal(strbuf_status(&w->out), 0);
    assert_int_equal(strncmp(w->out.p, head, strlen(head)), 0);
    assert_string_equal(w->out.p + w->out.n - strlen(tail), tail);
    w->out.p[w->out.n - strlen(tail)] = '\0';
    return w->out.p + strlen(head);
}

static inline const char *page_world_rows(struct page_world *w)
{
    return page_world_rows_of(w, w->t);
}

static inline void page_world_expect_rows(struct page_world *w, const char *rows)
{
    assert_string_equal(page_world_rows(w), rows);
}

static inline void page_world_expect_member(struct page_world *w, const char *text)
{
    const char *rows = page_world_rows(w);

    if (!strstr(rows, text))
        fail_msg("no %s in %s", text, rows);
}

/* A JSON reader accepts it, and it is one line. */
static inline struct node *page_world_expect_json(struct page_world *w,
                                                  const char *text)
{
    struct err err = ERR_INIT;
    struct node *o = NULL;

    if (json_read(&w->a, text, strlen(text), &o, &err) < 0)
        fail_msg("%s in %s", err.text, text);
    assert_null(strpbrk(text, "\r\n"));
    return o;
}

/* "1 2 -3": the uids of jobs, then of what is gone; "" for no text. */
static inline void
page_world_expect_uids(struct page_world *w, const char *text, const char *uids)
{
    const struct node *o = *text ? page_world_expect_json(w, text) : NULL;
    const struct node *jobs = node_get(o, "jobs"), *gone = node_get(o, "gone");
    char is[200] = "";
    size_t n = 0;

    for (const struct node *c = jobs ? jobs->first : NULL; c; c = c->next)
        n += (size_t)snprintf(is + n, sizeof(is) - n, "%s%s", n ? " " : "",
                              node_str(c, "uid"));
    for (const struct node *c = gone ? gone->first : NULL; c; c = c->next)
        n += (size_t)snprintf(is + n, sizeof(is) - n, "%s-%s", n ? " " : "", c->u.s);
    assert_string_equal(is, uids);
}

#endif
