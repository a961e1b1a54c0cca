/* SPDX-License-Identifier: Apache-2.0 */
/* When the Events of a pod are requested, and which of them counts. Called by hvd_plan.c,
 * mpi_plan.c, why.c and pod_events.c. */
#include "operator/core/explain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"

bool pod_is_unscheduled(const struct pod *p)
{
    return pod_has_condition(p, "PodScheduled", "False");
}

/* True if the status of the pod explains nothing. */
static bool pod_is_unexplained(const struct pod *p)
{
    return p->phase == POD_PENDING && !p->is_deleting && p->bound_wall_us
           && waiting_is_usual(p->waiting);
}

struct explain_turn {
    const struct pod *p; /* the pod whose turn it is; NULL: none is unexplained */
    enum role role;
    uint32_t index;
    uint64_t due_s;
};

static void explain_offer(struct explain_turn *t,
                          uint64_t *latest_s,
                          const struct pod *p,
                          enum role role,
                          uint32_t index)
{
    if (!pod_is_unexplained(p))
        return;
    if (p->explained_s > *latest_s)
        *latest_s = p->explained_s;
    if (!t->p || p->explained_s < t->p->explained_s) {
        t->p = p;
        t->role = role;
        t->index = index;
    }
}

/* The pod that was explained longest ago. One request per job: mostly all pods wait for
 * the same. */
static struct explain_turn explain_find(const struct observed *seen)
{
    struct explain_turn t = {.p = NULL};
    uint64_t latest_s = 0;

    for (int r = 0; r < ROLE_COUNT; r++) {
        for (uint32_t i = 0; i < seen->crew[r].n; i++) {
            const struct worker *w = &seen->crew[r].w[i];

            if (w->state == WORKER_SEEN)
                explain_offer(&t, &latest_s, w->pod, (enum role)r, i);
        }
    }
    for (uint32_t i = 0; i < seen->n_batch_pods; i++)
        explain_offer(&t, &latest_s, seen->batch_pods[i], ROLE_LAUNCHER, i);
    if (t.p)
        t.due_s = latest_s ? latest_s + EXPLAIN_AGAIN_S
                           : t.p->bound_wall_us / 1000000u + EXPLAIN_AFTER_S;
    return t;
}

int explain_add(struct job_plan *plan,
                const struct observed *seen,
                uint64_t now_s,
                uint32_t stage,
                struct arena *a)
{
    struct explain_turn t = explain_find(seen);

    if (!t.p || !wall_wait_is_over(now_s, t.due_s, EXPLAIN_AGAIN_S))
        return 0;
    return plan_add_pod(plan, VERB_EXPLAIN, stage, t.p, t.role, t.index, a) ? 0
                                                                            : -ENOMEM;
}

uint64_t explain_next_s(const struct observed *seen)
{
    return explain_find(seen).due_s;
}

static uint64_t event_time_us(const struct node *event)
{
    static const char *const paths[] = {"series.lastObservedTime", "lastTimestamp",
                                        "eventTime", "metadata.creationTimestamp"};
    uint64_t us = 0;

    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        const char *time = node_str(event, paths[i]);

        if (time && timestamp_parse_us(time, &us) == 0)
            return us;
    }
    return 0;
}

/* The scheduler's are of the time before the pod was bound. */
static bool event_counts(const struct node *event, uint64_t now_s)
{
    const char *reason = node_str(event, "reason");

    return event_time_us(event) / 1000000u + EXPLAIN_RECENT_S >= now_s
           && !(reason && strcmp(reason, "FailedScheduling") == 0);
}

void explain_read(const struct node *list,
                  uint64_t now_s,
                  char ret[EXPLAIN_TEXT_MAX + 1])
{
    const struct node *items = node_get(list, "items"), *latest = NULL;
    const char *text;

    for (const struct node *c = items ? items->first : NULL; c; c = c->next) {
        if (event_counts(c, now_s)
            && (!latest || event_time_us(c) >= event_time_us(latest)))
            latest = c;
    }
    text = node_str(latest, "message");
    (void)snprintf(ret, EXPLAIN_TEXT_MAX + 1, "%s", text ? text : "");
    ret[strcspn(ret, "\n")] = '\0';
}
