/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective of the cpu backend, with forked ranks: all dtypes, odd sizes, fused
 * batches, in place and not, over shared memory, TCP and both mixed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/backend/cpu/half.h"
#include "tests/unit/cpu_world.h"

static const uint64_t sizes[] = {0, 1, 7, 1024, 65537, (1u << 20) + 3};
enum { N_SIZES = sizeof(sizes) / sizeof(*sizes) };

/* The largest size costs most of the time here: three types stand for all. */
static size_t n_sizes(int t)
{
    return t == DT_F32 || t == DT_BF16 || t == DT_I64 ? N_SIZES : N_SIZES - 1;
}

static double rank_input(uint32_t rank, uint64_t i)
{
    return (double)((int)(i % 7) - 3 + (int)rank * 2);
}

static void element_put(enum dtype t, void *p, uint64_t i, double x)
{
    if (t == DT_I32)
        ((int32_t *)p)[i] = (int32_t)x;
    else if (t == DT_I64)
        ((int64_t *)p)[i] = (int64_t)x;
    else if (t == DT_F16)
        ((uint16_t *)p)[i] = f16_of_f32((float)x);
    else if (t == DT_BF16)
        ((uint16_t *)p)[i] = bf16_of_f32((float)x);
    else if (t == DT_F32)
        ((float *)p)[i] = (float)x;
    else if (t == DT_F64)
        ((double *)p)[i] = x;
    else if (dtype_size(t) == 2)
        ((uint16_t *)p)[i] = (uint16_t)(int16_t)x;
    else
        ((uint8_t *)p)[i] = (uint8_t)(int8_t)x;
}

static double element_get(enum dtype t, const void *p, uint64_t i)
{
    return t == DT_I32    ? ((const int32_t *)p)[i]
           : t == DT_I64  ? (double)((const int64_t *)p)[i]
           : t == DT_F16  ? (double)f32_of_f16(((const uint16_t *)p)[i])
           : t == DT_BF16 ? (double)f32_of_bf16(((const uint16_t *)p)[i])
           : t == DT_F32  ? (double)((const float *)p)[i]
                          : ((const double *)p)[i];
}

static double double_abs(double x)
{
    return x < 0 ? -x : x;
}

/* prescale and postscale are powers of two or 1, so only AVERAGE needs a tolerance. */
static int check_reduced(struct rank *r,
                         const struct batch *b,
                         const void *out,
                         uint64_t n,
                         const char *what)
{
    bool is_int = b->dtype == DT_I32 || b->dtype == DT_I64;
    for (uint64_t i = 0; i < n; i++) {
        double want = 0;
        for (uint32_t k = 0; k < r->size; k++)
            want += is_int ? (double)(int64_t)(rank_input(k, i) * b->prescale)
                           : rank_input(k, i) * b->prescale;
        if (b->op == OP_AVERAGE)
            want /= r->size;
        want = is_int ? (double)(int64_t)want * b->postscale : want * b->postscale;
        double got = element_get(b->dtype, out, i), tol = double_abs(want) / 100;
        if (b->op == OP_SUM ? got != want : double_abs(got - want) > tol)
            return SAY(r, "%s %s %s n=%llu: [%llu] is %g, not %g", what,
                       dtype_name(b->dtype), reduce_op_name(b->op),
                       (unsigned long long)n, (unsigned long long)i, got, want);
    }
    return 0;
}

static int allreduce_once(struct rank *r,
                          enum dtype t,
                          uint64_t n,
                          enum reduce_op op,
                          bool in_place,
                          double pre,
                          double post)
{
    struct err err = ERR_INIT;
    size_t es = dtype_size(t);
    uint8_t *in = malloc(n * es + 1);
    uint8_t *out = in_place ? in : malloc(n * es + 1);
    struct batch_item it = {.in = in, .out = out, .count = n};
    struct batch b = {.coll = COLL_ALLREDUCE,
                      .dtype = t,
                      .op = op,
                      .prescale = pre,
                      .postscale = post,
                      .items = &it,
                      .n_items = 1};
    for (uint64_t i = 0; i < n; i++)
        element_put(t, in, i, rank_input(r->rank, i));
    out[n * es] = 0x5a;
    int rc = run_batch(r, &b, &err);
    if (rc < 0)
        rc = SAY(r, "allreduce: %s", err.text);
    if (rc == 0)
        rc = check_reduced(r, &b, out, n, in_place ? "in place" : "out of place");
    if (rc == 0 && out[n * es] != 0x5a)
        rc = SAY(r, "allreduce wrote past the end");
    for (uint64_t i = 0; i < n && !in_place && rc == 0; i++)
        if (element_get(t, in, i) != rank_input(r->rank, i))
            rc = SAY(r, "allreduce changed its input");
    if (!in_place)
        free(out);
    free(in);
    return rc;
}

static int body_allreduce(struct rank *r)
{
    const enum dtype types[] = {DT_F16, DT_BF16, DT_F32, DT_F64, DT_I32, DT_I64};
    for (size_t d = 0; d < 6; d++)
        for (size_t s = 0; s < n_sizes((int)types[d]); s++) {
            uint64_t n = sizes[s];
            int rc = allreduce_once(r, types[d], n, OP_SUM, d & 1, 1, 1);
            if (rc == 0)
                rc = allreduce_once(r, types[d], n, OP_AVERAGE, !(d & 1), 1, 1);
            if (rc == 0 && n < 100000)
                rc = allreduce_once(r, types[d], n, OP_SUM, true, 2, 0.5);
            if (rc == 0 && n < 100000)
                rc = allreduce_once(r, types[d], n, OP_AVERAGE, false, 4, 2);
            if (rc != 0)
                return rc;
        }
    return 0;
}

/* Fused: empty, tiny, odd and large tensors in one batch. */
static int body_fused(struct rank *r)
{
    const uint64_t counts[] = {3, 0, 1, 65537, 17, 300001, 0, 5, 1024, 2};
    enum { N = sizeof(counts) / sizeof(*counts) };
    const enum dtype types[] = {DT_BF16, DT_F32, DT_I64};
    for (int round = 0; round < 6; round++) {
        enum dtype t = types[round % 3];
        size_t n = round < 3 ? N : 3; /* 3 of them make a small batch */
        struct batch_item it[N];
        struct err err = ERR_INIT;
        struct batch b = {.coll = COLL_ALLREDUCE,
                          .dtype = t,
                          .op = OP_SUM,
                          .prescale = 2,
                          .items = it,
                          .n_items = n};
        for (size_t k = 0; k < n; k++) {
            uint8_t *p = malloc(counts[k] * 8 + 8);
            it[k] = (struct batch_item){.in = p, .out = p, .count = counts[k]};
            for (uint64_t i = 0; i < counts[k]; i++)
                element_put(t, p, i, rank_input(r->rank, i));
        }
        int rc = run_batch(r, &b, &err);
        if (rc < 0)
            rc = SAY(r, "fused: %s", err.text);
        for (size_t k = 0; k < n; k++) {
            if (rc == 0)
                rc = check_reduced(r, &b, it[k].out, counts[k], "fused");
            free(it[k].out);
        }
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int
broadcast_once(struct rank *r, enum dtype t, uint64_t n, uint32_t root, bool in_place)
{
    struct err err = ERR_INIT;
    size_t es = dtype_size(t);
    uint8_t *in = malloc(n * es + 1), *want = malloc(n * es + 1);
    uint8_t *out = in_place ? in : calloc(1, n * es + 1);
    uint8_t two[3] = {1, 2, 3}, two_out[3] = {0};
    struct batch_item it[] = {{.in = in, .out = out, .count = n},
                              {.in = two, .out = two_out, .count = 3 / es}};
    struct batch b = {
        .coll = COLL_BROADCAST, .dtype = t, .root = root, .items = it, .n_items = 2};
    for (uint64_t i = 0; i < n; i++) {
        element_put(t, in, i, rank_input(r->rank, i));
        element_put(t, want, i, rank_input(root, i));
    }
    int rc = run_batch(r, &b, &err);
    if (rc < 0)
        rc = SAY(r, "broadcast: %s", err.text);
    else if (memcmp(out, want, n * es) != 0 || memcmp(two, two_out, 3 / es * es) != 0)
        rc = SAY(r, "broadcast %s n=%llu: wrong", dtype_name(t), (unsigned long long)n);
    if (!in_place)
        free(out);
    free(in);
    free(want);
    return rc;
}

static int body_broadcast(struct rank *r)
{
    for (int t = 0; t < DT_COUNT; t++)
        for (size_t s = 0; s < n_sizes(t); s++)
            for (uint32_t root = 0; root<r->size; root += r->size> 2 ? 2 : 1) {
                int rc = broadcast_once(r, (enum dtype)t, sizes[s], root, t & 1);
                if (rc != 0)
                    return rc;
            }
    return 0;
}

/* Rank k gives n + k elements (none if n is 0 and k even) of item 0, k of item 1. */
static int allgather_once(struct rank *r, enum dtype t, uint64_t n)
{
    struct err err = ERR_INIT;
    size_t es = dtype_size(t);
    uint64_t counts[2][WORLD_MAX], total[2] = {0, 0};
    for (uint32_t k = 0; k < r->size; k++) {
        counts[0][k] = n == 0 && k % 2 == 0 ? 0 : n + k;
        counts[1][k] = k;
        for (int i = 0; i < 2; i++)
            total[i] += counts[i][k];
    }
    uint8_t *in[2], *out[2];
    struct batch_item it[2];
    for (int i = 0; i < 2; i++) {
        in[i] = malloc(counts[i][r->rank] * es + 1);
        out[i] = malloc(total[i] * es + 1);
        it[i] = (struct batch_item){.in = in[i],
                                    .out = out[i],
                                    .count = counts[i][r->rank],
                                    .counts = counts[i]};
        for (uint64_t k = 0; k < counts[i][r->rank]; k++)
            element_put(t, in[i], k, rank_input(r->rank, k));
    }
    struct batch b = {.coll = COLL_ALLGATHER, .dtype = t, .items = it, .n_items = 2};
    int rc = run_batch(r, &b, &err);
    if (rc < 0)
        rc = SAY(r, "allgather: %s", err.text);
    for (int i = 0; i < 2 && rc == 0; i++) {
        const uint8_t *p = out[i];
        for (uint32_t k = 0; k < r->size; k++)
            for (uint64_t e = 0; e < counts[i][k] && rc == 0; e++, p += es) {
                uint8_t want[8];
                element_put(t, want, 0, rank_input(k, e));
                if (memcmp(p, want, es) != 0)
                    rc = SAY(r, "allgather %s: block %u wrong", dtype_name(t), k);
            }
    }
    for (int i = 0; i < 2; i++) {
        free(in[i]);
        free(out[i]);
    }
    return rc;
}

static int body_allgather(struct rank *r)
{
    for (int t = 0; t < DT_COUNT; t++)
        for (size_t s = 0; s < n_sizes(t); s++) {
            int rc = allgather_once(r, (enum dtype)t, sizes[s]);
            if (rc != 0)
                return rc;
        }
    return 0;
}

/* Nobody leaves before the last has entered; and thousands of operations in a row,
 * mixed. */
static int body_barrier(struct rank *r)
{
    struct err err = ERR_INIT;
    struct batch b = {.coll = COLL_BARRIER};
    for (unsigned i = 1; i <= 50; i++) {
        atomic_fetch_add(&r->m->flag, 1);
        if (run_batch(r, &b, &err) < 0)
            return SAY(r, "barrier: %s", err.text);
        if (atomic_load(&r->m->flag) < i * r->size)
            return SAY(r, "barrier %u was left early", i);
        if (run_batch(r, &b, &err) < 0) /* so that nobody counts ahead */
            return SAY(r, "barrier: %s", err.text);
    }
    for (int i = 0; i < 120; i++) {
        int rc = allreduce_once(r, DT_F32, (uint64_t)(i % 40), OP_SUM, true, 1, 1);
        if (rc == 0 && i % 7 == 0)
            rc = broadcast_once(r, DT_F32, 20000, (uint32_t)i % r->size, true);
        if (rc == 0 && i % 50 == 0)
            rc = allreduce_once(r, DT_F32, 600000, OP_SUM, true, 1, 1);
        if (rc == 0 && i % 11 == 0)
            rc = allgather_once(r, DT_F32, (uint64_t)i * 100);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int (*const bodies[])(struct rank *r) = {
    body_allreduce, body_fused, body_broadcast, body_allgather, body_barrier};

static int body_all(struct rank *r)
{
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        int rc = bodies[i](r);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static void world_expect(uint32_t n, bool tcp, const char *const *host_id)
{
    struct world w = {
        .size = n, .tcp = tcp, .body = body_all, .timeout_s = 60, .other_token = -1};
    for (uint32_t i = 0; host_id != NULL && i < n; i++)
        w.host_id[i] = host_id[i];
    assert_int_equal(world_run(&w), 0);
}

static void one_rank_alone(void **state)
{
    (void)state;
    world_expect(1, false, NULL);
}

static void shared_memory_2_3_4_7(void **state)
{
    (void)state;
    world_expect(2, false, NULL);
    world_expect(3, false, NULL);
    world_expect(4, false, NULL);
    world_expect(7, false, NULL);
}

static void tcp_2_3_4_7(void **state)
{
    (void)state;
    world_expect(2, true, NULL);
    world_expect(3, true, NULL);
    world_expect(4, true, NULL);
    world_expect(7, true, NULL);
}

static void mixed_hosts(void **state)
{
    (void)state;
    const char *const two_by_two[] = {"a", "a", "b", "b"};
    const char *const interleaved[] = {"a", "b", "a", "c", "b", "a", "a"};
    world_expect(4, false, two_by_two);
    world_expect(7, false, interleaved);
}

static int body_mixed_with_one_apart(struct rank *r)
{
    int rc = allreduce_once(r, DT_F32, 100000, OP_SUM, true, 1, 1);
    if (rc == 0)
        rc = broadcast_once(r, DT_U8, 100000, 1, true);
    if (rc == 0)
        rc = allgather_once(r, DT_F64, 1000);
    return rc;
}

/* Another user's rank is refused shared memory; all agree that it is a host of its own.
 * To be another user's, a process of the test needs root. */
static void needs_root_refused_rank_uses_tcp(void **state)
{
    (void)state;
    struct world w = {.size = 4,
                      .uid = {0, 0, 65534, 0},
                      .body = body_mixed_with_one_apart,
                      .timeout_s = 30,
                      .other_token = -1};
    assert_int_equal(world_run(&w), 0);
    w.uid[2] = 0, w.uid[0] = 65534; /* the leader itself is the odd one */
    assert_int_equal(world_run(&w), 0);
}

/* Rank 1 sends x, which is the same on both, with other ends; then it is as before. */
static int send_back(struct rank *r, const struct batch *like, uint16_t *x)
{
    struct batch_item it = like->items[0];
    struct batch b = *like;
    struct err err = ERR_INIT;
    uint64_t n = it.count;
    uint16_t inner = x[0], ends = (uint16_t)(inner + 1);
    b.items = &it;
    b.coll = COLL_SENDRECV;
    b.root = 1;
    x[0] = x[n - 1] = r->rank == 1 ? ends : 0;
    it.in = r->rank == 1 ? x : NULL;
    it.out = r->rank == 1 ? NULL : x;
    if (run_batch(r, &b, &err) < 0)
        return SAY(r, "sendrecv: %s", err.text);
    for (uint64_t i = 0; i < n; i++)
        if (x[i] != (i == 0 || i == n - 1 ? ends : inner))
            return SAY(r, "sendrecv: element %llu", (unsigned long long)i);
    x[0] = x[n - 1] = inner;
    return 0;
}

/* Beyond what 32 bits count, in bytes and in elements of two bytes. */
static int body_big(struct rank *r)
{
    const uint64_t n = (1ull << 31) + 3;
    const uint16_t one = bf16_of_f32(1), two = bf16_of_f32(2), four = bf16_of_f32(4);
    struct err err = ERR_INIT;
    uint16_t *x = malloc(n * 2);
    struct batch_item it = {.in = x, .out = x, .count = n};
    struct batch b = {.coll = COLL_BROADCAST,
                      .dtype = DT_BF16,
                      .op = OP_SUM,
                      .items = &it,
                      .n_items = 1};
    if (!x)
        return SAY(r, "no memory");
    for (uint64_t i = 0; i < n; i++)
        x[i] = r->rank == 0 ? one : two;
    if (run_batch(r, &b, &err) < 0)
        return SAY(r, "broadcast: %s", err.text);
    for (uint64_t i = 0; i < n; i++)
        if (x[i] != one)
            return SAY(r, "broadcast: element %llu", (unsigned long long)i);
    if (send_back(r, &b, x) != 0)
        return 1;
    b.coll = COLL_ALLREDUCE;
    if (run_batch(r, &b, &err) < 0)
        return SAY(r, "allreduce: %s", err.text);
    for (uint64_t i = 0; i < n; i++)
        if (x[i] != two)
            return SAY(r, "allreduce: element %llu", (unsigned long long)i);
    /* each its half, where it lies; then back to where it came from, as blocks */
    uint64_t half[2] = {n / 2 + 1, n / 2}, mine = half[r->rank];
    uint16_t *own = x + (r->rank == 0 ? 0 : half[0]);
    it.out = own;
    it.counts = half;
    b.coll = COLL_REDUCESCATTER;
    if (run_batch(r, &b, &err) < 0)
        return SAY(r, "reduce-scatter: %s", err.text);
    for (uint64_t i = 0; i < mine; i++)
        if (own[i] != four)
            return SAY(r, "reduce-scatter: element %llu", (unsigned long long)i);
    uint64_t none_but[2][2] = {{0, 0}, {0, 0}};
    none_but[0][1 - r->rank] = mine;
    none_but[1][1 - r->rank] = half[1 - r->rank];
    it = (struct batch_item){.in = own,
                             .out = r->rank == 0 ? x + half[0] : x,
                             .count = mine,
                             .send_counts = none_but[0],
                             .counts = none_but[1]};
    b.coll = COLL_ALLTOALL;
    if (run_batch(r, &b, &err) < 0)
        return SAY(r, "alltoall: %s", err.text);
    for (uint64_t i = 0; i < n; i++)
        if (x[i] != four)
            return SAY(r, "alltoall: element %llu", (unsigned long long)i);
    free(x);
    return 0;
}

static void needs_memory_beyond_4_gib(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        struct world w = {.size = 2,
                          .tcp = tcp,
                          .body = body_big,
                          .timeout_s = 300,
                          .other_token = -1};
        assert_int_equal(world_run(&w), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_alone),
        cmocka_unit_test(shared_memory_2_3_4_7),
        cmocka_unit_test(tcp_2_3_4_7),
        cmocka_unit_test(mixed_hosts),
        cmocka_unit_test(needs_root_refused_rank_uses_tcp),
        cmocka_unit_test(needs_memory_beyond_4_gib), /* 8 GiB, a minute: test-full */
    };

    if (getenv("HVD_TEST_BIG") != NULL)
        cmocka_set_test_filter("needs_memory_*");
    else if (geteuid() == 0)
        cmocka_set_skip_filter("needs_memory_*");
    else
        cmocka_set_skip_filter("needs_*");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
