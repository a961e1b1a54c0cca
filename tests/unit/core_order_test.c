/* SPDX-License-Identifier: Apache-2.0 */
/* The promise everything rests on, for thousands of seeds: whatever the order in which
 * ranks submit and their messages arrive, every tensor is answered exactly once, in one
 * order for all, and batches never mix what must not be mixed. Ranks are arrays here;
 * the wire form is the real one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/mem.h"
#include "runtime/core/negotiate.h"

enum { SEEDS = 4000, MAX_RANKS = 6, MAX_TENSORS_A_RUN = 24 };

static uint64_t rng_state;

static uint32_t rnd(uint32_t n)
{
    rng_state ^= rng_state << 13; /* xorshift64 */
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 33) % n;
}

struct run {
    uint32_t n_ranks, n_tensors;
    uint64_t limit;
    struct request tensor[MAX_TENSORS_A_RUN];
    bool is_bad[MAX_TENSORS_A_RUN];
    uint32_t order[MAX_RANKS][MAX_TENSORS_A_RUN],
        at[MAX_RANKS]; /* each rank's own order */
    uint32_t answers[MAX_TENSORS_A_RUN];
};

static void make_run(struct run *r)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_I64};

    memset(r, 0, sizeof(*r));
    r->n_ranks = 1 + rnd(MAX_RANKS);
    r->n_tensors = 1 + rnd(MAX_TENSORS_A_RUN);
    r->limit = rnd(3) == 0 ? 0 : rnd(400);
    for (uint32_t t = 0; t < r->n_tensors; t++) {
        struct request *q = &r->tensor[t];

        q->coll = (enum collective)rnd(COLL_COUNT);
        q->dtype = types[rnd(3)];
        q->op = rnd(2) ? OP_SUM : OP_AVERAGE;
        q->prescale = q->postscale = 1;
        q->ndim = 1;
        q->shape[0] = rnd(30);
        (void)snprintf(q->name, sizeof(q->name), "t%u", t);
        r->is_bad[t] = r->n_ranks > 1 && q->coll != COLL_BARRIER && rnd(8) == 0;
    }
    for (uint32_t k = 0; k < r->n_ranks; k++) {
        for (uint32_t t = 0; t < r->n_tensors; t++) {
            uint32_t j = rnd(t + 1);

            r->order[k][t] = r->order[k][j];
            r->order[k][j] = t;
        }
    }
}

static void read_answers(struct run *r, const struct strbuf *b, uint32_t *n_answers)
{
    const struct request *first = NULL; /* of the batch */
    struct message_reader in;
    struct response a;
    uint64_t counts[MAX_RANKS], sum = 0, bytes;

    assert_int_equal(message_open(&in, b->p, b->n, NULL), 0);
    while (message_next_response(&in, counts, r->n_ranks, &a, NULL) == 1) {
        uint32_t t;

        assert_int_equal(sscanf(a.name, "t%u", &t), 1);
        assert_int_equal(r->answers[t]++, 0);
        (*n_answers)++;
        assert_int_equal(a.kind, r->is_bad[t] ? RESPONSE_FAIL : RESPONSE_RUN);
        assert_int_equal(request_size(&r->tensor[t], NULL, &bytes, NULL), 0);
        if (first) {
            assert_int_equal(first->coll, COLL_ALLREDUCE);
            assert_int_equal(r->tensor[t].coll, COLL_ALLREDUCE);
            assert_int_equal(first->dtype, r->tensor[t].dtype);
            assert_int_equal(first->op, r->tensor[t].op);
            assert_int_equal(a.kind, RESPONSE_RUN);
        }
        sum = first ? sum + bytes : bytes;
        if (first || a.fuse_next)
            assert_true(sum <= r->limit);
        first = a.fuse_next ? &r->tensor[t] : NULL;
    }
    assert_null(first); /* the last one is never "fused with the next" */
    assert_int_equal(in.in.at, in.in.n);
}

static void one_seed(void)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct negotiate *n;
    struct run r;
    uint32_t left, n_answers = 0;
    size_t k;

    make_run(&r);
    assert_int_equal(negotiate_new(r.n_ranks, &n), 0);
    left = r.n_ranks * r.n_tensors;
    while (left > 0) {
        uint32_t rank = rnd(r.n_ranks), t;
        struct request q;

        if (r.at[rank] == r.n_tensors)
            continue;
        t = r.order[rank][r.at[rank]++];
        q = r.tensor[t];
        if (r.is_bad[t] && rank == t % r.n_ranks)
            q.dtype = DT_F64;
        assert_int_equal(negotiate_add(n, rank, &q, 1, NULL), 0);
        left--;
        if (rnd(4) == 0 || left == 0) {
            strbuf_init(&b, MESSAGE_MAX_BYTES);
            assert_int_equal(negotiate_write(n, r.limit, &b, &k), 0);
            if (k > 0)
                read_answers(&r, &b, &n_answers);
            strbuf_release(&b);
        }
    }
    assert_int_equal(n_answers, r.n_tensors);
    assert_int_equal(negotiate_pending(n), 0);
    negotiate_free(n);
}

static void any_arrival_order_answers_each_tensor_once(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        rng_state = seed * 0x9e3779b97f4a7c15ull;
        one_seed();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_arrival_order_answers_each_tensor_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
