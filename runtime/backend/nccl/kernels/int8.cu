/* SPDX-License-Identifier: Apache-2.0 */
/* Quantisation to 8 bits: the kernels int8_code_TYPE and int8_sum_TYPE of args.h, bit
 * for bit equal to core/compress/int8.c.
 *
 * Design: a block of threads processes a block of the message, 4 elements per thread,
 * which stay in registers between finding the largest magnitude (as integers, so that
 * order does not matter) and rounding. Scales are read and written byte by byte,
 * because consecutive messages are not aligned. Included by kernels.cu, after move.cu.
 */

struct int8_four {
    float w[4];
};

DEVICE float int8_scale_at(const uint8_t *p)
{
    return f32_of_bits((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16
                       | (uint32_t)p[3] << 24);
}

DEVICE void int8_scale_put(uint8_t *p, float s)
{
    uint32_t u = f32_bits(s);
    p[0] = (uint8_t)u;
    p[1] = (uint8_t)(u >> 8);
    p[2] = (uint8_t)(u >> 16);
    p[3] = (uint8_t)(u >> 24);
}

/* Where block b of n_blocks is: which block of which shard's message. */
struct int8_place {
    uint64_t b, n_blocks;
    uint32_t shard;
};

DEVICE struct int8_place int8_place_of(uint64_t b, uint64_t n_blocks, uint32_t n_shards)
{
    struct int8_place p = {b, n_blocks, 0};
    if (n_shards > 1) {
        uint64_t each = n_blocks / n_shards, more = n_blocks % n_shards;
        uint64_t longer = more * (each + 1); /* blocks of the shards with one more */
        uint64_t j =
            b < longer ? b / (each + 1) : more + (b - longer) / (each > 0 ? each : 1);
        p.b = b - j * each - (j < more ? j : more);
        p.n_blocks = each + (j < more ? 1 : 0);
        p.shard = (uint32_t)j;
    }
    return p;
}

/* Of the largest magnitude's bits. */
DEVICE float int8_scale_of(uint32_t top)
{
    float s = f32_of_bits(top) / 127.0f;
    if (top >= 0x7f800000u)
        return f32_of_bits(0x7fc00000u);
    if (s < f32_of_bits(0x00800000u)) /* INT8_SCALE_MIN */
        return 0.0f;
    return s > f32_of_bits(0x7c010203u) ? f32_of_bits(0x7c010203u) : s;
}

DEVICE uint32_t int8_max(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The byte, and what it lacks. */
DEVICE int8_t int8_rounded(float x)
{
    return (int8_t)(uint8_t)f32_bits(x + 12582912.0f);
}

DEVICE void int8_store(const struct int8_code *a,
                       const struct int8_four *v,
                       uint64_t at,
                       uint32_t n,
                       float s,
                       uint8_t *q,
                       unsigned t)
{
    float *r = (float *)a->residual, inverse = 1.0f / s;
    UNROLL for (uint32_t j = 0; j < 4; j++)
    {
        uint32_t i = t + j * 256;
        if (i >= n)
            continue;
        float w = v->w[j];
        int8_t byte = s > 0.0f ? int8_rounded(w * inverse) : (int8_t)0;
        q[i] = (uint8_t)byte;
        if (r != 0)
            r[at + i] = s > 0.0f ? w - (float)byte * s : s != s ? 0.0f : w;
    }
}

/* Of n things at v, in order of `first`, the last one that begins at g or before. */
#define INT8_FIND(type, v, n, g, ret)                                                  \
    do {                                                                               \
        uint32_t end_ = (n);                                                           \
        (ret) = 0;                                                                     \
        while ((ret) + 1 < end_) {                                                     \
            uint32_t half_ = (ret) + (end_ - (ret)) / 2;                               \
            if (((const struct type *)(v))[half_].first <= (g))                        \
                (ret) = half_;                                                         \
            else                                                                       \
                end_ = half_;                                                          \
        }                                                                              \
    } while (0)

/* FLOAT(x), DOUBLE(x): element x as one, exactly or by cast_load's rounding. */
#define DEFINE_INT8_CODE(name, T, FLOAT, DOUBLE)                                       \
    DEVICE uint32_t name##_load(const struct int8_code *a, struct int8_four *v,        \
                                uint64_t at, uint32_t n, unsigned t)                   \
    {                                                                                  \
        const T *in = (const T *)a->in + at;                                           \
        const float *r = (const float *)a->residual;                                   \
        uint32_t top = 0;                                                              \
        UNROLL for (uint32_t j = 0; j < 4; j++)                                        \
        {                                                                              \
            uint32_t i = t + j * 256;                                                  \
            if (i >= n)                                                                \
                continue;                                                              \
            float x =                                                                  \
                a->scale == 1.0 ? FLOAT(in[i]) : (float)(DOUBLE(in[i]) * a->scale);    \
            v->w[j] = r != 0 ? r[at + i] + x : x;                                      \
            top = int8_max(top, f32_bits(v->w[j]) & 0x7fffffffu);                      \
        }                                                                              \
        return top;                                                                    \
    }                                                                                  \
    KERNEL(name, struct args_int8_code)                                                \
    {                                                                                  \
        SHARED(uint32_t, tops, 256);                                                   \
        PRIVATE(struct int8_four, v);                                                  \
        for (uint64_t g = BLOCK; g < a.n_blocks; g += BLOCKS) {                        \
            uint32_t which;                                                            \
            INT8_FIND(int8_code, a.tensors, a.n, g, which);                            \
            const struct int8_code c = ((const struct int8_code *)a.tensors)[which];   \
            uint64_t b = g - c.first, at = b * c.block, left = c.count - at;           \
            uint32_t n = left < c.block ? (uint32_t)left : c.block;                    \
            EACH_THREAD(t) tops[t] = name##_load(&c, &P(v, t), at, n, t);              \
            SYNC for (unsigned half = 128; half > 0; half /= 2)                        \
            {                                                                          \
                EACH_THREAD(t)                                                         \
                {                                                                      \
                    if (t < half)                                                      \
                        tops[t] = int8_max(tops[t], tops[t + half]);                   \
                }                                                                      \
                SYNC                                                                   \
            }                                                                          \
            float s = int8_scale_of(tops[0]);                                          \
            struct int8_place to = int8_place_of(b, c.n_blocks, c.n_shards);           \
            uint8_t *wire = (uint8_t *)(c.n_shards > 0 && to.shard == c.me             \
                                            ? c.own                                    \
                                            : c.wire + to.shard * c.stride);           \
            EACH_THREAD(t)                                                             \
            {                                                                          \
                if (t == 0)                                                            \
                    int8_scale_put(wire + 4 * to.b, s);                                \
                int8_store(&c, &P(v, t), at, n, s,                                     \
                           wire + 4 * to.n_blocks + to.b * c.block, t);                \
            }                                                                          \
            SYNC                                                                       \
        }                                                                              \
    }

#define INT8_DOUBLE(x)      ((double)(x))
#define INT8_FLOAT(x)       ((float)(x))
#define INT8_DOUBLE_F16(x)  ((double)f32_of_f16(x))
#define INT8_DOUBLE_BF16(x) ((double)f32_of_bf16(x))
DEFINE_INT8_CODE(int8_code_f32, float, INT8_FLOAT, INT8_DOUBLE)
DEFINE_INT8_CODE(int8_code_f64, double, INT8_FLOAT, INT8_DOUBLE)
DEFINE_INT8_CODE(int8_code_f16, uint16_t, f32_of_f16, INT8_DOUBLE_F16)
DEFINE_INT8_CODE(int8_code_bf16, uint16_t, f32_of_bf16, INT8_DOUBLE_BF16)

/* STORE(x): a sum as an element, by cast_store's rounding. */
#define DEFINE_INT8_SUM(name, T, STORE)                                                \
    DEVICE void name##_block(const struct int8_sum *a, uint64_t b, unsigned t)         \
    {                                                                                  \
        uint64_t at = b * a->block, left = a->count - at;                              \
        uint32_t n = left < a->block ? (uint32_t)left : a->block;                      \
        double factor = a->factor;                                                     \
        struct int8_place of = int8_place_of(b, a->n_blocks, a->n_shards);             \
        float sum[4] = {0, 0, 0, 0};                                                   \
        for (uint32_t k = 0; k < a->n; k++) {                                          \
            const uint8_t *wire =                                                      \
                (const uint8_t *)a->wire + (k + of.shard) * a->stride;                 \
            float s = int8_scale_at(wire + 4 * of.b);                                  \
            const uint8_t *q = wire + 4 * of.n_blocks + of.b * a->block;               \
            UNROLL for (uint32_t j = 0; j < 4; j++)                                    \
            {                                                                          \
                if (t + j * 256 < n)                                                   \
                    sum[j] += (float)(int8_t)q[t + j * 256] * s;                       \
            }                                                                          \
        }                                                                              \
        UNROLL for (uint32_t j = 0; j < 4; j++)                                        \
        {                                                                              \
            if (t + j * 256 < n)                                                       \
                ((T *)a->out)[at + t + j * 256] = STORE(sum[j]);                       \
        }                                                                              \
    }                                                                                  \
    KERNEL(name, struct args_int8_sum)                                                 \
    {                                                                                  \
        for (uint64_t g = BLOCK; g < a.n_blocks; g += BLOCKS) {                        \
            uint32_t which;                                                            \
            INT8_FIND(int8_sum, a.tensors, a.n, g, which);                             \
            const struct int8_sum c = ((const struct int8_sum *)a.tensors)[which];     \
            EACH_THREAD(t) name##_block(&c, g - c.first, t);                           \
        }                                                                              \
    }

#define INT8_STORE_F32(x)  (factor == 1.0 ? (x) : (float)((double)(x)*factor))
#define INT8_STORE_F64(x)  ((double)(x)*factor)
#define INT8_STORE_F16(x)  (factor == 1.0 ? f16_of_f32(x) : F16_OF_FACTOR(x))
#define INT8_STORE_BF16(x) (factor == 1.0 ? bf16_of_f32(x) : BF16_OF_FACTOR(x))
#define F16_OF_FACTOR(x)   f16_of_f32(f32_odd((double)(x)*factor))
#define BF16_OF_FACTOR(x)  bf16_of_f32(f32_odd((double)(x)*factor))
DEFINE_INT8_SUM(int8_sum_f32, float, INT8_STORE_F32)
DEFINE_INT8_SUM(int8_sum_f64, double, INT8_STORE_F64)
DEFINE_INT8_SUM(int8_sum_f16, uint16_t, INT8_STORE_F16)
DEFINE_INT8_SUM(int8_sum_bf16, uint16_t, INT8_STORE_BF16)
