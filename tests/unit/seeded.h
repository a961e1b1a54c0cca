/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers that are the same everywhere for one seed (splitmix64), for property
 * tests. */
#ifndef TESTS_UNIT_SEEDED_H
#define TESTS_UNIT_SEEDED_H

#include <stdint.h>

/* A property is tried this many times less often under a sanitizer, which checks paths
 * and threads. Values are checked by the plain run. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FEWER = 3 };
#else
enum { FEWER = 1 };
#endif

struct seeded {
    uint64_t state;
};

static inline uint64_t seeded_next(struct seeded *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 0 to n - 1. */
static inline uint32_t seeded_below(struct seeded *r, uint32_t n)
{
    return (uint32_t)(seeded_next(r) % n);
}

#endif
