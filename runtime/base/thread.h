/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of ours inside programs of others. */
#ifndef RUNTIME_BASE_THREAD_H
#define RUNTIME_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create without attributes: 0, or its error number. The thread blocks all
 * signals, which belong to the program's own threads. The caller joins or detaches it. */
int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg);

#endif
