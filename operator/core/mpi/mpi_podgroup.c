/* SPDX-License-Identifier: Apache-2.0 */
/* PodGroups of Volcano and of scheduler-plugins, with the sizes of mpi-operator.
 *
 *   minMember     schedulingPolicy.minAvailable, by default workers + 1
 *   minResources  schedulingPolicy.minResources unchanged; none if minMember is 0; by
 *                 default the sum over roles of replicas * (containers' requests,
 *                 limits where there is no request). If there are more pods than
 *                 minMember, the role of lower priority, workers on a tie, counts
 *                 minMember - 1 replicas
 *
 * The last rule is that of mpi-operator even where it multiplies a launcher, because
 * schedulers are tuned to these numbers. One difference: while the launcher waits for
 * the workers it is left out, and minMember is at most the number of workers. Pure;
 * called by mpi_plan.c. */
#include "operator/core/mpi/mpi_podgroup.h"

#include "operator/core/labels.h"
#include "operator/core/mpi/mpi_objects.h"
#include "operator/core/pod_size.h"

struct gang_member {
    const struct mpi_replicas *replicas;
    int32_t priority;
    uint32_t n; /* how many of them count */
};

enum kube_kind mpi_pod_group_kind(enum gang gang)
{
    return gang == GANG_VOLCANO ? KUBE_VOLCANO_GROUP : KUBE_SCHEDULER_GROUP;
}

static const char *priority_class(const struct mpi_replicas *r)
{
    const char *name = node_str(r->pod_template, "spec.priorityClassName");

    return name ? name : "";
}

static int64_t min_member(const struct mpi_job *job, bool has_launcher)
{
    int64_t n = job->min_available >= 0 ? job->min_available : job->worker.n + 1;

    return has_launcher || n <= job->worker.n ? n : job->worker.n;
}

static void gang_choose_members(struct gang_member *launcher,
                                struct gang_member *worker,
                                int64_t min,
                                bool has_launcher)
{
    if (!has_launcher) {
        launcher->n = 0;
        if (worker->n > min)
            worker->n = (uint32_t)min;
    } else if ((int64_t)launcher->n + worker->n > min && worker->replicas->is_set) {
        if (worker->priority > launcher->priority)
            launcher->n = (uint32_t)(min - 1);
        else
            worker->n = (uint32_t)(min - 1);
    }
}

/* --- resources ------------------------------------------------------------------- */

/* By mpi-operator's rule only containers count: no init container, no overhead. */
static int
amounts_add_member(struct arena *a, struct amounts *sum, const struct gang_member *m)
{
    const struct node *list = node_at(m->replicas->pod_template, "spec.containers");
    int rc = 0;

    for (const struct node *c = list ? list->first : NULL; c && rc == 0; c = c->next) {
        struct amounts one = {0};

        rc = amounts_of(c, a, &one);
        if (rc == 0)
            rc = amounts_add(sum, &one, m->n, a);
    }
    return rc;
}

static struct node *mpi_min_resources(struct build *b,
                                      const struct mpi_job *job,
                                      const struct priorities *priorities,
                                      int64_t min,
                                      bool has_launcher)
{
    struct gang_member launcher = {.replicas = &job->launcher, .n = 1};
    struct gang_member worker = {.replicas = &job->worker, .n = job->worker.n};
    struct amounts sum = {0};
    int rc = 0;

    if (job->min_resources)
        return node_copy(b, job->min_resources);
    if (min == 0)
        return NULL;
    launcher.priority = priorities_value(priorities, priority_class(&job->launcher));
    worker.priority = priorities_value(priorities, priority_class(&job->worker));
    gang_choose_members(&launcher, &worker, min, has_launcher);
    if (has_launcher)
        rc = amounts_add_member(b->arena, &sum, &launcher);
    if (rc == 0 && job->worker.is_set)
        rc = amounts_add_member(b->arena, &sum, &worker);
    if (rc < 0)
        b->status = rc;
    return rc < 0 ? NULL : amounts_node(b, &sum);
}

/* --- the object ------------------------------------------------------------------ */

static void
podgroup_set_text(struct build *b, struct node *o, const char *key, const char *s)
{
    if (*s)
        node_set_str(b, o, key, s);
}

static const char *first_of(const char *a, const char *b, const char *c)
{
    return *a ? a : (*b ? b : c);
}

static void
mpi_put_volcano(struct build *b, struct node *spec, const struct mpi_job *job)
{
    const struct node *queue =
        node_get(job->meta.annotations, ANNOTATION_VOLCANO_QUEUE);

    podgroup_set_text(b, spec, "queue",
                      first_of(job->queue,
                               queue && queue->type == NODE_STRING ? queue->u.s : "",
                               ""));
    podgroup_set_text(b, spec, "priorityClassName",
                      first_of(job->priority_class, priority_class(&job->launcher),
                               priority_class(&job->worker)));
}

struct node *mpi_pod_group(struct build *b,
                           const struct mpi_job *job,
                           enum gang gang,
                           const struct priorities *priorities,
                           bool has_launcher)
{
    bool is_volcano = gang == GANG_VOLCANO;
    int64_t min = min_member(job, has_launcher);
    struct node *o = mpi_owned(b, job,
                               is_volcano ? "scheduling.volcano.sh/v1beta1"
                                          : "scheduling.x-k8s.io/v1alpha1",
                               "PodGroup", job->meta.name);
    struct node *spec = node_child(b, o, "spec", NODE_OBJECT);
    struct node *sum = mpi_min_resources(b, job, priorities, min, has_launcher);

    node_set_int(b, spec, "minMember", min);
    if (is_volcano)
        mpi_put_volcano(b, spec, job);
    else
        node_set_int(b, spec, "scheduleTimeoutSeconds",
                     job->schedule_timeout_s >= 0 ? job->schedule_timeout_s : 0);
    if (sum && (is_volcano || sum->n > 0))
        node_set(b, spec, "minResources", sum);
    return b->status ? NULL : o;
}
