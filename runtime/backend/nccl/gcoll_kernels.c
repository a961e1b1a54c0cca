/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels over tables of chunks, copies, sums of counts. Called by gcoll_*.c,
 * gcodec*.c, nonfinite.c. */
#include <errno.h>
#include <limits.h>

#include "runtime/backend/nccl/gcoll.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/backend/nccl/table.h"
#include "runtime/base/mem.h"

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
