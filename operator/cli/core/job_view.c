/* SPDX-License-Identifier: Apache-2.0 */
/* API object -> struct job_view, by the operator's own decoder, so that slots, roles and
 * defaults are those that the operator uses. */
#include "operator/cli/core/job_view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/cli/core/job_file.h"
#include "operator/core/hvd/hvd_job.h"
#include "operator/core/mpi/mpi_job.h"
#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"

static const char *text_or(const char *s, const char *otherwise)
{
    return s ? s : otherwise;
}

const char *job_kind_word(enum kube_kind kind)
{
    return kind == KUBE_MPIJOB ? "mpijob" : "horovodjob";
}

const char *node_text(struct arena *a, const struct node *o, const char *path)
{
    const struct node *n = node_at(o, path);

    if (!n)
        return NULL;
    switch (n->type) {
    case NODE_STRING:
        return n->u.s;
    case NODE_INT:
        return arena_printf(a, "%lld", (long long)n->u.i);
    case NODE_REAL:
        return arena_printf(a, "%.4g", n->u.d);
    case NODE_BOOL:
        return n->u.b ? "true" : "false";
    case NODE_NULL:
    case NODE_ARRAY:
    case NODE_OBJECT:
        return NULL;
    }
    return NULL;
}

/* The condition that says why the job is in its state. */
static const struct node *main_condition(const struct job_view *v)
{
    const struct node *c = condition_find(v->status, v->state);

    if (strcmp(v->state, "Pending") == 0) {
        c = condition_find(v->status, "Created");
        if (!c || strcmp(text_or(node_str(c, "status"), ""), "True") == 0)
            c = condition_find(v->status, "Running");
    }
    return c;
}

static void view_state(struct job_view *v)
{
    enum job_state state = state_of_status(v->status);
    const struct node *c;

    v->state = text_or(node_str(v->status, "state"), state_name(state));
    v->is_final = state_is_final(state);
    c = main_condition(v);
    v->reason = text_or(node_str(c, "reason"), "");
    v->message =
        text_or(node_str(v->status, "message"), text_or(node_str(c, "message"), ""));
}

static void view_hvd(struct job_view *v, const struct job_meta *meta)
{
    const struct hvd_job *job = (const struct hvd_job *)(const void *)meta;

    v->n_workers = job->role[ROLE_WORKER].n;
    v->slots = job->slots;
    v->has_launcher = job->role[ROLE_LAUNCHER].is_set;
    v->is_tensorflow = job->framework == FRAMEWORK_TENSORFLOW;
    v->is_agent = !v->is_tensorflow && !v->has_launcher;
    v->is_elastic = job->elastic.is_set;
    v->is_suspended = job->run.is_suspended;
}

static void view_mpi(struct job_view *v, const struct job_meta *meta)
{
    const struct mpi_job *job = (const struct mpi_job *)(const void *)meta;

    v->n_workers = job->worker.n;
    v->slots = job->slots;
    v->has_launcher = true;
    v->is_suspended = job->is_suspended;
}

const char *job_container(const struct job_view *v, enum role role)
{
    const struct node *sets =
        node_get(v->spec, v->kind == KUBE_MPIJOB ? "mpiReplicaSpecs" : "replicaSpecs");
    const struct node *set = node_get(sets, role_title(role));

    if (!set && v->is_elastic)
        set = node_get(sets, role_title(ROLE_WORKER));
    return node_str(node_item(node_at(set, "template.spec.containers"), 0), "name");
}

int job_view_make(struct build *b, const struct node *object, struct job_view *ret)
{
    int kind = job_file_kind(object);
    const struct job_meta *meta;
    const struct node *label;
    struct strbuf problems;
    struct job_view v = {.object = object,
                         .spec = node_get(object, "spec"),
                         .status = node_get(object, "status")};

    if (kind < 0 || !node_str(object, "metadata.name"))
        return -EINVAL;
    strbuf_init(&problems, 1u << 20);
    meta = job_file_open(b, object, "default", &problems);
    strbuf_release(&problems);
    if (!meta)
        return -ENOMEM;
    v.kind = (enum kube_kind)kind;
    v.ns = meta->ns;
    v.name = meta->name;
    v.uid = meta->uid;
    v.progress = node_get(v.status, "progress");
    v.goodput = node_get(v.status, "goodput");
    label = node_get(node_at(object, "metadata.labels"), "kueue.x-k8s.io/queue-name");
    v.queue = label && label->type == NODE_STRING ? label->u.s : NULL;
    view_state(&v);
    if (kind == KUBE_MPIJOB)
        view_mpi(&v, meta);
    else
        view_hvd(&v, meta);
    v.workers = node_str(v.status, "workers");
    if (!v.workers)
        v.workers = arena_printf(
            b->arena, "%lld/%u",
            (long long)node_int(v.status, "replicaStatuses.Worker.active", 0),
            v.n_workers);
    if (!v.workers)
        return -ENOMEM;
    *ret = v;
    return 0;
}

const char *job_pod_selector(struct arena *a, const struct job_view *v)
{
    const char *s = arena_printf(
        a, "%s=%s", v->kind == KUBE_MPIJOB ? MPI_LABEL_JOB_NAME : LABEL_JOB_NAME,
        v->name);

    return s ? s : "";
}

bool job_has_event(const struct job_view *v, const struct node *event)
{
    const char *name = text_or(node_str(event, "involvedObject.name"), "");
    const char *kind = text_or(node_str(event, "involvedObject.kind"), "");
    const char *uid = node_str(event, "involvedObject.uid");
    size_t n = strlen(v->name);

    if (strcmp(name, v->name) == 0) {
        bool is_job = strcmp(kind, JOB_KIND) == 0 || strcmp(kind, MPI_KIND) == 0;

        return !is_job || !uid || strcmp(uid, v->uid) == 0;
    }
    if (strncmp(name, v->name, n) != 0 || name[n] != '-')
        return false;
    for (int r = 0; r < ROLE_COUNT; r++) { /* NAME-worker-0, NAME-launcher-x7k2p */
        const char *role = role_name((enum role)r);

        if (strncmp(name + n + 1, role, strlen(role)) == 0)
            return true;
    }
    return strcmp(name + n, "-token") == 0 || strcmp(name + n, "-hosts") == 0;
}

/* --- the list -------------------------------------------------------------------- */

void list_head(struct show_table *t, const struct show *s)
{
    static const char *const heads[] = {"NAME",     "KIND",    "STATE", "WORKERS",
                                        "PROGRESS", "STEPS/S", "ETA",   "AGE"};
    static const char *const wide[] = {"RESTARTS", "REPLACEMENTS", "GOODPUT", "WHY"};

    if (s->has_namespaces)
        table_head(t, "NAMESPACE");
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        table_head(t, heads[i]);
    for (size_t i = 0; i < ARRAY_LEN(wide) && s->is_wide; i++)
        table_head(t, wide[i]);
}

static const char *view_percent(struct arena *a, const struct job_view *v)
{
    const char *text = node_text(a, v->progress, "percentage");

    if (text)
        return arena_printf(a, "%s%%", text);
    return node_text(a, v->progress, "summary");
}

/* How long from now until the time of the last step. */
static const char *
view_eta(const struct show *s, const struct job_view *v, char ret[AGE_SIZE])
{
    const char *eta = node_str(v->progress, "eta");
    uint64_t us;

    if (!eta)
        return NULL;
    if (timestamp_parse_us(eta, &us) < 0)
        return eta;
    return text_age(us / 1000000 > s->now_s ? us / 1000000 - s->now_s : 0, ret);
}

void list_row(struct show_table *t, const struct show *s, const struct job_view *v)
{
    const char *made = node_str(v->object, "metadata.creationTimestamp");
    bool is_deleting = node_str(v->object, "metadata.deletionTimestamp") != NULL;
    const char *state = is_deleting ? "Terminating" : v->state;
    char text[AGE_SIZE];

    table_row(t);
    if (s->has_namespaces)
        table_cell(t, v->ns, TINT_NONE);
    table_cell(t, v->name, TINT_NONE);
    table_cell(t, v->kind == KUBE_MPIJOB ? "MPIJob" : "HorovodJob", TINT_NONE);
    table_cell(t, state, tint_of_state(state));
    table_cell(t, v->workers, TINT_NONE);
    table_cell(t, view_percent(t->arena, v), TINT_NONE);
    table_cell(t, node_text(t->arena, v->progress, "stepsPerSecond"), TINT_NONE);
    table_cell(t, view_eta(s, v, text), TINT_NONE);
    table_cell(t, text_since(made, s->now_s, text), TINT_NONE);
    if (!s->is_wide)
        return;
    table_cell(t, node_text(t->arena, v->status, "restarts"), TINT_NONE);
    table_cell(t, node_text(t->arena, v->status, "replacements"), TINT_NONE);
    table_cell(t, node_text(t->arena, v->goodput, "ratio"), TINT_NONE);
    table_cell(t, v->message, TINT_NONE);
}
