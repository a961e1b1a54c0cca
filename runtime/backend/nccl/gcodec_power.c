/* SPDX-License-Identifier: Apache-2.0 */
/* PowerSGD on the device, as in core/compress/powersgd.h, of all tensors of a batch at
 * once (kernels/power.cu), except the products with M, which are one cuBLAS call each:
 *
 *   0  m += input; kept Q made orthonormal; P = M Q       -> allreduce of all P
 *   1  P made orthonormal; own Q = M^T P; m -= P own^T    -> allreduce of all own
 *   2  the sum is kept; out = factor * P sum^T
 *
 * All members have the same P and sum to the bit, and compute the output from them
 * with the same kernel: so results are equal. cuBLAS's own bits reach other members
 * only through sums. A member that has joined adds zeros.
 *
 * Matrices are stored by rows, which cuBLAS, whose matrices are stored by columns,
 * sees as M^T; P and Q store their vectors one after the other, which it sees as they
 * are. */
#include <errno.h>
#include <limits.h>

#include "runtime/backend/nccl/cublas_dl.h"
#include "runtime/backend/nccl/gcodec.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/backend/nccl/nccl_dl.h"
#include "runtime/backend/nccl/table.h"
#include "runtime/base/mem.h"

#define WORKSPACE_BYTES (4u << 20)
enum { FACTOR_ALIGN = 16 };
_Static_assert(sizeof(struct power_tensor) == 3 * sizeof(struct chunk),
               "is passed in a table of chunks");

/* --- cuBLAS --- */

struct gcodec_blas {
    const struct cublas_api *api;
    cublas_handle h;
    cu_ptr workspace;
};

static int blas_fail(const char *call, int status, struct err *err)
{
    return err_set(err, status == 3 ? -ENOMEM : -EIO, "%s: status %d of cuBLAS", call,
                   status);
}

void gcodec_blas_free(struct gcodec_blas *b, struct device *g)
{
    if (!b)
        return;
    if (b->h)
        (void)b->api->destroy(b->h); /* the streams are idle; the result is of no use */
    memory_give(g->memory, b->workspace, NULL);
    mem_free(b);
}

static int blas_new(struct gcoll_post *p, struct gcodec_blas **ret, struct err *err)
{
    struct gcodec_blas *b = mem_zalloc(sizeof(*b));

    if (!b)
        return err_set(err, -ENOMEM, "out of memory for cuBLAS");
    b->api = p->g->cublas;
    int rc = memory_take(p->g->memory, WORKSPACE_BYTES, p->s, &b->workspace, err);
    int status = rc ? 0 : b->api->create(&b->h);
    if (status)
        rc = blas_fail("cublasCreate_v2", status, err);
    if (!rc && (status = b->api->set_pointer_mode(b->h, CUBLAS_POINTER_HOST)))
        rc = blas_fail("cublasSetPointerMode_v2", status, err);
    if (!rc && (status = b->api->set_atomics(b->h, CUBLAS_ATOMICS_OFF)))
        rc = blas_fail("cublasSetAtomicsMode", status, err);
    if (rc) {
        gcodec_blas_free(b, p->g);
        return rc;
    }
    *ret = b;
    return 0;
}

/* Directs cuBLAS to the batch's stream. Setting a stream resets the workspace. */
static int blas_begin(struct gcoll_post *p, struct err *err)
{
    struct device *g = p->g;
    int rc = 0, status;

    if (!g->cublas)
        return err_set(err, -ENOTSUP, "cuBLAS is not loaded");
    if (!g->blas)
        rc = blas_new(p, &g->blas, err);
    if (rc)
        return rc;
    status = g->cublas->set_stream(g->blas->h, p->s);
    if (status)
        return blas_fail("cublasSetStream_v2", status, err);
    status = g->cublas->set_workspace(g->blas->h, (void *)(uintptr_t)g->blas->workspace,
                                      WORKSPACE_BYTES);
    return status ? blas_fail("cublasSetWorkspace_v2", status, err) : 0;
}

static const float *ptr_as_floats(cu_ptr p)
{
    return (const float *)(uintptr_t)p;
}

/* --- plans --- */

static int open_blas(struct device *g, struct err *err)
{
    if (g->cublas || cublas_load(g->cu->version, &g->cublas, NULL) == 0)
        return 0;
    return err_set(err, -ENOTSUP,
                   "cuBLAS is needed (libcublas.so.13, .12 or .11 was not found)");
}

static int
power_check_plan(const struct comm *c, const struct codec_plan *plan, struct err *err)
{
    (void)c;
    if (plan->rows > INT_MAX || plan->cols > INT_MAX)
        return err_set(err, -ENOTSUP,
                       "compression powersgd of a GPU tensor of 2^31 rows or columns "
                       "is not built");
    return 0;
}

static uint64_t vectors_bytes(uint64_t n, const struct codec_plan *plan)
{
    return n * plan->codec.rank * sizeof(float);
}

static uint64_t power_scratch_bytes(const struct codec_plan *plan)
{
    uint64_t at = 0;

    (void)gcodec_piece(&at, vectors_bytes(plan->rows, plan));
    (void)gcodec_piece(&at, vectors_bytes(plan->cols, plan));
    (void)gcodec_piece(&at, vectors_bytes(plan->cols, plan));
    if (!plan->codec.has_feedback)
        (void)gcodec_piece(&at, plan->count * sizeof(float));
    return at;
}

/* A batch; tensors with input are first. */
struct power {
    struct gcoll_post *p;
    const struct gcodec_item *v;
    size_t n, n_inputs;
    cu_ptr ps, owns, sums;         /* of all tensors, one after the other */
    uint64_t p_bytes, q_bytes;     /* of all */
    struct power_tensor *tensors;  /* [n] */
    const struct gcodec_item **of; /* [n]: of each of them */
    struct fuse_move *moves;       /* [n] */
    struct chunk *tiles;           /* of rests or outputs; mem_free */
    uint32_t n_tiles;
    struct args_power args;
};

static void power_release(struct power *w)
{
    mem_free(w->tensors);
    mem_free(w->of);
    mem_free(w->moves);
    mem_free(w->tiles);
}

/* Offset of the next piece of what one call sums. */
static uint64_t power_factor_offset(uint64_t *at, uint64_t bytes)
{
    const uint64_t here = *at;

    *at += (bytes + FACTOR_ALIGN - 1) / FACTOR_ALIGN * FACTOR_ALIGN;
    return here;
}

/* Places are a function of the plans in the batch's order, whichever ranks have input.
 */
static void power_place_tensor(struct power *w,
                               const struct gcodec_item *it,
                               cu_ptr *work,
                               struct power_tensor *ret)
{
    const struct codec_plan *plan = it->plan;
    const uint64_t q =
        power_factor_offset(&w->q_bytes, vectors_bytes(plan->cols, plan));

    *ret = (struct power_tensor){
        .p = w->ps + power_factor_offset(&w->p_bytes, vectors_bytes(plan->rows, plan)),
        .kept = it->q,
        .own = w->owns + q,
        .sum = w->sums + q,
        .m = it->residual,
        .out = it->out,
        .rows = plan->rows,
        .cols = plan->cols};
    if (!plan->codec.has_feedback)
        ret->m = gcodec_piece(work, plan->count * sizeof(float));
}

static int power_place_scratch(struct power *w, struct err *err)
{
    uint64_t p_bytes = 0, q_bytes = 0;
    size_t first = 0, last;

    w->tensors = mem_calloc(w->n, sizeof(*w->tensors));
    w->of = mem_calloc(w->n, sizeof(const struct gcodec_item *));
    w->moves = mem_calloc(w->n, sizeof(*w->moves));
    if (!w->tensors || !w->of || !w->moves)
        return err_set(err, -ENOMEM, "out of memory for a batch of %zu tensors", w->n);
    for (size_t i = 0; i < w->n; i++) {
        const struct codec_plan *plan = w->v[i].plan;

        (void)power_factor_offset(&p_bytes, vectors_bytes(plan->rows, plan));
        (void)power_factor_offset(&q_bytes, vectors_bytes(plan->cols, plan));
        w->n_inputs += w->v[i].in != 0;
    }
    uint64_t at = w->v[0].scratch;
    w->ps = gcodec_piece(&at, p_bytes);
    w->owns = gcodec_piece(&at, q_bytes);
    w->sums = gcodec_piece(&at, q_bytes);
    last = w->n_inputs;
    for (size_t i = 0; i < w->n; i++) {
        const size_t to = w->v[i].in ? first++ : last++;

        power_place_tensor(w, &w->v[i], &at, &w->tensors[to]);
        w->of[to] = &w->v[i];
    }
    w->args.rank = w->v[0].plan->codec.rank;
    w->args.seed = w->v[0].plan->codec.seed;
    return table_take(w->p->g->tables, (const void *)w->tensors, (uint32_t)w->n * 3,
                      w->p->s, &w->args.tensors, err);
}

/* --- steps --- */

static int power_launch(struct power *w, enum kernel_id k, uint32_t n, struct err *err)
{
    w->args.n = n;
    return launch_kernel(w->p->g->launch, k, n, &w->args, w->p->s, err);
}

static int
power_make_orthonormal(struct power *w, enum power_which which, struct err *err)
{
    w->args.which = which;
    return power_launch(w, KERNEL_power_orthonormal,
                        (uint32_t)(which == POWER_KEPT ? w->n_inputs : w->n), err);
}

static int power_feed_inputs(struct power *w, struct err *err)
{
    static const enum kernel_id feeds[DT_COUNT] = {[DT_F32] = KERNEL_power_feed_f32,
                                                   [DT_F64] = KERNEL_power_feed_f64,
                                                   [DT_F16] = KERNEL_power_feed_f16,
                                                   [DT_BF16] = KERNEL_power_feed_bf16};
    const struct codec_plan *plan = w->v[0].plan;
    uint32_t n;

    for (size_t i = 0; i < w->n_inputs; i++)
        w->moves[i] = (struct fuse_move){.src = w->of[i]->in,
                                         .dst = w->tensors[i].m,
                                         .count = w->of[i]->plan->count,
                                         .src_size = (uint32_t)dtype_size(plan->dtype),
                                         .dst_size = sizeof(float)};
    int rc = gcoll_table(w->p, w->moves, w->n_inputs, &w->args.chunks, &n, err);
    w->args.adds = plan->codec.has_feedback;
    w->args.scale = w->v[0].prescale;
    return rc ? rc : power_launch(w, feeds[plan->dtype], n, err);
}

/* Tiles of those of the first n tensors that `is` selects. */
static int cut_tiles(struct power *w,
                     size_t n,
                     bool (*is)(const struct gcodec_item *it),
                     struct err *err)
{
    uint64_t n_tiles = 0;

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && n_tiles > INT_MAX)
            return err_set(err, -E2BIG, "%llu pieces in one batch",
                           (unsigned long long)n_tiles);
        if (pass == 1 && !(w->tiles = mem_calloc(n_tiles + 1, sizeof(*w->tiles))))
            return err_set(err, -ENOMEM, "out of memory for %llu pieces of tensors",
                           (unsigned long long)n_tiles);
        n_tiles = 0;
        for (size_t i = 0; i < n; i++) {
            const struct power_tensor *x = &w->tensors[i];

            for (uint64_t col = 0; is(w->of[i]) && col < x->cols; col += POWER_COLS) {
                const uint64_t left = x->cols - col;
                const uint32_t wide = left < POWER_COLS ? (uint32_t)left : POWER_COLS;

                for (uint64_t r = 0; r < x->rows; r += POWER_TILE_ROWS(wide), n_tiles++)
                    if (pass == 1)
                        w->tiles[n_tiles] = (struct chunk){
                            .src = r, .dst = col, .n = wide, .tensor = (uint32_t)i};
            }
        }
    }
    w->n_tiles = (uint32_t)n_tiles;
    return n_tiles == 0 ? 0
                        : table_take(w->p->g->tables, w->tiles, w->n_tiles, w->p->s,
                                     &w->args.chunks, err);
}

/* P = M Q, or own Q = M^T P. */
static int power_multiply(struct power *w, bool is_left, struct err *err)
{
    static const float one = 1, zero = 0;
    int rc = w->n_inputs > 0 ? blas_begin(w->p, err) : 0;

    for (size_t i = 0; i < w->n_inputs && !rc; i++) {
        const struct power_tensor *x = &w->tensors[i];
        const int rows = (int)x->rows, cols = (int)x->cols, rank = (int)w->args.rank;
        float *to = (float *)(uintptr_t)(is_left ? x->own : x->p);
        int status = w->p->g->cublas->sgemm(
            w->p->g->blas->h, is_left ? CUBLAS_N : CUBLAS_T, CUBLAS_N,
            is_left ? cols : rows, rank, is_left ? rows : cols, &one,
            ptr_as_floats(x->m), cols, ptr_as_floats(is_left ? x->p : x->kept),
            is_left ? rows : cols, &zero, to, is_left ? cols : rows);

        if (status)
            rc = blas_fail("cublasSgemm_v2", status, err);
    }
    for (size_t i = w->n_inputs; i < w->n && !rc; i++) {
        const struct power_tensor *x = &w->tensors[i];

        rc =
            gcoll_zero(w->p, is_left ? x->own : x->p,
                       vectors_bytes(is_left ? x->cols : x->rows, w->of[i]->plan), err);
    }
    return rc;
}

/* Adds the allreduce of all P, or all own. Deterministic: one group per tensor, so
 * that its bits do not depend on the other tensors of the batch. */
static int power_add_allreduce(struct power *w,
                               bool is_left,
                               struct gcoll_calls *calls,
                               struct err *err)
{
    struct gcoll_call call = {.kind = CALL_ALL_REDUCE,
                              .in = is_left ? w->owns : w->ps,
                              .out = is_left ? w->sums : w->ps,
                              .count =
                                  (is_left ? w->q_bytes : w->p_bytes) / sizeof(float),
                              .dtype = NCCL_F32,
                              .op = NCCL_SUM};
    int rc = 0;

    if (!w->p->c->terms.is_deterministic)
        return gcoll_add(calls, call, err);
    for (size_t i = 0; i < w->n && !rc; i++) {
        const struct codec_plan *plan = w->v[i].plan;
        uint64_t bytes = vectors_bytes(is_left ? plan->cols : plan->rows, plan), at = 0;

        call.count = bytes / sizeof(float);
        rc = gcoll_add(calls, call, err);
        if (!rc)
            rc = gcoll_make(w->p, calls, err);
        calls->n = 0;
        (void)power_factor_offset(&at, bytes);
        call.in += at;
        call.out += at;
    }
    return rc;
}

/* --- rounds --- */

static int power_run_first(struct power *w, struct gcoll_calls *calls, struct err *err)
{
    int rc = power_feed_inputs(w, err);

    if (!rc)
        rc = power_make_orthonormal(w, POWER_KEPT, err);
    if (!rc)
        rc = power_multiply(w, false, err);
    return rc ? rc : power_add_allreduce(w, false, calls, err);
}

static bool has_residual(const struct gcodec_item *it)
{
    return it->residual != 0;
}

static int power_run_second(struct power *w, struct gcoll_calls *calls, struct err *err)
{
    int rc = power_make_orthonormal(w, POWER_P, err);

    if (!rc)
        rc = power_multiply(w, true, err);
    if (!rc)
        rc = cut_tiles(w, w->n_inputs, has_residual, err);
    if (!rc)
        rc = power_launch(w, KERNEL_power_rest, w->n_tiles, err);
    return rc ? rc : power_add_allreduce(w, true, calls, err);
}

static bool power_has_output(const struct gcodec_item *it)
{
    return it->out != 0;
}

static int power_run_last(struct power *w, struct err *err)
{
    static const enum kernel_id outs[DT_COUNT] = {[DT_F32] = KERNEL_power_out_f32,
                                                  [DT_F64] = KERNEL_power_out_f64,
                                                  [DT_F16] = KERNEL_power_out_f16,
                                                  [DT_BF16] = KERNEL_power_out_bf16};
    size_t n = 0;

    for (size_t i = 0; i < w->n; i++)
        if (w->of[i]->q)
            w->moves[n++] = (struct fuse_move){
                .src = w->tensors[i].sum,
                .dst = w->tensors[i].kept,
                .count = vectors_bytes(w->tensors[i].cols, w->of[i]->plan),
                .src_size = 1,
                .dst_size = 1};
    int rc = gcoll_moves(w->p, KERNEL_copy, w->moves, n, 1, 1, err);
    if (!rc)
        rc = cut_tiles(w, w->n, power_has_output, err);
    w->args.scale = w->v[0].factor;
    return rc ? rc : power_launch(w, outs[w->v[0].plan->dtype], w->n_tiles, err);
}

static int power_run_round(struct gcoll_post *p,
                           const struct gcodec_item *v,
                           size_t n,
                           unsigned round,
                           struct gcoll_calls *calls,
                           struct err *err)
{
    struct power w = {.p = p, .v = v, .n = n};
    int rc = power_place_scratch(&w, err);

    if (!rc && round == 0)
        rc = power_run_first(&w, calls, err);
    else if (!rc)
        rc = round == 1 ? power_run_second(&w, calls, err) : power_run_last(&w, err);
    power_release(&w);
    return rc;
}

const struct gcodec_row gcodec_powersgd = {
    .n_rounds = 3,
    .open = open_blas,
    .check = power_check_plan,
    .scratch_bytes = power_scratch_bytes,
    .batch = power_run_round,
};
