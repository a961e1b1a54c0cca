/* SPDX-License-Identifier: Apache-2.0 */
/* API object -> struct hvd_job.
 *
 * The CRD's schema refuses most of what is refused here; this is for objects stored
 * under an older or a relaxed schema, and for a CRD newer than this operator: a field
 * that we do not know is a problem that the user is told about, never something
 * silently ignored. All problems are collected, so that one look is enough. Pure;
 * called by the reconcile shell and the fuzz target. */
#include "operator/core/hvd_job.h"

#include <inttypes.h>
#include <string.h>

#include "operator/doc/object.h"
#include "runtime/base/mem.h"

void hvd_job_init(struct hvd_job *job, const struct job_meta *meta)
{
    *job = (struct hvd_job){
        .meta = *meta, .slots = 1, .replicas = 1, .clean = CLEAN_RUNNING};
}

static void
problem_type(struct strbuf *p, const char *path, const struct node *n, const char *want)
{
    strbuf_printf(p, "%s: must be %s, is %s\n", path, want, node_type_name(n->type));
}

static uint32_t ranged(const struct node *o,
                       const char *key,
                       const char *path,
                       uint32_t dflt,
                       uint32_t max,
                       struct strbuf *p)
{
    const struct node *n = node_get(o, key);

    if (!n)
        return dflt;
    if (n->type != NODE_INT)
        problem_type(p, path, n, "an integer");
    else if (n->u.i < 1)
        strbuf_printf(p, "%s: %" PRId64 " is below 1\n", path, n->u.i);
    else if (n->u.i > (int64_t)max)
        strbuf_printf(p, "%s: %" PRId64 " is above %u\n", path, n->u.i, max);
    else
        return (uint32_t)n->u.i;
    return dflt;
}

/* The object at o[key], NULL if absent; anything but an object is a problem. */
static const struct node *section(const struct node *o,
                                  const char *key,
                                  const char *path,
                                  bool is_required,
                                  struct strbuf *p)
{
    const struct node *n = node_get(o, key);

    if (!n && is_required)
        strbuf_printf(p, "%s: missing\n", path);
    if (!n)
        return NULL;
    if (n->type == NODE_OBJECT)
        return n;
    problem_type(p, path, n, "an object");
    return NULL;
}

static void refuse_unknown(const struct node *o,
                           const char *path,
                           const char *const *known,
                           struct strbuf *p)
{
    for (const struct node *c = o ? o->first : NULL; c; c = c->next) {
        size_t i = 0;

        if (c->type == NODE_NULL)
            continue;
        while (known[i] && strcmp(known[i], c->key) != 0)
            i++;
        if (!known[i])
            strbuf_printf(p, "%s.%s: this version of hvd-operator does not know it\n",
                          path, c->key);
    }
}

static enum clean_policy clean_policy(const struct node *run, struct strbuf *p)
{
    static const char *const names[] = {
        [CLEAN_NONE] = "None", [CLEAN_RUNNING] = "Running", [CLEAN_ALL] = "All"};
    const struct node *n = node_get(run, "cleanPodPolicy");

    if (!n)
        return CLEAN_RUNNING;
    if (n->type != NODE_STRING) {
        problem_type(p, "spec.runPolicy.cleanPodPolicy", n, "a string");
        return CLEAN_RUNNING;
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], n->u.s) == 0)
            return (enum clean_policy)i;
    }
    strbuf_printf(p,
                  "spec.runPolicy.cleanPodPolicy: \"%s\" is not one of None, Running, "
                  "All\n",
                  n->u.s);
    return CLEAN_RUNNING;
}

void hvd_decode_spec(const struct node *object,
                     struct hvd_job *ret,
                     struct strbuf *problems)
{
    static const char *const in_spec[] = {"slotsPerWorker", "runPolicy", "replicaSpecs",
                                          NULL};
    static const char *const in_run[] = {"cleanPodPolicy", NULL};
    static const char *const in_replicas[] = {"Worker", NULL};
    static const char *const in_worker[] = {"replicas", "template", NULL};
    const char *flaw = node_str(object, OBJECT_UNREADABLE);
    const struct node *spec, *run, *sets, *worker;

    if (flaw) { /* the rest would be about what is left of it */
        strbuf_printf(problems, "spec: %s\n", flaw);
        return;
    }
    spec = section(object, "spec", "spec", true, problems);
    if (!spec)
        return;
    run = section(spec, "runPolicy", "spec.runPolicy", false, problems);
    sets = section(spec, "replicaSpecs", "spec.replicaSpecs", true, problems);
    worker = sets ? section(sets, "Worker", "spec.replicaSpecs.Worker", true, problems)
                  : NULL;
    ret->slots = ranged(spec, "slotsPerWorker", "spec.slotsPerWorker", 1, JOB_MAX_SLOTS,
                        problems);
    ret->clean = clean_policy(run, problems);
    refuse_unknown(spec, "spec", in_spec, problems);
    refuse_unknown(run, "spec.runPolicy", in_run, problems);
    refuse_unknown(sets, "spec.replicaSpecs", in_replicas, problems);
    refuse_unknown(worker, "spec.replicaSpecs.Worker", in_worker, problems);
    if (!worker)
        return;
    ret->replicas = ranged(worker, "replicas", "spec.replicaSpecs.Worker.replicas", 1,
                           JOB_MAX_REPLICAS, problems);
    ret->pod_template = section(worker, "template", "spec.replicaSpecs.Worker.template",
                                true, problems);
}
