/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a group are offered when the last of them has been submitted. Every
 * rank offers whole groups, so the AND contains whole groups only. Called by
 * member.c. */
#include "runtime/core/plan.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/cycle.h"

struct frozen_plan {
    uint32_t n, n_words;
    uint64_t n_had;    /* tensors submitted so far */
    uint64_t *offered; /* [n_words] as in an agreement: bit 0 is the stay bit */
    uint32_t *group; /* [n] index of the group's first tensor; its own without group */
    uint32_t *here;  /* [n] by group: tensors submitted */
    uint32_t *size;  /* [n] by group: tensors in it */
};

void plan_free(struct frozen_plan *p)
{
    if (!p)
        return;
    mem_free(p->offered);
    mem_free(p->group);
    mem_free(p->here);
    mem_free(p->size);
    mem_free(p);
}

static void plan_find_groups(struct frozen_plan *p,
                             const struct tensor_request *const *reqs)
{
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t first = i;

        for (uint32_t j = 0; j < i && reqs[i]->group != 0; j++)
            if (reqs[j]->group == reqs[i]->group) {
                first = j;
                break;
            }
        p->group[i] = first;
        p->size[first]++;
    }
}

static void words_set_bit(uint64_t *words, uint32_t i)
{
    words[(i + 1) / 64] |= 1ull << ((i + 1) % 64);
}

int plan_new(const struct tensor_request *const *reqs,
             uint32_t n,
             struct frozen_plan **ret)
{
    struct frozen_plan *p;

    if (n == 0 || n > CYCLE_MAX)
        return -EINVAL;
    p = mem_zalloc(sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->n = n;
    p->n_words = (n + 1 + 63) / 64;
    p->offered = mem_calloc(p->n_words, sizeof(*p->offered));
    p->group = mem_calloc(n, sizeof(*p->group));
    p->here = mem_calloc(n, sizeof(*p->here));
    p->size = mem_calloc(n, sizeof(*p->size));
    if (!p->offered || !p->group || !p->here || !p->size) {
        plan_free(p);
        return -ENOMEM;
    }
    plan_find_groups(p, reqs);
    *ret = p;
    return 0;
}

uint32_t plan_words(const struct frozen_plan *p)
{
    return p->n_words;
}

void plan_have(struct frozen_plan *p, uint32_t i)
{
    uint32_t g = p->group[i];

    p->n_had++;
    if (++p->here[g] < p->size[g])
        return;
    if (p->size[g] == 1) {
        words_set_bit(p->offered, i);
        return;
    }
    for (uint32_t j = g; j < p->n; j++)
        if (p->group[j] == g)
            words_set_bit(p->offered, j);
}

bool plan_has_any(const struct frozen_plan *p)
{
    for (uint32_t w = 0; w < p->n_words; w++)
        if (p->offered[w] != 0)
            return true;
    return false;
}

bool plan_is_whole(const struct frozen_plan *p)
{
    return p->n_had % p->n == 0;
}

void plan_offer(const struct frozen_plan *p, bool stays, uint64_t *words)
{
    memcpy(words, p->offered, p->n_words * sizeof(*words));
    words[0] = (words[0] & ~1ull) | stays;
}

uint32_t plan_agreed(struct frozen_plan *p,
                     const uint64_t *words,
                     bool *ret_stays,
                     uint32_t *order)
{
    uint32_t n = 0;

    *ret_stays = words[0] & 1;
    if (!*ret_stays)
        return 0;
    for (uint32_t w = 0; w < p->n_words; w++) {
        uint64_t bits = words[w] & p->offered[w];

        p->offered[w] &= ~bits;
        for (; bits != 0; bits &= bits - 1) {
            uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(bits) - 1;

            p->here[p->group[i]]--;
            order[n++] = i;
        }
    }
    return n;
}
