/* SPDX-License-Identifier: Apache-2.0 */
/* An operation in progress in NCCL is a job, whose place has changed between versions:
 *
 *   2.14  only the thread that started it has it, in memory of that thread until it is
 *         complete; the next ncclGroupStart there completes it, and so does an abort
 *         there. An abort in another thread frees the communicator while it is in use.
 *   2.19  the communicator points to it; the next call that requires a ready
 *         communicator completes it. Until then the thread remembers the communicators
 *         of the group, and a call on another one without a job follows a wild pointer.
 *   2.24  a failed ncclCommDestroy leaves its thread inside a group: operations started
 *         afterwards are never launched.
 *   2.26  ncclCommGetAsyncError also completes it, without a lock.
 *   2.27  it has memory of its own. ncclCommRevoke frees it without unlinking it.
 *
 * What would crash, now and then or always, ends the test. Mutable globals: three per
 * thread, and the list of threads. */
#include "tests/fakes/cuda/nccl_fake.h"

#include <stdlib.h>

static _Thread_local struct fake_thread *me;
static _Thread_local struct nccl_comm_s *began; /* what it began last, until taken up */
static _Thread_local bool is_left_inside;       /* of a group */

static _Atomic(struct fake_thread *) threads;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void thread_mark_gone(void *arg)
{
    atomic_store(&((struct fake_thread *)arg)->is_gone, true);
}

static void make_key(void)
{
    if (pthread_key_create(&key, thread_mark_gone) != 0)
        fake_die("no key");
}

static struct fake_thread *thread_self(void)
{
    if (!me) {
        (void)pthread_once(&once, make_key);
        me = fake_zalloc(sizeof(*me));
        if (pthread_setspecific(key, me) != 0)
            fake_die("no value of a thread");
        me->next = atomic_load(&threads);
        while (!atomic_compare_exchange_weak(&threads, &me->next, me))
            ;
    }
    return me;
}

void fake_job_begin(struct nccl_comm_s *c)
{
    c->job = thread_self();
    began = c;
}

/* With c's lock. */
static void take_up(struct nccl_comm_s *c)
{
    if (c->async == NCCL_IN_PROGRESS)
        return;
    c->job = NULL;
    if (began == c)
        began = NULL;
}

void fake_job_check(struct nccl_comm_s *c, const char *call)
{
    const int v = fake_version();

    if (is_left_inside)
        fake_die("%s after a ncclCommDestroy that failed, inside of its group", call);
    pthread_mutex_lock(&c->lock);
    if (c->job && v >= NCCL_JOB_LINKED)
        take_up(c);
    pthread_mutex_unlock(&c->lock);
    if (began && began != c && v < NCCL_JOB_FREE)
        fake_die("%s after a group of another communicator that was not taken up",
                 call);
}

void fake_job_asked(struct nccl_comm_s *c)
{
    if (!c->job || fake_version() < NCCL_JOB_ASKED)
        return;
    if (c->job != thread_self())
        fake_die("ncclCommGetAsyncError while another thread has begun something: both "
                 "may free it");
    take_up(c);
}

void fake_job_abort(struct nccl_comm_s *c)
{
    const int v = fake_version();

    LOCK_HERE(&c->lock);
    if (c->job && v < NCCL_JOB_FREE && atomic_load(&c->job->is_gone))
        fake_die("ncclCommAbort after the end of the thread that has begun a group");
    if (c->job && v < NCCL_JOB_LINKED && c->job != thread_self() && c->async != NCCL_OK)
        fake_die("ncclCommAbort of what another thread has in progress");
    c->job = NULL;
    if (began == c)
        began = NULL;
}

void fake_job_revoke(struct nccl_comm_s *c)
{
    LOCK_HERE(&c->lock);
    if (c->job)
        fake_die("ncclCommRevoke of a group in progress, which is freed and not "
                 "unlinked");
}

int fake_job_group_start(void)
{
    struct nccl_comm_s *c = began;

    if (is_left_inside)
        fake_die("ncclGroupStart after a ncclCommDestroy that failed, inside of its "
                 "group");
    if (!c || fake_version() >= NCCL_JOB_LINKED)
        return NCCL_OK;
    LOCK_HERE(&c->lock);
    if (c->async == NCCL_IN_PROGRESS)
        return NCCL_USAGE;
    take_up(c);
    return NCCL_OK;
}

void fake_job_destroy_failed(void)
{
    is_left_inside = fake_version() >= 22403;
}
