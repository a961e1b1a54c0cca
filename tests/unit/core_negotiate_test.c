/* SPDX-License-Identifier: Apache-2.0 */
/* Negotiation: what is ready when, and what people read when ranks disagree. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/mem.h"
#include "runtime/core/negotiate.h"

static struct request req(enum collective coll, const char *name)
{
    struct request r = {
        .coll = coll, .dtype = DT_F32, .op = OP_SUM, .prescale = 1, .postscale = 1};

    r.ndim = 2;
    r.shape[0] = 2;
    r.shape[1] = 3;
    (void)snprintf(r.name, sizeof(r.name), "%s", name);
    return r;
}

struct answers {
    struct strbuf b;
    struct message_reader in;
    uint64_t counts[8];
    uint32_t n_ranks;
};

static size_t
take(struct negotiate *n, struct answers *a, uint32_t n_ranks, uint64_t limit)
{
    size_t k;

    strbuf_init(&a->b, MESSAGE_MAX_BYTES);
    a->n_ranks = n_ranks;
    assert_int_equal(negotiate_write(n, limit, &a->b, &k), 0);
    if (k > 0)
        assert_int_equal(message_open(&a->in, a->b.p, a->b.n, NULL), 0);
    return k;
}

static struct response next(struct answers *a)
{
    struct response r;

    assert_int_equal(message_next_response(&a->in, a->counts, a->n_ranks, &r, NULL), 1);
    return r;
}

static void ready_when_all_ranks_have_it(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a"), b = req(COLL_ALLREDUCE, "b");
    struct negotiate *n;
    struct answers got = {0};
    struct response r;

    (void)state;
    assert_int_equal(negotiate_new(3, &n), 0);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 2, &b, 1, NULL), 0);
    assert_int_equal(negotiate_ready(n), 1);
    assert_int_equal(negotiate_pending(n), 1);
    assert_int_equal(negotiate_add(n, 2, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3, 0), 2);
    r = next(&got);
    assert_string_equal(r.name, "b");
    assert_int_equal(r.kind, RESPONSE_RUN);
    assert_false(r.fuse_next);
    r = next(&got);
    assert_string_equal(r.name, "a");
    strbuf_release(&got.b);
    assert_int_equal(take(n, &got, 3, 0), 0); /* exactly once */
    assert_int_equal(got.b.n, 0);
    negotiate_free(n);
}

static void equal_names_may_come_again_after_the_response(void **state)
{
    struct request a = req(COLL_BARRIER, "a");
    struct answers got = {0};
    struct negotiate *n;

    (void)state;
    assert_int_equal(negotiate_new(2, &n), 0);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), 0);
        assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
        assert_int_equal(take(n, &got, 2, 0), 1);
        strbuf_release(&got.b);
    }
    negotiate_free(n);
}

static void a_rank_that_submits_twice_breaks_the_world(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a");
    struct err err = ERR_INIT;
    struct negotiate *n;

    (void)state;
    assert_int_equal(negotiate_new(2, &n), 0);
    assert_int_equal(negotiate_add(n, 1, &a, 1, &err), 0);
    assert_int_equal(negotiate_add(n, 1, &a, 1, &err), -EPROTO);
    assert_string_equal(err.text, "rank 1 submitted tensor \"a\" twice");
    assert_int_equal(negotiate_add(n, 2, &a, 1, &err), -EPROTO);
    negotiate_free(n);
}

static void allgather_tells_the_rows_of_every_rank(void **state)
{
    struct request a = req(COLL_ALLGATHER, "a"), b = a;
    struct answers got = {0};
    struct response r;
    struct negotiate *n;

    (void)state;
    b.shape[0] = 7;
    assert_int_equal(negotiate_new(2, &n), 0);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(take(n, &got, 2, 1000), 1);
    r = next(&got);
    assert_int_equal(r.n_counts, 2);
    assert_int_equal(r.counts[0], 2);
    assert_int_equal(r.counts[1], 7);
    strbuf_release(&got.b);
    negotiate_free(n);
}

/* --- sentences --- */

enum field { F_COLL, F_DTYPE, F_OP, F_PRE, F_DIM0, F_DIM1, F_NDIM, F_ROOT };

static void change(struct request *r, enum field f)
{
    switch (f) {
    case F_COLL:
        r->coll = COLL_BROADCAST;
        break;
    case F_DTYPE:
        r->dtype = DT_F64;
        break;
    case F_OP:
        r->op = OP_AVERAGE;
        break;
    case F_PRE:
        r->prescale = 0.5;
        break;
    case F_DIM0:
        r->shape[0] = 9;
        break;
    case F_DIM1:
        r->shape[1] = 9;
        break;
    case F_NDIM:
        r->ndim = 1;
        break;
    case F_ROOT:
        r->root = 1;
        break;
    }
}

static const struct {
    enum collective coll;
    enum field field;
    const char *text; /* NULL: no disagreement */
} golden[] = {
    {COLL_ALLREDUCE, F_COLL,
     "Mismatched operations: tensor \"grad/0\": rank 0 has ALLREDUCE, rank 2 has "
     "BROADCAST"},
    {COLL_ALLREDUCE, F_DTYPE,
     "Mismatched data types: tensor \"grad/0\": rank 0 has float32, rank 2 has "
     "float64"},
    {COLL_ALLREDUCE, F_OP,
     "Mismatched reduction operation: tensor \"grad/0\": rank 0 has SUM, rank 2 has "
     "AVERAGE"},
    {COLL_ALLREDUCE, F_PRE,
     "Mismatched prescale and/or postscale factors: tensor \"grad/0\": rank 0 has 1 "
     "and 1, rank 2 "
     "has 0.5 and 1"},
    {COLL_ALLREDUCE, F_DIM1,
     "Mismatched ALLREDUCE tensor shapes: tensor \"grad/0\": rank 0 has [2, 3], rank 2 "
     "has [2, 9] "
     "(dimension 1 differs)"},
    {COLL_ALLREDUCE, F_NDIM,
     "Mismatched ALLREDUCE tensor shapes: tensor \"grad/0\": rank 0 has [2, 3], rank 2 "
     "has [2] (2 "
     "and 1 dimensions)"},
    {COLL_ALLREDUCE, F_ROOT, NULL},
    {COLL_ALLGATHER, F_DIM0, NULL},
    {COLL_ALLGATHER, F_OP, NULL},
    {COLL_ALLGATHER, F_DIM1,
     "Mismatched ALLGATHER tensor shapes: tensor \"grad/0\": rank 0 has [2, 3], rank 2 "
     "has [2, 9] "
     "(dimension 1 differs)"},
    {COLL_BROADCAST, F_ROOT,
     "Mismatched BROADCAST root ranks: tensor \"grad/0\": rank 0 has root rank 0, rank "
     "2 has root "
     "rank 1"},
    {COLL_BROADCAST, F_DIM0,
     "Mismatched BROADCAST tensor shapes: tensor \"grad/0\": rank 0 has [2, 3], rank 2 "
     "has [9, 3] "
     "(dimension 0 differs)"},
    {COLL_BARRIER, F_DTYPE, NULL},
    {COLL_BARRIER, F_DIM0, NULL},
};

/* The odd one is rank 2, of 3; the order of arrival must not change what is said. */
static void disagreements_name_tensor_ranks_and_values(void **state)
{
    static const uint32_t orders[][3] = {{0, 1, 2}, {2, 0, 1}, {0, 2, 1}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(golden); i++) {
        for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
            struct answers got = {0};
            struct response r;
            struct negotiate *n;

            assert_int_equal(negotiate_new(3, &n), 0);
            for (size_t k = 0; k < 3; k++) {
                struct request q = req(golden[i].coll, "grad/0");

                if (orders[o][k] == 2)
                    change(&q, golden[i].field);
                assert_int_equal(negotiate_add(n, orders[o][k], &q, 1, NULL), 0);
            }
            assert_int_equal(take(n, &got, 3, 1 << 20), 1);
            r = next(&got);
            if (golden[i].text)
                assert_string_equal(r.text, golden[i].text);
            assert_int_equal(r.kind, golden[i].text ? RESPONSE_FAIL : RESPONSE_RUN);
            strbuf_release(&got.b);
            negotiate_free(n);
        }
    }
}

static void impossible_requests_fail_on_all(void **state)
{
    static const struct {
        enum collective coll;
        int ndim, dtype, op, root;
        const char *text;
    } t[] = {
        {COLL_ALLGATHER, 0, DT_F32, OP_SUM, 0,
         "rank 1 tried to ALLGATHER a rank-zero tensor: tensor \"x\""},
        {COLL_BROADCAST, 1, DT_F32, OP_SUM, 5,
         "tensor \"x\": BROADCAST root rank 5 of rank 1 is not in the world of 2 "
         "ranks"},
        {COLL_ALLREDUCE, 1, DT_F32, OP_ADASUM, 0,
         "tensor \"x\": ALLREDUCE with ADASUM is not supported, only SUM and AVERAGE"},
        {COLL_ALLREDUCE, 1, DT_U16, OP_SUM, 0,
         "tensor \"x\": ALLREDUCE of uint16 is not supported, only float16, bfloat16, "
         "float32, "
         "float64, int32 and int64"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct answers got = {0};
        struct request q = req(t[i].coll, "x");
        struct response r;
        struct negotiate *n;

        q.ndim = (uint32_t)t[i].ndim;
        q.dtype = (enum dtype)t[i].dtype;
        q.op = (enum reduce_op)t[i].op;
        q.root = (uint32_t)t[i].root;
        assert_int_equal(negotiate_new(2, &n), 0);
        assert_int_equal(negotiate_add(n, 1, &q, 1, NULL), 0);
        assert_int_equal(negotiate_add(n, 0, &q, 1, NULL), 0);
        assert_int_equal(take(n, &got, 2, 0), 1);
        r = next(&got);
        assert_int_equal(r.kind, RESPONSE_FAIL);
        assert_string_equal(r.text, t[i].text);
        strbuf_release(&got.b);
        negotiate_free(n);
    }
}

static void a_failed_tensor_does_not_stop_the_next(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a"), b = req(COLL_ALLREDUCE, "b"), bad = a;
    struct answers got = {0};
    struct negotiate *n;

    (void)state;
    bad.dtype = DT_I32;
    assert_int_equal(negotiate_new(2, &n), 0);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &bad, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_int_equal(take(n, &got, 2, 1 << 20), 2);
    assert_int_equal(next(&got).kind, RESPONSE_FAIL);
    assert_int_equal(next(&got).kind, RESPONSE_RUN);
    strbuf_release(&got.b);
    negotiate_free(n);
}

static void fused_ones_are_marked(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    static const bool fuse[] = {true, true, false, false};
    struct answers got = {0};
    struct negotiate *n;

    (void)state;
    assert_int_equal(negotiate_new(1, &n), 0);
    for (size_t i = 0; i < 4; i++) {
        struct request q = req(COLL_ALLREDUCE, names[i]);

        assert_int_equal(negotiate_add(n, 0, &q, 1, NULL), 0);
    }
    assert_int_equal(take(n, &got, 1, 3 * 24 + 5), 4); /* 24 bytes each */
    for (size_t i = 0; i < 4; i++) {
        struct response r = next(&got);

        assert_string_equal(r.name, names[i]);
        assert_int_equal(r.fuse_next, fuse[i]);
    }
    strbuf_release(&got.b);
    negotiate_free(n);
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    for (long i = 0;; i++) {
        struct request a = req(COLL_ALLGATHER, "a"), bad = a;
        struct negotiate *n = NULL;
        struct answers got = {0};
        size_t k;
        int r;

        bad.dtype = DT_I32;
        strbuf_init(&got.b, MESSAGE_MAX_BYTES);
        mem_fail_after(i);
        r = negotiate_new(2, &n);
        r = r < 0 ? r : negotiate_add(n, 0, &a, 1, NULL);
        r = r < 0 ? r : negotiate_add(n, 1, &bad, 1, NULL);
        r = r < 0 ? r : negotiate_write(n, 0, &got.b, &k);
        negotiate_free(n);
        strbuf_release(&got.b);
        if (!mem_fail_fired()) {
            mem_fail_after(-1);
            assert_int_equal(r, 0);
            break;
        }
        assert_int_equal(r, -ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ready_when_all_ranks_have_it),
        cmocka_unit_test(equal_names_may_come_again_after_the_response),
        cmocka_unit_test(a_rank_that_submits_twice_breaks_the_world),
        cmocka_unit_test(allgather_tells_the_rows_of_every_rank),
        cmocka_unit_test(disagreements_name_tensor_ranks_and_values),
        cmocka_unit_test(impossible_requests_fail_on_all),
        cmocka_unit_test(a_failed_tensor_does_not_stop_the_next),
        cmocka_unit_test(fused_ones_are_marked),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
