/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection deletes the pods of a deleted job, and somebody has to remove their
 * finalizer: with the job its status is gone, so no end of a pod matters. A pod that is
 * not in deletion is left alone, because the watch of jobs may be late. Called by sync.c;
 * the pods of an existing job are hvd_plan.c's. */
#include "operator/core/release.h"

#include <errno.h>
#include <string.h>

#include "operator/core/labels.h"

static struct node *release_patch(struct build *b)
{
    struct node *o = node_object(b);
    struct node *meta = node_child(b, o, "metadata", NODE_OBJECT);

    node_add_str(b,
                 node_child(b, meta, "$deleteFromPrimitiveList/finalizers", NODE_ARRAY),
                 FINALIZER_TRACKING);
    return o;
}

static bool pod_is_unkept(const struct pod *p, const struct job_meta *job)
{
    return p->is_tracked && p->is_deleting
           && (job->is_deleting || strcmp(p->owner_uid, job->uid) != 0);
}

int release_add_pod(struct job_plan *plan,
                    struct arena *a,
                    const struct pod *p,
                    enum role role,
                    uint32_t index)
{
    struct build b = {.arena = a};
    struct action *x = plan_add_pod(plan, VERB_UPDATE, 0, p, role, index, a);

    if (!x)
        return -ENOMEM;
    x->body = release_patch(&b);
    return b.status;
}

int release_make_plan(const struct store *s,
                      const struct job_meta *job,
                      struct arena *a,
                      struct job_plan *ret)
{
    const struct pod *p;
    struct keyed_range at = {0};
    size_t n = 0;
    int rc = 0;

    *ret = (struct job_plan){0};
    while ((p = store_next_pod(s, job, &at)))
        n += pod_is_unkept(p, job);
    if (n > 0)
        rc = plan_init(ret, n, a);
    at = (struct keyed_range){0};
    while (rc == 0 && n > 0 && (p = store_next_pod(s, job, &at))) {
        if (pod_is_unkept(p, job)) /* no seat of a crew: nothing looks at it */
            rc = release_add_pod(ret, a, p, ROLE_WORKER, 0);
    }
    return rc;
}
