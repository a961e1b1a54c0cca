/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu backend as a whole: barriers, a rank that must not share memory, and batches
 * beyond 4 GiB. Values of every collective are in cpu_coll_test.c. */
#include "tests/unit/unit.h"

#include "runtime/backend/cpu/half.h"
#include "tests/unit/cpu_world.h"

/* No rank leaves before the last has entered. */
static int body_barrier(struct rank *r)
{
    struct err err = ERR_INIT;
    for (unsigned i = 1; i <= 50; i++) {
        atomic_fetch_add(&r->m->flag, 1);
        if (barrier_run(r->b, &err) < 0)
            return SAY(r, "barrier: %s", err.text);
        if (atomic_load(&r->m->flag) < i * r->size)
            return SAY(r, "barrier %u was left early", i);
        if (barrier_run(r->b, &err) < 0) /* so that no rank counts ahead */
            return SAY(r, "barrier: %s", err.text);
    }
    return 0;
}

UNIT_TEST(barrier_waits_for_all)
{
    worlds_run(body_barrier);
}

/* Large enough for every algorithm's slots and chunks. */
static int body_sum(struct rank *r)
{
    enum { N = 100000 };
    float *x = malloc(N * sizeof(*x));
    struct err err = ERR_INIT;
    int rc = 0;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 7 + (int)r->rank);
    if (sum_run(r->b, DT_F32, x, N, &err) < 0)
        rc = SAY(r, "allreduce: %s", err.text);
    for (uint32_t i = 0; i < N && rc == 0; i++)
        if (x[i] != (float)(r->size * (i % 7) + r->size * (r->size - 1) / 2))
            rc = SAY(r, "allreduce: element %u is %g", i, (double)x[i]);
    free(x);
    return rc;
}

/* A rank of another user is refused shared memory; all ranks agree that it is a host of
 * its own. Running a rank as another user requires root. */
UNIT_TEST(needs_root_refused_rank_uses_tcp)
{
    struct world w = {.uid = {0, 0, 65534, 0}, .body = body_sum, .timeout_s = 30};
    world_check(&w, 4, false, NULL);
    w.uid[2] = 0, w.uid[0] = 65534; /* the leader itself */
    world_check(&w, 4, false, NULL);
}

/* Rank 1 sends x, equal on both ranks, with changed ends, which are then restored. */
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
    /* each rank reduces its half in place; then alltoall sends it to the other rank */
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

/* 8 GiB and a minute: part of test-full. */
UNIT_TEST(needs_memory_beyond_4_gib)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct world w = {.body = body_big, .timeout_s = 300};
        world_check(&w, 2, tcp, NULL);
    }
}

int main(void)
{
    if (getenv("HVD_TEST_BIG") != NULL)
        cmocka_set_test_filter("needs_memory_*");
    else if (geteuid() == 0)
        cmocka_set_skip_filter("needs_memory_*");
    else
        cmocka_set_skip_filter("needs_*");
    return unit_run(NULL, NULL);
}
