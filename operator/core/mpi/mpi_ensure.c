/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of an MPIJob that no watch shows: Service, ConfigMap, Secret, PodGroup.
 *
 *   object                                       action
 *   exists with the required content             none
 *   exists with other content                    updated
 *   does not exist, or is not known              created. If the name is taken, apply.c
 *                                                checks who owns the object
 *   a deleted pod is about to be recreated       created as if it were not known: the
 *                                                client that deleted the pod may have
 *                                                deleted it too
 *
 * The answers of the API server are stored as facts. A restart of the operator forgets
 * them. Pure; called by mpi_plan.c. */
#include <errno.h>
#include <string.h>

#include "operator/core/mpi/mpi_config.h"
#include "operator/core/mpi/mpi_objects.h"
#include "operator/core/mpi/mpi_plan.h"
#include "operator/core/mpi/mpi_planner.h"
#include "operator/core/mpi/mpi_podgroup.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"

#define MAX_TEXT (4u << 20)

static void
object_digest(struct planner *p, const struct node *o, uint8_t ret[SHA256_BYTES])
{
    struct strbuf text;

    strbuf_init(&text, MAX_TEXT);
    if (o)
        json_write(o, &text);
    if (!o || strbuf_status(&text))
        p->b.status = -ENOMEM;
    sha256_digest(strbuf_str(&text), text.n, ret);
    strbuf_release(&text);
}

/* digest: of what the content depends on. Returns the action, which needs a body; NULL if
 * there is nothing to do. */
static struct action *planner_ensure_content(struct planner *p,
                                             enum kube_kind kind,
                                             const char *name,
                                             const uint8_t digest[SHA256_BYTES])
{
    const struct fact *fact = &p->q->seen->fact[kind];
    bool is_same = memcmp(fact->digest, digest, SHA256_BYTES) == 0;
    struct action *x;

    if (fact->state == FACT_THERE && is_same && !p->is_replacing)
        return NULL;
    x = planner_add(p,
                    fact->state == FACT_THERE && !is_same ? VERB_UPDATE : VERB_CREATE,
                    kind, 0, name);
    if (x->verb == VERB_UPDATE)
        x->uid = planner_keep(p, fact->uid);
    memcpy(x->digest, digest, SHA256_BYTES);
    return x;
}

static struct action *planner_ensure_object(struct planner *p,
                                            enum kube_kind kind,
                                            const char *name,
                                            struct node *body)
{
    uint8_t digest[SHA256_BYTES];
    struct action *x;

    object_digest(p, body, digest);
    x = planner_ensure_content(p, kind, name, digest);
    if (x)
        x->body = body;
    return x;
}

/* After a restart of the operator they are unknown; they are not queried until a pod
 * will be created. */
void mpi_ensure_access(struct planner *p, bool is_making)
{
    const struct fact *fact = p->q->seen->fact;
    char name[MPI_NAME_SIZE];

    if (is_making || fact[KUBE_SERVICE].state != FACT_UNKNOWN)
        planner_ensure_object(p, KUBE_SERVICE, p->job->meta.name,
                              mpi_service(&p->b, p->job));
    mpi_object_name(p->job, p->job->is_agent ? "token" : "ssh", name);
    if (fact[KUBE_SECRET].state == FACT_ABSENT || p->is_replacing
        || (is_making && fact[KUBE_SECRET].state == FACT_UNKNOWN))
        planner_add(p, VERB_CREATE, KUBE_SECRET, 0, name);
}

/* Names of the workers that run, and since when the last of them does. */
static size_t
running_names(struct planner *p, const char **names, uint64_t *ret_since_s)
{
    const struct crew *crew = &p->q->seen->crew[ROLE_WORKER];
    size_t n = 0;

    *ret_since_s = 0;
    for (uint32_t i = 0; i < crew->n && i < p->job->worker.n; i++) {
        const struct pod *pod = crew->w[i].pod;

        if (crew->w[i].state != WORKER_SEEN || pod->phase != POD_RUNNING
            || pod->is_deleting || p->job->is_suspended)
            continue;
        names[n++] = pod->name;
        if (pod->run_wall_us / 1000000u > *ret_since_s)
            *ret_since_s = pod->run_wall_us / 1000000u;
    }
    return n;
}

/* False while workers still start, so that the file is not written for each. */
static bool workers_have_settled(struct planner *p, size_t n_running, uint64_t since_s)
{
    uint64_t now_s = p->q->now_wall_s;

    if (n_running == p->job->worker.n || now_s >= since_s + MPI_SETTLE_S
        || since_s > now_s + MPI_CLOCK_SKEW_S)
        return true;
    planner_again_at(p, since_s + MPI_SETTLE_S);
    return false;
}

/* names: of the n running workers. NULL: out of memory. */
static struct node *
config_map(struct planner *p, const char *domain, const char **names, size_t n)
{
    struct strbuf hosts, script;
    struct node *o = NULL;

    strbuf_init(&hosts, MAX_TEXT);
    strbuf_init(&script, MAX_TEXT);
    mpi_hostfile(&hosts, p->job, domain);
    mpi_discover_hosts(&script, p->job, domain, names, n);
    if (strbuf_status(&hosts) == 0 && strbuf_status(&script) == 0)
        o = mpi_config_map(&p->b, p->job, strbuf_str(&hosts), strbuf_str(&script));
    if (!o)
        p->b.status = -ENOMEM;
    strbuf_release(&hosts);
    strbuf_release(&script);
    return o;
}

void mpi_ensure_config(struct planner *p)
{
    const struct fact *fact = &p->q->seen->fact[KUBE_CONFIGMAP];
    const char *domain = p->q->cfg->cluster_domain ? p->q->cfg->cluster_domain : "";
    const char **names =
        arena_calloc(p->q->arena, p->job->worker.n + 1u, sizeof(*names));
    uint8_t digest[SHA256_BYTES];
    uint64_t since_s = 0;
    char name[MPI_NAME_SIZE];
    struct action *x;
    size_t n;

    if (!names) {
        p->b.status = -ENOMEM;
        return;
    }
    n = running_names(p, names, &since_s);
    mpi_config_digest(p->job, domain, names, n, digest);
    if (fact->state == FACT_THERE && !p->is_replacing
        && (memcmp(fact->digest, digest, sizeof(digest)) == 0
            || !workers_have_settled(p, n, since_s)))
        return;
    mpi_object_name(p->job, "config", name);
    x = planner_ensure_content(p, KUBE_CONFIGMAP, name, digest);
    if (x)
        x->body = config_map(p, domain, names, n);
}

/* Fields that were removed from the spec: a merge patch would keep them. */
static void forget_absent(struct planner *p, struct node *o)
{
    static const char *const keys[] = {"queue", "priorityClassName"};
    struct node *spec = node_child(&p->b, o, "spec", NODE_OBJECT);

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (!node_get(spec, keys[i]))
            node_set(&p->b, spec, keys[i], node_null(&p->b));
    }
}

/* Resources that were removed from the spec are cleared first. */
void mpi_ensure_group(struct planner *p, bool has_launcher)
{
    enum gang gang = p->q->cfg->gang;
    enum kube_kind kind = mpi_pod_group_kind(gang);
    struct node *clear, *o;
    struct action *x;

    if (gang == GANG_NONE)
        return;
    o = mpi_pod_group(&p->b, p->job, gang, p->q->priorities, has_launcher);
    x = planner_ensure_object(p, kind, p->job->meta.name, o);
    if (!x || x->verb != VERB_UPDATE)
        return;
    if (gang == GANG_VOLCANO)
        forget_absent(p, o);
    clear = node_object(&p->b);
    node_set(&p->b, node_child(&p->b, clear, "spec", NODE_OBJECT), "minResources",
             node_null(&p->b));
    *planner_add(p, VERB_UPDATE, kind, 1, p->job->meta.name) = *x;
    p->d->plan.v[p->d->plan.n - 1].stage = 1;
    x->body = clear;
    memset(x->digest, 0, sizeof(x->digest));
}

/* An unknown one is queried first: it may not belong to the job. */
void mpi_drop_group(struct planner *p)
{
    enum gang gang = p->q->cfg->gang;
    enum kube_kind kind = mpi_pod_group_kind(gang);

    if (gang == GANG_NONE)
        return;
    switch (p->q->seen->fact[kind].state) {
    case FACT_UNKNOWN:
        planner_add(p, VERB_LOOK, kind, 0, p->job->meta.name);
        planner_again(p, EXPECT_LOOK_MS); /* in case there is no answer */
        return;
    case FACT_THERE:
        planner_add(p, VERB_DELETE, kind, 0, p->job->meta.name)->uid =
            planner_keep(p, p->q->seen->fact[kind].uid);
        planner_again(p, DROP_AGAIN_MS); /* after a query found it */
        return;
    case FACT_ABSENT:
        return;
    }
}
