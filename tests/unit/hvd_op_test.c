/* SPDX-License-Identifier: Apache-2.0 */
/* The bookkeeping of one operation: shares, result memory, the end; no world. Rows and
 * counts of results: tests/python/ranks/capi_data.py. */
#include "tests/unit/unit.h"

#include "runtime/engine/op.h"
#include "tests/unit/torture.h"

enum { N = 4 };

/* NULL: out of memory. */
static struct op *
op_try_make(enum collective coll, enum dtype dtype, uint32_t ndim, const int64_t *shape)
{
    struct op *op = op_new();

    if (!op)
        return NULL;
    op->req.coll = coll;
    op->req.dtype = dtype;
    op->req.ndim = ndim;
    memcpy(op->req.shape, shape, ndim * sizeof(*shape));
    op->n_members = N;
    return op;
}

static struct op *
op_make(enum collective coll, enum dtype dtype, uint32_t ndim, const int64_t *shape)
{
    struct op *op = op_try_make(coll, dtype, ndim, shape);

    if (!op)
        abort(); /* the compiler shall know that it is there */
    return op;
}

static int64_t *new_rows(const int64_t *rows)
{
    int64_t *v = mem_calloc(N, sizeof(*v));

    if (v)
        memcpy(v, rows, N * sizeof(*v));
    return v;
}

/* The shares of all members are the whole, and differ by one at most. */
UNIT_TEST(shares_add_up)
{
    for (uint32_t n = 1; n < 40; n++) {
        for (uint64_t rows = 0; rows < 100; rows++) {
            uint64_t sum = 0;

            for (uint32_t i = 0; i < n; i++) {
                uint64_t share = op_share(rows, n, i);

                assert_true(share == rows / n || share == rows / n + 1);
                assert_true(i == 0 || share <= op_share(rows, n, i - 1));
                sum += share;
            }
            assert_int_equal(sum, rows);
        }
    }
}

/* Sizes that a peer could claim: refused, not computed modulo 2^64. */
UNIT_TEST(results_beyond_memory_are_refused)
{
    static const int64_t shape[2] = {1, 1 << 20};
    static const uint64_t dim0[][N] = {
        {1ull << 44, 0, 0, 0},          /* elements of one rank: 2^64 */
        {1ull << 43, 1ull << 43, 0, 0}, /* of all: 2^64 */
        {1ull << 40, 0, 0, 0},          /* bytes: 2^63 */
        {UINT64_MAX, 1, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(dim0); i++) {
        struct op *op = op_make(COLL_ALLGATHER, DT_F64, 2, shape);

        assert_int_equal(op_make_result(op, dim0[i], N, NULL), -ENOMEM);
        assert_null(op->result);
        op_unref(op);
    }
}

/* --- who gives the memory --- */

struct seen {
    int calls, ndim;
    int64_t shape[HVD_MAX_DIMS];
    size_t bytes;
    void *memory; /* what the caller's function returns */
    bool was_in_callback;
};

static void *result_alloc(void *arg, int ndim, const int64_t *shape, size_t bytes)
{
    struct seen *s = arg;

    s->calls++;
    s->ndim = ndim;
    memcpy(s->shape, shape, (size_t)ndim * sizeof(*shape));
    s->bytes = bytes;
    s->was_in_callback = op_in_callback();
    return s->memory;
}

UNIT_TEST(the_callers_alloc_is_called_once)
{
    static const int64_t shape[2] = {2, 3};
    static const uint64_t dim0[N] = {2, 0, 1, 1};
    char memory[48];
    struct seen s = {.memory = memory};
    struct op *op = op_make(COLL_ALLGATHER, DT_F32, 2, shape);

    op->alloc = result_alloc;
    op->alloc_arg = &s;
    assert_int_equal(op_make_result(op, dim0, N, NULL), 0);
    assert_int_equal(s.calls, 1);
    assert_int_equal(s.ndim, 2);
    assert_int_equal(s.shape[0], 4);
    assert_int_equal(s.shape[1], 3);
    assert_int_equal(s.bytes, 48);
    assert_true(s.was_in_callback && !op_in_callback());
    assert_ptr_equal(op->result, memory);
    assert_false(op->owns_result || op->has_no_memory);
    op_unref(op); /* must not free it */
}

/* --- the end --- */

struct end {
    struct op *inner;
    bool was_ended; /* in the callback: it has ended for queries of results */
    int calls, status;
    char error[64];
    bool had_error, was_pending;
    struct op *op;
};

static void on_end(void *arg, int status, const char *error)
{
    struct end *e = arg;

    e->calls++;
    e->status = status;
    e->had_error = error != NULL;
    if (error)
        (void)strncpy(e->error, error, sizeof(e->error) - 1);
    e->was_pending = op_status(e->op) == HVD_IN_PROGRESS;
    e->was_ended = op_status_in_callback(e->op) == status;
    if (e->inner) { /* an op that ends inside leaves this one ended */
        op_finish(e->inner, HVD_TIMEOUT, "inner");
        e->was_ended = e->was_ended && op_status_in_callback(e->op) == status;
    }
}

UNIT_TEST(an_op_ends_once_callback_first)
{
    static const int64_t shape[1] = {1};

    for (int is_bad = 0; is_bad < 2; is_bad++) {
        struct op *op = op_make(COLL_ALLREDUCE, DT_F32, 1, shape);
        struct op *inner = op_make(COLL_ALLREDUCE, DT_F32, 1, shape);
        struct end e = {.op = op, .inner = inner}, of_inner = {.op = inner};

        op->done = inner->done = on_end;
        op->done_arg = &e;
        inner->done_arg = &of_inner;
        op_finish(op, is_bad ? HVD_ABORTED : HVD_OK, is_bad ? "lost rank 3" : NULL);
        assert_int_equal(e.calls, 1);
        assert_int_equal(e.status, is_bad ? HVD_ABORTED : HVD_OK);
        assert_int_equal(e.had_error, is_bad);
        assert_string_equal(e.error, is_bad ? "lost rank 3" : "");
        assert_true(e.was_pending && e.was_ended);
        assert_int_equal(op_status(op), e.status);
        assert_true(of_inner.was_pending && of_inner.was_ended);
        op_unref(inner);
        op_unref(op);
    }
}

/* --- names of groups --- */

UNIT_TEST(hashes_are_fnv_1a)
{
    assert_true(op_hash_text(OP_HASH_INIT, "") == 0xcbf29ce484222325ull);
    assert_true(op_hash_text(OP_HASH_INIT, "a") == 0xaf63dc4c8601ec8cull);
    assert_true(op_hash_text(OP_HASH_INIT, "foobar") == 0x85944171f73967e8ull);
    /* a number is its four bytes, the lowest first */
    assert_true(op_hash_u32(OP_HASH_INIT, 0x64636261)
                == op_hash_text(OP_HASH_INIT, "abcd"));
}

/* --- every allocation fails in turn --- */

static int make_and_count(void *arg)
{
    static const int64_t shape[2] = {4, 2};
    static const uint64_t dim0[N] = {1, 1, 1, 1};
    static const int64_t rows[N] = {1, 1, 1, 1};
    struct op *op = op_try_make(COLL_ALLTOALL, DT_F32, 2, shape);
    int rc;

    (void)arg;
    if (!op)
        return -ENOMEM;
    op->rows = new_rows(rows);
    rc = op->rows ? op_make_send_counts(op, N) : -ENOMEM;
    rc = rc < 0 ? rc : op_make_result(op, dim0, N, NULL);
    op_unref(op);
    return rc;
}

UNIT_TEST(every_allocation_may_fail)
{
    torture(make_and_count, NULL);
}

UNIT_MAIN(NULL, NULL)
