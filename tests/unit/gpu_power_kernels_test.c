/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of kernels/power.cu, compiled for the CPU, against the codec of host
 * tensors: bit for bit where sums have the same order, else within the specified
 * error. */

#include "runtime/core/compress/powersgd.h"
#include "tests/fakes/cuda/kernels_cpu.h"
#include "tests/unit/gpu_values.h"
#include "tests/unit/unit.h"

enum {
    TENSORS = 2,
    MAX_RANK = 13,
    MAX_COUNT = 12000,
    MAX_SIDE = 3000,
    MAX_TILES = 3000
};
_Static_assert(sizeof(struct power_tensor) == 3 * sizeof(struct chunk), "a table's");

static const struct {
    uint32_t rows, cols;
} shapes[] = {{1, 1},    {7, 9},   {8, 1024}, {9, 1025},
              {3000, 3}, {64, 27}, {5, 2400}, {33, 130}};
static const uint32_t ranks[] = {1, 2, 4, 7, 13};
#define N_OF(a) (sizeof(a) / sizeof(a)[0])

static uint64_t random_state = 11;

static float random_float(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(random_state >> 33) / 1073741824.0 - 1);
}

static void values_fill(float *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] = random_float();
}

struct matrix {
    float p[MAX_SIDE * MAX_RANK], kept[MAX_SIDE * MAX_RANK], own[MAX_SIDE * MAX_RANK];
    float sum[MAX_SIDE * MAX_RANK], m[MAX_COUNT], want[MAX_COUNT];
    _Alignas(64) uint8_t in[MAX_COUNT * 8 + 64], out[MAX_COUNT * 8 + 64];
    uint32_t rows, cols;
};
static struct matrix all[TENSORS];
static struct power_tensor tensors[TENSORS];
static struct chunk chunks[MAX_TILES];

/* Two tensors of a batch; their tiles. */
static uint32_t tensors_make(unsigned shape, uint32_t rank)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < TENSORS; i++) {
        struct matrix *x = &all[i];

        x->rows = shapes[(shape + i * 3) % N_OF(shapes)].rows;
        x->cols = shapes[(shape + i * 3) % N_OF(shapes)].cols;
        values_fill(x->p, rank * x->rows);
        values_fill(x->kept, rank * x->cols);
        values_fill(x->own, rank * x->cols);
        values_fill(x->sum, rank * x->cols);
        values_fill(x->m, x->rows * x->cols);
        tensors[i] = (struct power_tensor){.p = (uintptr_t)x->p,
                                           .kept = (uintptr_t)x->kept,
                                           .own = (uintptr_t)x->own,
                                           .sum = (uintptr_t)x->sum,
                                           .m = (uintptr_t)x->m,
                                           .out = (uintptr_t)(x->out + 8),
                                           .rows = x->rows,
                                           .cols = x->cols};
        for (uint32_t c = 0; c < x->cols; c += POWER_COLS) {
            uint32_t wide = x->cols - c < POWER_COLS ? x->cols - c : POWER_COLS;
            for (uint32_t r = 0; r < x->rows; r += POWER_TILE_ROWS(wide))
                chunks[n++] =
                    (struct chunk){.src = r, .dst = c, .n = wide, .tensor = i};
        }
    }
    assert_true(n <= MAX_TILES);
    return n;
}

static struct powersgd_shape shape_of(const struct matrix *x, uint32_t rank)
{
    return (struct powersgd_shape){codec_kernels_of(false), x->rows, x->cols, rank};
}

static struct args_power args_of(uint32_t n, uint32_t rank)
{
    return (struct args_power){.chunks = (uintptr_t)chunks,
                               .tensors = (uintptr_t)tensors,
                               .scale = 1,
                               .seed = 5,
                               .n = n,
                               .rank = rank};
}

UNIT_TEST(outputs_are_the_codecs)
{
    static uint8_t want[MAX_COUNT * 8];

    for (unsigned i = 0; i < 4 * N_OF(shapes) * N_OF(ranks); i++) {
        uint32_t rank = ranks[i / 4 % N_OF(ranks)];
        struct args_power a = args_of(tensors_make(i / 20, rank), rank);

        a.scale = i % 3 ? 1.0 / 3 : 1;
        for (unsigned k = 0; k < TENSORS; k++)
            memset(all[k].out, 0x5a, sizeof(all[k].out));
        cpu_kernel_run(&cpu_kernels[KERNEL_power_out_f32 + i % 4], &a, 1 + i % 5, i);
        for (unsigned k = 0; k < TENSORS; k++) {
            const struct matrix *x = &all[k];
            struct powersgd_shape s = shape_of(x, rank);
            size_t bytes = x->rows * x->cols * dtype_size(float_types[i % 4]);

            powersgd_out(want, float_types[i % 4], a.scale, x->p, x->sum, &s);
            if (memcmp(x->out + 8, want, bytes) != 0)
                fail_msg("%s: %u x %u of rank %u", dtype_name(float_types[i % 4]),
                         x->rows, x->cols, rank);
            assert_int_equal(x->out[7], 0x5a);
            assert_int_equal(x->out[8 + bytes], 0x5a);
        }
    }
}

UNIT_TEST(rests_are_the_codecs)
{
    for (unsigned i = 0; i < N_OF(shapes) * N_OF(ranks); i++) {
        uint32_t rank = ranks[i % N_OF(ranks)];
        struct args_power a = args_of(tensors_make(i / 5, rank), rank);

        for (unsigned k = 0; k < TENSORS; k++) {
            struct matrix *x = &all[k];
            struct powersgd_shape s = shape_of(x, rank);

            x->m[0] = NAN;
            x->m[x->rows * x->cols / 2] = -INFINITY;
            memcpy(x->want, x->m, sizeof(x->want));
            powersgd_subtract(x->want, x->p, x->own, &s);
        }
        cpu_kernel_run(&cpu_kernels[KERNEL_power_rest], &a, 1 + i % 5, i);
        for (unsigned k = 0; k < TENSORS; k++)
            assert_memory_equal(all[k].m, all[k].want,
                                all[k].rows * all[k].cols * sizeof(float));
    }
}

UNIT_TEST(copies_are_the_codecs)
{
    const struct codec_kernels *kernels = codec_kernels_of(false);

    for (unsigned i = 0; i < 4 * 2 * 5 * N_OF(shapes); i++) {
        enum dtype t = float_types[i % 4];
        struct matrix *x = &all[0];
        struct args_power a;
        uint32_t n = shapes[i / 40].rows * shapes[i / 40].cols, n_chunks = 0;
        uint8_t *in = x->in + i / 8 % 5 * dtype_size(t);

        (void)tensors_make(i / 40, 1);
        for (uint32_t e = 0; e < n; e++) {
            float f = random_float() * 100;
            value_put(t, in, e, (double)f * (t == DT_F64 ? 1.0000001 : 1));
        }
        for (uint32_t at = 0; at < n; at += 6000)
            chunks[n_chunks++] =
                (struct chunk){.src = (uintptr_t)(in + at * dtype_size(t)),
                               .dst = (uintptr_t)(x->m + at),
                               .n = n - at < 6000 ? n - at : 6000};
        a = args_of(n_chunks, 1);
        a.adds = i / 4 % 2;
        a.scale = i % 3 ? 1 : 0.7;
        memcpy(x->want, x->m, sizeof(x->want));
        cpu_kernel_run(&cpu_kernels[KERNEL_power_feed_f32 + i % 4], &a, 2, i);
        if (a.adds)
            cast_add(kernels, x->want, in, t, n, a.scale);
        else
            cast_load(kernels, x->want, in, t, n, a.scale);
        assert_memory_equal(x->m, x->want, sizeof(x->want));
    }
}

/* --- orthonormal vectors ------------------------------------------------------- */

static double vectors_dot(const float *a, const float *b, uint32_t n)
{
    double s = 0;

    for (uint32_t i = 0; i < n; i++)
        s += (double)a[i] * (double)b[i];
    return s;
}

/* Of `rank` vectors those that are not zero are orthonormal. */
static void are_orthonormal(const float *v, uint32_t n, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        for (uint32_t j = 0; j <= i; j++) {
            double d = vectors_dot(v + i * n, v + j * n, n);
            if (i == j && d != 0)
                assert_true(fabs(d - 1) < 1e-5);
            else if (i != j)
                assert_true(fabs(d) < 1e-5);
        }
}

static void are_near(const float *a, const float *b, size_t n, double least)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= least))
            fail_msg("[%zu] is %g, not %g", i, (double)a[i], (double)b[i]);
}

UNIT_TEST(vectors_are_made_orthonormal)
{
    static float want[MAX_SIDE * MAX_RANK];

    for (unsigned i = 0; i < N_OF(shapes) * N_OF(ranks); i++) {
        uint32_t rank = ranks[i % N_OF(ranks)];
        struct args_power a;

        (void)tensors_make(i / 5, rank);
        a = args_of(TENSORS, rank);
        a.which = POWER_P;
        struct matrix *x = &all[0];
        if (rank > 2) { /* one in the span of others, one of zeros */
            for (uint32_t e = 0; e < x->rows; e++)
                x->p[2 * x->rows + e] = x->p[e] * 3 - x->p[x->rows + e];
            if (rank > 4)
                memset(x->p + 4 * x->rows, 0, x->rows * sizeof(float));
        }
        memcpy(want, x->p, sizeof(want));
        assert_true(powersgd_orthonormal(want, x->rows, rank));
        cpu_kernel_run(&cpu_kernels[KERNEL_power_orthonormal], &a, 1 + i % 2, i);
        for (unsigned k = 0; k < TENSORS; k++)
            are_orthonormal(all[k].p, all[k].rows, rank);
        are_near(x->p, want, (size_t)x->rows * (rank < x->rows ? rank : x->rows), 2e-4);
    }
}

UNIT_TEST(what_is_not_finite_makes_all_nan)
{
    struct args_power a;

    (void)tensors_make(7, 4);
    a = args_of(TENSORS, 4);
    a.which = POWER_P;
    all[0].p[2 * all[0].rows + 5] = INFINITY;
    cpu_kernel_run(&cpu_kernels[KERNEL_power_orthonormal], &a, 1, 0);
    for (uint32_t i = 0; i < 4 * all[0].rows; i++)
        assert_true(isnan(all[0].p[i]));
    are_orthonormal(all[1].p, all[1].rows, 4);
    assert_true(vectors_dot(all[1].p, all[1].p, all[1].rows) > 0.9);
}

UNIT_TEST(lost_directions_are_drawn_anew)
{
    static float want[MAX_SIDE * MAX_RANK];
    struct args_power a;

    for (unsigned i = 0; i < N_OF(shapes); i++) {
        struct matrix *x = &all[0];
        (void)tensors_make(i, 4);
        a = args_of(TENSORS, 4);
        a.which = POWER_KEPT;
        memset(x->kept, 0, x->cols * sizeof(float));
        x->kept[2 * x->cols] = NAN;
        memcpy(want, x->kept, sizeof(want));
        powersgd_refresh(want, x->cols, 4, a.seed);
        cpu_kernel_run(&cpu_kernels[KERNEL_power_orthonormal], &a, 2, i);
        are_near(x->kept, want, (size_t)x->cols * (4 < x->cols ? 4 : x->cols), 2e-4);
        are_orthonormal(x->kept, x->cols, 4);
    }
}

UNIT_MAIN(NULL, NULL)
