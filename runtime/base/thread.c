/* SPDX-License-Identifier: Apache-2.0 */
/* A new thread inherits the mask of the thread that creates it. */
#include "runtime/base/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg)
{
    sigset_t all, old;
    int rc;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old); /* cannot fail */
    rc = pthread_create(ret, NULL, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}
