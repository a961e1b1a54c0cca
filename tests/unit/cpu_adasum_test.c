/* SPDX-License-Identifier: Apache-2.0 */
/* Adasum on every topology: the identities that define it, the same bits everywhere and
 * for reduce. Its values against numpy: tests/python/ranks/capi_data.py. */
#include <math.h>

#include "tests/unit/unit.h"

#include "tests/unit/cpu_world.h"

/* In [-1, 1], of a length and a direction of its own on each rank. */
static double rank_input(uint32_t rank, uint64_t i)
{
    uint64_t x = (i * 8 + rank + 1) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9ull;
    double noise = (double)(x >> 40) / (1 << 24) * 2 - 1;
    return (0.3 + 0.1 * rank) * noise + (i % 3 == 0 ? 0.25 : -0.125);
}

static int rank_adasum(struct rank *r,
                       enum dtype t,
                       struct batch_item *items,
                       size_t n,
                       double pre,
                       double post)
{
    struct err err = ERR_INIT;
    struct batch b = {.coll = COLL_ALLREDUCE,
                      .op = OP_ADASUM,
                      .dtype = t,
                      .prescale = pre,
                      .postscale = post,
                      .items = items,
                      .n_items = n};
    return run_batch(r, &b, &err) < 0 ? SAY(r, "%s", err.text) : 0;
}

/* To one member, with unchanged inputs: the same bits as to all. */
static int body_reduce(struct rank *r)
{
    enum { M = 3001 };
    float in[M + 2], copy[M + 2], all[M + 2], one[M + 2];
    for (uint64_t i = 0; i < M + 2; i++)
        in[i] = copy[i] = all[i] = (float)rank_input(r->rank, i);
    struct batch_item it[] = {{.in = all, .out = all, .count = M},
                              {.in = all + M, .out = all + M, .count = 2}};
    int rc = rank_adasum(r, DT_F32, it, 2, 1, 0.5);
    for (uint32_t root = 0; root < r->size && rc == 0; root++) {
        struct err err = ERR_INIT;
        bool is_root = root == r->rank;
        it[0] = (struct batch_item){.in = in, .out = is_root ? one : NULL, .count = M};
        it[1] = (struct batch_item){
            .in = in + M, .out = is_root ? one + M : NULL, .count = 2};
        struct batch b = {.coll = COLL_REDUCE,
                          .op = OP_ADASUM,
                          .dtype = DT_F32,
                          .root = root,
                          .postscale = 0.5,
                          .items = it,
                          .n_items = 2};
        if (run_batch(r, &b, &err) < 0)
            rc = SAY(r, "%s", err.text);
        else if (memcmp(in, copy, sizeof(in)) != 0)
            rc = SAY(r, "changed its input");
        else if (is_root && memcmp(one, all, sizeof(one)) != 0)
            rc = SAY(r, "root %u got something else", root);
    }
    return rc;
}

/* Equal vectors: their mean. Orthogonal ones: their sum. Zeros: no effect. */
static int body_identities(struct rank *r)
{
    double x[64], want[64];
    struct batch_item it = {.in = x, .out = x, .count = 64};
    const double pre = 2, post = 0.25;
    for (int kind = 0; kind < 4; kind++) {
        for (uint32_t i = 0; i < 64; i++) {
            double equal = (double)i - 20, mine = i % r->size == r->rank ? 1.0 + i : 0;
            x[i] = kind == 0 ? equal : kind == 1 ? mine : kind == 2 ? 0 : NAN;
            want[i] = kind == 0 ? equal : kind == 1 ? 1.0 + i : 0;
        }
        if (kind == 3 && r->rank > 0) /* one rank's NaN makes the result NaN */
            for (int i = 0; i < 64; i++)
                x[i] = 1;
        int rc = rank_adasum(r, DT_F64, &it, 1, pre, post);
        if (rc != 0)
            return rc;
        for (int i = 0; i < 64; i++)
            if (kind == 3 ? !isnan(x[i]) : fabs(x[i] - pre * post * want[i]) > 1e-12)
                return SAY(r, "kind %d: [%d] is %g, not %g", kind, i, x[i],
                           pre * post * want[i]);
    }
    return 0;
}

/* The bits on this topology, for the parent to compare. */
static int body_digest(struct rank *r)
{
    enum { M = 5001 };
    static float x[M];
    uint64_t sum = 1469598103934665603ull;
    struct batch_item it = {.in = x, .out = x, .count = M};
    for (uint64_t i = 0; i < M; i++)
        x[i] = (float)rank_input(r->rank, i);
    int rc = rank_adasum(r, DT_F32, &it, 1, 1, 1);
    for (size_t i = 0; i < sizeof(x); i++)
        sum = (sum ^ ((const uint8_t *)x)[i]) * 1099511628211ull;
    atomic_store(&r->m->when[r->rank], sum);
    return rc;
}

/* The digest of this world, the same on all ranks. */
static uint64_t world_digest(bool tcp, const char *hosts)
{
    struct world w = {.body = body_digest, .timeout_s = 60};
    world_check(&w, 5, tcp, hosts);
    for (uint32_t i = 1; i < w.size; i++)
        assert_int_equal(w.when[i], w.when[0]);
    return w.when[0];
}

UNIT_TEST(reduce_gives_one_the_same)
{
    worlds_run(body_reduce);
    world_expect(body_reduce, 8, false, NULL); /* three rounds, as with no other size */
}

UNIT_TEST(means_sums_zeros_and_nan)
{
    worlds_run(body_identities);
    world_expect(body_identities, 8, false, NULL);
}

UNIT_TEST(topology_does_not_change_a_bit)
{
    uint64_t digest = world_digest(false, NULL);
    assert_true(digest == world_digest(true, NULL));
    assert_true(digest == world_digest(false, "abaab"));
}

UNIT_MAIN(NULL, NULL)
