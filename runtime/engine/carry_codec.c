/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed allreduces. Every tensor of the batch has a run of its codec
 * (core/compress/codec.h). A round requests the next step of each run and posts steps
 * of one kind as one batch. Rounds are repeated until no run has a step. Tensors that
 * the codec leaves uncompressed (it gives the reason, the same on every rank) are an
 * ordinary batch before that.
 *
 * A rank that has joined runs the same with zeros. The memory of a batch is one piece,
 * as large as the largest batch so far. What is kept between steps belongs to the
 * codec_state and is bounded by HVD_COMPRESSION_MEMORY. Called by carry.c. */
#include <errno.h>

#include "runtime/engine/carry.h"
#include "runtime/backend/cpu/reduce.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

enum { ALIGN = 64 };

struct codec_batch { /* of one batch */
    size_t n;
    struct codec_plan *plans;
    struct codec_run *runs;
    struct codec_step *steps;
    bool *has_step;
    struct batch_item *items; /* of the batch that is posted */
    uint8_t
        *scratch; /* the coordinator's, kept: fresh pages cost more than the codec */
};

static void codec_batch_release(struct codec_batch *w)
{
    mem_free(w->plans);
    mem_free(w->runs);
    mem_free(w->steps);
    mem_free(w->has_step);
    mem_free(w->items);
}

static int codec_batch_init(struct codec_batch *w, size_t n)
{
    *w = (struct codec_batch){.n = n};
    w->plans = mem_calloc(n, sizeof(*w->plans));
    w->runs = mem_calloc(n, sizeof(*w->runs));
    w->steps = mem_calloc(n, sizeof(*w->steps));
    w->has_step = mem_calloc(n, sizeof(*w->has_step));
    w->items = mem_calloc(n, sizeof(*w->items));
    return w->plans && w->runs && w->steps && w->has_step && w->items ? 0 : -ENOMEM;
}

static uint64_t bytes_align(uint64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* Logs each reason once: there are at most as many as the codecs have. */
static void codec_log_plain(struct carry *c,
                            const struct tensor_request *q,
                            const struct codec_plan *p)
{
    size_t i = 0;

    while (i < ARRAY_LEN(c->logged_reasons) && c->logged_reasons[i]
           && c->logged_reasons[i] != p->why)
        i++;
    if (i == ARRAY_LEN(c->logged_reasons) || c->logged_reasons[i])
        return;
    c->logged_reasons[i] = p->why;
    log_info("a tensor and others like it are not compressed",
             "tensor=\"%s\" compression=%s because=\"%s\"", q->name, q->codec, p->why);
}

static int
codec_batch_take_scratch(struct carry *c, struct codec_batch *w, uint64_t sum)
{
    void *p;

    if (sum > c->codec_scratch_bytes) {
        p = mem_realloc_array(c->codec_scratch, sum, 1);
        if (!p)
            return -ENOMEM;
        c->codec_scratch = p;
        c->codec_scratch_bytes = sum;
    }
    w->scratch =
        c->codec_scratch + (ALIGN - (uintptr_t)c->codec_scratch % ALIGN) % ALIGN;
    return 0;
}

int carry_codec_plans(struct carry *c,
                      const struct member_act *act,
                      uint32_t n_members,
                      struct codec_plan *ret,
                      struct err *err)
{
    struct codec codec;
    int rc = codec_parse("compression", act->items[0].req->codec, &codec, err);

    for (size_t i = 0; i < act->n_items && rc == 0; i++) {
        const struct tensor_request *q = act->items[i].req;

        rc = codec_plan(&codec, q->dtype, q->op, q->ndim, q->shape, n_members, &ret[i],
                        err);
        if (rc < 0)
            return rc;
        if (!ret[i].is_compressed)
            codec_log_plain(c, q, &ret[i]);
        stats_add(&c->e->observe.stats, STATS_CODEC_RAW, ret[i].raw_bytes);
        stats_add(&c->e->observe.stats, STATS_CODEC_WIRE, ret[i].wire_bytes);
    }
    return rc;
}

static int codec_batch_plan(struct carry *c,
                            struct codec_batch *w,
                            const struct member_act *act,
                            uint32_t n_members,
                            struct err *err)
{
    uint64_t sum = ALIGN;
    int rc = carry_codec_plans(c, act, n_members, w->plans, err);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < w->n; i++)
        if (w->plans[i].is_compressed)
            sum += bytes_align(w->plans[i].scratch_bytes);
    if (codec_batch_take_scratch(c, w, sum) < 0)
        return err_set(err, -ENOMEM, "out of memory for %llu bytes of compression",
                       (unsigned long long)sum);
    return 0;
}

/* Carries out the tensors that are sent uncompressed. */
static int codec_batch_post_plain(struct carry *c,
                                  const struct process_set *set,
                                  struct codec_batch *w,
                                  const struct batch *batch,
                                  struct err *err)
{
    struct batch plain = *batch;

    plain.n_items = 0;
    plain.items = w->items;
    for (size_t i = 0; i < w->n; i++)
        if (!w->plans[i].is_compressed)
            w->items[plain.n_items++] = batch->items[i];
    return plain.n_items == 0 ? 0 : carry_post(c, set->backend, &plain, err);
}

static int codec_batch_begin(struct carry *c,
                             const struct process_set *set,
                             struct codec_batch *w,
                             const struct member_act *act,
                             const struct batch *batch,
                             struct err *err)
{
    uint64_t at = 0;

    for (size_t i = 0; i < w->n; i++) {
        const struct tensor_request *q = act->items[i].req;
        bool has_joined = !act->items[i].op;
        struct codec_io io = {.me = set->me,
                              .in = has_joined ? NULL : batch->items[i].in,
                              .out = has_joined ? NULL : batch->items[i].out,
                              .prescale = q->prescale,
                              .postscale = q->postscale};
        int r;

        if (!w->plans[i].is_compressed)
            continue;
        r = codec_begin(&w->runs[i], c->codec_state, set->id, q->name, &w->plans[i],
                        &io, w->scratch + at, err);
        if (r < 0)
            return r;
        at += bytes_align(w->plans[i].scratch_bytes);
    }
    return 0;
}

static bool step_is_alike(const struct codec_step *a, const struct codec_step *b)
{
    return a->coll == b->coll && a->dtype == b->dtype && a->op == b->op
           && a->postscale == b->postscale;
}

/* The step of tensor `first` and all that are like it, as one batch. */
static int codec_batch_post_steps(struct carry *c,
                                  const struct process_set *set,
                                  struct codec_batch *w,
                                  size_t first,
                                  struct err *err)
{
    const struct codec_step *s = &w->steps[first];
    struct batch batch = {.coll = s->coll,
                          .dtype = s->dtype,
                          .op = s->op,
                          .prescale = 1.0,
                          .postscale = s->postscale,
                          .items = w->items};

    for (size_t i = first; i < w->n; i++) {
        const struct codec_step *t = &w->steps[i];

        if (!w->has_step[i] || !step_is_alike(s, t))
            continue;
        w->has_step[i] = false;
        w->items[batch.n_items++] = (struct batch_item){.in = t->in,
                                                        .out = t->out,
                                                        .count = t->count,
                                                        .counts = t->counts,
                                                        .send_counts = t->send_counts};
    }
    return carry_post(c, set->backend, &batch, err);
}

/* 1: there was one; 0: all runs are done. */
static int codec_batch_run_round(struct carry *c,
                                 const struct process_set *set,
                                 struct codec_batch *w,
                                 bool *ret_is_ours,
                                 struct err *err)
{
    int rc = 0, any = 0;

    *ret_is_ours = true;
    for (size_t i = 0; i < w->n && rc >= 0; i++) {
        rc = w->plans[i].is_compressed ? codec_next(&w->runs[i], &w->steps[i], err) : 0;
        w->has_step[i] = rc > 0;
        any |= rc > 0;
    }
    if (rc < 0)
        return rc;
    *ret_is_ours = false;
    for (size_t i = 0; i < w->n; i++) {
        rc = w->has_step[i] ? codec_batch_post_steps(c, set, w, i, err) : 0;
        if (rc < 0)
            return rc;
    }
    return any;
}

static void codec_log_evicted(struct carry *c)
{
    uint64_t n = codec_state_evicted(c->codec_state);

    if (n > c->n_evicted && c->n_evicted == 0)
        log_warn("compression dropped the state of a tensor, continuing",
                 "rank=%u bytes=%llu (HVD_COMPRESSION_MEMORY is too small)", c->e->rank,
                 (unsigned long long)c->e->settings.codec_bytes);
    c->n_evicted = n;
}

int carry_compressed(struct carry *c,
                     const struct process_set *set,
                     const struct member_act *act,
                     const struct batch *batch,
                     bool *ret_is_ours,
                     struct err *err)
{
    CLEANUP(codec_batch_release) struct codec_batch w;
    int rc = codec_batch_init(&w, act->n_items);

    *ret_is_ours = true;
    if (rc == 0 && !c->codec_state)
        rc = codec_state_new(c->e->settings.codec_bytes, kernel_has_wide(),
                             &c->codec_state);
    if (rc < 0)
        return err_set(err, rc, "rank %u is out of memory for compression", c->e->rank);
    rc = codec_batch_plan(c, &w, act, set->n, err);
    if (rc < 0)
        return rc;
    *ret_is_ours = false;
    rc = codec_batch_post_plain(c, set, &w, batch, err);
    if (rc == 0) {
        *ret_is_ours = true;
        rc = codec_batch_begin(c, set, &w, act, batch, err);
    }
    while (rc == 0 || rc == 1) {
        rc = codec_batch_run_round(c, set, &w, ret_is_ours, err);
        if (rc == 0)
            break;
    }
    for (size_t i = 0; i < w.n; i++)
        if (w.runs[i].state) /* codec_begin has succeeded */
            codec_cancel(&w.runs[i]);
    codec_log_evicted(c);
    return rc;
}
