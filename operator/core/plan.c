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
#include "operator/core/plan.h"

#include <errno.h>

#include "runtime/base/mem.h"

const char *verb_name(enum verb v)
{
    static const char *const names[] = {[VERB_CREATE_SECRET] = "create secret",
                                        [VERB_CREATE_SERVICE] = "create service",
                                        [VERB_CREATE_WORKER] = "create worker",
                                        [VERB_DELETE_WORKER] = "delete worker",
                                        [VERB_LOOK_WORKER] = "look for worker"};

    return names[v];
}

static void
add(struct plan *p, enum verb verb, uint32_t stage, uint32_t index, const char *uid)
{
    p->v[p->n++] =
        (struct action){.verb = verb, .stage = stage, .index = index, .uid = uid};
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
static int plan_cleanup(const struct job *job,
                        const struct observed *seen,
                        struct arena *a,
                        struct plan *p)
{
    for (uint32_t i = 0; i < seen->n; i++) {
        const struct pod *pod = seen->w[i].pod;

        if (seen->w[i].state == WORKER_SEEN && !pod->is_deleting
            && must_clean(job->clean, pod->phase)) {
            const char *uid = arena_strdup(a, pod->uid);

            if (!uid)
                return -ENOMEM;
            add(p, VERB_DELETE_WORKER, 0, i, uid);
        }
    }
    return 0;
}

static void plan_create(const struct observed *seen, struct plan *p)
{
    if (!seen->has_secret)
        add(p, VERB_CREATE_SECRET, 0, 0, NULL);
    if (!seen->has_service)
        add(p, VERB_CREATE_SERVICE, 0, 0, NULL);
    for (uint32_t i = 0; i < seen->n; i++) {
        if (seen->w[i].state == WORKER_ABSENT)
            add(p, VERB_CREATE_WORKER, 1, i, NULL);
    }
}

uint64_t plan_requeue_ms(const struct observed *seen, const struct verdict *v)
{
    for (uint32_t i = 0; i < seen->n && !v->was_finished; i++) {
        if (seen->w[i].state == WORKER_EXPECTED)
            return EXPECT_LOOK_MS;
    }
    return 0;
}

static void plan_look(const struct observed *seen, struct plan *p)
{
    for (uint32_t i = 0; i < seen->n; i++) {
        if (seen->w[i].is_overdue)
            add(p, VERB_LOOK_WORKER, 0, i, NULL);
    }
}

int plan_make(const struct job *job,
              const struct observed *seen,
              const struct verdict *v,
              struct arena *a,
              struct plan *ret)
{
    struct plan p = {.v = arena_calloc(a, seen->n + 2u, sizeof(*p.v))};

    if (!p.v)
        return -ENOMEM;
    if (job->is_deleting) {
        *ret = p;
        return 0;
    }
    if (v->was_finished && plan_cleanup(job, seen, a, &p) < 0)
        return -ENOMEM;
    if (v->state == STATE_PENDING || v->state == STATE_RUNNING)
        plan_look(seen, &p);
    if (!v->was_finished && v->state == STATE_PENDING && !v->is_created)
        plan_create(seen, &p);
    p.requeue_ms = plan_requeue_ms(seen, v);
    *ret = p;
    return 0;
}
