/* SPDX-License-Identifier: Apache-2.0 */
/* A table of slots, linked by index in order of use, and a hash of the names of their
 * tensors.
 *
 * I1  slot.since is the number of the message that assigned the slot to `now`. A bit
 *     sent by a rank that has seen fewer messages means `before`.
 *
 * I2  `before` is freed only when all ranks have seen `since`. A slot whose `before` is
 *     still needed is not reassigned; the tensor is then answered without a slot.
 *
 * I3  Each rank's dimension 0 (allgather, gather, alltoall) is stored with the common
 *     request. It is the one that the rank submitted last: a rank cannot send the bit
 *     again before it has received the answer.
 *
 * Called by negotiate.c. */
#include "runtime/core/slots.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/nametab.h"

struct slot_entry {
    struct nametab_node node; /* first; name: req.name */
    uint32_t slot;
    struct tensor_request req;
    uint64_t dim0[]; /* [n_ranks], only if ranks may differ in it */
};

struct slot {
    struct slot_entry *now, *before;
    uint64_t since;
    uint32_t newer, older; /* in order of use; SLOT_NONE at the ends */
};

struct slots {
    uint32_t capacity, n_ranks, n_used;
    uint32_t newest, oldest;
    struct slot *v; /* [capacity] */
    struct nametab names;
    struct tensor_request scratch;
};

int slots_new(uint32_t capacity, uint32_t n_ranks, struct slots **ret)
{
    struct slots *s = mem_zalloc(sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->capacity = capacity < SLOTS_MAX ? capacity : SLOTS_MAX;
    s->n_ranks = n_ranks;
    s->newest = s->oldest = SLOT_NONE;
    s->v = mem_calloc(s->capacity + 1, sizeof(*s->v));
    if (!s->v) {
        mem_free(s);
        return -ENOMEM;
    }
    *ret = s;
    return 0;
}

void slots_free(struct slots *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n_used; i++) {
        mem_free(s->v[i].now);
        mem_free(s->v[i].before);
    }
    nametab_release(&s->names);
    mem_free(s->v);
    mem_free(s);
}

static void slots_unlink(struct slots *s, uint32_t i)
{
    struct slot *p = &s->v[i];

    if (p->newer == SLOT_NONE)
        s->newest = p->older;
    else
        s->v[p->newer].older = p->older;
    if (p->older == SLOT_NONE)
        s->oldest = p->newer;
    else
        s->v[p->older].newer = p->newer;
}

static void slots_make_newest(struct slots *s, uint32_t i)
{
    struct slot *p = &s->v[i];

    p->newer = SLOT_NONE;
    p->older = s->newest;
    if (s->newest == SLOT_NONE)
        s->oldest = i;
    else
        s->v[s->newest].newer = i;
    s->newest = i;
}

static bool
slots_all_have_seen(const struct slots *s, const uint64_t *seen, uint64_t msg)
{
    for (uint32_t r = 0; r < s->n_ranks; r++)
        if (seen[r] < msg)
            return false;
    return true;
}

/* May the slot be reassigned? */
static bool slot_is_settled(const struct slots *s, uint32_t i, const uint64_t *seen)
{
    return !s->v[i].before || slots_all_have_seen(s, seen, s->v[i].since);
}

const struct tensor_request *
slots_resolve(struct slots *s, uint32_t slot, uint32_t rank, uint64_t n_seen)
{
    const struct slot_entry *t;

    if (slot >= s->n_used || rank >= s->n_ranks)
        return NULL;
    t = n_seen < s->v[slot].since ? s->v[slot].before : s->v[slot].now;
    if (!t)
        return NULL;
    if (!request_has_rows(&t->req))
        return &t->req;
    s->scratch = t->req;
    s->scratch.shape[0] = (int64_t)t->dim0[rank];
    return &s->scratch;
}

static struct slot_entry *slot_entry_new(const struct slots *s,
                                         const struct tensor_request *req,
                                         const uint64_t *dim0)
{
    size_t extra = request_has_rows(req) ? s->n_ranks * sizeof(uint64_t) : 0;
    struct slot_entry *t = mem_zalloc(sizeof(*t) + extra);

    if (!t)
        return NULL;
    t->req = *req;
    t->req.no_gpu[0] = 0; /* the sender's, not that of all ranks that send the bit */
    t->node.name = t->req.name;
    t->node.set = req->process_set;
    if (extra > 0 && dim0)
        memcpy(t->dim0, dim0, extra);
    return t;
}

/* Assigns slot i, which is settled, to t. */
static bool
slots_set_entry(struct slots *s, uint32_t i, struct slot_entry *t, uint64_t msg)
{
    struct slot *p = &s->v[i];

    if (p->now)
        nametab_remove(&s->names, &p->now->node);
    if (nametab_add(&s->names, &t->node) < 0) {
        if (p->now)
            (void)nametab_add(&s->names, &p->now->node); /* there is room for it */
        return false;
    }
    mem_free(p->before);
    p->before = p->now;
    p->now = t;
    t->slot = i;
    p->since = msg;
    return true;
}

static uint32_t slots_pick(struct slots *s, const uint64_t *seen)
{
    if (s->n_used < s->capacity) {
        slots_make_newest(s, s->n_used);
        return s->n_used++;
    }
    if (s->oldest == SLOT_NONE || !slot_is_settled(s, s->oldest, seen))
        return SLOT_NONE;
    return s->oldest;
}

static bool slot_entry_matches(const struct slot_entry *t,
                               const struct tensor_request *req)
{
    struct tensor_request q = *req;

    if (request_has_rows(req) && t->req.ndim == q.ndim && q.ndim > 0)
        q.shape[0] = t->req.shape[0];
    return request_same(&t->req, &q);
}

uint32_t slots_assign(struct slots *s,
                      const struct tensor_request *req,
                      const uint64_t *dim0,
                      uint64_t msg,
                      const uint64_t *seen,
                      bool *ret_is_new)
{
    uint32_t i = slots_find(s, req->process_set, req->name);
    struct slot_entry *t;

    *ret_is_new = true;
    if (i != SLOT_NONE && slot_entry_matches(s->v[i].now, req)) {
        if (request_has_rows(req) && dim0)
            memcpy(s->v[i].now->dim0, dim0, s->n_ranks * sizeof(*dim0));
        *ret_is_new = false;
    } else {
        if (i == SLOT_NONE)
            i = slots_pick(s, seen);
        else if (!slot_is_settled(s, i, seen))
            return SLOT_NONE;
        t = i == SLOT_NONE ? NULL : slot_entry_new(s, req, dim0);
        if (!t)
            return SLOT_NONE;
        if (!slots_set_entry(s, i, t, msg)) {
            mem_free(t);
            return SLOT_NONE;
        }
    }
    slots_unlink(s, i);
    slots_make_newest(s, i);
    return i;
}

const struct tensor_request *slots_request(const struct slots *s, uint32_t slot)
{
    return slot < s->n_used && s->v[slot].now ? &s->v[slot].now->req : NULL;
}

uint32_t slots_find(const struct slots *s, uint32_t set, const char *name)
{
    struct nametab_node *node = nametab_find(&s->names, set, name);

    return node ? ((const struct slot_entry *)(const void *)node)->slot : SLOT_NONE;
}
