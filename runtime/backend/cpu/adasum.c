/* SPDX-License-Identifier: Apache-2.0 */
/* Adasum allreduce (and reduce) by recursive vector halving (Maleki et al.).
 *
 * The members' vectors are combined in a binary tree in member order: (0,1), (2,3),
 * ..., then the results of those pairs, and so on. Two vectors a and b become
 *
 *   (1 - ab / 2aa) a + (1 - ab / 2bb) b        (adasum_math.h)
 *
 * tensor by tensor, dot products in double. At the level of distance d members m and m
 * ^ d share the elements of one pair of vectors: each sends the half that the other
 * keeps, computes its part of the dot products, receives the parts of all 2d members
 * that hold this pair, and combines its half. In the end each member has one part of
 * the result, and an allgather distributes it.
 *
 * Any number of members: with p the greatest power of two in it, member p + i is first
 * combined with member i; then the tree covers the first p. (Horovod refuses such
 * worlds; one that has lost a member should continue.)
 *
 * Each tensor is halved separately, and dot products are summed in member order, so
 * that the result does not depend on what was fused with it. Each level rounds to the
 * tensor's type. Data is exchanged by the collectives beneath (alltoall, allgather), so
 * the result is the same on every topology, bit for bit.
 *
 * Memory: half of the batch, and a few numbers per tensor and member; in a reduce, a
 * member other than root needs the batch once more, in place of its outputs. Called by
 * coll.c. */
#include <errno.h>
#include <string.h>

#include "runtime/backend/cpu/adasum_math.h"
#include "runtime/backend/cpu/coll.h"
#include "runtime/base/mem.h"

#define IDLE UINT32_MAX /* instead of a partner */

struct adasum_span { /* of a tensor's elements: what we hold at this level */
    uint64_t lo, hi;
};

struct adasum {
    struct cpu *c;
    const struct batch *b;
    size_t n, elem_bytes;
    uint8_t **out;            /* [n] where tensors are combined */
    uint8_t *spare;           /* behind out, where there are no outputs */
    struct adasum_span *held; /* [n] */
    uint8_t *theirs; /* [sum of halves] what the partner sent, tensor by tensor */
    struct batch_item *items;        /* [n] of the alltoalls */
    uint64_t *counts;                /* [n][2][size] theirs: to us, from us */
    struct adasum_dots *ours, *dots; /* [n], [size][n] */
    uint64_t *dot_counts;            /* [size] */
};

static uint32_t adasum_tree_size(uint32_t n)
{
    uint32_t p = 1;
    while (p <= n / 2)
        p *= 2;
    return p;
}

static uint64_t span_length(struct adasum_span s)
{
    return s.hi - s.lo;
}

/* The half that we keep, or that the partner does. */
static struct adasum_span half_of(struct adasum_span s, bool is_low)
{
    uint64_t mid = s.lo + span_length(s) / 2;
    return is_low ? (struct adasum_span){s.lo, mid} : (struct adasum_span){mid, s.hi};
}

static uint8_t *adasum_element_at(const struct adasum *a, size_t i, uint64_t at)
{
    return a->out[i] ? a->out[i] + at * a->elem_bytes : NULL;
}

/* Sends the elements of `give` to partner and receives those of `get`, into their place
 * in the tensors or, one tensor after the other, into `to`. All members call it; IDLE
 * ones move nothing. */
static int adasum_swap_spans(struct adasum *a,
                             uint32_t partner,
                             const struct adasum_span *give,
                             const struct adasum_span *get,
                             uint8_t *to,
                             struct err *err)
{
    size_t size = a->c->env.size;
    struct batch move = {.coll = COLL_ALLTOALL,
                         .dtype = a->b->dtype,
                         .items = a->items,
                         .n_items = a->n};
    memset(a->counts, 0, a->n * 2 * size * sizeof(*a->counts));
    for (size_t i = 0; i < a->n; i++) {
        uint64_t *from = a->counts + i * 2 * size, *towards = from + size;
        a->items[i] = (struct batch_item){.counts = from, .send_counts = towards};
        if (partner == IDLE)
            continue;
        from[partner] = span_length(get[i]);
        towards[partner] = span_length(give[i]);
        a->items[i].in = adasum_element_at(a, i, give[i].lo);
        a->items[i].out = to != NULL ? to : adasum_element_at(a, i, get[i].lo);
        if (to)
            to += span_length(get[i]) * a->elem_bytes;
    }
    return coll_alltoall(a->c, &move, err);
}

static int share_dots(struct adasum *a, struct err *err)
{
    size_t per_dots = sizeof(struct adasum_dots) / sizeof(double);
    struct batch_item item = {.in = a->ours,
                              .out = a->dots,
                              .count = a->n * per_dots,
                              .counts = a->dot_counts};
    struct batch all = {
        .coll = COLL_ALLGATHER, .dtype = DT_F64, .items = &item, .n_items = 1};
    for (uint32_t r = 0; r < a->c->env.size; r++)
        a->dot_counts[r] = a->n * per_dots;
    return coll_allgather(a->c, &all, err);
}

/* Combines our span with the received one; the pair's dot products are spread over the
 * n members first, first + step, ... */
static void adasum_combine_span(
    struct adasum *a, bool is_low, uint32_t first, uint32_t step, uint32_t n)
{
    const uint8_t *theirs = a->theirs;
    for (size_t i = 0; i < a->n; i++) {
        struct adasum_dots d = {0, 0, 0};
        double wa, wb;
        for (uint32_t k = 0; k < n; k++) {
            const struct adasum_dots *p = &a->dots[(first + k * step) * a->n + i];
            d.ab += p->ab;
            d.aa += p->aa;
            d.bb += p->bb;
        }
        adasum_weights(&d, &wa, &wb);
        uint8_t *mine = adasum_element_at(a, i, a->held[i].lo);
        uint64_t len = span_length(a->held[i]);
        if (len > 0)
            adasum_combine(a->b->dtype, mine, is_low ? mine : theirs,
                           is_low ? theirs : mine, wa, wb, len);
        theirs += len * a->elem_bytes;
    }
}

/* One level. is_low: we hold a, the first of the pair; else b. */
static int adasum_run_level(struct adasum *a,
                            uint32_t partner,
                            bool is_low,
                            uint32_t first,
                            uint32_t step,
                            uint32_t n,
                            struct err *err)
{
    AUTOFREE struct adasum_span *give = mem_calloc(a->n + 1, sizeof(*give));
    if (!give)
        return err_set(err, -ENOMEM, "Adasum: no memory for %zu tensors", a->n);
    for (size_t i = 0; i < a->n && partner != IDLE; i++) {
        give[i] = half_of(a->held[i], !is_low);
        a->held[i] = half_of(a->held[i], is_low);
    }
    int rc = adasum_swap_spans(a, partner, give, a->held, a->theirs, err);
    if (rc < 0)
        return rc;
    const uint8_t *theirs = a->theirs;
    memset(a->ours, 0, a->n * sizeof(*a->ours));
    for (size_t i = 0; i < a->n && partner != IDLE; i++) {
        const uint8_t *mine = adasum_element_at(a, i, a->held[i].lo);
        uint64_t len = span_length(a->held[i]);
        if (len > 0)
            a->ours[i] = adasum_dots(a->b->dtype, is_low ? mine : theirs,
                                     is_low ? theirs : mine, len);
        theirs += len * a->elem_bytes;
    }
    rc = share_dots(a, err);
    if (rc == 0 && partner != IDLE)
        adasum_combine_span(a, is_low, first, step, n);
    return rc;
}

/* Members beyond the tree are combined with those at its beginning and leave it. */
static int adasum_fold_extra(struct adasum *a, uint32_t p, struct err *err)
{
    uint32_t me = a->c->env.rank, size = a->c->env.size;
    bool is_low = me < p;
    uint32_t partner = me >= p ? me - p : me + p < size ? me + p : IDLE;
    AUTOFREE struct adasum_span *other = mem_calloc(a->n + 1, sizeof(*other));
    if (!other)
        return err_set(err, -ENOMEM, "Adasum: no memory for %zu tensors", a->n);
    int rc = adasum_run_level(a, partner, is_low, is_low ? me : partner, p, 2, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < a->n && partner != IDLE; i++) {
        struct adasum_span all = {0, a->b->items[i].count};
        other[i] = half_of(all, !is_low);
    }
    /* a member that leaves sends all, one that stays receives all */
    AUTOFREE struct adasum_span *none = mem_calloc(a->n + 1, sizeof(*none));
    if (!none)
        return err_set(err, -ENOMEM, "Adasum: no memory for %zu tensors", a->n);
    rc = adasum_swap_spans(a, partner, is_low ? none : a->held, is_low ? other : none,
                           NULL, err);
    for (size_t i = 0; i < a->n; i++)
        a->held[i] = is_low ? (struct adasum_span){0, a->b->items[i].count}
                            : (struct adasum_span){0, 0};
    return rc;
}

/* The elements that member r holds of a tensor of n elements after all levels. */
static struct adasum_span adasum_part_of(uint32_t r, uint32_t p, uint64_t n)
{
    struct adasum_span s = {0, r < p ? n : 0};
    for (uint32_t d = 1; d < p && r < p; d *= 2)
        s = half_of(s, (r & d) == 0);
    return s;
}

static int adasum_distribute(struct adasum *a, uint32_t p, struct err *err)
{
    struct cpu *c = a->c;
    int rc = coll_room(c, a->n * c->env.size, err);
    if (rc < 0)
        return rc;
    for (uint32_t r = 0; r < c->env.size; r++)
        for (size_t i = 0; i < a->n; i++) {
            struct adasum_span s = adasum_part_of(r, p, a->b->items[i].count);
            uint8_t *at = adasum_element_at(a, i, s.lo);
            c->pieces[coll_place(c, r) * a->n + i] = (struct piece){
                .in = at, .out = at, .n = span_length(s) * a->elem_bytes};
        }
    return coll_allgather_rows(c, a->n, err);
}

static int adasum_run(struct adasum *a, struct err *err)
{
    uint32_t me = a->c->env.rank, size = a->c->env.size, p = adasum_tree_size(size);
    bool is_in = me < p;
    int rc = p < size ? adasum_fold_extra(a, p, err) : 0;
    for (uint32_t d = 1; d < p && rc == 0; d *= 2)
        rc = adasum_run_level(a, is_in ? me ^ d : IDLE, (me & d) == 0,
                              me & ~(2 * d - 1), 1, 2 * d, err);
    return rc;
}

/* factor * what we hold, in place. */
static void adasum_scale_result(const struct adasum *a, double factor)
{
    const struct reduce_kernel *k = kernel_for(OP_SUM, a->b->dtype, a->c->is_wide);
    struct finish f = {factor, 1};
    for (size_t i = 0; i < a->n && factor != 1.0; i++) {
        void *p = adasum_element_at(a, i, a->held[i].lo);
        const void *src = p;
        if (span_length(a->held[i]) > 0)
            k->fold(p, NULL, &src, 1, span_length(a->held[i]), &f);
    }
}

static int adasum_prepare(struct adasum *a, struct err *err)
{
    size_t size = a->c->env.size;
    uint64_t halves = 0;
    for (size_t i = 0; i < a->n; i++)
        halves += (a->b->items[i].count + 1) / 2 * a->elem_bytes;
    a->held = mem_calloc(a->n + 1, sizeof(*a->held));
    a->theirs = coll_scratch(halves, "Adasum", err);
    a->items = mem_calloc(a->n + 1, sizeof(*a->items));
    a->counts = mem_calloc(a->n + 1, 2 * size * sizeof(*a->counts));
    a->ours = mem_calloc(a->n + 1, sizeof(*a->ours));
    a->dots = mem_calloc(a->n + 1, size * sizeof(*a->dots));
    a->dot_counts = mem_calloc(size, sizeof(*a->dot_counts));
    if (!a->held || !a->theirs || !a->items || !a->counts || !a->ours || !a->dots
        || !a->dot_counts)
        return err_set(err, -ENOMEM, "Adasum: no memory for %zu tensors of %zu ranks",
                       a->n, size);
    for (size_t i = 0; i < a->n; i++) {
        const struct batch_item *it = &a->b->items[i];
        a->held[i] = (struct adasum_span){0, it->count};
        if (a->out[i] != it->in && it->count > 0)
            memcpy(a->out[i], it->in, it->count * a->elem_bytes);
    }
    return 0;
}

static int adasum_find_outputs(struct adasum *a, struct err *err)
{
    uint64_t sum = 0;
    bool has_out = a->b->coll == COLL_ALLREDUCE || a->b->root == a->c->env.rank;
    a->out = mem_calloc(a->n + 1, sizeof(*a->out));
    if (!a->out)
        return err_set(err, -ENOMEM, "Adasum: no memory for %zu tensors", a->n);
    for (size_t i = 0; i < a->n; i++) {
        a->out[i] = has_out ? a->b->items[i].out : NULL;
        sum += a->b->items[i].count * a->elem_bytes;
    }
    if (has_out)
        return 0;
    uint8_t *p = a->spare = coll_scratch(sum, "Adasum", err);
    if (!p)
        return -ENOMEM;
    for (size_t i = 0; i < a->n; p += a->b->items[i++].count * a->elem_bytes)
        a->out[i] = p;
    return 0;
}

int coll_adasum(struct cpu *c, const struct batch *b, struct err *err)
{
    struct adasum a = {
        .c = c, .b = b, .n = b->n_items, .elem_bytes = dtype_size(b->dtype)};
    if (!reduction_supported(OP_ADASUM, b->dtype))
        return err_set(err, -EINVAL, "batch: ADASUM of %s is not supported",
                       dtype_name(b->dtype));
    uint32_t p = adasum_tree_size(c->env.size);
    int rc = adasum_find_outputs(&a, err);
    if (rc == 0)
        rc = adasum_prepare(&a, err);
    if (rc == 0) {
        adasum_scale_result(&a, b->prescale);
        rc = adasum_run(&a, err);
    }
    if (rc == 0) {
        adasum_scale_result(&a, b->postscale);
        rc = adasum_distribute(&a, p, err);
    }
    mem_free(a.out);
    mem_free(a.spare);
    mem_free(a.held);
    mem_free(a.theirs);
    mem_free(a.items);
    mem_free(a.counts);
    mem_free(a.ours);
    mem_free(a.dots);
    mem_free(a.dot_counts);
    return rc;
}
