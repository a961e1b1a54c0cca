/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the codecs that work on a float32 copy of a tensor: creates that copy.
 * Vectors of 4 elements, four of them in flight per thread. w is our memory and
 * aligned; an unaligned input is read element by element. Included by kernels.cu,
 * after int8.cu, which defines INT8_DOUBLE_*. */

struct ALIGNED(16) f32_four {
    float e[4];
};

/* name(chunk, scale, adds, counters, t): w = scale * in, added to what it is if adds,
 * in the roundings of cast_load and cast_add; SEE(f) is done with each element. FLOAT,
 * DOUBLE: of an element. */
#define FEED(name, T, FLOAT, DOUBLE, SEE)                                              \
    struct ALIGNED(sizeof(T) < 4 ? 8 : 16) name##_four {                               \
        T e[4];                                                                        \
    };                                                                                 \
    DEVICE float name##_one(T x, double scale, uint32_t adds, float w)                 \
    {                                                                                  \
        float f = scale == 1.0 ? FLOAT(x) : (float)(DOUBLE(x) * scale);                \
        return adds ? w + f : f;                                                       \
    }                                                                                  \
    DEVICE void name##_vector(const struct name##_four *x, struct f32_four *w,         \
                              double scale, uint32_t adds, uint32_t *seen)             \
    {                                                                                  \
        (void)seen;                                                                    \
        UNROLL for (uint32_t e = 0; e < 4; e++)                                        \
        {                                                                              \
            w->e[e] = name##_one(x->e[e], scale, adds, w->e[e]);                       \
            SEE(w->e[e]);                                                              \
        }                                                                              \
    }                                                                                  \
    DEVICE void name(const struct chunk *c, double scale, uint32_t adds,               \
                     uint32_t *seen, unsigned t)                                       \
    {                                                                                  \
        const T *in = (const T *)c->src;                                               \
        const struct name##_four *in4 = (const struct name##_four *)c->src;            \
        float *w = (float *)c->dst;                                                    \
        struct f32_four *w4 = (struct f32_four *)c->dst;                               \
        const uint32_t n = c->n;                                                       \
        const uint32_t n4 = (c->src & (sizeof(T) < 4 ? 7 : 15)) == 0 ? n / 4 : 0;      \
        uint32_t i = t;                                                                \
        ROLLED for (; i + 3 * 256 < n4; i += 4 * 256)                                  \
        {                                                                              \
            struct name##_four x[4];                                                   \
            struct f32_four v[4] = {{{0}}, {{0}}, {{0}}, {{0}}};                       \
            UNROLL for (uint32_t j = 0; j < 4; j++) x[j] = in4[i + j * 256];           \
            if (adds)                                                                  \
                UNROLL for (uint32_t j = 0; j < 4; j++) v[j] = w4[i + j * 256];        \
            UNROLL for (uint32_t j = 0; j < 4; j++)                                    \
            {                                                                          \
                name##_vector(&x[j], &v[j], scale, adds, seen);                        \
                w4[i + j * 256] = v[j];                                                \
            }                                                                          \
        }                                                                              \
        ROLLED for (; i < n4; i += 256)                                                \
        {                                                                              \
            struct name##_four x = in4[i];                                             \
            struct f32_four v = {{0}};                                                 \
            if (adds)                                                                  \
                v = w4[i];                                                             \
            name##_vector(&x, &v, scale, adds, seen);                                  \
            w4[i] = v;                                                                 \
        }                                                                              \
        ROLLED for (i = 4 * n4 + t; i < n; i += 256)                                   \
        {                                                                              \
            float f = name##_one(in[i], scale, adds, adds ? w[i] : 0);                 \
            w[i] = f;                                                                  \
            SEE(f);                                                                    \
        }                                                                              \
    }
