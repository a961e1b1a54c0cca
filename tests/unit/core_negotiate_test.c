/* SPDX-License-Identifier: Apache-2.0 */
/* Negotiation: what is ready when, and what people read when ranks disagree. */
#include "tests/unit/core_negotiate.h"

static void ready_when_all_ranks_have_it(void **state)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a"),
                          b = request_make(COLL_ALLREDUCE, "b");
    struct negotiate *n;
    struct answers got = {0};
    struct down r;

    (void)state;
    n = negotiate_make(3, 0);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 2, &b, 1, NULL), 0);
    assert_true(negotiate_has_news(n));
    assert_int_equal(negotiate_pending(n), 1);
    assert_int_equal(negotiate_add(n, 2, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), 0);
    assert_int_equal(answers_take(n, &got, 3), 2);
    r = answers_expect(&got);
    assert_string_equal(r.req.name, "b");
    assert_int_equal(r.kind, DOWN_RUN);
    assert_false(r.fuse_next);
    r = answers_expect(&got);
    assert_string_equal(r.req.name, "a");
    strbuf_release(&got.b);
    assert_int_equal(answers_take(n, &got, 3), 0); /* exactly once */
    assert_int_equal(got.b.n, 0);
    negotiate_free(n);
}

static void equal_names_may_come_again_after_the_response(void **state)
{
    struct tensor_request a = request_make(COLL_BARRIER, "a");
    struct answers got = {0};
    struct negotiate *n;

    (void)state;
    n = negotiate_make(2, 1 << 20);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), 0);
        assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
        assert_int_equal(answers_take(n, &got, 2), 1);
        strbuf_release(&got.b);
    }
    negotiate_free(n);
}

static void a_rank_that_submits_twice_breaks_the_world(void **state)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a");
    struct err err = ERR_INIT;
    struct negotiate *n;

    (void)state;
    n = negotiate_make(2, 1 << 20);
    assert_int_equal(negotiate_add(n, 1, &a, 1, &err), 0);
    assert_int_equal(negotiate_add(n, 1, &a, 1, &err), -EPROTO);
    assert_string_equal(err.text, "rank 1 submitted tensor \"a\" twice");
    assert_int_equal(negotiate_add(n, 2, &a, 1, &err), -EPROTO);
    negotiate_free(n);
}

static void an_allgather_answer_has_the_rows_of_every_rank(void **state)
{
    struct tensor_request a = request_make(COLL_ALLGATHER, "a"), b = a;
    struct answers got = {0};
    struct down r;
    struct negotiate *n;

    (void)state;
    b.shape[0] = 7;
    n = negotiate_make(2, 1 << 20);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(answers_take(n, &got, 2), 1);
    r = answers_expect(&got);
    assert_int_equal(r.n_counts, 2);
    assert_int_equal(r.counts[0], 2);
    assert_int_equal(r.counts[1], 7);
    strbuf_release(&got.b);
    negotiate_free(n);
}

/* --- sentences --- */

enum field { F_COLL, F_DTYPE, F_OP, F_PRE, F_DIM0, F_DIM1, F_NDIM, F_ROOT };

static void request_change(struct tensor_request *r, enum field f)
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
     "has [2] (the "
     "number of dimensions differs)"},
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
            struct down r;
            struct negotiate *n;

            n = negotiate_make(3, 1 << 20);
            for (size_t k = 0; k < 3; k++) {
                struct tensor_request q = request_make(golden[i].coll, "grad/0");

                if (orders[o][k] == 2)
                    request_change(&q, golden[i].field);
                assert_int_equal(negotiate_add(n, orders[o][k], &q, 1, NULL), 0);
            }
            assert_int_equal(answers_take(n, &got, 3), 1);
            r = answers_expect(&got);
            if (golden[i].text)
                assert_string_equal(r.text, golden[i].text);
            assert_int_equal(r.kind, golden[i].text ? DOWN_FAIL : DOWN_RUN);
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
        {COLL_ALLREDUCE, 1, DT_I32, OP_ADASUM, 0,
         "tensor \"x\": ALLREDUCE of int32 with ADASUM is not supported"},
        {COLL_REDUCESCATTER, 1, DT_BOOL, OP_AVERAGE, 0,
         "tensor \"x\": REDUCESCATTER of bool with AVERAGE is not supported"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct answers got = {0};
        struct tensor_request q = request_make(t[i].coll, "x");
        struct down r;
        struct negotiate *n;

        q.ndim = (uint32_t)t[i].ndim;
        q.dtype = (enum dtype)t[i].dtype;
        q.op = (enum reduce_op)t[i].op;
        q.root = (uint32_t)t[i].root;
        n = negotiate_make(2, 1 << 20);
        assert_int_equal(negotiate_add(n, 1, &q, 1, NULL), 0);
        assert_int_equal(negotiate_add(n, 0, &q, 1, NULL), 0);
        assert_int_equal(answers_take(n, &got, 2), 1);
        r = answers_expect(&got);
        assert_int_equal(r.kind, DOWN_FAIL);
        assert_string_equal(r.text, t[i].text);
        strbuf_release(&got.b);
        negotiate_free(n);
    }
}

static void a_failed_tensor_does_not_stop_the_next(void **state)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a"),
                          b = request_make(COLL_ALLREDUCE, "b"), bad = a;
    struct answers got = {0};
    struct negotiate *n;

    (void)state;
    bad.dtype = DT_I32;
    n = negotiate_make(2, 1 << 20);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &bad, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_int_equal(answers_take(n, &got, 2), 2);
    assert_int_equal(answers_expect(&got).kind, DOWN_FAIL);
    assert_int_equal(answers_expect(&got).kind, DOWN_RUN);
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
    n = negotiate_make(1, 3 * 24 + 5); /* 24 bytes each */
    for (size_t i = 0; i < 4; i++) {
        struct tensor_request q = request_make(COLL_ALLREDUCE, names[i]);

        assert_int_equal(negotiate_add(n, 0, &q, 1, NULL), 0);
    }
    assert_int_equal(answers_take(n, &got, 1), 4);
    for (size_t i = 0; i < 4; i++) {
        struct down r = answers_expect(&got);

        assert_string_equal(r.req.name, names[i]);
        assert_int_equal(r.fuse_next, fuse[i]);
    }
    strbuf_release(&got.b);
    negotiate_free(n);
}

static void a_late_tensor_is_reported(void **state)
{
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a");
    struct answers got = {0};
    struct negotiate *n = negotiate_make(2, 1 << 20);
    struct down d;

    (void)state;
    negotiate_report_late(n);
    assert_false(negotiate_has_news(n)); /* nothing is pending */
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    negotiate_report_late(n);
    assert_int_equal(answers_take(n, &got, 2), 1);
    d = answers_expect(&got);
    assert_int_equal(d.kind, DOWN_LATE);
    assert_string_equal(d.req.name, "a");
    strbuf_release(&got.b);
    assert_false(negotiate_has_news(n)); /* once */
    negotiate_free(n);
}

/* They count for the answers of their own message. */
static void new_settings_are_sent_first(void **state)
{
    const struct tuning one = {.fusion_bytes = 1}, off = {.gather_ns = 5};
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a"),
                          b = request_make(COLL_ALLREDUCE, "b");
    struct answers got = {0};
    struct negotiate *n = negotiate_make(1, 1 << 20);
    struct down d;

    (void)state;
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(answers_take(n, &got, 1), 2);
    assert_true(answers_expect(&got).fuse_next);
    strbuf_release(&got.b);
    negotiate_tune(n, &one);
    negotiate_tune(n, &off); /* only the last word counts */
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(answers_take(n, &got, 1), 3);
    d = answers_expect(&got);
    assert_int_equal(d.kind, DOWN_TUNE);
    assert_int_equal(d.tuning.gather_ns, 5);
    assert_int_equal(d.tuning.fusion_bytes, 0);
    assert_false(answers_expect(&got).fuse_next);
    strbuf_release(&got.b);
    assert_false(negotiate_has_news(n)); /* once */
    negotiate_free(n);
}

static void survives_failing_allocations(void **state)
{
    struct negotiate_config cfg = {
        .n_ranks = 2, .cache_capacity = 4, .may_freeze = true};

    (void)state;
    for (long i = 0;; i++) {
        static const uint8_t one[] = {1, 0, 0, 0};
        struct tensor_request a = request_make(COLL_ALLGATHER, "a"), bad = a,
                              add = set_of(one, 1);
        struct tensor_request g = request_make(COLL_ALLREDUCE, "g");
        struct negotiate *n = NULL;
        struct strbuf out;
        int rc;

        bad.dtype = DT_I32;
        g.group = 3;
        g.group_n = 1;
        strbuf_init(&out, MESSAGE_MAX_BYTES);
        mem_fail_after(i);
        rc = negotiate_new(&cfg, &n);
        rc = rc < 0 ? rc : negotiate_add(n, 0, &a, 1, NULL);
        rc = rc < 0 ? rc : negotiate_add(n, 1, &bad, 1, NULL);
        rc = rc < 0 ? rc : negotiate_add(n, 0, &add, 1, NULL);
        rc = rc < 0 ? rc : negotiate_add(n, 1, &add, 1, NULL);
        rc = rc < 0 ? rc : negotiate_add(n, 0, &g, 1, NULL);
        rc = rc < 0 ? rc : negotiate_add(n, 1, &g, 1, NULL);
        rc = rc < 0 ? rc : negotiate_write(n, &out);
        negotiate_free(n);
        strbuf_release(&out);
        if (!mem_fail_fired()) {
            mem_fail_after(-1);
            assert_int_equal(rc, 0);
            break;
        }
        /* the cache goes without */
        assert_true(rc == -ENOMEM || rc == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ready_when_all_ranks_have_it),
        cmocka_unit_test(equal_names_may_come_again_after_the_response),
        cmocka_unit_test(a_rank_that_submits_twice_breaks_the_world),
        cmocka_unit_test(an_allgather_answer_has_the_rows_of_every_rank),
        cmocka_unit_test(disagreements_name_tensor_ranks_and_values),
        cmocka_unit_test(impossible_requests_fail_on_all),
        cmocka_unit_test(a_failed_tensor_does_not_stop_the_next),
        cmocka_unit_test(fused_ones_are_marked),
        cmocka_unit_test(a_late_tensor_is_reported),
        cmocka_unit_test(new_settings_are_sent_first),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
