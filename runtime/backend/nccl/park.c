/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a failed world. The watcher revokes instead of aborting where that
 * can be of use; the device's close takes the communicator out; the next open brings it
 * in; the first meeting of all ranks tells of it in the cards, and uses it up: shrunk
 * or aborted. */
#include "runtime/backend/nccl/park.h"

#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

bool park_wants(const struct device *g, const struct comm *c)
{
    return g->nccl->revoke && g->nccl->shrink && g->nccl->version >= NCCL_PARKS
           && c->n == g->config.size && c->n_nc == 1 && g->comms == c && !c->next;
}

struct device_parked *park_take(struct device *g)
{
    struct comm *c = g->comms;

    if (!c || atomic_load(&c->state) != COMM_PARKED)
        return NULL;
    struct device_parked *p = mem_zalloc(sizeof(*p));
    if (!p)
        return NULL;
    *p = (struct device_parked){.nccl = g->nccl,
                                .nc = c->nc[0],
                                .rank = c->me,
                                .size = c->n,
                                .since_ns = clock_now_ns()};
    memcpy(p->id, c->id, sizeof(p->id));
    c->nc[0] = NULL;
    return p;
}

static void *abort_main(void *arg)
{
    struct device_parked *p = arg;

    if (p->nc)
        (void)p->nccl->abort(p->nc); /* nobody could do more */
    mem_free(p);
    return NULL;
}

void park_free(struct device_parked *p)
{
    pthread_t t;

    if (p && gpu_thread_start(&t, abort_main, p) == 0)
        (void)pthread_detach(t);
    else if (p)
        (void)abort_main(p);
}

void park_fill(const struct device_parked *p, struct gpu_card *ret)
{
    if (!p || clock_now_ns() - p->since_ns > PARK_NS)
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
