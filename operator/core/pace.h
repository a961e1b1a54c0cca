/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how often the progress of one job is written. Pure, one thread. */
#ifndef OPERATOR_CORE_PACE_H
#define OPERATOR_CORE_PACE_H

#include <stddef.h>
#include <stdint.h>

#define PACE_NS      3000000000ull /* from a status write to the next progress write */
#define PACE_BUSY    20u           /* with more statuses than this within PACE_NS ... */
#define PACE_BUSY_NS 30000000000ull /* ... it is this instead */

struct pace_entry {
    uint64_t hash, at_ns;
};
struct pace { /* zeroed: empty */
    struct pace_entry *v;
    size_t n, cap;
};
void pace_release(struct pace *p);

/* The status of key is written now. Out of memory, the next one is not delayed. */
void pace_note(struct pace *p, const char *key, uint64_t now_ns);
/* How long to delay a progress status of key; 0: write it now. */
uint64_t pace_wait_ns(struct pace *p, const char *key, uint64_t now_ns);

#endif
