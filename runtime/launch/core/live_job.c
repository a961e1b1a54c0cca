/* SPDX-License-Identifier: Apache-2.0 */
/* States and their times:
 *
 *   Meeting --start--> Starting --all ranks have a page--> Training <--> Stalled
 *      ^                   |                                  |             |
 *      '------- meet ------'----------------------------------'-------------'
 *   end: Ending, from any state; its time is not counted
 *
 * Rates are differences between the newest and the oldest sample, each divided by the time
 * that the same records cover. A counter that went down (a rank has begun another world)
 * drops all samples. Called by live_lead.c. */
#include "runtime/launch/core/live_job.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

static const uint64_t NS_IN_MS = 1000000u, MS_IN_S = 1000u, NS_IN_US = 1000u,
                      US_IN_MS = 1000u;

void live_job_init(struct live_job *j, uint64_t now_ns, uint64_t wall_us)
{
    memset(j, 0, sizeof(*j));
    j->run_wall_us = wall_us;
    j->now_ns = j->world_ns = now_ns;
    j->stall.rank = j->straggler.rank = -1;
}

void live_job_release(struct live_job *j)
{
    mem_free(j->ranks);
    j->ranks = NULL;
    j->n_ranks = 0;
}

/* --- states ----------------------------------------------------------------------- */

static void live_job_set_state(struct live_job *j, enum live_state state)
{
    if (state == j->state || j->state == LIVE_ENDING)
        return;
    j->unmoved_ns = 0;
    j->state = state;
}

static void live_job_forget_world(struct live_job *j)
{
    live_job_release(j);
    j->n_in_world = j->n_stopped = j->n_samples = 0;
    j->stall = (struct live_stall){.rank = -1};
    j->straggler = (struct live_straggler){.rank = -1};
}

/* True if no rank uses the runtime. */
static bool live_job_is_alone(const struct live_job *j)
{
    return j->n_in_world == 0 && j->now_ns >= j->world_ns + LIVE_ALONE_NS;
}

static void live_job_check_started(struct live_job *j)
{
    if (j->state != LIVE_STARTING || j->size == 0)
        return;
    if (live_job_is_alone(j)) {
        /* they have done their own work meanwhile */
        uint64_t moved = j->now_ns - j->world_ns;

        j->part_ns[LIVE_STARTING] -= moved;
        j->part_ns[LIVE_TRAINING] += moved;
    }
    if (j->n_in_world == j->size || live_job_is_alone(j))
        live_job_set_state(j, LIVE_TRAINING);
}

void live_job_advance(struct live_job *j, uint64_t now_ns)
{
    uint64_t ns = now_ns > j->now_ns ? now_ns - j->now_ns : 0;

    j->now_ns += ns;
    if (j->state == LIVE_ENDING)
        return;
    j->part_ns[j->state] += ns;
    if (j->state == LIVE_TRAINING)
        j->unmoved_ns += ns;
    live_job_check_started(j);
}

void live_job_meet(struct live_job *j, uint32_t generation, uint32_t n_workers)
{
    live_job_forget_world(j);
    j->generation = generation;
    j->n_workers = n_workers;
    j->n_present = j->size = 0;
    live_job_set_state(j, LIVE_MEETING);
}

void live_job_set_present(struct live_job *j, uint32_t n_present)
{
    j->n_present = n_present;
}

void live_job_set_elastic(struct live_job *j, const struct live_elastic *elastic)
{
    j->elastic = *elastic;
}

int live_job_start(struct live_job *j, uint32_t size, uint32_t slots)
{
    live_job_forget_world(j);
    j->size = size;
    j->slots = slots;
    j->world_ns = j->now_ns;
    live_job_set_state(j, LIVE_STARTING);
    j->ranks = mem_calloc(size, sizeof(*j->ranks));
    if (!j->ranks)
        return -ENOMEM;
    j->n_ranks = size;
    for (uint32_t i = 0; i < size; i++)
        live_rank_init(&j->ranks[i]);
    return 0;
}

void live_job_join(struct live_job *j, uint64_t run_ms, uint64_t world_ms)
{
    uint64_t *starting = &j->part_ns[LIVE_STARTING], ns = world_ms * NS_IN_MS;

    *starting += run_ms * NS_IN_MS;
    j->run_wall_us -= run_ms * MS_IN_S;
    if (ns > *starting)
        ns = *starting;
    *starting -= ns;
    j->part_ns[LIVE_TRAINING] += ns;
    j->unmoved_ns += ns;
}

void live_job_end(struct live_job *j)
{
    live_job_set_state(j, LIVE_ENDING);
}

void live_job_set_stall(struct live_job *j,
                        const struct live_stall *stall,
                        uint64_t wall_us)
{
    uint64_t ns;

    if (!stall) {
        j->stall = (struct live_stall){.rank = -1};
        if (j->state == LIVE_STALLED)
            live_job_set_state(j, LIVE_TRAINING);
        return;
    }
    j->stall = *stall;
    if (j->state != LIVE_TRAINING)
        return;
    ns = wall_us > stall->since_wall_us ? (wall_us - stall->since_wall_us) * NS_IN_US
                                        : 0;
    if (ns > j->unmoved_ns)
        ns = j->unmoved_ns;
    j->part_ns[LIVE_TRAINING] -= ns;
    j->part_ns[LIVE_STALLED] += ns;
    live_job_set_state(j, LIVE_STALLED);
}

/* --- records ---------------------------------------------------------------------- */

/* The progress of the lowest rank that reports some; NULL: none does. */
static const struct live_progress *live_job_progress(const struct live_job *j)
{
    for (uint32_t i = 0; i < j->n_ranks; i++)
        if (j->ranks[i].progress.updated_wall_us > 0)
            return &j->ranks[i].progress;
    return NULL;
}

/* Of elastic state: the commit of the lowest rank that reports one. */
static void live_job_put_commit(const struct live_job *j, struct live_progress *ret)
{
    for (uint32_t i = 0; i < j->n_ranks && ret->commit_wall_us == 0; i++) {
        ret->commit_wall_us = j->ranks[i].progress.commit_wall_us;
        ret->commit_step = j->ranks[i].progress.commit_step;
    }
}

static void live_job_sum(const struct live_job *j, struct live_sample *ret)
{
    const struct live_progress *p = live_job_progress(j);

    *ret = (struct live_sample){.ns = j->now_ns, .step = -1, .samples = -1};
    ret->plan_steps = j->ranks[0].steps;
    ret->plan_ms = j->ranks[0].age_ms;
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        const struct live_rank *r = &j->ranks[i];

        ret->blocked_ns += r->blocked_ns;
        ret->age_ms += r->age_ms;
        ret->bus_bytes += r->bus_bytes;
        ret->allreduce_ns += r->allreduce_ns;
    }
    if (p) {
        ret->step = p->step;
        ret->samples = p->samples;
        ret->updated_us = p->updated_wall_us;
    }
}

static bool sample_follows(const struct live_sample *a, const struct live_sample *b)
{
    return b->plan_steps >= a->plan_steps && b->plan_ms >= a->plan_ms
           && b->blocked_ns >= a->blocked_ns && b->age_ms >= a->age_ms
           && b->bus_bytes >= a->bus_bytes && b->allreduce_ns >= a->allreduce_ns
           && b->updated_us >= a->updated_us;
}

static void live_job_sample(struct live_job *j)
{
    struct live_sample *last = j->n_samples ? &j->samples[j->n_samples - 1] : NULL;
    struct live_sample now;

    if (last && j->now_ns - last->ns < LIVE_EVERY_S * MS_IN_S * NS_IN_MS)
        return;
    live_job_sum(j, &now);
    if (last && !sample_follows(last, &now))
        j->n_samples = 0;
    if (j->n_samples == LIVE_SAMPLES) {
        memmove(j->samples, j->samples + 1, (LIVE_SAMPLES - 1) * sizeof(now));
        j->n_samples--;
    }
    j->samples[j->n_samples++] = now;
}

static bool live_rank_is_stopped(const struct live_rank *r)
{
    return r->stopped_ms >= LIVE_STOPPED_MS;
}

void live_job_take(struct live_job *j, const struct live_rank *r)
{
    struct live_rank *own;

    if (r->rank >= j->n_ranks)
        return;
    own = &j->ranks[r->rank];
    j->n_in_world += r->state != LIVE_RANK_STARTED && own->state == LIVE_RANK_STARTED;
    j->n_stopped += live_rank_is_stopped(r);
    j->n_stopped -= live_rank_is_stopped(own);
    *own = *r;
    live_job_check_started(j);
    if (j->n_in_world == j->size)
        live_job_sample(j);
}

/* The leader asks after each message, so that there is mostly nothing to search. */
const struct live_rank *live_job_stopped(const struct live_job *j)
{
    for (uint32_t i = 0; j->n_stopped > 0 && i < j->n_ranks; i++)
        if (live_rank_is_stopped(&j->ranks[i]))
            return &j->ranks[i];
    return NULL;
}

/* --- the next question --- */

/* Three quarters of the stall time is how long a wait is seen before it is a stall. */
static int64_t live_job_again_ms(const struct live_job *j, uint64_t wall_us)
{
    const struct live_rank *first = j->ranks;
    uint64_t verdict_us, stall_ms;

    if (j->n_ranks == 0 || first->stall_ms < 0)
        return -1;
    if (j->stall.since_wall_us > 0) /* an unknown one is examined again */
        return j->stall.cause == LIVE_CAUSE_UNKNOWN ? LIVE_EVERY_S * 1000 : -1;
    stall_ms = (uint64_t)first->stall_ms;
    verdict_us = first->waits_us + (stall_ms + LIVE_VERDICT_MS) * US_IN_MS;
    if (first->waits_us > 0 && verdict_us > wall_us)
        return (int64_t)((verdict_us - wall_us) / US_IN_MS + 1);
    return (int64_t)(stall_ms - stall_ms / 4);
}

/* --- the report ------------------------------------------------------------------- */

/* Growth per unit of span; -1: span is empty. */
static double rate_of(uint64_t a, uint64_t b, double span)
{
    return span > 0 && b >= a ? (double)(b - a) / span : -1;
}

/* Of what hvd.progress counts. While it is not called the rate falls. */
static double progress_rate(const struct live_sample *a,
                            const struct live_sample *b,
                            int64_t from,
                            int64_t to)
{
    double s = (double)(b->updated_us - a->updated_us) / 1e6;

    if (a->updated_us == 0 || from < 0 || to < from)
        return -1;
    if (b->updated_us == a->updated_us)
        return (double)(b->ns - a->ns) / 1e9 < 60 ? -1 : 0;
    return (double)(to - from) / s;
}

static void live_job_put_rates(const struct live_job *j, struct live_report *ret)
{
    const struct live_sample *a = j->samples, *b;

    if (j->n_samples < 2)
        return;
    b = &j->samples[j->n_samples - 1];
    ret->rates.steps_per_s = progress_rate(a, b, a->step, b->step);
    if (b->step < 0 && b->plan_steps > 0)
        ret->rates.steps_per_s = rate_of(a->plan_steps, b->plan_steps,
                                         (double)(b->plan_ms - a->plan_ms) / 1e3);
    ret->rates.bus_bytes_per_s = rate_of(
        a->bus_bytes, b->bus_bytes, (double)(b->allreduce_ns - a->allreduce_ns) / 1e9);
    ret->rates.blocked_share =
        rate_of(a->blocked_ns, b->blocked_ns, (double)(b->age_ms - a->age_ms) * 1e6);
    if (ret->rates.blocked_share > 1)
        ret->rates.blocked_share = 1;
    ret->progress.samples_per_s = progress_rate(a, b, a->samples, b->samples);
}

void live_job_report(const struct live_job *j,
                     uint64_t wall_us,
                     struct live_report *ret)
{
    const struct live_progress *p = live_job_progress(j);

    live_report_init(ret);
    ret->at_wall_us = wall_us;
    ret->run_wall_us = j->run_wall_us;
    ret->state = j->state;
    ret->generation = j->generation;
    ret->size = j->size;
    ret->slots = j->slots;
    ret->n_workers = j->n_workers;
    ret->n_present = j->n_present;
    ret->times =
        (struct live_times){.meeting_ms = j->part_ns[LIVE_MEETING] / NS_IN_MS,
                            .starting_ms = j->part_ns[LIVE_STARTING] / NS_IN_MS,
                            .training_ms = j->part_ns[LIVE_TRAINING] / NS_IN_MS,
                            .stalled_ms = j->part_ns[LIVE_STALLED] / NS_IN_MS};
    if (p)
        ret->progress = *p;
    live_job_put_commit(j, &ret->progress);
    ret->again_ms = live_job_again_ms(j, wall_us);
    if (j->n_ranks > 0)
        ret->n_steps = j->ranks[0].steps;
    live_job_put_rates(j, ret);
    ret->stall = j->stall;
    ret->straggler = j->straggler;
    ret->elastic = j->elastic;
}
