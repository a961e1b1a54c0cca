/* SPDX-License-Identifier: Apache-2.0 */
/* The PodGroup of a HorovodJob, of Volcano or of scheduler-plugins.
 *
 *   minMember     schedulingPolicy.minAvailable, at most the number of pods; by default
 *                 all of them, of an elastic job its minimum
 *   minResources  schedulingPolicy.minResources unchanged; by default the resources of
 *                 minMember pods: those of other roles first, then workers
 *
 * The size is that of the pods as they are created, with the operator's additions.
 * Pure; called by hvd_front.c. */
#include "operator/core/hvd/hvd_objects.h"

#include <errno.h>

#include "operator/core/pod_size.h"

static const enum role order[ROLE_COUNT] = {ROLE_LAUNCHER, ROLE_CHIEF, ROLE_PS,
                                            ROLE_EVALUATOR, ROLE_WORKER};

static uint32_t count_pods(const struct hvd_job *job)
{
    uint32_t n = 0;

    for (int r = 0; r < ROLE_COUNT; r++)
        n += job->role[r].n;
    return n;
}

static int sum_sizes(struct build *b,
                     const struct hvd_job *job,
                     const struct object_config *cfg,
                     uint32_t n,
                     struct amounts *ret,
                     struct err *err)
{
    for (int i = 0; i < ROLE_COUNT; i++) {
        const struct hvd_role *role = &job->role[order[i]];
        uint32_t counted = role->n < n ? role->n : n;
        struct amounts one = {0};
        struct node *pod;
        int rc;

        if (counted == 0)
            continue;
        pod = object_pod(b, job, cfg, order[i], 0, err);
        if (!pod)
            return b->status;
        rc = pod_size(node_get(pod, "spec"), b->arena, &one);
        if (rc == 0)
            rc = amounts_add(ret, &one, counted, b->arena);
        if (rc < 0)
            return rc;
        n -= counted;
    }
    return 0;
}

static struct node *hvd_min_resources(struct build *b,
                                      const struct hvd_job *job,
                                      const struct object_config *cfg,
                                      uint32_t n,
                                      struct err *err)
{
    struct amounts sum = {0};

    if (job->run.scheduling.min_resources)
        return node_copy(b, job->run.scheduling.min_resources);
    if (b->status == 0)
        b->status = sum_sizes(b, job, cfg, n, &sum, err);
    return b->status ? NULL : amounts_node(b, &sum);
}

static void
hvd_put_volcano(struct build *b, struct node *spec, const struct hvd_job *job)
{
    const struct hvd_scheduling *s = &job->run.scheduling;
    const struct node *queue =
        node_get(job->meta.annotations, ANNOTATION_VOLCANO_QUEUE);
    const char *class = *s->priority_class ? s->priority_class : NULL;

    if (*s->queue)
        node_set_str(b, spec, "queue", s->queue);
    else if (queue && queue->type == NODE_STRING)
        node_set_str(b, spec, "queue", queue->u.s);
    for (int i = 0; i < ROLE_COUNT && !class; i++)
        class = node_str(job->role[order[i]].pod_template, "spec.priorityClassName");
    if (class)
        node_set_str(b, spec, "priorityClassName", class);
}

struct node *object_pod_group(struct build *b,
                              const struct hvd_job *job,
                              const struct object_config *cfg,
                              struct err *err)
{
    const struct hvd_scheduling *s = &job->run.scheduling;
    bool is_volcano = object_gang(job, cfg) == GANG_VOLCANO;
    uint32_t n =
        job->elastic.is_set ? 1 /* the launcher */ + job->elastic.min : count_pods(job);
    char name[OBJECT_NAME_SIZE];
    struct node *o, *spec = node_object(b), *sum;

    if (s->min_available >= 0 && s->min_available < (int64_t)count_pods(job))
        n = (uint32_t)s->min_available;
    object_name(job, KUBE_VOLCANO_GROUP, name);
    o = hvd_object_new(b, job,
                       is_volcano ? "scheduling.volcano.sh/v1beta1"
                                  : "scheduling.x-k8s.io/v1alpha1",
                       "PodGroup", name, node_object(b));
    node_set_int(b, spec, "minMember", n);
    sum = hvd_min_resources(b, job, cfg, n, err);
    if (sum && sum->n > 0)
        node_set(b, spec, "minResources", sum);
    if (is_volcano)
        hvd_put_volcano(b, spec, job);
    else if (s->schedule_timeout_s >= 0)
        node_set_int(b, spec, "scheduleTimeoutSeconds", s->schedule_timeout_s);
    node_set(b, o, "spec", spec);
    if (b->status == -ENOMEM)
        (void)err_set(err, -ENOMEM, "PodGroup %s: does not fit in memory", name);
    return b->status ? NULL : o;
}
