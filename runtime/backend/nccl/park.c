/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator kept of a failed world. The watcher revokes it instead of aborting
 * it where that can be of use; the device's close takes it out; the next open brings
 * it in; at the first meeting of all ranks the cards describe it, and it is shrunk or
 * aborted.
 *
 * It holds GPU memory, and it may never be used: a thread, its keeper, sleeps and
 * aborts it when its time is over. KEPT becomes CLAIMED by the thread that uses or
 * frees it, or OVER by the keeper, by compare and exchange; that thread then owns the
 * communicator. At the exit of the process it is dropped, thread and all. */
#include "runtime/backend/nccl/park.h"

#include <string.h>

#include "runtime/backend/nccl/futex.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/base/thread.h"

static void park_unref(struct device_parked *p)
{
    if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
        mem_free(p);
}

/* PARK_KEPT becomes this. */
static bool take_over(struct device_parked *p, enum park_state to)
{
    uint32_t state = PARK_KEPT;

    if (!atomic_compare_exchange_strong_explicit(&p->state, &state, (uint32_t)to,
                                                 memory_order_acq_rel,
                                                 memory_order_acquire))
        return false;
    futex_wake(&p->state);
    return true;
}

static void *keeper_main(void *arg)
{
    struct device_parked *p = arg;
    uint64_t left;

    while (atomic_load_explicit(&p->state, memory_order_acquire) == PARK_KEPT
           && (left = futex_left(atomic_load(&p->until_ns))) > 0)
        futex_wait(&p->state, PARK_KEPT, left);
    if (take_over(p, PARK_OVER))
        (void)p->nccl->abort(p->nc); /* nothing more can be done */
    park_unref(p);
    return NULL;
}

/* Without a thread it is kept until it is claimed. */
static void park_start_keeper(struct device_parked *p)
{
    pthread_t t;

    atomic_store(&p->refs, 2);
    if (thread_start(&t, keeper_main, p) == 0)
        (void)pthread_detach(t);
    else
        park_unref(p);
}

static bool is_claimed(struct device_parked *p)
{
    return take_over(p, PARK_CLAIMED)
           || atomic_load_explicit(&p->state, memory_order_acquire) == PARK_CLAIMED;
}

bool park_wants(const struct device *g, const struct comm *c)
{
    return g->nccl->revoke && g->nccl->shrink && g->nccl->version >= NCCL_PARKS
           && c->n == g->config.size && c->n_nc == 1 && g->comms == c && !c->next
           && !comm_regions_any(c); /* it would outlive their memory */
}

struct device_parked *park_take(struct device *g)
{
    struct comm *c = g->comms;

    if (!c || atomic_load(&c->state) != COMM_PARKED)
        return NULL;
    struct device_parked *p = mem_zalloc(sizeof(*p));
    if (!p)
        return NULL;
    p->nccl = g->nccl;
    p->nc = TAKE(c->nc[0]);
    p->rank = c->me;
    p->size = c->n;
    memcpy(p->id, c->id, sizeof(p->id));
    atomic_store(&p->until_ns, clock_now_ns() + PARK_NS);
    park_start_keeper(p);
    return p;
}

static void *park_thread_main(void *arg)
{
    struct device_parked *p = arg;

    (void)p->nccl->abort(p->nc); /* as keeper_main */
    park_unref(p);
    return NULL;
}

void park_free(struct device_parked *p)
{
    pthread_t t;

    if (!p)
        return;
    if (!is_claimed(p) || !p->nc)
        park_unref(p); /* it is over, or used */
    else if (thread_start(&t, park_thread_main, p) == 0)
        (void)pthread_detach(t);
    else
        (void)park_thread_main(p);
}

void park_fill(struct device_parked *p, struct gpu_card *ret)
{
    if (!p || !is_claimed(p))
        return;
    memcpy(ret->parked_id, p->id, sizeof(ret->parked_id));
    ret->parked_rank = p->rank;
    ret->parked_size = p->size;
}

void park_id(const uint8_t id[16], const struct comm_terms *t, uint8_t ret[16])
{
    uint8_t sum[SHA256_BYTES];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, id, 16);
    sha256_add(&s, t->excluded, t->n_excluded * sizeof(*t->excluded));
    sha256_end(&s, sum);
    memcpy(ret, sum, 16);
}
