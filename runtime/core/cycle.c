/* SPDX-License-Identifier: Apache-2.0 */
/* Detects steady training loops.
 *
 * A step ends where a tensor arrives that the step has had already. Two steps are equal
 * when they contain the same tensors, in any order: ranks need not agree on an order,
 * and a plan does not need one. Called by negotiate.c. */
#include "runtime/core/cycle.h"

#include <errno.h>

#include "runtime/base/mem.h"

struct cycle {
    uint32_t n_slots, n_early, n_same;
    uint32_t *last, *now; /* the first tensors, CYCLE_MAX at most, of the last step and
                           * of this one, in order */
    uint32_t n_last, n_now, n_both; /* n_both: of this step that the last one had too */
    uint64_t step;
    uint64_t *step_of; /* [n_slots] the last step that contained it; 0: none */
};

int cycle_new(uint32_t n_slots, struct cycle **ret)
{
    struct cycle *c = mem_zalloc(sizeof(*c));
    uint32_t max = n_slots < CYCLE_MAX ? n_slots : CYCLE_MAX;

    if (!c)
        return -ENOMEM;
    c->n_slots = n_slots;
    c->step = 2; /* nothing was in the step before */
    c->last = mem_calloc(max + 1u, sizeof(*c->last));
    c->now = mem_calloc(max + 1u, sizeof(*c->now));
    c->step_of = mem_calloc(n_slots + 1u, sizeof(*c->step_of));
    if (!c->last || !c->now || !c->step_of) {
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
    mem_free(c->last);
    mem_free(c->now);
    mem_free(c->step_of);
    mem_free(c);
}

void cycle_reset(struct cycle *c)
{
    c->n_last = c->n_now = c->n_both = c->n_same = 0;
    c->step += 2; /* nothing counts as part of this step or the last one */
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

bool cycle_has(const struct cycle *c, uint32_t slot)
{
    return slot < c->n_slots && c->step_of[slot] == c->step;
}

bool cycle_is_new(const struct cycle *c)
{
    return c->n_now == 0 && c->n_last == 0;
}

/* Ends the step. Does it equal the one before it? */
static void cycle_end_step(struct cycle *c)
{
    bool is_equal =
        c->n_now <= CYCLE_MAX && c->n_now == c->n_last && c->n_both == c->n_now;
    uint32_t *v = c->last;

    c->n_same = is_equal ? c->n_same + 1 : 0;
    c->last = c->now;
    c->n_last = c->n_now;
    c->now = v;
    c->n_now = c->n_both = 0;
    c->step++;
}

bool cycle_answer(struct cycle *c,
                  uint32_t slot,
                  const uint32_t **ret_slots,
                  uint32_t *ret_n)
{
    if (slot >= c->n_slots)
        return false;
    if (cycle_has(c, slot)) {
        cycle_end_step(c);
        if (c->n_same >= cycle_needs(c)) {
            *ret_slots = c->last;
            *ret_n = c->n_last;
            return true;
        }
    }
    if (c->n_now < CYCLE_MAX)
        c->now[c->n_now] = slot;
    c->n_now++;
    c->n_both += c->step_of[slot] + 1 == c->step;
    c->step_of[slot] = c->step;
    return false;
}
