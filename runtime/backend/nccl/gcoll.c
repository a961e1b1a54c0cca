/* SPDX-License-Identifier: Apache-2.0 */
/* A batch: the choice among its collectives, and the counters of its bytes. */
#include "runtime/backend/nccl/gcoll.h"

#include <errno.h>

static int gcoll_dispatch(struct gcoll_post *p, struct err *err)
{
    switch (p->batch->coll) {
    case COLL_ALLREDUCE:
    case COLL_REDUCE:
        return p->batch->op == OP_ADASUM ? gcoll_adasum(p, err) : gcoll_reduce(p, err);
    case COLL_REDUCESCATTER:
        return gcoll_reduce(p, err);
    case COLL_BROADCAST:
    case COLL_ALLGATHER:
    case COLL_GATHER:
    case COLL_ALLTOALL:
    case COLL_SENDRECV:
        return gcoll_move(p, err);
    case COLL_BARRIER:
    case COLL_JOIN:
    case COLL_SET_ADD:
    case COLL_SET_REMOVE:
    case COLL_REGISTER:
    case COLL_PROBE:
    case COLL_COUNT:
        break;
    }
    return err_set(err, -EINVAL, "%s does not move tensors",
                   collective_name(p->batch->coll));
}

/* The bytes of this member; zeros of a rank that has joined do not count. */
static void gcoll_count_bytes(const struct gcoll_post *p)
{
    const struct batch *b = p->batch;
    uint64_t n = 0, packed;

    for (size_t i = 0; i < b->n_items; i++)
        if (b->items[i].in || b->items[i].out)
            n += b->items[i].count;
    n *= dtype_size(b->dtype);
    packed = p->packed_bytes < n ? p->packed_bytes : n;
    gpu_count(p->g, GPU_PACKED, packed);
    gpu_count(p->g, GPU_DIRECT, n - packed);
    if (b->region > 0)
        gpu_count(p->g, GPU_REGISTERED, n);
}

int gcoll_put(struct gcoll_post *p, struct err *err)
{
    int rc = gcoll_dispatch(p, err);

    if (!rc)
        gcoll_count_bytes(p);
    return rc;
}

int gcoll_run(struct device *g, struct gpu_job *job, struct err *err)
{
    struct gcoll_post p = gcoll_post_of(g, job);
    int rc = gcoll_put(&p, err);

    return rc == 0 || p.is_named || rc == -ECONNABORTED ? rc
                                                        : gpu_name_rank(g, rc, err);
}
