/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_init in a thread of its own, so that the one who asked can be called away. Any
 * thread may call these functions; none of them needs Python. */
#ifndef RUNTIME_PYTHON_EXT_START_H
#define RUNTIME_PYTHON_EXT_START_H

#include <stdint.h>

/* Counted: the thread holds one reference, each caller that has it another. */
struct start;

enum start_state {
    START_WAITING, /* hvd_init waits for the other ranks */
    START_UNDOING, /* it came to an end after nobody wanted it any more: hvd_shutdown */
    START_OVER,
};

/* 0 or HVD_NO_MEMORY. */
int start_new(uint64_t start_timeout_ms, struct start **ret);
struct start *start_ref(struct start *s);
void start_unref(struct start *s); /* accepts NULL */
/* Waits at most this long for START_OVER and returns the state. */
enum start_state start_wait(struct start *s, uint64_t timeout_ms);
/* While waiting: the world is not wanted any more. It is left as soon as hvd_init ends;
 * whoever waits is woken. 1: done, 0: it does not wait any more. */
int start_cancel(struct start *s);
/* Takes a cancel back. 1: was cancelled and is not any more. */
int start_resume(struct start *s);
int start_is_cancelled(struct start *s);
int start_is_forked(const struct start *s); /* its thread is not in this process */
/* After START_OVER: hvd_init's status and its sentence. */
int start_status(const struct start *s);
const char *start_text(const struct start *s);

#endif
