/* SPDX-License-Identifier: Apache-2.0 */
/* What tensors keep between steps. A run's steps are core_compress_run_test's. */
#include "tests/unit/codec_world.h"
#include "tests/unit/torture.h"

UNIT_TEST(a_cancelled_run_forgets_its_tensor)
{
    static float data[5000];
    struct codec_plan p = plan_of("int8", DT_F32, 5000, 0, 2);
    struct codec_plan pass = plan_of("int8", DT_F32, 1, 0, 2);
    struct codec_io io = {.in = data, .out = data, .prescale = 1, .postscale = 1};
    uint8_t *scratch = aligned_alloc(64, p.scratch_bytes);
    struct err err = ERR_INIT;
    struct codec_step step;
    struct codec_run run, other;
    struct codec_state *s;

    assert_non_null(scratch);
    assert_int_equal(codec_state_new(1 << 20, false, &s), 0);
    assert_int_equal(codec_begin(&run, s, 0, "a", &p, &io, scratch, NULL), 0);
    assert_int_equal(codec_begin(&other, s, 0, "a", &p, &io, scratch, &err), -EBUSY);
    assert_string_equal(err.text, "compression of \"a\": it is in progress already");
    codec_state_forget(s, 0, "a"); /* a running tensor is not forgotten */
    assert_int_equal(codec_state_bytes(s), 20000);
    assert_int_equal(codec_next(&run, &step, NULL), 1);
    codec_cancel(&run);
    codec_cancel(&run);
    assert_int_equal(codec_state_bytes(s), 0);
    assert_int_equal(codec_next(&run, &step, &err), -EINVAL);
    assert_string_equal(err.text, "compression: the run has failed before");
    assert_int_equal(codec_begin(&run, s, 0, "b", &pass, &io, scratch, &err), -EINVAL);
    assert_string_equal(err.text, "compression of \"b\": it would not reduce traffic");
    free(scratch);
    codec_state_free(s);
}

/* --- state --- */

UNIT_TEST(state_is_bounded_and_the_oldest_is_evicted)
{
    struct codec_plan p = plan_of("int8", DT_F32, 250, 0, 2); /* 1000 bytes */
    struct codec_plan big = plan_of("int8", DT_F32, 1000, 0, 2);
    struct codec_io io = {.in = "", .prescale = 1, .postscale = 1};
    struct err err = ERR_INIT;
    struct codec_run run;
    struct codec_state *s;

    assert_int_equal(codec_state_new(3500, false, &s), 0);
    assert_int_equal(codec_reserve(s, 0, "a", &p, 0, NULL), 0);
    assert_int_equal(codec_reserve(s, 1, "a", &p, 0, NULL), 0); /* another set */
    assert_int_equal(codec_reserve(s, 0, "c", &p, 0, NULL), 0);
    assert_int_equal(codec_reserve(s, 0, "c", &p, 0, NULL), 0);
    assert_int_equal(codec_state_bytes(s), 3000);
    assert_int_equal(codec_state_evicted(s), 0);
    /* a is used: the other a is the oldest now */
    assert_int_equal(codec_begin(&run, s, 0, "a", &p, &io, NULL, NULL), 0);
    assert_int_equal(codec_reserve(s, 0, "d", &p, 0, NULL), 0);
    assert_int_equal(codec_state_bytes(s), 3000);
    assert_int_equal(codec_state_evicted(s), 1);
    codec_state_forget(s, 1, "a"); /* gone already */
    assert_int_equal(codec_state_bytes(s), 3000);
    assert_int_equal(codec_reserve(s, 0, "big", &big, 0, &err), -ENOSPC);
    assert_string_equal(err.text,
                        "compression of \"big\": keeps 4000 bytes between steps, "
                        "500 of 3500 are left (HVD_COMPRESSION_MEMORY)");
    /* it failed, so nothing was evicted */
    assert_int_equal(codec_state_bytes(s), 3000);
    big = plan_of("int8", DT_F32, 800, 0, 2);
    assert_int_equal(codec_reserve(s, 0, "big", &big, 0, &err), -ENOSPC);
    assert_int_equal(codec_state_bytes(s), 1000); /* the running one stays */
    codec_cancel(&run);
    assert_int_equal(codec_reserve(s, 0, "big", &big, 0, NULL), 0);
    assert_int_equal(codec_state_bytes(s), 3200);
    codec_state_clear(s);
    assert_int_equal(codec_state_bytes(s), 0);
    codec_state_free(s);
    codec_state_free(NULL);
}

/* Each change of the tensor's description starts from zeros: only the first 100 of a
 * tensor can have left something, which must not reappear. */
UNIT_TEST(another_shape_or_member_starts_from_zeros)
{
    static const struct {
        const char *text;
        enum dtype dtype;
        int64_t rows, cols;
        uint32_t n;
        bool swaps, is_kept; /* swaps: the members swap places */
    } rows[] = {
        {"topk:k=1", DT_F32, 100, 0, 2, false, true},
        {"topk:k=1", DT_F32, 10, 10, 2, false, true},
        {"topk:k=1", DT_F32, 100, 0, 2, true, false},
        {"topk:k=1", DT_F32, 101, 0, 2, false, false},
        {"topk:k=2", DT_F32, 100, 0, 2, false, false},
        {"topk:k=1", DT_F64, 100, 0, 2, false, false},
        {"topk:k=1", DT_F32, 100, 0, 3, false, false},
        {"topk:ratio=0.01", DT_F32, 100, 0, 2, false, false},
    };
    static float one[200], zero[200];
    static double out[200];

    for (int i = 0; i < 100; i++)
        one[i] = 1;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct codec_plan p = plan_of("topk:k=1", DT_F32, 100, 0, 2);
        const void *ones[] = {one, one, one}, *zeros[] = {zero, zero, zero};
        void *outs[] = {out, out, out};
        struct codec_world w;
        float got = 0;

        world_init(&w, 2);
        assert_int_equal(world_run(&w, &p, "w", ones, outs, 1, 1, NULL), 0);
        if (rows[i].n == 3) {
            w.n = 3;
            assert_int_equal(codec_state_new(1 << 20, false, &w.state[2]), 0);
        }
        if (rows[i].swaps) {
            struct codec_state *first = w.state[0];

            w.state[0] = w.state[1];
            w.state[1] = first;
        }
        p = plan_of(rows[i].text, rows[i].dtype, rows[i].rows, rows[i].cols, rows[i].n);
        memset(out, 0, sizeof(out));
        assert_int_equal(world_run(&w, &p, "w", zeros, outs, 1, 1, NULL), 0);
        for (int k = 0; k < 100; k++)
            got +=
                (float)(rows[i].dtype == DT_F64 ? out[k] : (double)((float *)out)[k]);
        assert_true(got == (rows[i].is_kept ? 2 : 0));
        world_release(&w);
    }
}

UNIT_TEST(another_matrix_replaces_the_state)
{
    struct codec_plan tall = plan_of("powersgd:rank=2", DT_F32, 90, 20, 2);
    struct codec_plan wide = plan_of("powersgd:rank=2", DT_F32, 20, 90, 2);
    struct codec_state *s;

    assert_int_equal(codec_state_new(1 << 20, false, &s), 0);
    assert_int_equal(codec_reserve(s, 0, "w", &tall, 0, NULL), 0);
    assert_int_equal(codec_state_bytes(s), 4 * (1800 + 2 * 20));
    assert_int_equal(codec_reserve(s, 0, "w", &wide, 0, NULL), 0);
    assert_int_equal(codec_state_bytes(s), 4 * (1800 + 2 * 90));
    codec_state_free(s);
}

UNIT_TEST(a_removed_set_is_forgotten)
{
    struct codec_plan p = plan_of("int8", DT_F32, 250, 0, 2); /* 1000 bytes */
    struct codec_state *s;

    assert_int_equal(codec_state_new(1 << 20, false, &s), 0);
    for (uint32_t set = 0; set < 3; set++) {
        assert_int_equal(codec_reserve(s, set, "a", &p, 0, NULL), 0);
        assert_int_equal(codec_reserve(s, set, "b", &p, 0, NULL), 0);
    }
    codec_state_forget_set(s, 1);
    assert_int_equal(codec_state_bytes(s), 4000);
    codec_state_forget(s, 1, "a");
    codec_state_forget(s, 2, "a");
    assert_int_equal(codec_state_bytes(s), 3000);
    codec_state_forget_set(s, 2);
    codec_state_forget_set(s, 0);
    codec_state_forget_set(s, 0);
    assert_int_equal(codec_state_bytes(s), 0);
    assert_int_equal(codec_reserve(s, 0, "a", &p, 0, NULL), 0); /* the list is whole */
    codec_state_free(s);
}

static int reserve_all(void *arg)
{
    static const char *const texts[] = {"int8", "topk", "powersgd"};
    struct codec_state *s;
    struct err err = ERR_INIT;
    int rc = codec_state_new(1 << 20, false, &s);

    (void)arg;
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < 3 && rc == 0; i++) {
        struct codec_plan p = plan_of(texts[i], DT_F32, 64, 64, 3);
        struct codec_io io = {.in = "", .prescale = 1, .postscale = 1};
        uint64_t before = codec_state_bytes(s);
        struct codec_run run;

        rc = codec_begin(&run, s, 0, texts[i], &p, &io, NULL, &err);
        if (rc < 0) { /* nothing half created remains */
            assert_int_equal(codec_state_bytes(s), before);
            assert_non_null(strstr(err.text, "out of memory for"));
        } else {
            codec_cancel(&run);
        }
    }
    codec_state_free(s);
    return rc;
}

UNIT_TEST(failing_allocations_leave_nothing_behind)
{
    torture(reserve_all, NULL);
}

UNIT_MAIN(NULL, NULL)
