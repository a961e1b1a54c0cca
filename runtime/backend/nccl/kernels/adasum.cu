/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of Adasum: dots_TYPE, dots_end and combine_TYPE of args.h.
 *
 * Design: both partners of a pair must get the same bits, so nothing depends on
 * addresses or on the number of blocks: element i of a chunk is summed by thread i %
 * 256, and the threads' sums are added pairwise; so are the chunks of a tensor.
 * Everything is in float64, as on the CPU, which sums in another order: results agree
 * to rounding. Included by kernels.cu. */

struct dots_shared {
    double ab[256], aa[256], bb[256];
};

/* One halving of 2 * n sums. */
DEVICE void dots_fold(struct dots_shared *s, unsigned t, unsigned n)
{
    if (t >= n)
        return;
    s->ab[t] += s->ab[t + n];
    s->aa[t] += s->aa[t + n];
    s->bb[t] += s->bb[t + n];
}

#define DEFINE_DOTS(name, T)                                                           \
    DEVICE void name##_chunk(const struct chunk *c, struct dots_shared *s, unsigned t) \
    {                                                                                  \
        const T *a = GLOBAL(const T, c->src), *b = GLOBAL(const T, c->dst);            \
        double ab = 0, aa = 0, bb = 0;                                                 \
        uint32_t i = t, n = c->n;                                                      \
        ROLLED for (; i + 3 * 256 < n; i += 4 * 256)                                   \
        {                                                                              \
            T x[4], y[4];                                                              \
            UNROLL for (uint32_t j = 0; j < 4; j++)                                    \
            {                                                                          \
                x[j] = a[i + j * 256];                                                 \
                y[j] = b[i + j * 256];                                                 \
            }                                                                          \
            UNROLL for (uint32_t j = 0; j < 4; j++)                                    \
            {                                                                          \
                ab += (double)x[j] * (double)y[j];                                     \
                aa += (double)x[j] * (double)x[j];                                     \
                bb += (double)y[j] * (double)y[j];                                     \
            }                                                                          \
        }                                                                              \
        ROLLED for (; i < n; i += 256)                                                 \
        {                                                                              \
            ab += (double)a[i] * (double)b[i];                                         \
            aa += (double)a[i] * (double)a[i];                                         \
            bb += (double)b[i] * (double)b[i];                                         \
        }                                                                              \
        s->ab[t] = ab;                                                                 \
        s->aa[t] = aa;                                                                 \
        s->bb[t] = bb;                                                                 \
    }                                                                                  \
    KERNEL(name, struct args_dots)                                                     \
    {                                                                                  \
        SHARED(struct dots_shared, s, 1);                                              \
        const struct chunk *chunks = (const struct chunk *)a.chunks;                   \
        struct dots *sums = (struct dots *)a.sums;                                     \
        for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {                               \
            struct chunk c = chunks[i];                                                \
            EACH_THREAD(t) name##_chunk(&c, s, t);                                     \
            SYNC for (unsigned n = 128; n > 0; n /= 2)                                 \
            {                                                                          \
                EACH_THREAD(t) dots_fold(s, t, n);                                     \
                SYNC                                                                   \
            }                                                                          \
            EACH_THREAD(t)                                                             \
            {                                                                          \
                if (t == 0) {                                                          \
                    sums[i].ab = s->ab[0];                                             \
                    sums[i].aa = s->aa[0];                                             \
                    sums[i].bb = s->bb[0];                                             \
                }                                                                      \
            }                                                                          \
            SYNC                                                                       \
        }                                                                              \
    }

DEFINE_DOTS(dots_f32, float)
DEFINE_DOTS(dots_f64, double)

/* As adasum_weights(): of a vector without length the other one is taken as it is. */
DEVICE double dots_weight(double ab, double own)
{
    return own >= 2.2250738585072014e-308 ? 1 - ab / own / 2 : 1.0;
}

DEVICE void dots_of_tensor(const struct chunk *c,
                           const struct dots *sums,
                           struct dots_shared *s,
                           unsigned t)
{
    double ab = 0, aa = 0, bb = 0;
    ROLLED for (uint32_t i = t; i < c->n; i += 256)
    {
        ab += sums[c->src + i].ab;
        aa += sums[c->src + i].aa;
        bb += sums[c->src + i].bb;
    }
    s->ab[t] = ab;
    s->aa[t] = aa;
    s->bb[t] = bb;
}

KERNEL(dots_end, struct args_dots_end)
{
    SHARED(struct dots_shared, s, 1);
    const struct chunk *tensors = (const struct chunk *)a.tensors;
    const struct dots *sums = (const struct dots *)a.sums;
    struct weights *weights = (struct weights *)a.weights;
    for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {
        struct chunk c = tensors[i];
        EACH_THREAD(t) dots_of_tensor(&c, sums, s, t);
        SYNC for (unsigned n = 128; n > 0; n /= 2)
        {
            EACH_THREAD(t) dots_fold(s, t, n);
            SYNC
        }
        EACH_THREAD(t)
        {
            if (t == 0) {
                weights[i].wa = dots_weight(s->ab[0], s->aa[0]);
                weights[i].wb = dots_weight(s->ab[0], s->bb[0]);
            }
        }
        SYNC
    }
}

#define DEFINE_COMBINE(name, T)                                                        \
    DEVICE void name##_chunk(const struct chunk *c, const struct weights *w,           \
                             unsigned t)                                               \
    {                                                                                  \
        const T *b = GLOBAL(const T, c->src);                                          \
        T *a = GLOBAL(T, c->dst);                                                      \
        double wa = w->wa, wb = w->wb;                                                 \
        uint32_t i = t, n = c->n;                                                      \
        ROLLED for (; i + 3 * 256 < n; i += 4 * 256)                                   \
        {                                                                              \
            T x[4], y[4];                                                              \
            UNROLL for (uint32_t j = 0; j < 4; j++)                                    \
            {                                                                          \
                x[j] = a[i + j * 256];                                                 \
                y[j] = b[i + j * 256];                                                 \
            }                                                                          \
            UNROLL for (uint32_t j = 0; j < 4; j++) a[i + j * 256] =                   \
                (T)(wa * (double)x[j] + wb * (double)y[j]);                            \
        }                                                                              \
        ROLLED for (; i < n; i += 256) a[i] =                                          \
            (T)(wa * (double)a[i] + wb * (double)b[i]);                                \
    }                                                                                  \
    KERNEL(name, struct args_combine)                                                  \
    {                                                                                  \
        const struct chunk *chunks = (const struct chunk *)a.chunks;                   \
        const struct weights *weights = (const struct weights *)a.weights;             \
        for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {                               \
            struct chunk c = chunks[i];                                                \
            EACH_THREAD(t) name##_chunk(&c, &weights[c.tensor], t);                    \
        }                                                                              \
    }

DEFINE_COMBINE(combine_f32, float)
DEFINE_COMBINE(combine_f64, double)
