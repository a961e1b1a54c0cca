/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a batch: which tensors are packed, offsets, contiguity, chunks. */
#include "runtime/backend/nccl/fuse.h"
#include "tests/unit/seeded.h"
#include "tests/unit/unit.h"

enum { KIB = 1024, MIB = 1024 * KIB, BIG = 8 * MIB / 4, MAX_TENSORS = 300 };

static const struct comm_terms usual = {.direct_bytes = 8 * MIB,
                                        .fusion_bytes = UINT64_MAX};
static const struct comm_terms none = {.direct_bytes = 8 * MIB};
static const struct comm_terms tight = {.direct_bytes = 8 * MIB, .fusion_bytes = 48};
static const struct comm_terms tight_graphs = {
    .direct_bytes = 8 * MIB, .fusion_bytes = 48, .uses_graphs = true};
static const struct comm_terms exact = {
    .direct_bytes = 8 * MIB, .fusion_bytes = UINT64_MAX, .is_deterministic = true};
static const struct comm_terms graphs = {
    .direct_bytes = 8 * MIB, .fusion_bytes = UINT64_MAX, .uses_graphs = true};
static const struct comm_terms none_small = {.fusion_bytes = UINT64_MAX};

struct layout {
    uint64_t counts[MAX_TENSORS], offsets[MAX_TENSORS];
    size_t n, size;
    struct fuse_plan plan;
};

static void layout_plan(struct layout *l, const struct comm_terms *t)
{
    assert_int_equal(0, fuse_plan(l->counts, l->n, l->size, t, &l->plan, l->offsets));
}

static bool layout_is_packed(const struct layout *l, size_t i)
{
    return fuse_is_packed(&l->plan, l->offsets[i]);
}

/* float32 tensors: L 8 MiB, l an element less, s an element, e none */
static void layout_read(struct layout *l, const char *tensors)
{
    *l = (struct layout){.n = strlen(tensors), .size = 4};
    for (size_t i = 0; i < l->n; i++)
        l->counts[i] = tensors[i] == 'L'   ? BIG
                       : tensors[i] == 'l' ? BIG - 1
                                           : tensors[i] == 's';
}

#define L16 "LLLLLLLLLLLLLLLL"
#define D16 "dddddddddddddddd"

UNIT_TEST(split_depends_on_counts_and_terms)
{
    static const struct {
        const struct comm_terms *t;
        const char *tensors, *ways; /* d direct, p packed, - empty */
    } rows[] = {
        {&usual, "s", "d"}, /* nothing is packed alone */
        {&usual, "L", "d"},
        {&usual, "e", "-"},
        {&usual, "ss", "pp"},
        {&usual, "ll", "pp"},
        {&usual, "LL", "dd"},
        {&usual, "LsL", "ddd"},
        {&usual, "LsLs", "dpdp"},
        {&usual, "slsL", "pppd"},
        {&usual, "eLese", "-d-p-"},
        {&usual, "Le", "d-"},
        {&usual, L16, D16},
        {&usual, L16 "L", D16 "d"}, /* the rest is one */
        {&usual, L16 "LL", D16 "pp"},
        {&usual, "ss" L16 "s", "pp" D16 "p"},
        {&usual, "s" L16 "Ls", "p" D16 "pp"},
        {&graphs, "LL", "dd"},
        {&graphs, "sL", "dd"},
        {&graphs, "sLs", "ppp"},
        {&graphs, L16 "LL", "pppppppppppppppppp"},
        {&none_small, "ss", "dd"},
        {&none_small, "ssssssssssssssssss", D16 "pp"},
        {&exact, "s", "d"},
        {&exact, "sLs" L16 "LLss", "ddd" D16 "dddd"},
        {NULL, "s", "p"}, /* sent as a type of another size */
        {NULL, "L", "p"},
        {NULL, "LsL", "ppp"},
        {&none, "ss", "dd"}, /* a member has no buffer */
        {&none, "sLs" L16 "LL", "ddd" D16 "dd"},
        {&tight, "sssL", "pppd"},
        {&tight, "sLsss", "pdppd"}, /* more than the smallest buffer */
        {&tight, "sLsslss", "pdppddd"},
        {&tight_graphs, "sss", "ppp"},
        {&tight_graphs, "ssss", "dddd"},
    };
    static struct layout l;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char ways[MAX_TENSORS] = "";

        layout_read(&l, rows[i].tensors);
        layout_plan(&l, rows[i].t);
        for (size_t k = 0; k < l.n; k++)
            ways[k] = l.counts[k] == 0 ? '-' : layout_is_packed(&l, k) ? 'p' : 'd';
        if (strcmp(ways, rows[i].ways) != 0)
            fail_msg("row %zu, %s: %s", i, rows[i].tensors, ways);
    }
}

/* Packed tensors from 0 on, direct ones behind them; nothing between but padding. */
static void layout_check(const struct layout *l)
{
    uint64_t end[2] = {l->plan.packed_bytes, 0};
    for (size_t k = 0; k < l->n; k++) {
        uint64_t *at = &end[layout_is_packed(l, k)];
        if (l->counts[k] == 0)
            continue;
        assert_int_equal(l->offsets[k], *at);
        *at = l->offsets[k] + (l->counts[k] * l->size + 15) / 16 * 16;
    }
    assert_int_equal(end[1], l->plan.packed_bytes);
    assert_int_equal(end[0], l->plan.bytes);
    assert_int_equal(l->plan.bytes % 16, 0);
}

UNIT_TEST(offsets_are_multiples_of_16_without_overlap)
{
    static const struct comm_terms low = {.direct_bytes = 100,
                                          .fusion_bytes = UINT64_MAX};
    static const uint64_t counts[] = {1, 0, 16, 3, 15, 17, 0, 1000, 2, 7};
    static const size_t sizes[] = {1, 2, 4, 8};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct layout l = {.n = 10, .size = sizes[i]};
        memcpy(l.counts, counts, sizeof(counts));
        layout_plan(&l, NULL);
        layout_check(&l);
        assert_int_equal(l.plan.packed_bytes, l.plan.bytes);
        layout_plan(&l, &low);
        layout_check(&l);
        assert_true(l.plan.packed_bytes > 0 && l.plan.packed_bytes < l.plan.bytes);
    }
}

/* Of any batch: a large tensor is packed only behind FUSE_GROUP_MAX others. */
UNIT_TEST(a_group_has_few_calls_and_packs_small_tensors)
{
    static struct layout l;
    struct seeded r = {21};
    for (int i = 0; i < 3000 / FEWER; i++) {
        uint32_t n_large = 0, n_direct = 0;
        l.n = 1 + seeded_below(&r, 60);
        l.size = 1u << seeded_below(&r, 4);
        for (size_t k = 0; k < l.n; k++)
            l.counts[k] = seeded_below(&r, 3 * 1000 / (uint32_t)l.size);
        const struct comm_terms t = {.direct_bytes = seeded_below(&r, 4000),
                                     .fusion_bytes = UINT64_MAX};
        layout_plan(&l, &t);
        layout_check(&l);
        for (size_t k = 0; k < l.n; k++) {
            const bool is_large = l.counts[k] * l.size >= t.direct_bytes;
            if (layout_is_packed(&l, k))
                assert_true(!is_large || n_large >= FUSE_GROUP_MAX || !l.counts[k]);
            else
                n_direct += l.counts[k] > 0;
            n_large += is_large;
        }
        assert_true(n_direct + (l.plan.packed_bytes > 0) <= FUSE_GROUP_MAX + 1);
    }
}

UNIT_TEST(more_than_any_memory_is_refused)
{
    uint64_t one = UINT64_MAX / 4 + 1, two[] = {INT64_MAX / 9, INT64_MAX / 9},
             offsets[2];
    struct fuse_plan p;
    assert_int_equal(-EOVERFLOW, fuse_plan(&one, 1, 4, &usual, &p, offsets));
    assert_int_equal(-EOVERFLOW, fuse_plan(two, 2, 8, &usual, &p, offsets));
    assert_int_equal(-EOVERFLOW, fuse_plan(two, 2, 8, NULL, &p, offsets));
}

/* Of float32 tensors. */
static uint64_t find_base(const uint64_t *counts,
                          const uint64_t *addresses,
                          size_t n,
                          const struct comm_terms *t)
{
    struct layout l = {.n = n, .size = 4};
    memcpy(l.counts, counts, n * sizeof(*counts));
    layout_plan(&l, t);
    return fuse_find_base(&l.plan, t, 4, counts, l.offsets, addresses, n);
}

UNIT_TEST(contiguous_is_without_gaps_graphs_and_registration)
{
    static const uint64_t even[] = {4, 8, 0, 12}, odd[] = {4, 7, 0, 12},
                          first[] = {0, 8, 4};
    static const uint64_t a[] = {4096, 4112, 0, 4144}, gap[] = {4096, 4112, 0, 4160},
                          back[] = {4096, 4080, 0, 4144}, nowhere[] = {0, 0, 0, 0};
    struct comm_terms t = usual;
    assert_int_equal(find_base(even, a, 4, &t), 4096);
    assert_int_equal(find_base(first, a, 3, &t), 0);
    assert_int_equal(find_base(first, (uint64_t[]){0, 4112, 4144}, 3, &t), 4112);
    assert_int_equal(find_base(even, gap, 4, &t), 0);
    assert_int_equal(find_base(even, back, 4, &t), 0);
    assert_int_equal(find_base(even, nowhere, 4, &t), 0);
    assert_int_equal(find_base(odd, a, 4, &t), 0);
    assert_int_equal(find_base(even, a, 1, &t), 0); /* it is direct */
    t.uses_graphs = true;
    assert_int_equal(find_base(even, a, 4, &t), 0);
    t = usual;
    t.registers = true;
    assert_int_equal(find_base(even, a, 4, &t), 0);
}

/* Where the direct ones lie does not count. */
UNIT_TEST(only_packed_tensors_must_be_contiguous)
{
    static const uint64_t counts[] = {100, 4, 200, 8}, a[] = {64, 4096, 1 << 20, 4112},
                          gap[] = {64, 4096, 80, 4128};
    static const struct comm_terms t = {.direct_bytes = 400,
                                        .fusion_bytes = UINT64_MAX};
    assert_int_equal(find_base(counts, a, 4, &t), 4096);
    assert_int_equal(find_base(counts, gap, 4, &t), 0);
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
