/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of kernels/topk.cu, compiled for the CPU, bit for bit against the codec
 * of host tensors. */

#include "runtime/core/compress/topk.h"
#include "tests/fakes/cuda/kernels_cpu.h"
#include "tests/unit/gpu_values.h"
#include "tests/unit/unit.h"

enum {
    TENSORS = 3,
    MAX_N = 3 * TOPK_CHUNK + 77,
    MAX_CHUNKS = 700,
    ROOM = TENSORS * (MAX_N + 8),
    MEMBERS = 3,
    WIRE = MAX_N * 8 + 16,
};
_Static_assert(sizeof(struct topk_tensor) == 2 * sizeof(struct chunk), "a table's");
_Static_assert(sizeof(struct topk_found) == 24, "24");

static const uint32_t sizes[] = {
    1, 3, 255, 1024, 4099, 8191, 8192, 8193, 2 * TOPK_CHUNK + 9, MAX_N};
#define N_OF(a) (sizeof(a) / sizeof(a)[0])

enum filling { NORMAL, TIES, ZEROS, NOT_FINITE, TINY, ALL_EQUAL, FILLINGS };

static uint64_t random_state = 7;

static uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

static double random_number(enum filling f)
{
    double u = (double)random_u32() / 2147483648.0, v = exp(12 * u - 10);

    if (random_u32() % 2)
        v = -v;
    switch (f) {
    case TIES:
        return (double)(random_u32() % 3) - 1;
    case ZEROS:
        return random_u32() % 50 ? (random_u32() % 2 ? 0.0 : -0.0) : v;
    case NOT_FINITE:
        return random_u32() % 7 ? v : random_u32() % 2 ? NAN : INFINITY;
    case TINY:
        return v * 1e-41;
    case ALL_EQUAL:
        return -0.5;
    case NORMAL:
    case FILLINGS:
        break;
    }
    return v;
}

/* --- a batch ------------------------------------------------------------------- */

static _Alignas(64) uint8_t in[ROOM * 8 + 64];
static _Alignas(64) float w[ROOM], want_w[MAX_N];
static _Alignas(64) uint8_t wire[TENSORS * WIRE], want[MAX_N * 8];
static struct chunk chunks[MAX_CHUNKS];
static struct topk_tensor tensors[TENSORS];
static struct topk_cell cells[TENSORS];
static struct topk_found found[MAX_CHUNKS];
static uint32_t marks[MAX_CHUNKS * 256];

struct asked {
    enum dtype t;
    double scale;
    bool adds;
    uint32_t n[TENSORS];
    uint64_t k[TENSORS];
    uint32_t width; /* 0: the codec's */
    unsigned shift; /* elements by which inputs lie off a vector's boundary */
    unsigned blocks;
    uint32_t chunk; /* 0: TOPK_CHUNK */
};

static uint8_t *input_at(const struct asked *q, unsigned i)
{
    return in + (i * (MAX_N + 8) + q->shift) * dtype_size(q->t);
}

static float *copy_at(unsigned i)
{
    return w + i * (MAX_N / 4 * 4 + 4);
}

/* Chunks of all tensors; their number. */
static uint32_t chunks_cut(const struct asked *q)
{
    const uint32_t each = q->chunk ? q->chunk : TOPK_CHUNK;
    uint32_t n = 0;

    for (unsigned i = 0; i < TENSORS; i++) {
        tensors[i] = (struct topk_tensor){
            .w = (uintptr_t)copy_at(i),
            .wire = i * (uint64_t)(WIRE - 4),
            .k = q->k[i],
            .first = n,
            .n_chunks = (q->n[i] + each - 1) / each,
            .width = q->width ? q->width : topk_index_bytes(q->n[i])};
        for (uint32_t at = 0; at < q->n[i]; at += each, n++)
            chunks[n] = (struct chunk){
                .src = (uintptr_t)(input_at(q, i) + at * dtype_size(q->t)),
                .dst = (uintptr_t)(copy_at(i) + at),
                .n = q->n[i] - at < each ? q->n[i] - at : each,
                .tensor = i};
    }
    return n;
}

static void
kernel_run(enum kernel_id k, struct args_topk *a, uint32_t n, unsigned blocks)
{
    a->n = n;
    cpu_kernel_run(&cpu_kernels[k], a, blocks, random_u32());
}

static void kernels_encode(const struct asked *q, uint8_t *to)
{
    const uint32_t n = chunks_cut(q);
    struct args_topk a = {.chunks = (uintptr_t)chunks,
                          .tensors = (uintptr_t)tensors,
                          .cells = (uintptr_t)cells,
                          .marks = (uintptr_t)marks,
                          .found = (uintptr_t)found,
                          .wire = (uintptr_t)to,
                          .scale = q->scale,
                          .adds = q->adds};
    unsigned type = q->t == DT_F32 ? 0 : q->t == DT_F64 ? 1 : q->t == DT_F16 ? 2 : 3;

    memset(cells, 0, sizeof(cells));
    kernel_run(KERNEL_topk_feed_f32 + type, &a, n, q->blocks);
    for (a.digit = 0;; a.digit++) {
        kernel_run(KERNEL_topk_digit, &a, TENSORS, q->blocks);
        if (a.digit == 2)
            break;
        a.digit++;
        kernel_run(KERNEL_topk_count, &a, n, q->blocks);
        a.digit--;
    }
    kernel_run(KERNEL_topk_mark, &a, n, q->blocks);
    kernel_run(KERNEL_topk_place, &a, TENSORS, q->blocks);
    kernel_run(KERNEL_topk_pick, &a, n, q->blocks);
}

static void inputs_fill(const struct asked *q, enum filling f)
{
    for (unsigned i = 0; i < TENSORS; i++)
        for (uint32_t e = 0; e < q->n[i]; e++) {
            value_put(q->t, input_at(q, i), e, random_number(f));
            copy_at(i)[e] =
                f == ALL_EQUAL || f == TIES ? 0 : (float)random_number(NORMAL) * 0.1f;
        }
}

/* want and want_w: by the codec. */
static void reference_encode(const struct asked *q, unsigned i)
{
    const struct codec_kernels *k = codec_kernels_of(false);

    memcpy(want_w, copy_at(i), q->n[i] * sizeof(float));
    if (q->adds)
        cast_add(k, want_w, input_at(q, i), q->t, q->n[i], q->scale);
    else
        cast_load(k, want_w, input_at(q, i), q->t, q->n[i], q->scale);
    assert_true(topk_room_bytes(q->n[i], q->k[i]) <= sizeof(want));
    topk_encode(k, want, want_w, q->n[i], q->k[i]);
}

/* n numbers, bit for bit; but the bits of a NaN depend on compilers and devices. */
static bool floats_match(const void *got, const void *wanted, uint64_t n)
{
    bool is = true;

    for (uint64_t i = 0; i < n; i++) {
        uint32_t a, b;

        memcpy(&a, (const uint8_t *)got + i * 4, 4);
        memcpy(&b, (const uint8_t *)wanted + i * 4, 4);
        is &= a == b || (isnan(f32_of_bits(a)) && isnan(f32_of_bits(b)));
    }
    return is;
}

/* Of one message with the codec's. */
static bool is_wanted(const uint8_t *got, uint64_t k, uint32_t width)
{
    return memcmp(got, want, k * width) == 0
           && floats_match(got + k * width, want + k * width, k);
}

static void check_matches(const struct asked *q, enum filling f)
{
    static float before[ROOM];

    inputs_fill(q, f);
    memset(wire, 0x5a, sizeof(wire));
    memcpy(before, w, sizeof(w));
    kernels_encode(q, wire);
    for (unsigned i = 0; i < TENSORS; i++) {
        static float after[MAX_N];
        uint64_t bytes = topk_wire_bytes(q->n[i], q->k[i]);

        memcpy(after, copy_at(i), q->n[i] * sizeof(float));
        memcpy(copy_at(i), before + (copy_at(i) - w), q->n[i] * sizeof(float));
        reference_encode(q, i);
        if (!floats_match(after, want_w, q->n[i])
            || !is_wanted(wire + tensors[i].wire, q->k[i], topk_index_bytes(q->n[i])))
            fail_msg("%s, filling %d: tensor %u, %llu of %u, shift %u, %u blocks",
                     dtype_name(q->t), (int)f, i, (unsigned long long)q->k[i], q->n[i],
                     q->shift, q->blocks);
        assert_int_equal(wire[tensors[i].wire + bytes], 0x5a);
    }
}

static uint64_t some_k(uint32_t n, unsigned which)
{
    const uint64_t k[] = {0, 1, n / 100, n / 3, n - 1, n};

    return k[which % N_OF(k)];
}

UNIT_TEST(messages_are_the_codecs)
{
    for (unsigned i = 0; i < 4 * FILLINGS * 4; i++) {
        struct asked q = {.t = float_types[i % 4],
                          .scale = i % 3 ? 1 : 0.3,
                          .adds = i % 5 != 0,
                          .shift = i % 7 % 4,
                          .blocks = 1 + i % 6};

        for (unsigned e = 0; e < TENSORS; e++) {
            q.n[e] = sizes[(i / 24 * 3 + e) % N_OF(sizes)];
            q.k[e] = some_k(q.n[e], i + e);
        }
        check_matches(&q, (enum filling)(i / 4 % FILLINGS));
    }
}

UNIT_TEST(many_chunks_are_placed)
{
    struct asked q = {.t = DT_F32,
                      .scale = 1,
                      .blocks = 3,
                      .chunk = 8,
                      .n = {8 * 600 - 3, 50, 49},
                      .k = {2500, 9, 8}};

    check_matches(&q, NORMAL);
    check_matches(&q, TIES);
}

static void
add_up(const uint8_t *from, uint64_t stride, uint32_t members, float *to, uint32_t n)
{
    struct args_topk_sum a = {.tensors = (uintptr_t)tensors,
                              .chunks = (uintptr_t)chunks,
                              .wire = (uintptr_t)from,
                              .stride = stride,
                              .factor = 1,
                              .n = 2,
                              .members = members};

    chunks[0] = (struct chunk){.dst = (uintptr_t)to, .n = 99};
    chunks[1] = (struct chunk){.src = 99, .dst = (uintptr_t)(to + 99), .n = n - 99};
    cpu_kernel_run(&cpu_kernels[KERNEL_topk_sum_f32], &a, 1, 0);
}

/* A tensor of more than 2^32 elements has indexes of 8 bytes. */
UNIT_TEST(long_indexes_are_the_short_ones)
{
    enum { N = 5003, K = 71 };
    static _Alignas(8) uint8_t narrow[N * 8];
    static float kept[ROOM], sums[2][N];
    struct asked q = {.t = DT_F32, .scale = 1, .blocks = 2, .n = {N}, .k = {K}};
    uint64_t wide[K];
    uint32_t index[K];

    inputs_fill(&q, NORMAL);
    memcpy(kept, w, sizeof(w));
    kernels_encode(&q, narrow);
    add_up(narrow, 0, 2, sums[0], N);
    memcpy(w, kept, sizeof(w));
    q.width = 8;
    kernels_encode(&q, wire + 4); /* not aligned to 8 */
    add_up(wire + 4, 0, 2, sums[1], N);
    memcpy(wide, wire + 4, sizeof(wide));
    memcpy(index, narrow, sizeof(index));
    for (unsigned i = 0; i < K; i++)
        assert_int_equal(wide[i], index[i]);
    assert_memory_equal(wire + 4 + K * 8, narrow + K * 4, K * 4);
    assert_memory_equal(sums[0], sums[1], sizeof(sums[0]));
}

/* More members than are looked for at once. */
UNIT_TEST(many_members_are_added_in_order)
{
    enum { N = 300, K = 20, MANY = 150 };
    static _Alignas(8) uint8_t all[MANY * K * 8];
    static float sum[N], acc[N];

    for (unsigned m = 0; m < MANY; m++) {
        struct asked q = {.t = DT_F32, .scale = 1, .blocks = 2, .n = {N}, .k = {K}};

        inputs_fill(&q, NORMAL);
        kernels_encode(&q, wire);
        memcpy(all + m * sizeof(all) / MANY, wire, sizeof(all) / MANY);
    }
    add_up(all, sizeof(all) / MANY, MANY, sum, N);
    assert_int_equal(0, topk_sum(acc, all, sizeof(all), MANY, N, K, NULL));
    assert_memory_equal(acc, sum, sizeof(sum));
}

/* --- sums ---------------------------------------------------------------------- */

UNIT_TEST(sums_are_the_codecs)
{
    static uint8_t messages[MEMBERS * WIRE];
    static _Alignas(64) uint8_t out[MAX_N * 8 + 64], sum[MAX_N * 8];
    static float acc[MAX_N];
    const struct codec_kernels *k = codec_kernels_of(false);

    for (unsigned i = 0; i < 4 * 3 * N_OF(sizes); i++) {
        enum dtype t = float_types[i % 4];
        uint32_t n = sizes[i / 12];
        struct asked q = {.t = DT_F32, .n = {n}, .k = {some_k(n, i / 4 % 3 * 2 + 1)}};
        const uint64_t bytes = topk_wire_bytes(n, q.k[0]);
        struct args_topk_sum a = {.tensors = (uintptr_t)tensors,
                                  .chunks = (uintptr_t)chunks,
                                  .wire = (uintptr_t)messages,
                                  .stride = bytes,
                                  .factor = i % 3 ? 1.0 / 3 : 1,
                                  .members = MEMBERS};
        uint8_t *to = out + (i / 4 % 5) * dtype_size(t);

        (void)chunks_cut(&q);
        for (unsigned m = 0; m < MEMBERS; m++) {
            inputs_fill(&q, m == 1 ? NOT_FINITE : TIES);
            topk_encode(k, want, (float *)(void *)input_at(&q, 0), n, q.k[0]);
            memcpy(messages + m * bytes, want, bytes);
        }
        for (uint32_t at = 0; at < n; at += TOPK_CHUNK, a.n++)
            chunks[a.n] =
                (struct chunk){.src = at,
                               .dst = (uintptr_t)(to + at * dtype_size(t)),
                               .n = n - at < TOPK_CHUNK ? n - at : TOPK_CHUNK};
        memset(out, 0x5a, sizeof(out));
        cpu_kernel_run(&cpu_kernels[KERNEL_topk_sum_f32 + i % 4], &a, 1 + i % 3, i);
        assert_int_equal(
            0, topk_sum(acc, messages, MEMBERS * bytes, MEMBERS, n, q.k[0], NULL));
        cast_store(k, sum, t, acc, n, a.factor);
        for (uint32_t e = 0; e < n; e++)
            if (!value_is_same(t, to, sum, e))
                fail_msg("%s: element %u of %u", dtype_name(t), e, n);
        assert_int_equal(to[n * dtype_size(t)], 0x5a);
    }
}

UNIT_TEST(zeros_are_the_codecs)
{
    for (unsigned i = 0; i < N_OF(sizes); i++) {
        struct asked q = {.t = DT_F32};
        struct args_topk a = {.tensors = (uintptr_t)tensors,
                              .chunks = (uintptr_t)chunks,
                              .wire = (uintptr_t)wire};
        uint64_t k = some_k(sizes[i], i), at;
        uint32_t n = 0;

        q.n[1] = sizes[i];
        q.k[1] = k;
        (void)chunks_cut(&q);
        for (at = 0; at < k; at += 3000)
            chunks[n++] = (struct chunk){
                .src = at, .n = (uint32_t)(k - at < 3000 ? k - at : 3000), .tensor = 1};
        memset(wire, 0x5a, sizeof(wire));
        kernel_run(KERNEL_topk_zeros, &a, n, 2);
        topk_zeros(want, sizes[i], k);
        assert_memory_equal(wire + tensors[1].wire, want, k * 8);
        assert_int_equal(wire[tensors[1].wire + k * 8], 0x5a);
    }
}

UNIT_MAIN(NULL, NULL)
