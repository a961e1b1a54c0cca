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

static struct negotiate *table(uint32_t n_ranks, uint64_t fusion_bytes)
{
    struct negotiate_config cfg = {.n_ranks = n_ranks, .fusion_bytes = fusion_bytes};
    struct negotiate *n;

    assert_int_equal(negotiate_new(&cfg, &n), 0);
    return n;
}

static bool more(struct answers *a, struct down *ret)
{
    int r = message_next_down(&a->in, a->counts, a->n_ranks, ret, NULL);

    assert_true(r >= 0);
    return r == 1;
}

/* One message; returns the number of its entries. */
static size_t take(struct negotiate *n, struct answers *a, uint32_t n_ranks)
{
    struct down d;
    size_t k = 0;

    strbuf_init(&a->b, MESSAGE_MAX_BYTES);
    a->n_ranks = n_ranks;
    if (!negotiate_has_news(n))
        return 0;
    assert_int_equal(negotiate_write(n, &a->b), 0);
    assert_int_equal(message_open(&a->in, a->b.p, a->b.n, NULL), 0);
    while (more(a, &d))
        k++;
    assert_int_equal(message_open(&a->in, a->b.p, a->b.n, NULL), 0);
    return k;
}

static struct down next(struct answers *a)
{
    struct down d;

    assert_true(more(a, &d));
    return d;
}

static void ready_when_all_ranks_have_it(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a"), b = req(COLL_ALLREDUCE, "b");
    struct negotiate *n;
    struct answers got = {0};
    struct down r;

    (void)state;
    n = table(3, 0);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 2, &b, 1, NULL), 0);
    assert_true(negotiate_has_news(n));
    assert_int_equal(negotiate_pending(n), 1);
    assert_int_equal(negotiate_add(n, 2, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 2);
    r = next(&got);
    assert_string_equal(r.req.name, "b");
    assert_int_equal(r.kind, DOWN_RUN);
    assert_false(r.fuse_next);
    r = next(&got);
    assert_string_equal(r.req.name, "a");
    strbuf_release(&got.b);
    assert_int_equal(take(n, &got, 3), 0); /* exactly once */
    assert_int_equal(got.b.n, 0);
    negotiate_free(n);
}

static void equal_names_may_come_again_after_the_response(void **state)
{
    struct request a = req(COLL_BARRIER, "a");
    struct answers got = {0};
    struct negotiate *n;

    (void)state;
    n = table(2, 1 << 20);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), 0);
        assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
        assert_int_equal(take(n, &got, 2), 1);
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
    n = table(2, 1 << 20);
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
    struct down r;
    struct negotiate *n;

    (void)state;
    b.shape[0] = 7;
    n = table(2, 1 << 20);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(take(n, &got, 2), 1);
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

            n = table(3, 1 << 20);
            for (size_t k = 0; k < 3; k++) {
                struct request q = req(golden[i].coll, "grad/0");

                if (orders[o][k] == 2)
                    change(&q, golden[i].field);
                assert_int_equal(negotiate_add(n, orders[o][k], &q, 1, NULL), 0);
            }
            assert_int_equal(take(n, &got, 3), 1);
            r = next(&got);
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
        struct request q = req(t[i].coll, "x");
        struct down r;
        struct negotiate *n;

        q.ndim = (uint32_t)t[i].ndim;
        q.dtype = (enum dtype)t[i].dtype;
        q.op = (enum reduce_op)t[i].op;
        q.root = (uint32_t)t[i].root;
        n = table(2, 1 << 20);
        assert_int_equal(negotiate_add(n, 1, &q, 1, NULL), 0);
        assert_int_equal(negotiate_add(n, 0, &q, 1, NULL), 0);
        assert_int_equal(take(n, &got, 2), 1);
        r = next(&got);
        assert_int_equal(r.kind, DOWN_FAIL);
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
    n = table(2, 1 << 20);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &bad, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_int_equal(take(n, &got, 2), 2);
    assert_int_equal(next(&got).kind, DOWN_FAIL);
    assert_int_equal(next(&got).kind, DOWN_RUN);
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
    n = table(1, 3 * 24 + 5); /* 24 bytes each */
    for (size_t i = 0; i < 4; i++) {
        struct request q = req(COLL_ALLREDUCE, names[i]);

        assert_int_equal(negotiate_add(n, 0, &q, 1, NULL), 0);
    }
    assert_int_equal(take(n, &got, 1), 4);
    for (size_t i = 0; i < 4; i++) {
        struct down r = next(&got);

        assert_string_equal(r.req.name, names[i]);
        assert_int_equal(r.fuse_next, fuse[i]);
    }
    strbuf_release(&got.b);
    negotiate_free(n);
}

/* --- groups, join, process sets --- */

static void a_group_is_ready_when_all_of_it_is(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a"), b = req(COLL_ALLREDUCE, "b");
    struct request c = req(COLL_ALLREDUCE, "c");
    struct answers got = {0};
    struct negotiate *n = table(2, 1 << 20);

    (void)state;
    a.group = b.group = 5;
    a.group_n = b.group_n = 2;
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(negotiate_add(n, rank, &a, 1, NULL), 0);
        assert_int_equal(negotiate_add(n, rank, &c, 1, NULL), 0);
    }
    assert_int_equal(take(n, &got, 2), 1); /* c alone */
    assert_string_equal(next(&got).req.name, "c");
    strbuf_release(&got.b);
    assert_int_equal(negotiate_add(n, 1, &b, 1, NULL), 0);
    assert_false(negotiate_has_news(n));
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(take(n, &got, 2), 2);
    strbuf_release(&got.b);
    assert_int_equal(negotiate_pending(n), 0);
    negotiate_free(n);
}

static void a_group_fails_whole(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a"), b = req(COLL_ALLREDUCE, "b"), bad;
    struct answers got = {0};
    struct negotiate *n = table(2, 1 << 20);
    struct down d;

    (void)state;
    a.group = b.group = 5;
    a.group_n = b.group_n = 2;
    bad = b;
    bad.dtype = DT_F64;
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 0, &b, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &bad, 1, NULL), 0);
    assert_int_equal(take(n, &got, 2), 2);
    d = next(&got);
    assert_int_equal(d.kind, DOWN_FAIL);
    assert_string_equal(d.text,
                        "its group failed with tensor \"b\": Mismatched data types: "
                        "tensor \"b\": rank 0 has float32, rank 1 has float64");
    assert_int_equal(next(&got).kind, DOWN_FAIL);
    strbuf_release(&got.b);
    negotiate_free(n);
}

/* Rank 0 has a group of two, rank 1 of three: no tensor of it may wait for a third. */
static void nobody_waits_for_a_group_that_ranks_disagree_about(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    struct answers got = {0};
    struct negotiate *n = table(2, 1 << 20);
    struct request q;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t rank = 2; rank-- > 0;) {
            q = req(COLL_ALLREDUCE, names[i]);
            q.group = rank == 0 && i == 2 ? 0 : 5;
            q.group_n = q.group == 0 ? 0 : rank == 0 ? 2 : 3;
            assert_int_equal(negotiate_add(n, rank, &q, 1, NULL), 0);
        }
    }
    assert_int_equal(take(n, &got, 2), 3);
    assert_string_equal(next(&got).text,
                        "Mismatched group sizes: tensor \"a\": rank 0 has 2, rank 1 "
                        "has 3");
    assert_int_equal(next(&got).kind, DOWN_FAIL);
    assert_string_equal(next(&got).text,
                        "Mismatched groups: tensor \"c\": rank 0 has no group, rank 1 "
                        "has a group");
    strbuf_release(&got.b);
    assert_int_equal(negotiate_pending(n), 0);
    negotiate_free(n);
}

static void who_has_joined_is_not_waited_for(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a"), g = req(COLL_ALLGATHER, "g");
    struct request j = req(COLL_JOIN, "join");
    struct answers got = {0};
    struct negotiate *n = table(3, 1 << 20);
    struct down d;

    (void)state;
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &a, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 2, &j, 1, NULL), 0); /* completes a */
    assert_int_equal(take(n, &got, 3), 1);
    d = next(&got);
    assert_int_equal(d.kind, DOWN_RUN);
    assert_true(d.has_req); /* rank 2 has no other way to know its size */
    strbuf_release(&got.b);
    assert_int_equal(negotiate_add(n, 2, &a, 1, NULL), -EPROTO);
    assert_int_equal(negotiate_add(n, 0, &g, 1, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &g, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    assert_string_equal(
        next(&got).text,
        "Allgather is not supported with Join at this time: tensor \"g\"");
    strbuf_release(&got.b);
    assert_int_equal(negotiate_add(n, 1, &j, 1, NULL), 0);
    assert_false(negotiate_has_news(n));
    assert_int_equal(negotiate_add(n, 0, &j, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    d = next(&got);
    assert_int_equal(d.kind, DOWN_JOINED);
    assert_int_equal(d.req.root, 0); /* the last */
    strbuf_release(&got.b);
    assert_int_equal(negotiate_add(n, 2, &a, 1, NULL), 0); /* all are back */
    negotiate_free(n);
}

static struct request set_of(const uint8_t *ranks, uint32_t n_set)
{
    struct request q = req(COLL_SET_ADD, "set");

    q.n_set = n_set;
    q.set = ranks;
    return q;
}

static void a_process_set_waits_for_its_own_ranks_only(void **state)
{
    static const uint8_t pair[] = {0, 0, 0, 0, 2, 0, 0, 0};
    struct request add = set_of(pair, 2), a = req(COLL_ALLGATHER, "a");
    struct request gone = req(COLL_SET_REMOVE, "set");
    struct answers got = {0};
    struct negotiate *n = table(3, 1 << 20);
    struct err err = ERR_INIT;
    struct down d;

    (void)state;
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(negotiate_add(n, rank, &add, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    d = next(&got);
    assert_int_equal(d.kind, DOWN_RUN);
    assert_int_equal(d.req.process_set, 1);
    strbuf_release(&got.b);
    a.process_set = 1;
    assert_int_equal(negotiate_add(n, 1, &a, 1, &err), -EPROTO);
    assert_string_equal(
        err.text, "rank 1 submitted tensor \"a\" in process set 1, which it is not in");
    negotiate_free(n);

    n = table(3, 1 << 20);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(negotiate_add(n, rank, &add, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    strbuf_release(&got.b);
    a.shape[0] = 4;
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    a.shape[0] = 9;
    assert_int_equal(negotiate_add(n, 2, &a, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    d = next(&got);
    assert_int_equal(d.n_counts, 2);
    assert_int_equal(d.counts[0], 4);
    assert_int_equal(d.counts[1], 9);
    strbuf_release(&got.b);
    for (uint32_t rank = 0; rank < 3; rank++) /* the same ranks again */
        assert_int_equal(negotiate_add(n, rank, &add, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    assert_string_equal(next(&got).text,
                        "a process set with the same ranks exists already: 1");
    strbuf_release(&got.b);
    gone.root = 1;
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(negotiate_add(n, rank, &gone, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    assert_int_equal(next(&got).kind, DOWN_RUN);
    strbuf_release(&got.b);
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    assert_int_equal(take(n, &got, 3), 1);
    assert_string_equal(next(&got).text, "tensor \"a\": process set 1 does not exist");
    strbuf_release(&got.b);
    negotiate_free(n);
}

static void who_is_late_can_be_told(void **state)
{
    struct request a = req(COLL_ALLREDUCE, "a");
    struct answers got = {0};
    struct negotiate *n = table(2, 1 << 20);
    struct down d;

    (void)state;
    negotiate_tell_late(n);
    assert_false(negotiate_has_news(n)); /* nothing is pending */
    assert_int_equal(negotiate_add(n, 0, &a, 1, NULL), 0);
    negotiate_tell_late(n);
    assert_int_equal(take(n, &got, 2), 1);
    d = next(&got);
    assert_int_equal(d.kind, DOWN_LATE);
    assert_string_equal(d.req.name, "a");
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
        struct request a = req(COLL_ALLGATHER, "a"), bad = a, add = set_of(one, 1);
        struct request g = req(COLL_ALLREDUCE, "g");
        struct negotiate *n = NULL;
        struct strbuf out;
        int r;

        bad.dtype = DT_I32;
        g.group = 3;
        g.group_n = 1;
        strbuf_init(&out, MESSAGE_MAX_BYTES);
        mem_fail_after(i);
        r = negotiate_new(&cfg, &n);
        r = r < 0 ? r : negotiate_add(n, 0, &a, 1, NULL);
        r = r < 0 ? r : negotiate_add(n, 1, &bad, 1, NULL);
        r = r < 0 ? r : negotiate_add(n, 0, &add, 1, NULL);
        r = r < 0 ? r : negotiate_add(n, 1, &add, 1, NULL);
        r = r < 0 ? r : negotiate_add(n, 0, &g, 1, NULL);
        r = r < 0 ? r : negotiate_add(n, 1, &g, 1, NULL);
        r = r < 0 ? r : negotiate_write(n, &out);
        negotiate_free(n);
        strbuf_release(&out);
        if (!mem_fail_fired()) {
            mem_fail_after(-1);
            assert_int_equal(r, 0);
            break;
        }
        /* the cache goes without */
        assert_true(r == -ENOMEM || r == 0);
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
        cmocka_unit_test(a_group_is_ready_when_all_of_it_is),
        cmocka_unit_test(a_group_fails_whole),
        cmocka_unit_test(nobody_waits_for_a_group_that_ranks_disagree_about),
        cmocka_unit_test(who_has_joined_is_not_waited_for),
        cmocka_unit_test(a_process_set_waits_for_its_own_ranks_only),
        cmocka_unit_test(who_is_late_can_be_told),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
