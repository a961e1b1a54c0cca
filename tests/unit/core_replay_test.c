/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_REPLAY: which sums are repeated, and the sentence about unequal results. */
#include <errno.h>
#include <stdio.h>

#include "runtime/base/mem.h"
#include "runtime/core/replay.h"
#include "tests/unit/unit.h"

static uint32_t step_of(struct replay *r, uint32_t set, const char *name)
{
    uint32_t step = 99;
    struct err e = ERR_INIT;

    assert_int_equal(replay_count(r, set, name, &step, &e), 0);
    return step;
}

UNIT_TEST(the_steps_of_a_name_in_a_set_are_counted)
{
    struct replay r;

    replay_init(&r, 2, 3);
    assert_int_equal(step_of(&r, 0, "a"), 0);
    assert_int_equal(step_of(&r, 0, "b"), 0);
    assert_int_equal(step_of(&r, 0, "a"), 2);
    assert_int_equal(step_of(&r, 1, "a"), 0);
    assert_int_equal(step_of(&r, 0, "a"), 3);
    assert_false(r.is_past);
    assert_int_equal(step_of(&r, 0, "a"), 0);
    assert_true(r.is_past);
    assert_int_equal(step_of(&r, 0, "b"), 2);
    assert_int_equal(step_of(&r, 1, "a"), 2);
    replay_release(&r);
    replay_release(&r);
}

UNIT_TEST(many_names_are_counted_up_to_a_limit)
{
    struct replay r;
    struct err e = ERR_INIT;
    uint32_t step;
    char name[32];

    replay_init(&r, 1, 1);
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < REPLAY_MAX_NAMES; i += k ? 997 : 1) {
            (void)snprintf(name, sizeof(name), "t%u", i);
            assert_int_equal(step_of(&r, 0, name), k ? 0 : 1);
        }
    assert_int_equal(replay_count(&r, 0, "one more", &step, &e), -E2BIG);
    assert_non_null(
        strstr(e.text, "HVD_REPLAY: the sums have more than 1048576 names"));
    replay_release(&r);
}

enum { N = 4 };
static const uint32_t ranks[N] = {0, 2, 5, 7};
static const char *const hosts[N] = {"a", "b", "b", "c"};
static const char *const names[] = {"bias", "weight"};
static const uint64_t counts[] = {3, 6};

/* Members whose second result of "weight" has a bit flipped, and those whose both results
 * have (masks of members); the judgement. */
static int
judge(enum dtype t, uint64_t number, unsigned changed, unsigned unlike, struct err *err)
{
    struct replayed all[N] = {0};
    const struct replay_batch b = {.step = 40,
                                   .names = names,
                                   .counts = counts,
                                   .dtype = t,
                                   .ranks = ranks,
                                   .hosts = hosts,
                                   .n_members = N};
    const size_t size = dtype_size(t);

    for (unsigned m = 0; m < N; m++) {
        unsigned char first[6 * 8], second[6 * 8];

        for (size_t i = 0; i < 6; i++)
            memcpy(first + i * size, &number, size);
        if (unlike >> m & 1)
            first[0] ^= 1;
        memcpy(second, first, sizeof(first));
        replayed_add(&all[m], 0, first, second, 3, t);
        if (changed >> m & 1)
            second[4 * size] ^= 1;
        replayed_add(&all[m], 1, first, second, 6, t);
    }
    return replay_judge(all, &b, err);
}

UNIT_TEST(equal_results_pass)
{
    struct err e = ERR_INIT;

    assert_int_equal(judge(DT_F32, 0x3e000000, 0, 0, &e), 0);
}

UNIT_TEST(a_changed_sum_is_named)
{
    struct err e = ERR_INIT;

    assert_int_equal(judge(DT_F32, 0x3e000000, 2, 0, &e), -EDOM);
    assert_string_equal(
        e.text,
        "the sum of tensor \"weight\" in step 40 was repeated with the same inputs, "
        "and "
        "its results differ on rank 2 (host b): element 4 of 6 on rank 2: 0.125, then "
        "0.125000015; 1 such elements (HVD_REPLAY)");
    assert_int_equal(judge(DT_I64, (uint64_t)-8, 13, 2, &e), -EDOM);
    assert_non_null(strstr(e.text,
                           "differ on 3 ranks (0, 5, 7): element 4 of 6 on rank 0: "
                           "-8, then -7;"));
}

UNIT_TEST(each_dtype_has_its_numbers)
{
    static const struct {
        enum dtype t;
        uint64_t bits;
        const char *text;
    } rows[] = {
        {DT_F16, 0x3c00, "1, then 1.001;"},
        {DT_BF16, 0x3f80, "1, then 1.008;"},
        {DT_F64, 0x3ff0000000000000, "1, then 1.0000000000000002;"},
        {DT_I8, 0xfe, "-2, then -1;"},
        {DT_I16, 0xfffe, "-2, then -1;"},
        {DT_I32, 0xfffffffe, "-2, then -1;"},
        {DT_U8, 0xfe, "254, then 255;"},
        {DT_U16, 0xfffe, "65534, then 65535;"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = ERR_INIT;

        assert_int_equal(judge(rows[i].t, rows[i].bits, 1, 0, &e), -EDOM);
        if (!strstr(e.text, rows[i].text))
            fail_msg("%s lacks %s", e.text, rows[i].text);
    }
}

UNIT_TEST(a_rank_with_another_result_is_named)
{
    struct err e = ERR_INIT;

    assert_int_equal(judge(DT_F32, 0x3e000000, 0, 4, &e), -EDOM);
    assert_string_equal(e.text,
                        "the results of one sum differ between ranks: rank 5 (host b) "
                        "other than most, in step 40 of tensor \"bias\", twice alike "
                        "(HVD_REPLAY)");
}

UNIT_MAIN(NULL, NULL)
