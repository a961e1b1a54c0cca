/* SPDX-License-Identifier: Apache-2.0 */
/* The order of summation, with floats that round, so that any other order changes bits:
 * a tensor's result does not depend on what it is fused with, on autotune's settings,
 * on the room of sockets, nor on whether its sum goes to all members, to one or in
 * parts. */
#include <math.h>

#include "tests/unit/unit.h"

#include "tests/unit/cpu_party.h"
#include "tests/unit/seeded.h"

static int
order_wrong(const struct batch *b, const char *what, uint64_t n, struct err *err)
{
    return err_set(err, -EBADMSG, "%s n=%llu: %s", collective_name(b->coll),
                   (unsigned long long)n, what);
}

static float member_noise(uint32_t member, uint64_t i)
{
    uint64_t x = (i * 16 + member + 1) * 0x9e3779b97f4a7c15ull;
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

/* The bits do not depend on autotune's settings, in place or not, nor on scales that
 * round nothing. */
static int
tuned_run(struct backend *c, const struct batch *b, const float *want, struct err *err)
{
    static const struct tuning all[] = {
        {.whole_bytes = 64, .chunk_bytes = 64},
        {.whole_bytes = 64, .chunk_bytes = 100000},
        {.whole_bytes = 1ull << 40, .chunk_bytes = 4096},
        {.whole_bytes = 5000, .chunk_bytes = 1ull << 40},
        {0}};
    const void *in = b->items[0].in;
    uint64_t n = b->items[0].count;
    float *out = malloc(n * 4);
    int rc = 0;
    for (size_t i = 0; i < 2 * ARRAY_LEN(all) && rc == 0; i++) {
        struct batch_item it = {.in = i % 2 ? out : in, .out = out, .count = n};
        struct batch again = *b;
        (void)c->ops->tune(c, &all[i / 2]);
        memcpy(out, in, n * 4);
        again.items = &it;
        again.prescale = i % 3 ? 0.5 : 1;
        again.postscale = i % 3 ? 2 : 1;
        rc = batch_run(c, &again, err);
        if (rc == 0 && memcmp(out, want, n * 4) != 0)
            rc = order_wrong(b, "tuned it is another", i, err);
    }
    free(out);
    return rc;
}

static bool is_in_order; /* a rank is a host, or all are on one: in member order */

/* The tensor alone by allreduce; with other settings; then behind another one, reduced,
 * and scattered: the same bits each time. */
static int
order_once(struct backend *c, uint32_t me, uint64_t n, uint64_t before, struct err *err)
{
    uint32_t size = ((struct cpu *)c)->env.size;
    float *in = malloc((n + before) * 4), *alone = malloc(n * 4);
    float *out = malloc((n + before) * 4);
    uint64_t counts[2][MAX_MEMBERS];
    struct batch_item it[2] = {{.in = in + before, .out = alone, .count = n}};
    struct batch b = {.coll = COLL_ALLREDUCE,
                      .op = OP_SUM,
                      .dtype = DT_F32,
                      .items = it,
                      .n_items = 1};
    for (uint64_t i = 0; i < n + before; i++)
        in[i] = member_noise(me, i < before ? i + 1000000 : i - before);
    int rc = batch_run(c, &b, err);
    for (uint64_t i = 0; i < n && rc == 0 && is_in_order; i++) {
        float want = member_noise(0, i);
        for (uint32_t k = 1; k < size; k++)
            want += member_noise(k, i);
        if (memcmp(&want, &alone[i], 4) != 0)
            rc = order_wrong(&b, "not summed in member order", i, err);
    }
    if (rc == 0)
        rc = tuned_run(c, &b, alone, err);
    it[0] = (struct batch_item){.in = in, .out = out, .count = before};
    it[1] = (struct batch_item){.in = in + before, .out = out + before, .count = n};
    b.n_items = 2;
    if (rc == 0)
        rc = batch_run(c, &b, err);
    if (rc == 0 && memcmp(out + before, alone, n * 4) != 0)
        rc = order_wrong(&b, "fused it is another", n, err);
    b.coll = COLL_REDUCE;
    b.root = size - 1;
    if (rc == 0)
        rc = batch_run(c, &b, err);
    if (rc == 0 && b.root == me && memcmp(out + before, alone, n * 4) != 0)
        rc = order_wrong(&b, "reduced it is another", n, err);
    b.coll = COLL_REDUCESCATTER;
    for (uint32_t j = 0; j < size; j++) {
        counts[0][j] = part_cut(before, size, j + 1) - part_cut(before, size, j);
        counts[1][j] = part_cut(n, size, j + 1) - part_cut(n, size, j);
    }
    it[0].counts = counts[0];
    it[1].counts = counts[1];
    if (rc == 0)
        rc = batch_run(c, &b, err);
    if (rc == 0
        && memcmp(out + before, alone + part_cut(n, size, me), counts[1][me] * 4) != 0)
        rc = order_wrong(&b, "scattered it is another", n, err);
    free(in);
    free(alone);
    free(out);
    return rc;
}

static int body_order(struct backend *b, uint32_t me, struct party *p, char *said)
{
    static const uint64_t n[] = {5, 3001, 70001, 400003}, before[] = {3, 1, 100001, 17};
    for (uint32_t i = 0; i < p->n_rounds; i++) {
        struct err err = ERR_INIT;
        if (order_once(b, me, n[i], before[i], &err) < 0)
            return party_fails(b, said, "order", i, &err);
    }
    return 0;
}

/* The largest takes long under a sanitizer, in the same code. */
enum { MODEST = 3, ALL = FEWER > 1 ? MODEST : 4 };

UNIT_TEST(order_of_summation_is_fixed)
{
    static const char *const in_order[] = {"aa", "aaa", "aaaa", "aaaaa",
                                           "ab", "abc", "abcd", "abcde"};
    static const char *const many[] = {"abcdefghi", "abcdefghij"};
    is_in_order = true;
    for (size_t i = 0; i < ARRAY_LEN(in_order); i++)
        party_run(in_order[i], body_order, ALL);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        party_run(many[i], body_order, MODEST);
    is_in_order = false;
    party_run("aabb", body_order, ALL);
    party_run("abcab", body_order, ALL);
}

static int body_narrow(struct backend *b, uint32_t me, struct party *p, char *said)
{
    party_narrow(b, 32768);
    return body_order(b, me, p, said);
}

UNIT_TEST(full_socket_buffers_do_not_deadlock)
{
    is_in_order = true;
    party_run("ab", body_narrow, ALL); /* all but the first two exceed the buffers */
    party_run("abc", body_narrow, ALL);
}

UNIT_MAIN(NULL, NULL)
