/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs in a world of members (codec_world.h) that must all get the same result, close
 * to the true sum, and lose nothing over the steps. */
#include <math.h>

#include "runtime/base/mem.h"
#include "runtime/core/compress/cast.h"
#include "tests/unit/codec_world.h"
#include "tests/unit/seeded.h"

/* --- runs --- */

struct trial {
    const char *text;
    enum dtype dtype;
    int64_t rows, cols;
    uint32_t n;
    uint64_t n_steps;
    double tolerance; /* of one step, against the largest sum */
};

static const struct trial trials[] = {
    {"fp16", DT_F32, 1000, 0, 3, 1, 0x1p-10},
    {"fp16", DT_F64, 1000, 0, 2, 1, 0x1p-10},
    {"bf16", DT_F32, 33, 7, 8, 1, 0x1p-7},
    {"bf16", DT_F64, 1, 0, 2, 1, 0x1p-7},
    {"int8", DT_F32, 1000, 0, 2, 1, 0.0045},
    {"int8:block=256", DT_F64, 5, 1001, 2, 1, 0.0045},
    {"int8:feedback=0", DT_F16, 1000, 0, 2, 1, 0.005},
    {"int8:block=256", DT_F32, 3000, 0, 3, 2, 0.009},
    {"int8:block=256", DT_F32, 3000, 0, 8, 2, 0.009},
    {"int8:block=1024", DT_F32, 3000, 0, 7, 2, 0.009}, /* members without a shard */
    {"int8:feedback=0", DT_BF16, 70, 70, 5, 2, 0.013},
    {"int8", DT_F64, 2, 0, 2, 1, 0.0045},
    {"topk:ratio=0.1", DT_F32, 1000, 0, 4, 1, 1},
    {"topk:k=1", DT_F64, 777, 3, 2, 1, 1},
    {"topk:ratio=0.05", DT_BF16, 40, 50, 8, 1, 1},
    {"topk:ratio=0.05,feedback=0", DT_F16, 40, 50, 3, 1, 1},
    {"topk:ratio=0.05,feedback=0", DT_F32, 40, 50, 3, 1, 1},
    {"powersgd", DT_F32, 40, 50, 2, 2, 1},
    {"powersgd:rank=1", DT_F64, 40, 50, 5, 2, 1},
    {"powersgd:rank=7", DT_BF16, 64, 64, 3, 2, 1},
    {"powersgd:rank=2,feedback=0", DT_F16, 30, 20, 3, 2, 1},
    {"powersgd:rank=2,feedback=0,seed=5", DT_F32, 30, 20, 3, 2, 1},
};

struct buffers {
    uint64_t count;
    float *value[WORLD_MAX]; /* what member r contributes, as float32 */
    void *in[WORLD_MAX], *out[WORLD_MAX];
    float *result;
};

static void buffers_init(struct buffers *b, const struct codec_plan *p)
{
    b->count = p->count;
    b->result = calloc(p->count, sizeof(float));
    assert_non_null(b->result);
    for (uint32_t r = 0; r < p->n_members; r++) {
        b->value[r] = calloc(p->count, sizeof(float));
        b->in[r] = calloc(p->count, dtype_size(p->dtype));
        b->out[r] = calloc(p->count, dtype_size(p->dtype));
        assert_true(b->value[r] && b->in[r] && b->out[r]);
    }
}

static void buffers_release(struct buffers *b, uint32_t n)
{
    free(b->result);
    for (uint32_t r = 0; r < n; r++) {
        free(b->value[r]);
        free(b->in[r]);
        free(b->out[r]);
    }
}

/* Values that every type holds exactly, some large, most small. */
static void
buffers_fill(struct buffers *b, const struct codec_plan *p, struct seeded *rnd)
{
    for (uint32_t r = 0; r < p->n_members; r++) {
        for (uint64_t i = 0; i < b->count; i++)
            b->value[r][i] = (float)((int)seeded_below(rnd, 129) - 64)
                             / (seeded_below(rnd, 10) ? 32 : 1);
        cast_store(&codec_kernels_base, b->in[r], p->dtype, b->value[r], b->count, 1);
    }
}

/* Two worlds that run the same trial, with buffers of their own. */
struct trial_run {
    const struct trial *x;
    struct codec_plan p;
    struct codec_world w, w2;
    struct buffers a, b;
    struct seeded rnd;
};

/* dtype: of all trials; DT_COUNT: each has its own. */
static void trials_run(enum dtype dtype, void (*check)(struct trial_run *))
{
    for (size_t t = 0; t < ARRAY_LEN(trials); t++) {
        const struct trial *x = &trials[t];
        struct trial_run r = {.x = x, .rnd = {t + 1}};

        r.p = plan_of(x->text, dtype == DT_COUNT ? x->dtype : dtype, x->rows, x->cols,
                      x->n);
        world_init(&r.w, x->n);
        world_init(&r.w2, x->n);
        buffers_init(&r.a, &r.p);
        buffers_init(&r.b, &r.p);
        buffers_fill(&r.a, &r.p, &r.rnd);
        check(&r);
        buffers_release(&r.a, x->n);
        buffers_release(&r.b, x->n);
        world_release(&r.w);
        world_release(&r.w2);
    }
}

#define TRIAL_TEST(name, dtype)                                                        \
    static void name##_in(struct trial_run *r);                                        \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        trials_run(dtype, name##_in);                                                  \
    }                                                                                  \
    static void name##_in(struct trial_run *r)

/* One step; all members must have got the same bits. Into b->result as float32. */
static void step_of(struct codec_world *w,
                    struct buffers *b,
                    const struct codec_plan *p,
                    double prescale,
                    double postscale)
{
    struct err err = ERR_INIT;
    const void *in[WORLD_MAX];

    memcpy(in, b->in, sizeof(in));
    if (world_run(w, p, "w", in, b->out, prescale, postscale, &err) < 0)
        fail_msg("%s", err.text);
    for (uint32_t r = 1; r < p->n_members; r++)
        assert_memory_equal(b->out[r], b->out[0], b->count * dtype_size(p->dtype));
    cast_load(&codec_kernels_base, b->result, b->out[0], p->dtype, b->count, 1);
}

/* Element by element, against the largest sum of magnitudes; a projection has its bound
 * on the whole: the error is no longer than the matrix. */
static void
check_sums(const struct buffers *b, const struct trial *x, bool is_projection)
{
    double top = 0, worst = 0, length2 = 0, error2 = 0;

    for (uint64_t i = 0; i < b->count; i++) {
        double sum = 0, magnitudes = 0, e;

        for (uint32_t r = 0; r < x->n; r++) {
            sum += (double)b->value[r][i];
            magnitudes += fabs((double)b->value[r][i]);
        }
        e = fabs((double)b->result[i] - sum);
        top = magnitudes > top ? magnitudes : top;
        worst = e > worst ? e : worst;
        length2 += sum * sum;
        error2 += e * e;
    }
    if (is_projection ? error2 > x->tolerance * length2 : worst > x->tolerance * top)
        fail_msg("%s: worst %g of %g, error^2 %g of %g", x->text, worst, top, error2,
                 length2);
}

TRIAL_TEST(sums_are_close_and_bytes_as_planned, DT_COUNT)
{
    const struct codec_plan *p = &r->p;
    uint32_t n = r->x->n;
    uint64_t put = 0;

    assert_true(p->is_compressed);
    step_of(&r->w, &r->a, p, 1, 1);
    assert_int_equal(r->w.n_steps, r->x->n_steps);
    for (uint32_t i = 0; i < n; i++)
        put += r->w.put_bytes[i];
    /* int8 by shards: once in parts, once the sums, in parts of all members */
    assert_int_equal(put, p->wire_bytes * (p->way == CODEC_WAY_SHARDS ? n + 1 : n));
    check_sums(&r->a, r->x, p->codec.id == CODEC_POWERSGD);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(codec_state_bytes(r->w.state[i]), p->state_bytes);
}

/* Nothing is lost over the steps: what was delivered is the input less the last
 * residuals, and later steps with zeros deliver those. */
TRIAL_TEST(feedback_delivers_everything_in_the_end, DT_F32)
{
    enum { STEPS = 20 };
    const struct codec_plan *p = &r->p;
    double *missing, top = 0, last = 0;
    int drain = p->k ? (int)(p->count / p->k) + STEPS : 400; /* a few at a time */

    if (!p->codec.has_feedback)
        return;
    missing = calloc(p->count, sizeof(*missing));
    assert_non_null(missing);
    for (int step = 0; step < STEPS + drain; step++) {
        if (step < STEPS)
            buffers_fill(&r->a, p, &r->rnd);
        for (uint32_t i = 0; i < r->x->n && step >= STEPS; i++) {
            memset(r->a.in[i], 0, p->count * sizeof(float));
            memset(r->a.value[i], 0, p->count * sizeof(float));
        }
        step_of(&r->w, &r->a, p, 1, 1);
        last = 0;
        for (uint64_t i = 0; i < p->count; i++) {
            for (uint32_t k = 0; k < r->x->n; k++)
                missing[i] += (double)r->a.value[k][i];
            missing[i] -= (double)r->a.result[i];
            last = fabs(missing[i]) > last ? fabs(missing[i]) : last;
        }
        if (step < STEPS) /* residuals are bounded: they do not add up */
            top = step < STEPS / 2 && last > top ? last : top;
        if (step == STEPS - 1)
            assert_true(last < 4 * top);
    }
    /* rounding of float32 sums over the steps is all that may remain */
    if (last > 64 * 20 * 8 * 1e-5)
        fail_msg("%s: %g of %g are still missing", r->x->text, last, top);
    free(missing);
}

TRIAL_TEST(average_and_scales_are_applied, DT_COUNT)
{
    struct codec_plan average = r->p;
    bool is_bf16 = r->x->dtype == DT_BF16 || r->p.codec.id == CODEC_BF16;
    double unit = is_bf16 ? 0x1p-7 : 0x1p-9;

    average.op = OP_AVERAGE;
    for (uint32_t i = 0; i < r->x->n; i++)
        memcpy(r->b.in[i], r->a.in[i], r->p.count * dtype_size(r->p.dtype));
    step_of(&r->w, &r->a, &r->p, 1, 1);
    step_of(&r->w2, &r->b, &average, 0.5, 4);
    for (uint64_t i = 0; i < r->p.count; i++) {
        double want = (double)r->a.result[i] * 2 / r->x->n;

        assert_true(fabs((double)r->b.result[i] - want)
                    <= 2 * unit * fabs(want) + 1e-5);
    }
}

TRIAL_TEST(in_place_is_the_same, DT_COUNT)
{
    const void *in[WORLD_MAX];

    step_of(&r->w, &r->a, &r->p, 1, 1);
    memcpy(in, r->a.in, sizeof(in));
    assert_int_equal(world_run(&r->w2, &r->p, "w", in, r->a.in, 1, 1, NULL), 0);
    for (uint32_t i = 0; i < r->x->n; i++)
        assert_memory_equal(r->a.in[i], r->a.out[i],
                            r->p.count * dtype_size(r->p.dtype));
}

/* A member that has joined contributes zeros, and its residual waits. */
TRIAL_TEST(a_member_without_data_brings_zeros, DT_COUNT)
{
    uint64_t bytes = r->p.count * dtype_size(r->p.dtype);
    uint32_t joined = r->x->n - 1;
    const void *in[WORLD_MAX];
    void *out[WORLD_MAX];

    memset(r->a.in[joined], 0, bytes);
    step_of(&r->w, &r->a, &r->p, 1, 1);
    memcpy(in, r->a.in, sizeof(in));
    memcpy(out, r->b.out, sizeof(out));
    in[joined] = NULL;
    out[joined] = NULL;
    assert_int_equal(world_run(&r->w2, &r->p, "w", in, out, 1, 1, NULL), 0);
    assert_memory_equal(r->b.out[0], r->a.out[0], bytes);
    assert_int_equal(codec_state_bytes(r->w2.state[joined]), 0);
    /* later it has data again: all still agree */
    memcpy(r->b.in[0], r->a.in[0], bytes);
    step_of(&r->w2, &r->b, &r->p, 1, 1);
}

TRIAL_TEST(nan_and_infinity_arrive_and_do_not_stay, DT_COUNT)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const struct codec_plan *p = &r->p;

    step_of(&r->w, &r->a, p, 1, 1);
    for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
        bool is_reported = false;

        r->a.value[1][p->count / 2] = bad[k];
        cast_store(&codec_kernels_base, r->a.in[1], p->dtype, r->a.value[1], p->count,
                   1);
        step_of(&r->w, &r->a, p, 1, 1);
        for (uint64_t i = 0; i < p->count; i++)
            is_reported |= !isfinite(r->a.result[i]);
        assert_true(is_reported);
        for (uint64_t i = 0; i < p->count && p->codec.id == CODEC_POWERSGD; i++)
            assert_true(isnan(r->a.result[i])); /* not only where it happens to hit */
        buffers_fill(&r->a, p, &r->rnd);
        for (int step = 0; step < 3; step++) {
            step_of(&r->w, &r->a, p, 1, 1);
            for (uint64_t i = 0; i < p->count; i++)
                assert_true(isfinite(r->a.result[i]));
        }
    }
}

TRIAL_TEST(zeros_stay_zeros, DT_COUNT)
{
    for (int step = 0; step < 3; step++) {
        step_of(&r->w, &r->b, &r->p, 1, 1); /* b is all zeros */
        for (uint64_t i = 0; i < r->p.count; i++)
            assert_true(r->b.result[i] == 0);
    }
}

/* A matrix of the codec's rank is exact, and so is the next one. */
UNIT_TEST(powersgd_recovers_its_rank)
{
    enum { ROWS = 60, COLS = 80, N = 3 };
    struct codec_plan p = plan_of("powersgd:rank=3", DT_F32, ROWS, COLS, N);
    struct seeded rnd = {6};
    struct codec_world w;
    struct buffers b;

    world_init(&w, N);
    buffers_init(&b, &p);
    for (int rank = 1; rank <= 3; rank++) {
        float u[3 * ROWS], v[3 * COLS];

        for (int i = 0; i < 3 * ROWS; i++)
            u[i] = (float)((int)seeded_below(&rnd, 65) - 32) / 32;
        for (int i = 0; i < 3 * COLS; i++)
            v[i] = (float)((int)seeded_below(&rnd, 65) - 32) / 32;
        codec_state_forget(w.state[1], 0, "w"); /* one member starts again: no harm */
        for (uint32_t r = 0; r < N; r++)
            for (int i = 0; i < ROWS * COLS; i++) {
                float x = 0;

                for (int k = 0; k < rank; k++)
                    x += u[k * ROWS + i / COLS] * v[k * COLS + i % COLS];
                b.value[r][i] = ((float *)b.in[r])[i] = x * (float)(r + 1);
            }
        for (int step = 0; step < 3; step++)
            step_of(&w, &b, &p, 1, 1);
        for (int i = 0; i < ROWS * COLS; i++)
            assert_true(fabsf(b.result[i] - 6 * b.value[0][i]) < 1e-5f * 18);
    }
    buffers_release(&b, N);
    world_release(&w);
}

/* --- malformed messages --- */

static void bend_member_1(uint32_t member, const struct codec_step *s)
{
    if (member == 1) /* the first index, or the first scale: all ones */
        memset((void *)(uintptr_t)s->in, 0xff, 4);
}

static void bend_scale(uint32_t member, const struct codec_step *s)
{
    float f = -3;

    if (member == 1)
        memcpy((void *)(uintptr_t)s->in, &f, sizeof(f));
}

static void bend_sums(uint32_t member, const struct codec_step *s)
{
    if (s->coll == COLL_ALLGATHER)
        bend_scale(member, s);
}

UNIT_TEST(a_bent_message_fails_the_run_and_drops_its_state)
{
    static const struct {
        const char *text;
        uint32_t n;
        void (*bend)(uint32_t, const struct codec_step *);
        const char *want;
    } rows[] = {
        {"topk", 2, bend_member_1,
         "top-k message of member 1: index 4294967295 at place 0 of a tensor of 4000 "
         "elements"},
        {"int8", 2, bend_scale, "int8 message of member 1: scale of block 0 is -3"},
        {"int8", 3, bend_scale, "int8 message of member 1: scale of block 0 is -3"},
        {"int8", 3, bend_sums, "sums of member 1: int8 message of member 0: scale of"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct codec_plan p = plan_of(rows[i].text, DT_F32, 4000, 0, rows[i].n);
        struct seeded rnd = {7};
        struct err err = ERR_INIT;
        struct codec_world w;
        struct buffers b;
        const void *in[WORLD_MAX];

        world_init(&w, rows[i].n);
        buffers_init(&b, &p);
        buffers_fill(&b, &p, &rnd);
        memcpy(in, b.in, sizeof(in));
        w.bend = rows[i].bend;
        assert_int_equal(world_run(&w, &p, "w", in, b.out, 1, 1, &err), -EBADMSG);
        if (strncmp(err.text, rows[i].want, strlen(rows[i].want)) != 0)
            fail_msg("%s", err.text);
        assert_int_equal(codec_state_bytes(w.state[0]), 0);
        w.bend = NULL;
        step_of(&w, &b, &p, 1, 1); /* and the next one runs */
        buffers_release(&b, rows[i].n);
        world_release(&w);
    }
}

UNIT_MAIN(NULL, NULL)
