/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a tensor under a codec, and whether compression reduces it.
 *
 * Every rank plans for itself and all must compute the same plan, so nothing here may
 * depend on the rank. Traffic is counted by the ring algorithms' figures, for n members
 * and b bytes per member:
 *
 *   allreduce   2 b (n - 1) / n
 *   allgather   b (n - 1)
 *   alltoall    b (n - 1) / n
 *
 * A codec whose figure is not below the tensor's own is not used: gathering a hundredth
 * of a tensor from 100 ranks moves as much as reducing all of it.
 *
 * int8 is gathered among 2 and exchanged by shards beyond, where gathering would cost
 * (n - 1) / 4 tensors; then the sums are encoded once more, with a residual of their
 * own on the shard's owner (as in DoubleSqueeze, Tang et al., 2019).
 *
 * Called by the coordinator before codec_begin. */
#include <errno.h>
#include <inttypes.h>

#include "runtime/core/compress/cast.h"
#include "runtime/core/compress/codec.h"
#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/layout.h"
#include "runtime/core/compress/powersgd.h"
#include "runtime/core/compress/topk.h"

enum { GATHER_MEMBERS = 2, POWERSGD_MIN_RATE = 2 };
#define MAX_BYTES (1ull << 60)

static uint64_t bytes_multiply(uint64_t a, uint64_t b)
{
    uint64_t r;

    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint64_t bytes_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* b (n - 1) / n, rounded up */
static uint64_t but_own(uint64_t b, uint32_t n)
{
    return b - b / n;
}

static int size_of(enum dtype dtype,
                   uint32_t ndim,
                   const int64_t *shape,
                   uint64_t *ret_count,
                   struct err *err)
{
    uint64_t count = 1, nonzero = dtype_size(dtype);

    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return err_set(err, -EINVAL,
                           "shape: dimension %" PRIu32 " is %" PRId64 ", must be >= 0",
                           i, shape[i]);
        count = bytes_multiply(count, (uint64_t)shape[i]);
        nonzero = bytes_multiply(nonzero, shape[i] ? (uint64_t)shape[i] : 1);
        if (nonzero > MAX_BYTES)
            return err_set(err, -EINVAL, "shape: more than 2^60 bytes");
    }
    *ret_count = count;
    return 0;
}

/* Why this tensor is not for this codec, whatever its size; NULL when it is. */
static const char *plan_unfit_reason(const struct codec_plan *p, uint32_t ndim)
{
    bool is_cast = p->codec.id == CODEC_FP16 || p->codec.id == CODEC_BF16;

    if (p->codec.id == CODEC_NONE)
        return "no compression was requested";
    if (!cast_is_float(p->dtype))
        return "only floating point is compressed";
    if (is_cast && dtype_size(p->dtype) == 2)
        return "it has 16 bits already";
    if (!is_cast && p->op != OP_SUM && p->op != OP_AVERAGE)
        return "only SUM and AVERAGE are compressed by this codec";
    if (p->n_members < 2)
        return "a world of one sends nothing";
    if (p->codec.id == CODEC_POWERSGD && ndim < 2)
        return "a vector is not a matrix";
    return NULL;
}

/* count parts of 10^9, at least 1; without a product that overflows. */
static uint64_t k_of(const struct codec *c, uint64_t count)
{
    uint64_t k = c->k;

    if (c->ratio_ppb > 0)
        k = count / 1000000000 * c->ratio_ppb
            + count % 1000000000 * c->ratio_ppb / 1000000000;
    if (k == 0)
        k = 1;
    return k < count ? k : count;
}

static const char *plan_int8(struct codec_plan *p)
{
    p->wire_bytes = int8_wire_bytes(p->count, p->codec.block);
    p->way = p->n_members <= GATHER_MEMBERS ? CODEC_WAY_GATHER : CODEC_WAY_SHARDS;
    return NULL;
}

static const char *plan_topk(struct codec_plan *p)
{
    p->k = k_of(&p->codec, p->count);
    p->wire_bytes = topk_wire_bytes(p->count, p->k);
    p->way = CODEC_WAY_GATHER;
    return NULL;
}

static const char *plan_powersgd(struct codec_plan *p, uint64_t rows)
{
    uint64_t both;

    p->rows = rows;
    p->cols = p->count / rows;
    both = bytes_multiply(bytes_add(p->rows, p->cols), p->codec.rank);
    p->wire_bytes = bytes_multiply(both, sizeof(float));
    p->way = CODEC_WAY_FACTORS;
    /* as PyTorch's min_compression_rate: two rounds for little are slower than one */
    if (bytes_multiply(both, POWERSGD_MIN_RATE) >= p->count)
        return "its factors exceed half the matrix";
    return NULL;
}

static uint64_t sent_bytes(const struct codec_plan *p)
{
    if (p->way == CODEC_WAY_GATHER)
        return bytes_multiply(p->wire_bytes, p->n_members - 1);
    return bytes_multiply(but_own(p->wire_bytes, p->n_members), 2);
}

static const char *plan_sizes(struct codec_plan *p, uint32_t ndim, const int64_t *shape)
{
    const char *why = plan_unfit_reason(p, ndim);

    p->way = CODEC_WAY_PASS;
    p->wire_bytes = p->raw_bytes;
    if (!why && p->count == 0)
        why = "it is empty";
    if (why)
        return why;
    switch (p->codec.id) {
    case CODEC_FP16:
    case CODEC_BF16:
        p->way = CODEC_WAY_SUM;
        p->wire_bytes = p->count * 2;
        break;
    case CODEC_INT8:
        why = plan_int8(p);
        break;
    case CODEC_TOPK:
        why = plan_topk(p);
        break;
    case CODEC_POWERSGD:
        why = plan_powersgd(p, (uint64_t)shape[0]);
        break;
    case CODEC_NONE:
    case CODEC_COUNT:
        break;
    }
    p->sent_bytes = sent_bytes(p);
    if (!why && p->sent_bytes >= p->sent_raw_bytes)
        why = "it would not reduce traffic";
    return why;
}

int codec_plan(const struct codec *c,
               enum dtype dtype,
               enum reduce_op op,
               uint32_t ndim,
               const int64_t *shape,
               uint32_t n_members,
               struct codec_plan *ret,
               struct err *err)
{
    struct codec_plan p = {
        .codec = *c, .dtype = dtype, .op = op, .n_members = n_members};
    int rc = size_of(dtype, ndim, shape, &p.count, err);

    if (rc < 0)
        return rc;
    if (n_members == 0)
        return err_set(err, -EINVAL, "compression: a world of 0 members");
    p.raw_bytes = p.count * dtype_size(dtype);
    p.sent_raw_bytes = bytes_multiply(but_own(p.raw_bytes, n_members), 2);
    p.why = plan_sizes(&p, ndim, shape);
    p.is_compressed = !p.why;
    if (p.is_compressed) {
        codec_layout_of_plan(&p, &p.state_bytes, &p.scratch_bytes);
    } else {
        p.way = CODEC_WAY_PASS;
        p.wire_bytes = p.raw_bytes;
        p.sent_bytes = p.sent_raw_bytes;
    }
    *ret = p;
    return 0;
}
