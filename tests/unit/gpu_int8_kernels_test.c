/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of kernels/int8.cu, compiled for the CPU, bit for bit against the codec
 * of host tensors. */

#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/layout.h"
#include "tests/fakes/cuda/kernels_cpu.h"
#include "tests/unit/gpu_values.h"
#include "tests/unit/unit.h"

enum { MAX_N = 11000, MEMBERS = 3 };

static const uint32_t counts[] = {1, 255, 256, 257, 1000, 5003, MAX_N};
static const uint32_t block_sizes[] = {256, 300, 1000, 1024};
#define N_OF(a) (sizeof(a) / sizeof(a)[0])

static double in[MAX_N];
static float residual[MAX_N], kept[MAX_N];
/* Of an odd size, so that a later message is not aligned. */
static uint8_t wire[MEMBERS * (5 * MAX_N + 1)], want[MEMBERS * (5 * MAX_N + 1)];

/* Some blocks of zeros, of a NaN, of an infinity, of what is too small or very large.
 */
static void values_fill(enum dtype t, uint32_t n, unsigned seed)
{
    for (uint32_t i = 0; i < n; i++) {
        double v = sin(i * 1.7 + seed) * exp(sin(i * 0.01) * 5);
        uint32_t part = (i / 1024 + seed) % 8;
        v = part == 1                   ? 0
            : part == 2                 ? v * 1e-37
            : part == 4                 ? v * 2e36
            : part == 6 && i % 600 == 7 ? (seed % 2 ? NAN : -INFINITY)
                                        : v;
        value_put(t, in, i, v);
        residual[i] = (float)cos(i + seed) * 0.01f;
    }
}

/* One tensor a launch. */
static void run_code(size_t t, struct int8_code c, unsigned blocks, uint64_t seed)
{
    struct args_int8_code a = {.tensors = (uintptr_t)&c, .n = 1};
    a.n_blocks = c.n_blocks = int8_n_blocks(c.count, c.block);
    cpu_kernel_run(&cpu_kernels[KERNEL_int8_code_f32 + t], &a, blocks, seed);
}

static void run_sum(size_t t, struct int8_sum c, unsigned blocks, uint64_t seed)
{
    struct args_int8_sum a = {.tensors = (uintptr_t)&c, .n = 1};
    a.n_blocks = c.n_blocks = int8_n_blocks(c.count, c.block);
    cpu_kernel_run(&cpu_kernels[KERNEL_int8_sum_f32 + t], &a, blocks, seed);
}

static void check_code(size_t t,
                       uint32_t n,
                       uint32_t block,
                       double scale,
                       bool is_fed,
                       uint8_t *to,
                       unsigned blocks)
{
    struct int8_code a = {.in = (uintptr_t)in,
                          .wire = (uintptr_t)to,
                          .residual = is_fed ? (uintptr_t)residual : 0,
                          .count = n,
                          .scale = scale,
                          .block = block};
    run_code(t, a, blocks, n);
}

UNIT_TEST(messages_are_the_codecs)
{
    static const double scales[] = {1, 0.3};
    const struct codec_kernels *k = codec_kernels_of(false);
    for (size_t i = 0; i < N_OF(float_types) * N_OF(counts) * N_OF(block_sizes) * 4;
         i++) {
        size_t t = i % 4;
        uint32_t n = counts[i / 4 % N_OF(counts)], block = block_sizes[i / 28 % 4];
        bool is_fed = i / 112 % 2;
        double scale = scales[i / 224];
        uint64_t bytes = int8_wire_bytes(n, block);

        values_fill(float_types[t], n, (unsigned)i);
        memcpy(kept, residual, sizeof(kept));
        memset(wire, 0x5a, sizeof(wire));
        check_code(t, n, block, scale, is_fed, wire + 1, 1 + n / 700);
        int8_encode(k, want, in, float_types[t], scale, is_fed ? kept : NULL, n, block);
        if (memcmp(wire + 1, want, bytes) != 0)
            fail_msg("%s of %u in blocks of %u", dtype_name(float_types[t]), n, block);
        assert_int_equal(wire[0], 0x5a);
        assert_int_equal(wire[bytes + 1], 0x5a);
        assert_memory_equal(residual, kept, n * sizeof(*kept));
    }
}

UNIT_TEST(sums_are_the_codecs)
{
    static const double factors[] = {1, 1.0 / 3};
    static uint8_t out[MAX_N * 8], sum[MAX_N * 8];
    const struct codec_kernels *k = codec_kernels_of(false);
    for (size_t i = 0; i < N_OF(float_types) * N_OF(counts) * N_OF(block_sizes) * 2;
         i++) {
        size_t t = i % 4;
        uint32_t n = counts[i / 4 % N_OF(counts)], block = block_sizes[i / 28 % 4];
        uint64_t each = int8_wire_bytes(n, block);
        struct int8_sum a = {.wire = (uintptr_t)wire,
                             .stride = each,
                             .out = (uintptr_t)out,
                             .count = n,
                             .factor = factors[i / 112],
                             .n = MEMBERS,
                             .block = block};
        for (unsigned m = 0; m < MEMBERS; m++) {
            values_fill(DT_F32, n, m * 5 + (unsigned)i);
            check_code(0, n, block, 1, false, wire + m * each, 3);
        }
        run_sum(t, a, 1 + n / 700, i);
        assert_int_equal(0, int8_sum(k, sum, float_types[t], a.factor, wire,
                                     MEMBERS * each, MEMBERS, n, block, NULL));
        for (uint32_t e = 0; e < n; e++)
            if (!value_is_same(float_types[t], out, sum, e))
                fail_msg("%s: element %u of %u", dtype_name(float_types[t]), e, n);
    }
}

/* One launch for all shards, where theirs lie apart; ours lies elsewhere. */
UNIT_TEST(shards_are_messages_of_their_own)
{
    static const uint32_t n_shards[] = {1, 2, 3, 8, 50};
    static uint8_t own[5 * MAX_N], back[MAX_N * 8], all[MAX_N * 8];
    static uint8_t apart[60 * (5 * 1024) + 5 * MAX_N];
    const struct codec_kernels *k = codec_kernels_of(false);
    for (size_t i = 0; i < N_OF(counts) * N_OF(n_shards) * 4; i++) {
        size_t t = i % 4;
        uint32_t n = counts[i / 4 % N_OF(counts)], shards = n_shards[i / 28];
        struct codec_plan plan = {
            .codec = {.block = 256}, .count = n, .n_members = shards};
        struct int8_code a = {.in = (uintptr_t)in,
                              .wire = (uintptr_t)apart,
                              .residual = (uintptr_t)residual,
                              .count = n,
                              .scale = 1,
                              .block = 256,
                              .n_shards = shards,
                              .stride = codec_shard_of(&plan, 0).wire_bytes + 1,
                              .own = (uintptr_t)own,
                              .me = (uint32_t)i % shards};
        struct int8_sum back_args = {.wire = (uintptr_t)apart,
                                     .stride = a.stride,
                                     .out = (uintptr_t)back,
                                     .count = n,
                                     .factor = 0.5,
                                     .n = 1,
                                     .block = 256,
                                     .n_shards = shards};

        values_fill(float_types[t], n, (unsigned)i);
        memcpy(kept, residual, sizeof(kept));
        run_code(t, a, 3, i);
        for (uint32_t j = 0; j < shards; j++) {
            struct codec_shard s = codec_shard_of(&plan, j);
            uint8_t *at = j == a.me ? own : apart + j * a.stride;

            int8_encode(k, want, cast_at(in, float_types[t], s.at), float_types[t], 1,
                        kept + s.at, s.count, 256);
            if (memcmp(at, want, s.wire_bytes) != 0)
                fail_msg("shard %u of %u, %u elements", j, shards, n);
            assert_int_equal(0, int8_sum(k, cast_at_out(all, float_types[t], s.at),
                                         float_types[t], 0.5, want, s.wire_bytes, 1,
                                         s.count, 256, NULL));
        }
        assert_memory_equal(residual, kept, n * sizeof(*kept));
        memcpy(apart + a.me * a.stride, own, a.stride - 1);
        run_sum(t, back_args, 5, i);
        for (uint32_t e = 0; e < n; e++)
            if (!value_is_same(float_types[t], back, all, e))
                fail_msg("%s: element %u of %u", dtype_name(float_types[t]), e, n);
    }
}

/* Several tensors in one launch, of one block and of many. */
UNIT_TEST(tensors_are_coded_and_summed_together)
{
    static uint8_t apart[N_OF(counts)][5 * MAX_N];
    static float out[N_OF(counts)][MAX_N], sum[MAX_N];
    const struct codec_kernels *k = codec_kernels_of(false);
    struct int8_code codes[N_OF(counts)];
    struct int8_sum sums[N_OF(counts)];
    struct args_int8_code a = {.tensors = (uintptr_t)codes, .n = N_OF(counts)};
    struct args_int8_sum b = {.tensors = (uintptr_t)sums, .n = N_OF(counts)};
    values_fill(DT_F32, MAX_N, 3);
    for (size_t i = 0; i < N_OF(counts); i++) {
        codes[i] = (struct int8_code){.in = (uintptr_t)in,
                                      .wire = (uintptr_t)apart[i],
                                      .count = counts[i],
                                      .scale = 1,
                                      .block = 256,
                                      .first = a.n_blocks,
                                      .n_blocks = int8_n_blocks(counts[i], 256)};
        a.n_blocks += codes[i].n_blocks;
        sums[i] = (struct int8_sum){.wire = (uintptr_t)apart[i],
                                    .out = (uintptr_t)out[i],
                                    .count = counts[i],
                                    .factor = 1,
                                    .n = 1,
                                    .block = 256,
                                    .first = b.n_blocks,
                                    .n_blocks = codes[i].n_blocks};
        b.n_blocks += sums[i].n_blocks;
    }
    cpu_kernel_run(&cpu_kernels[KERNEL_int8_code_f32], &a, 7, 1);
    cpu_kernel_run(&cpu_kernels[KERNEL_int8_sum_f32], &b, 5, 2);
    for (size_t i = 0; i < N_OF(counts); i++) {
        uint64_t bytes = int8_wire_bytes(counts[i], 256);
        int8_encode(k, want, in, DT_F32, 1, NULL, counts[i], 256);
        assert_memory_equal(apart[i], want, bytes);
        assert_int_equal(
            0, int8_sum(k, sum, DT_F32, 1, want, bytes, 1, counts[i], 256, NULL));
        for (uint32_t e = 0; e < counts[i]; e++)
            assert_true(value_is_same(DT_F32, out[i], sum, e));
    }
}

UNIT_MAIN(NULL, NULL)
