/* SPDX-License-Identifier: Apache-2.0 */
/* Work queue of keys ("ns/name"): each key at most once, never two at work on one key,
 * per-key exponential back-off. Time comes in; nothing here waits. Pure, one thread. */
#ifndef OPERATOR_CORE_QUEUE_H
#define OPERATOR_CORE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QUEUE_FIRST_RETRY_NS 50000000ull    /* 50 ms, doubled each time */
#define QUEUE_MAX_RETRY_NS   30000000000ull /* 30 s */

struct work_queue;

struct work_queue *queue_new(void);
void queue_free(struct work_queue *q);
/* Wants the key worked on at due_ns; an earlier wish wins. While the key is at work the
 * wish is remembered. -ENOMEM. */
int queue_add(struct work_queue *q, const char *key, uint64_t due_ns);
/* The key that is due, longest waiting first, now marked as at work; NULL when none is.
 * The string is valid until queue_done. */
const char *queue_take(struct work_queue *q, uint64_t now_ns);
/* The work is done. failed: again after this key's back-off; else the back-off starts
 * afresh. Returns the delay in ns, 0 when it is not queued for retry. */
uint64_t
queue_done(struct work_queue *q, const char *key, bool failed, uint64_t now_ns);
/* How long the key that is at work had been due when it was taken. */
uint64_t queue_waited_ns(const struct work_queue *q, const char *key);
/* How often in a row the work on that key has failed until now. */
unsigned queue_n_failures(const struct work_queue *q, const char *key);
/* When the next key is due; UINT64_MAX when nothing waits. */
uint64_t queue_next_ns(const struct work_queue *q);
size_t queue_depth(const struct work_queue *q); /* keys that wait, whether due or not */

#endif
