/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs as text, and what they cost. */
#include "runtime/base/mem.h"
#include "tests/unit/codec_world.h"

/* --- text --- */

UNIT_TEST(text_is_parsed_back)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {NULL, "none"},
        {"", "none"},
        {"none", "none"},
        {"fp16", "fp16"},
        {"bf16", "bf16"},
        {"int8", "int8:block=512,feedback=1"},
        {"int8:block=256", "int8:block=256,feedback=1"},
        {"int8:feedback=0,block=1024", "int8:block=1024,feedback=0"},
        {"topk", "topk:ratio=0.01,feedback=1"},
        {"topk:ratio=.000000001", "topk:ratio=0.000000001,feedback=1"},
        {"topk:ratio=1", "topk:ratio=1,feedback=1"},
        {"topk:ratio=1.000", "topk:ratio=1,feedback=1"},
        {"topk:ratio=0.5", "topk:ratio=0.5,feedback=1"},
        {"topk:k=77,feedback=0", "topk:k=77,feedback=0"},
        {"powersgd", "powersgd:rank=4,seed=0,feedback=1"},
        {"powersgd:seed=18446744073709551615,rank=64",
         "powersgd:rank=64,seed=18446744073709551615,feedback=1"},
    };
    char buf[CODEC_TEXT_MAX];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct codec c = codec_of(rows[i].in), again;

        assert_string_equal(codec_format(&c, buf), rows[i].out);
        again = codec_of(buf);
        assert_true(codec_equal(&c, &again));
    }
}

UNIT_TEST(invalid_text_is_an_error)
{
    static const struct {
        const char *in, *want;
    } rows[] = {
        {"fp8", "X: \"fp8\" must be one of: none, fp16, bf16, int8, topk, powersgd"},
        {"int8 ",
         "X: \"int8 \" must be one of: none, fp16, bf16, int8, topk, powersgd"},
        {"fp16:", "X: fp16 has no parameter \"\", it has: no parameters"},
        {"int8:rank=2", "X: int8 has no parameter \"rank\", it has: block, feedback"},
        {"int8:block", "X: block needs a value of 1 to 23 characters"},
        {"int8:block=300", "X: block: 300 is not 256, 512 or 1024"},
        {"int8:block=128", "X: block: \"128\" is not a number from 256 to 1024"},
        {"int8:block=512,block=512", "X: block is given twice"},
        {"int8:block=512,", "X: int8 has no parameter \"\", it has: block, feedback"},
        {"int8:feedback=yes", "X: feedback: \"yes\" is not a number from 0 to 1"},
        {"topk:k=0", "X: k: \"0\" is not a number from 1 to 1152921504606846975"},
        {"topk:k=1,ratio=1", "X: ratio and k exclude each other"},
        {"topk:ratio=0",
         "X: ratio: \"0\" is not a number from 0.000000001 to 1 with at most "
         "9 digits after the point"},
        {"topk:ratio=1.1", NULL},
        {"topk:ratio=10", NULL},
        {"topk:ratio=.", NULL},
        {"topk:ratio=0,5", NULL},
        {"topk:ratio=1e-3", NULL},
        {"topk:ratio=0.0000000001", NULL},
        {"topk:ratio=18446744073709551616", NULL},
        {"powersgd:rank=65", "X: rank: \"65\" is not a number from 1 to 64"},
        {"powersgd:seed=-1", NULL},
        {"powersgd:seed=111111111111111111111111111111", NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = ERR_INIT;
        struct codec c = {.id = CODEC_COUNT};

        assert_int_equal(codec_parse("X", rows[i].in, &c, &err), -EINVAL);
        assert_int_equal(c.id, CODEC_COUNT); /* untouched */
        assert_int_equal(codec_parse("X", rows[i].in, &c, NULL), -EINVAL);
        if (rows[i].want)
            assert_string_equal(err.text, rows[i].want);
        else
            assert_true(strncmp(err.text, "X: ", 3) == 0);
    }
}

/* --- plan --- */

UNIT_TEST(uncompressed_plans_have_a_reason)
{
    static const char is_int[] = "only floating point is compressed",
                      is_max[] = "only SUM and AVERAGE are compressed by this codec",
                      no_gain[] = "it would not reduce traffic",
                      is_vector[] = "a vector is not a matrix",
                      is_small[] = "its factors exceed half the matrix";
    static const struct {
        const char *text;
        enum dtype dtype;
        enum reduce_op op;
        uint32_t ndim;
        int64_t shape[2];
        uint32_t n;
        const char *why; /* NULL: compressed */
    } rows[] = {
        {"none", DT_F32, OP_SUM, 1, {9}, 2, "no compression was requested"},
        {"fp16", DT_I32, OP_SUM, 1, {9}, 2, is_int},
        {"bf16", DT_BOOL, OP_SUM, 1, {9}, 2, is_int},
        {"bf16", DT_F16, OP_SUM, 1, {9}, 2, "it has 16 bits already"},
        {"fp16", DT_F32, OP_SUM, 1, {9}, 1, "a world of one sends nothing"},
        {"fp16", DT_F32, OP_SUM, 2, {9, 0}, 2, "it is empty"},
        {"fp16", DT_F32, OP_MAX, 0, {0}, 2, NULL},
        {"fp16", DT_F64, OP_ADASUM, 1, {1}, 99, NULL},
        {"int8", DT_F32, OP_MAX, 1, {9}, 2, is_max},
        {"int8", DT_F32, OP_AVERAGE, 1, {1}, 2, no_gain}, /* 5 bytes */
        {"int8", DT_F32, OP_AVERAGE, 1, {2}, 2, NULL},    /* 6 of 8 */
        {"int8", DT_F16, OP_SUM, 1, {9000}, 200, NULL},
        {"topk", DT_F32, OP_SUM, 1, {10000}, 99, NULL},
        {"topk", DT_F32, OP_SUM, 1, {10000}, 101, no_gain},
        {"topk:k=6", DT_F32, OP_SUM, 1, {5}, 2, no_gain},
        {"topk:k=2", DT_F32, OP_SUM, 1, {5}, 2, NULL},
        {"powersgd", DT_F32, OP_SUM, 1, {90000}, 2, is_vector},
        {"powersgd", DT_F32, OP_SUM, 0, {0}, 2, is_vector},
        {"powersgd", DT_F32, OP_SUM, 2, {16, 16}, 2, is_small},
        {"powersgd:rank=64", DT_F32, OP_SUM, 2, {9, 9}, 2, is_small}, /* rank > 9 */
        {"powersgd", DT_F32, OP_SUM, 2, {17, 17}, 2, NULL},
        {"powersgd", DT_F32, OP_SUM, 2, {17, 0}, 2, "it is empty"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct codec c = codec_of(rows[i].text);
        struct codec_plan p;

        assert_int_equal(codec_plan(&c, rows[i].dtype, rows[i].op, rows[i].ndim,
                                    rows[i].shape, rows[i].n, &p, NULL),
                         0);
        assert_int_equal(p.is_compressed, !rows[i].why);
        if (rows[i].why) {
            assert_string_equal(p.why, rows[i].why);
            assert_int_equal(p.way, CODEC_WAY_PASS);
            assert_int_equal(p.wire_bytes, p.raw_bytes);
            assert_int_equal(p.sent_bytes, p.sent_raw_bytes);
            assert_int_equal(p.state_bytes + p.scratch_bytes, 0);
        } else {
            assert_true(p.sent_bytes < p.sent_raw_bytes);
        }
    }
}

UNIT_TEST(bytes_match_the_formats)
{
    static const struct {
        const char *text;
        int64_t rows, cols;
        uint32_t n;
        uint64_t wire, sent, sent_raw, kept;
        enum codec_way way;
    } rows[] = {
        {"fp16", 1000, 0, 2, 2000, 2000, 4000, 0, CODEC_WAY_SUM},
        {"bf16", 1000, 0, 4, 2000, 3000, 6000, 0, CODEC_WAY_SUM},
        {"int8", 1000, 0, 2, 1008, 1008, 4000, 4000, CODEC_WAY_GATHER},
        {"int8:block=256,feedback=0", 1000, 0, 2, 1016, 1016, 4000, 0,
         CODEC_WAY_GATHER},
        /* two blocks: of four members the first two own one each */
        {"int8", 1000, 0, 4, 1008, 1512, 6000, 4000 + 2048, CODEC_WAY_SHARDS},
        {"topk", 1000, 0, 2, 80, 80, 4000, 4000, CODEC_WAY_GATHER},
        {"topk:ratio=0.001", 100, 0, 2, 8, 8, 400, 400, CODEC_WAY_GATHER}, /* one */
        {"topk:k=3,feedback=0", 1000, 0, 5, 24, 96, 6400, 0, CODEC_WAY_GATHER},
        {"powersgd:rank=2", 100, 30, 2, 1040, 1040, 12000, 12000 + 240,
         CODEC_WAY_FACTORS},
        {"powersgd:rank=2,feedback=0", 100, 30, 2, 1040, 1040, 12000, 240,
         CODEC_WAY_FACTORS},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct codec_plan p =
            plan_of(rows[i].text, DT_F32, rows[i].rows, rows[i].cols, rows[i].n);

        assert_true(p.is_compressed);
        assert_int_equal(p.way, rows[i].way);
        assert_int_equal(p.wire_bytes, rows[i].wire);
        assert_int_equal(p.sent_bytes, rows[i].sent);
        assert_int_equal(p.sent_raw_bytes, rows[i].sent_raw);
        assert_int_equal(p.state_bytes, rows[i].kept);
    }
}

UNIT_TEST(sizes_are_checked_before_they_are_multiplied)
{
    int64_t negative[] = {3, -1}, huge[] = {1ll << 40, 1ll << 40}, big[] = {1ll << 40};
    int64_t none[] = {0, 1ll << 62};
    struct codec c = codec_of("topk:ratio=0.001"), q = codec_of("int8");
    struct err err = ERR_INIT;
    struct codec_plan p;

    assert_int_equal(codec_plan(&c, DT_F32, OP_SUM, 2, negative, 2, &p, &err), -EINVAL);
    assert_string_equal(err.text, "shape: dimension 1 is -1, must be >= 0");
    assert_int_equal(codec_plan(&c, DT_F32, OP_SUM, 2, huge, 2, &p, &err), -EINVAL);
    assert_string_equal(err.text, "shape: more than 2^60 bytes");
    assert_int_equal(codec_plan(&c, DT_F32, OP_SUM, 2, none, 2, &p, &err), -EINVAL);
    assert_int_equal(codec_plan(&c, DT_F32, OP_SUM, 1, big, 0, &p, &err), -EINVAL);
    assert_int_equal(codec_plan(&c, DT_F32, OP_SUM, 1, big, 16384, &p, NULL), 0);
    assert_false(p.is_compressed);
    assert_int_equal(codec_plan(&c, DT_F32, OP_SUM, 1, big, 100, &p, NULL), 0);
    assert_true(p.is_compressed);
    assert_int_equal(p.k, (1ll << 40) / 1000);
    assert_int_equal(p.wire_bytes, p.k * 12); /* 64-bit indexes */
    assert_int_equal(codec_plan(&q, DT_F32, OP_SUM, 1, big, UINT32_MAX, &p, NULL), 0);
    assert_true(p.is_compressed);
}

UNIT_MAIN(NULL, NULL)
