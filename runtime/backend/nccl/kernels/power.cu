/* SPDX-License-Identifier: Apache-2.0 */
/* PowerSGD of all tensors of a batch: the kernels power_* of args.h, which do what
 * core/compress/powersgd.c does, except the products M Q and M^T P.
 *
 * Design: power_orthonormal processes one matrix per block: Gram-Schmidt twice over
 * each vector with sums in float64, as on the CPU. Eight of the earlier vectors are
 * subtracted at a time: they are orthonormal among themselves already, so that is
 * modified Gram-Schmidt to rounding, and the vector is read once for eight. A thread
 * has the same elements of all vectors in every phase; only sums pass between threads.
 * Sums are added in a fixed tree: members get the same bits.
 *
 * P Q^T is computed here and not by cuBLAS: with so few products per element it
 * matters that each element is written once, in the tensor's type and times its
 * factor, and that all members have the same bits whatever their GPUs. A thread
 * computes 8 rows of 4 columns that are a quarter of the tile's width apart: columns
 * of neighbouring threads are adjacent whatever the alignment, and 4 values of Q serve
 * 8 rows from registers.
 *
 * Included by kernels.cu, after feed.cu and int8.cu. */

#define POWER_SEE(f) (void)(f)

#define DEFINE_POWER_FEED(name, T, FLOAT, DOUBLE)                                      \
    FEED(name##_chunk, T, FLOAT, DOUBLE, POWER_SEE)                                    \
    KERNEL(name, struct args_power)                                                    \
    {                                                                                  \
        const struct chunk *chunks = (const struct chunk *)a.chunks;                   \
        for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {                               \
            struct chunk c = chunks[i];                                                \
            EACH_THREAD(t) name##_chunk(&c, a.scale, a.adds, 0, t);                    \
        }                                                                              \
    }

DEFINE_POWER_FEED(power_feed_f32, float, INT8_FLOAT, INT8_DOUBLE)
DEFINE_POWER_FEED(power_feed_f64, double, INT8_FLOAT, INT8_DOUBLE)
DEFINE_POWER_FEED(power_feed_f16, uint16_t, f32_of_f16, INT8_DOUBLE_F16)
DEFINE_POWER_FEED(power_feed_bf16, uint16_t, f32_of_bf16, INT8_DOUBLE_BF16)

/* --- orthonormal vectors ------------------------------------------------------ */

#define POWER_DEPENDENT 1e-6 /* as powersgd.c */
#define POWER_MAX       1.7976931348623157e308
#define POWER_AT_ONCE   8

struct power_shared {
    double s[POWER_AT_ONCE][256];
};

/* splitmix64 */
DEVICE uint64_t power_mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* As powersgd_draw. */
DEVICE void power_draw(float *v, uint64_t n, uint32_t j, uint64_t seed, unsigned t)
{
    uint64_t start = power_mix(seed + (j + 1) * 0xd1342543de82ef95u);
    for (uint64_t i = t; i < n; i += 256) {
        uint64_t z = power_mix(start + (i + 1) * 0x9e3779b97f4a7c15u);
        v[i] = (float)(int32_t)(z >> 40) * 1.1920928955078125e-07f - 1;
    }
}

/* The squares of a thread's elements, each times factor first and rounded: sums of
 * four. */
DEVICE double power_square(float *v, uint64_t n, double factor, unsigned t)
{
    double s[4] = {0, 0, 0, 0};
    uint64_t i = t;
    ROLLED for (; i + 3 * 256 < n; i += 4 * 256)
    {
        float x[4];
        UNROLL for (uint32_t e = 0; e < 4; e++) x[e] = v[i + e * 256];
        UNROLL for (uint32_t e = 0; e < 4; e++)
        {
            if (factor != 1)
                x[e] = v[i + e * 256] = (float)((double)x[e] * factor);
            s[e] += (double)x[e] * (double)x[e];
        }
    }
    ROLLED for (; i < n; i += 256)
    {
        float x = v[i];
        if (factor != 1)
            x = v[i] = (float)((double)x * factor);
        s[0] += (double)x * (double)x;
    }
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* Products of a thread's elements of v with those of `many` vectors at u. */
DEVICE void power_dots(const float *v,
                       const float *u,
                       uint64_t n,
                       uint32_t many,
                       struct power_shared *to,
                       unsigned t)
{
    double s[POWER_AT_ONCE] = {0, 0, 0, 0, 0, 0, 0, 0};
    uint64_t i = t;
    ROLLED for (; i + 256 < n; i += 2 * 256)
    {
        double x = (double)v[i], y = (double)v[i + 256];
        UNROLL for (uint32_t k = 0; k < POWER_AT_ONCE; k++)
        {
            if (k < many)
                s[k] += x * (double)u[k * n + i] + y * (double)u[k * n + i + 256];
        }
    }
    if (i < n) {
        UNROLL for (uint32_t k = 0; k < POWER_AT_ONCE; k++)
        {
            if (k < many)
                s[k] += (double)v[i] * (double)u[k * n + i];
        }
    }
    UNROLL for (uint32_t k = 0; k < POWER_AT_ONCE; k++) to->s[k][t] = s[k];
}

/* v less what power_dots found. */
DEVICE void power_remove(float *v,
                         const float *u,
                         uint64_t n,
                         uint32_t many,
                         const struct power_shared *from,
                         unsigned t)
{
    double d[POWER_AT_ONCE];
    UNROLL for (uint32_t k = 0; k < POWER_AT_ONCE; k++) d[k] = from->s[k][0];
    ROLLED for (uint64_t i = t; i < n; i += 256)
    {
        double x = (double)v[i];
        UNROLL for (uint32_t k = 0; k < POWER_AT_ONCE; k++)
        {
            if (k < many)
                x -= d[k] * (double)u[k * n + i];
        }
        v[i] = (float)x;
    }
}

DEVICE void
power_fold(struct power_shared *sum, uint32_t many, unsigned half, unsigned t)
{
    for (unsigned k = t; k < half * many; k += 256)
        sum->s[k / half][k % half] += sum->s[k / half][k % half + half];
}

/* Adds up `many` rows, to their first places; between two SYNCs. */
#define POWER_FOLD(sum, many)                                                          \
    for (unsigned half = 128; half > 0; half /= 2) {                                   \
        EACH_THREAD(t) power_fold(sum, many, half, t);                                 \
        SYNC                                                                           \
    }

DEVICE void power_fill(float *v, uint64_t n, float f, unsigned t)
{
    for (uint64_t i = t; i < n; i += 256)
        v[i] = f;
}

KERNEL(power_orthonormal, struct args_power)
{
    SHARED(struct power_shared, sum, 1);
    const struct power_tensor *tensors = (const struct power_tensor *)a.tensors;
    for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {
        uint64_t n = a.which == POWER_P ? tensors[i].rows : tensors[i].cols;
        float *all = (float *)(a.which == POWER_P ? tensors[i].p : tensors[i].kept);
        int is_finite = 1;
        for (uint32_t j = 0; j < a.rank && is_finite; j++) {
            float *v = all + j * n;
            double norm, rest;
            EACH_THREAD(t) sum->s[0][t] = power_square(v, n, 1, t);
            SYNC POWER_FOLD(sum, 1) norm = sum->s[0][0];
            SYNC if (a.which == POWER_KEPT && !(norm > 0 && norm <= POWER_MAX))
            {
                EACH_THREAD(t)
                {
                    power_draw(v, n, j, a.seed, t);
                    sum->s[0][t] = power_square(v, n, 1, t);
                }
                SYNC POWER_FOLD(sum, 1) norm = sum->s[0][0];
                SYNC
            }
            is_finite = norm <= POWER_MAX;
            if (norm == 0 || !is_finite)
                continue;
            EACH_THREAD(t)(void) power_square(v, n, 1 / F64_SQRT(norm), t);
            for (uint32_t pass = 0; pass < 2; pass++)
                for (uint32_t k = 0; k < j; k += POWER_AT_ONCE) {
                    uint32_t many = j - k < POWER_AT_ONCE ? j - k : POWER_AT_ONCE;
                    EACH_THREAD(t) power_dots(v, all + k * n, n, many, sum, t);
                    SYNC POWER_FOLD(sum, many) EACH_THREAD(t)
                        power_remove(v, all + k * n, n, many, sum, t);
                    SYNC
                }
            EACH_THREAD(t) sum->s[0][t] = power_square(v, n, 1, t);
            SYNC POWER_FOLD(sum, 1) rest = F64_SQRT(sum->s[0][0]);
            SYNC EACH_THREAD(t)
            {
                if (rest <= POWER_DEPENDENT)
                    power_fill(v, n, 0, t);
                else
                    (void)power_square(v, n, 1 / rest, t);
            }
        }
        if (!is_finite) {
            EACH_THREAD(t) power_fill(all, n * a.rank, f32_of_bits(0x7fc00000u), t);
        }
        SYNC
    }
}

/* --- P Q^T -------------------------------------------------------------------- */

struct power_tile {
    uint64_t row, col; /* the first ones of the thread, of the tile */
    uint32_t at[4];    /* columns, from col on */
    float acc[8][4];
    uint32_t n_rows, n_cols; /* of these, that there are */
};

/* Where thread t's part of the tile lies; what is beyond the matrix is read at its
 * edge. */
DEVICE void power_place(struct power_tile *p,
                        const struct chunk *c,
                        const struct power_tensor *x,
                        unsigned t)
{
    uint32_t wide = (c->n + 3) / 4, strip = t / wide, at = t % wide;
    uint64_t row = c->src + strip * 8;
    uint64_t left = strip < 256 / wide && row < x->rows ? x->rows - row : 0;
    p->row = row;
    p->col = c->dst;
    p->n_rows = left < 8 ? (uint32_t)left : 8;
    p->n_cols = 0;
    UNROLL for (uint32_t e = 0; e < 4; e++)
    {
        int is_there = at + e * wide < c->n;
        p->at[e] = is_there ? at + e * wide : c->n - 1;
        p->n_cols += is_there ? 1 : 0;
    }
}

/* Sums in the order of powersgd.c's product: vectors four by four, then one by one. */
DEVICE void power_product(struct power_tile *p,
                          const struct power_tensor *x,
                          const float *right,
                          uint32_t rank)
{
    const float *left = (const float *)x->p + p->row;
    const uint32_t last = p->n_rows - 1;
    uint32_t j = 0;
    right += p->col;
    UNROLL for (uint32_t k = 0; k < 32; k++) p->acc[k / 4][k % 4] = 0;
    ROLLED for (; j + 4 <= rank; j += 4, left += 4 * x->rows, right += 4 * x->cols)
    {
        float q[4][4];
        UNROLL for (uint32_t k = 0; k < 16; k++) q[k / 4][k % 4] =
            right[k / 4 * x->cols + p->at[k % 4]];
        UNROLL for (uint32_t r = 0; r < 8; r++)
        {
            const float *f = left + (r < last ? r : last);
            float f0 = f[0], f1 = f[x->rows], f2 = f[2 * x->rows], f3 = f[3 * x->rows];
            UNROLL for (uint32_t e = 0; e < 4; e++) p->acc[r][e] +=
                (f0 * q[0][e] + f1 * q[1][e]) + (f2 * q[2][e] + f3 * q[3][e]);
        }
    }
    ROLLED for (; j < rank; j++, left += x->rows, right += x->cols)
    {
        float q[4];
        UNROLL for (uint32_t e = 0; e < 4; e++) q[e] = right[p->at[e]];
        UNROLL for (uint32_t r = 0; r < 8; r++)
        {
            float f = left[r < last ? r : last];
            UNROLL for (uint32_t e = 0; e < 4; e++) p->acc[r][e] += f * q[e];
        }
    }
}

DEVICE float power_finite(float rest)
{
    return (f32_bits(rest) & 0x7fffffffu) < TOPK_INF ? rest : 0;
}

DEVICE void power_rest_tile(const struct chunk *c,
                            const struct power_tensor *x,
                            uint32_t rank,
                            unsigned t)
{
    struct power_tile p;
    power_place(&p, c, x, t);
    if (p.n_rows == 0)
        return;
    power_product(&p, x, (const float *)x->own, rank);
    float *m = (float *)x->m + p.row * x->cols + p.col;
    UNROLL for (uint32_t r = 0; r < 8; r++, m += x->cols)
    {
        float v[4] = {0, 0, 0, 0};
        UNROLL for (uint32_t e = 0; e < 4; e++)
        {
            if (r < p.n_rows && e < p.n_cols)
                v[e] = m[p.at[e]];
        }
        UNROLL for (uint32_t e = 0; e < 4; e++)
        {
            if (r < p.n_rows && e < p.n_cols)
                m[p.at[e]] = power_finite(v[e] - p.acc[r][e]);
        }
    }
}

KERNEL(power_rest, struct args_power)
{
    const struct chunk *chunks = (const struct chunk *)a.chunks;
    const struct power_tensor *tensors = (const struct power_tensor *)a.tensors;
    for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {
        struct chunk c = chunks[i];
        struct power_tensor x = tensors[c.tensor];
        EACH_THREAD(t) power_rest_tile(&c, &x, a.rank, t);
    }
}

#define DEFINE_POWER_OUT(name, T, STORE)                                               \
    DEVICE void name##_tile(const struct chunk *c, const struct power_tensor *x,       \
                            uint32_t rank, double factor, unsigned t)                  \
    {                                                                                  \
        struct power_tile p;                                                           \
        power_place(&p, c, x, t);                                                      \
        if (p.n_rows == 0)                                                             \
            return;                                                                    \
        power_product(&p, x, (const float *)x->sum, rank);                             \
        T *out = (T *)x->out + p.row * x->cols + p.col;                                \
        UNROLL for (uint32_t r = 0; r < 8; r++, out += x->cols)                        \
        {                                                                              \
            UNROLL for (uint32_t e = 0; e < 4; e++)                                    \
            {                                                                          \
                if (r < p.n_rows && e < p.n_cols)                                      \
                    out[p.at[e]] = STORE(p.acc[r][e]);                                 \
            }                                                                          \
        }                                                                              \
    }                                                                                  \
    KERNEL(name, struct args_power)                                                    \
    {                                                                                  \
        const struct chunk *chunks = (const struct chunk *)a.chunks;                   \
        const struct power_tensor *tensors = (const struct power_tensor *)a.tensors;   \
        for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {                               \
            struct chunk c = chunks[i];                                                \
            struct power_tensor x = tensors[c.tensor];                                 \
            EACH_THREAD(t) name##_tile(&c, &x, a.rank, a.scale, t);                    \
        }                                                                              \
    }

DEFINE_POWER_OUT(power_out_f32, float, INT8_STORE_F32)
DEFINE_POWER_OUT(power_out_f64, double, INT8_STORE_F64)
DEFINE_POWER_OUT(power_out_f16, uint16_t, INT8_STORE_F16)
DEFINE_POWER_OUT(power_out_bf16, uint16_t, INT8_STORE_BF16)
