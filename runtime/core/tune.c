/* SPDX-License-Identifier: Apache-2.0 */
/* The search:
 *
 *   1 sweep    one setting after the other: every value of its short grid is measured,
 *              with the other settings at their best value so far; the best value is
 *              kept. First the fusion threshold, which matters most, then the window,
 *              which depends on it, then the backend's switch points.
 *   2 refine   double and half of the best threshold and window.
 *   3 final    the two best settings are measured again, one right after the other.
 *              This decides, so that a lucky first measurement does not win.
 *
 * The speed of machines changes (clock rates, other jobs), so only measurements of the
 * last minutes are compared: the best setting is measured again before each setting's
 * turn, and the newest measurement of a setting counts. A value must win by MARGIN, so
 * that noise changes nothing. The grids are powers of four: the goal is 90% of the
 * best, and adjacent values of a finer grid differ by less. Sweep and final take 20
 * samples, Horovod's default, if all four settings are tuned, and 12 within one host. A
 * larger budget is spent on refining.
 *
 * Bayesian optimisation, as in Horovod, was rejected: with two strong settings and 20
 * samples it needs as many samples as this sweep, and its choices cannot be explained.
 *
 * Called by observe/autotune.c on rank 0. */
#include "runtime/core/tune.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define MARGIN 1.02
#define N_IDS  8192 /* different names that are counted in one step */

enum {
    /* After a change: one partial step, two until the plan, one more. */
    SETTLE_STEPS = 4,
    MAX_STEPS = 1024, /* of a sample that are remembered */
    GRID_MAX = 5,
    N_FINAL = 2
};

static const uint64_t MS = 1000000;

struct grid {
    uint64_t v[GRID_MAX];
    uint32_t n;
    bool is_refined;
};

static const struct grid grids[TUNE_DIMS] = {
    [TUNE_FUSION] = {{64u << 20, 16u << 20, 4u << 20, 1u << 20, 256u << 10}, 5, true},
    [TUNE_GATHER] = {{0, MS / 4, MS, 4 * MS}, 4, true},
    [TUNE_WHOLE] = {{32u << 10, 128u << 10, 512u << 10}, 3, false},
    [TUNE_CHUNK] = {{64u << 10, 128u << 10, 512u << 10}, 3, false},
};

enum phase { PHASE_SWEEP, PHASE_REFINE, PHASE_FINAL, PHASE_DONE };

struct tried {
    struct tuning tuning;
    double score; /* its newest */
};

struct tune {
    struct tune_config cfg;
    /* The search. */
    enum phase phase;
    uint32_t dim, at; /* the next candidate */
    struct tried tried[TUNE_MAX_SAMPLES];
    uint32_t n_tried, best; /* best: index */
    uint32_t final_of[N_FINAL];
    uint32_t n_samples, n_warmups; /* that were taken */
    struct tuning now;             /* current, or requested */
    bool is_waiting;               /* until tune_applied */
    /* The current sample. */
    uint32_t n_settle, n_steps;
    double rates[MAX_STEPS];
    /* The current step. */
    uint64_t ids[N_IDS];
    uint32_t gens[N_IDS], gen, n_ids;
    uint64_t bytes, batch_bytes, begin_ns, last_ns;
    bool is_new; /* the current batch begins a step */
};

uint64_t tuning_get(const struct tuning *t, enum tune_dim d)
{
    switch (d) {
    case TUNE_FUSION:
        return t->fusion_bytes;
    case TUNE_GATHER:
        return t->gather_ns;
    case TUNE_WHOLE:
        return t->whole_bytes;
    case TUNE_CHUNK:
        return t->chunk_bytes;
    case TUNE_DIMS:
        break;
    }
    return 0;
}

void tuning_set(struct tuning *t, enum tune_dim d, uint64_t v)
{
    switch (d) {
    case TUNE_FUSION:
        t->fusion_bytes = v;
        break;
    case TUNE_GATHER:
        t->gather_ns = v;
        break;
    case TUNE_WHOLE:
        t->whole_bytes = v;
        break;
    case TUNE_CHUNK:
        t->chunk_bytes = v;
        break;
    case TUNE_DIMS:
        break;
    }
}

int tune_new(const struct tune_config *cfg, struct tune **ret)
{
    struct tune *t;

    if (cfg->n_steps == 0 || cfg->n_samples == 0)
        return -EINVAL;
    t = mem_zalloc(sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->cfg = *cfg;
    if (t->cfg.n_samples > TUNE_MAX_SAMPLES)
        t->cfg.n_samples = TUNE_MAX_SAMPLES;
    if (t->cfg.n_steps > MAX_STEPS)
        t->cfg.n_steps = MAX_STEPS;
    t->now = cfg->start;
    tune_applied(t);
    *ret = t;
    return 0;
}

void tune_free(struct tune *t)
{
    mem_free(t);
}

const struct tuning *tune_settings(const struct tune *t)
{
    return &t->now;
}

bool tune_is_done(const struct tune *t)
{
    return t->phase == PHASE_DONE;
}

double tune_best(const struct tune *t)
{
    return t->n_tried > 0 ? t->tried[t->best].score : 0;
}

double tune_first(const struct tune *t)
{
    return t->n_tried > 0 ? t->tried[0].score : 0;
}

uint32_t tune_n_samples(const struct tune *t)
{
    return t->n_samples;
}

/* --- what to try next --- */

static bool tuning_equals(const struct tuning *a, const struct tuning *b)
{
    for (int d = 0; d < TUNE_DIMS; d++)
        if (tuning_get(a, (enum tune_dim)d) != tuning_get(b, (enum tune_dim)d))
            return false;
    return true;
}

static struct tried *tune_find_tried(struct tune *t, const struct tuning *v)
{
    for (uint32_t i = 0; i < t->n_tried; i++)
        if (tuning_equals(&t->tried[i].tuning, v))
            return &t->tried[i];
    return NULL;
}

/* Proposes the best so far with one setting changed. False: it was tried. */
static bool tune_propose(struct tune *t, enum tune_dim d, uint64_t v)
{
    t->now = t->tried[t->best].tuning;
    tuning_set(&t->now, d, v);
    return !tune_find_tried(t, &t->now);
}

/* Proposes to measure the best so far again. False at the start: it is new. */
static bool tune_refresh_best(struct tune *t)
{
    t->now = t->tried[t->best].tuning;
    return t->n_samples > 1;
}

static bool tune_sweep(struct tune *t)
{
    for (; t->dim < TUNE_DIMS; t->dim++, t->at = 0) {
        while (!t->cfg.is_fixed[t->dim] && t->at <= grids[t->dim].n) {
            uint32_t i = t->at++;

            if (i == 0 ? tune_refresh_best(t)
                       : tune_propose(t, (enum tune_dim)t->dim, grids[t->dim].v[i - 1]))
                return true;
        }
    }
    return false;
}

static bool tune_refine(struct tune *t)
{
    for (; t->dim < TUNE_DIMS; t->dim++, t->at = 0) {
        while (!t->cfg.is_fixed[t->dim] && grids[t->dim].is_refined && t->at < 2) {
            uint64_t v = tuning_get(&t->tried[t->best].tuning, (enum tune_dim)t->dim);

            if (t->at++ == 0 ? v > 0 && tune_propose(t, (enum tune_dim)t->dim, v * 2)
                             : v > 1 && tune_propose(t, (enum tune_dim)t->dim, v / 2))
                return true;
        }
    }
    return false;
}

/* The best setting and the second best. */
static void tune_choose_finalists(struct tune *t)
{
    uint32_t second = t->best;

    for (uint32_t i = 0; i < t->n_tried; i++)
        if (i != t->best
            && (second == t->best || t->tried[i].score > t->tried[second].score))
            second = i;
    t->final_of[0] = t->best;
    t->final_of[1] = second;
}

static void tune_finish(struct tune *t)
{
    t->phase = PHASE_DONE;
    t->now = t->tried[t->best].tuning;
}

static bool tune_has_budget(const struct tune *t, uint32_t n)
{
    return t->n_samples + n <= t->cfg.n_samples;
}

/* Samples kept for the final, unless the budget is too small for one. */
static uint32_t tune_reserve(const struct tune *t)
{
    return t->cfg.n_samples >= 8 ? N_FINAL : 0;
}

/* Sets now to what is to be measured next. */
static void tune_choose_next(struct tune *t)
{
    for (;;) {
        switch (t->phase) {
        case PHASE_SWEEP:
        case PHASE_REFINE:
            if (tune_has_budget(t, 1 + tune_reserve(t))
                && (t->phase == PHASE_SWEEP ? tune_sweep(t) : tune_refine(t)))
                return;
            t->dim = t->at = 0;
            t->phase = t->phase == PHASE_SWEEP ? PHASE_REFINE : PHASE_FINAL;
            if (t->phase == PHASE_FINAL)
                tune_choose_finalists(t);
            break;
        case PHASE_FINAL:
            if (tune_reserve(t) == 0 || t->n_tried < 2 || t->at >= N_FINAL
                || !tune_has_budget(t, 1)) {
                tune_finish(t);
                return;
            }
            t->now = t->tried[t->final_of[t->at++]].tuning;
            return;
        case PHASE_DONE:
            return;
        }
    }
}

static void tune_note_score(struct tune *t, double score)
{
    struct tried *v = tune_find_tried(t, &t->now);

    t->n_samples++;
    if (!v) {
        v = &t->tried[t->n_tried++];
        v->tuning = t->now;
    }
    v->score = score;
    if (t->phase != PHASE_FINAL) {
        if (v->score > t->tried[t->best].score * MARGIN)
            t->best = (uint32_t)(v - t->tried);
    } else if (t->at == N_FINAL) { /* both are measured */
        const uint32_t *f = t->final_of;

        t->best = t->tried[f[1]].score > t->tried[f[0]].score * MARGIN ? f[1] : f[0];
    }
}

/* --- measuring --- */

/* Has the current step had this tensor already? */
static bool step_has_tensor(struct tune *t, uint64_t id)
{
    uint64_t at = (id * 0x9e3779b97f4a7c15ull) >> 51; /* 13 bits: N_IDS */

    _Static_assert(N_IDS == 1 << 13, "the hash has as many bits");
    for (;; at = (at + 1) % N_IDS) {
        if (t->gens[at] != t->gen) {
            t->gens[at] = t->gen;
            t->ids[at] = id;
            t->n_ids++;
            return false;
        }
        if (t->ids[at] == id)
            return true;
    }
}

static void tune_forget_ids(struct tune *t)
{
    t->gen++;
    t->n_ids = 0;
    if (t->gen == 0) { /* after 2^32 steps */
        memset(t->gens, 0, sizeof(t->gens));
        t->gen = 1;
    }
}

void tune_tensor(struct tune *t, uint64_t id, uint64_t bytes)
{
    if (t->phase == PHASE_DONE || t->is_waiting)
        return;
    /* Names that never repeat (some programs number them) would fill the table. */
    if (t->n_ids >= N_IDS / 2 || step_has_tensor(t, id)) {
        tune_forget_ids(t);
        (void)step_has_tensor(t, id);
        t->is_new = true;
    }
    t->batch_bytes += bytes;
}

static int double_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double rates_median(double *v, uint32_t n)
{
    qsort(v, n, sizeof(*v), double_compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void tune_begin_sample(struct tune *t)
{
    t->n_steps = 0;
    t->n_settle = SETTLE_STEPS;
    t->begin_ns = t->last_ns = 0;
    t->bytes = t->batch_bytes = 0;
    t->is_new = false;
    tune_forget_ids(t);
}

/* A step has ended with the batch before this one. True: the sample is complete. */
static bool tune_end_step(struct tune *t)
{
    uint64_t ns = t->last_ns - t->begin_ns;

    if (t->begin_ns > 0 && t->n_settle > 0)
        t->n_settle--;
    else if (t->begin_ns > 0 && ns > 0 && t->bytes > 0)
        t->rates[t->n_steps++] = (double)t->bytes * 1e9 / (double)ns;
    t->begin_ns = t->last_ns;
    t->bytes = 0;
    return t->n_steps == t->cfg.n_steps;
}

bool tune_batch(struct tune *t, uint64_t now_ns, struct tune_sample *ret)
{
    bool is_complete = false;

    if (t->phase == PHASE_DONE || t->is_waiting)
        return false;
    if (t->is_new && t->last_ns > 0)
        is_complete = tune_end_step(t);
    t->is_new = false;
    t->bytes += t->batch_bytes;
    t->batch_bytes = 0;
    t->last_ns = now_ns;
    if (!is_complete)
        return false;
    *ret = (struct tune_sample){.tuning = t->now,
                                .bytes_per_s = rates_median(t->rates, t->n_steps),
                                .is_warmup = t->n_warmups < t->cfg.n_warmup};
    if (ret->is_warmup) {
        t->n_warmups++;
    } else {
        tune_note_score(t, ret->bytes_per_s);
        tune_choose_next(t);
    }
    t->is_waiting = true;
    return true;
}

void tune_applied(struct tune *t)
{
    t->is_waiting = false;
    tune_begin_sample(t);
}
