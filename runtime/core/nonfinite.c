/* SPDX-License-Identifier: Apache-2.0 */
/* A number is not finite when all bits of its exponent are set; it is a NaN if its
 * fraction is not zero too. The test works on integers, so rounding modes, traps and
 * -ffast-math do not matter. It runs on blocks of a fixed size without branches, which
 * compilers vectorise; only a block with a hit is searched element by element. Called
 * by observe/observe.c before a batch is posted, with HVD_NANCHECK. */
#include "runtime/core/nonfinite.h"

#include <string.h>

enum { BLOCK = 1024 };

/* Is any of n numbers (at most BLOCK) not finite? */
#define DEFINE_ANY(bits)                                                               \
    static bool any_##bits(const unsigned char *p, size_t n, uint##bits##_t exponent)  \
    {                                                                                  \
        uint##bits##_t v[BLOCK], hit = 0;                                              \
                                                                                       \
        if (n < BLOCK)                                                                 \
            memset(v, 0, sizeof(v));                                                   \
        memcpy(v, p, n * sizeof(v[0]));                                                \
        for (size_t i = 0; i < BLOCK; i++)                                             \
            hit |= (uint##bits##_t)((v[i] & exponent) == exponent);                    \
        return hit != 0;                                                               \
    }
DEFINE_ANY(16)
DEFINE_ANY(32)
DEFINE_ANY(64)

struct form {
    size_t size; /* bytes */
    uint64_t exponent, fraction;
};

static bool dtype_form(enum dtype t, struct form *ret)
{
    switch (t) {
    case DT_F16:
        *ret = (struct form){2, 0x7c00, 0x03ff};
        return true;
    case DT_BF16:
        *ret = (struct form){2, 0x7f80, 0x007f};
        return true;
    case DT_F32:
        *ret = (struct form){4, 0x7f800000, 0x007fffff};
        return true;
    case DT_F64:
        *ret = (struct form){8, 0x7ff0000000000000, 0x000fffffffffffff};
        return true;
    case DT_U8:
    case DT_I8:
    case DT_U16:
    case DT_I16:
    case DT_I32:
    case DT_I64:
    case DT_BOOL:
    case DT_COUNT:
        break;
    }
    return false;
}

static bool block_has_nonfinite(const struct form *f, const unsigned char *p, size_t n)
{
    if (f->size == 2)
        return any_16(p, n, (uint16_t)f->exponent);
    if (f->size == 4)
        return any_32(p, n, (uint32_t)f->exponent);
    return any_64(p, n, f->exponent);
}

static uint64_t number_load(const struct form *f, const unsigned char *p)
{
    uint16_t h;
    uint32_t w;
    uint64_t d;

    if (f->size == 2) {
        memcpy(&h, p, 2);
        return h;
    }
    if (f->size == 4) {
        memcpy(&w, p, 4);
        return w;
    }
    memcpy(&d, p, 8);
    return d;
}

static void block_search(const struct form *f,
                         const unsigned char *p,
                         uint64_t n,
                         uint64_t at,
                         struct nonfinite *found)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t v = number_load(f, p + i * f->size);

        if ((v & f->exponent) != f->exponent)
            continue;
        if (found->n == 0) {
            found->at = at + i;
            found->is_nan = (v & f->fraction) != 0;
        }
        found->n++;
    }
}

bool nonfinite_find(enum dtype t, const void *p, uint64_t n, struct nonfinite *ret)
{
    struct nonfinite found = {0};
    const unsigned char *bytes = p;
    struct form f;

    if (!dtype_form(t, &f))
        return false;
    for (uint64_t at = 0; at < n; at += BLOCK) {
        size_t k = n - at < BLOCK ? (size_t)(n - at) : BLOCK;

        if (block_has_nonfinite(&f, bytes + at * f.size, k))
            block_search(&f, bytes + at * f.size, k, at, &found);
    }
    if (found.n == 0)
        return false;
    *ret = found;
    return true;
}
