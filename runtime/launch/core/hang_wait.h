/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread waits for, from its system call, the function in the kernel and its
 * state. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_HANG_WAIT_H
#define RUNTIME_LAUNCH_CORE_HANG_WAIT_H

#include "runtime/launch/core/hang.h"

/* It waits for another thread: a mutex, a condition, a semaphore. */
bool hang_wait_is_lock(const struct hang_thread *t);
/* That wait has a time limit, as Python's own lock (GIL) has. */
bool hang_wait_is_timed(const struct hang_thread *t);
/* The first argument of the call is a descriptor whose file explains the wait. */
bool hang_wait_has_file(int64_t syscall);
/* Appends a clause, as "its main thread waits for a lock held elsewhere", where that
 * thread is `who`. t does not run. Returns LOCK, STORAGE, SLEEPING or UNKNOWN. */
enum live_cause
hang_wait_describe(const struct hang_thread *t, const char *who, struct strbuf *out);

#endif
