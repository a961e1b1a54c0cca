/* SPDX-License-Identifier: Apache-2.0 */
/* Top-k alone: the choice, against sorting; what is refused. */
#include <float.h>
#include <math.h>

#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/topk.h"
#include "runtime/core/half.h"
#include "tests/unit/codec_kernels.h"

enum { N = 5000, LEN = 1 << 16 };

static int by_rank(const void *pa, const void *pb)
{
    const float *a = *(float *const *)pa, *b = *(float *const *)pb;
    float x = isnan(*a) ? INFINITY : fabsf(*a), y = isnan(*b) ? INFINITY : fabsf(*b);

    if (isnan(*a) != isnan(*b))
        return isnan(*a) ? -1 : 1;
    return x != y ? (x > y ? -1 : 1) : a < b ? -1 : 1;
}

/* By sorting: which k are the largest, ties to the lowest index. */
static void topk_reference(const float *w, uint32_t n, uint32_t k, bool *chosen)
{
    const float **v = calloc(n, sizeof(*v));

    assert_non_null(v);
    for (uint32_t i = 0; i < n; i++)
        v[i] = &w[i];
    qsort(v, n, sizeof(*v), by_rank);
    memset(chosen, 0, n);
    for (uint32_t i = 0; i < k; i++)
        chosen[v[i] - w] = true;
    free(v);
}

static void
check_topk(const struct codec_kernels *kernels, const float *f, uint32_t n, uint32_t k)
{
    static float w[LEN], out[LEN];
    static bool chosen[LEN];
    uint8_t *wire = malloc(topk_room_bytes(n, k) + 1);

    assert_non_null(wire);
    wire[topk_room_bytes(n, k)] = 0xee;
    memcpy(w, f, n * sizeof(*w));
    topk_reference(f, n, k, chosen);
    assert_int_equal(topk_wire_bytes(n, k), 8ul * k);
    topk_encode(kernels, wire, w, n, k);
    assert_int_equal(wire[topk_room_bytes(n, k)], 0xee);
    assert_int_equal(topk_sum(out, wire, 8ul * k, 1, n, k, NULL), 0);
    for (uint32_t i = 0; i < n; i++) {
        float sent = chosen[i] ? f[i] : 0,
              kept = chosen[i] || !isfinite(f[i]) ? 0 : f[i];

        assert_true(out[i] == sent || (isnan(out[i]) && isnan(sent)));
        assert_true(w[i] == kept);
    }
    free(wire);
}

KERNEL_TEST(topk_matches_sorting)
{
    static const uint32_t counts[] = {1, 2, 3, 100, 1023, N};
    struct seeded rnd = {4};
    float f[N];

    for (size_t c = 0; c < 6; c++)
        for (int kind = 0; kind < 5; kind++) {
            uint32_t n = counts[c];

            for (uint32_t i = 0; i < n; i++)
                f[i] = kind == 0   ? any_float(&rnd, -40, 40)
                       : kind == 1 ? (float)((int)seeded_below(&rnd, 7) - 3) /* ties */
                       : kind == 2 ? 0
                       : kind == 3 ? f32_of_bits((uint32_t)seeded_next(&rnd)) /* any */
                                   : f32_of_bits(seeded_below(&rnd, 3000));   /* tiny */
            check_topk(kernels, f, n, 1);
            check_topk(kernels, f, n, n / 100 + 1);
            check_topk(kernels, f, n, n / 2 + 1);
            check_topk(kernels, f, n, n);
        }
}

KERNEL_TEST(nan_counts_as_largest_and_does_not_stay)
{
    float f[6] = {1, NAN, INFINITY, -NAN, -INFINITY, 7};

    for (uint32_t k = 1; k <= 6; k++)
        check_topk(kernels, f, 6, k);
}

KERNEL_TEST(empty_tensors_and_k_of_zero)
{
    uint8_t wire[8] = {0xee};
    float none[1] = {5};

    topk_encode(kernels, wire, none, 0, 0);
    topk_encode(kernels, wire, none, 1, 0);
    assert_int_equal(wire[0], 0xee);
    assert_true(none[0] == 5);
    assert_int_equal(topk_sum(none, wire, 0, 1, 1, 0, NULL), 0);
    assert_true(none[0] == 0);
    assert_int_equal(int8_wire_bytes(0, 256), 0);
    int8_encode(kernels, wire, none, DT_F32, 1, NULL, 0, 256);
    assert_int_equal(wire[0], 0xee);
    assert_int_equal(int8_sum(kernels, none, DT_F32, 1, wire, 0, 3, 0, 256, NULL), 0);
}

UNIT_TEST(wide_indexes_begin_above_32_bits)
{
    assert_int_equal(topk_index_bytes(UINT32_MAX), 4);
    assert_int_equal(topk_index_bytes(UINT32_MAX + 1ull), 8);
    assert_int_equal(topk_wire_bytes(1ull << 40, 10), 120);
}

KERNEL_TEST(topk_refuses_bad_indexes)
{
    float w[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, acc[10];
    struct err err = ERR_INIT;
    uint32_t index[3];
    uint8_t wire[24 + 96];

    topk_encode(kernels, wire, w, 10, 3);
    topk_encode(kernels, wire + 24, w, 10, 3);
    assert_int_equal(topk_sum(acc, wire, 48, 2, 10, 3, &err), 0);
    assert_true(acc[9] == 10 && acc[7] == 8 && acc[6] == 7 && acc[3] == 0);
    assert_int_equal(topk_sum(acc, wire, 47, 2, 10, 3, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "top-k messages: 47 bytes of 2 members, must be 24 of each");
    assert_int_equal(topk_sum(acc, wire, 49, 2, 10, 3, NULL), -EBADMSG);
    memcpy(index, wire + 24, sizeof(index));
    index[2] = 10;
    memcpy(wire + 24, index, sizeof(index));
    assert_int_equal(topk_sum(acc, wire, 48, 2, 10, 3, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "top-k message of member 1: index 10 at place 2 of a tensor of "
                        "10 elements");
    index[2] = index[1];
    memcpy(wire + 24, index, sizeof(index));
    assert_int_equal(topk_sum(acc, wire, 48, 2, 10, 3, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "top-k message of member 1: index 5 at place 2 is not "
                        "above the one before");
}

/* Strides of the samples that a_guess_changes_nothing makes: what lies there misleads.
 */
enum { STRIDE_OF_MOST = 67, STRIDE_OF_FEW = 11, KINDS = 9 };

static float fill_one(uint32_t i, uint32_t n, uint32_t k, int kind, struct seeded *rnd)
{
    switch (kind) {
    case 0:
        return any_float(rnd, -20, 20);
    case 1:
        return i % 2 ? (float)i : -(float)i;
    case 2:
        return (i % 61 ? 1e-3f : 1) * any_float(rnd, 0, 2);
    case 3:
        return 5;
    case 4:
        return seeded_below(rnd, 20) ? 0 : NAN;
    case 5:
        return i < n - k ? 0 : any_float(rnd, 0, 9);
    case 6:
        return (float)seeded_below(rnd, 60); /* the k-th has many equals */
    case 7:
        return i % STRIDE_OF_MOST ? any_float(rnd, -9, 0) : 1000;
    default:
        return i % STRIDE_OF_FEW ? any_float(rnd, -9, 0) : 1000 + (i % 777 == 0);
    }
}

/* Large enough for a guess, and of kinds that make it good, useless or wrong. */
KERNEL_TEST(a_guess_changes_nothing)
{
    enum { MOST = 2000 };
    static float f[LEN];
    struct seeded rnd = {9};

    for (int kind = 0; kind < 2 * KINDS; kind++) {
        uint32_t k = kind < KINDS ? MOST : 100;

        for (uint32_t i = 0; i < LEN; i++)
            f[i] = fill_one(i, LEN, k, kind % KINDS, &rnd);
        check_topk(kernels, f, LEN, k);
    }
}

UNIT_MAIN(NULL, NULL)
