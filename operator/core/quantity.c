/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities.
 *
 * A quantity is read as a row of decimal digits with a point, multiplied by 1024 digit
 * by digit as often as its suffix requires, and only then split into units and
 * billionths: nothing is rounded on the way, and no fraction is ever binary.
 *
 * Canonical form: no fraction, the largest suffix that leaves a whole number. A binary
 * quantity below 1024, or one that is not whole, is printed in decimal form. Pure;
 * called by the builders of PodGroups. */
#include "operator/core/quantity.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

#define MAX_TEXT     100                /* characters of a quantity */
#define MAX_DIGITS   (MAX_TEXT + 6 * 4) /* 1024 has four, there are six suffixes */
#define NANO_DIGITS  9
#define NANO         1000000000u
#define MAX_BINARY   INT64_MAX
#define MAX_EXPONENT 999

struct digits { /* most significant first; MAX_DIGITS - n are free before them */
    uint8_t d[MAX_DIGITS];
    int first, end; /* of what is used */
    int point;      /* index of the digit after the point; may lie outside */
};

struct suffix {
    const char *text;
    enum quantity_form form;
    int power; /* of 10, or of 1024 */
};

static const struct suffix suffixes[] = {
    {"n", QUANTITY_DECIMAL, -9}, {"u", QUANTITY_DECIMAL, -6},
    {"m", QUANTITY_DECIMAL, -3}, {"", QUANTITY_DECIMAL, 0},
    {"k", QUANTITY_DECIMAL, 3},  {"M", QUANTITY_DECIMAL, 6},
    {"G", QUANTITY_DECIMAL, 9},  {"T", QUANTITY_DECIMAL, 12},
    {"P", QUANTITY_DECIMAL, 15}, {"E", QUANTITY_DECIMAL, 18},
    {"", QUANTITY_BINARY, 0},    {"Ki", QUANTITY_BINARY, 1},
    {"Mi", QUANTITY_BINARY, 2},  {"Gi", QUANTITY_BINARY, 3},
    {"Ti", QUANTITY_BINARY, 4},  {"Pi", QUANTITY_BINARY, 5},
    {"Ei", QUANTITY_BINARY, 6},
};

/* --- reading --------------------------------------------------------------------- */

/* "e3", "E-2". */
static bool read_exponent(const char *s, struct suffix *ret)
{
    int sign = 1, n = 0;

    if (*s != 'e' && *s != 'E')
        return false;
    s++;
    if (*s == '+' || *s == '-')
        sign = *s++ == '-' ? -1 : 1;
    if (!*s)
        return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return false;
        n = n < MAX_EXPONENT ? n * 10 + (*s - '0') : n;
    }
    *ret = (struct suffix){.form = QUANTITY_EXPONENT, .power = sign * n};
    return true;
}

static bool read_suffix(const char *s, struct suffix *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        if (strcmp(suffixes[i].text, s) == 0) {
            *ret = suffixes[i];
            return true;
        }
    }
    return read_exponent(s, ret);
}

/* Up to the suffix, which is returned; NULL without a digit. */
static const char *read_digits(const char *s, struct digits *ret)
{
    int n = 0, point = -1;

    for (; (*s >= '0' && *s <= '9') || (*s == '.' && point < 0); s++) {
        if (*s == '.')
            point = n;
        else
            ret->d[MAX_DIGITS - MAX_TEXT + n++] = (uint8_t)(*s - '0');
    }
    ret->first = MAX_DIGITS - MAX_TEXT;
    ret->end = ret->first + n;
    ret->point = ret->first + (point < 0 ? n : point);
    return n > 0 ? s : NULL;
}

static void multiply_1024(struct digits *x)
{
    unsigned carry = 0;

    for (int i = x->end; i-- > x->first;) {
        carry += x->d[i] * 1024u;
        x->d[i] = (uint8_t)(carry % 10);
        carry /= 10;
    }
    for (; carry > 0; carry /= 10)
        x->d[--x->first] = (uint8_t)(carry % 10);
}

static unsigned digit_at(const struct digits *x, int i)
{
    return i >= x->first && i < x->end ? x->d[i] : 0;
}

static bool append_digit(uint64_t *n, unsigned digit)
{
    return !__builtin_mul_overflow(*n, 10u, n) && !__builtin_add_overflow(*n, digit, n);
}

/* False beyond 2^64 - 1. */
static bool to_units(const struct digits *x, struct quantity *q)
{
    bool is_inexact = false;

    q->units = 0;
    q->nano = 0;
    for (int i = x->first; i < x->point; i++) {
        if (!append_digit(&q->units, digit_at(x, i)))
            return false;
    }
    for (int i = 0; i < NANO_DIGITS; i++)
        q->nano = q->nano * 10 + digit_at(x, x->point + i);
    for (int i = x->first; i < x->end; i++)
        is_inexact = is_inexact || (i >= x->point + NANO_DIGITS && x->d[i] != 0);
    if (is_inexact && ++q->nano == NANO) {
        q->nano = 0;
        return !__builtin_add_overflow(q->units, 1u, &q->units);
    }
    return true;
}

int quantity_parse(const char *s, struct quantity *ret, struct err *err)
{
    struct suffix suffix = {.text = ""};
    struct digits x;
    struct quantity q;
    const char *rest = NULL;

    if (*s == '-')
        return err_set(err, -EINVAL, "\"%.40s\" is negative", s);
    if (strlen(s) <= MAX_TEXT)
        rest = read_digits(*s == '+' ? s + 1 : s, &x);
    if (!rest || !read_suffix(rest, &suffix))
        return err_set(err, -EINVAL,
                       "\"%.40s\" is not a quantity such as 2, 500m or 1.5Gi", s);
    q.form = suffix.form;
    if (suffix.form == QUANTITY_BINARY) {
        while (suffix.power-- > 0)
            multiply_1024(&x);
    } else {
        x.point += suffix.power;
    }
    if (!to_units(&x, &q)) {
        if (q.form != QUANTITY_BINARY)
            return err_set(err, -ERANGE, "\"%.40s\" is above %llu", s,
                           (unsigned long long)UINT64_MAX);
        q.units = UINT64_MAX;
    }
    if (q.form == QUANTITY_BINARY && q.units > (uint64_t)MAX_BINARY) {
        q.units = MAX_BINARY;
        q.nano = 0;
    }
    if (q.units == 0 && q.form == QUANTITY_BINARY)
        q.form = QUANTITY_DECIMAL;
    *ret = q;
    return 0;
}

/* --- arithmetic ------------------------------------------------------------------ */

int quantity_add(struct quantity *a, const struct quantity *b)
{
    struct quantity sum = {.form = a->units || a->nano ? a->form : b->form};
    uint32_t nano = a->nano + b->nano; /* below 2^31 */

    sum.nano = nano % NANO;
    if (__builtin_add_overflow(a->units, b->units, &sum.units)
        || __builtin_add_overflow(sum.units, nano / NANO, &sum.units))
        return -ERANGE;
    *a = sum;
    return 0;
}

int quantity_multiply(struct quantity *q, uint32_t n)
{
    uint64_t nano = (uint64_t)q->nano * n, units;

    if (__builtin_mul_overflow(q->units, n, &units)
        || __builtin_add_overflow(units, nano / NANO, &units))
        return -ERANGE;
    q->units = units;
    q->nano = (uint32_t)(nano % NANO);
    return 0;
}

/* --- writing --------------------------------------------------------------------- */

static const char *suffix_text(enum quantity_form form, int power)
{
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        if (suffixes[i].form == form && suffixes[i].power == power)
            return suffixes[i].text;
    }
    return "";
}

static char *format_binary(uint64_t units, char ret[QUANTITY_SIZE])
{
    int power = 0;

    while (power < 6 && units % 1024 == 0) {
        units /= 1024;
        power++;
    }
    (void)snprintf(ret, QUANTITY_SIZE, "%llu%s", (unsigned long long)units,
                   suffix_text(QUANTITY_BINARY, power));
    return ret;
}

static char *format_decimal(const struct quantity *q, char ret[QUANTITY_SIZE])
{
    char digits[QUANTITY_SIZE];
    int exponent = -NANO_DIGITS;
    size_t n, skip;

    (void)snprintf(digits, sizeof(digits), "%llu%09u", (unsigned long long)q->units,
                   q->nano);
    for (n = strlen(digits); n > 1 && digits[n - 1] == '0'; n--)
        exponent++;
    for (; exponent % 3 != 0; exponent--)
        digits[n++] = '0';
    digits[n] = '\0';
    skip = strspn(digits, "0");
    if (q->form != QUANTITY_EXPONENT)
        (void)snprintf(ret, QUANTITY_SIZE, "%.40s%s", digits + skip,
                       suffix_text(QUANTITY_DECIMAL, exponent));
    else if (exponent == 0)
        (void)snprintf(ret, QUANTITY_SIZE, "%.40s", digits + skip);
    else
        (void)snprintf(ret, QUANTITY_SIZE, "%.40se%d", digits + skip, exponent);
    return ret;
}

char *quantity_format(const struct quantity *q, char ret[QUANTITY_SIZE])
{
    if (q->units == 0 && q->nano == 0)
        (void)snprintf(ret, QUANTITY_SIZE, "0");
    else if (q->form == QUANTITY_BINARY && q->units >= 1024 && q->nano == 0)
        return format_binary(q->units, ret);
    else
        return format_decimal(q, ret);
    return ret;
}
