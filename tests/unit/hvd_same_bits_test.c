/* SPDX-License-Identifier: Apache-2.0 */
/* The same bits from run to run: whatever is fused, whoever comes first, by plan or by
 * negotiation, sums of floating point come out bit for bit as before, and as the sum in
 * the order of ranks says where that can be told. */
#include <time.h>

#include "tests/unit/hvd_world.h"

enum { T = 9, STEPS = 12, ELEMS = 5000 };

static const char *fusion, *cache;
static int n_hosts;
static bool is_lazy; /* ranks come at odd moments */

static uint64_t hash_add(uint64_t h, const void *p, size_t n)
{
    const uint8_t *b = p;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001b3ull;
    return h;
}

static float element_value(int rank, int tensor, int i)
{
    return (float)((rank * 31 + tensor * 17 + i * 7) % 1009) * 1.0e-3f
           + (float)(rank + 1) * 1.0e4f * (float)(i % 3);
}

static int64_t tensor_elements(int tensor)
{
    return tensor == 0 ? ELEMS : 1 + (tensor * 613) % ELEMS;
}

static unsigned random_below(unsigned *state, unsigned n)
{
    *state = *state * 1103515245u + 12345u;
    return (*state >> 16) % n;
}

static void delay_sometimes(unsigned *state)
{
    if (is_lazy && random_below(state, 4) == 0) {
        struct timespec ts = {.tv_nsec = (long)random_below(state, 3000) * 1000};

        (void)nanosleep(&ts, NULL); /* a late rank is what is tested */
    }
}

static void make_order(int *order, unsigned *state)
{
    for (int i = 0; i < T; i++) {
        int j = is_lazy ? (int)random_below(state, (unsigned)i + 1) : i;

        order[i] = order[j];
        order[j] = i;
    }
}

/* 16-bit types: the upper halves of the floats. */
static void tensor_fill(uint8_t *v, int rank, int t, int step, size_t elem_bytes)
{
    for (int64_t i = 0; i < tensor_elements(t); i++) {
        float x = element_value(rank, t, (int)i + step);

        memcpy(v + (size_t)i * elem_bytes,
               (const uint8_t *)&x + sizeof(float) - elem_bytes, elem_bytes);
    }
}

static void sum_body(int rank, int dtype, size_t elem_bytes)
{
    static char name[T][16];
    static uint8_t v[T][ELEMS * sizeof(float)];
    unsigned state = (unsigned)(rank * 7 + is_lazy * 1001 + 1);
    uint64_t h = 0xcbf29ce484222325ull;

    if (n_hosts > 1) {
        char host[16];

        (void)snprintf(host, sizeof(host), "h%d", rank % n_hosts);
        (void)setenv("HVD_HOST_ID", host, 1);
    }
    (void)setenv("HOROVOD_FUSION_THRESHOLD", fusion, 1);
    (void)setenv("HOROVOD_CACHE_CAPACITY", cache, 1);
    CHECK_OK(hvd_init(NULL));
    for (int step = 0; step < STEPS; step++) {
        hvd_handle handle[T];
        int order[T];

        make_order(order, &state);
        for (int k = 0; k < T; k++) {
            int t = order[k];
            int64_t n = tensor_elements(t);
            struct hvd_tensor d = tensor_1d(name[t], dtype, v[t], v[t], &n);

            (void)snprintf(name[t], sizeof(name[t]), "t%d", t);
            tensor_fill(v[t], rank, t, step, elem_bytes);
            delay_sometimes(&state);
            CHECK_OK(hvd_allreduce_async(&d, HVD_SUM, 0.5, 3.0, 0, &handle[t]));
        }
        for (int t = 0; t < T; t++) {
            CHECK_OK(wait_release(handle[t]));
            h = hash_add(h, v[t], (size_t)tensor_elements(t) * elem_bytes);
        }
    }
    (void)snprintf(shared->r[rank].text, 512, "%016llx", (unsigned long long)h);
    CHECK_OK(barrier_now("end"));
    CHECK_OK(hvd_shutdown());
}

RANK_BODY(f32_body)
{
    sum_body(rank, HVD_FLOAT32, 4);
}
RANK_BODY(bf16_body)
{
    sum_body(rank, HVD_BFLOAT16, 2);
}

static void compare_ways(rank_fn body, int size, int hosts)
{
    static const struct {
        const char *fusion, *cache;
        bool is_lazy;
    } ways[] = {{"134217728", "1024", false},
                {"0", "1024", false},
                {"20000", "1024", true},
                {"134217728", "0", true},
                {"134217728", "3", true}};
    char first[32] = "";

    n_hosts = hosts;
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        fusion = ways[w].fusion;
        cache = ways[w].cache;
        is_lazy = ways[w].is_lazy;
        world_run(size, body);
        for (int r = 0; r < size; r++) {
            if (first[0] == 0)
                (void)snprintf(first, sizeof(first), "%s", shared->r[r].text);
            if (strcmp(first, shared->r[r].text) != 0)
                fail_msg("way %zu, rank %d: %s, not %s", w, r, shared->r[r].text,
                         first);
        }
    }
}

UNIT_TEST(in_shared_memory)
{
    compare_ways(f32_body, 4, 1);
    compare_ways(bf16_body, 3, 1);
}

UNIT_TEST(over_tcp)
{
    compare_ways(f32_body, 3, 3);
    compare_ways(bf16_body, 4, 4);
}

UNIT_TEST(in_both)
{
    compare_ways(f32_body, 5, 2);
    compare_ways(bf16_body, 4, 2);
}

UNIT_MAIN(NULL, NULL)
