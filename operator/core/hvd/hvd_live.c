/* SPDX-License-Identifier: Apache-2.0 */
/* The live report in the status.
 *
 *   job         report    progress               Stalled, Straggling
 *   Running     known     of the report          of the report
 *   Running     unknown   stays                  stay
 *   Pending     any       stays                  stay
 *   ends        known     of the report          False, if they were True
 *   ends        unknown   stays, without eta     False, if they were True
 *   finished    any       stays                  stay
 *
 * A job ends with each change to a state without pods. A finished job is not written
 * again for its progress. A report without step and epoch, as just after a restart,
 * leaves the last progress as it is. Called by hvd_status.c and hvd_front.c. */
#include "operator/core/hvd/hvd_live.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/hvd/hvd_condition.h"
#include "operator/core/hvd/hvd_objects.h"
#include "operator/core/hvd/hvd_pod.h"
#include "operator/core/progress.h"
#include "runtime/contract/elastic_env.h"

/* --- where to ask ----------------------------------------------------------------- */

static const struct pod *
crew_pod(const struct observed *seen, enum role role, uint32_t index)
{
    const struct crew *c = &seen->crew[role];

    return index < c->n && c->w[index].state == WORKER_SEEN ? c->w[index].pod : NULL;
}

/* NULL: there is none. */
static const struct pod *live_pod(const struct verdict_query *q)
{
    if (q->job->elastic.is_set)
        return crew_pod(q->seen, ROLE_LAUNCHER, 0);
    return pod_part(q->job, ROLE_WORKER) == PART_RANKS
               ? crew_pod(q->seen, ROLE_WORKER, 0)
               : NULL;
}

static const char *copy_or_fail(struct arena *a, const char *s, int *rc)
{
    const char *copy = arena_strdup(a, s);

    if (!copy)
        *rc = -ENOMEM;
    return copy;
}

int hvd_live_target(const struct verdict_query *q,
                    const struct hvd_verdict *v,
                    struct arena *a,
                    struct ask_target *ret)
{
    const struct pod *p = live_pod(q);
    char id[JOB_ID_MAX], secret[OBJECT_NAME_SIZE];
    int rc = 0;

    *ret = (struct ask_target){0};
    if (!state_is_live(v->state) || !p || p->phase != POD_RUNNING || p->has_exit
        || !*p->ip)
        return 0;
    if (q->job->elastic.is_set)
        (void)snprintf(id, sizeof(id), HOROVODRUN_JOB_ID, q->job->meta.uid);
    else
        object_job_id(q->job, id);
    object_name(q->job, KUBE_SECRET, secret);
    *ret = (struct ask_target){.port = AGENT_DEFAULT_PORT,
                               .address = copy_or_fail(a, p->ip, &rc),
                               .run = copy_or_fail(a, p->uid, &rc),
                               .secret = copy_or_fail(a, secret, &rc),
                               .job_id = copy_or_fail(a, id, &rc)};
    return rc;
}

/* --- progress --------------------------------------------------------------------- */

static bool report_has_place(const struct live_report *r)
{
    return r->progress.step >= 0 || r->progress.epoch >= 0 || r->n_steps > 0;
}

void hvd_live_progress(struct build *b,
                       const struct verdict_query *q,
                       const struct hvd_verdict *v,
                       struct node *status)
{
    const struct node *old = node_get(q->job->meta.status, "progress");
    const struct live_report *r = q->seen->live;
    bool runs = v->state == STATE_RUNNING, has_ended = !state_is_live(v->state);
    struct node *now = NULL;

    if (r && (runs || has_ended) && !v->was_finished && (!old || report_has_place(r)))
        now = progress_make(b, r, q->seen->live_wall_s, old);
    if (!now && old)
        now = node_copy(b, old);
    if (now && has_ended && !v->was_finished)
        now = progress_at_rest(b, now);
    if (now)
        node_set(b, status, "progress", now);
}

/* --- conditions ------------------------------------------------------------------- */

enum live_change {
    CHANGE_NONE,
    CHANGE_BEGIN,
    CHANGE_CONTINUE,
    CHANGE_END,
    CHANGE_OVER
};

static const struct live_row {
    const char *type, *begin_event, *end_reason, *end_text;
    struct live_verdict (*verdict)(struct build *b, const struct live_report *r);
} live_rows[] = {
    {"Stalled", "JobStalled", "StallEnded", "the job continues", progress_stall},
    {"Straggling", "JobStraggling", "StragglingEnded",
     "no rank delays the other ranks any more", progress_straggler},
};

/* CHANGE_NONE: the condition stays; CHANGE_OVER: it ends with the job's pods. */
static enum live_change live_change_of(struct build *b,
                                       const struct verdict_query *q,
                                       const struct hvd_verdict *v,
                                       const struct live_row *row,
                                       struct live_verdict *ret)
{
    bool was = condition_is_true(q->job->meta.status, row->type);

    if (!state_is_live(v->state))
        return was ? CHANGE_OVER : CHANGE_NONE;
    if (!q->seen->live || v->state != STATE_RUNNING)
        return CHANGE_NONE;
    *ret = row->verdict(b, q->seen->live);
    if (ret->is_true)
        return was ? CHANGE_CONTINUE : CHANGE_BEGIN;
    return was ? CHANGE_END : CHANGE_NONE;
}

/* The worker with this host name, of which a rank of an elastic job may be any. */
static const struct pod *worker_of_host(const struct observed *seen, const char *host)
{
    const size_t n = strcspn(host, ".");

    for (uint32_t i = 0; i < seen->crew[ROLE_WORKER].n; i++) {
        const struct pod *p = crew_pod(seen, ROLE_WORKER, i);

        if (p && strlen(p->name) == n && strncmp(p->name, host, n) == 0)
            return p;
    }
    return NULL;
}

/* Of the rank that the report names. */
static const char *live_node_of(const struct verdict_query *q,
                                const struct live_row *row)
{
    const struct live_report *r = q->seen->live;
    bool is_stall = row->verdict == progress_stall;
    int32_t rank = is_stall ? r->stall.rank : r->straggler.rank;
    uint32_t slots = q->job->slots ? q->job->slots : 1;
    const struct pod *p;

    if (rank < 0)
        return "";
    if (q->job->elastic.is_set)
        p = worker_of_host(q->seen, is_stall ? r->stall.host : r->straggler.host);
    else
        p = crew_pod(q->seen, ROLE_WORKER,
                     is_stall ? (uint32_t)rank / slots : r->straggler.worker);
    return p ? p->node : "";
}

static const char *live_text(struct arena *a,
                             const struct verdict_query *q,
                             const struct live_row *row,
                             const struct live_verdict *verdict)
{
    const char *node = live_node_of(q, row);
    const char *text =
        *node ? arena_printf(a, "%s (node %s)", verdict->text, node) : NULL;

    return text ? text : verdict->text;
}

static const char *over_reason(enum job_state state)
{
    return state_is_final(state)      ? "JobFinished"
           : state == STATE_SUSPENDED ? "JobSuspended"
                                      : "JobRestarting";
}

void hvd_live_conditions(struct build *b,
                         const struct verdict_query *q,
                         const struct hvd_verdict *v,
                         const char *now,
                         struct node *list)
{
    const struct node *status = q->job->meta.status;

    for (size_t i = 0; i < sizeof(live_rows) / sizeof(live_rows[0]); i++) {
        const struct live_row *row = &live_rows[i];
        const struct node *old = condition_find(status, row->type);
        struct live_verdict verdict;

        switch (live_change_of(b, q, v, row, &verdict)) {
        case CHANGE_NONE:
            if (old)
                node_add(b, list, node_copy(b, old));
            break;
        case CHANGE_BEGIN:
        case CHANGE_CONTINUE:
            node_add(b, list,
                     status_condition(b, status, row->type, true, verdict.reason,
                                      live_text(b->arena, q, row, &verdict), now));
            break;
        case CHANGE_END:
            node_add(b, list,
                     status_condition(b, status, row->type, false, row->end_reason,
                                      row->end_text, now));
            break;
        case CHANGE_OVER:
            node_add(b, list,
                     status_condition(b, status, row->type, false,
                                      over_reason(v->state),
                                      "the pods of that time have ended", now));
            break;
        }
    }
}

size_t hvd_live_events(const struct verdict_query *q,
                       const struct hvd_verdict *v,
                       struct arena *a,
                       struct event_note ret[HVD_LIVE_MAX_NOTES])
{
    struct build b = {.arena = a};
    size_t n = 0;

    for (size_t i = 0; i < sizeof(live_rows) / sizeof(live_rows[0]); i++) {
        const struct live_row *row = &live_rows[i];
        struct live_verdict verdict;
        enum live_change change = live_change_of(&b, q, v, row, &verdict);

        if (change == CHANGE_BEGIN)
            ret[n++] = (struct event_note){.is_warning = true,
                                           .reason = row->begin_event,
                                           .message = live_text(a, q, row, &verdict)};
        else if (change == CHANGE_END)
            ret[n++] = (struct event_note){.reason = row->end_reason,
                                           .message = row->end_text};
    }
    return n;
}
