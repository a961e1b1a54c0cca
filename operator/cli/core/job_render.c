/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of a job, by the operator's own decisions.
 *
 * A small loop plays the API server: it asks the front what to do, keeps the status, takes
 * every object that is created as existing, and asks again, until nothing new comes. So
 * the objects are those of core/hvd and core/mpi, and none is listed here. */
#include "operator/cli/core/job_file.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

#define ROUNDS   8
#define PSEUDO   "placeholder for 32 random bytes "
#define RENDER_S 1767225600u /* any time: it is in no object */

struct rendering {
    struct build *b;
    const struct object_config *cfg;
    struct node *job, *all;
    struct worker *crew[ROLE_COUNT];
    uint32_t n[ROLE_COUNT];
    struct observed seen;
    struct priorities priorities;
};

static int render_start(struct rendering *r, const struct job_meta *job)
{
    struct job_shape shape;

    front_of(job->kind)->shape(job, &shape);
    for (int k = 0; k < KUBE_KIND_COUNT; k++)
        r->seen.fact[k].state = FACT_ABSENT;
    for (int i = 0; i < ROLE_COUNT; i++) {
        r->crew[i] = arena_calloc(r->b->arena, shape.n[i] + 1, sizeof(*r->crew[i]));
        if (!r->crew[i])
            return -ENOMEM;
        r->n[i] = shape.n[i];
        r->seen.crew[i] = (struct crew){r->crew[i], shape.n[i]};
    }
    return 0;
}

/* True if the object is new; it exists afterwards. */
static bool render_take(struct rendering *r, const struct action *x)
{
    bool is_new;

    if ((x->verb != VERB_CREATE && x->verb != VERB_UPDATE) || x->sub)
        return false;
    if (x->kind == KUBE_POD) {
        struct worker *w =
            x->index < r->n[x->role] ? &r->crew[x->role][x->index] : NULL;

        is_new = w && x->verb == VERB_CREATE && w->state == WORKER_ABSENT;
        if (is_new)
            w->state = WORKER_EXPECTED;
        return is_new;
    }
    if (x->kind == KUBE_BATCH) {
        is_new = r->seen.batch_state == WORKER_ABSENT;
        r->seen.batch_state = WORKER_EXPECTED;
        return is_new;
    }
    if (x->kind == KUBE_JOB || x->kind == KUBE_MPIJOB)
        return false;
    is_new = r->seen.fact[x->kind].state == FACT_ABSENT;
    r->seen.fact[x->kind].state = FACT_THERE;
    return is_new;
}

static int render_object(struct rendering *r,
                         const struct job_meta *job,
                         const struct action *x,
                         struct err *err)
{
    static const struct secrets secrets = {.token = PSEUDO,
                                           .ssh_private = "placeholder for a key\n",
                                           .ssh_public = "placeholder for a key\n"};
    struct node *o =
        x->body ? node_copy(r->b, x->body)
                : front_of(job->kind)->build(r->b, job, r->cfg, x, &secrets, err);

    if (!o)
        return err && err->code ? err->code
                                : err_set(err, -ENOMEM, "%s: out of memory", x->name);
    node_add(r->b, r->all, o);
    return 0;
}

/* 1: something has changed. */
static int render_round(struct rendering *r, struct err *err)
{
    static const struct sync_outcome fine = {.reason = "", .message = ""};
    const struct front *front = front_of((enum kube_kind)job_file_kind(r->job));
    struct strbuf problems = {0};
    struct decision d = {0};
    struct question q = {.seen = &r->seen,
                         .outcome = &fine,
                         .cfg = r->cfg,
                         .priorities = &r->priorities,
                         .now_wall_s = RENDER_S,
                         .arena = r->b->arena};
    struct job_meta meta, *job;
    bool is_new = false;
    int rc = meta_decode(front->kind, r->job, &meta, err);

    if (rc < 0)
        return rc;
    strbuf_init(&problems, 1u << 20);
    job = front->open(r->job, &meta, r->b->arena, &problems);
    strbuf_release(&problems);
    q.job = job;
    rc = job ? front->decide(&q, &d) : -ENOMEM;
    if (rc < 0)
        return err_set(err, rc, "out of memory");
    for (size_t i = 0; i < d.plan.n && rc == 0; i++) {
        if (!render_take(r, &d.plan.v[i]))
            continue;
        is_new = true;
        rc = render_object(r, job, &d.plan.v[i], err);
    }
    if (rc == 0 && d.status && !node_equal(d.status, node_get(r->job, "status"))) {
        node_set(r->b, r->job, "status", d.status);
        is_new = true;
    }
    return rc < 0 ? rc : is_new;
}

/* Asks for the objects of a job that starts now. */
static void
render_prepare(struct build *b, struct node *job, const char *ns, struct strbuf *notes)
{
    struct node *meta = node_child(b, job, "metadata", NODE_OBJECT);
    struct node *run = NULL;
    bool is_mpi = job_file_kind(job) == KUBE_MPIJOB;

    node_drop(job, "status");
    node_drop(meta, "deletionTimestamp");
    if (!node_str(meta, "namespace"))
        node_set_str(b, meta, "namespace", ns);
    if (!node_str(meta, "uid")) {
        node_set_str(b, meta, "uid", "00000000-0000-0000-0000-000000000000");
        strbuf_puts(notes,
                    "metadata.ownerReferences.uid: is that of the job, which the "
                    "API server chooses\n");
    }
    if (node_bool(job, "spec.runPolicy.suspend", false)) {
        run = node_child(b, node_child(b, job, "spec", NODE_OBJECT), "runPolicy",
                         NODE_OBJECT);
        node_set_bool(b, run, "suspend", false);
        strbuf_puts(notes, "spec.runPolicy.suspend: is true: the pods are created when "
                           "the job is resumed\n");
    }
    if (is_mpi && node_str(job, "spec.launcherCreationPolicy")) {
        node_set_str(b, node_child(b, job, "spec", NODE_OBJECT),
                     "launcherCreationPolicy", "AtStartup");
        strbuf_puts(notes, "spec.launcherCreationPolicy: decides when the launcher is "
                           "created\n");
    }
}

struct node *job_render(struct build *b,
                        const struct node *object,
                        const char *ns,
                        const struct object_config *cfg,
                        struct strbuf *notes,
                        struct err *err)
{
    struct rendering r = {.b = b, .cfg = cfg};
    struct strbuf problems;
    const struct job_meta *job;
    int rc = 1;

    r.job = node_copy(b, object);
    r.all = node_array(b);
    render_prepare(b, r.job, ns, notes);
    strbuf_init(&problems, 1u << 20);
    job = job_file_open(b, r.job, ns, &problems);
    strbuf_release(&problems);
    if (!job || render_start(&r, job) < 0) {
        (void)err_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    if (!front_of(job->kind)->is_ours(job))
        strbuf_puts(notes,
                    "managedBy: names another controller: hvd-operator leaves this "
                    "job alone\n");
    for (int i = 0; i < ROUNDS && rc > 0; i++)
        rc = render_round(&r, err);
    priorities_release(&r.priorities);
    for (const struct node *o = r.all->first; o && rc >= 0; o = o->next) {
        if (strcmp(node_str(o, "kind") ? node_str(o, "kind") : "", "Secret") == 0)
            strbuf_printf(notes,
                          "Secret %s: has placeholders for random bytes or keys\n",
                          node_str(o, "metadata.name"));
    }
    return rc < 0 || b->status ? NULL : r.all;
}
