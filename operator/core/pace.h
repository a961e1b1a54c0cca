/* SPDX-License-Identifier: Apache-2.0 */
/* How often the progress of one job is written. Time comes in. Pure, one thread. */
#ifndef OPERATOR_CORE_PACE_H
#define OPERATOR_CORE_PACE_H

#include <stddef.h>
#include <stdint.h>

#define PACE_NS      3000000000ull /* from a write of a job's status to mere progress */
#define PACE_BUSY    20u /* more statuses than these within PACE_NS: it is ... */
#define PACE_BUSY_NS 30000000000ull /* ... this instead */

struct pace_entry {
    uint64_t hash, at_ns;
};
struct pace { /* zeroed: empty */
    struct pace_entry *v;
    size_t n, cap;
};
void pace_release(struct pace *p);

/* The status of key is written now. Without memory the next is not held back. */
void pace_note(struct pace *p, const char *key, uint64_t now_ns);
/* How long progress of key has to wait; 0: it may be written now. */
uint64_t pace_wait_ns(struct pace *p, const char *key, uint64_t now_ns);

#endif
