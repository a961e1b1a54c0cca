/* SPDX-License-Identifier: Apache-2.0 */
/* start.c: runs hvd_init in a thread. Meeting the other ranks may take minutes, and
 * hvd_init cannot be cancelled. Python runs signal handlers only between bytecodes of
 * the main thread, and they must be able to raise KeyboardInterrupt or call
 * hvd.shutdown(). So the caller waits for the thread in slices.
 *
 *   WAITING --hvd_init ended--> OVER
 *      |  cancelled meanwhile        ^
 *      '---> UNDOING --hvd_shutdown--'
 *
 * A cancelled meeting continues until hvd_init ends, because the other ranks may
 * already count on this one. init() called again takes over the same meeting
 * (start_resume). Invariants: the thread blocks all signals, and so do the threads that
 * hvd_init creates. The state changes along the edges above only, under the lock.
 * Called by life.c. */
#include "runtime/python/ext/start.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hvd.h"

struct start {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_refs; /* lock, as all below but pid, timeout and sets */
    enum start_state state;
    int is_cancelled, status;
    char text[1024];
    pid_t pid;
    uint64_t timeout_ms;
    struct start_sets *sets; /* owned */
};

struct start_sets *start_sets_new(int n, int n_ranks)
{
    struct start_sets *s =
        calloc(1, sizeof(*s) + ((size_t)n + (size_t)n_ranks) * sizeof(int));

    if (!s)
        return NULL;
    s->n = n;
    s->n_ranks = n_ranks;
    s->sizes = (int *)(void *)(s + 1);
    s->ranks = s->sizes + n;
    return s;
}

static void start_set_state(struct start *s, enum start_state state)
{
    s->state = state;
    (void)pthread_cond_broadcast(&s->changed);
}

static void *start_thread_main(void *arg)
{
    struct start *s = arg;
    const struct start_sets *sets = s->sets;
    const int n_ranks = sets->sizes[0];
    struct hvd_config config = {.size_bytes = sizeof(config),
                                .start_timeout_ms = s->timeout_ms,
                                .n_ranks = n_ranks,
                                .ranks = sets->ranks,
                                .n_sets = sets->n - 1,
                                .set_sizes = sets->sizes + 1,
                                .set_ranks = sets->ranks + n_ranks};
    int status;

    status = hvd_init(&config);
    (void)pthread_mutex_lock(&s->lock);
    s->status = status;
    if (status != HVD_OK) /* the text belongs to this thread */
        (void)snprintf(s->text, sizeof(s->text), "%s", hvd_last_error());
    if (status == HVD_OK && s->is_cancelled) {
        start_set_state(s, START_UNDOING);
        (void)pthread_mutex_unlock(&s->lock);
        (void)hvd_shutdown(); /* bounded; its result has no receiver */
        (void)pthread_mutex_lock(&s->lock);
    }
    start_set_state(s, START_OVER);
    (void)pthread_mutex_unlock(&s->lock);
    start_unref(s);
    return NULL;
}

static int start_create_thread(struct start *s)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int rc = pthread_attr_init(&attr);

    if (rc)
        return rc;
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, start_thread_main, s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return rc;
}

int start_new(uint64_t start_timeout_ms, struct start_sets *sets, struct start **ret)
{
    struct start *s = calloc(1, sizeof(*s));
    pthread_condattr_t attr;

    if (!s)
        return HVD_NO_MEMORY;
    s->n_refs = 2;
    s->state = START_WAITING;
    s->pid = getpid();
    s->timeout_ms = start_timeout_ms;
    s->sets = sets;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (start_create_thread(s)) {
        s->n_refs = 1;
        s->sets = NULL; /* stays the caller's */
        start_unref(s);
        return HVD_NO_MEMORY;
    }
    *ret = s;
    return HVD_OK;
}

struct start *start_ref(struct start *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->n_refs++;
    (void)pthread_mutex_unlock(&s->lock);
    return s;
}

void start_unref(struct start *s)
{
    int n_left;

    if (!s)
        return;
    (void)pthread_mutex_lock(&s->lock);
    n_left = --s->n_refs;
    (void)pthread_mutex_unlock(&s->lock);
    if (n_left)
        return;
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->sets);
    free(s);
}

enum start_state start_wait(struct start *s, uint64_t timeout_ms)
{
    struct timespec until;
    enum start_state state;
    int was_cancelled;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_ms / 1000);
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_mutex_lock(&s->lock);
    was_cancelled = s->is_cancelled;
    while (s->state != START_OVER && s->is_cancelled == was_cancelled
           && pthread_cond_timedwait(&s->changed, &s->lock, &until) != ETIMEDOUT)
        ;
    state = s->state;
    (void)pthread_mutex_unlock(&s->lock);
    return state;
}

/* Returns whether there is a meeting to cancel or resume; *ret_was: the flag before. */
static int set_cancelled(struct start *s, int is_cancelled, int *ret_was)
{
    int is_waiting;

    (void)pthread_mutex_lock(&s->lock);
    is_waiting = s->state == START_WAITING;
    *ret_was = s->is_cancelled;
    if (is_waiting) {
        s->is_cancelled = is_cancelled;
        (void)pthread_cond_broadcast(&s->changed);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return is_waiting;
}

int start_cancel(struct start *s)
{
    int was_cancelled;

    return set_cancelled(s, 1, &was_cancelled);
}

int start_resume(struct start *s)
{
    int was_cancelled;

    return set_cancelled(s, 0, &was_cancelled) && was_cancelled;
}

int start_is_cancelled(struct start *s)
{
    int is_cancelled;

    (void)pthread_mutex_lock(&s->lock);
    is_cancelled = s->is_cancelled;
    (void)pthread_mutex_unlock(&s->lock);
    return is_cancelled;
}

int start_is_of(const struct start *s, const struct start_sets *sets)
{
    const struct start_sets *own = s->sets;
    int n = own->sizes[0];

    return sets->sizes[0] == n
           && memcmp(own->ranks, sets->ranks, (size_t)n * sizeof(int)) == 0;
}

int start_is_forked(const struct start *s)
{
    return s->pid != getpid();
}

int start_status(const struct start *s)
{
    return s->status;
}

const char *start_text(const struct start *s)
{
    return s->text;
}
