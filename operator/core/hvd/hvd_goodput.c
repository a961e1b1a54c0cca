/* SPDX-License-Identifier: Apache-2.0 */
/* Verdict and snapshot -> ledger.
 *
 * The stored state says in what the job was since the last sync, and the cue when that
 * ended:
 *
 *   Pending, Running --a failure--> the time of the first cause; then down
 *                    --done-------> the end of the last pod that ended; then down, until
 *                                   the operator has seen it
 *                    --otherwise--> now
 *   Restarting, Suspended --------> now; down lasts until the next pods exist
 *
 * An elastic job that runs trains without its lost workers, and for a while without its
 * launcher: none of its pods has to be there.
 *
 * Pods in seats (hvd_crew.h) decide the part, and all pods hold GPUs from when they are
 * bound until they end. The whole is computed from the stored status in each sync, so a
 * status that is not written loses nothing that the next snapshot shows. Called by
 * hvd_front.c. */
#include "operator/core/hvd/hvd_goodput.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/explain.h"
#include "operator/core/goodput.h"
#include "operator/core/hvd/hvd_crew.h"
#include "operator/core/hvd/hvd_devices.h"
#include "operator/core/progress.h"
#include "operator/core/timestamp.h"
#include "runtime/live/live_report.h"

#define US_PER_S 1000000u

struct goodput_work {
    const struct verdict_query *q;
    const struct hvd_verdict *v;
    struct arena *arena;
    struct ledger l;
    struct ledger_view view;
    struct ledger_report report;
    char waiting[LEDGER_REASON_SIZE], stall[LEDGER_REASON_SIZE];
    uint64_t ended_s, failed_s; /* of pods: the latest end, the first end or deletion */
};

static bool goodput_was_live(const struct hvd_verdict *v)
{
    return state_is_live(v->was.state);
}

/* --- the view -------------------------------------------------------------------- */

static bool pod_has_begun(const struct pod *p)
{
    return p->phase == POD_RUNNING || p->phase == POD_SUCCEEDED
           || (p->phase == POD_FAILED && p->has_exit);
}

/* A time that the pod's status does not have is that of the event before. */
static void goodput_add_pod(struct goodput_work *w,
                            struct ledger_pod *to,
                            const struct worker *from,
                            uint64_t gpus)
{
    const struct pod *p = from->pod;
    uint64_t now_s = w->q->now_wall_s;
    bool has_ended = p->phase == POD_SUCCEEDED || p->phase == POD_FAILED
                     || from->state == WORKER_GONE;

    to->gpus = gpus;
    to->made_s = p->made_wall_us / US_PER_S;
    to->bound_s = p->bound_wall_us / US_PER_S;
    to->run_s = p->begin_wall_us / US_PER_S;
    if (!to->bound_s && (*p->node || pod_has_begun(p)))
        to->bound_s = to->made_s ? to->made_s : 1;
    if (!to->run_s && pod_has_begun(p))
        to->run_s = to->bound_s;
    if (!has_ended)
        return;
    to->end_s = (p->exit_wall_us ? p->exit_wall_us : p->delete_wall_us) / US_PER_S;
    if (!to->end_s)
        to->end_s = from->state == WORKER_GONE ? to->bound_s : now_s;
}

static void goodput_note_end(struct goodput_work *w, const struct pod *p)
{
    uint64_t end_s = p->exit_wall_us / US_PER_S;
    uint64_t fail_s = p->delete_wall_us / US_PER_S;

    if (pod_has_succeeded(p) && end_s > w->ended_s)
        w->ended_s = end_s;
    if (pod_has_failed(p) && end_s && (!fail_s || end_s < fail_s))
        fail_s = end_s;
    if (fail_s && (!w->failed_s || fail_s < w->failed_s))
        w->failed_s = fail_s;
}

static void goodput_add_seat(struct goodput_work *w,
                             struct ledger_pod *to,
                             enum role role,
                             uint32_t index)
{
    bool is_needed = !w->q->job->elastic.is_set || w->v->was.state != STATE_RUNNING;
    const struct pod *p;

    switch (crew_seat(w->q->job, w->q->seen, role, index, &p)) {
    case SEAT_COMPLETED:
    case SEAT_LEFT:
        break;
    case SEAT_EMPTY:
    case SEAT_EXPECTED:
    case SEAT_LEAVING:
        w->view.is_incomplete |= is_needed;
        break;
    case SEAT_TAKEN:
        to->is_required = is_needed;
        break;
    }
    if (p)
        goodput_note_end(w, p);
}

static bool goodput_read_pods(struct goodput_work *w)
{
    const struct hvd_job *job = w->q->job;
    struct ledger_pod *pod;
    size_t n = 0;

    for (int r = 0; r < ROLE_COUNT; r++)
        n += w->q->seen->crew[r].n;
    pod = arena_calloc(w->arena, n + 1, sizeof(*pod));
    w->view.pod = pod;
    if (!pod)
        return false;
    for (int r = 0; r < ROLE_COUNT; r++) {
        const struct crew *crew = &w->q->seen->crew[r];
        uint64_t gpus = devices_count(job->role[r].pod_template).n;

        w->view.is_incomplete |=
            crew->n < job->role[r].n
            && (!job->elastic.is_set || w->v->was.state != STATE_RUNNING);
        for (uint32_t i = 0; i < crew->n; i++, pod++) {
            if (crew->w[i].pod)
                goodput_add_pod(w, pod, &crew->w[i], gpus);
            if (i < job->role[r].n)
                goodput_add_seat(w, pod, (enum role)r, i);
        }
    }
    w->view.n_pods = n;
    return true;
}

static void goodput_read_waiting(struct goodput_work *w)
{
    const struct sync_outcome *o = w->q->outcome;
    enum obstacle first = w->v->why.first;

    w->view.waiting = w->waiting;
    if (o->trouble != TROUBLE_NONE && strstr(o->message, "exceeded quota"))
        goodput_waiting_reason(o->message, false, w->waiting);
    else if (o->trouble != TROUBLE_NONE)
        (void)snprintf(w->waiting, sizeof(w->waiting), "%s", o->reason);
    else if (first == OBSTACLE_IMAGE)
        (void)snprintf(w->waiting, sizeof(w->waiting), "image");
    else if (first == OBSTACLE_VOLUME)
        (void)snprintf(w->waiting, sizeof(w->waiting), "volume");
    else if (first == OBSTACLE_NETWORK)
        (void)snprintf(w->waiting, sizeof(w->waiting), "pod sandbox");
    else if (first != OBSTACLE_NONE && first < OBSTACLE_INIT)
        goodput_waiting_reason(w->v->why.detail, first > OBSTACLE_SCHEDULER,
                               w->waiting);
}

static enum ledger_share share_of_state(enum live_state s)
{
    switch (s) {
    case LIVE_MEETING:
        return SHARE_MEETING;
    case LIVE_STARTING:
        return SHARE_STARTING;
    case LIVE_TRAINING:
    case LIVE_ENDING:
        return SHARE_TRAINING;
    case LIVE_STALLED:
        return SHARE_STALLED;
    }
    return SHARE_TRAINING;
}

static void goodput_read_report(struct goodput_work *w)
{
    const struct live_report *live = w->q->seen->live;
    bool is_known = live && live->stall.cause != LIVE_CAUSE_UNKNOWN;

    if (!live || live->at_wall_us < live->run_wall_us)
        return;
    if (live->stall.since_wall_us && live->stall.rank >= 0)
        (void)snprintf(w->stall, sizeof(w->stall), "%s%srank %d%s%.30s",
                       is_known ? live_cause_name(live->stall.cause) : "",
                       is_known ? ", " : "", live->stall.rank,
                       *live->stall.host ? " on " : "", live->stall.host);
    progress_clean(w->stall); /* the host is a text of the job, and may be cut */
    w->report = (struct ledger_report){
        .at_s = live->at_wall_us / US_PER_S,
        .run_s = live->run_wall_us / US_PER_S,
        .share_s = {[SHARE_MEETING] = live->times.meeting_ms / 1000u,
                    [SHARE_STARTING] = live->times.starting_ms / 1000u,
                    [SHARE_TRAINING] = live->times.training_ms / 1000u,
                    [SHARE_STALLED] = live->times.stalled_ms / 1000u},
        .state = share_of_state(live->state),
        .step = live->progress.step,
        .commit_s = live->progress.commit_wall_us / US_PER_S,
        .stall = w->stall};
    w->view.report = &w->report;
}

/* --- the beginning --------------------------------------------------------------- */

static enum ledger_part goodput_first_part(const struct hvd_verdict *v)
{
    if (v->was.state == STATE_RESTARTING)
        return LEDGER_DOWN;
    if (v->was.state == STATE_SUSPENDED
        || (v->was.is_new && v->state == STATE_SUSPENDED))
        return LEDGER_SUSPENDED;
    return LEDGER_QUEUED;
}

/* A job with the status of an operator without ledgers: from its first pod on. */
static uint64_t goodput_first_s(const struct goodput_work *w)
{
    const char *made = w->q->job->meta.made;
    uint64_t now_s = w->q->now_wall_s, us, at_s = now_s;

    if (w->v->was.is_new && made && timestamp_parse_us(made, &us) == 0)
        return us / US_PER_S < now_s ? us / US_PER_S : now_s;
    for (size_t i = 0; i < w->view.n_pods && goodput_was_live(w->v); i++) {
        const struct ledger_pod *p = &w->view.pod[i];

        if (p->is_required && p->made_s && p->made_s < at_s)
            at_s = p->made_s;
    }
    return at_s;
}

/* --- the cue --------------------------------------------------------------------- */

/* When the failure happened, for which the job restarts or fails. */
static uint64_t goodput_failed_s(const struct goodput_work *w)
{
    uint64_t us = w->v->cause.at_wall_us;

    if (us && us < UINT64_MAX - 1)
        return us / US_PER_S;
    return w->failed_s ? w->failed_s : w->q->now_wall_s;
}

/* Until at_s it ran, or tried to; from then on it is down. */
static void goodput_stop(struct goodput_work *w, uint64_t at_s, const char *reason)
{
    uint64_t now_s = w->q->now_wall_s;

    ledger_advance(&w->l, &w->view, at_s < now_s ? at_s : now_s);
    ledger_end_attempt(&w->l, reason);
    ledger_switch(&w->l, LEDGER_DOWN, reason);
    w->view.is_live = false;
    ledger_advance(&w->l, &w->view, now_s);
}

static void goodput_follow_cue(struct goodput_work *w)
{
    const struct hvd_verdict *v = w->v;
    uint64_t now_s = w->q->now_wall_s;

    switch (v->cue) {
    case CUE_BROKEN:
        goodput_stop(w, goodput_failed_s(w), v->cause.reason);
        return;
    case CUE_DOOMED:
        goodput_stop(w, goodput_failed_s(w), "");
        return;
    case CUE_REMAKE:
    case CUE_RENEW:
        goodput_stop(w, now_s, v->reason);
        return;
    case CUE_DONE:
        goodput_stop(w, w->ended_s ? w->ended_s : now_s, "");
        return;
    case CUE_REFUSED:
    case CUE_SUSPEND:
    case CUE_EXPIRED:
    case CUE_RESIZE:
    case CUE_SCALE:
    case CUE_REPLACE:
    case CUE_CLEARED:
    case CUE_RUN:
    case CUE_NONE:
        break;
    }
    ledger_advance(&w->l, &w->view, now_s);
    if (v->cue == CUE_SUSPEND) {
        if (goodput_was_live(v) && w->l.part != LEDGER_SUSPENDED)
            ledger_end_attempt(&w->l, "JobSuspended");
        ledger_switch(&w->l, LEDGER_SUSPENDED, "");
    } else if (v->cue == CUE_RESIZE) {
        ledger_end_attempt(&w->l, "JobScaled");
        ledger_switch(&w->l, LEDGER_QUEUED, "");
    } else if (v->cue == CUE_CLEARED && v->was.state == STATE_SUSPENDED) {
        ledger_switch(&w->l, LEDGER_QUEUED, "");
    } else if (v->cue == CUE_CLEARED) {
        ledger_pin(&w->l); /* the next pods replace what is known of these */
    } else if (v->cue == CUE_REPLACE || v->cue == CUE_SCALE
               || (v->cue == CUE_RUN && w->q->job->elastic.is_set)) {
        ledger_pin(&w->l); /* the same of some pods; from RUN on no pod counts */
    }
}

/* False: out of memory. */
static bool goodput_make(struct goodput_work *w)
{
    const struct node *stored = node_get(w->q->job->meta.status, "goodput");

    if (!goodput_read_pods(w))
        return false;
    goodput_read_waiting(w);
    goodput_read_report(w);
    w->view.is_live = goodput_was_live(w->v);
    if (!goodput_read(stored, &w->l) || w->l.is_closed)
        ledger_begin(&w->l, goodput_first_s(w), goodput_first_part(w->v));
    goodput_follow_cue(w);
    if (state_is_final(w->v->state))
        ledger_close(&w->l);
    return true;
}

/* --- what follows from it -------------------------------------------------------- */

/* Whether goodput alone is a reason to write: reports show that the job does something
 * else now, or a while has passed. Without reports there is nothing that the pods do not
 * show later. */
static bool goodput_is_due(const struct goodput_work *w)
{
    struct ledger was;

    if (!w->view.report || !state_is_live(w->v->state)
        || !goodput_read(node_get(w->q->job->meta.status, "goodput"), &was))
        return false;
    return was.part != w->l.part || was.run_s != w->l.run_s
           || wall_wait_is_over(w->q->now_wall_s, was.until_s + GOODPUT_EVERY_S,
                                GOODPUT_EVERY_S);
}

void hvd_goodput_add(struct build *b,
                     const struct verdict_query *q,
                     const struct hvd_verdict *v,
                     struct node *status)
{
    const struct node *stored = q->job->meta.status;
    struct goodput_work w = {.q = q, .v = v, .arena = b->arena};

    if (v->was_finished) {
        if (node_get(stored, "goodput"))
            node_set(b, status, "goodput", node_copy(b, node_get(stored, "goodput")));
        return;
    }
    if (goodput_make(&w))
        goodput_put(b, status, stored, goodput_node(b, &w.l), goodput_is_due(&w));
    else
        b->status = -ENOMEM;
}

size_t hvd_goodput_note(const struct verdict_query *q,
                        const struct hvd_verdict *v,
                        struct arena *a,
                        struct event_note *ret)
{
    struct goodput_work w = {.q = q, .v = v, .arena = a};
    const char *text = NULL;

    if (v->was_finished || !state_is_final(v->state) || v->cue == CUE_REFUSED)
        return 0;
    if (goodput_make(&w))
        text = goodput_sentence(a, &w.l);
    if (!text)
        return 0;
    *ret =
        (struct event_note){.reason = "Goodput", .message = text, .repeat = EVENT_ONCE};
    return 1;
}
