/* SPDX-License-Identifier: Apache-2.0 */
/* A step ends where a tensor comes that the step has had already. Two steps are equal
 * when they have the same set of tensors, whatever the order: ranks need not agree on
 * an order, and a plan does not need one. Called by negotiate.c. */
#include "runtime/core/cycle.h"

#include <errno.h>

#include "runtime/base/mem.h"

struct cycle {
    uint32_t n_slots;
    uint32_t *last, *now; /* tensors of the step before and of this one, in order */
    uint32_t n_last, n_now, n_same;
    uint64_t step;
    uint64_t *step_of; /* [n_slots] the last step that had it; 0: none */
    bool is_too_long;
};

int cycle_new(uint32_t n_slots, struct cycle **ret)
{
    struct cycle *c = mem_zalloc(sizeof(*c));
    uint32_t max = n_slots < CYCLE_MAX ? n_slots : CYCLE_MAX;

    if (!c)
        return -ENOMEM;
    c->n_slots = n_slots;
    c->step = 1;
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
    c->n_last = c->n_now = c->n_same = 0;
    c->is_too_long = false;
    c->step += 2; /* nothing counts as seen in this step or the one before */
}

/* The step that ends now: does it equal the one before it? */
static void end_step(struct cycle *c, bool is_equal)
{
    uint32_t *v = c->last;

    c->n_same = is_equal && !c->is_too_long ? c->n_same + 1 : 0;
    c->last = c->now;
    c->n_last = c->n_now;
    c->now = v;
    c->n_now = 0;
    c->is_too_long = false;
    c->step++;
}

/* Were all tensors of this step also those of the step before? step_of has been
 * overwritten by this step, so compare by marking: the last step's tensors must all
 * carry this step's number, and be as many. */
static bool equals_last(const struct cycle *c)
{
    if (c->n_now != c->n_last || c->n_now == 0)
        return false;
    for (uint32_t i = 0; i < c->n_last; i++)
        if (c->step_of[c->last[i]] != c->step)
            return false;
    return true;
}

bool cycle_has(const struct cycle *c, uint32_t slot)
{
    return slot < c->n_slots && c->step_of[slot] == c->step;
}

bool cycle_is_new(const struct cycle *c)
{
    return c->n_now == 0 && c->n_last == 0;
}

bool cycle_answer(struct cycle *c,
                  uint32_t slot,
                  const uint32_t **ret_slots,
                  uint32_t *ret_n)
{
    bool is_steady = false;

    if (slot >= c->n_slots)
        return false;
    if (cycle_has(c, slot)) {
        end_step(c, equals_last(c));
        is_steady = c->n_same >= CYCLE_SAME_STEPS;
    }
    if (is_steady) {
        *ret_slots = c->last;
        *ret_n = c->n_last;
        return true;
    }
    if (c->n_now >= CYCLE_MAX || c->n_now >= c->n_slots)
        c->is_too_long = true;
    else
        c->now[c->n_now++] = slot;
    c->step_of[slot] = c->step;
    return false;
}
