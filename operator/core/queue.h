/* SPDX-License-Identifier: Apache-2.0 */
/* Work queue of keys ("ns/name"). A key is in the queue at most once, and is not taken
 * again before queue_done. Back-off is exponential per key. No function blocks. Pure,
 * one thread.
 *
 * No namespace delays others: the next key is one of the namespace with the fewest keys
 * at work. Keys that were only swept come last. */
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
/* Adds the key, due at due_ns; the earlier time counts. For a key that is taken, the
 * time is kept until queue_done. -ENOMEM. */
int queue_add(struct work_queue *q, const char *key, uint64_t due_ns);
/* The same for a key to which nothing has happened, such as each finished job after a
 * list. */
int queue_sweep(struct work_queue *q, const char *key, uint64_t due_ns);
/* Takes a due key of a namespace with fewer than `max` keys at work: one of those with
 * the fewest, and of these the one that has waited longest. NULL when there is none. The
 * string is valid until queue_done. */
const char *queue_take(struct work_queue *q, uint64_t now_ns, unsigned max);
/* Ends the work on a taken key. failed: the key is due again after its back-off; else
 * the back-off is reset. Returns the delay of the retry in ns, 0 if there is none. */
uint64_t
queue_done(struct work_queue *q, const char *key, bool failed, uint64_t now_ns);
/* How long the key had been due when it was taken. */
uint64_t queue_waited_ns(const struct work_queue *q, const char *key);
/* How often in a row the work on that key has failed. */
unsigned queue_n_failures(const struct work_queue *q, const char *key);
/* When the next key can be taken; UINT64_MAX when none can before a queue_done. */
uint64_t queue_next_ns(const struct work_queue *q, unsigned max);
size_t
queue_depth(const struct work_queue *q); /* keys that are not taken, due or not */

#endif
