/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the shared segment that agreements use. */
#ifndef RUNTIME_BACKEND_CPU_AGREE_AREA_H
#define RUNTIME_BACKEND_CPU_AGREE_AREA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/backend.h"

/* The words of one member in one agreement. The number and the first words share a
 * cache line. */
struct agree_slot {
    _Atomic uint32_t seq; /* of the agreement whose words lie here */
    uint32_t n;           /* words */
    uint64_t words[AGREE_MAX_WORDS];
    uint8_t pad[640 - 8 - 8 * AGREE_MAX_WORDS];
};
struct agree_line { /* of one member, in the segment */
    struct agree_slot
        slots[2]; /* agreement k is in slots[k % 2]; written by its member */
    _Atomic uint32_t wakeups; /* futex word; a member that wakes this one adds 1 */
    _Atomic uint32_t awaits;  /* enum agree_awaits, or the index of a member */
    uint8_t pad[128 - 8];
};
_Static_assert(sizeof(struct agree_slot) == 640, "lines do not share, in pairs either");
_Static_assert(sizeof(struct agree_line) == 11 * 128, "nor do members");

/* In the segment: what the leader has received from the other hosts, then one line per
 * member. Valid when zeroed. */
struct agree_area {
    struct agree_slot result[2];
    struct agree_line lines[];
};
static inline size_t agree_area_bytes(uint32_t n)
{
    return sizeof(struct agree_area) + (size_t)n * sizeof(struct agree_line);
}

#endif
