/* SPDX-License-Identifier: Apache-2.0 */
/* list, status, explain, hosts, events: what the API server knows. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/cli/online.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define FORMATS "table, json, yaml or jsonpath=" /* of explain, hosts and events */

/* --- list ------------------------------------------------------------------------ */

static struct kubectl *
list_of(struct cli *c, const char *resource, const char *const *more)
{
    const char *const words[] = {"get", resource, NULL};
    struct kubectl *k = kubectl_new(c, NULL, words);

    for (size_t i = 0; i < c->args.n_words; i++)
        kubectl_add(k, c->args.word[i]);
    if (cli_has(&c->args, CLI_OPT_ALL))
        kubectl_add(k, "--all-namespaces");
    if (cli_has(&c->args, CLI_OPT_SELECTOR)) {
        kubectl_add(k, "--selector");
        kubectl_add(k, c->args.value[CLI_OPT_SELECTOR]);
    }
    for (; *more; more++)
        kubectl_add(k, *more);
    return k;
}

/* The resources that the cluster has and the user may list. 0: none, printed why. */
static size_t list_kinds(struct cli *c, enum kube_kind ret[2])
{
    static const enum kube_kind kinds[] = {KUBE_JOB, KUBE_MPIJOB};
    static const char *const more[] = {"--ignore-not-found", "-o", "name", NULL};
    struct err err[2] = {ERR_INIT, ERR_INIT};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        CLEANUP(strbuf_release) struct strbuf out;

        strbuf_init(&out, CLI_MAX_BYTES);
        if (kubectl_read(list_of(c, online_resource(kinds[i]), more), &out, NULL,
                         &err[i])
            == 0)
            ret[n++] = kinds[i];
    }
    if (n == 0)
        (void)cli_fail(err[0].text);
    return n;
}

/* Formats of kubectl, which both kinds get in one list. */
static int list_by_kubectl(struct cli *c)
{
    const char *more[] = {"-o", c->args.value[CLI_OPT_OUTPUT], NULL, NULL};
    enum kube_kind kinds[2];
    size_t n = list_kinds(c, kinds);
    const char *resources;

    if (n == 0)
        return 1;
    resources = n == 1 ? online_resource(kinds[0])
                       : arena_printf(&c->arena, "%s,%s", online_resource(kinds[0]),
                                      online_resource(kinds[1]));
    if (cli_has(&c->args, CLI_OPT_WATCH))
        more[2] = "--watch";
    return resources ? kubectl_become(c, list_of(c, resources, more))
                     : cli_fail("out of memory");
}

static bool list_add(struct show_table *t, const struct show *s, const struct node *o)
{
    struct build b = {.arena = t->arena};
    struct job_view v;

    if (job_view_make(&b, o, &v) < 0)
        return false;
    list_row(t, s, &v);
    return true;
}

struct list_watch {
    struct cli *c;
    struct show s;
    struct show_table t;
    bool has_headers;
};

static int list_on_change(void *arg, const char *type, const struct node *object)
{
    struct list_watch *w = arg;
    struct arena a;

    (void)type;
    arena_init(&a, CLI_MAX_BYTES);
    w->t.arena = &a;
    w->s.now_s = clock_wall_s();
    if (list_add(&w->t, &w->s, object)) {
        table_write(&w->t, w->has_headers, w->c->has_colour, &w->c->out);
        w->has_headers = false;
    }
    arena_release(&a);
    return cli_print(w->c);
}

static int list_watch(struct cli *c)
{
    static const char *const more[] = {"--watch", "--output-watch-events", "-o", "json",
                                       NULL};
    enum kube_kind kinds[2];
    size_t n = list_kinds(c, kinds);
    struct kubectl *k[2];
    struct list_watch w = {.c = c, .s = online_show(c)};

    table_init(&w.t, &c->arena);
    list_head(&w.t, &w.s);
    for (size_t i = 0; i < w.t.n_columns; i++) /* jobs come one by one */
        w.t.width[i] = i < 1u + w.s.has_namespaces ? 20 : 10;
    w.has_headers = w.s.has_headers;
    for (size_t i = 0; i < n; i++)
        k[i] = list_of(c, online_resource(kinds[i]), more);
    return n == 0 ? 1 : watch_run(c, k, n, list_on_change, &w);
}

/* Marks the name of a found job. */
static void list_mark(const struct cli *c, const struct node *job, bool *is_found)
{
    const char *name = node_str(job, "metadata.name");

    for (size_t i = 0; i < c->args.n_words; i++)
        is_found[i] |= name && strcmp(name, c->args.word[i]) == 0;
}

/* Reports each name that the user gave and that no job has. */
static int list_missing(const struct cli *c, const bool *is_found)
{
    int rc = 0;
    char text[400];

    for (size_t i = 0; i < c->args.n_words; i++) {
        if (is_found[i])
            continue;
        (void)snprintf(text, sizeof(text), "job %.200s: not found", c->args.word[i]);
        rc = cli_fail(text);
    }
    return rc;
}

/* Adds the jobs of one kind. */
static int list_kind(struct cli *c,
                     enum kube_kind kind,
                     struct show_table *t,
                     struct show *s,
                     bool *is_found,
                     struct err *err)
{
    static const char *const more[] = {"--ignore-not-found", "-o", "json", NULL};
    const struct node *o = NULL, *list;
    const struct kubectl *k = list_of(c, online_resource(kind), more);
    int rc = kubectl_json(c, k, NULL, &o, err);

    if (rc < 0)
        return rc;
    s->now_s = clock_wall_s();
    list = node_get(o, "items");
    for (const struct node *j = list ? list->first : o; j; j = list ? j->next : NULL) {
        if (list_add(t, s, j))
            list_mark(c, j, is_found);
    }
    return 0;
}

static int list_print(struct cli *c, struct show_table *t, const struct show *s)
{
    if (t->is_out_of_memory)
        return cli_fail("out of memory");
    if (t->first)
        table_write(t, s->has_headers, s->has_colour, &c->out);
    else if (c->args.n_words == 0)
        cli_note(s->has_namespaces ? "no jobs in any namespace"
                                   : "no jobs in this namespace; -A shows all");
    return 0;
}

int online_list(struct cli *c)
{
    struct show s = online_show(c);
    struct err hvd = ERR_INIT, mpi = ERR_INIT;
    bool *is_found = arena_calloc(&c->arena, c->args.n_words + 1, sizeof(*is_found));
    struct show_table t;

    if (!cli_wants_table(c))
        return list_by_kubectl(c);
    if (cli_has(&c->args, CLI_OPT_WATCH))
        return list_watch(c);
    if (!is_found)
        return cli_fail("out of memory");
    table_init(&t, &c->arena);
    list_head(&t, &s);
    (void)list_kind(c, KUBE_JOB, &t, &s, is_found, &hvd);
    if (hvd.code && hvd.code != -ENOTSUP && hvd.code != -EACCES)
        return cli_fail(hvd.text);
    (void)list_kind(c, KUBE_MPIJOB, &t, &s, is_found, &mpi);
    if (hvd.code && mpi.code)
        return cli_fail(hvd.text);
    if (hvd.code == -EACCES)
        cli_note(hvd.text);
    if (mpi.code && mpi.code != -ENOTSUP) {
        (void)err_prefix(&mpi, "MPIJobs cannot be shown");
        cli_note(mpi.text);
    }
    return list_print(c, &t, &s) | list_missing(c, is_found);
}

/* --- one job --------------------------------------------------------------------- */

/* Formats of kubectl get for one job. */
static int job_by_kubectl(struct cli *c, const struct job_view *v)
{
    const char *const words[] = {"get",
                                 online_resource(v->kind),
                                 v->name,
                                 "-o",
                                 c->args.value[CLI_OPT_OUTPUT],
                                 cli_has(&c->args, CLI_OPT_WATCH) ? "--watch" : NULL,
                                 NULL};

    return kubectl_become(c, kubectl_new(c, v->ns, words));
}

static int status_draw(struct cli *c, const struct job_view *v)
{
    const struct node *pods = online_pods(c, v), *events = online_events_of(c, v);
    struct show s = online_show(c); /* after the answers: no age is negative */
    struct build b = {.arena = &c->arena};

    if (status_page(&b, &s, v, pods, events, &c->out) < 0)
        return cli_fail("out of memory");
    return 0;
}

static int status_on_change(void *arg, const char *type, const struct node *object)
{
    struct cli *c = arg;
    struct build b = {.arena = &c->arena};
    struct job_view v;
    int rc = 0;

    watch_clear(c);
    if (strcmp(type, "DELETED") == 0) {
        strbuf_puts(&c->out, "the job was deleted\n");
        (void)cli_print(c);
        return 1;
    }
    if (job_view_make(&b, object, &v) == 0)
        rc = status_draw(c, &v);
    if (!c->is_terminal)
        strbuf_puts(&c->out, "\n");
    arena_release(&c->arena); /* nothing of this page is used again */
    return rc ? rc : cli_print(c);
}

int online_status(struct cli *c)
{
    struct kubectl *k;
    struct job_view v;

    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    if (!cli_wants_table(c))
        return job_by_kubectl(c, &v);
    if (!cli_has(&c->args, CLI_OPT_WATCH))
        return status_draw(c, &v);
    k = kubectl_new(c, v.ns,
                    (const char *const[]){"get", online_resource(v.kind), v.name,
                                          "--watch", "--output-watch-events", "-o",
                                          "json", NULL});
    return watch_run(c, &k, 1, status_on_change, c);
}

int online_explain(struct cli *c)
{
    struct build b = {.arena = &c->arena};
    struct show s = online_show(c);
    struct explain_input in = {0};
    struct job_view v;
    struct node *tree;
    const char *scheduler;

    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    in.v = &v;
    in.pods = online_pods(c, &v);
    in.events = online_events_of(c, &v);
    if (v.queue)
        in.workloads = online_optional(c, &v, "workloads.kueue.x-k8s.io");
    scheduler =
        node_str(node_item(node_get(in.pods, "items"), 0), "spec.schedulerName");
    if (scheduler && strcmp(scheduler, "volcano") == 0)
        in.groups = online_optional(c, &v, "podgroups.scheduling.volcano.sh");
    else if (scheduler && strcmp(scheduler, "default-scheduler") != 0)
        in.groups = online_optional(c, &v, "podgroups.scheduling.x-k8s.io");
    tree = explain_tree(&b, &in);
    if (!cli_wants_table(c))
        return online_tree(c, &b, tree, FORMATS);
    if (tree)
        explain_page(&s, tree, &c->out);
    return tree ? 0 : cli_fail("out of memory");
}

int online_hosts(struct cli *c)
{
    struct build b = {.arena = &c->arena};
    struct show s = online_show(c);
    struct show_table t;
    struct job_view v;
    const struct node *pods;
    struct node *tree;

    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    pods = online_pods(c, &v);
    if (!pods)
        return 1;
    tree = hosts_tree(&b, &v, pods);
    if (!cli_wants_table(c))
        return online_tree(c, &b, tree, FORMATS);
    table_init(&t, &c->arena);
    hosts_table(&t, tree);
    if (tree && !tree->first)
        cli_note("the job has no pods");
    else
        table_write(&t, s.has_headers, s.has_colour, &c->out);
    return tree ? 0 : cli_fail("out of memory");
}

/* --- events ---------------------------------------------------------------------- */

struct events_watch {
    struct cli *c;
    struct show s;
    const struct job_view *v;
    struct show_table t;
    bool has_headers;
};

static int events_on_change(void *arg, const char *type, const struct node *object)
{
    struct events_watch *w = arg;
    struct arena a;

    if (strcmp(type, "DELETED") == 0 || !job_has_event(w->v, object))
        return 0;
    arena_init(&a, CLI_MAX_BYTES);
    w->t.arena = &a;
    w->s.now_s = clock_wall_s();
    event_row(&w->t, &w->s, object);
    table_write(&w->t, w->has_headers, w->c->has_colour, &w->c->out);
    w->has_headers = false;
    arena_release(&a);
    return cli_print(w->c);
}

/* Events of the job, for formats other than a table. */
static struct node *
events_tree(struct build *b, const struct job_view *v, const struct node *events)
{
    const struct node *items = node_get(events, "items");
    struct node *list = node_object(b), *all = node_array(b);

    for (const struct node *e = items ? items->first : NULL; e; e = e->next) {
        if (job_has_event(v, e))
            node_add(b, all, node_copy(b, e));
    }
    node_set_str(b, list, "apiVersion", "v1");
    node_set_str(b, list, "kind", "List");
    node_set(b, list, "items", all);
    return list;
}

static int events_watch(struct cli *c, const struct job_view *v)
{
    static const char *const words[] = {
        "get", "events", "--watch", "--output-watch-events", "-o", "json", NULL};
    struct events_watch w = {.c = c, .s = online_show(c), .v = v};
    struct kubectl *k = kubectl_new(c, v->ns, words);

    table_init(&w.t, &c->arena);
    events_head(&w.t);
    w.has_headers = w.s.has_headers;
    return watch_run(c, &k, 1, events_on_change, &w);
}

int online_events(struct cli *c)
{
    struct build b = {.arena = &c->arena};
    struct show s;
    const struct node *events;
    struct show_table t;
    struct job_view v;

    if (cli_format(c) == FORMAT_KUBECTL)
        return online_refuse_format(FORMATS);
    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    if (cli_has(&c->args, CLI_OPT_WATCH))
        return events_watch(c, &v);
    events = online_events_of(c, &v);
    if (!events)
        return 1;
    s = online_show(c);
    if (!cli_wants_table(c))
        return online_tree(c, &b, events_tree(&b, &v, events), FORMATS);
    table_init(&t, &c->arena);
    events_head(&t);
    events_rows(&t, &s, &v, events, SIZE_MAX);
    if (t.first)
        table_write(&t, s.has_headers, s.has_colour, &c->out);
    else
        cli_note("the job has no events; Kubernetes keeps them for an hour");
    return t.is_out_of_memory ? cli_fail("out of memory") : 0;
}
