/* SPDX-License-Identifier: Apache-2.0 */
/* When the Events of a pod are requested, and which of them counts. Called by hvd_plan.c,
 * hvd_verdict.c and apply.c. */
#include "operator/core/explain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

bool waiting_is_usual(const char *waiting)
{
    return !*waiting || strcmp(waiting, "ContainerCreating") == 0
           || strcmp(waiting, "PodInitializing") == 0;
}

const char *pod_waiting(const struct pod *p)
{
    return *p->hint && waiting_is_usual(p->waiting) ? p->hint : p->waiting;
}

bool pod_is_unscheduled(const struct pod *p)
{
    return pod_has_condition(p, "PodScheduled", "False");
}

/* The wall time when the pod's Events are due; 0: its status suffices. */
static uint64_t pod_explain_s(const struct pod *p)
{
    uint64_t first_s = p->made_wall_us / 1000000u + EXPLAIN_AFTER_S;

    if (p->phase != POD_PENDING || p->is_deleting || !*p->node || !p->made_wall_us
        || !waiting_is_usual(p->waiting))
        return 0;
    return p->explained_s ? p->explained_s + EXPLAIN_AGAIN_S : first_s;
}

/* The first such pod of the job: the others mostly have the same cause. */
static const struct pod *
explain_find(const struct observed *seen, enum role *ret_role, uint32_t *ret_index)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        for (uint32_t i = 0; i < seen->crew[r].n; i++) {
            const struct worker *w = &seen->crew[r].w[i];

            if (w->state == WORKER_SEEN && pod_explain_s(w->pod)) {
                *ret_role = (enum role)r;
                *ret_index = i;
                return w->pod;
            }
        }
    }
    return NULL;
}

int explain_add(struct job_plan *plan,
                const struct observed *seen,
                uint64_t now_s,
                uint32_t stage,
                struct arena *a)
{
    enum role role = ROLE_WORKER;
    uint32_t index = 0;
    const struct pod *p = explain_find(seen, &role, &index);
    const char *name, *uid;
    struct action *x;

    if (!p || now_s < pod_explain_s(p))
        return 0;
    name = arena_strdup(a, p->name);
    uid = arena_strdup(a, p->uid);
    if (!name || !uid)
        return -ENOMEM;
    x = plan_add(plan, VERB_EXPLAIN, KUBE_POD, stage, name);
    x->role = role;
    x->index = index;
    x->uid = uid;
    return 0;
}

uint64_t explain_next_s(const struct observed *seen)
{
    enum role role;
    uint32_t index;
    const struct pod *p = explain_find(seen, &role, &index);

    return p ? pod_explain_s(p) : 0;
}

/* RFC 3339 in UTC: times sort as text. */
static const char *event_time(const struct node *event)
{
    static const char *const paths[] = {"series.lastObservedTime", "lastTimestamp",
                                        "eventTime", "metadata.creationTimestamp"};
    const char *time = NULL;

    for (size_t i = 0; i < ARRAY_LEN(paths) && !time; i++)
        time = node_str(event, paths[i]);
    return time ? time : "";
}

void explain_read(const struct node *list, char ret[EXPLAIN_TEXT_MAX + 1])
{
    const struct node *items = node_get(list, "items"), *latest = NULL;
    const char *text;

    for (const struct node *c = items ? items->first : NULL; c; c = c->next) {
        if (!latest || strcmp(event_time(c), event_time(latest)) >= 0)
            latest = c;
    }
    text = node_str(latest, "message");
    (void)snprintf(ret, EXPLAIN_TEXT_MAX + 1, "%s", text ? text : "");
    ret[strcspn(ret, "\n")] = '\0';
}
