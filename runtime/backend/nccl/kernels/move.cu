/* SPDX-License-Identifier: Apache-2.0 */
/* Moves elements between tensors and the fusion buffer, scaled and converted: the
 * kernels copy and move_FROM_TO of args.h.
 *
 * Design: a table of chunks, of any number of tensors, is one launch. A block
 * processes a whole chunk at once: each thread loads 8 vectors, 16 bytes each on the
 * wider side, before it stores the first, so 32 KiB are in flight and no load waits
 * for a store (which could be to the same place, as far as the compiler knows). Fewer
 * than 8 vectors per thread are processed one by one: guards would cost the registers
 * of whole chunks. Elements before the first 16-byte boundary of the wider side and
 * those after the last vector are vectors of one; if the two sides do not reach their
 * boundaries at the same element, all are.
 *
 * Invariant: element i is read and written by one thread only, read first: so src may
 * be dst. Included by kernels.cu. */

/* Elements of nv vectors of struct V##_in at s, to struct V##_out at d. */
#define MOVE_PASS(V, STEP, s, d, nv, CONVERT)                                          \
    do {                                                                               \
        const struct V##_in *from = (const struct V##_in *)(s) + t;                    \
        struct V##_out *to = (struct V##_out *)(d) + t;                                \
        uint32_t at = t;                                                               \
        ROLLED for (; at + 7 * 256 < (nv);                                             \
                    at += 8 * 256, from += 8 * 256, to += 8 * 256)                     \
        {                                                                              \
            struct V##_in v[8];                                                        \
            UNROLL for (uint32_t j = 0; j < 8; j++) v[j] = from[j * 256];              \
            UNROLL for (uint32_t j = 0; j < 8; j++)                                    \
            {                                                                          \
                struct V##_out o;                                                      \
                UNROLL for (uint32_t e = 0; e < (STEP); e++) o.e[e] =                  \
                    CONVERT(v[j].e[e]);                                                \
                to[j * 256] = o;                                                       \
            }                                                                          \
        }                                                                              \
        ROLLED for (; at < (nv); at += 256, from += 256, to += 256)                    \
        {                                                                              \
            struct V##_in v = *from;                                                   \
            struct V##_out o;                                                          \
            UNROLL for (uint32_t e = 0; e < (STEP); e++) o.e[e] = CONVERT(v.e[e]);     \
            *to = o;                                                                   \
        }                                                                              \
    } while (0)

#define MOVE_VECTORS(V, F, T, STEP)                                                    \
    struct ALIGNED((STEP) * sizeof(F)) V##_in {                                        \
        F e[STEP];                                                                     \
    };                                                                                 \
    struct ALIGNED((STEP) * sizeof(T)) V##_out {                                       \
        T e[STEP];                                                                     \
    };

/* One chunk by thread t of its block. F: type of an element of src, T: of dst, W: the
 * wider of the two. */
#define MOVE_CHUNK(name, F, T, W, CONVERT)                                             \
    MOVE_VECTORS(name##_one, F, T, 1)                                                  \
    MOVE_VECTORS(name##_many, F, T, 16 / sizeof(W))                                    \
    DEVICE void name(const struct chunk *c, unsigned t, double scale)                  \
    {                                                                                  \
        const F *s = GLOBAL(const F, c->src);                                          \
        T *d = GLOBAL(T, c->dst);                                                      \
        uint64_t wide = sizeof(F) > sizeof(T) ? c->src : c->dst;                       \
        uint32_t step = 16 / sizeof(W), n = c->n, body = 0;                            \
        uint32_t head = (uint32_t)((0 - wide) & 15) / (uint32_t)sizeof(W);             \
        (void)scale;                                                                   \
        head = head < n ? head : n;                                                    \
        if ((((uint64_t)(s + head)) & (step * sizeof(F) - 1)) == 0                     \
            && (((uint64_t)(d + head)) & (step * sizeof(T) - 1)) == 0)                 \
            body = (n - head) / step;                                                  \
        if (body == 0)                                                                 \
            head = n;                                                                  \
        MOVE_PASS(name##_one, 1, s, d, head, CONVERT);                                 \
        s += head;                                                                     \
        d += head;                                                                     \
        n -= head + body * step;                                                       \
        MOVE_PASS(name##_many, 16 / sizeof(W), s, d, body, CONVERT);                   \
        s += body * step;                                                              \
        d += body * step;                                                              \
        if (t < n)                                                                     \
            d[t] = CONVERT(s[t]);                                                      \
    }

/* The kernel: chunk c by PLAIN where there is nothing to do but convert, else by FULL.
 */
#define MOVE(name, F, T, PLAIN, FULL)                                                  \
    KERNEL(name, struct args_move)                                                     \
    {                                                                                  \
        const struct chunk *chunks = (const struct chunk *)a.chunks;                   \
        for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {                               \
            struct chunk c = chunks[i];                                                \
            if (c.src == 0) {                                                          \
                EACH_THREAD(t)                                                         \
                for (uint32_t at = t; at < c.n; at += 256)                             \
                    (GLOBAL(T, c.dst))[at] = 0;                                        \
            } else if (a.scale == 1.0 && a.divisor == 1) {                             \
                EACH_THREAD(t) PLAIN;                                                  \
            } else {                                                                   \
                EACH_THREAD(t) FULL;                                                   \
            }                                                                          \
        }                                                                              \
    }

#define MOVE_FLOATS(name, F, T, W, AS_IS, TIMES)                                       \
    MOVE_CHUNK(name##_as_is, F, T, W, AS_IS)                                           \
    MOVE_CHUNK(name##_times, F, T, W, TIMES)                                           \
    MOVE(name, F, T, name##_as_is(&c, t, 1.0), name##_times(&c, t, a.scale))

/* Integers are rarely scaled or divided, and it takes long to: element by element. */
#define MOVE_INTEGERS(name, F, T, W, AS_IS, FINISH)                                    \
    MOVE_CHUNK(name##_as_is, F, T, W, AS_IS)                                           \
    DEVICE void name##_finish(const struct chunk *c, unsigned t, double scale,         \
                              int32_t divisor)                                         \
    {                                                                                  \
        (void)divisor;                                                                 \
        ROLLED for (uint32_t i = t; i < c->n; i += 256)(GLOBAL(T, c->dst))[i] =        \
            FINISH((GLOBAL(const F, c->src))[i]);                                      \
    }                                                                                  \
    MOVE(name, F, T, name##_as_is(&c, t, 1.0),                                         \
         name##_finish(&c, t, a.scale, (int32_t)a.divisor))

/* --- floats ------------------------------------------------------------------- */

/* Rounded to odd, so that rounding again to 16 bits equals rounding once: exact, or the
 * neighbour with an odd last bit (as core/compress/cast.c). */
DEVICE float f32_odd(double x)
{
    float f = (float)x;
    double back = (double)f, magnitude = x < 0 ? -x : x;
    uint32_t u = f32_bits(f), is_even = ~u & 1u;
    uint32_t step = (back < 0 ? -back : back) > magnitude ? 0u - is_even : is_even;
    return f32_of_bits(back == x || x != x ? u : u + step);
}

#define AS_IT_IS(x)          (x)
#define TIMES_F32(x)         ((x) * (float)scale)
#define TIMES_F64(x)         ((x)*scale)
#define TIMES_F16(x)         f16_of_f32(f32_of_f16(x) * (float)scale)
#define TIMES_BF16(x)        bf16_of_f32(f32_of_bf16(x) * (float)scale)
#define F16_OF_F64(x)        f16_of_f32(f32_odd(x))
#define BF16_OF_F64(x)       bf16_of_f32(f32_odd(x))
#define F16_OF_TIMES(x)      f16_of_f32(f32_odd((double)(x)*scale))
#define BF16_OF_TIMES(x)     bf16_of_f32(f32_odd((double)(x)*scale))
#define F32_OF_F16_TIMES(x)  (f32_of_f16(x) * (float)scale)
#define F32_OF_BF16_TIMES(x) (f32_of_bf16(x) * (float)scale)
#define F64_OF_F16(x)        ((double)f32_of_f16(x))
#define F64_OF_BF16(x)       ((double)f32_of_bf16(x))
#define F64_OF_F16_TIMES(x)  ((double)f32_of_f16(x) * scale)
#define F64_OF_BF16_TIMES(x) ((double)f32_of_bf16(x) * scale)

MOVE_FLOATS(move_f32_f32, float, float, float, AS_IT_IS, TIMES_F32)
MOVE_FLOATS(move_f64_f64, double, double, double, AS_IT_IS, TIMES_F64)
MOVE_FLOATS(move_f16_f16, uint16_t, uint16_t, uint16_t, AS_IT_IS, TIMES_F16)
MOVE_FLOATS(move_bf16_bf16, uint16_t, uint16_t, uint16_t, AS_IT_IS, TIMES_BF16)
MOVE_FLOATS(move_f32_f16, float, uint16_t, float, f16_of_f32, F16_OF_TIMES)
MOVE_FLOATS(move_f32_bf16, float, uint16_t, float, bf16_of_f32, BF16_OF_TIMES)
MOVE_FLOATS(move_f64_f16, double, uint16_t, double, F16_OF_F64, F16_OF_TIMES)
MOVE_FLOATS(move_f64_bf16, double, uint16_t, double, BF16_OF_F64, BF16_OF_TIMES)
MOVE_FLOATS(move_f16_f32, uint16_t, float, float, f32_of_f16, F32_OF_F16_TIMES)
MOVE_FLOATS(move_bf16_f32, uint16_t, float, float, f32_of_bf16, F32_OF_BF16_TIMES)
MOVE_FLOATS(move_f16_f64, uint16_t, double, double, F64_OF_F16, F64_OF_F16_TIMES)
MOVE_FLOATS(move_bf16_f64, uint16_t, double, double, F64_OF_BF16, F64_OF_BF16_TIMES)

/* --- integers and bool -------------------------------------------------------- */

/* As DEFINE_INT_FINISH of the cpu backend. BELOW and ABOVE: the nearest doubles outside
 * of the type whose truncation is not in it. */
#define DEFINE_FINISH(name, T, I, MIN, MAX, BELOW, ABOVE)                              \
    DEVICE T finish_##name(T x, double scale, int32_t divisor)                         \
    {                                                                                  \
        if (divisor != 1)                                                              \
            x = (T)((I)x / (I)divisor);                                                \
        if (scale != 1.0) {                                                            \
            double y = (double)x * scale;                                              \
            x = y >= (ABOVE) ? (MAX) : y <= (BELOW) ? (MIN) : y != y ? (T)0 : (T)y;    \
        }                                                                              \
        return x;                                                                      \
    }
#define LEAST_I64 (-0x7fffffffffffffffL - 1)
#define LEAST_I32 (-0x7fffffff - 1)
DEFINE_FINISH(u8, uint8_t, int32_t, 0, 255, -1.0, 256.0)
DEFINE_FINISH(i8, int8_t, int32_t, -128, 127, -129.0, 128.0)
DEFINE_FINISH(u16, uint16_t, int32_t, 0, 65535, -1.0, 65536.0)
DEFINE_FINISH(i16, int16_t, int32_t, -32768, 32767, -32769.0, 32768.0)
DEFINE_FINISH(i32, int32_t, int32_t, LEAST_I32, 0x7fffffff, -2147483649.0, 2147483648.0)
DEFINE_FINISH(i64,
              int64_t,
              int64_t,
              LEAST_I64,
              0x7fffffffffffffffL,
              -9223372036854775808.0,
              9223372036854775808.0)

#define FULL_U8(x)       finish_u8(x, scale, divisor)
#define FULL_I8(x)       finish_i8(x, scale, divisor)
#define FULL_U16(x)      finish_u16(x, scale, divisor)
#define FULL_I16(x)      finish_i16(x, scale, divisor)
#define FULL_I32(x)      finish_i32(x, scale, divisor)
#define FULL_I64(x)      finish_i64(x, scale, divisor)
#define WRAP_U16(x)      ((uint16_t)(uint32_t)(x))
#define WRAP_I16(x)      ((int16_t)(uint16_t)(uint32_t)(x))
#define WRAP_FULL_U16(x) finish_u16(WRAP_U16(x), scale, divisor)
#define WRAP_FULL_I16(x) finish_i16(WRAP_I16(x), scale, divisor)
#define IS_TRUE(x)       ((uint8_t)((x) != 0))
#define IS_TRUE_FULL(x)  ((uint8_t)((x) != 0 && scale != 0.0))

MOVE_INTEGERS(move_u8_u8, uint8_t, uint8_t, uint8_t, AS_IT_IS, FULL_U8)
MOVE_INTEGERS(move_i8_i8, int8_t, int8_t, int8_t, AS_IT_IS, FULL_I8)
MOVE_INTEGERS(move_u16_u16, uint16_t, uint16_t, uint16_t, AS_IT_IS, FULL_U16)
MOVE_INTEGERS(move_i16_i16, int16_t, int16_t, int16_t, AS_IT_IS, FULL_I16)
MOVE_INTEGERS(move_i32_i32, int32_t, int32_t, int32_t, AS_IT_IS, FULL_I32)
MOVE_INTEGERS(move_i64_i64, int64_t, int64_t, int64_t, AS_IT_IS, FULL_I64)
MOVE_INTEGERS(move_u16_i32, uint16_t, int32_t, int32_t, AS_IT_IS, FULL_U16)
MOVE_INTEGERS(move_i16_i32, int16_t, int32_t, int32_t, AS_IT_IS, FULL_I16)
MOVE_INTEGERS(move_i32_u16, int32_t, uint16_t, int32_t, WRAP_U16, WRAP_FULL_U16)
MOVE_INTEGERS(move_i32_i16, int32_t, int16_t, int32_t, WRAP_I16, WRAP_FULL_I16)
MOVE_INTEGERS(move_bool_bool, uint8_t, uint8_t, uint8_t, IS_TRUE, IS_TRUE_FULL)

/* --- bytes -------------------------------------------------------------------- */

/* Widths of 16, 8, 4, 2 and 1 bytes: the greatest in which both sides are at equal
 * distance from a boundary. */
struct ALIGNED(16) copy_16 {
    uint32_t w[4];
};
struct ALIGNED(8) copy_8 {
    uint32_t w[2];
};
struct ALIGNED(4) copy_4 {
    uint32_t w;
};
struct ALIGNED(2) copy_2 {
    uint16_t w;
};
struct ALIGNED(1) copy_1 {
    uint8_t w;
};

#define DEFINE_COPY(width)                                                             \
    DEVICE void copy_by_##width(const struct chunk *c, unsigned t)                     \
    {                                                                                  \
        const uint8_t *s = GLOBAL(const uint8_t, c->src);                              \
        uint8_t *d = GLOBAL(uint8_t, c->dst);                                          \
        uint32_t n = c->n, head = (uint32_t)((0 - c->dst) & (width - 1));              \
        head = head < n ? head : n;                                                    \
        if (t < head)                                                                  \
            d[t] = s[t];                                                               \
        uint32_t body = (n - head) / width, tail = (n - head) % width;                 \
        const struct copy_##width *from = (const struct copy_##width *)(s + head) + t; \
        struct copy_##width *to = (struct copy_##width *)(d + head) + t;               \
        uint32_t at = t;                                                               \
        ROLLED for (; at + 7 * 256 < body; at += 8 * 256, from += 2048, to += 2048)    \
        {                                                                              \
            struct copy_##width v[8];                                                  \
            UNROLL for (uint32_t j = 0; j < 8; j++) v[j] = from[j * 256];              \
            UNROLL for (uint32_t j = 0; j < 8; j++) to[j * 256] = v[j];                \
        }                                                                              \
        ROLLED for (; at < body; at += 256, from += 256, to += 256) *to = *from;       \
        if (t < tail)                                                                  \
            d[n - tail + t] = s[n - tail + t];                                         \
    }
DEFINE_COPY(16)
DEFINE_COPY(8)
DEFINE_COPY(4)
DEFINE_COPY(2)
DEFINE_COPY(1)

DEVICE void copy_zeros(const struct chunk *c, unsigned t)
{
    uint8_t *d = GLOBAL(uint8_t, c->dst);
    for (uint32_t i = t; i < c->n; i += 256)
        d[i] = 0;
}

KERNEL(copy, struct args_move)
{
    const struct chunk *chunks = (const struct chunk *)a.chunks;
    for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {
        struct chunk c = chunks[i];
        uint32_t apart = (uint32_t)(c.src ^ c.dst);
        if (c.src == 0) {
            EACH_THREAD(t) copy_zeros(&c, t);
        } else if ((apart & 15) == 0) {
            EACH_THREAD(t) copy_by_16(&c, t);
        } else if ((apart & 7) == 0) {
            EACH_THREAD(t) copy_by_8(&c, t);
        } else if ((apart & 3) == 0) {
            EACH_THREAD(t) copy_by_4(&c, t);
        } else if ((apart & 1) == 0) {
            EACH_THREAD(t) copy_by_2(&c, t);
        } else {
            EACH_THREAD(t) copy_by_1(&c, t);
        }
    }
}
