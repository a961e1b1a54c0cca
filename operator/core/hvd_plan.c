/* SPDX-License-Identifier: Apache-2.0 */
/* The decision.
 *
 *   job being deleted                  nothing: garbage collection does it
 *   stored status says finished        clean up pods by runPolicy.cleanPodPolicy
 *   verdict finished, not yet stored   nothing: the verdict is stored first, because
 *                                      clean-up removes what it was derived from
 *   not all objects made               Secret and Service, then all missing workers
 *                                      at once
 *   else                               nothing to do but to watch
 *
 * Of a job that is not finished, a worker whose creation the watch has not shown for
 * long is asked for: only the answer may end the expectation.
 *
 * A restart at any point comes back to the same plan less what was done. Pure. */
#include "operator/core/hvd_plan.h"

#include <errno.h>

#include "operator/core/hvd_objects.h"
#include "runtime/base/mem.h"

/* The name is copied into the arena; without memory there is no action. */
static struct action *worker_action(const struct hvd_job *job,
                                    enum verb verb,
                                    uint32_t stage,
                                    uint32_t index,
                                    struct arena *a,
                                    struct plan *p)
{
    char name[OBJECT_NAME_SIZE];
    const char *copy;
    struct action *x;

    object_pod_name(job, ROLE_WORKER, index, name);
    copy = arena_strdup(a, name);
    if (!copy)
        return NULL;
    x = plan_add(p, verb, KUBE_POD, stage, copy);
    x->role = ROLE_WORKER;
    x->index = index;
    return x;
}

static bool must_clean(enum clean_policy policy, enum pod_phase phase)
{
    bool has_ended = phase == POD_SUCCEEDED || phase == POD_FAILED;

    switch (policy) {
    case CLEAN_NONE:
        return false;
    case CLEAN_RUNNING:
        return !has_ended;
    case CLEAN_ALL:
        return true;
    }
    return false;
}

/* The uid is copied: the snapshot's pods live only until the shell waits for an answer.
 */
static int plan_cleanup(const struct hvd_job *job,
                        const struct crew *crew,
                        struct arena *a,
                        struct plan *p)
{
    for (uint32_t i = 0; i < crew->n; i++) {
        const struct pod *pod = crew->w[i].pod;

        if (crew->w[i].state == WORKER_SEEN && !pod->is_deleting
            && must_clean(job->run.clean, pod->phase)) {
            struct action *x = worker_action(job, VERB_DELETE, 0, i, a, p);

            if (x)
                x->uid = arena_strdup(a, pod->uid);
            if (!x || !x->uid)
                return -ENOMEM;
        }
    }
    return 0;
}

static int plan_create(const struct hvd_job *job,
                       const struct observed *seen,
                       struct arena *a,
                       struct plan *p)
{
    const struct crew *crew = &seen->crew[ROLE_WORKER];
    char name[OBJECT_NAME_SIZE];
    const char *secret;

    object_name(job, KUBE_SECRET, name);
    secret = arena_strdup(a, name);
    if (!secret)
        return -ENOMEM;
    if (seen->fact[KUBE_SECRET].state != FACT_THERE)
        (void)plan_add(p, VERB_CREATE, KUBE_SECRET, 0, secret);
    if (seen->fact[KUBE_SERVICE].state != FACT_THERE)
        (void)plan_add(p, VERB_CREATE, KUBE_SERVICE, 0, job->meta.name);
    for (uint32_t i = 0; i < crew->n; i++) {
        if (crew->w[i].state == WORKER_ABSENT
            && !worker_action(job, VERB_CREATE, 1, i, a, p))
            return -ENOMEM;
    }
    return 0;
}

uint64_t hvd_plan_requeue_ms(const struct observed *seen, const struct verdict *v)
{
    const struct crew *crew = &seen->crew[ROLE_WORKER];

    for (uint32_t i = 0; i < crew->n && !v->was_finished; i++) {
        if (crew->w[i].state == WORKER_EXPECTED)
            return EXPECT_LOOK_MS;
    }
    return 0;
}

static int plan_look(const struct hvd_job *job,
                     const struct crew *crew,
                     struct arena *a,
                     struct plan *p)
{
    for (uint32_t i = 0; i < crew->n; i++) {
        if (crew->w[i].is_overdue && !worker_action(job, VERB_LOOK, 0, i, a, p))
            return -ENOMEM;
    }
    return 0;
}

int hvd_plan_make(const struct hvd_job *job,
                  const struct observed *seen,
                  const struct verdict *v,
                  struct arena *a,
                  struct plan *ret)
{
    const struct crew *crew = &seen->crew[ROLE_WORKER];
    struct plan p;
    int rc = plan_init(&p, crew->n + 2u, a);

    if (rc == 0 && !job->meta.is_deleting) {
        if (v->was_finished)
            rc = plan_cleanup(job, crew, a, &p);
        if (rc == 0 && (v->state == STATE_PENDING || v->state == STATE_RUNNING))
            rc = plan_look(job, crew, a, &p);
        if (rc == 0 && !v->was_finished && v->state == STATE_PENDING && !v->is_created)
            rc = plan_create(job, seen, a, &p);
    }
    if (rc == 0)
        *ret = p;
    return rc;
}
