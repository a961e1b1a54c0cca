/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks of a world see the end of a batch at nearly the same moment. ready_ns adds
 * up, for each rank, the time from its own last submission of a batch to that end. So
 * the difference of two ranks' ready_ns is the difference of their arrivals, without
 * synchronised clocks, and the rank with the smallest ready_ns is the one that the other
 * ranks wait for.
 *
 * Time is divided into windows. When a window closes, each rank gets its lateness: what a
 * typical rank (upper median) has waited per batch, less what this rank has waited. From
 * it follows the cost of the rank per step:
 *
 *   lateness     is the least: if the batches of a step overlap, as in a backward pass,
 *                a rank is late by the same seconds in all of them, and most in the last
 *   lateness x batches of a step
 *                is the most: if the program waits for each batch, delays add up
 *   blocked_ns   of a typical rank, less that of this rank, lies between these two and is
 *                exact, where programs wait in the runtime. TensorFlow and programs that
 *                only wait in a stream do not: their cost is the least one.
 *
 * What is compared is per batch, not per second: records of ranks arrive at different
 * times. A rank whose number of batches per second differs from that of most ranks has
 * other work (process sets), or its record begins or ends on the other side of a pause. It
 * is left out of the window. A pause of one rank, such as a checkpoint at the end of an
 * epoch, is therefore in one or two windows, and a verdict needs more.
 *
 * A rank is named when it is slow in nearly all remembered windows, and by much more than
 * the windows differ among themselves. It stays named until it is clearly not slow any
 * more, or another one is much slower. Called by the hub. */
#include "runtime/launch/core/straggle.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

/* --- the thresholds; launch_straggle_sim_test.c simulates jobs with them --- */

/* A window has two records of each rank (LIVE_EVERY_S), and enough steps that the jitter
 * of single steps averages out. Where only batches are known, several of them may be one
 * step. A window that does not get enough is given up: the job pauses, or a step takes a
 * minute. */
static const uint64_t WINDOW_NS = 10 * NS_PER_S, WINDOW_MAX_NS = 600 * NS_PER_S;
static const double WINDOW_STEPS = 10, WINDOW_BATCHES = 40;
/* The ranks are looked at so often while a window lasts longer. */
static const uint64_t CHECK_NS = NS_PER_S;
/* Ranks whose batches per second differ by more are not compared. Records are up to
 * LIVE_EVERY_S old, but both numbers are of the same two records. */
static const double RATE_TOLERANCE = 0.2;
/* Slow: less is not worth a message, and less than a millisecond is the runtime's and the
 * kernel's own noise. */
static const double SLOW_SHARE = 0.05, SLOW_COST_S = 0.001;
/* In all but one of the remembered windows. A pause of another rank spoils one. */
enum { VOTES = STRAGGLE_WINDOWS - 1 };
/* Jitter is not slowness. The mean of the windows is at least so many times its standard
 * error: by the rank's own windows, without the highest and the lowest one (six or seven
 * numbers say little, so this alone does not suffice), and by the smoothed differences of
 * all ranks' consecutive windows. One difference counts no more than NOISE_MOST, so that
 * a checkpoint does not blind us. */
static const double SURE = 12, SURE_OF_ALL = 5, NOISE_MOST = 0.3;
enum { NOISE_WINDOWS = 16 };
/* Over: the last minute's median is below. Half of SLOW_SHARE, so that a rank at the
 * threshold does not come and go. */
static const double OVER_SHARE = 0.025;
enum { OVER_WINDOWS = 6 };
/* Nothing could be compared for so long: the verdict is old. */
static const uint64_t STALE_NS = 900 * NS_PER_S;
/* Another rank takes the place of the named one if its share is so many times larger. */
static const double MUCH_SLOWER = 1.5;

/* --- ranks --- */

struct straggle_counts {
    uint64_t age_ms, steps, step_ns, batches, ready_ns, blocked_ns;
    int64_t reported; /* steps by hvd.progress; -1: unknown */
};

struct straggle_rank {
    struct straggle_counts now, base; /* base: at the begin of the window */
    bool has_now, has_base;
    bool is_in;          /* of the window that closes */
    uint8_t valid, slow; /* a bit per window */
    float shares[STRAGGLE_WINDOWS], costs_s[STRAGGLE_WINDOWS]; /* a ring */
};

_Static_assert(STRAGGLE_WINDOWS <= 8, "bits of valid and slow");

int straggle_init(struct straggle *s, uint32_t n_ranks, uint32_t slots, struct err *err)
{
    memset(s, 0, sizeof(*s));
    s->verdict.rank = -1;
    if (n_ranks == 0 || n_ranks > STRAGGLE_MAX_RANKS || slots == 0)
        return err_set(err, -EINVAL, "%u ranks, %u of each worker: must be 1 to %u",
                       n_ranks, slots, STRAGGLE_MAX_RANKS);
    s->n = n_ranks;
    s->slots = slots;
    s->ranks = mem_calloc(n_ranks, sizeof(*s->ranks));
    s->scratch = mem_calloc(n_ranks + STRAGGLE_WINDOWS, sizeof(*s->scratch));
    if (s->ranks && s->scratch)
        return 0;
    straggle_release(s);
    return err_set(err, -ENOMEM, "out of memory for the counters of %u ranks", n_ranks);
}

void straggle_release(struct straggle *s)
{
    mem_free(s->ranks);
    mem_free(s->scratch);
    memset(s, 0, sizeof(*s));
    s->verdict.rank = -1;
}

/* The rank is in another world, or is another process. */
static bool counts_restarted(const struct straggle_counts *old,
                             const struct straggle_counts *new)
{
    return new->batches < old->batches || new->steps < old->steps
           || new->step_ns < old->step_ns || new->ready_ns < old->ready_ns
           || new->blocked_ns < old->blocked_ns;
}

void straggle_feed(struct straggle *s, const struct live_rank *r)
{
    struct straggle_counts c = {.age_ms = r->age_ms,
                                .steps = r->steps,
                                .step_ns = r->step_ns,
                                .batches = r->n_batches,
                                .ready_ns = r->ready_ns,
                                .blocked_ns = r->blocked_ns,
                                .reported = r->progress.step};
    struct straggle_rank *k;

    if (r->rank >= s->n)
        return;
    k = &s->ranks[r->rank];
    if (r->state != LIVE_RANK_IN_WORLD
        || (k->has_now && counts_restarted(&k->now, &c))) {
        memset(k, 0, sizeof(*k));
        if (s->verdict.rank == (int32_t)r->rank)
            s->verdict.rank = -1;
    }
    k->has_now = r->state == LIVE_RANK_IN_WORLD;
    k->now = c;
}

/* --- numbers --- */

/* The k-th smallest of v[n], which is reordered. Linear in the mean. */
static double numbers_select(double *v, size_t n, size_t k)
{
    size_t from = 0, to = n - 1;

    while (from < to) {
        double pivot = v[from + (to - from) / 2];
        size_t i = from, j = to;

        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i <= j) {
                double x = v[i];

                v[i++] = v[j];
                v[j] = x;
                if (j-- == 0)
                    break;
            }
        }
        if (k <= j && j < to)
            to = j;
        else if (k >= i)
            from = i;
        else
            break;
    }
    return v[k];
}

/* --- a window --- */

struct straggle_window {
    uint32_t n_in;
    bool has_steps;         /* else a batch counts as one */
    double batches_of_step; /* 1 without steps */
    double step_s;
    double ready_s, blocked_s; /* per batch, of a typical rank */
};

static double rank_batches(const struct straggle_rank *k)
{
    return (double)(k->now.batches - k->base.batches);
}

static double rank_per_batch(const struct straggle_rank *k, uint64_t now, uint64_t base)
{
    return (double)(now - base) / 1e9 / rank_batches(k);
}

static double rank_ready_s(const struct straggle_rank *k)
{
    return rank_per_batch(k, k->now.ready_ns, k->base.ready_ns);
}

static double rank_blocked_s(const struct straggle_rank *k)
{
    return rank_per_batch(k, k->now.blocked_ns, k->base.blocked_ns);
}

static double rank_rate(const struct straggle_rank *k)
{
    return rank_batches(k) / (double)(k->now.age_ms - k->base.age_ms);
}

/* The upper median: if half of the ranks are slow, a typical rank is a fast one. */
static double straggle_typical(struct straggle *s,
                               double (*of)(const struct straggle_rank *k))
{
    size_t n = 0;

    for (uint32_t r = 0; r < s->n; r++)
        if (s->ranks[r].is_in)
            s->scratch[n++] = of(&s->ranks[r]);
    return numbers_select(s->scratch, n, n / 2);
}

/* A rank that has joined (it has no data left) takes part in batches without tensors of
 * its own: ready_ns does not grow. */
static bool rank_has_window(const struct straggle_rank *k)
{
    return k->has_now && k->has_base && k->now.age_ms > k->base.age_ms
           && k->now.batches > k->base.batches && k->now.ready_ns > k->base.ready_ns;
}

static uint32_t straggle_select(struct straggle *s)
{
    uint32_t n = 0;
    double rate;

    for (uint32_t r = 0; r < s->n; r++)
        n += s->ranks[r].is_in = rank_has_window(&s->ranks[r]);
    if (n == 0)
        return 0;
    rate = straggle_typical(s, rank_rate);
    for (uint32_t r = 0; r < s->n; r++) {
        struct straggle_rank *k = &s->ranks[r];
        double off = k->is_in ? rank_rate(k) / rate - 1 : 0;

        if (off > RATE_TOLERANCE || off < -RATE_TOLERANCE) {
            k->is_in = false;
            n--;
        }
    }
    return n;
}

/* Steps per batch by hvd.progress, on the lowest rank that calls it, for a loop without a
 * plan; 0: unknown. A number that jumps (a checkpoint was loaded) counts no steps. */
static double straggle_reported(const struct straggle *s)
{
    for (uint32_t r = 0; r < s->n; r++) {
        const struct straggle_rank *k = &s->ranks[r];
        double steps = (double)k->now.reported - (double)k->base.reported;

        if (rank_has_window(k) && k->base.reported >= 0 && steps > 0)
            return steps <= rank_batches(k) ? steps / rank_batches(k) : 0;
    }
    return 0;
}

/* The sums of the ranks that are in the window. */
static void window_count_steps(struct straggle_window *w, const struct straggle *s)
{
    double steps = 0, step_ns = 0, batches = 0, age_ms = 0, reported;

    for (uint32_t r = 0; r < s->n; r++) {
        const struct straggle_rank *k = &s->ranks[r];

        if (!k->is_in)
            continue;
        steps += (double)(k->now.steps - k->base.steps);
        step_ns += (double)(k->now.step_ns - k->base.step_ns);
        batches += rank_batches(k);
        age_ms += (double)(k->now.age_ms - k->base.age_ms);
    }
    reported = straggle_reported(s);
    w->batches_of_step = 1;
    w->step_s = age_ms / 1e3 / batches;
    if (steps > 0 && step_ns > 0) {
        w->has_steps = true;
        w->batches_of_step = batches / steps;
        w->step_s = step_ns / 1e9 / steps;
    } else if (reported > 0) {
        w->has_steps = true;
        w->batches_of_step = 1 / reported;
        w->step_s *= w->batches_of_step;
    }
}

static struct straggle_window straggle_measure(struct straggle *s)
{
    struct straggle_window w = {.n_in = straggle_select(s)};

    if (w.n_in < 2)
        return w;
    window_count_steps(&w, s);
    w.ready_s = straggle_typical(s, rank_ready_s);
    w.blocked_s = straggle_typical(s, rank_blocked_s);
    return w;
}

/* Per step; negative: it waits more than a typical rank. Without steps the sum of
 * lateness is the only limit of what blocked_ns says. */
static double window_cost_s(const struct straggle_window *w,
                            const struct straggle_rank *k)
{
    const double late_s = w->ready_s - rank_ready_s(k);
    const double blocked_s = (w->blocked_s - rank_blocked_s(k)) * w->batches_of_step;
    const double all_s = late_s * w->batches_of_step;
    const double least_s = !w->has_steps ? 0 : late_s < all_s ? late_s : all_s;
    const double most_s = late_s < all_s ? all_s : late_s;

    if (late_s <= 0)
        return late_s;
    return blocked_s < least_s ? least_s : blocked_s > most_s ? most_s : blocked_s;
}

static double share_lost(double share)
{
    return share > 0 ? share : 0;
}

/* From this window and the one before. Negative shares come from records that begin or end
 * at other steps than the typical rank's, so they count as 0, and the mean difference of
 * what remains of normal numbers is 0.6 times their deviation. */
static void straggle_measure_noise(struct straggle *s, uint32_t at)
{
    const uint32_t before = (at + STRAGGLE_WINDOWS - 1) % STRAGGLE_WINDOWS;
    double sum = 0, deviation;
    uint32_t n = 0;

    for (uint32_t r = 0; r < s->n; r++) {
        const struct straggle_rank *k = &s->ranks[r];
        double d =
            share_lost((double)k->shares[at]) - share_lost((double)k->shares[before]);

        if (!(k->valid >> at & 1) || !(k->valid >> before & 1))
            continue;
        d = d < 0 ? -d : d;
        sum += d < NOISE_MOST ? d : NOISE_MOST;
        n++;
    }
    if (n < 2)
        return;
    deviation = sum / (n - 1) / 0.6; /* the typical rank's own share is always 0 */
    s->n_noise += s->n_noise < NOISE_WINDOWS;
    s->noise += (deviation - s->noise) / s->n_noise;
}

static void straggle_close(struct straggle *s, const struct straggle_window *w)
{
    const uint32_t at = (uint32_t)(s->n_closed % STRAGGLE_WINDOWS);
    const uint8_t bit = (uint8_t)(1u << at);

    for (uint32_t r = 0; r < s->n; r++) {
        struct straggle_rank *k = &s->ranks[r];
        double cost_s;

        k->valid = (uint8_t)(k->valid & ~bit);
        k->slow = (uint8_t)(k->slow & ~bit);
        if (!k->is_in)
            continue;
        cost_s = window_cost_s(w, k);
        k->valid |= bit;
        k->costs_s[at] = (float)cost_s;
        k->shares[at] = (float)(cost_s / w->step_s);
        if (cost_s >= SLOW_SHARE * w->step_s
            && (cost_s >= SLOW_COST_S || !w->has_steps))
            k->slow |= bit;
    }
    straggle_measure_noise(s, at);
    s->begins_wall_us[at] = s->from_wall_us;
    s->n_closed++;
}

static void straggle_open(struct straggle *s, uint64_t now_ns, uint64_t now_wall_us)
{
    for (uint32_t r = 0; r < s->n; r++) {
        s->ranks[r].base = s->ranks[r].now;
        s->ranks[r].has_base = s->ranks[r].has_now;
    }
    s->from_ns = now_ns;
    s->from_wall_us = now_wall_us;
    s->is_open = true;
}

/* Has it what a comparison needs? Half of the ranks must have a base: else they have
 * restarted, or had not begun. A window that only lacks steps may continue. */
static bool straggle_is_full(const struct straggle *s, bool *ret_continues)
{
    double steps = 0, batches = 0, reported = straggle_reported(s);
    uint32_t n = 0, n_based = 0;

    for (uint32_t r = 0; r < s->n; r++) {
        const struct straggle_rank *k = &s->ranks[r];

        n_based += k->has_base;
        if (!rank_has_window(k))
            continue;
        steps += (double)(k->now.steps - k->base.steps);
        batches += rank_batches(k);
        n++;
    }
    *ret_continues = n_based >= s->n / 2 && n_based >= 2;
    if (n == 0)
        return false;
    if (steps <= 0)
        steps = batches * reported;
    return steps > 0 ? steps >= n * WINDOW_STEPS : batches >= n * WINDOW_BATCHES;
}

/* --- the verdict --- */

/* Shares of the valid windows among the last n, sorted; returns how many. */
static uint32_t straggle_shares(const struct straggle *s,
                                const struct straggle_rank *k,
                                uint32_t n,
                                double *ret)
{
    uint32_t n_valid = 0;

    for (uint64_t w = s->n_closed; w > 0 && n > 0; w--, n--) {
        uint32_t i = (uint32_t)((w - 1) % STRAGGLE_WINDOWS), j = n_valid;

        if (!(k->valid >> i & 1))
            continue;
        for (; j > 0 && ret[j - 1] > (double)k->shares[i]; j--)
            ret[j] = ret[j - 1];
        ret[j] = (double)k->shares[i];
        n_valid++;
    }
    return n_valid;
}

static double straggle_median_share(const struct straggle *s,
                                    const struct straggle_rank *k,
                                    uint32_t n)
{
    double v[STRAGGLE_WINDOWS];

    n = straggle_shares(s, k, n, v);
    return n > 0 ? (v[(n - 1) / 2] + v[n / 2]) / 2 : 0;
}

/* Its shares differ little among themselves. */
static bool straggle_is_sure(const struct straggle *s, const struct straggle_rank *k)
{
    double v[STRAGGLE_WINDOWS], sum = 0, squares = 0, mean, n;
    uint32_t n_valid = straggle_shares(s, k, STRAGGLE_WINDOWS, v);

    for (uint32_t i = 1; i + 1 < n_valid; i++)
        sum += v[i];
    n = n_valid - 2.0;
    mean = sum / n;
    for (uint32_t i = 1; i + 1 < n_valid; i++)
        squares += (v[i] - mean) * (v[i] - mean);
    /* mean >= SURE * sqrt(variance / n), without a root */
    return mean > 0 && mean * mean >= SURE * SURE * squares / (n - 1) / n
           && mean * mean >= SURE_OF_ALL * SURE_OF_ALL * s->noise * s->noise / n_valid;
}

static bool straggle_is_slow(const struct straggle *s, const struct straggle_rank *k)
{
    uint32_t votes = 0;

    for (uint32_t i = 0; i < STRAGGLE_WINDOWS; i++)
        votes += k->slow >> i & 1;
    return votes >= VOTES && straggle_is_sure(s, k);
}

/* Its cost, and the ranks of its worker that are slow like it. */
static void straggle_describe(struct straggle *s)
{
    struct straggle_verdict *v = &s->verdict;
    const struct straggle_rank *k = &s->ranks[v->rank];
    const uint32_t first = v->worker * s->slots;
    uint32_t n = 0, n_here = 0;

    v->share = straggle_median_share(s, k, STRAGGLE_WINDOWS);
    for (uint32_t i = 0; i < STRAGGLE_WINDOWS; i++)
        if (k->valid >> i & 1)
            s->scratch[n++] = (double)k->costs_s[i];
    if (n > 0)
        v->cost_s = numbers_select(s->scratch, n, n / 2);
    v->n_ranks = 0;
    for (uint32_t r = first; r < s->n && r < first + s->slots; r++, n_here++)
        v->n_ranks +=
            straggle_median_share(s, &s->ranks[r], STRAGGLE_WINDOWS) >= v->share / 2;
    v->is_worker = n_here > 1 && v->n_ranks == n_here && n_here < s->n;
}

static void straggle_name(struct straggle *s, uint32_t rank)
{
    const struct straggle_rank *k = &s->ranks[rank];

    s->verdict = (struct straggle_verdict){
        .rank = (int32_t)rank, .worker = rank / s->slots, .since_wall_us = UINT64_MAX};
    for (uint32_t i = 0; i < STRAGGLE_WINDOWS; i++)
        if ((k->slow >> i & 1) && s->begins_wall_us[i] < s->verdict.since_wall_us)
            s->verdict.since_wall_us = s->begins_wall_us[i];
}

static void straggle_decide(struct straggle *s)
{
    double most = 0, share, of_named = 0;
    uint32_t best = s->n;

    for (uint32_t r = 0; r < s->n; r++) {
        if (!straggle_is_slow(s, &s->ranks[r]))
            continue;
        share = straggle_median_share(s, &s->ranks[r], STRAGGLE_WINDOWS);
        if (share > most) {
            most = share;
            best = r;
        }
    }
    if (s->verdict.rank >= 0) {
        of_named = straggle_median_share(s, &s->ranks[s->verdict.rank], OVER_WINDOWS);
        if (of_named < OVER_SHARE)
            s->verdict.rank = -1;
    }
    if (best < s->n && (s->verdict.rank < 0 || most > MUCH_SLOWER * of_named))
        straggle_name(s, best);
}

const struct straggle_verdict *
straggle_check(struct straggle *s, uint64_t now_ns, uint64_t now_wall_us)
{
    const uint64_t age_ns = now_ns - s->from_ns;
    struct straggle_window w;
    bool is_full, continues;

    if (s->is_open && (age_ns < WINDOW_NS || now_ns - s->checked_ns < CHECK_NS))
        return &s->verdict;
    s->checked_ns = now_ns;
    is_full = straggle_is_full(s, &continues);
    if (s->is_open && !is_full && continues && age_ns < WINDOW_MAX_NS)
        return &s->verdict;
    if (is_full) {
        w = straggle_measure(s);
        if (w.n_in >= 2 && w.n_in >= s->n / 2) { /* else it says nothing */
            straggle_close(s, &w);
            s->closed_ns = now_ns;
            straggle_decide(s);
        }
    }
    if (s->verdict.rank >= 0 && now_ns - s->closed_ns > STALE_NS)
        s->verdict.rank = -1;
    if (s->verdict.rank >= 0)
        straggle_describe(s);
    straggle_open(s, now_ns, now_wall_us);
    return &s->verdict;
}
