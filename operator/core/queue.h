/* SPDX-License-Identifier: Apache-2.0 */
/* Work queue of keys ("ns/name"). A key is in the queue at most once, and is not taken
 * again before queue_done. Back-off is exponential per key. No function blocks. Pure,
 * one thread. */
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
/* Takes the due key that has waited longest; NULL when none is due. The string is valid
 * until queue_done. */
const char *queue_take(struct work_queue *q, uint64_t now_ns);
/* Ends the work on a taken key. failed: the key is due again after its back-off; else
 * the back-off is reset. Returns the delay of the retry in ns, 0 if there is none. */
uint64_t
queue_done(struct work_queue *q, const char *key, bool failed, uint64_t now_ns);
/* How long the key had been due when it was taken. */
uint64_t queue_waited_ns(const struct work_queue *q, const char *key);
/* How often in a row the work on that key has failed. */
unsigned queue_n_failures(const struct work_queue *q, const char *key);
/* When the next key is due; UINT64_MAX when nothing waits. */
uint64_t queue_next_ns(const struct work_queue *q);
size_t
queue_depth(const struct work_queue *q); /* keys that are not taken, due or not */

#endif
