/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codecs and of their parameters, and their text. A parameter is one row:
 * its range, default, parser and help come from there.
 *
 * A ratio is kept as parts of 10^9, not as a float: it compares exactly, its k is
 * integer arithmetic and its text does not depend on a locale. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/core/compress/codec.h"
#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/powersgd.h"

enum param {
    PARAM_BLOCK,
    PARAM_RATIO,
    PARAM_K,
    PARAM_RANK,
    PARAM_SEED,
    PARAM_FEEDBACK
};
enum { RATIO_DIGITS = 9, RATIO_ONE = 1000000000, VALUE_MAX = 24 };

static const struct {
    enum param param;
    const char *key;
    uint64_t min, max;
} params[] = {
    {PARAM_BLOCK, "block", INT8_BLOCK_MIN, INT8_BLOCK_MAX},
    {PARAM_RATIO, "ratio", 1, RATIO_ONE},
    {PARAM_K, "k", 1, UINT64_MAX / 16},
    {PARAM_RANK, "rank", 1, POWERSGD_RANK_MAX},
    {PARAM_SEED, "seed", 0, UINT64_MAX},
    {PARAM_FEEDBACK, "feedback", 0, 1},
};

#define BIT(p) (1u << (p))

static const struct {
    const char *name;
    unsigned params; /* bits */
    const char *keys;
    struct codec initial;
} codecs[CODEC_COUNT] = {
    [CODEC_NONE] = {"none", 0, "no parameters", {.id = CODEC_NONE}},
    [CODEC_FP16] = {"fp16", 0, "no parameters", {.id = CODEC_FP16}},
    [CODEC_BF16] = {"bf16", 0, "no parameters", {.id = CODEC_BF16}},
    [CODEC_INT8] = {"int8",
                    BIT(PARAM_BLOCK) | BIT(PARAM_FEEDBACK),
                    "block, feedback",
                    {.id = CODEC_INT8, .has_feedback = true, .block = 512}},
    [CODEC_TOPK] = {"topk",
                    BIT(PARAM_RATIO) | BIT(PARAM_K) | BIT(PARAM_FEEDBACK),
                    "ratio, k, feedback",
                    {.id = CODEC_TOPK,
                     .has_feedback = true,
                     .ratio_ppb = RATIO_ONE / 100}},
    [CODEC_POWERSGD] = {"powersgd",
                        BIT(PARAM_RANK) | BIT(PARAM_SEED) | BIT(PARAM_FEEDBACK),
                        "rank, seed, feedback",
                        {.id = CODEC_POWERSGD, .has_feedback = true, .rank = 4}},
};

const char *codec_name(enum codec_id id)
{
    return (unsigned)id < CODEC_COUNT ? codecs[id].name : "?";
}

bool codec_equal(const struct codec *a, const struct codec *b)
{
    return a->id == b->id && a->has_feedback == b->has_feedback && a->block == b->block
           && a->ratio_ppb == b->ratio_ppb && a->k == b->k && a->rank == b->rank
           && a->seed == b->seed;
}

/* "0.01", ".01", "1" -> parts of 10^9. */
static int parse_ratio(const char *field, const char *s, uint32_t *ret, struct err *err)
{
    uint64_t v = 0;
    const char *p = s;
    int n_digits = 0, n_decimals = 0;

    for (; *p >= '0' && *p <= '9' && v <= 1; p++, n_digits++)
        v = v * 10 + (uint64_t)(*p - '0');
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9' && n_decimals < RATIO_DIGITS;
             p++, n_decimals++)
            v = v * 10 + (uint64_t)(*p - '0');
    for (int i = n_decimals; i < RATIO_DIGITS; i++)
        v *= 10;
    if (*p || n_digits + n_decimals == 0 || v < 1 || v > RATIO_ONE)
        return err_set(
            err, -EINVAL,
            "%s: \"%.64s\" is not a number from 0.000000001 to 1 with at most "
            "%d digits after the point",
            field, s, RATIO_DIGITS);
    *ret = (uint32_t)v;
    return 0;
}

static int set_param(
    struct codec *c, size_t row, const char *field, const char *value, struct err *err)
{
    uint64_t v = 0;
    int rc;

    if (params[row].param == PARAM_RATIO)
        return parse_ratio(field, value, &c->ratio_ppb, err);
    rc = parse_u64(field, value, params[row].min, params[row].max, &v, err);
    if (rc < 0)
        return err_recode(err, -EINVAL);
    switch (params[row].param) {
    case PARAM_BLOCK:
        if (v & (v - 1))
            return err_set(err, -EINVAL, "%s: %" PRIu64 " is not 256, 512 or 1024",
                           field, v);
        c->block = (uint32_t)v;
        break;
    case PARAM_K:
        c->k = v;
        break;
    case PARAM_RANK:
        c->rank = (uint32_t)v;
        break;
    case PARAM_SEED:
        c->seed = v;
        break;
    case PARAM_FEEDBACK:
        c->has_feedback = v == 1;
        break;
    case PARAM_RATIO:
        break;
    }
    return 0;
}

/* One "key=value" of n bytes. *seen: bits of the parameters before it. */
static int parse_param(struct codec *c,
                       const char *field,
                       const char *s,
                       size_t n,
                       unsigned *seen,
                       struct err *err)
{
    const char *eq = memchr(s, '=', n);
    size_t key_n = eq ? (size_t)(eq - s) : n, row = 0;
    char value[VALUE_MAX] = "", where[128];

    while (row < ARRAY_LEN(params)
           && (strlen(params[row].key) != key_n
               || memcmp(params[row].key, s, key_n) != 0
               || !(codecs[c->id].params & BIT(params[row].param))))
        row++;
    if (row == ARRAY_LEN(params))
        return err_set(err, -EINVAL, "%s: %s has no parameter \"%.*s\", it has: %s",
                       field, codecs[c->id].name, (int)(key_n < 32 ? key_n : 32), s,
                       codecs[c->id].keys);
    (void)snprintf(where, sizeof(where), "%.64s: %s", field, params[row].key);
    if (*seen & BIT(params[row].param))
        return err_set(err, -EINVAL, "%s is given twice", where);
    *seen |= BIT(params[row].param);
    if (!eq || n - key_n - 1 >= sizeof(value))
        return err_set(err, -EINVAL, "%s needs a value of 1 to %zu characters", where,
                       sizeof(value) - 1);
    memcpy(value, eq + 1, n - key_n - 1);
    return set_param(c, row, where, value, err);
}

static int
parse_params(struct codec *c, const char *field, const char *s, struct err *err)
{
    unsigned seen = 0;
    int rc = 0;

    for (bool more = true; more && rc == 0;) {
        size_t n = strcspn(s, ",");

        rc = parse_param(c, field, s, n, &seen, err);
        more = s[n] == ',';
        s += n + more;
    }
    if (rc < 0)
        return rc;
    if ((seen & BIT(PARAM_K)) && (seen & BIT(PARAM_RATIO)))
        return err_set(err, -EINVAL, "%s: ratio and k exclude each other", field);
    if (seen & BIT(PARAM_K))
        c->ratio_ppb = 0;
    return 0;
}

int codec_parse(const char *field, const char *text, struct codec *ret, struct err *err)
{
    const char *s = text && *text ? text : "none";
    size_t n = strcspn(s, ":");
    struct codec c;
    unsigned id = 0;
    int rc;

    while (id < CODEC_COUNT
           && (strlen(codecs[id].name) != n || memcmp(codecs[id].name, s, n) != 0))
        id++;
    if (id == CODEC_COUNT)
        return err_set(
            err, -EINVAL,
            "%s: \"%.*s\" must be one of: none, fp16, bf16, int8, topk, powersgd",
            field, (int)(n < 64 ? n : 64), s);
    c = codecs[id].initial;
    if (s[n] == ':') {
        rc = parse_params(&c, field, s + n + 1, err);
        if (rc < 0)
            return rc;
    }
    *ret = c;
    return 0;
}

/* The ratio without zeros at its end. */
static void format_ratio(char *buf, size_t size, uint32_t ppb)
{
    int n_digits = RATIO_DIGITS;

    if (ppb == RATIO_ONE) {
        (void)snprintf(buf, size, "1");
        return;
    }
    for (; ppb % 10 == 0 && n_digits > 1; n_digits--)
        ppb /= 10;
    (void)snprintf(buf, size, "0.%0*" PRIu32, n_digits, ppb);
}

char *codec_format(const struct codec *c, char *buf)
{
    const char *name = codec_name(c->id);
    int feedback = c->has_feedback;
    char ratio[16];

    (void)snprintf(buf, CODEC_TEXT_MAX, "%s", name);
    switch (c->id) {
    case CODEC_INT8:
        (void)snprintf(buf, CODEC_TEXT_MAX, "%s:block=%" PRIu32 ",feedback=%d", name,
                       c->block, feedback);
        break;
    case CODEC_TOPK:
        format_ratio(ratio, sizeof(ratio), c->ratio_ppb);
        if (c->ratio_ppb > 0)
            (void)snprintf(buf, CODEC_TEXT_MAX, "%s:ratio=%s,feedback=%d", name, ratio,
                           feedback);
        else
            (void)snprintf(buf, CODEC_TEXT_MAX, "%s:k=%" PRIu64 ",feedback=%d", name,
                           c->k, feedback);
        break;
    case CODEC_POWERSGD:
        (void)snprintf(buf, CODEC_TEXT_MAX,
                       "%s:rank=%" PRIu32 ",seed=%" PRIu64 ",feedback=%d", name,
                       c->rank, c->seed, feedback);
        break;
    case CODEC_NONE:
    case CODEC_FP16:
    case CODEC_BF16:
    case CODEC_COUNT:
        break; /* the name alone */
    }
    return buf;
}
