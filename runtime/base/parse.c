/* SPDX-License-Identifier: Apache-2.0 */
/* Whole-string parsers. Own digit loops instead of strtoul: no locale, no leading
 * blanks, no "+", no "-1" that becomes 4294967295, overflow seen where it happens. */
#include "runtime/base/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"

/* 0; -EINVAL no number; -ERANGE more than 64 bits. */
static int digits_parse(const char *s, uint64_t *ret)
{
    uint64_t v = 0;

    if (!*s)
        return -EINVAL;
    for (const char *p = s; *p; p++)
        if (*p < '0' || *p > '9')
            return -EINVAL;
    for (; *s; s++) {
        uint64_t d = (uint64_t)(*s - '0');

        if (v > (UINT64_MAX - d) / 10)
            return -ERANGE;
        v = v * 10 + d;
    }
    *ret = v;
    return 0;
}

int parse_u64(const char *field,
              const char *s,
              uint64_t min,
              uint64_t max,
              uint64_t *ret,
              struct err *err)
{
    uint64_t v = 0;
    int rc = digits_parse(s, &v);

    if (rc == 0 && (v < min || v > max))
        rc = -ERANGE;
    if (rc)
        return err_set(err, rc,
                       "%s: \"%.64s\" is not a number from %" PRIu64 " to %" PRIu64,
                       field, s, min, max);
    *ret = v;
    return 0;
}

int parse_u32(const char *field,
              const char *s,
              uint32_t min,
              uint32_t max,
              uint32_t *ret,
              struct err *err)
{
    uint64_t v = 0;
    int rc = parse_u64(field, s, min, max, &v, err);

    if (rc)
        return rc;
    *ret = (uint32_t)v;
    return 0;
}

int parse_i64(const char *field,
              const char *s,
              int64_t min,
              int64_t max,
              int64_t *ret,
              struct err *err)
{
    bool is_negative = *s == '-';
    uint64_t limit = (uint64_t)INT64_MAX + (is_negative ? 1 : 0);
    uint64_t u = 0;
    int64_t v = 0;
    int rc = digits_parse(s + (is_negative ? 1 : 0), &u);

    if (rc == 0 && u > limit)
        rc = -ERANGE;
    if (rc == 0) {
        if (!is_negative)
            v = (int64_t)u;
        else
            v = u == limit ? INT64_MIN : -(int64_t)u;
        if (v < min || v > max)
            rc = -ERANGE;
    }
    if (rc)
        return err_set(err, rc,
                       "%s: \"%.64s\" is not a number from %" PRId64 " to %" PRId64,
                       field, s, min, max);
    *ret = v;
    return 0;
}

int parse_bool(const char *field, const char *s, bool *ret, struct err *err)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {
        {"1", true},  {"true", true},   {"yes", true}, {"on", true},
        {"0", false}, {"false", false}, {"no", false}, {"off", false},
    };

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcasecmp(s, words[i].word) == 0) {
            *ret = words[i].value;
            return 0;
        }
    }
    return err_set(err, -EINVAL,
                   "%s: \"%.64s\" must be one of: 1, true, yes, on, 0, false, no, off",
                   field, s);
}

static int duration_unit(const char *s, uint64_t *ret_ms)
{
    static const struct {
        const char *unit;
        uint64_t ms;
    } units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}};

    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcmp(s, units[i].unit) == 0) {
            *ret_ms = units[i].ms;
            return 0;
        }
    }
    return -EINVAL;
}

/* "12", "12.", ".5", "1.25": integral part, then thousandths (more digits are cut off).
 */
static int
duration_number(const char **s, uint64_t *ret_whole, uint32_t *ret_thousandths)
{
    const char *p = *s;
    uint64_t whole = 0;
    uint32_t frac = 0, scale = 100, n_digits = 0;

    for (; *p >= '0' && *p <= '9'; p++, n_digits++) {
        if (whole > UINT64_MAX / 100)
            return -ERANGE;
        whole = whole * 10 + (uint64_t)(*p - '0');
    }
    if (*p == '.') {
        for (p++; *p >= '0' && *p <= '9'; p++, n_digits++) {
            frac += (uint32_t)(*p - '0') * scale;
            scale /= 10;
        }
    }
    if (n_digits == 0)
        return -EINVAL;
    *s = p;
    *ret_whole = whole;
    *ret_thousandths = frac;
    return 0;
}

int parse_duration_ms(const char *field,
                      const char *s,
                      uint64_t min_ms,
                      uint64_t max_ms,
                      uint64_t *ret,
                      struct err *err)
{
    const char *p = s;
    uint64_t whole = 0, unit_ms = 1, v = 0;
    uint32_t thousandths = 0;
    int rc = duration_number(&p, &whole, &thousandths);

    if (rc == 0)
        rc = duration_unit(p, &unit_ms);
    if (rc == 0) {
        if (whole > (UINT64_MAX - unit_ms) / unit_ms)
            rc = -ERANGE;
        else
            v = whole * unit_ms + thousandths * unit_ms / 1000;
        if (rc == 0 && (v < min_ms || v > max_ms))
            rc = -ERANGE;
    }
    if (rc)
        return err_set(err, rc,
                       "%s: \"%.64s\" is not a duration from %" PRIu64 " ms to %" PRIu64
                       " ms, such as 30, 0.5, 200ms, 5m, 1h",
                       field, s, min_ms, max_ms);
    *ret = v;
    return 0;
}
