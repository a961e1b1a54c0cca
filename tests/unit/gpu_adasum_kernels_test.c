/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of kernels/adasum.cu, compiled for the CPU, against the CPU backend's
 * arithmetic. */

#include "runtime/backend/cpu/adasum_math.h"
#include "tests/fakes/cuda/kernels_cpu.h"
#include "tests/unit/gpu_values.h"
#include "tests/unit/unit.h"

enum { MAX_N = 40000, N_TENSORS = 6, PER_CHUNK = 4096, MAX_CHUNKS = 64 };

static const uint32_t counts[N_TENSORS] = {1, 0, 1023, 8192, 8193, 20000};

/* Of elements of 4 or 8 bytes; room to begin elsewhere. */
static _Alignas(64) uint8_t a_room[MAX_N * 8 + 64], b_room[MAX_N * 8 + 64],
    want[MAX_N * 8];

static struct {
    struct chunk chunks[MAX_CHUNKS], tensors[N_TENSORS], back[MAX_CHUNKS];
    struct dots sums[MAX_CHUNKS];
    struct weights weights[N_TENSORS];
    uint32_t n;
    enum dtype t;
    uint8_t *a, *b;
} x;

/* Tensor 0 of b is zero, tensor 3 equals a's, the rest are any. off: bytes. */
static void vectors_fill(enum dtype t, size_t off)
{
    size_t size = dtype_size(t), at = 0;
    memset(&x, 0, sizeof(x));
    memset(b_room, 0, sizeof(b_room));
    x.t = t;
    x.a = a_room + off;
    x.b = b_room + off;
    for (uint32_t k = 0; k < N_TENSORS; k++) {
        x.tensors[k].src = x.n;
        for (uint32_t i = 0; i < counts[k]; i++) {
            double v = sin((double)(at + i)) * 3, w = cos((double)(at + i) * 7) + 0.1;
            value_put(t, x.a, at + i, v);
            value_put(t, x.b, at + i, k == 0 ? 0 : k == 3 ? v : w);
        }
        for (uint32_t i = 0; i < counts[k]; i += PER_CHUNK, x.n++) {
            uint32_t left = counts[k] - i;
            x.chunks[x.n] = (struct chunk){.src = (uintptr_t)x.a + (at + i) * size,
                                           .dst = (uintptr_t)x.b + (at + i) * size,
                                           .n = left < PER_CHUNK ? left : PER_CHUNK,
                                           .tensor = k};
            x.back[x.n] = x.chunks[x.n];
            x.back[x.n].src = x.chunks[x.n].dst;
            x.back[x.n].dst = x.chunks[x.n].src;
        }
        x.tensors[k].n = x.n - (uint32_t)x.tensors[k].src;
        at += counts[k];
    }
}

static void kernels_run(unsigned blocks, uint64_t seed)
{
    bool is_f32 = x.t == DT_F32;
    struct args_dots d = {(uintptr_t)x.chunks, (uintptr_t)x.sums, x.n, 0};
    struct args_dots_end e = {(uintptr_t)x.tensors, (uintptr_t)x.sums,
                              (uintptr_t)x.weights, N_TENSORS, 0};
    struct args_combine c = {(uintptr_t)x.back, (uintptr_t)x.weights, x.n, 0};
    cpu_kernel_run(&cpu_kernels[is_f32 ? KERNEL_dots_f32 : KERNEL_dots_f64], &d, blocks,
                   seed);
    cpu_kernel_run(&cpu_kernels[KERNEL_dots_end], &e, blocks, seed);
    cpu_kernel_run(&cpu_kernels[is_f32 ? KERNEL_combine_f32 : KERNEL_combine_f64], &c,
                   blocks, seed);
}

UNIT_TEST(weights_and_sums_are_the_cpus)
{
    for (size_t i = 0; i < 2; i++) {
        size_t size = dtype_size(float_types[i]), at = 0, n = 0;
        vectors_fill(float_types[i], 0);
        for (uint32_t k = 0; k < N_TENSORS; k++)
            n += counts[k];
        memcpy(want, x.a, n * size);
        kernels_run(5, i);
        for (uint32_t k = 0; k < N_TENSORS; k++) {
            uint8_t *a = want + at * size, *b = x.b + at * size;
            struct adasum_dots d = adasum_dots(x.t, a, b, counts[k]);
            double wa, wb;
            adasum_weights(&d, &wa, &wb);
            assert_true(fabs(x.weights[k].wa - wa) < 1e-12);
            assert_true(fabs(x.weights[k].wb - wb) < 1e-12);
            /* with the very weights that it used: to the bit */
            adasum_combine(x.t, a, a, b, x.weights[k].wa, x.weights[k].wb, counts[k]);
            assert_memory_equal(x.a + at * size, a, counts[k] * size);
            at += counts[k];
        }
    }
}

UNIT_TEST(vector_without_length_leaves_the_other)
{
    vectors_fill(DT_F64, 0);
    kernels_run(1, 0);
    assert_true(x.weights[0].wa == 1 && x.weights[0].wb == 1);
    assert_true(x.weights[1].wa == 1 && x.weights[1].wb == 1); /* no elements */
    assert_true(fabs(x.weights[3].wa - 0.5) < 1e-12); /* parallel ones: the mean */
}

UNIT_TEST(bits_depend_on_counts_alone)
{
    static struct weights first[N_TENSORS];
    for (size_t i = 0; i < 2; i++)
        for (unsigned blocks = 1; blocks < 30; blocks += 4) {
            vectors_fill(float_types[i], (blocks % 3) * dtype_size(float_types[i]));
            kernels_run(blocks, blocks * 77);
            if (blocks == 1)
                memcpy(first, x.weights, sizeof(first));
            assert_memory_equal(first, x.weights, sizeof(first));
        }
}

UNIT_MAIN(NULL, NULL)
