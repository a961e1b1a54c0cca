/* SPDX-License-Identifier: Apache-2.0 */
/* Code in C that hangs, for Python ranks (loop.so): until a signal, if there is one. */
#include <pthread.h>
#include <signal.h>

#define SHOWN __attribute__((visibility("default")))
SHOWN void end_by(int signal_number);
SHOWN void spin(void);
SHOWN void wait_for_lock(void);

static volatile sig_atomic_t is_over;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* glibc's unlock is safe here: the thread that was interrupted waits for the lock. */
static void loop_end(int signal_number)
{
    (void)signal_number;
    is_over = 1;
    (void)pthread_mutex_unlock(&lock);
}

void end_by(int signal_number)
{
    struct sigaction s = {.sa_handler = loop_end};

    is_over = 0;
    (void)sigaction(signal_number, &s, NULL);
}

void spin(void)
{
    for (volatile unsigned long n = 0; !is_over; n++)
        ;
}

void wait_for_lock(void)
{
    (void)pthread_mutex_lock(&lock);
    (void)pthread_mutex_lock(&lock); /* until the signal */
    (void)pthread_mutex_unlock(&lock);
}
