/* SPDX-License-Identifier: Apache-2.0 */
/* A lock that is held to the end of its block. */
#ifndef TESTS_FAKES_CUDA_LOCK_H
#define TESTS_FAKES_CUDA_LOCK_H

#include <pthread.h>

static inline void lock_end(pthread_mutex_t **held)
{
    pthread_mutex_unlock(*held);
}
#define LOCK_HERE(mutex)                                                               \
    __attribute__((cleanup(lock_end))) pthread_mutex_t *held_ = (mutex);               \
    pthread_mutex_lock(held_)

#endif
