/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of kernels/move.cu and scan.cu, compiled for the CPU, bit for bit against
 * what the CPU does with host tensors. */

#include "runtime/backend/cpu/reduce.h"
#include "runtime/core/nonfinite.h"
#include "tests/fakes/cuda/kernels_cpu.h"
#include "tests/unit/gpu_values.h"
#include "tests/unit/seeded.h"
#include "tests/unit/unit.h"

enum { MAX_N = 3 * 8192 + 77, GUARD = 64, ROOM = MAX_N * 8 + 2 * GUARD + 64 };

static struct seeded numbers = {1};

/* --- the reference ------------------------------------------------------------- */

struct row {
    enum kernel_id k;
    enum dtype from, to;
};

static const struct row rows[] = {
    {KERNEL_move_f32_f32, DT_F32, DT_F32},    {KERNEL_move_f64_f64, DT_F64, DT_F64},
    {KERNEL_move_f16_f16, DT_F16, DT_F16},    {KERNEL_move_bf16_bf16, DT_BF16, DT_BF16},
    {KERNEL_move_f32_f16, DT_F32, DT_F16},    {KERNEL_move_f32_bf16, DT_F32, DT_BF16},
    {KERNEL_move_f64_f16, DT_F64, DT_F16},    {KERNEL_move_f64_bf16, DT_F64, DT_BF16},
    {KERNEL_move_f16_f32, DT_F16, DT_F32},    {KERNEL_move_bf16_f32, DT_BF16, DT_F32},
    {KERNEL_move_f16_f64, DT_F16, DT_F64},    {KERNEL_move_bf16_f64, DT_BF16, DT_F64},
    {KERNEL_move_u8_u8, DT_U8, DT_U8},        {KERNEL_move_i8_i8, DT_I8, DT_I8},
    {KERNEL_move_u16_u16, DT_U16, DT_U16},    {KERNEL_move_i16_i16, DT_I16, DT_I16},
    {KERNEL_move_i32_i32, DT_I32, DT_I32},    {KERNEL_move_i64_i64, DT_I64, DT_I64},
    {KERNEL_move_u16_i32, DT_U16, DT_I32},    {KERNEL_move_i16_i32, DT_I16, DT_I32},
    {KERNEL_move_i32_u16, DT_I32, DT_U16},    {KERNEL_move_i32_i16, DT_I32, DT_I16},
    {KERNEL_move_bool_bool, DT_BOOL, DT_BOOL}};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Aligned, and not too small: what the reference works in. */
static _Alignas(64) uint8_t in[ROOM], want[ROOM], half[ROOM];
static _Alignas(64) uint8_t src_room[ROOM], dst_room[ROOM];

static void reference_widen(const struct row *r, uint64_t n, double scale)
{
    for (uint64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, in + 2 * i, 2);
        float f = r->from == DT_F16 ? f32_of_f16(h) : f32_of_bf16(h);
        double d = (double)f;
        if (scale != 1) {
            f *= (float)scale;
            d *= scale;
        }
        if (r->to == DT_F32)
            memcpy(want + 4 * i, &f, 4);
        else
            memcpy(want + 8 * i, &d, 8);
    }
}

static void reference_finish(enum dtype t,
                             const void *src,
                             void *dst,
                             uint64_t n,
                             double scale,
                             uint32_t divisor)
{
    struct finish f = {scale, divisor};
    kernel_for(t == DT_BOOL ? OP_MAX : OP_SUM, t, false)
        ->fold(dst, NULL, &src, 1, n, &f);
}

/* want = in, n elements, by the definition in args.h. */
static void
reference_move(const struct row *r, uint64_t n, double scale, uint32_t divisor)
{
    size_t from = dtype_size(r->from), to = dtype_size(r->to);
    if (r->from == r->to) {
        reference_finish(r->from, in, want, n, scale, divisor);
    } else if (cast_is_float(r->from) && from > to) {
        cast_narrow(codec_kernels_of(false), (uint16_t *)want, r->to, in, r->from, n,
                    scale);
    } else if (cast_is_float(r->from)) {
        reference_widen(r, n, scale);
    } else if (from < to) { /* 16 bits to i32 */
        reference_finish(r->from, in, half, n, scale, divisor);
        for (uint64_t i = 0; i < n; i++) {
            uint16_t u;
            memcpy(&u, half + 2 * i, 2);
            int32_t x = r->from == DT_U16 ? (int32_t)u : (int32_t)(int16_t)u;
            memcpy(want + 4 * i, &x, 4);
        }
    } else {
        for (uint64_t i = 0; i < n; i++)
            memcpy(half + 2 * i, in + 4 * i, 2); /* the lower half */
        reference_finish(r->to, half, want, n, scale, divisor);
    }
}

/* --- running a kernel ---------------------------------------------------------- */

static void values_fill(enum dtype t, uint64_t n)
{
    static const uint32_t edges[] = {0,          1,          0x7fffffff, 0x80000000,
                                     0xffffffff, 0x3f800000, 0x7f800000, 0xff800000,
                                     0x7fc12345, 0x387fefff, 0x38800000, 0x33000000,
                                     0x33000001, 0x477fefff, 0x477ff000, 0x00010001};
    uint64_t bytes = n * dtype_size(t);
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t v = seeded_next(&numbers);
        memcpy(in + i, &v, 8);
    }
    for (uint64_t i = 0; i + 4 <= bytes; i += 4 * (1 + seeded_next(&numbers) % 5))
        memcpy(in + i, &edges[seeded_next(&numbers) % 16], 4);
    if (t == DT_F64) /* about the range of 16 bits, with digits that need rounding */
        for (uint64_t i = 0; i < n; i += 2) {
            double d = ldexp(1 + (double)(seeded_next(&numbers) % 4096) / 2048
                                 + ldexp((double)(seeded_next(&numbers) % 3), -40),
                             (int)(seeded_next(&numbers) % 45) - 28);
            memcpy(in + 8 * i, &d, 8);
        }
}

/* n elements from src_at to dst_at bytes behind a boundary, split into chunks. */
static void check_move(const struct row *r,
                       uint32_t n,
                       uint32_t src_at,
                       uint32_t dst_at,
                       double scale,
                       uint32_t divisor)
{
    size_t from = dtype_size(r->from), to = dtype_size(r->to);
    uint8_t *src = src_room + GUARD + src_at, *dst = dst_room + GUARD + dst_at;
    uint32_t most = (uint32_t)(CHUNK_BYTES / (from > to ? from : to));
    struct chunk chunks[32];
    struct args_move a = {
        .chunks = (uintptr_t)chunks, .divisor = divisor, .scale = scale};
    /* the CPU makes a NaN of 16 bits quiet where a copy does not */
    bool is_computed = scale != 1 || divisor != 1 || r->from == r->to;

    values_fill(r->from, n);
    reference_move(r, n, scale, divisor);
    memcpy(src, in, n * from);
    memset(dst - GUARD, 0xa5, n * to + 2 * GUARD);
    for (uint32_t at = 0; at < n || a.n == 0; at += most)
        chunks[a.n++] = (struct chunk){.src = (uintptr_t)src + at * from,
                                       .dst = (uintptr_t)dst + at * to,
                                       .n = n - at < most ? n - at : most};
    cpu_kernel_run(&cpu_kernels[r->k], &a, 1 + a.n / 2, seeded_next(&numbers));
    for (uint32_t i = 0; i < n; i++)
        if (is_computed ? !value_is_same(r->to, dst, want, i)
                        : memcmp(dst + i * to, want + i * to, to) != 0)
            fail_msg("%s: element %u of %u, offsets %u and %u, scale %g, divisor %u",
                     cpu_kernels[r->k].symbol, i, n, src_at, dst_at, scale, divisor);
    for (uint32_t i = 0; i < GUARD; i++)
        if (dst[n * to + i] != 0xa5 || dst[-1 - (int)i] != 0xa5)
            fail_msg("%s: wrote outside of %u elements, offsets %u and %u",
                     cpu_kernels[r->k].symbol, n, src_at, dst_at);
}

UNIT_TEST(moves_equal_the_cpu_at_every_alignment)
{
    static const uint32_t lengths[] = {0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 100};
    for (size_t i = 0; i < N_ROWS; i++)
        for (uint32_t s = 0; s < 16; s += (uint32_t)dtype_size(rows[i].from))
            for (uint32_t d = 0; d < 16; d += (uint32_t)dtype_size(rows[i].to))
                for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++)
                    check_move(&rows[i], lengths[l], s, d, l % 2 ? 1 : 0.75, 1);
}

UNIT_TEST(moves_equal_the_cpu_at_every_length)
{
    static const uint32_t big[] = {255, 256, 257, 2047, 4096, 8191, 8192, 8193, MAX_N};
    for (size_t i = 0; i < N_ROWS; i++) {
        uint32_t from = (uint32_t)dtype_size(rows[i].from);
        for (uint32_t n = 0; n <= 100; n++)
            check_move(&rows[i], n, 0, 0, 1, 1);
        for (size_t l = 0; l < sizeof(big) / sizeof(big[0]); l++) {
            check_move(&rows[i], big[l], 0, 0, 1, 1);
            check_move(&rows[i], big[l], from, 0, 1, 1);
            check_move(&rows[i], big[l], 0, 0, 0.1, 1);
        }
    }
}

UNIT_TEST(scales_and_divisors_equal_the_cpu)
{
    static const double scales[] = {0,     -0.0, 0.5,   1.0 / 3,  -2,
                                    1e-30, 1e30, 1e300, INFINITY, NAN};
    static const uint32_t divisors[] = {2, 3, 7, 128, 40000, 0x7fffffff};
    for (size_t i = 0; i < N_ROWS; i++) {
        for (size_t k = 0; k < sizeof(scales) / sizeof(scales[0]); k++)
            check_move(&rows[i], 777, 0, 0, scales[k], 1);
        for (size_t k = 0; k < sizeof(divisors) / sizeof(divisors[0]); k++)
            if (!cast_is_float(rows[i].from) && rows[i].from != DT_BOOL)
                check_move(&rows[i], 777, 0, 0, 1, divisors[k]);
    }
}

/* What a division by the C rules gives, not by the CPU backend's code. */
UNIT_TEST(averages_truncate_and_scales_saturate)
{
    int32_t x[] = {7, -7, INT32_MAX, INT32_MIN, 65536 + 9}, d[5];
    int16_t h[5];
    struct chunk c = {.src = (uintptr_t)x, .dst = (uintptr_t)d, .n = 5};
    struct args_move a = {.chunks = (uintptr_t)&c, .n = 1, .divisor = 2, .scale = 1};
    cpu_kernels[KERNEL_move_i32_i32].block(&a, 0, 1);
    assert_int_equal(d[0], 3);
    assert_int_equal(d[1], -3);
    assert_int_equal(d[3], INT32_MIN / 2);
    a.divisor = 1;
    a.scale = 3;
    cpu_kernels[KERNEL_move_i32_i32].block(&a, 0, 1);
    assert_int_equal(d[0], 21);
    assert_int_equal(d[2], INT32_MAX);
    assert_int_equal(d[3], INT32_MIN);
    c.dst = (uintptr_t)h;
    a.divisor = 2;
    a.scale = 1;
    cpu_kernels[KERNEL_move_i32_i16].block(&a, 0, 1);
    assert_int_equal(h[4], 4); /* wrapped, then divided */
    a.scale = NAN;
    cpu_kernels[KERNEL_move_i32_i16].block(&a, 0, 1);
    assert_int_equal(h[0], 0);
}

UNIT_TEST(source_zero_writes_zeros)
{
    for (size_t k = 0; k < KERNEL_COUNT; k++) {
        uint8_t d[512];
        size_t to = 1; /* copy: bytes */
        for (size_t i = 0; i < N_ROWS; i++)
            if ((size_t)rows[i].k == k)
                to = dtype_size(rows[i].to);
        if (cpu_kernels[k].args_bytes != sizeof(struct args_move)
            || (k != KERNEL_copy && strncmp(cpu_kernels[k].symbol, "hvd_move", 8) != 0))
            continue;
        for (int with = 0; with < 2; with++) {
            struct chunk c = {.dst = (uintptr_t)(d + 8), .n = 33};
            struct args_move a = {(uintptr_t)&c, 1, 1, with ? 0.5 : 1};
            memset(d, 0xa5, sizeof(d));
            cpu_kernels[k].block(&a, 0, 1);
            for (size_t i = 0; i < sizeof(d); i++)
                assert_int_equal(d[i], i >= 8 && i < 8 + 33 * to ? 0 : 0xa5);
        }
    }
}

UNIT_TEST(moves_work_in_place)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        size_t size = dtype_size(rows[i].from);
        uint32_t n = 5000;
        struct chunk c = {(uintptr_t)src_room, (uintptr_t)src_room, n, 0};
        struct args_move a = {(uintptr_t)&c, 1, 1, 0.5};
        if (rows[i].from != rows[i].to)
            continue;
        values_fill(rows[i].from, n);
        reference_move(&rows[i], n, 0.5, 1);
        memcpy(src_room, in, n * size);
        cpu_kernels[rows[i].k].block(&a, 0, 1);
        for (uint32_t e = 0; e < n; e++)
            assert_true(value_is_same(rows[i].to, src_room, want, e));
    }
}

UNIT_TEST(copies_bytes_at_every_alignment)
{
    static const uint32_t big[] = {255, 4096, 32767, 32768};
    for (uint32_t s = 0; s < 16; s++)
        for (uint32_t d = 0; d < 16; d++)
            for (uint32_t l = 0; l < 104; l++) {
                uint32_t n = l < 100 ? l : big[l - 100];
                uint8_t *src = src_room + GUARD + s, *dst = dst_room + GUARD + d;
                struct chunk c = {(uintptr_t)src, (uintptr_t)dst, n, 0};
                struct args_move a = {(uintptr_t)&c, 1, 1, 1};
                if (l >= 100 && (s + d) % 3 != 0)
                    continue;
                values_fill(DT_U8, n);
                memcpy(src, in, n);
                memset(dst - GUARD, 0xa5, n + 2 * GUARD);
                cpu_kernels[KERNEL_copy].block(&a, 0, 1);
                assert_memory_equal(dst, in, n);
                for (int i = 0; i < GUARD; i++) {
                    assert_int_equal(dst[-1 - i], 0xa5);
                    assert_int_equal(dst[n + (uint32_t)i], 0xa5);
                }
            }
}

UNIT_TEST(any_number_of_blocks_is_right)
{
    static float x[1000], y[1000];
    struct chunk chunks[1000];
    struct args_move a = {(uintptr_t)chunks, 1000, 1, 2};
    for (uint32_t i = 0; i < 1000; i++) {
        x[i] = (float)i;
        chunks[i] = (struct chunk){(uintptr_t)&x[i], (uintptr_t)&y[999 - i], 1, 0};
    }
    for (unsigned blocks = 1; blocks < 1200; blocks += 149) {
        memset(y, 0, sizeof(y));
        cpu_kernel_run(&cpu_kernels[KERNEL_move_f32_f32], &a, blocks, blocks);
        for (uint32_t i = 0; i < 1000; i++)
            assert_true(y[999 - i] == 2 * (float)i);
    }
}

/* --- scan ----------------------------------------------------------------------- */

static const struct {
    enum kernel_id k;
    enum dtype t;
    uint64_t nan, infinity;
} scans[] = {
    {KERNEL_scan_f32, DT_F32, 0xffc00001, 0x7f800000},
    {KERNEL_scan_f64, DT_F64, 0x7ff8000000000000, 0xfff0000000000000},
    {KERNEL_scan_f16, DT_F16, 0xfe00, 0x7c00},
    {KERNEL_scan_bf16, DT_BF16, 0x7fc0, 0xff80},
};

/* Three tensors of n elements, the middle one with what at two places. */
static void check_scan(
    size_t i, uint32_t n, uint32_t off, uint64_t what, uint32_t at, uint32_t also)
{
    size_t size = dtype_size(scans[i].t);
    uint32_t most = 97;
    struct chunk chunks[1024];
    struct scan_cell cells[3];
    struct args_scan a = {.chunks = (uintptr_t)chunks, .cells = (uintptr_t)cells};
    uint8_t *p = src_room + off;

    memset(src_room, 0x3b, sizeof(src_room)); /* finite in each type */
    memcpy(p + (n + at) * size, &what, size);
    memcpy(p + (n + also) * size, &what, size);
    for (uint32_t k = 0; k < 3; k++) {
        cells[k] = (struct scan_cell){(uintptr_t)p + k * n * size, SCAN_NONE, 0, 0};
        for (uint32_t e = 0; e < n; e += most)
            chunks[a.n++] = (struct chunk){.src = cells[k].base + e * size,
                                           .n = n - e < most ? n - e : most,
                                           .tensor = k};
    }
    chunks[a.n++] = (struct chunk){.n = 50, .tensor = 2}; /* a joined rank's */
    cpu_kernel_run(&cpu_kernels[scans[i].k], &a, 1 + a.n / 3, at);

    struct nonfinite found = {0};
    assert_true(nonfinite_find(scans[i].t, p + n * size, n, &found));
    assert_int_equal(cells[1].first >> 1, found.at);
    assert_int_equal(cells[1].first & 1, !found.is_nan);
    assert_int_equal(cells[1].n, found.n);
    for (uint32_t k = 0; k < 3; k += 2) {
        assert_true(cells[k].first == SCAN_NONE);
        assert_int_equal(cells[k].n, 0);
    }
}

UNIT_TEST(scan_finds_the_first_and_counts)
{
    for (size_t i = 0; i < sizeof(scans) / sizeof(scans[0]); i++)
        for (uint32_t off = 0; off < 16; off += (uint32_t)dtype_size(scans[i].t))
            for (uint32_t n = 1; n < 3000; n += 1 + n / 3) {
                check_scan(i, n, off, scans[i].nan, n - 1, n / 2);
                check_scan(i, n, off, scans[i].infinity, n / 3, n - 1);
                check_scan(i, n, off, scans[i].infinity, 0, 0);
            }
}

UNIT_MAIN(NULL, NULL)
