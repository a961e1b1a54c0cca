/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls are allowed when. Objects are never freed, so a handle that is used
 * after its end is recognised. The lock of a communicator is held briefly; n_inside
 * counts calls, so a second thread, or an abort during a call, is detected.
 *
 * A communicator's helper finishes operations in progress: one thread at most, joined
 * before the next operation starts. Mutable globals: the list of all communicators and
 * of families, under a lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakes/cuda/nccl_fake.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_comm_s *all;
static struct fake_family *families;

struct fake_family *fake_family_new(void)
{
    struct fake_family *f = fake_zalloc(sizeof(*f));

    LOCK_HERE(&lock);
    f->next = families;
    families = f;
    return f;
}

struct nccl_comm_s *
fake_comm_new(const char *name, int rank, int n, struct fake_family *family)
{
    struct nccl_comm_s *c = fake_zalloc(sizeof(*c));
    const struct fake_driver *d = fake_driver();

    if (n > FAKE_MAX_MEMBERS)
        fake_die("no room for %d members", n);
    (void)snprintf(c->name, sizeof(c->name), "%s", name);
    c->rank = rank;
    c->n = n;
    c->pid = getpid();
    c->family = family ? family : fake_family_new();
    for (int i = 0; i < FAKE_MAX_MEMBERS; i++)
        c->fds[i] = -1;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->changed, NULL);
    if (d->ctx_get && d->ctx_get(&c->ctx) != CU_OK)
        c->ctx = NULL;
    LOCK_HERE(&lock);
    c->next = all;
    all = c;
    return c;
}

static bool is_known(const struct nccl_comm_s *c)
{
    LOCK_HERE(&lock);
    for (const struct nccl_comm_s *p = all; p; p = p->next)
        if (p == c)
            return true;
    return false;
}

bool fake_is_stopped(struct nccl_comm_s *c)
{
    return atomic_load(&c->family->is_aborted) || atomic_load(&c->is_stopped)
           || (c->parent && atomic_load(&c->parent->family->is_aborted));
}

void fake_enter(struct nccl_comm_s *c, const char *call, int least, unsigned rules)
{
    if (fake_version() < least)
        fake_die("%s is not in NCCL %d", call, fake_version());
    if (!is_known(c))
        fake_die("%s: %p is no communicator", call, (void *)c);
    if (c->pid != getpid())
        fake_die("%s in a forked child", call);
    LOCK_HERE(&c->lock);
    if (c->is_dead)
        fake_die("%s of a communicator that was destroyed or aborted", call);
    if (!(rules & FAKE_ANY)) {
        if (c->n_inside && !pthread_equal(c->inside, pthread_self()))
            fake_die("%s while another thread is inside a call of this communicator",
                     call);
        if (c->async == NCCL_IN_PROGRESS && !(rules & FAKE_WHILE_BUSY))
            fake_die("%s while the call before is in progress", call);
        if (c->is_revoked && !(rules & FAKE_WHEN_REVOKED))
            fake_die("%s of a revoked communicator", call);
        if (c->is_finalized && !(rules & FAKE_WHEN_REVOKED))
            fake_die("%s of a finalized communicator", call);
        c->n_inside++;
        c->inside = pthread_self();
    }
}

void fake_leave(struct nccl_comm_s *c)
{
    LOCK_HERE(&c->lock);
    c->n_inside--;
}

int fake_ready(struct nccl_comm_s *c)
{
    LOCK_HERE(&c->lock);
    return fake_version() < 21403 ? NCCL_OK : c->async;
}

int fake_keep_error(struct nccl_comm_s *c, int rc)
{
    if (rc == NCCL_OK || rc == NCCL_IN_PROGRESS || c->is_blocking
        || fake_fault_is("nccl_forgets_error=1"))
        return rc;
    LOCK_HERE(&c->lock);
    c->async = rc;
    return rc;
}

bool fake_sleep_us(struct nccl_comm_s *c, uint64_t us)
{
    uint64_t end = fake_now_us() + us;

    while (fake_now_us() < end && !fake_is_stopped(c))
        (void)nanosleep(&(struct timespec){0, 50000}, NULL);
    return !fake_is_stopped(c);
}

void fake_hang(struct nccl_comm_s *c)
{
    while (!fake_is_stopped(c))
        (void)nanosleep(&(struct timespec){0, 200000}, NULL);
}

/* --- helpers --- */

struct help {
    struct nccl_comm_s *c;
    int (*work)(void *arg);
    void *arg;
};

static void *helper_main(void *arg)
{
    struct help *h = arg;
    struct nccl_comm_s *c = h->c;
    const struct fake_driver *d = fake_driver();
    bool has_ctx = c->ctx && d->ctx_push && d->ctx_push(c->ctx) == CU_OK;

    (void)fake_sleep_us(c, fake_delay_us());
    int rc = h->work(h->arg);
    if (has_ctx)
        (void)d->ctx_pop(&(cu_ctx){NULL});
    LOCK_HERE(&c->lock);
    if (c->async == NCCL_IN_PROGRESS)
        c->async = rc;
    pthread_cond_broadcast(&c->changed);
    free(h);
    return NULL;
}

void fake_join(struct nccl_comm_s *c)
{
    pthread_mutex_lock(&c->lock);
    bool has_helper = c->has_helper;
    c->has_helper = false;
    pthread_mutex_unlock(&c->lock);
    if (has_helper)
        (void)pthread_join(c->helper, NULL);
}

int fake_do(struct nccl_comm_s *c, int (*work)(void *arg), void *arg, bool is_at_once)
{
    if (c->is_blocking || is_at_once) {
        (void)(is_at_once || fake_sleep_us(c, fake_delay_us()));
        return work(arg);
    }
    fake_join(c);
    struct help *h = fake_zalloc(sizeof(*h));
    *h = (struct help){c, work, arg};
    LOCK_HERE(&c->lock);
    if (c->async == NCCL_OK) /* else a kernel has failed meanwhile: keep its error */
        c->async = NCCL_IN_PROGRESS;
    c->has_helper = true;
    fake_job_begin(c);
    if (pthread_create(&c->helper, NULL, helper_main, h) != 0)
        fake_die("no thread");
    return NCCL_IN_PROGRESS;
}

void fake_end(struct nccl_comm_s *c)
{
    fake_join(c);
    pthread_mutex_lock(&c->lock);
    while (c->n_running)
        (void)pthread_cond_wait(&c->changed, &c->lock);
    c->is_dead = true;
    pthread_mutex_unlock(&c->lock);
    fake_net_close(c);
}
