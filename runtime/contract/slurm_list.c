/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's text forms: node lists "gpu[01-03,7],login" and counts "2(x3),1".
 *
 *   list   = entry *("," entry)
 *   entry  = 1*(text / "[" range *("," range) "]")
 *   range  = digits ["-" digits]      the first number's width pads all of its range
 *   counts = count *("," count)
 *   count  = digits ["(x" digits ")"]
 *
 * A name with several brackets counts like an odometer, the last bracket fastest, as
 * Slurm does. The bound on hosts stops "a[0-999999999]". */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/contract/hostlist.h"

#define MAX_BRACKETS 8
#define MAX_DIGITS   10

struct expansion {
    const char *start; /* of the whole list, for offsets */
    struct hostlist *out;
    char name[HOST_NAME_MAX_BYTES];
    struct err *err;
};

static int list_refuse(const struct expansion *x, const char *at, const char *why)
{
    return err_set(x->err, -EINVAL, "node list \"%.100s\", offset %zu: %s", x->start,
                   (size_t)(at - x->start), why);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits at *s, at most MAX_DIGITS; returns how many, 0 when there are none or too
 * many. */
static size_t number_parse(const char **s, uint64_t *ret)
{
    uint64_t v = 0;
    size_t n = 0;

    for (; is_digit((*s)[n]); n++) {
        if (n == MAX_DIGITS)
            return 0;
        v = v * 10 + (uint64_t)((*s)[n] - '0');
    }
    *s += n;
    *ret = v;
    return n;
}

static int list_expand(
    struct expansion *x, size_t n, const char *s, const char *end, unsigned depth);

static int expand_range(struct expansion *x,
                        size_t n,
                        const char **s,
                        const char *rest,
                        const char *end,
                        unsigned depth)
{
    const char *at = *s;
    uint64_t lo = 0, hi;
    size_t width = number_parse(s, &lo);

    if (width == 0)
        return list_refuse(x, at, "a number of 1 to 10 digits is missing");
    hi = lo;
    if (**s == '-') {
        const char *at_hi = ++*s;

        if (number_parse(s, &hi) == 0)
            return list_refuse(x, at_hi, "a number of 1 to 10 digits is missing");
    }
    if (hi < lo)
        return list_refuse(x, at, "the range runs backwards");
    for (uint64_t v = lo; v <= hi; v++) {
        int k = snprintf(x->name + n, sizeof(x->name) - n, "%0*llu", (int)width,
                         (unsigned long long)v);

        if (k < 0 || (size_t)k >= sizeof(x->name) - n)
            return list_refuse(x, at, "the host name becomes too long");
        int rc = list_expand(x, n + (size_t)k, rest, end, depth + 1);
        if (rc)
            return rc;
    }
    return 0;
}

/* The name so far is n bytes of x->name; s..end is what is left of the entry. */
static int list_expand(
    struct expansion *x, size_t n, const char *s, const char *end, unsigned depth)
{
    for (; s < end && *s != '['; s++) {
        if (*s == ']')
            return list_refuse(x, s, "] without [");
        if (n + 1 >= sizeof(x->name))
            return list_refuse(x, s, "the host name becomes too long");
        x->name[n++] = *s;
    }
    if (s == end) {
        x->name[n] = '\0';
        int rc = hostlist_append(x->out, x->name, 0, x->err);
        if (rc)
            (void)err_prefix(x->err, "node list"); /* rc is returned */
        return rc;
    }
    if (depth == MAX_BRACKETS)
        return list_refuse(x, s, "more than 8 brackets in one name");
    const char *close = memchr(s, ']', (size_t)(end - s));
    if (!close)
        return list_refuse(x, s, "[ without ]");
    for (s++;; s++) {
        int rc = expand_range(x, n, &s, close + 1, end, depth);

        if (rc)
            return rc;
        if (s == close)
            return 0;
        if (*s != ',')
            return list_refuse(x, s, "expected digits, - , or ]");
    }
}

/* The entry's end: a comma outside of brackets, or the end of text. */
static const char *entry_end(const char *s)
{
    bool is_inside = false;

    for (; *s && (is_inside || *s != ','); s++)
        is_inside = *s == '[' || (is_inside && *s != ']');
    return s;
}

int hostlist_parse_slurm(const char *s, struct hostlist *ret, struct err *err)
{
    struct expansion x = {.start = s, .out = ret, .err = err};
    size_t before = ret->n;
    int rc = 0;

    for (const char *p = s; rc == 0; p++) {
        const char *end = entry_end(p);

        rc = end == p ? list_refuse(&x, p, "an entry is empty")
                      : list_expand(&x, 0, p, end, 0);
        p = end;
        if (!*p)
            break;
    }
    while (rc && ret->n > before)
        mem_free(ret->v[--ret->n].name);
    return rc;
}

static int bad_counts(const char *s, const char *at, struct err *err)
{
    return err_set(err, -EINVAL,
                   "counts \"%.100s\", offset %zu: expected is a form such as 2(x3),1",
                   s, (size_t)(at - s));
}

int slurm_counts_parse(
    const char *s, size_t max, uint32_t **ret, size_t *ret_n, struct err *err)
{
    AUTOFREE uint32_t *v = NULL;
    size_t n = 0, cap = 0;

    for (const char *p = s;; p++) {
        const char *at = p;
        uint64_t count = 0, times = 1;

        if (number_parse(&p, &count) == 0 || count > HOST_MAX_SLOTS)
            return bad_counts(s, at, err);
        if (p[0] == '(') {
            at = p;
            if (p[1] != 'x')
                return bad_counts(s, at, err);
            p += 2;
            if (number_parse(&p, &times) == 0 || times == 0 || *p != ')')
                return bad_counts(s, at, err);
            p++;
        }
        if (times > max - n)
            return err_set(err, -E2BIG, "counts \"%.100s\": more than %zu", s, max);
        for (; times; times--) {
            void *grown = v;
            int rc = mem_grow(&grown, n, &cap, sizeof(*v), max);

            v = grown;
            if (rc)
                return err_set(err, rc, "out of memory for %zu counts", n);
            v[n++] = (uint32_t)count;
        }
        if (!*p)
            break;
        if (*p != ',')
            return bad_counts(s, p, err);
    }
    *ret = TAKE(v);
    *ret_n = n;
    return 0;
}
