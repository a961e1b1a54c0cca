/* SPDX-License-Identifier: Apache-2.0 */
/* The k elements of largest magnitude of each tensor of a batch: the kernels topk_* of
 * args.h, bit for bit equal to core/compress/topk.c.
 *
 * Design: a radix selection as on the CPU, by digits of 11, 10 and 10 bits, of all
 * tensors in one launch per step. Elements are read in vectors of 16 bytes, four
 * times: once with the residual added, twice for the lower digits, once to mark those
 * that reach the limit. Digit 0 is not counted, because it has everything that is not
 * above it: zeros, which fill sparse gradients, cost no atomic. A block keeps its
 * counters in shared memory between chunks of one tensor.
 *
 * Marks are a word of 32 bits per thread, composed of 4 bits of each of 8 threads: so
 * each thread reads 16 bytes, and words are in the order of elements. A scan of their
 * counts gives each thread the place of its pairs: they are few, and those of
 * neighbours are adjacent.
 *
 * A block of topk_sum sums its part of the tensor in shared memory: indexes ascend, so
 * each member's pairs for it are contiguous and are found by bisection. Members are
 * added one after the other, so sums have the members' order.
 *
 * Included by kernels.cu, after feed.cu and int8.cu, which defines INT8_STORE_*. */

#define TOPK_INF 0x7f800000u

/* Orders as magnitudes do; all NaN are one. */
DEVICE uint32_t topk_magnitude(float f)
{
    uint32_t u = f32_bits(f) & 0x7fffffffu;
    return u > TOPK_INF ? TOPK_INF + 1 : u;
}

/* s[t] becomes the sum of s[0] to s[t]; s has room for twice 256. */
#define TOPK_SCAN(type, s)                                                             \
    for (unsigned step = 1, from = 0; step < 256; step *= 2, from = 256 - from) {      \
        EACH_THREAD(t)                                                                 \
        {                                                                              \
            type below = t >= step ? s[from + t - step] : 0;                           \
            s[256 - from + t] = s[from + t] + below;                                   \
        }                                                                              \
        SYNC                                                                           \
    }

/* --- digits ------------------------------------------------------------------- */

DEVICE void topk_clear(uint32_t *n, uint32_t buckets, unsigned t)
{
    for (uint32_t b = t; b < buckets; b += 256)
        n[b] = 0;
}

DEVICE void
topk_flush(struct topk_cell *cell, uint32_t *n, uint32_t buckets, unsigned t)
{
    for (uint32_t b = t; b < buckets; b += 256) {
        if (n[b] == 0)
            continue;
        ATOMIC_ADD64(&cell->n[b], n[b]);
        n[b] = 0;
    }
}

/* Is chunk i the block's last one of its tensor, or of as many as counters hold? */
DEVICE int topk_ends(const struct args_topk *a, uint32_t i, unsigned blocks, uint32_t n)
{
    const struct chunk *chunks = (const struct chunk *)a->chunks;
    return i + blocks >= a->n || chunks[i + blocks].tensor != chunks[i].tensor
           || n % 65536 == 0;
}

#define TOPK_SEE(f)                                                                    \
    do {                                                                               \
        uint32_t digit = topk_magnitude(f) >> 20;                                      \
        if (digit != 0)                                                                \
            ATOMIC_ADD32(&seen[digit], 1);                                             \
    } while (0)

#define DEFINE_TOPK_FEED(name, T, FLOAT, DOUBLE)                                       \
    FEED(name##_chunk, T, FLOAT, DOUBLE, TOPK_SEE)                                     \
    KERNEL(name, struct args_topk)                                                     \
    {                                                                                  \
        SHARED(uint32_t, n, 2048);                                                     \
        const struct chunk *chunks = (const struct chunk *)a.chunks;                   \
        struct topk_cell *cells = (struct topk_cell *)a.cells;                         \
        uint32_t held = 0;                                                             \
        EACH_THREAD(t) topk_clear(n, 2048, t);                                         \
        SYNC for (uint32_t i = BLOCK; i < a.n; i += BLOCKS)                            \
        {                                                                              \
            struct chunk c = chunks[i];                                                \
            EACH_THREAD(t) name##_chunk(&c, a.scale, a.adds, n, t);                    \
            if (topk_ends(&a, i, BLOCKS, ++held)) {                                    \
                SYNC EACH_THREAD(t) topk_flush(&cells[c.tensor], n, 2048, t);          \
                SYNC                                                                   \
            }                                                                          \
        }                                                                              \
    }

DEFINE_TOPK_FEED(topk_feed_f32, float, INT8_FLOAT, INT8_DOUBLE)
DEFINE_TOPK_FEED(topk_feed_f64, double, INT8_FLOAT, INT8_DOUBLE)
DEFINE_TOPK_FEED(topk_feed_f16, uint16_t, f32_of_f16, INT8_DOUBLE_F16)
DEFINE_TOPK_FEED(topk_feed_bf16, uint16_t, f32_of_bf16, INT8_DOUBLE_BF16)

DEVICE void topk_see(uint32_t *n, float f, uint32_t prefix, uint32_t shift)
{
    uint32_t m = topk_magnitude(f), digit = (m >> shift) & 1023u;
    if (m >> (shift + 10) == prefix && digit != 0)
        ATOMIC_ADD32(&n[digit], 1);
}

DEVICE void topk_see_chunk(
    const struct chunk *c, uint32_t *n, uint32_t prefix, uint32_t shift, unsigned t)
{
    const struct f32_four *w4 = (const struct f32_four *)c->dst;
    const uint32_t n4 = c->n / 4;
    uint32_t i = t;
    ROLLED for (; i + 3 * 256 < n4; i += 4 * 256)
    {
        struct f32_four v[4];
        UNROLL for (uint32_t j = 0; j < 4; j++) v[j] = w4[i + j * 256];
        UNROLL for (uint32_t j = 0; j < 16; j++)
            topk_see(n, v[j / 4].e[j % 4], prefix, shift);
    }
    ROLLED for (; i < n4; i += 256)
    {
        struct f32_four v = w4[i];
        UNROLL for (uint32_t e = 0; e < 4; e++) topk_see(n, v.e[e], prefix, shift);
    }
    if (4 * n4 + t < c->n)
        topk_see(n, ((const float *)c->dst)[4 * n4 + t], prefix, shift);
}

KERNEL(topk_count, struct args_topk)
{
    SHARED(uint32_t, n, 1024);
    const struct chunk *chunks = (const struct chunk *)a.chunks;
    struct topk_cell *cells = (struct topk_cell *)a.cells;
    uint32_t held = 0, shift = a.digit == 1 ? 10 : 0;
    EACH_THREAD(t) topk_clear(n, 1024, t);
    SYNC for (uint32_t i = BLOCK; i < a.n; i += BLOCKS)
    {
        struct chunk c = chunks[i];
        uint32_t prefix = cells[c.tensor].prefix;
        EACH_THREAD(t) topk_see_chunk(&c, n, prefix, shift, t);
        if (topk_ends(&a, i, BLOCKS, ++held)) {
            SYNC EACH_THREAD(t) topk_flush(&cells[c.tensor], n, 1024, t);
            SYNC
        }
    }
}

/* Thread t has `per` buckets, the first thread the highest ones. */
DEVICE uint32_t topk_bucket(uint32_t per, unsigned t, uint32_t e)
{
    return per * 256 - 1 - (t * per + e);
}

DEVICE uint64_t topk_held(const struct topk_cell *cell, uint32_t per, unsigned t)
{
    uint64_t n = 0;
    for (uint32_t e = 0; e < per; e++)
        n += cell->n[topk_bucket(per, t, e)];
    return n;
}

/* above: how many are in higher buckets than thread t's, which hold `mine`. Leaves
 * zeros for the next digit. */
DEVICE void topk_choose(struct topk_cell *cell,
                        uint64_t need,
                        uint32_t prefix,
                        uint32_t per,
                        uint64_t above,
                        uint64_t mine,
                        unsigned t)
{
    int is_mine = above < need && (above + mine >= need || t == 255);
    if (need == 0 && t == 0)
        cell->prefix = 0xffffffffu; /* none: no magnitude reaches it */
    for (uint32_t e = 0; e < per; e++) {
        uint32_t b = topk_bucket(per, t, e);
        uint64_t n = cell->n[b];
        cell->n[b] = 0;
        if (is_mine && (n >= need - above || b == 0)) {
            cell->prefix = prefix << 10 | b;
            cell->need = need - above;
            is_mine = 0;
        }
        above += n;
    }
}

KERNEL(topk_digit, struct args_topk)
{
    SHARED(uint64_t, s, 512);
    PRIVATE(uint64_t, mine);
    const struct topk_tensor *tensors = (const struct topk_tensor *)a.tensors;
    struct topk_cell *cells = (struct topk_cell *)a.cells;
    uint32_t per = a.digit == 0 ? 8 : 4;
    for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {
        uint64_t need = a.digit == 0 ? tensors[i].k : cells[i].need;
        uint32_t prefix = a.digit == 0 ? 0 : cells[i].prefix;
        EACH_THREAD(t) s[t] = P(mine, t) = topk_held(&cells[i], per, t);
        SYNC TOPK_SCAN(uint64_t, s) EACH_THREAD(t)
        {
            topk_choose(&cells[i], need, prefix, per, s[t] - P(mine, t), P(mine, t), t);
        }
        SYNC
    }
}

/* --- pairs -------------------------------------------------------------------- */

/* Which of 4 reach the limit, a bit each; numbers of those above it and (at bit 16)
 * equal to it are added to *sum. */
DEVICE uint32_t topk_mark_four(const struct f32_four *v, uint32_t limit, uint32_t *sum)
{
    uint32_t bits = 0;
    UNROLL for (uint32_t e = 0; e < 4; e++)
    {
        uint32_t m = topk_magnitude(v->e[e]);
        *sum += m > limit ? 1u : m == limit ? 65536u : 0u;
        bits |= m >= limit ? 1u << e : 0u;
    }
    return bits;
}

DEVICE uint32_t topk_mark_chunk(const struct chunk *c,
                                uint32_t limit,
                                uint8_t *bits,
                                unsigned t)
{
    const struct f32_four *w4 = (const struct f32_four *)c->dst;
    uint32_t sum = 0;
    if (c->n == TOPK_CHUNK) {
        struct f32_four v[8];
        UNROLL for (uint32_t j = 0; j < 8; j++) v[j] = w4[j * 256 + t];
        UNROLL for (uint32_t j = 0; j < 8; j++) bits[j * 256 + t] =
            (uint8_t)topk_mark_four(&v[j], limit, &sum);
        return sum;
    }
    ROLLED for (uint32_t i = t; i < TOPK_CHUNK / 4; i += 256)
    {
        struct f32_four v = {{0}};
        uint32_t left = 4 * i < c->n ? c->n - 4 * i : 0;
        UNROLL for (uint32_t e = 0; e < 4; e++)
        {
            if (e < left)
                v.e[e] = ((const float *)c->dst)[4 * i + e];
        }
        /* What is beyond the end may be counted as equal to a limit of 0: no chunk of
         * the tensor comes after it. */
        uint32_t is = topk_mark_four(&v, limit, &sum);
        bits[i] = (uint8_t)(left < 4 ? is & ((1u << left) - 1) : is);
    }
    return sum;
}

/* 4 bits of each of 8 bytes. */
DEVICE uint32_t topk_word(const uint32_t *bits, unsigned t)
{
    uint32_t low = bits[2 * t], high = bits[2 * t + 1];
    low =
        (low & 0xfu) | (low >> 4 & 0xf0u) | (low >> 8 & 0xf00u) | (low >> 12 & 0xf000u);
    high = (high & 0xfu) | (high >> 4 & 0xf0u) | (high >> 8 & 0xf00u)
           | (high >> 12 & 0xf000u);
    return low | high << 16;
}

KERNEL(topk_mark, struct args_topk)
{
    SHARED(uint32_t, bits, 512);
    SHARED(uint32_t, s, 256);
    const struct chunk *chunks = (const struct chunk *)a.chunks;
    const struct topk_cell *cells = (const struct topk_cell *)a.cells;
    struct topk_found *found = (struct topk_found *)a.found;
    uint32_t *marks = (uint32_t *)a.marks;
    for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {
        struct chunk c = chunks[i];
        uint32_t limit = cells[c.tensor].prefix;
        EACH_THREAD(t) s[t] = topk_mark_chunk(&c, limit, (uint8_t *)bits, t);
        SYNC EACH_THREAD(t) marks[(uint64_t)i * 256 + t] = topk_word(bits, t);
        for (unsigned half = 128; half > 0; half /= 2) {
            EACH_THREAD(t)
            {
                if (t < half)
                    s[t] += s[t + half];
            }
            SYNC
        }
        EACH_THREAD(t)
        {
            if (t == 0) {
                found[i].above = s[0] & 0xffffu;
                found[i].ties = s[0] >> 16;
            }
        }
        SYNC
    }
}

KERNEL(topk_place, struct args_topk)
{
    SHARED(uint64_t, s, 512);
    PRIVATE(uint64_t, mine);
    const struct topk_tensor *tensors = (const struct topk_tensor *)a.tensors;
    for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {
        struct topk_found *found = (struct topk_found *)a.found + tensors[i].first;
        uint64_t n = tensors[i].n_chunks, above = 0, ties = 0;
        for (uint64_t at = 0; at < n; at += 256) {
            EACH_THREAD(t)
            {
                struct topk_found *f = &found[at + t];
                P(mine, t) = at + t < n ? f->above | (uint64_t)f->ties << 32 : 0;
                s[t] = P(mine, t);
            }
            SYNC TOPK_SCAN(uint64_t, s) EACH_THREAD(t)
            {
                uint64_t before = s[t] - P(mine, t);
                if (at + t < n) {
                    found[at + t].above_before = above + (before & 0xffffffffu);
                    found[at + t].ties_before = ties + (before >> 32);
                }
            }
            above += s[255] & 0xffffffffu;
            ties += s[255] >> 32;
            SYNC
        }
    }
}

/* The place of the one bit of a word. */
DEVICE uint32_t topk_bit(uint32_t one)
{
    return (one & 0xaaaaaaaau ? 1u : 0u) | (one & 0xccccccccu ? 2u : 0u)
           | (one & 0xf0f0f0f0u ? 4u : 0u) | (one & 0xff00ff00u ? 8u : 0u)
           | (one & 0xffff0000u ? 16u : 0u);
}

/* Of the elements that are set in a word: how many are above the limit, in the low 16
 * bits, and how many are not, in the high 16 bits. */
DEVICE uint32_t topk_count_above(const struct chunk *c,
                                 uint32_t word,
                                 uint32_t limit,
                                 unsigned t)
{
    const float *w = (const float *)c->dst + t * 32;
    uint32_t sum = 0;
    for (; word != 0; word &= word - 1)
        sum += topk_magnitude(w[topk_bit(word & (0 - word))]) > limit ? 1u : 65536u;
    return sum;
}

/* Pair i of the message at wire. Indexes are not aligned to 8. */
DEVICE void topk_put(
    uint64_t wire, const struct topk_tensor *x, uint64_t i, uint64_t index, float value)
{
    uint32_t *to = (uint32_t *)(wire + i * x->width);
    to[0] = (uint32_t)index;
    if (x->width == 8)
        to[1] = (uint32_t)(index >> 32);
    ((float *)(wire + x->k * x->width))[i] = value;
}

struct topk_reach {
    uint64_t wire, first; /* of the tensor's message; element 0 of the chunk */
    uint64_t need, above, ties;
    uint32_t limit;
};

/* Takes the pairs of thread t's word, of which `before` are in words before. */
DEVICE void topk_take(const struct chunk *c,
                      const struct topk_tensor *x,
                      const struct topk_reach *r,
                      uint32_t word,
                      uint32_t before,
                      unsigned t)
{
    float *w = (float *)c->dst;
    uint64_t above = r->above + (before & 0xffffu), ties = r->ties + (before >> 16);
    for (; word != 0; word &= word - 1) {
        uint32_t e = t * 32 + topk_bit(word & (0 - word));
        float v = w[e];
        int is_tie = topk_magnitude(v) == r->limit;
        uint64_t at = above + (ties < r->need ? ties : r->need);
        if (is_tie && ties >= r->need)
            continue;
        topk_put(r->wire, x, at, r->first + e, v);
        w[e] = 0;
        above += is_tie ? 0 : 1;
        ties += is_tie ? 1 : 0;
    }
}

/* More were not finite than could be sent: they do not stay. */
DEVICE void topk_scrub(const struct chunk *c, unsigned t)
{
    float *w = (float *)c->dst;
    for (uint32_t i = t * 32; i < t * 32 + 32 && i < c->n; i++)
        if (topk_magnitude(w[i]) >= TOPK_INF)
            w[i] = 0;
}

KERNEL(topk_pick, struct args_topk)
{
    SHARED(uint32_t, s, 512);
    PRIVATE(uint32_t, word);
    PRIVATE(uint32_t, mine);
    const struct chunk *chunks = (const struct chunk *)a.chunks;
    const struct topk_tensor *tensors = (const struct topk_tensor *)a.tensors;
    const struct topk_cell *cells = (const struct topk_cell *)a.cells;
    const struct topk_found *found = (const struct topk_found *)a.found;
    const uint32_t *marks = (const uint32_t *)a.marks;
    for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {
        struct chunk c = chunks[i];
        struct topk_tensor x = tensors[c.tensor];
        struct topk_reach r = {a.wire + x.wire,      (c.dst - x.w) / 4,
                               cells[c.tensor].need, found[i].above_before,
                               found[i].ties_before, cells[c.tensor].prefix};
        if (found[i].above + found[i].ties != 0) {
            EACH_THREAD(t)
            {
                P(word, t) = marks[(uint64_t)i * 256 + t];
                P(mine, t) = topk_count_above(&c, P(word, t), r.limit, t);
                s[t] = P(mine, t);
            }
            SYNC TOPK_SCAN(uint32_t, s) EACH_THREAD(t)
                topk_take(&c, &x, &r, P(word, t), s[t] - P(mine, t), t);
            SYNC
        }
        if (r.limit >= TOPK_INF && r.limit <= TOPK_INF + 1) {
            EACH_THREAD(t) topk_scrub(&c, t);
        }
    }
}

KERNEL(topk_zeros, struct args_topk)
{
    const struct chunk *chunks = (const struct chunk *)a.chunks;
    const struct topk_tensor *tensors = (const struct topk_tensor *)a.tensors;
    for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {
        struct chunk c = chunks[i];
        struct topk_tensor x = tensors[c.tensor];
        EACH_THREAD(t)
        {
            for (uint64_t at = c.src + t; at < c.src + c.n; at += 256)
                topk_put(a.wire + x.wire, &x, at, at, 0);
        }
    }
}

/* --- sums --------------------------------------------------------------------- */

DEVICE uint64_t topk_index(uint64_t wire, uint64_t width, uint64_t i)
{
    const uint32_t *p = (const uint32_t *)(wire + i * width);
    return width == 8 ? p[0] | (uint64_t)p[1] << 32 : p[0];
}

/* The first of the k pairs whose index is not below. */
DEVICE uint64_t topk_find(uint64_t wire, const struct topk_tensor *x, uint64_t index)
{
    uint64_t low = 0, high = x->k;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (topk_index(wire, x->width, middle) < index)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Pairs from `at` to end, each at a place of its own in acc[n]. */
DEVICE void topk_add(float *acc,
                     uint32_t n,
                     uint64_t first,
                     uint64_t wire,
                     const struct topk_tensor *x,
                     uint64_t at,
                     uint64_t end,
                     unsigned t)
{
    const float *value = (const float *)(wire + x->k * x->width);
    for (at += t; at < end; at += 256) {
        uint64_t e = topk_index(wire, x->width, at) - first;
        if (e < n) /* what came is no message of ours otherwise */
            acc[e] += value[at];
    }
}

#define DEFINE_TOPK_SUM(name, T, STORE)                                                \
    struct ALIGNED(sizeof(T) < 4 ? 8 : 16) name##_four {                               \
        T e[4];                                                                        \
    };                                                                                 \
    DEVICE void name##_store(const struct chunk *c, const float *acc, double factor,   \
                             unsigned t)                                               \
    {                                                                                  \
        struct name##_four *out4 = (struct name##_four *)c->dst;                       \
        T *out = (T *)c->dst;                                                          \
        const uint32_t n4 = (c->dst & (sizeof(T) < 4 ? 7 : 15)) == 0 ? c->n / 4 : 0;   \
        for (uint32_t i = t; i < n4; i += 256) {                                       \
            struct f32_four v = ((const struct f32_four *)acc)[i];                     \
            struct name##_four o;                                                      \
            UNROLL for (uint32_t e = 0; e < 4; e++) o.e[e] = STORE(v.e[e]);            \
            out4[i] = o;                                                               \
        }                                                                              \
        for (uint32_t i = 4 * n4 + t; i < c->n; i += 256)                              \
            out[i] = STORE(acc[i]);                                                    \
    }                                                                                  \
    KERNEL(name, struct args_topk_sum)                                                 \
    {                                                                                  \
        SHARED(struct f32_four, acc, TOPK_CHUNK / 4);                                  \
        SHARED(uint64_t, ends, 256);                                                   \
        const struct chunk *chunks = (const struct chunk *)a.chunks;                   \
        const struct topk_tensor *tensors = (const struct topk_tensor *)a.tensors;     \
        for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {                               \
            struct chunk c = chunks[i];                                                \
            struct topk_tensor x = tensors[c.tensor];                                  \
            uint64_t wire = a.wire + x.wire;                                           \
            EACH_THREAD(t)                                                             \
            {                                                                          \
                UNROLL for (uint32_t j = 0; j < TOPK_CHUNK / 4; j += 256)              \
                {                                                                      \
                    struct f32_four zero = {{0}};                                      \
                    acc[t + j] = zero;                                                 \
                }                                                                      \
            }                                                                          \
            for (uint32_t m = 0; m < a.members; m++) {                                 \
                uint64_t here = wire + m * a.stride;                                   \
                if (m % 128 == 0) {                                                    \
                    EACH_THREAD(t)                                                     \
                    {                                                                  \
                        uint32_t k = m + t % 128;                                      \
                        if (k < a.members)                                             \
                            ends[t] = topk_find(wire + k * a.stride, &x,               \
                                                c.src + (t < 128 ? 0 : c.n));          \
                    }                                                                  \
                    SYNC                                                               \
                }                                                                      \
                EACH_THREAD(t)                                                         \
                {                                                                      \
                    topk_add((float *)acc, c.n, c.src, here, &x, ends[m % 128],        \
                             ends[m % 128 + 128], t);                                  \
                }                                                                      \
                SYNC                                                                   \
            }                                                                          \
            EACH_THREAD(t) name##_store(&c, (const float *)acc, a.factor, t);          \
            SYNC                                                                       \
        }                                                                              \
    }

DEFINE_TOPK_SUM(topk_sum_f32, float, INT8_STORE_F32)
DEFINE_TOPK_SUM(topk_sum_f64, double, INT8_STORE_F64)
DEFINE_TOPK_SUM(topk_sum_f16, uint16_t, INT8_STORE_F16)
DEFINE_TOPK_SUM(topk_sum_bf16, uint16_t, INT8_STORE_BF16)
