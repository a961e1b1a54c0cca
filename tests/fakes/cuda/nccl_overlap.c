/* SPDX-License-Identifier: Apache-2.0 */
/* What the calls of a group read and write. Real NCCL runs the calls of one group
 * together, on different channels and in no order. So a call that writes what another
 * call of the group reads or writes is a race, which ends the test here. One call alone
 * may be in place, in the ways that NCCL's guide allows. */
#include <stdlib.h>

#include "tests/fakes/cuda/nccl_fake.h"

struct range {
    uintptr_t at, end;
    size_t op;
    bool is_write;
};

void fake_op_bytes(const struct nccl_comm_s *c,
                   const struct fake_op *op,
                   size_t *ret_in,
                   size_t *ret_out)
{
    const size_t bytes = op->sign.count * fake_dtype_bytes(op->sign.dtype);
    const bool is_root = op->sign.root == (uint32_t)c->rank;

    *ret_in = op->in ? bytes : 0;
    *ret_out = op->out ? bytes : 0;
    if (op->sign.coll == FAKE_REDUCE_SCATTER)
        *ret_in *= (size_t)c->n;
    if (op->sign.coll == FAKE_ALL_GATHER)
        *ret_out *= (size_t)c->n;
    if (op->sign.coll == FAKE_BROADCAST && !is_root)
        *ret_in = 0;
    if (op->sign.coll == FAKE_REDUCE && !is_root)
        *ret_out = 0;
}

static int range_compare(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

static bool ranges_overlap(const struct range *a, const struct range *b)
{
    return a->at < b->end && b->at < a->end;
}

/* Where the input of a call in place is, from its output. */
static bool is_in_place(const struct nccl_comm_s *c, const struct fake_op *op)
{
    const size_t own =
        (size_t)c->rank * op->sign.count * fake_dtype_bytes(op->sign.dtype);
    const char *in = op->in, *out = op->out;

    if (op->sign.coll == FAKE_ALL_GATHER)
        return in == out + own;
    if (op->sign.coll == FAKE_REDUCE_SCATTER)
        return out == in + own;
    return in == out;
}

/* Adds the ranges of call i to v; how many. */
static size_t ranges_add(const struct fake_kernel *k, size_t i, struct range *v)
{
    const struct fake_op *op = &k->ops[i];
    const uintptr_t in = (uintptr_t)op->in, out = (uintptr_t)op->out;
    size_t n_in, n_out, n = 0;
    char what[128];

    fake_op_bytes(k->c, op, &n_in, &n_out);
    if (n_in)
        v[n++] = (struct range){in, in + n_in, i, false};
    if (n_out)
        v[n++] = (struct range){out, out + n_out, i, true};
    if (n == 2 && ranges_overlap(&v[0], &v[1]) && !is_in_place(k->c, op)) {
        fake_sign_text(&op->sign, what, sizeof(what));
        fake_die("%s: its output overlaps its input, and it is not in place", what);
    }
    return n;
}

void fake_check_overlap(const struct fake_kernel *k)
{
    struct range *v = fake_zalloc((2 * k->n + 1) * sizeof(*v));
    char one[128], other[128];
    size_t n = 0;

    for (size_t i = 0; i < k->n; i++)
        n += ranges_add(k, i, v + n);
    qsort(v, n, sizeof(*v), range_compare);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n && v[j].at < v[i].end; j++) {
            const struct range *w = v[i].is_write ? &v[i] : &v[j];
            const struct range *r = w == &v[i] ? &v[j] : &v[i];

            if (!w->is_write || w->op == r->op)
                continue;
            fake_sign_text(&k->ops[w->op].sign, one, sizeof(one));
            fake_sign_text(&k->ops[r->op].sign, other, sizeof(other));
            fake_die("a group overlaps: member %d's %s writes what its %s %s",
                     k->c->rank, one, other, r->is_write ? "writes" : "reads");
        }
    free(v);
}
