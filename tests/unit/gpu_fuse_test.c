/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a batch: the way it travels, offsets, contiguity, chunks. */
#include "runtime/backend/nccl/fuse.h"
#include "tests/unit/unit.h"

enum { KIB = 1024, MIB = 1024 * KIB };

static const struct comm_terms usual = {.direct_bytes = 8 * MIB};
static const struct comm_terms exact = {.direct_bytes = 8 * MIB,
                                        .is_deterministic = true};

UNIT_TEST(way_depends_on_counts_types_and_terms)
{
    enum { BIG = 8 * MIB / 4 };
    static const struct {
        const struct comm_terms *t;
        uint64_t count;
        size_t n;
        enum dtype in, wire;
        enum fuse_way way;
        bool is_call_each;
    } rows[] = {
        {&usual, 1, 1, DT_F32, DT_F32, FUSE_DIRECT, false},
        {&usual, 1, 1, DT_BOOL, DT_U8, FUSE_DIRECT, false},
        {&usual, 0, 1, DT_F32, DT_F32, FUSE_DIRECT, false},
        {&usual, 1, 1, DT_I16, DT_I32, FUSE_PACKED, false},
        {&usual, 1, 1, DT_F32, DT_BF16, FUSE_PACKED, false},
        {&usual, BIG, 2, DT_F32, DT_F32, FUSE_GROUP, false},
        {&usual, BIG, 16, DT_F32, DT_F32, FUSE_GROUP, false},
        {&usual, BIG, 17, DT_F32, DT_F32, FUSE_PACKED, false},
        {&usual, BIG - 1, 2, DT_F32, DT_F32, FUSE_PACKED, false},
        {&usual, BIG, 2, DT_F32, DT_F16, FUSE_PACKED, false},
        {&usual, BIG, 2, DT_F16, DT_F16, FUSE_PACKED, false},
        {&exact, 1, 1, DT_F32, DT_F32, FUSE_DIRECT, false},
        {&exact, 1, 300, DT_F32, DT_F32, FUSE_GROUP, true},
        {&exact, 1, 3, DT_I16, DT_I32, FUSE_PACKED, true},
        {&exact, 1, 1, DT_I16, DT_I32, FUSE_PACKED, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t counts[300], offsets[300];
        struct fuse_plan p;
        for (size_t k = 0; k < rows[i].n; k++)
            counts[k] = rows[i].count;
        assert_int_equal(0, fuse_plan(counts, rows[i].n, rows[i].in, rows[i].wire,
                                      rows[i].t, &p, offsets));
        if (p.way != rows[i].way || p.is_call_each != rows[i].is_call_each)
            fail_msg("row %zu: way %d", i, (int)p.way);
        assert_int_equal(p.wire, rows[i].wire);
    }
    /* one small tensor among large ones: all are packed */
    uint64_t mixed[] = {BIG, BIG, 5}, offsets[3];
    struct fuse_plan p;
    assert_int_equal(0, fuse_plan(mixed, 3, DT_F32, DT_F32, &usual, &p, offsets));
    assert_int_equal(p.way, FUSE_PACKED);
}

UNIT_TEST(offsets_are_multiples_of_16_without_overlap)
{
    static const struct {
        enum dtype in, wire;
    } types[] = {{DT_U8, DT_U8},   {DT_F16, DT_F16}, {DT_F32, DT_F32},
                 {DT_F64, DT_F64}, {DT_F32, DT_F16}, {DT_I16, DT_I32}};
    static const uint64_t counts[] = {1, 0, 16, 3, 15, 17, 0, 1000, 2, 7};
    enum { N = 10 };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        uint64_t offsets[N], end = 0;
        struct fuse_plan p;
        size_t size = dtype_size(types[i].wire);
        assert_int_equal(
            0, fuse_plan(counts, N, types[i].in, types[i].wire, &usual, &p, offsets));
        for (size_t k = 0; k < N; k++) {
            assert_int_equal(offsets[k] % 16, 0);
            assert_true(offsets[k] >= end && offsets[k] < end + 16);
            end = offsets[k] + counts[k] * size;
        }
        assert_true(p.wire_bytes >= end && p.wire_bytes < end + 16);
        assert_int_equal(p.wire_bytes % 16, 0);
    }
}

UNIT_TEST(more_than_any_memory_is_refused)
{
    uint64_t one = UINT64_MAX / 4 + 1, two[] = {INT64_MAX / 9, INT64_MAX / 9},
             offsets[2];
    struct fuse_plan p;
    assert_int_equal(-EOVERFLOW,
                     fuse_plan(&one, 1, DT_F32, DT_F32, &usual, &p, offsets));
    assert_int_equal(-EOVERFLOW,
                     fuse_plan(two, 2, DT_F64, DT_F64, &usual, &p, offsets));
}

static bool plan_is_contiguous(const uint64_t *counts,
                               const uint64_t *addresses,
                               size_t n,
                               enum dtype in,
                               enum dtype wire,
                               const struct comm_terms *t)
{
    uint64_t offsets[8];
    struct fuse_plan p;
    assert_int_equal(0, fuse_plan(counts, n, in, wire, t, &p, offsets));
    return fuse_is_contiguous(&p, t, in, counts, offsets, addresses, n);
}

UNIT_TEST(contiguous_is_without_gaps_graphs_and_registration)
{
    static const uint64_t even[] = {4, 8, 0, 12}, odd[] = {4, 7, 0, 12};
    static const uint64_t a[] = {4096, 4112, 0, 4144}, gap[] = {4096, 4112, 0, 4160},
                          back[] = {4096, 4080, 0, 4144};
    struct comm_terms t = usual;
    assert_true(plan_is_contiguous(even, a, 4, DT_F32, DT_F32, &t));
    assert_false(plan_is_contiguous(even, gap, 4, DT_F32, DT_F32, &t));
    assert_false(plan_is_contiguous(even, back, 4, DT_F32, DT_F32, &t));
    assert_false(plan_is_contiguous(odd, a, 4, DT_F32, DT_F32, &t));
    assert_false(plan_is_contiguous(even, a, 4, DT_F32, DT_F16, &t));
    assert_false(plan_is_contiguous(even, a, 1, DT_F32, DT_F32, &t)); /* it is direct */
    t.uses_graphs = true;
    assert_false(plan_is_contiguous(even, a, 4, DT_F32, DT_F32, &t));
    t = usual;
    t.registers = true;
    assert_false(plan_is_contiguous(even, a, 4, DT_F32, DT_F32, &t));
}

UNIT_TEST(chunks_cover_a_tensor_in_order)
{
    static const struct {
        uint64_t count, n_chunks;
        uint32_t src_size, dst_size;
    } rows[] = {
        {0, 0, 4, 4},
        {1, 1, 4, 4},
        {8192, 1, 4, 4},
        {8193, 2, 4, 4},
        {8193, 2, 4, 2},
        {8193, 2, 2, 4},
        {16384, 1, 2, 2},
        {1000000, 31, 1, 1},
        {3 * 4096ul + 1, 4, 8, 2},
        {1ul << 33, 1ul << 18, 1, 1},
    };
    static struct chunk v[1 << 18];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (uint64_t src = 0; src < 2; src++) {
            struct fuse_move m = {.src = src * 0x100004,
                                  .dst = 0x9000000000,
                                  .count = rows[i].count,
                                  .src_size = rows[i].src_size,
                                  .dst_size = rows[i].dst_size,
                                  .tensor = 7};
            uint64_t at = 0, n = fuse_chunk_count(&m);
            assert_int_equal(n, rows[i].n_chunks);
            assert_int_equal(n, fuse_chunks(&m, v));
            for (uint64_t k = 0; k < n; k++) {
                assert_true(v[k].src == (src ? m.src + at * m.src_size : 0));
                assert_true(v[k].dst == m.dst + at * m.dst_size);
                assert_int_equal(v[k].tensor, 7);
                assert_true(v[k].n > 0 && (uint64_t)v[k].n * m.src_size <= CHUNK_BYTES
                            && (uint64_t)v[k].n * m.dst_size <= CHUNK_BYTES);
                at += v[k].n;
            }
            assert_true(at == m.count);
        }
}

UNIT_MAIN(NULL, NULL)
