/* SPDX-License-Identifier: Apache-2.0 */
/* Detects steady training loops.
 *
 * A step of a process set ends where a tensor arrives that the step has had already.
 * Two steps are equal when they contain the same tensors, in any order.
 *
 * Each set has its own pace: one set may begin a step while another is in the middle of
 * one. A plan may begin there all the same, because it lists which tensors repeat and
 * not where a step begins. It is reported when all sets are steady, including the part
 * of the current step that they have had. A set that has had no tensor for IDLE_STEPS
 * steps of all sets is not waited for.
 *
 * A mark records when a tensor was answered last, and the time before that if it was in
 * the step before. Sorting the marks gives the last whole steps of all sets in their
 * common order. Marks of an older epoch do not count. Called by negotiate.c. */
#include "runtime/core/cycle.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/base/mem.h"

enum { IDLE_STEPS = 16, SETS_MAX = 1 << 16 };

struct mark {             /* of one slot */
    uint64_t epoch, step; /* the last step of its set that contained it */
    uint64_t at,
        at_before; /* position among all answers; at_before: in the step before */
    uint32_t lane;
};

struct lane { /* of one process set */
    uint32_t set, n_same;
    uint32_t n_last, n_now,
        n_both;        /* tensors of the last step, of this step, of both */
    uint64_t step, at; /* at: position of its last answer */
};

struct cycle {
    uint32_t n_slots, n_early;
    struct mark *marks; /* [n_slots] */
    struct lane *lanes;
    size_t n_lanes, lanes_cap;
    uint64_t epoch, at;
    uint32_t *slots; /* the plan that is returned */
    uint64_t *keys;
};

int cycle_new(uint32_t n_slots, struct cycle **ret)
{
    struct cycle *c = mem_zalloc(sizeof(*c));
    uint32_t max = n_slots < CYCLE_MAX ? n_slots : CYCLE_MAX;

    if (!c)
        return -ENOMEM;
    c->n_slots = n_slots;
    c->epoch = 1;
    c->marks = mem_calloc(n_slots + 1u, sizeof(*c->marks));
    c->slots = mem_calloc(max + 1u, sizeof(*c->slots));
    c->keys = mem_calloc(2 * (max + 1u), sizeof(*c->keys));
    if (!c->marks || !c->slots || !c->keys) {
        cycle_free(c);
        return -ENOMEM;
    }
    *ret = c;
    return 0;
}

void cycle_free(struct cycle *c)
{
    if (!c)
        return;
    mem_free(c->marks);
    mem_free(c->lanes);
    mem_free(c->slots);
    mem_free(c->keys);
    mem_free(c);
}

void cycle_reset(struct cycle *c)
{
    c->n_lanes = 0;
    c->epoch++;
}

void cycle_left(struct cycle *c, uint32_t n_steps)
{
    c->n_early = n_steps < CYCLE_FEW_STEPS ? c->n_early + 1 : 0;
}

uint32_t cycle_needs(const struct cycle *c)
{
    uint32_t need = CYCLE_SAME_STEPS;

    for (uint32_t i = 1; i < c->n_early && need < CYCLE_SAME_MAX; i++)
        need *= 2;
    return need;
}

static const struct lane *cycle_find_lane(const struct cycle *c, uint32_t set)
{
    for (size_t i = 0; i < c->n_lanes; i++)
        if (c->lanes[i].set == set)
            return &c->lanes[i];
    return NULL;
}

/* Within an epoch a slot always means the same tensor. */
static struct lane *cycle_get_lane(struct cycle *c, uint32_t set, uint32_t slot)
{
    const struct lane *l;
    void *v = c->lanes;

    if (c->marks[slot].epoch == c->epoch)
        return &c->lanes[c->marks[slot].lane];
    l = cycle_find_lane(c, set);
    if (l)
        return &c->lanes[l - c->lanes];
    if (mem_grow(&v, c->n_lanes, &c->lanes_cap, sizeof(*c->lanes), SETS_MAX) < 0)
        return NULL;
    c->lanes = v;
    c->lanes[c->n_lanes] = (struct lane){.set = set, .step = 2};
    return &c->lanes[c->n_lanes++];
}

bool cycle_has(const struct cycle *c, uint32_t slot)
{
    const struct mark *m = slot < c->n_slots ? &c->marks[slot] : NULL;

    return m && m->epoch == c->epoch && m->step == c->lanes[m->lane].step;
}

bool cycle_is_new(const struct cycle *c, uint32_t set)
{
    return !cycle_find_lane(c, set);
}

/* Ends the step. Does it equal the one before it? */
static void lane_end_step(struct lane *l)
{
    bool is_equal = l->n_now == l->n_last && l->n_both == l->n_now;

    l->n_same = is_equal ? l->n_same + 1 : 0;
    l->n_last = l->n_now;
    l->n_now = l->n_both = 0;
    l->step++;
}

static bool lane_is_steady(const struct cycle *c, const struct lane *l)
{
    return l->n_same >= cycle_needs(c) && l->n_both == l->n_now;
}

static bool lane_is_idle(const struct cycle *c, const struct lane *l, uint64_t all)
{
    return c->at - l->at > IDLE_STEPS * all;
}

static int key_compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Collects the last whole steps of the sets that are not idle. 0: more than a plan
 * holds. */
static uint32_t cycle_collect_plan(struct cycle *c, uint64_t all)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n_slots; i++) {
        const struct mark *m = &c->marks[i];
        const struct lane *l;

        if (m->epoch != c->epoch)
            continue;
        l = &c->lanes[m->lane];
        if (m->step + 1 < l->step || lane_is_idle(c, l, all))
            continue;
        if (n == CYCLE_MAX)
            return 0;
        c->keys[2 * n] = m->step == l->step ? m->at_before : m->at;
        c->keys[2 * n + 1] = i;
        n++;
    }
    qsort(c->keys, n, 2 * sizeof(*c->keys), key_compare);
    for (uint32_t i = 0; i < n; i++)
        c->slots[i] = (uint32_t)c->keys[2 * i + 1];
    return n;
}

/* A step begins: returns the number of tensors of a plan if all sets are steady, else
 * 0. */
static uint32_t cycle_find_plan(struct cycle *c)
{
    uint64_t all = 0;

    for (size_t i = 0; i < c->n_lanes; i++)
        all += c->lanes[i].n_last;
    for (size_t i = 0; i < c->n_lanes; i++)
        if (!lane_is_steady(c, &c->lanes[i]) && !lane_is_idle(c, &c->lanes[i], all))
            return 0;
    return cycle_collect_plan(c, all);
}

bool cycle_answer(struct cycle *c,
                  uint32_t set,
                  uint32_t slot,
                  const uint32_t **ret_slots,
                  uint32_t *ret_n)
{
    struct lane *l = slot < c->n_slots ? cycle_get_lane(c, set, slot) : NULL;
    struct mark *m;
    bool is_again;

    if (!l) {
        if (slot < c->n_slots)
            cycle_reset(c); /* out of memory: continue without a plan */
        return false;
    }
    m = &c->marks[slot];
    if (cycle_has(c, slot)) {
        lane_end_step(l);
        *ret_n = lane_is_steady(c, l) ? cycle_find_plan(c) : 0;
        *ret_slots = c->slots;
        if (*ret_n > 0)
            return true;
    }
    is_again = m->epoch == c->epoch && m->step + 1 == l->step;
    l->n_now++;
    l->n_both += is_again;
    l->at = ++c->at;
    *m = (struct mark){.epoch = c->epoch,
                       .step = l->step,
                       .at = l->at,
                       .at_before = is_again ? m->at : 0,
                       .lane = (uint32_t)(l - c->lanes)};
    return false;
}
