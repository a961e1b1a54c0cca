/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of the cpu backend on every topology: shared memory, TCP and both
 * mixed, worlds of one to seven, uneven and empty parts, fused items, in place or not,
 * one after another. The sums are of integers that wrap, exact in any order. All types
 * and operations against numpy: tests/python/ranks/capi_data.py. */
#include "tests/unit/unit.h"

#include "tests/unit/cpu_world.h"

#define GUARD 0x5a

enum { N_ITEMS = 2 };

static const uint64_t sizes[] = {0, 1, 7, 4096 + 3, 65537, (1u << 20) + 3};
#if defined(__SANITIZE_THREAD__) /* ranks are processes: it has little to detect here */
enum { N_SIZES = 3 };
#elif defined(__SANITIZE_ADDRESS__) /* the largest takes minutes, in the same code */
enum { N_SIZES = 5 };
#else
enum { N_SIZES = 6 };
#endif

static const enum collective colls[] = {
    COLL_ALLREDUCE, COLL_REDUCE,    COLL_REDUCESCATTER, COLL_GATHER,
    COLL_ALLTOALL,  COLL_ALLGATHER, COLL_BROADCAST,     COLL_SENDRECV};

/* Those that a world of this size has. */
static size_t n_colls(const struct rank *r)
{
    return ARRAY_LEN(colls) - (r->size != 2);
}

static uint64_t word_mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x =
        (a * 0x9e3779b97f4a7c15ull) ^ (b + 1) * 0xd1342543de82ef95ull ^ c << 40;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return x ^ x >> 32;
}

static int
rank_wrong(struct rank *r, const struct batch *b, const char *what, uint64_t n)
{
    return SAY(r, "%s %s n=%llu root=%u of %u: %s", collective_name(b->coll),
               dtype_name(b->dtype), (unsigned long long)n, b->root, r->size, what);
}

/* --- what each member has and gets --- */

static uint64_t n_elements; /* of the current operation; each rank is a process */

/* What `from` has of item k for `to`: uneven, some nothing, some much. Of the second
 * item, little, and only some members have a part at all. */
static uint64_t part_of(
    const struct rank *r, enum collective coll, size_t k, uint32_t from, uint32_t to)
{
    uint64_t n = n_elements;
    if (coll == COLL_REDUCESCATTER) /* as rows are dealt out; of item 1 the last all */
        return k == 0 ? n / r->size + (to < n % r->size) : to == r->size - 1 ? 5 : 0;
    if (coll == COLL_ALLGATHER || coll == COLL_GATHER)
        return k == 1 ? from : n == 0 && from % 2 == 0 ? 0 : n / 2 + from * n / 8;
    if (coll != COLL_ALLTOALL)
        return k == 0 ? n : 5;
    if (k == 1)
        return from == 0 && to == r->size - 1 ? 5 : 0;
    if (n == 0 || (from + 2 * to) % 4 == 3)
        return 0;
    return n / (1 + (from + to) % 3) + (from * 5 + to * 3) % 7;
}

static bool has_one_part(enum collective coll)
{
    return coll != COLL_ALLTOALL && coll != COLL_REDUCESCATTER;
}

/* Elements of the inputs of `from` before its part for `to`. */
static uint64_t part_start(
    const struct rank *r, enum collective coll, size_t k, uint32_t from, uint32_t to)
{
    uint64_t n = 0;
    for (uint32_t j = 0; j < to && !has_one_part(coll); j++)
        n += part_of(r, coll, k, from, j);
    return n;
}

static uint64_t
input_size(const struct rank *r, enum collective coll, size_t k, uint32_t from)
{
    return has_one_part(coll) ? part_of(r, coll, k, from, 0)
                              : part_start(r, coll, k, from, r->size);
}

static bool rank_gets_it(const struct rank *r, const struct batch *b)
{
    if (b->coll == COLL_SENDRECV)
        return b->root != r->rank;
    return (b->coll != COLL_REDUCE && b->coll != COLL_GATHER) || b->root == r->rank;
}

static bool is_reduction(enum collective coll)
{
    return coll == COLL_ALLREDUCE || coll == COLL_REDUCE || coll == COLL_REDUCESCATTER;
}

/* Whether the output has the part of this member alone, and not those of all. */
static bool is_of_one(const struct batch *b, uint32_t from)
{
    return b->coll == COLL_BROADCAST || b->coll == COLL_SENDRECV ? from == b->root
                                                                 : from == 0;
}

static void element_put(const struct batch *b, uint8_t *p, uint64_t i, uint64_t x)
{
    size_t es = dtype_size(b->dtype);
    memcpy(p + i * es, &x, es); /* the low bytes: little endian */
}

static uint8_t *bytes_new(const struct batch *b, uint64_t n)
{
    uint8_t *p = malloc(n * dtype_size(b->dtype) + 1);
    if (!p)
        abort();
    memset(p, GUARD, n * dtype_size(b->dtype) + 1);
    return p;
}

static uint8_t *input_of(const struct rank *r, const struct batch *b, size_t k)
{
    uint64_t n = input_size(r, b->coll, k, r->rank);
    uint8_t *p = bytes_new(b, n);
    for (uint64_t i = 0; i < n; i++)
        element_put(b, p, i, word_mix(r->rank, k, i));
    return p;
}

static uint8_t *
output_of(const struct rank *r, const struct batch *b, size_t k, uint64_t *ret_n)
{
    bool is_moved =
        b->coll == COLL_ALLGATHER || b->coll == COLL_GATHER || b->coll == COLL_ALLTOALL;
    uint64_t n = 0;
    for (uint32_t j = 0; j < r->size; j++)
        if (is_moved || is_of_one(b, j))
            n += part_of(r, b->coll, k, j, r->rank);
    uint8_t *p = bytes_new(b, n);
    *ret_n = n;
    n = 0;
    for (uint32_t j = 0; j < r->size; j++) {
        uint64_t first = part_start(r, b->coll, k, j, r->rank);
        if (!is_moved && !is_of_one(b, j))
            continue;
        for (uint64_t i = first; i < first + part_of(r, b->coll, k, j, r->rank); i++) {
            uint64_t x = word_mix(j, k, i);
            for (uint32_t m = 1; m < r->size && is_reduction(b->coll); m++)
                x += word_mix(m, k, i);
            element_put(b, p, n++, x);
        }
    }
    return p;
}

/* --- one operation --- */

static int check_item(struct rank *r,
                      const struct batch *b,
                      size_t k,
                      const uint8_t *in,
                      const uint8_t *out)
{
    size_t es = dtype_size(b->dtype);
    uint64_t n_in = input_size(r, b->coll, k, r->rank) * es, n_out;
    uint8_t *was = input_of(r, b, k), *want = output_of(r, b, k, &n_out);
    bool is_inside = out >= in && out <= in + n_in;
    int rc = 0;
    n_out *= es;
    if (rank_gets_it(r, b) && memcmp(out, want, n_out) != 0)
        rc = rank_wrong(r, b, "wrong result", n_elements);
    else if (in[n_in] != GUARD || (!is_inside && out[n_out] != GUARD))
        rc = rank_wrong(r, b, "wrote past the end", n_elements);
    if (is_inside && rank_gets_it(r, b))
        memcpy(was + (out - in), out, n_out);
    if (rc == 0 && memcmp(in, was, n_in) != 0)
        rc = rank_wrong(r, b, "changed its input", n_elements);
    free(was);
    free(want);
    return rc;
}

/* Of n elements; a second item has few, and a third has none and no memory. */
static int collective_once(struct rank *r, struct batch *b, uint64_t n, bool in_place)
{
    static const uint64_t none[WORLD_MAX];
    uint64_t counts[N_ITEMS][WORLD_MAX], send[N_ITEMS][WORLD_MAX];
    struct batch_item it[N_ITEMS + 1] = {
        [N_ITEMS] = {.counts = none, .send_counts = none}};
    uint8_t *in[N_ITEMS], *out[N_ITEMS];
    struct err err = ERR_INIT;
    n_elements = n;
    b->items = it;
    b->n_items = N_ITEMS + 1;
    b->op = OP_SUM;
    in_place = in_place && (has_one_part(b->coll) || b->coll == COLL_REDUCESCATTER)
               && b->coll != COLL_ALLGATHER && b->coll != COLL_GATHER;
    for (size_t k = 0; k < N_ITEMS; k++) {
        uint64_t n_out;
        for (uint32_t j = 0; j < r->size; j++) {
            bool is_by_receiver = b->coll == COLL_REDUCESCATTER;
            counts[k][j] = is_by_receiver ? part_of(r, b->coll, k, r->rank, j)
                                          : part_of(r, b->coll, k, j, r->rank);
            send[k][j] = part_of(r, b->coll, k, r->rank, j);
        }
        in[k] = input_of(r, b, k);
        out[k] = output_of(r, b, k, &n_out);
        memset(out[k], GUARD, n_out * dtype_size(b->dtype));
        if (in_place) {
            free(out[k]);
            out[k] =
                in[k]
                + part_start(r, b->coll, k, r->rank, r->rank) * dtype_size(b->dtype);
        }
        it[k] = (struct batch_item){.in = in[k],
                                    .out = rank_gets_it(r, b) ? out[k] : NULL,
                                    .count = input_size(r, b->coll, k, r->rank),
                                    .counts = counts[k],
                                    .send_counts = send[k]};
    }
    int rc = run_batch(r, b, &err) < 0 ? rank_wrong(r, b, err.text, n) : 0;
    for (size_t k = 0; k < N_ITEMS; k++) {
        if (rc == 0)
            rc = check_item(r, b, k, in[k], out[k]);
        if (!in_place)
            free(out[k]);
        free(in[k]);
    }
    return rc;
}

/* --- bodies --- */

static const enum dtype types[] = {DT_U8, DT_I16, DT_I32, DT_I64};

static int body_each(struct rank *r)
{
    int rc = 0;
    for (size_t c = 0; c < n_colls(r); c++)
        for (size_t s = 0; s < N_SIZES; s++)
            for (uint32_t root = 0; root < r->size && rc == 0; root++) {
                struct batch b = {
                    .coll = colls[c], .dtype = types[(s + c) % 4], .root = root};
                rc = collective_once(r, &b, sizes[s], (c + s + root) & 1);
                if (s >= 4) /* large ones cost most of the time: one root */
                    break;
            }
    return rc;
}

/* One operation must not disturb the next. */
static int body_mixed_up(struct rank *r)
{
    static const uint64_t counts[] = {1, 300, 4000, 9000, 0, 60000};
    uint64_t x = 88172645463325252ull;
    int rc = 0;
    for (int i = 0; i < 120 && rc == 0; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* the same on every rank */
        struct batch b = {.coll = colls[x % n_colls(r)],
                          .dtype = types[x >> 8 & 3],
                          .root = (uint32_t)(x >> 16) % r->size};
        rc = collective_once(r, &b, counts[(x >> 24) % 6], x >> 10 & 1);
    }
    return rc;
}

/* Each collective twice, beginning with one of them: the mesh of a large world is
 * completed by the first one that must. */
static int body_large(struct rank *r)
{
    const size_t first = *(const size_t *)r->arg;
    int rc = 0;
    for (size_t i = 0; i < 2 * n_colls(r) && rc == 0; i++) {
        struct batch b = {
            .coll = colls[(first + i) % n_colls(r)], .dtype = DT_I32, .root = 5};
        rc = collective_once(r, &b, i < n_colls(r) ? 300 : 9000, i & 1);
    }
    return rc;
}

static const struct refused {
    enum collective coll;
    enum reduce_op op;
    enum dtype t;
    uint32_t root;
    const char *says;
} refused[] = {
    {COLL_ALLREDUCE, OP_AVERAGE, DT_BOOL, 0,
     "batch: ALLREDUCE with AVERAGE of bool is not supported"},
    {COLL_ALLREDUCE, OP_ADASUM, DT_I32, 0, "batch: ADASUM of int32 is not supported"},
    {COLL_REDUCESCATTER, OP_ADASUM, DT_F32, 0,
     "batch: REDUCESCATTER with ADASUM of float32 is not supported"},
    {COLL_REDUCE, OP_SUM, DT_F32, 9, "batch: REDUCE from root 9 of 1 members"},
    {COLL_GATHER, OP_SUM, DT_F32, 1, "batch: GATHER from root 1 of 1 members"},
    {COLL_SENDRECV, OP_SUM, DT_F32, 2, "batch: SENDRECV from root 2 of 1 members"},
    {COLL_ALLTOALL, OP_SUM, DT_COUNT, 0, "batch: dtype 11 is unknown"},
    {COLL_JOIN, OP_SUM, DT_F32, 0, "batch: JOIN is not supported"},
};

static int body_refused(struct rank *r)
{
    const struct refused *row = r->arg;
    struct err err = ERR_INIT;
    struct batch_item it = {0};
    struct batch b = {.coll = row->coll,
                      .op = row->op,
                      .dtype = row->t,
                      .root = row->root,
                      .items = &it,
                      .n_items = 1};
    if (run_batch(r, &b, &err) != -EINVAL || strcmp(err.text, row->says) != 0)
        return SAY(r, "\"%s\", not \"%s\"", err.text, row->says);
    return 0;
}

/* --- worlds --- */

UNIT_TEST(every_collective_on_every_topology)
{
    worlds_run(body_each);
}

/* By gather, by alltoall, and after a ring of allgathers by reduce. */
UNIT_TEST(a_large_mesh_is_completed_by_any_collective)
{
    static const size_t firsts[] = {3, 4, 5};
    for (size_t i = 0; i < ARRAY_LEN(firsts); i++) {
        struct world w = {.body = body_large, .timeout_s = 100, .arg = &firsts[i]};
        world_check(&w, 18, true, NULL);
    }
}

UNIT_TEST(operations_leave_nothing_behind)
{
    worlds_run(body_mixed_up);
}

UNIT_TEST(unsupported_batches_are_refused)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct world w = {.body = body_refused, .timeout_s = 20, .arg = &refused[i]};
        world_check(&w, 1, false, NULL);
    }
}

UNIT_MAIN(NULL, NULL)
