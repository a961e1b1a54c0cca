/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL calls, which are collected first and then made in groups. A set of one member
 * has no communicator: no calls are collected for it. Called by gcoll_*.c and
 * gcodec*.c. */
#include <errno.h>

#include "runtime/backend/nccl/gcoll.h"
#include "runtime/base/mem.h"

int gcoll_add(struct gcoll_calls *calls, struct gcoll_call call, struct err *err)
{
    if (call.count == 0) /* the other side leaves it out too */
        return 0;
    if (mem_grow((void **)&calls->v, calls->n, &calls->cap, sizeof(call), UINT32_MAX))
        return err_set(err, -ENOMEM, "out of memory for %zu calls", calls->n);
    calls->v[calls->n++] = call;
    return 0;
}

struct gcoll_group {
    struct gcoll_post *p;
    const struct gcoll_call *v;
    size_t n;
};

#define TRY(name, symbol, ...)                                                         \
    COMM_TRY(p->c, nc, err, name, symbol, __VA_ARGS__, nc, p->s)

static int make_one(struct gcoll_post *p,
                    nccl_comm nc,
                    const struct gcoll_call *k,
                    struct err *err)
{
    const void *in = (const void *)(uintptr_t)k->in;
    void *out = (void *)(uintptr_t)k->out;
    const size_t n = k->count;

    switch (k->kind) {
    case CALL_ALL_REDUCE:
        return TRY(all_reduce, "ncclAllReduce", in, out, n, k->dtype, k->op);
    case CALL_REDUCE:
        return TRY(reduce, "ncclReduce", in, out, n, k->dtype, k->op, k->peer);
    case CALL_REDUCE_SCATTER:
        return TRY(reduce_scatter, "ncclReduceScatter", in, out, n, k->dtype, k->op);
    case CALL_BROADCAST:
        return TRY(broadcast, "ncclBroadcast", in, out, n, k->dtype, k->peer);
    case CALL_ALL_GATHER:
        return TRY(all_gather, "ncclAllGather", in, out, n, k->dtype);
    case CALL_SEND:
        return TRY(send, "ncclSend", in, n, k->dtype, k->peer);
    case CALL_RECV:
        return TRY(recv, "ncclRecv", out, n, k->dtype, k->peer);
    }
    return err_set(err, -EINVAL, "call %d", (int)k->kind);
}

static int make_group(void *arg, nccl_comm nc, struct err *err)
{
    struct gcoll_group *m = arg;
    int rc = 0;

    for (size_t i = 0; i < m->n && !rc; i++)
        rc = make_one(m->p, nc, &m->v[i], err);
    return rc;
}

int gcoll_make(struct gcoll_post *p, const struct gcoll_calls *calls, struct err *err)
{
    int rc = 0;

    for (size_t at = 0; at < calls->n && !rc;) {
        struct gcoll_group m = {p, calls->v + at, 1};

        while (m.n < GCOLL_MAX_CALLS && at + m.n < calls->n
               && m.v[m.n].group == m.v->group)
            m.n++;
        rc = comm_run_group(p->c, p->index, make_group, &m, err);
        at += m.n;
    }
    p->is_named = rc != 0;
    return rc;
}
