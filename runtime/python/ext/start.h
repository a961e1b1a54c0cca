/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_init in a thread of its own, so that the caller can be interrupted. Any thread
 * may call these functions; none of them needs Python. */
#ifndef RUNTIME_PYTHON_EXT_START_H
#define RUNTIME_PYTHON_EXT_START_H

#include <stdint.h>

/* Reference-counted: the thread holds one reference, each caller another. */
struct start;

enum start_state {
    START_WAITING, /* hvd_init waits for the other ranks */
    START_UNDOING, /* ended after a cancel: hvd_shutdown runs */
    START_OVER,
};

/* The ranks of the world (the first of sizes; 0: all), then the process sets to create
 * with it, as in struct hvd_config. One block: free(). */
struct start_sets {
    int n, n_ranks;
    int *sizes, *ranks;
};
struct start_sets *start_sets_new(int n, int n_ranks); /* zeros; NULL: out of memory */

/* 0 or HVD_NO_MEMORY. Takes ownership of sets on success. */
int start_new(uint64_t start_timeout_ms, struct start_sets *sets, struct start **ret);
/* Whether the world that s is forming has the same ranks. */
int start_is_of(const struct start *s, const struct start_sets *sets);
struct start *start_ref(struct start *s);
void start_unref(struct start *s); /* accepts NULL */
/* Waits at most this long for START_OVER and returns the state. */
enum start_state start_wait(struct start *s, uint64_t timeout_ms);
/* Cancels a meeting that still waits. The world is left as soon as hvd_init ends;
 * waiting threads are woken. 1: cancelled, 0: it does not wait any more. */
int start_cancel(struct start *s);
/* Takes back a cancel. 1: it was cancelled before. */
int start_resume(struct start *s);
int start_is_cancelled(struct start *s);
int start_is_forked(const struct start *s); /* its thread is in the parent process */
/* After START_OVER: hvd_init's status and error text. */
int start_status(const struct start *s);
const char *start_text(const struct start *s);

#endif
