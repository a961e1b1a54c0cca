/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that all batches use: calls that are collected first and then made in
 * groups, kernels over tables of chunks, copies. A set of one member has no
 * communicator: no calls are collected for it. */
#include "runtime/backend/nccl/gcoll.h"

#include <errno.h>
#include <limits.h>

#include "runtime/backend/nccl/launch.h"
#include "runtime/backend/nccl/table.h"
#include "runtime/base/mem.h"

/* --- calls --- */

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

/* --- kernels and copies --- */

int gcoll_chunks(const struct fuse_move *m,
                 size_t n,
                 struct chunk **ret,
                 uint32_t *ret_n,
                 struct err *err)
{
    uint64_t n_chunks = 0, at = 0;

    for (size_t i = 0; i < n; i++)
        n_chunks += fuse_chunk_count(&m[i]);
    if (n_chunks > INT_MAX)
        return err_set(err, -E2BIG, "%llu pieces in one batch",
                       (unsigned long long)n_chunks);
    struct chunk *v = n_chunks ? mem_calloc(n_chunks, sizeof(*v)) : NULL;
    if (n_chunks && !v)
        return err_set(err, -ENOMEM, "out of memory for %llu pieces of tensors",
                       (unsigned long long)n_chunks);
    for (size_t i = 0; i < n; i++)
        at += fuse_chunks(&m[i], v + at);
    *ret = v;
    *ret_n = (uint32_t)n_chunks;
    return 0;
}

int gcoll_launch(struct gcoll_post *p,
                 enum kernel_id k,
                 cu_ptr table,
                 uint32_t n_chunks,
                 double scale,
                 uint32_t divisor,
                 struct err *err)
{
    const struct args_move args = {
        .chunks = table, .n = n_chunks, .divisor = divisor, .scale = scale};

    return launch_kernel(p->g->launch, k, n_chunks, &args, p->s, err);
}

int gcoll_table(struct gcoll_post *p,
                const struct fuse_move *m,
                size_t n,
                cu_ptr *ret,
                uint32_t *ret_n,
                struct err *err)
{
    AUTOFREE struct chunk *v = NULL;
    int rc = gcoll_chunks(m, n, &v, ret_n, err);

    if (rc || *ret_n == 0)
        return rc;
    return table_take(p->g->tables, v, *ret_n, p->s, ret, err);
}

int gcoll_moves(struct gcoll_post *p,
                enum kernel_id k,
                const struct fuse_move *m,
                size_t n,
                double scale,
                uint32_t divisor,
                struct err *err)
{
    uint32_t n_chunks = 0;
    cu_ptr table = 0;
    int rc = gcoll_table(p, m, n, &table, &n_chunks, err);

    return rc || n_chunks == 0
               ? rc
               : gcoll_launch(p, k, table, n_chunks, scale, divisor, err);
}

int gcoll_copy(
    struct gcoll_post *p, cu_ptr dst, cu_ptr src, uint64_t bytes, struct err *err)
{
    if (dst == src || bytes == 0)
        return 0;
    return CUDA_TRY(p->g->cu, copy, err, dst, src, bytes, p->s);
}

int gcoll_zero(struct gcoll_post *p, cu_ptr dst, uint64_t bytes, struct err *err)
{
    return bytes == 0 ? 0 : CUDA_TRY(p->g->cu, set_d8, err, dst, 0, bytes, p->s);
}

uint64_t gcoll_counts_sum(const uint64_t *v, uint32_t n)
{
    uint64_t s = 0;

    for (uint32_t i = 0; i < n; i++)
        s += v[i];
    return s;
}

bool gcoll_counts_are_equal(const uint64_t *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (v[i] != v[0])
            return false;
    return true;
}

/* --- a batch --- */

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

struct gcoll_post gcoll_post_of(struct device *g, const struct gpu_job *job)
{
    return (struct gcoll_post){
        .c = job->comm,
        .g = g,
        .batch = &job->batch,
        .s = job->stream,
        .index = job->stream_index,
    };
}

int gcoll_run(struct device *g, struct gpu_job *job, struct err *err)
{
    struct gcoll_post p = gcoll_post_of(g, job);
    int rc = gcoll_put(&p, err);

    return rc == 0 || p.is_named || rc == -ECONNABORTED ? rc
                                                        : gpu_name_rank(g, rc, err);
}
