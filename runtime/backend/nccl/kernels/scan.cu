/* SPDX-License-Identifier: Apache-2.0 */
/* Finds values that are not finite: the kernels scan_TYPE of args.h.
 *
 * Design: bits are tested, not values: all exponent bits set is an infinity if the
 * mantissa is 0, else NaN. A thread counts in registers over a whole chunk and updates
 * its tensor's cell at the end, if it found one: that is rare, so reading is the only
 * cost. The least index wins, whatever the order of blocks and threads, because it is
 * the upper part of the number. Included by kernels.cu. */

/* B: bits of an element, of BYTES; EXP: its exponent's place. */
#define SCAN(name, B, BYTES, EXP)                                                      \
    struct ALIGNED(16) name##_many {                                                   \
        B e[16 / (BYTES)];                                                             \
    };                                                                                 \
    DEVICE void name##_look(B x, uint64_t at, uint64_t *first, uint32_t *n)            \
    {                                                                                  \
        B sign = (B)((B)1 << ((BYTES)*8 - 1)), exponent = (B)(EXP);                    \
        uint64_t is_infinity = (B)(x & (B)~sign) == exponent;                          \
        if ((x & exponent) != exponent)                                                \
            return;                                                                    \
        *n += 1;                                                                       \
        at = at << 1 | is_infinity;                                                    \
        *first = at < *first ? at : *first;                                            \
    }                                                                                  \
    DEVICE void name##_chunk(const struct chunk *c, struct scan_cell *cell,            \
                             unsigned t)                                               \
    {                                                                                  \
        const B *s = GLOBAL(const B, c->src);                                          \
        uint32_t n = c->n, found = 0;                                                  \
        uint32_t head = (uint32_t)((0 - c->src) & 15) / (BYTES);                       \
        uint64_t base = (c->src - cell->base) / (BYTES), first = SCAN_NONE;            \
        head = head < n ? head : n;                                                    \
        uint32_t body = (n - head) / (16 / (BYTES));                                   \
        uint32_t tail = head + body * (16 / (BYTES));                                  \
        const struct name##_many *v = (const struct name##_many *)(s + head);          \
        if (t < head)                                                                  \
            name##_look(s[t], base + t, &first, &found);                               \
        uint32_t at = t;                                                               \
        uint64_t i = base + head + (uint64_t)t * (16 / (BYTES));                       \
        v += t;                                                                        \
        ROLLED for (; at + 7 * 256 < body; at += 8 * 256, v += 8 * 256)                \
        {                                                                              \
            struct name##_many x[8];                                                   \
            UNROLL for (uint32_t j = 0; j < 8; j++) x[j] = v[j * 256];                 \
            UNROLL for (uint32_t j = 0; j < 8; j++, i += 256 * (16 / (BYTES)))         \
                UNROLL for (uint32_t e = 0; e < 16 / (BYTES); e++)                     \
                    name##_look(x[j].e[e], i + e, &first, &found);                     \
        }                                                                              \
        ROLLED for (; at < body; at += 256, v += 256, i += 256 * (16 / (BYTES)))       \
        {                                                                              \
            struct name##_many x = *v;                                                 \
            UNROLL for (uint32_t e = 0; e < 16 / (BYTES); e++)                         \
                name##_look(x.e[e], i + e, &first, &found);                            \
        }                                                                              \
        if (tail + t < n)                                                              \
            name##_look(s[tail + t], base + tail + t, &first, &found);                 \
        if (found == 0)                                                                \
            return;                                                                    \
        ATOMIC_MIN64(&cell->first, first);                                             \
        ATOMIC_ADD32(&cell->n, found);                                                 \
    }                                                                                  \
    KERNEL(name, struct args_scan)                                                     \
    {                                                                                  \
        const struct chunk *chunks = (const struct chunk *)a.chunks;                   \
        struct scan_cell *cells = (struct scan_cell *)a.cells;                         \
        for (uint32_t i = BLOCK; i < a.n; i += BLOCKS) {                               \
            struct chunk c = chunks[i];                                                \
            if (c.src == 0)                                                            \
                continue;                                                              \
            EACH_THREAD(t) name##_chunk(&c, &cells[c.tensor], t);                      \
        }                                                                              \
    }

SCAN(scan_f32, uint32_t, 4, 0x7f800000u)
SCAN(scan_f64, uint64_t, 8, 0x7ff0000000000000ul)
SCAN(scan_f16, uint16_t, 2, 0x7c00u)
SCAN(scan_bf16, uint16_t, 2, 0x7f80u)
