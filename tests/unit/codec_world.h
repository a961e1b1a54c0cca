/* SPDX-License-Identifier: Apache-2.0 */
/* A world of members in one process that run codecs: each collective is done here in
 * member order, in float32 or float64 as the backends do, and every byte that a member
 * sends is counted. */
#ifndef TESTS_UNIT_CODEC_WORLD_H
#define TESTS_UNIT_CODEC_WORLD_H

#include "runtime/core/compress/codec.h"
#include "runtime/core/half.h"
#include "tests/unit/codec_kernels.h"

#define WORLD_MAX 8

static inline struct codec codec_of(const char *text)
{
    struct err err = ERR_INIT;
    struct codec c;

    if (codec_parse("t", text, &c, &err) < 0)
        fail_msg("%s", err.text);
    return c;
}

static inline struct codec_plan
plan_of(const char *text, enum dtype t, int64_t rows, int64_t cols, uint32_t n)
{
    struct codec c = codec_of(text);
    int64_t shape[] = {rows, cols};
    struct codec_plan p;

    assert_int_equal(codec_plan(&c, t, OP_SUM, cols ? 2 : 1, shape, n, &p, NULL), 0);
    return p;
}

struct codec_world {
    uint32_t n;
    struct codec_state *state[WORLD_MAX];
    uint64_t n_steps;              /* collectives of the last tensor */
    uint64_t put_bytes[WORLD_MAX]; /* what each member put into them */
    /* changes a step's input; may be NULL */
    void (*bend)(uint32_t member, const struct codec_step *s);
};

static inline void world_init(struct codec_world *w, uint32_t n)
{
    /* members of both builds, where this CPU can: they must agree */
    bool is_wide = cpu_is_wide();

    *w = (struct codec_world){.n = n};
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(codec_state_new(1u << 26, is_wide && i % 2, &w->state[i]), 0);
}

static inline void world_release(struct codec_world *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        codec_state_free(w->state[i]);
}

static inline float world_value(const void *p, enum dtype t, uint64_t i)
{
    const uint16_t *h = p;

    return t == DT_F32   ? ((const float *)p)[i]
           : t == DT_F16 ? f32_of_f16(h[i])
                         : f32_of_bf16(h[i]);
}

static inline void world_allreduce(struct codec_world *w, const struct codec_step *s)
{
    uint32_t n = w->n;
    float *sum = calloc(s[0].count, sizeof(*sum));

    assert_non_null(sum);
    for (uint64_t i = 0; i < s[0].count; i++) {
        for (uint32_t r = 0; r < n; r++)
            sum[i] += world_value(s[r].in, s[r].dtype, i);
        sum[i] = (float)((double)sum[i] * s[0].postscale
                         / (s[0].op == OP_AVERAGE ? (double)n : 1));
    }
    for (uint32_t r = 0; r < n; r++) {
        uint16_t *h = s[r].out;

        w->put_bytes[r] += s[r].count * dtype_size(s[r].dtype);
        for (uint64_t i = 0; i < s[r].count; i++)
            if (s[r].dtype == DT_F32)
                ((float *)s[r].out)[i] = sum[i];
            else
                h[i] = s[r].dtype == DT_F16 ? f16_of_f32(sum[i]) : bf16_of_f32(sum[i]);
    }
    free(sum);
}

static inline void world_exchange(struct codec_world *w, const struct codec_step *s)
{
    for (uint32_t r = 0; r < w->n; r++) {
        uint8_t *out = s[r].out;

        for (uint32_t from = 0; from < w->n; from++) {
            const uint8_t *in = s[from].in;
            uint64_t bytes = s[from].count;

            if (s[from].coll == COLL_ALLTOALL) {
                bytes = s[from].send_counts[r];
                for (uint32_t k = 0; k < r; k++)
                    in += s[from].send_counts[k];
            }
            assert_int_equal(bytes, s[r].counts[from]);
            memcpy(out, in, bytes);
            out += bytes;
        }
        w->put_bytes[r] += s[r].count;
    }
}

/* All members run one tensor; 0, or the first member's error. */
static inline int world_run(struct codec_world *w,
                            const struct codec_plan *plan,
                            const char *name,
                            const void *const *in,
                            void *const *out,
                            double prescale,
                            double postscale,
                            struct err *err)
{
    struct codec_run run[WORLD_MAX];
    struct codec_step step[WORLD_MAX];
    void *scratch[WORLD_MAX] = {0};
    int rc = 1, failed = 0;

    w->n_steps = 0;
    memset(w->put_bytes, 0, sizeof(w->put_bytes));
    for (uint32_t r = 0; r < w->n; r++) {
        struct codec_io io = {r, in[r], out[r], prescale, postscale};

        scratch[r] = aligned_alloc(64, plan->scratch_bytes + 64);
        assert_non_null(scratch[r]);
        memset(scratch[r], 0xa5, plan->scratch_bytes + 64);
        assert_int_equal(
            codec_begin(&run[r], w->state[r], 0, name, plan, &io, scratch[r], err), 0);
    }
    for (;;) {
        for (uint32_t r = 0; r < w->n; r++) {
            int got = codec_next(&run[r], &step[r], failed < 0 ? NULL : err);

            assert_true(got < 0 || failed < 0 || r == 0 || got == rc);
            rc = got;
            failed = got < 0 ? got : failed;
        }
        if (rc == 0 || failed < 0)
            break;
        w->n_steps++;
        for (uint32_t r = 0; r < w->n && w->bend; r++)
            w->bend(r, &step[r]);
        if (step[0].coll == COLL_ALLREDUCE)
            world_allreduce(w, step);
        else
            world_exchange(w, step);
    }
    for (uint32_t r = 0; r < w->n; r++) {
        codec_cancel(&run[r]);
        for (int i = 0; i < 64; i++) /* nothing was written behind the scratch */
            assert_int_equal(((uint8_t *)scratch[r])[plan->scratch_bytes + (uint64_t)i],
                             0xa5);
        free(scratch[r]);
    }
    return failed;
}

#endif
