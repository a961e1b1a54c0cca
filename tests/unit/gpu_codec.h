/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed batches of device memory compared with the same tensors through the
 * codecs of host memory, by members that are threads. */
#ifndef TESTS_UNIT_GPU_CODEC_H
#define TESTS_UNIT_GPU_CODEC_H

#include "runtime/backend/nccl/gcodec.h"
#include "tests/unit/gpu_members.h"
#include "tests/unit/gpu_values.h"
#include "tests/unit/seeded.h"

enum { CODEC_ITEMS = 6, CODEC_MAX = 80 * 80, CODEC_SETS = 2 };

struct coder;

/* How much results may differ from the host's; 0: by no bit. */
struct coding_case {
    const char *text;                     /* of the codec */
    double slack, slack_bf16, slack_wide; /* wide: of float32 and float64 */
    uint64_t max_bytes;                   /* kept between steps; 0: enough */
    bool is_alone;                        /* one tensor a batch */
    bool has_nans;                        /* and infinities, now and then */
    unsigned n_rounds;
    int (*body)(struct coder *c, struct party *p, char *said); /* NULL: rounds */
};
static const struct coding_case *coding;

struct coder { /* one member */
    struct backend *host, *gpu;
    struct device *d;
    uint32_t me, n;
    void *stream;
    struct codec_state *state;
    struct seeded all, own; /* all: equal on all members */
};

/* A batch of one type: item i is always of the same shape, under a name of its own. */
struct coded {
    enum dtype dtype;
    enum reduce_op op;
    double pre, post;
    uint32_t set;
    bool has_joined, is_in_place;
    size_t n;
    size_t which[CODEC_ITEMS]; /* shapes and names */
    struct codec_plan plans[CODEC_ITEMS];
    char names[CODEC_ITEMS][24];
    size_t at[CODEC_ITEMS]; /* in the arena, by coded_plan() */
    size_t bytes;           /* of it */
};

static const int64_t coded_shapes[CODEC_ITEMS][2] = {{80, 80},  {1, 3},   {40, 25},
                                                     {3000, 1}, {257, 5}, {64, 32}};

/* For the arena of any batch; one is as long as its tensors are. */
#define CODED_ROOM (CODEC_ITEMS * (CODEC_MAX * sizeof(double) + 256))

/* --- one tensor on the host --- */

static int post_scaled(struct coder *c,
                       const struct codec_step *s,
                       double prescale,
                       struct err *err)
{
    struct batch_item item = {.in = s->in,
                              .out = s->out,
                              .count = s->count,
                              .counts = s->counts,
                              .send_counts = s->send_counts};
    struct batch batch = {.coll = s->coll,
                          .dtype = s->dtype,
                          .op = s->op,
                          .prescale = prescale,
                          .postscale = s->postscale,
                          .items = &item,
                          .n_items = 1};
    uint64_t ticket, done;
    int rc = c->host->ops->post(c->host, &batch, &ticket, err);

    return rc ? rc : c->host->ops->poll(c->host, &done, err);
}

static int post_step(struct coder *c, const struct codec_step *s, struct err *err)
{
    return post_scaled(c, s, 1, err);
}

static int post_host_plain(
    struct coder *c, const struct coded *b, size_t i, void *p, struct err *err)
{
    const struct codec_step s = {.coll = COLL_ALLREDUCE,
                                 .dtype = b->dtype,
                                 .op = b->op,
                                 .postscale = b->post,
                                 .in = p,
                                 .out = p,
                                 .count = b->plans[i].count};

    return post_scaled(c, &s, b->pre, err);
}

/* All tensors begin before the first step: a batch's do not make room for each other.
 */
static int
run_host(struct coder *c, const struct coded *b, uint8_t *arena, struct err *err)
{
    struct codec_run run[CODEC_ITEMS];
    struct codec_step step;
    void *scratch[CODEC_ITEMS] = {0};
    int rc = 0;

    for (size_t i = 0; i < b->n && !rc; i++) {
        uint8_t *p = arena + b->at[i];
        struct codec_io io = {.me = c->me,
                              .in = b->has_joined ? NULL : p,
                              .out = b->has_joined ? NULL : p,
                              .prescale = b->pre,
                              .postscale = b->post};

        if (!b->plans[i].is_compressed)
            continue;
        scratch[i] = aligned_alloc(64, b->plans[i].scratch_bytes + 64);
        rc = codec_begin(&run[i], c->state, b->set, b->names[i], &b->plans[i], &io,
                         scratch[i], err);
    }
    for (size_t i = 0; i < b->n && !rc; i++) {
        if (!scratch[i])
            rc = post_host_plain(c, b, i, arena + b->at[i], err);
        while (scratch[i] && (rc = codec_next(&run[i], &step, err)) > 0) {
            rc = post_step(c, &step, err);
            if (rc)
                break;
        }
    }
    for (size_t i = 0; i < b->n; i++)
        free(scratch[i]);
    return rc;
}

/* --- a batch on the device --- */

static int coded_copy(struct coder *c, bool is_up, void *dev, void *host, size_t n)
{
    struct gpu_scope scope;
    const struct cuda_api *cu = c->d->cu;

    if (gpu_enter(c->d, &scope, NULL))
        return -EIO;
    int rc = is_up ? cu->copy_up((cu_ptr)(uintptr_t)dev, host, n, c->stream)
                   : cu->copy_down(host, (cu_ptr)(uintptr_t)dev, n, c->stream);
    gpu_leave(&scope);
    return rc;
}

static int post_gpu(struct coder *c,
                    const struct coded *b,
                    uint8_t *in,
                    uint8_t *out,
                    uint64_t *ret_ticket,
                    struct err *err)
{
    struct batch_item items[CODEC_ITEMS];
    const char *names[CODEC_ITEMS];
    struct device_event *ready = NULL;
    struct batch batch = {.coll = COLL_ALLREDUCE,
                          .place = PLACE_CUDA,
                          .dtype = b->dtype,
                          .op = b->op,
                          .prescale = b->pre,
                          .postscale = b->post,
                          .items = items,
                          .n_items = b->n};
    int rc = row->record(c->d, c->stream, &ready, err);

    for (size_t i = 0; i < b->n; i++) {
        names[i] = b->names[i];
        items[i] = (struct batch_item){.in = b->has_joined ? NULL : in + b->at[i],
                                       .out = b->has_joined ? NULL : out + b->at[i],
                                       .count = b->plans[i].count,
                                       .ready = ready};
    }
    if (!rc)
        rc = row->post_codec(c->gpu, &batch, names, b->set, b->plans, ret_ticket, err);
    row->event_unref(ready);
    return rc;
}

/* Device memory for the coder's stream from here on. */
static int coded_alloc(struct coder *c, uint64_t bytes, void **ret, struct err *err)
{
    struct device_event *given;
    int rc = row->alloc(c->d, bytes, ret, &given, err);

    if (rc)
        return rc;
    rc = row->wait(c->d, given, c->stream, UINT64_MAX, err);
    row->event_unref(given);
    return rc;
}

/* From arena to got, by way of the device. */
static int run_gpu(struct coder *c,
                   const struct coded *b,
                   uint8_t *arena,
                   uint8_t *got,
                   struct err *err)
{
    const size_t bytes = b->bytes;
    void *in = NULL, *out = NULL;
    uint64_t ticket;
    int rc = coded_alloc(c, bytes, &in, err);

    rc = rc ? rc : coded_alloc(c, bytes, &out, err);
    rc = rc ? rc : coded_copy(c, true, in, arena, bytes);
    rc = rc ? rc : post_gpu(c, b, in, b->is_in_place ? in : out, &ticket, err);
    rc = rc ? rc : wait_ticket(c->gpu, ticket, 20, err);
    rc = rc ? rc : coded_copy(c, false, b->is_in_place ? in : out, got, bytes);
    row->free(in, c->stream);
    row->free(out, c->stream);
    return rc;
}

/* --- values --- */

static void coded_fill(struct coder *c, const struct coded *b, uint8_t *arena)
{
    memset(arena, 0, b->bytes);
    for (size_t i = 0; i < b->n && !b->has_joined; i++) {
        for (uint64_t e = 0; e < b->plans[i].count; e++)
            value_put(b->dtype, arena + b->at[i], e,
                      (double)(seeded_next(&c->own) % 20011) / 10000 - 1);
        if (coding->has_nans && b->plans[i].count > 0 && seeded_below(&c->own, 8) == 0)
            value_put(b->dtype, arena + b->at[i],
                      seeded_below(&c->own, (uint32_t)b->plans[i].count),
                      seeded_below(&c->own, 2) ? NAN : -INFINITY);
    }
}

/* --- batches --- */

static int coded_plan(struct coder *c, struct coded *b, const char *text)
{
    struct codec codec;
    int rc = codec_parse("test", text, &codec, NULL);

    b->bytes = 0;
    for (size_t i = 0; i < b->n && !rc; i++) {
        (void)snprintf(b->names[i], sizeof(b->names[i]), "t%zu.%s", b->which[i],
                       dtype_name(b->dtype));
        rc = codec_plan(&codec, b->dtype, b->op, 2, coded_shapes[b->which[i]], c->n,
                        &b->plans[i], NULL);
        b->at[i] = b->bytes; /* never one behind the other */
        b->bytes += (b->plans[i].count * dtype_size(b->dtype) + 256) / 256 * 256;
    }
    return rc;
}

/* Of the types that the codec takes. */
static int batch_draw(struct coder *c, struct coded *b)
{
    static const double scales[] = {1, 1, 0.5, 3};

    *b = (struct coded){
        .dtype = float_types[seeded_below(&c->all, 4)],
        .op = seeded_below(&c->all, 3) ? OP_SUM : OP_AVERAGE,
        .pre = scales[seeded_below(&c->all, 4)],
        .post = scales[seeded_below(&c->all, 4)],
        .set = seeded_below(&c->all, CODEC_SETS),
        .n = coding->is_alone ? 1 : 1 + seeded_below(&c->all, CODEC_ITEMS),
        .has_joined = seeded_below(&c->all, 6) == 0,
        .is_in_place = seeded_below(&c->own, 2),
    };
    b->has_joined &= seeded_below(&c->all, c->n) == c->me;
    const size_t first = seeded_below(&c->all, CODEC_ITEMS);
    for (size_t i = 0; i < b->n; i++)
        b->which[i] = (first + i) % CODEC_ITEMS;
    return coded_plan(c, b, coding->text);
}

static int batch_compare(const struct coder *c,
                         const struct coded *b,
                         const uint8_t *want,
                         const uint8_t *got,
                         struct err *err)
{
    const double slack = b->dtype == DT_BF16 ? coding->slack_bf16
                         : dtype_size(b->dtype) > 2 && coding->slack_wide > 0
                             ? coding->slack_wide
                             : coding->slack;

    for (size_t i = 0; i < b->n && !b->has_joined; i++)
        for (uint64_t e = 0; e < b->plans[i].count; e++) {
            const double x = value_get(b->dtype, want + b->at[i], e),
                         y = value_get(b->dtype, got + b->at[i], e);
            /* what is not compressed is summed in NCCL's order */
            const double least = b->plans[i].is_compressed ? 0 : 0.1;

            if (x != y && !(isnan(x) && isnan(y))
                && !(fabs(x - y) <= fmax(slack, least)))
                return err_set(err, -EIO,
                               "rank %u of %u: %s of %s, %s: [%llu] is %.9g, not %.9g",
                               c->me, c->n, coding->text, b->names[i],
                               reduce_op_name(b->op), (unsigned long long)e, y, x);
        }
    return 0;
}

/* All members have the same bits, except ranks that have joined, which have none. */
static int
are_equal(struct coder *c, const struct coded *b, uint8_t *got, struct err *err)
{
    const size_t bytes = b->bytes;
    AUTOFREE uint64_t *all = mem_zalloc(bytes * c->n);
    AUTOFREE uint64_t *counts = mem_calloc(c->n, sizeof(*counts));
    AUTOFREE uint8_t *has = mem_zalloc(bytes);
    size_t size = dtype_size(b->dtype);
    const uint8_t *first = NULL;

    for (size_t i = 0; i < b->n && !b->has_joined; i++)
        memcpy(has + b->at[i], got + b->at[i], b->plans[i].count * size);
    has[bytes - 1] = b->has_joined; /* behind the last tensor, or of its last byte */
    for (uint32_t j = 0; j < c->n; j++)
        counts[j] = bytes;
    struct codec_step s = {.coll = COLL_ALLGATHER,
                           .dtype = DT_U8,
                           .postscale = 1,
                           .in = has,
                           .out = all,
                           .count = bytes,
                           .counts = counts};
    int rc = post_step(c, &s, err);
    for (uint32_t j = 0; j < c->n && !rc; j++) {
        const uint8_t *of = (const uint8_t *)all + j * bytes;

        if (of[bytes - 1])
            continue;
        if (first && memcmp(first, of, bytes) != 0)
            rc = err_set(err, -EIO, "rank %u's %s differs", j, coding->text);
        first = first ? first : of;
    }
    return rc;
}

static int one_batch(struct coder *c, const struct coded *b, struct err *err)
{
    const size_t bytes = b->bytes;
    AUTOFREE uint8_t *arena = mem_zalloc(bytes);
    AUTOFREE uint8_t *got = mem_zalloc(bytes);

    coded_fill(c, b, arena);
    int rc = run_gpu(c, b, arena, got, err);
    rc = rc ? rc : run_host(c, b, arena, err);
    rc = rc ? rc : batch_compare(c, b, arena, got, err);
    return rc ? rc : are_equal(c, b, got, err);
}

/* --- a member's life --- */

/* rounds of random batches */
static int coder_runs_rounds(struct coder *c, char *said)
{
    struct err err = ERR_INIT;
    struct coded b;
    int rc = 0;

    /* what is evicted is a matter of many */
    const unsigned n = coding->n_rounds / (coding->max_bytes ? 1 : FEWER);
    for (unsigned k = 0; k < n && !rc; k++) {
        rc = batch_draw(c, &b) ? err_set(&err, -EINVAL, "plan") : 0;
        if (!rc)
            rc = one_batch(c, &b, &err);
        if (rc)
            (void)SAYS("rank %u, round %u: %s", c->me, k, err.text);
        if (!rc && c->d->codecs
            && gcodec_states_bytes(c->d->codecs) != codec_state_bytes(c->state))
            rc = SAYS("rank %u, round %u: %llu bytes are kept, not %llu", c->me, k,
                      (unsigned long long)gcodec_states_bytes(c->d->codecs),
                      (unsigned long long)codec_state_bytes(c->state));
        if (!rc && c->d->codecs
            && gcodec_states_evicted(c->d->codecs) != codec_state_evicted(c->state))
            rc = SAYS("rank %u, round %u: %llu were evicted", c->me, k,
                      (unsigned long long)gcodec_states_evicted(c->d->codecs));
    }
    if (!rc && coding->max_bytes && gcodec_states_evicted(c->d->codecs) == 0)
        rc = SAYS("nothing was evicted");
    return rc;
}

ROW_BODY(coding_body)
{
    const struct codec_plan power = {.codec = {.id = CODEC_POWERSGD}};
    const uint32_t me = g->config.rank;
    struct coder c = {.host = (struct backend *)p->cpu[me],
                      .gpu = b,
                      .d = g,
                      .me = me,
                      .n = p->size,
                      .stream = g->streams[0],
                      .all = {p->size * 7},
                      .own = {me + 1000}};
    struct err err = ERR_INIT;

    HOLDS(row->codec_open(b, &power, &err) == 0);
    HOLDS(codec_state_new(the_case->codec_bytes, false, &c.state) == 0);
    int rc = coding->body ? coding->body(&c, p, said) : coder_runs_rounds(&c, said);
    codec_state_free(c.state);
    return rc;
}

static inline void run_coding(const struct coding_case *k, struct gpu_case c)
{
    coding = k;
    c.codec_bytes = k->max_bytes ? k->max_bytes : 1u << 26;
    c.direct_bytes = 3000;
    c.init_timeout_ns = 30 * NS_PER_S;
    c.row_body = coding_body;
    run_case(&c);
}

/* Each with 2, 3 and 5 members; number `odd` on two streams and in a fixed order. */
static inline void run_codings(const struct coding_case *cases, size_t n, size_t odd)
{
    for (size_t i = 0; i < n; i++) {
        run_coding(&cases[i], (struct gpu_case){.n = 2});
        run_coding(&cases[i], (struct gpu_case){.n = 3, .n_streams = i == odd ? 2 : 1});
        run_coding(&cases[i], (struct gpu_case){.n = 5, .is_deterministic = i == odd});
    }
}

static const struct coded one_tensor = {
    .dtype = DT_F32, .op = OP_SUM, .pre = 1, .post = 1, .n = 1};

/* --- many on their way --- */

enum { N_QUEUED = 24 };

/* All are posted before the first has run: two tensors in turn, of which one alone can
 * be kept, or one. */
static inline int queue_body(struct coder *c, struct party *p, char *said)
{
    static uint8_t arenas[MAX_MEMBERS][N_QUEUED][CODED_ROOM];
    uint8_t got[sizeof(arenas[0][0])], (*arena)[CODED_ROOM] = arenas[c->me];
    struct coded b[N_QUEUED];
    void *dev[N_QUEUED];
    struct err err = ERR_INIT;
    uint64_t ticket = 0;
    int rc = 0;

    for (int k = 0; k < N_QUEUED && !rc; k++) {
        b[k] = one_tensor;
        b[k].which[0] = coding->max_bytes && k % 2 ? 3 : 0;
        rc = coded_plan(c, &b[k], coding->text);
        coded_fill(c, &b[k], arena[k]);
        rc = rc ? rc : coded_alloc(c, b[k].bytes, &dev[k], &err);
        rc = rc ? rc : coded_copy(c, true, dev[k], arena[k], b[k].bytes);
    }
    for (int k = 0; k < N_QUEUED && !rc; k++)
        rc = post_gpu(c, &b[k], dev[k], dev[k], &ticket, &err);
    rc = rc ? rc : wait_ticket(c->gpu, ticket, 20, &err);
    for (int k = 0; k < N_QUEUED && !rc; k++) {
        rc = run_host(c, &b[k], arena[k], &err);
        rc = rc ? rc : coded_copy(c, false, dev[k], got, b[k].bytes);
        rc = rc ? rc : batch_compare(c, &b[k], arena[k], got, &err);
        row->free(dev[k], c->stream);
    }
    return rc ? SAYS("rank %u: %s", c->me, err.text) : 0;
}

/* With 2 and 3 members. */
static inline void run_queues(const struct coding_case *k, uint32_t n_streams_of_3)
{
    run_coding(k, (struct gpu_case){.n = 2, .n_streams = 3});
    run_coding(k, (struct gpu_case){.n = 3, .n_streams = n_streams_of_3});
}

#endif
