/* SPDX-License-Identifier: Apache-2.0 */
/* The order of summation, with floats that round, so that any other order changes bits:
 * a tensor's result does not depend on what it is fused with, nor on whether its sum
 * goes to all members, to one or in parts. */
#include <math.h>

#include "tests/unit/unit.h"

#include "tests/unit/cpu_world.h"

static int
rank_wrong(struct rank *r, const struct batch *b, const char *what, uint64_t n)
{
    return SAY(r, "%s n=%llu of %u: %s", collective_name(b->coll),
               (unsigned long long)n, r->size, what);
}

static int rank_post(struct rank *r, struct batch *b)
{
    struct err err = ERR_INIT;
    return run_batch(r, b, &err) < 0 ? rank_wrong(r, b, err.text, 0) : 0;
}

static float rank_noise(uint32_t rank, uint64_t i)
{
    uint64_t x = (i * 8 + rank + 1) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 32;
    return ldexpf((float)(x >> 40) - (1 << 23), (int)(x & 15) - 30);
}

/* Start of member j's part. */
static uint64_t part_cut(uint64_t n, uint32_t size, uint32_t j)
{
    return n * j / size;
}

/* The bits do not depend on autotune's settings. */
static int rank_run_tuned(struct rank *r, struct batch *b, const float *want)
{
    static const struct tuning all[] = {
        {.whole_bytes = 64, .chunk_bytes = 64},
        {.whole_bytes = 64, .chunk_bytes = 100000},
        {.whole_bytes = 1ull << 40, .chunk_bytes = 4096},
        {.whole_bytes = 5000, .chunk_bytes = 1ull << 40},
        {0}};
    uint64_t n = b->items[0].count;
    float *out = malloc(n * 4 + 4);
    struct batch_item it = {.in = b->items[0].in, .out = out, .count = n};
    struct batch again = *b;
    int rc = 0;
    again.items = &it;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all) && rc == 0; i++) {
        (void)r->b->ops->tune(r->b, &all[i]);
        memset(out, 0, n * 4);
        rc = rank_post(r, &again);
        if (rc == 0 && memcmp(out, want, n * 4) != 0)
            rc = rank_wrong(r, b, "tuned it is another", i);
    }
    free(out);
    return rc;
}

/* The tensor alone by allreduce; with other settings; then behind another one, reduced,
 * and scattered: the same bits each time. With one rank per host or one host they are
 * those of the sum in member order. */
static int order_once(struct rank *r, uint64_t n, uint64_t before)
{
    float *in = malloc((n + before) * 4 + 4), *alone = malloc(n * 4 + 4);
    float *out = malloc((n + before) * 4 + 4);
    uint64_t counts[2][WORLD_MAX];
    struct batch_item it[2] = {{.in = in + before, .out = alone, .count = n}};
    struct batch b = {.op = OP_SUM, .dtype = DT_F32, .items = it, .n_items = 1};
    bool is_in_order = *(const bool *)r->arg;
    for (uint64_t i = 0; i < n + before; i++)
        in[i] = rank_noise(r->rank, i < before ? i + 1000000 : i - before);
    b.coll = COLL_ALLREDUCE;
    int rc = rank_post(r, &b);
    for (uint64_t i = 0; i < n && rc == 0 && is_in_order; i++) {
        float want = rank_noise(0, i);
        for (uint32_t k = 1; k < r->size; k++)
            want += rank_noise(k, i);
        if (memcmp(&want, &alone[i], 4) != 0)
            rc = rank_wrong(r, &b, "not summed in member order", i);
    }
    if (rc == 0)
        rc = rank_run_tuned(r, &b, alone);
    it[0] = (struct batch_item){.in = in, .out = out, .count = before};
    it[1] = (struct batch_item){.in = in + before, .out = out + before, .count = n};
    b.n_items = 2;
    if (rc == 0)
        rc = rank_post(r, &b);
    if (rc == 0 && memcmp(out + before, alone, n * 4) != 0)
        rc = rank_wrong(r, &b, "fused it is another", n);
    b.coll = COLL_REDUCE;
    b.root = r->size - 1;
    if (rc == 0)
        rc = rank_post(r, &b);
    if (rc == 0 && b.root == r->rank && memcmp(out + before, alone, n * 4) != 0)
        rc = rank_wrong(r, &b, "reduced it is another", n);
    b.coll = COLL_REDUCESCATTER;
    for (uint32_t j = 0; j < r->size; j++) {
        counts[0][j] = part_cut(before, r->size, j + 1) - part_cut(before, r->size, j);
        counts[1][j] = part_cut(n, r->size, j + 1) - part_cut(n, r->size, j);
    }
    it[0].counts = counts[0];
    it[1].counts = counts[1];
    if (rc == 0)
        rc = rank_post(r, &b);
    if (rc == 0
        && memcmp(out + before, alone + part_cut(n, r->size, r->rank),
                  counts[1][r->rank] * 4)
               != 0)
        rc = rank_wrong(r, &b, "scattered it is another", n);
    free(in);
    free(alone);
    free(out);
    return rc;
}

static int body_order(struct rank *r)
{
    static const uint64_t n[] = {5, 3001, 70001, 400003}, before[] = {3, 1, 100001, 17};
    int rc = 0;
    for (int i = 0; i < 4 && rc == 0; i++)
        rc = order_once(r, n[i], before[i]);
    return rc;
}

static void world_expect(uint32_t n, bool tcp, const char *hosts, bool is_in_order)
{
    struct world w = {.body = body_order, .timeout_s = 60, .arg = &is_in_order};
    world_check(&w, n, tcp, hosts);
}

UNIT_TEST(order_of_summation_is_fixed)
{
    for (uint32_t n = 2; n <= 5; n++) {
        world_expect(n, false, NULL, true);
        world_expect(n, true, NULL, true); /* one rank a host: in member order, too */
    }
    world_expect(4, false, "aabb", false);
    world_expect(5, false, "abcab", false);
}

UNIT_MAIN(NULL, NULL)
