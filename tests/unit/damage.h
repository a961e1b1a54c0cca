/* SPDX-License-Identifier: Apache-2.0 */
/* Damage that a relay does to a stream of bytes at one place. */
#ifndef TESTS_UNIT_DAMAGE_H
#define TESTS_UNIT_DAMAGE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/seeded.h"

enum damage_kind {
    DAMAGE_NONE,
    DAMAGE_FLIP,
    DAMAGE_DROP,
    DAMAGE_REPEAT,
    DAMAGE_INSERT,
};
enum { DAMAGE_MAX = 64 };

struct damage {
    enum damage_kind kind;
    uint64_t at;  /* offset in the stream */
    uint32_t n;   /* bytes; not for flips */
    uint8_t bits; /* flipped, or the byte that is inserted */
};

/* within: below which offset. */
static inline struct damage damage_choose(struct seeded *r, uint32_t within)
{
    return (struct damage){
        .kind = (enum damage_kind)(DAMAGE_FLIP + seeded_below(r, 4)),
        .at = seeded_below(r, within),
        .n = 1 + seeded_below(r, seeded_below(r, 2) ? 1 : DAMAGE_MAX),
        .bits = (uint8_t)(1 + seeded_below(r, 255)),
    };
}

/* Writes p[n], which begins at that offset of the stream, to ret with the damage; returns
 * the number of bytes, at most n + DAMAGE_MAX. */
static inline size_t damage_apply(
    const struct damage *d, uint64_t offset, const uint8_t *p, size_t n, uint8_t *ret)
{
    size_t i, k, end = 0;

    if (d->kind == DAMAGE_NONE || d->at < offset || d->at >= offset + n) {
        memcpy(ret, p, n);
        return n;
    }
    i = (size_t)(d->at - offset);
    k = d->n < n - i ? d->n : n - i;
    memcpy(ret, p, i);
    end = i;
    if (d->kind == DAMAGE_INSERT) {
        memset(ret + end, d->bits, d->n);
        end += d->n;
    }
    if (d->kind == DAMAGE_REPEAT) {
        memcpy(ret + end, p + i, k);
        end += k;
    }
    if (d->kind == DAMAGE_DROP)
        i += k;
    memcpy(ret + end, p + i, n - i);
    if (d->kind == DAMAGE_FLIP)
        ret[end] ^= d->bits;
    return end + n - i;
}

/* A number of the environment, for longer runs. */
static inline uint32_t damage_number(const char *variable, uint32_t otherwise)
{
    const char *s = getenv(variable);

    return s ? (uint32_t)strtoul(s, NULL, 10) : otherwise;
}

#endif
