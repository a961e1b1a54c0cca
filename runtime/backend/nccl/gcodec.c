/* SPDX-License-Identifier: Apache-2.0 */
/* A compressed batch. The seat checks that all of it can be done, reserves room for
 * the state, and posts; the launcher puts the whole batch onto the stream:
 *
 *   not compressed by the codec   an ordinary batch
 *   fp16, bf16                    an ordinary batch with a narrower wire type
 *   other codecs                  round by round: the kernels of each tensor, then the
 *                                 NCCL calls of several tensors in one group
 *
 * Groups are cut between tensors, after as many as the number of members allows: the
 * number of calls of a tensor may differ between members (shards without elements),
 * and NCCL requires both ends of a transfer in the same group. */
#include "runtime/backend/nccl/gcodec.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

/* NULL: none. */
static const struct gcodec_row *row_of(enum codec_id id)
{
    switch (id) {
    case CODEC_INT8:
        return &gcodec_int8;
    case CODEC_TOPK:
        return &gcodec_topk;
    case CODEC_POWERSGD:
        return &gcodec_powersgd;
    case CODEC_NONE:
    case CODEC_FP16:
    case CODEC_BF16:
    case CODEC_COUNT:
        break;
    }
    return NULL;
}

static bool is_narrowed(const struct codec_plan *p)
{
    return p->is_compressed && p->way == CODEC_WAY_SUM;
}

static bool has_rounds(const struct codec_plan *p)
{
    return p->is_compressed && p->way != CODEC_WAY_SUM;
}

/* --- the seat --- */

static int
gcodec_check_plan(const struct comm *c, const struct codec_plan *p, struct err *err)
{
    const struct gcodec_row *row = row_of(p->codec.id);

    if (!has_rounds(p))
        return 0;
    if (!row)
        return err_set(err, -ENOTSUP, "compression %s of GPU tensors is not built",
                       codec_name(p->codec.id));
    return row->check ? row->check(c, p, err) : 0;
}

struct extra { /* of a job; without a batch: number alone */
    uint64_t number;
    struct gcodec_kept *kept[];
};

int gcodec_open(struct backend *b, const struct codec_plan *plan, struct err *err)
{
    const struct comm *c = (const struct comm *)b;
    const struct gcodec_row *row = row_of(plan->codec.id);

    return row && row->open ? row->open(c->g, err) : 0;
}

int gcodec_post(struct backend *b,
                const struct batch *batch,
                const char *const *names,
                uint32_t set,
                const struct codec_plan *plans,
                uint64_t *ret_ticket,
                struct err *err)
{
    struct comm *c = (struct comm *)b;
    struct gpu_job *job;
    int rc = batch->coll == COLL_ALLREDUCE
                 ? 0
                 : err_set(err, -ENOTSUP, "compression of %s of GPU tensors",
                           collective_name(batch->coll));

    for (size_t i = 0; i < batch->n_items && !rc; i++)
        rc = gcodec_check_plan(c, &plans[i], err);
    if (!rc && !c->g->codecs
        && gcodec_states_new(c->g->config.codec_bytes, &c->g->codecs))
        rc = err_set(err, -ENOMEM, "out of memory for compression");
    if (!rc)
        rc = comm_job(c, JOB_CODEC, batch, plans,
                      sizeof(struct extra)
                          + batch->n_items * sizeof(struct gcodec_kept *),
                      &job, err);
    if (rc)
        return rc;
    struct extra *x = job->extra;
    rc = gcodec_states_reserve(c->g->codecs, batch, names, set, plans, c->me, x->kept,
                               &x->number, err);
    if (rc) {
        job_free(job);
        return rc;
    }
    return comm_push(c, job, ret_ticket, err);
}

/* --- the launcher --- */

struct coding { /* of one batch */
    struct gcoll_post *p;
    struct gpu_job *job;
    struct batch part;        /* some of its items */
    struct batch_item *items; /* their storage; mem_free */
    struct gcodec_item *v;    /* those with rounds; mem_free */
    size_t n;
    struct gcoll_calls calls;
};

/* The tensors that `is` selects, as an ordinary batch. */
static int run_part(struct coding *q,
                    bool (*is)(const struct codec_plan *p),
                    const enum dtype *wire,
                    struct err *err)
{
    const struct batch *all = &q->job->batch;
    struct gcoll_post p = *q->p;

    q->part = *all;
    q->part.items = q->items;
    q->part.n_items = 0;
    for (size_t i = 0; i < all->n_items; i++)
        if (is(&q->job->plans[i]))
            q->items[q->part.n_items++] = all->items[i];
    if (q->part.n_items == 0)
        return 0;
    p.batch = &q->part;
    p.wire = wire;
    int rc = gcoll_put(&p, err);
    q->p->is_named = p.is_named;
    return rc;
}

static bool gcodec_is_plain(const struct codec_plan *p)
{
    return !p->is_compressed;
}

static int run_ordinary(struct coding *q, struct err *err)
{
    static const enum dtype f16 = DT_F16, bf16 = DT_BF16;
    const bool is_half =
        q->job->batch.n_items > 0 && q->job->plans[0].codec.id == CODEC_FP16;
    int rc = run_part(q, gcodec_is_plain, NULL, err);

    return rc ? rc : run_part(q, is_narrowed, is_half ? &f16 : &bf16, err);
}

/* The tensors with rounds, with their state; *ret: bytes of their scratch. */
static int gather_items(struct coding *q, uint64_t *ret, struct err *err)
{
    const struct batch *b = &q->job->batch;
    const struct extra *x = q->job->extra;
    const double share = b->op == OP_AVERAGE ? q->p->c->n : 1;
    uint64_t bytes = 0;
    int rc = 0;

    for (size_t i = 0; i < b->n_items && !rc; i++) {
        const struct codec_plan *plan = &q->job->plans[i];
        const struct gcodec_row *row = row_of(plan->codec.id);
        struct gcodec_item *it = &q->v[q->n];

        if (!has_rounds(plan) || !row)
            continue;
        q->n++;
        gpu_count(q->p->g, GPU_PACKED, b->items[i].count * dtype_size(b->dtype));
        *it = (struct gcodec_item){.plan = plan,
                                   .in = gcoll_ptr(b->items[i].in),
                                   .out = gcoll_ptr(b->items[i].out),
                                   .prescale = b->prescale,
                                   .factor = b->postscale / share};
        it->scratch = gcodec_piece(&bytes, row->scratch_bytes(plan));
        if (bytes > INT64_MAX)
            return err_set(err, -EOVERFLOW, "a batch of more than 2^63 bytes");
        rc = gcodec_states_find(q->p->g, x->kept[i], q->p->s, it, err);
    }
    *ret = bytes;
    return rc;
}

/* Tensors of one group of calls. */
static size_t group_size(const struct coding *q)
{
    const size_t each = 2 * (size_t)q->p->c->n;

    return q->p->c->terms.is_deterministic || each >= GCOLL_MAX_CALLS
               ? 1
               : GCOLL_MAX_CALLS / each;
}

static int make_calls(struct coding *q, struct err *err)
{
    int rc = gcoll_make(q->p, &q->calls, err);

    q->calls.n = 0;
    return rc;
}

/* All tensors at once. 1: no round is left. */
static int run_batch(struct coding *q,
                     const struct gcodec_row *row,
                     unsigned round,
                     struct err *err)
{
    if (round >= row->n_rounds)
        return 1;
    int rc = row->batch(q->p, q->v, q->n, round, &q->calls, err);
    return rc ? rc : make_calls(q, err);
}

/* 1: no round is left. */
static int run_round(struct coding *q, unsigned round, struct err *err)
{
    const struct gcodec_row *first = row_of(q->v[0].plan->codec.id);
    const size_t group = group_size(q);
    int rc = 0;
    bool any = false;

    if (first && first->batch)
        return run_batch(q, first, round, err);
    for (size_t i = 0; i < q->n && !rc; i++) {
        const struct gcodec_row *row = row_of(q->v[i].plan->codec.id);

        if (row && round < row->n_rounds) {
            rc = row->round(q->p, &q->v[i], round, &q->calls, err);
            any = true;
        }
        if (!rc && (i + 1) % group == 0)
            rc = make_calls(q, err);
    }
    if (!rc)
        rc = make_calls(q, err);
    return rc || any ? rc : 1;
}

static int gcodec_run_rounds(struct coding *q, struct err *err)
{
    uint64_t bytes;
    cu_ptr at;
    int rc = gather_items(q, &bytes, err);

    if (!rc && q->n == 0)
        return 0;
    if (!rc)
        rc = scratch_fusion(&q->p->g->scratch, q->p->index, bytes, q->p->s, &at, err);
    for (size_t i = 0; i < q->n && !rc; i++)
        q->v[i].scratch += at;
    for (unsigned round = 0; !rc; round++)
        rc = run_round(q, round, err);
    return rc < 0 ? rc : 0;
}

int gcodec_run(struct device *g, struct gpu_job *job, struct err *err)
{
    struct gcoll_post p = gcoll_post_of(g, job);
    struct coding q = {.p = &p, .job = job};
    const size_t n = job->batch.n_items;
    uint64_t number;

    memcpy(&number, job->extra, sizeof(number));
    int rc = gcodec_states_begin(g, number, job, err);
    if (rc || !job->comm)
        return rc ? gpu_name_rank(g, rc, err) : 0;
    q.items = mem_calloc(n, sizeof(*q.items));
    q.v = mem_calloc(n, sizeof(*q.v));
    if (!q.items || !q.v)
        rc = err_set(err, -ENOMEM, "out of memory for a batch of %zu tensors", n);
    if (!rc)
        rc = run_ordinary(&q, err);
    if (!rc)
        rc = gcodec_run_rounds(&q, err);
    mem_free(q.items);
    mem_free(q.v);
    mem_free(q.calls.v);
    return rc == 0 || p.is_named || rc == -ECONNABORTED ? rc
                                                        : gpu_name_rank(g, rc, err);
}
