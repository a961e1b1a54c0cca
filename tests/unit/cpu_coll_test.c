/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of the cpu backend: every operation with every element type, every way to
 * move data, uneven and empty parts, fused items, over shared memory, TCP and both mixed,
 * worlds of one to seven.
 *
 * Inputs are chosen so that each sum is exact in its type in any order: results equal one
 * reduction over all ranks, bit for bit. */
#include "tests/unit/unit.h"

#include "runtime/backend/cpu/reduce.h"
#include "runtime/core/half.h"
#include "tests/unit/cpu_world.h"

#define GUARD 0x5a

enum { N_ITEMS = 2 };

static const uint64_t sizes[] = {0, 1, 7, 4096 + 3, 65537, (1u << 20) + 3};
#if defined(__SANITIZE_THREAD__) /* ranks are processes: it has little to detect here */
enum { N_SMALL = 3, N_LARGE = 3, N_SIZES = 3 };
#else
enum { N_SMALL = 4, N_LARGE = 5, N_SIZES = 6 };
#endif

/* Large sizes cost most of the time: one type is tested with the large one in all worlds
 * and with the largest one in some (arg: is_big). */
static size_t n_sizes(const struct rank *r, bool is_chosen)
{
    return !is_chosen ? N_SMALL : *(const bool *)r->arg ? N_SIZES : N_LARGE;
}

/* --- values --- */

static bool is_float(enum dtype t)
{
    return t == DT_F16 || t == DT_BF16 || t == DT_F32 || t == DT_F64;
}

static void put_float(enum dtype t, void *p, double x)
{
    uint16_t h = t == DT_F16 ? f16_of_f32((float)x) : bf16_of_f32((float)x);
    float f = (float)x;
    memcpy(p,
           t == DT_F64   ? (void *)&x
           : t == DT_F32 ? (void *)&f
                         : (void *)&h,
           dtype_size(t));
}

static uint64_t word_mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x =
        (a * 0x9e3779b97f4a7c15ull) ^ (b + 1) * 0xd1342543de82ef95ull ^ c << 40;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return x ^ x >> 32;
}

/* Element i of item k on a rank, times scale. */
static void put_input(enum reduce_op op,
                      enum dtype t,
                      void *p,
                      uint32_t rank,
                      size_t k,
                      uint64_t i,
                      double scale)
{
    static const double factors[] = {0.5, 1, 2, -1};
    uint64_t bits = word_mix(rank, k, i);
    if (is_float(t) && op == OP_PRODUCT)
        put_float(t, p, scale * factors[(i + rank * 3 + k) % 4]);
    else if (is_float(t))
        put_float(t, p, scale * ((double)((i * 7 + rank * 3 + k) % 11) - 5));
    else if (t == DT_BOOL)
        *(uint8_t *)p = bits % 3 == 0 ? 0 : (uint8_t)(bits >> 8 | 1);
    else
        memcpy(p, &bits, dtype_size(t));
}

/* --- buffers with a guard behind them --- */

static uint8_t *bytes_new(uint64_t n_bytes)
{
    uint8_t *p = malloc(n_bytes + 1);
    if (!p)
        abort();
    memset(p, GUARD, n_bytes + 1);
    return p;
}

static int
rank_wrong(struct rank *r, const struct batch *b, const char *what, uint64_t n)
{
    return SAY(r, "%s %s %s n=%llu root=%u of %u: %s", collective_name(b->coll),
               reduce_op_name(b->op), dtype_name(b->dtype), (unsigned long long)n,
               b->root, r->size, what);
}

static int rank_post(struct rank *r, struct batch *b)
{
    struct err err = ERR_INIT;
    if (b->prescale == 0)
        b->prescale = b->postscale = 1;
    return run_batch(r, b, &err) < 0 ? rank_wrong(r, b, err.text, 0) : 0;
}

static uint8_t *
inputs_of(uint32_t rank, const struct batch *b, size_t k, uint64_t n, double scale)
{
    size_t es = dtype_size(b->dtype);
    uint8_t *p = bytes_new(n * es);
    for (uint64_t i = 0; i < n; i++)
        put_input(b->op, b->dtype, p + i * es, rank, k, i, scale);
    return p;
}

/* The n elements of item k, reduced over all ranks by one call of the kernel, which
 * cpu_reduce_test.c tests against its definition. */
static uint8_t *
sums_of(const struct rank *r, const struct batch *b, size_t k, uint64_t n)
{
    uint8_t *in[WORLD_MAX], *ret = bytes_new(n * dtype_size(b->dtype));
    struct finish f = finish_of(b->dtype, b->op, b->postscale, r->size);
    for (uint32_t i = 0; i < r->size; i++)
        in[i] = inputs_of(i, b, k, n, b->prescale);
    kernel_for(b->op, b->dtype, false)
        ->fold(ret, NULL, (const void *const *)in, r->size, n, &f);
    for (uint32_t i = 0; i < r->size; i++)
        free(in[i]);
    return ret;
}

/* --- allreduce and reduce --- */

/* out: elements [first, first + n) of want. */
static int check_reduced(struct rank *r,
                         const struct batch *b,
                         const uint8_t *want,
                         uint64_t first,
                         uint64_t n,
                         const uint8_t *out)
{
    size_t es = dtype_size(b->dtype);
    for (uint64_t i = 0; i < n; i++)
        if (memcmp(out + i * es, want + (first + i) * es, es) != 0)
            return rank_wrong(r, b, "wrong element", first + i);
    return 0;
}

/* Allreduce, or reduce with root; items of n, 5 and 0 elements. */
static int reduce_once(struct rank *r, struct batch *b, uint64_t n, bool in_place)
{
    const uint64_t counts[] = {n, 5};
    bool gets_it = b->coll == COLL_ALLREDUCE || b->root == r->rank;
    struct batch_item it[N_ITEMS + 1] = {{0}};
    uint8_t *in[N_ITEMS], *out[N_ITEMS], *copy[N_ITEMS];
    b->items = it;
    b->n_items = N_ITEMS + 1; /* the last one is empty and has no memory */
    for (size_t k = 0; k < N_ITEMS; k++) {
        in[k] = inputs_of(r->rank, b, k, counts[k], 1);
        copy[k] = inputs_of(r->rank, b, k, counts[k], 1);
        out[k] = in_place ? in[k] : bytes_new(counts[k] * dtype_size(b->dtype));
        it[k] = (struct batch_item){
            .in = in[k], .out = gets_it ? out[k] : NULL, .count = counts[k]};
    }
    int rc = rank_post(r, b);
    for (size_t k = 0; k < N_ITEMS; k++) {
        size_t bytes = counts[k] * dtype_size(b->dtype);
        uint8_t *want = sums_of(r, b, k, counts[k]);
        if (rc == 0 && gets_it)
            rc = check_reduced(r, b, want, 0, counts[k], out[k]);
        if (rc == 0 && gets_it && out[k][bytes] != GUARD)
            rc = rank_wrong(r, b, "wrote past the end", n);
        free(want);
        if (rc == 0 && (!gets_it || !in_place) && memcmp(in[k], copy[k], bytes) != 0)
            rc = rank_wrong(r, b, "changed its input", n);
        if (!in_place)
            free(out[k]);
        free(in[k]);
        free(copy[k]);
    }
    return rc;
}

/* --- reduce-scatter --- */

/* Member j's part of item k: the first n % size have one more, as rows are dealt out;
 * of the second item the last member has all. */
static uint64_t scatter_part(uint32_t size, size_t k, uint64_t n, uint32_t j)
{
    if (k == 1)
        return j == size - 1 ? n : 0;
    return n / size + (j < n % size);
}

static int scatter_once(struct rank *r, struct batch *b, uint64_t n, bool in_place)
{
    const uint64_t total[] = {n, 5};
    uint64_t counts[N_ITEMS][WORLD_MAX], first[N_ITEMS] = {0};
    struct batch_item it[N_ITEMS];
    uint8_t *in[N_ITEMS], *out[N_ITEMS];
    size_t es = dtype_size(b->dtype);
    b->items = it;
    b->n_items = N_ITEMS;
    for (size_t k = 0; k < N_ITEMS; k++) {
        for (uint32_t j = 0; j < r->size; j++) {
            counts[k][j] = scatter_part(r->size, k, total[k], j);
            first[k] += j < r->rank ? counts[k][j] : 0;
        }
        in[k] = inputs_of(r->rank, b, k, total[k], 1);
        out[k] = in_place ? in[k] + first[k] * es : bytes_new(counts[k][r->rank] * es);
        it[k] = (struct batch_item){
            .in = in[k], .out = out[k], .count = total[k], .counts = counts[k]};
    }
    int rc = rank_post(r, b);
    for (size_t k = 0; k < N_ITEMS; k++) {
        uint64_t m = counts[k][r->rank];
        uint8_t *want = sums_of(r, b, k, total[k]);
        uint8_t *copy = inputs_of(r->rank, b, k, total[k], 1);
        if (rc == 0)
            rc = check_reduced(r, b, want, first[k], m, out[k]);
        if (rc == 0 && (in_place ? in[k][total[k] * es] : out[k][m * es]) != GUARD)
            rc = rank_wrong(r, b, "wrote past the end", n);
        if (in_place) /* its own part is the result */
            memcpy(copy + first[k] * es, in[k] + first[k] * es, m * es);
        if (rc == 0 && memcmp(in[k], copy, total[k] * es) != 0)
            rc = rank_wrong(r, b, "changed its input", n);
        free(want);
        free(copy);
        if (!in_place)
            free(out[k]);
        free(in[k]);
    }
    return rc;
}

static int reduce_pair(struct rank *r, enum reduce_op op, enum dtype t)
{
    bool is_big = op == OP_SUM && t == DT_BF16;
    int rc = 0;
    for (size_t s = 0; s < n_sizes(r, is_big) && rc == 0; s++) {
        bool in_place = (s + (size_t)t) & 1;
        struct batch b = {.coll = COLL_ALLREDUCE, .dtype = t, .op = op};
        if (is_float(t) && s == 2)
            b.prescale = 2, b.postscale = 0.5;
        rc = reduce_once(r, &b, sizes[s], in_place);
        b.coll = COLL_REDUCESCATTER;
        if (rc == 0)
            rc = scatter_once(r, &b, sizes[s], !in_place);
        b.coll = COLL_REDUCE;
        b.root = (uint32_t)(s + (size_t)t + (size_t)op) % r->size;
        if (rc == 0)
            rc = reduce_once(r, &b, sizes[s], in_place);
    }
    return rc;
}

static int body_reductions(struct rank *r)
{
    int rc = 0;
    for (int op = 0; op < OP_COUNT; op++)
        for (int t = 0; t < DT_COUNT && rc == 0; t++)
            if (op != OP_ADASUM && reduction_supported(op, t))
                rc = reduce_pair(r, op, t);
    return rc;
}

/* --- moving: allgather, gather, alltoall --- */

static void block_fill(uint8_t *p, uint64_t n, uint32_t from, uint32_t to, size_t k)
{
    for (uint64_t i = 0; i < n; i++)
        p[i] = (uint8_t)word_mix(from * 64 + to, k, i);
}

static bool
block_holds(const uint8_t *p, uint64_t n, uint32_t from, uint32_t to, size_t k)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] != (uint8_t)word_mix(from * 64 + to, k, i))
            return false;
    return true;
}

static int gather_once(struct rank *r, struct batch *b, uint64_t n)
{
    uint64_t counts[N_ITEMS][WORLD_MAX], total[N_ITEMS] = {0};
    struct batch_item it[N_ITEMS];
    uint8_t *in[N_ITEMS], *out[N_ITEMS];
    size_t es = dtype_size(b->dtype);
    bool gets_it = b->coll == COLL_ALLGATHER || b->root == r->rank;
    b->items = it;
    b->n_items = N_ITEMS;
    for (size_t k = 0; k < N_ITEMS; k++) {
        for (uint32_t j = 0; j < r->size; j++) {
            counts[k][j] = k == 1 ? j : n == 0 && j % 2 == 0 ? 0 : n / 2 + j * n / 8;
            total[k] += counts[k][j];
        }
        uint64_t mine = counts[k][r->rank];
        in[k] = bytes_new(mine * es);
        out[k] = bytes_new(total[k] * es);
        block_fill(in[k], mine * es, r->rank, 0, k);
        it[k] = (struct batch_item){.in = in[k],
                                    .out = gets_it ? out[k] : NULL,
                                    .count = mine,
                                    .counts = counts[k]};
    }
    int rc = rank_post(r, b);
    for (size_t k = 0; k < N_ITEMS; k++) {
        const uint8_t *p = out[k];
        for (uint32_t j = 0; j < r->size && rc == 0 && gets_it; j++) {
            if (!block_holds(p, counts[k][j] * es, j, 0, k))
                rc = rank_wrong(r, b, "wrong block", j);
            p += counts[k][j] * es;
        }
        if (rc == 0 && (*p != GUARD || out[k][total[k] * es] != GUARD))
            rc = rank_wrong(r, b, "wrote past the end", n);
        if (rc == 0 && !block_holds(in[k], counts[k][r->rank] * es, r->rank, 0, k))
            rc = rank_wrong(r, b, "changed its input", n);
        free(in[k]);
        free(out[k]);
    }
    return rc;
}

/* What `from` sends `to` of item k: uneven, some nothing, some much; of the second item
 * only the first member sends, and only to the last. */
static uint64_t
block_bytes(uint32_t size, size_t k, uint64_t n, uint32_t from, uint32_t to)
{
    if (k == 1)
        return from == 0 && to == size - 1 ? 5 : 0;
    if (n == 0 || (from + 2 * to) % 4 == 3)
        return 0;
    return n / (1 + (from + to) % 3) + (from * 5 + to * 3) % 7;
}

static int alltoall_once(struct rank *r, struct batch *b, uint64_t n)
{
    uint64_t out_n[N_ITEMS][WORLD_MAX], in_n[N_ITEMS][WORLD_MAX];
    struct batch_item it[N_ITEMS];
    uint8_t *in[N_ITEMS], *out[N_ITEMS];
    size_t es = dtype_size(b->dtype);
    b->items = it;
    b->n_items = N_ITEMS;
    for (size_t k = 0; k < N_ITEMS; k++) {
        uint64_t sum_in = 0, sum_out = 0;
        for (uint32_t j = 0; j < r->size; j++) {
            sum_in += in_n[k][j] = block_bytes(r->size, k, n, r->rank, j);
            sum_out += out_n[k][j] = block_bytes(r->size, k, n, j, r->rank);
        }
        uint8_t *p = in[k] = bytes_new(sum_in * es);
        out[k] = bytes_new(sum_out * es);
        for (uint32_t j = 0; j < r->size; p += in_n[k][j++] * es)
            block_fill(p, in_n[k][j] * es, r->rank, j, k);
        it[k] = (struct batch_item){.in = in[k],
                                    .out = out[k],
                                    .count = sum_in,
                                    .counts = out_n[k],
                                    .send_counts = in_n[k]};
    }
    int rc = rank_post(r, b);
    for (size_t k = 0; k < N_ITEMS; k++) {
        const uint8_t *p = out[k];
        for (uint32_t j = 0; j < r->size && rc == 0; p += out_n[k][j++] * es)
            if (!block_holds(p, out_n[k][j] * es, j, r->rank, k))
                rc = rank_wrong(r, b, "wrong block", j);
        if (rc == 0 && *p != GUARD)
            rc = rank_wrong(r, b, "wrote past the end", n);
        p = in[k];
        for (uint32_t j = 0; j < r->size && rc == 0; p += in_n[k][j++] * es)
            if (!block_holds(p, in_n[k][j] * es, r->rank, j, k))
                rc = rank_wrong(r, b, "changed its input", j);
        free(in[k]);
        free(out[k]);
    }
    return rc;
}

/* Items of n, 5 and 0 elements; the root's own output is checked too. */
static int broadcast_once(struct rank *r, struct batch *b, uint64_t n, bool in_place)
{
    const uint64_t counts[] = {n, 5};
    struct batch_item it[N_ITEMS + 1] = {{0}};
    uint8_t *in[N_ITEMS], *out[N_ITEMS];
    size_t es = dtype_size(b->dtype);
    b->items = it;
    b->n_items = N_ITEMS + 1;
    for (size_t k = 0; k < N_ITEMS; k++) {
        in[k] = bytes_new(counts[k] * es);
        out[k] = in_place ? in[k] : bytes_new(counts[k] * es);
        block_fill(in[k], counts[k] * es, r->rank, 0, k);
        it[k] = (struct batch_item){.in = in[k], .out = out[k], .count = counts[k]};
    }
    int rc = rank_post(r, b);
    for (size_t k = 0; k < N_ITEMS; k++) {
        if (rc == 0 && !block_holds(out[k], counts[k] * es, b->root, 0, k))
            rc = rank_wrong(r, b, "wrong element", n);
        if (rc == 0 && out[k][counts[k] * es] != GUARD)
            rc = rank_wrong(r, b, "wrote past the end", n);
        if (!in_place)
            free(out[k]);
        free(in[k]);
    }
    return rc;
}

/* Only the size of the elements matters. */
static int body_moves(struct rank *r)
{
    static const enum dtype types[] = {DT_U8, DT_BF16, DT_I32, DT_F64};
    int rc = 0;
    for (size_t k = 0; k < 4; k++)
        for (size_t s = 0; s < n_sizes(r, k == 1); s++) {
            struct batch b = {.dtype = types[k], .coll = COLL_ALLGATHER};
            if (rc == 0)
                rc = gather_once(r, &b, sizes[s]);
            b.coll = COLL_ALLTOALL;
            if (rc == 0)
                rc = alltoall_once(r, &b, sizes[s]);
            for (b.root = 0; b.root < r->size && rc == 0; b.root++) {
                b.coll = COLL_GATHER;
                rc = gather_once(r, &b, sizes[s]);
                b.coll = COLL_BROADCAST;
                if (rc == 0)
                    rc = broadcast_once(r, &b, sizes[s], (k + b.root) & 1);
            }
        }
    return rc;
}

/* --- sequences: one operation must not disturb the next --- */

static int body_mixed_up(struct rank *r)
{
    static const enum collective colls[] = {
        COLL_ALLREDUCE, COLL_REDUCE,    COLL_REDUCESCATTER, COLL_GATHER,
        COLL_ALLTOALL,  COLL_ALLGATHER, COLL_BROADCAST};
    static const uint64_t counts[] = {1, 300, 4000, 9000, 0, 60000};
    uint64_t x = 88172645463325252ull;
    int rc = 0;
    for (int i = 0; i < 120 && rc == 0; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* the same on every rank */
        struct batch b = {.coll = colls[x % 7],
                          .dtype = x >> 8 & 1 ? DT_I16 : DT_F64,
                          .op = x >> 9 & 1 ? OP_SUM : OP_MAX,
                          .root = (uint32_t)(x >> 16) % r->size};
        uint64_t n = counts[(x >> 24) % 6];
        if (b.coll == COLL_ALLREDUCE || b.coll == COLL_REDUCE)
            rc = reduce_once(r, &b, n, x >> 10 & 1);
        else if (b.coll == COLL_REDUCESCATTER)
            rc = scatter_once(r, &b, n, x >> 10 & 1);
        else if (b.coll == COLL_ALLTOALL)
            rc = alltoall_once(r, &b, n);
        else if (b.coll == COLL_BROADCAST)
            rc = broadcast_once(r, &b, n, x >> 10 & 1);
        else
            rc = gather_once(r, &b, n);
    }
    return rc;
}

static int body_refused(struct rank *r)
{
    static const struct {
        enum collective coll;
        enum reduce_op op;
        enum dtype t;
        uint32_t root;
        const char *says;
    } rows[] = {
        {COLL_ALLREDUCE, OP_AVERAGE, DT_BOOL, 0,
         "batch: ALLREDUCE with AVERAGE of bool is not supported"},
        {COLL_ALLREDUCE, OP_ADASUM, DT_I32, 0,
         "batch: ADASUM of int32 is not supported"},
        {COLL_REDUCESCATTER, OP_ADASUM, DT_F32, 0,
         "batch: REDUCESCATTER with ADASUM of float32 is not supported"},
        {COLL_REDUCE, OP_SUM, DT_F32, 9, "batch: REDUCE from root 9 of 1 members"},
        {COLL_GATHER, OP_SUM, DT_F32, 1, "batch: GATHER from root 1 of 1 members"},
        {COLL_ALLTOALL, OP_SUM, DT_COUNT, 0, "batch: dtype 11 is unknown"},
        {COLL_JOIN, OP_SUM, DT_F32, 0, "batch: JOIN is not supported"},
    };
    size_t i = *(const size_t *)r->arg;
    struct err err = ERR_INIT;
    struct batch_item it = {0};
    struct batch b = {.coll = rows[i].coll,
                      .op = rows[i].op,
                      .dtype = rows[i].t,
                      .root = rows[i].root,
                      .items = &it,
                      .n_items = 1};
    if (run_batch(r, &b, &err) != -EINVAL || strcmp(err.text, rows[i].says) != 0)
        return SAY(r, "row %zu says: %s", i, err.text);
    return 0;
}

/* --- worlds --- */

static void world_expect(
    int (*body)(struct rank *r), uint32_t n, bool tcp, const char *hosts, bool is_big)
{
    struct world w = {.body = body, .timeout_s = 100, .arg = &is_big};
    world_check(&w, n, tcp, hosts);
}

static void worlds_run(int (*body)(struct rank *r))
{
    static const uint32_t n[] = {1, 2, 3, 4, 5, 7};
    static const char *const mixtures[] = {"abb", "aabb", "abaab", "abacbaa"};
    for (size_t i = 0; i < ARRAY_LEN(n); i++)
        world_expect(body, n[i], false, NULL, n[i] == 2);
    for (size_t i = 1; i < ARRAY_LEN(n); i++)
        world_expect(body, n[i], true, NULL, false);
    for (size_t i = 0; i < ARRAY_LEN(mixtures); i++)
        world_expect(body, (uint32_t)strlen(mixtures[i]), false, mixtures[i], i == 0);
}

UNIT_TEST(reductions_match_one_reduction_over_all)
{
    worlds_run(body_reductions);
}

UNIT_TEST(moved_blocks_arrive_unchanged)
{
    worlds_run(body_moves);
}

UNIT_TEST(operations_leave_nothing_behind)
{
    worlds_run(body_mixed_up);
}

UNIT_TEST(unsupported_batches_are_refused)
{
    for (size_t i = 0; i < 7; i++) {
        struct world w = {.body = body_refused, .timeout_s = 20, .arg = &i};
        world_check(&w, 1, false, NULL);
    }
}

UNIT_MAIN(NULL, NULL)
