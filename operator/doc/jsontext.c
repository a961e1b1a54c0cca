/* SPDX-License-Identifier: Apache-2.0 */
/* A scanner for brackets and strings.
 *
 * The API server accepts text that jansson refuses: 10000 levels, integers beyond 64
 * bits (it turns them into fractions), and NUL characters. Nothing here recurses and no
 * character is scanned twice, so the time is linear in the text. Called by doc/object
 * and watch.c. */
#include "operator/doc/jsontext.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && is_blank(*p))
        p++;
    return p;
}

/* p at the opening quote. NULL: the string does not end. Most strings have no
 * backslash, so this searches the next quote and then counts the backslashes before it.
 * No run of backslashes is counted for more than one quote. */
static const char *skip_string(const char *p, const char *end)
{
    const char *quote = p, *c;

    while ((quote = memchr(quote + 1, '"', (size_t)(end - quote - 1)))) {
        for (c = quote; c[-1] == '\\'; c--)
            ;
        if ((quote - c) % 2 == 0)
            return quote + 1;
    }
    return NULL;
}

/* The characters at which skip_container stops. A table is faster than five comparisons
 * per character. */
static const bool is_structure[256] = {
    ['"'] = true, ['{'] = true, ['['] = true, ['}'] = true, [']'] = true};

static const char *skip_container(const char *p, const char *end)
{
    size_t depth = 0;

    while (p && p < end) {
        if (!is_structure[(unsigned char)*p])
            p++;
        else if (*p == '"')
            p = skip_string(p, end);
        else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (--depth == 0)
            return p + 1;
        else
            p++;
    }
    return NULL;
}

static const char *skip_scalar(const char *p, const char *end)
{
    const char *start = p;

    while (p < end && !is_blank(*p) && !strchr(",:[]{}\"", *p))
        p++;
    return p > start ? p : NULL;
}

static const char *skip_value(const char *p, const char *end)
{
    if (p >= end)
        return NULL;
    if (*p == '"')
        return skip_string(p, end);
    if (*p == '{' || *p == '[')
        return skip_container(p, end);
    return skip_scalar(p, end);
}

int json_walk(struct json_walk *w, struct json_span text)
{
    const char *end = text.p + text.n, *p = text.p ? skip_blanks(text.p, end) : end;

    if (p >= end || (*p != '{' && *p != '['))
        return -EINVAL;
    *w = (struct json_walk){
        .p = p + 1, .end = end, .close = (char)(*p == '{' ? '}' : ']')};
    return 0;
}

int json_walk_key(struct json_walk *w, struct json_span *ret_key)
{
    const char *p = skip_blanks(w->p, w->end), *after;
    struct json_span key = {"", 0};

    if (p < w->end && *p == w->close) {
        w->p = p;
        return 0;
    }
    if (w->is_started) {
        if (p >= w->end || *p != ',')
            return -EINVAL;
        p = skip_blanks(p + 1, w->end);
    }
    if (w->close == '}') {
        after = p < w->end && *p == '"' ? skip_string(p, w->end) : NULL;
        if (!after)
            return -EINVAL;
        key = (struct json_span){p + 1, (size_t)(after - p) - 2};
        p = skip_blanks(after, w->end);
        if (p >= w->end || *p != ':')
            return -EINVAL;
        p = skip_blanks(p + 1, w->end);
    }
    *ret_key = key;
    w->p = p;
    w->is_started = true;
    return 1;
}

int json_walk_value(struct json_walk *w, struct json_span *ret_value)
{
    const char *after = skip_value(w->p, w->end);

    if (!after)
        return -EINVAL;
    *ret_value = (struct json_span){w->p, (size_t)(after - w->p)};
    w->p = after;
    return 0;
}

int json_walk_next(struct json_walk *w,
                   struct json_span *ret_key,
                   struct json_span *ret_value)
{
    int more = json_walk_key(w, ret_key);
    int rc = more > 0 ? json_walk_value(w, ret_value) : 0;

    return rc < 0 ? rc : more;
}

bool span_is(struct json_span s, const char *text)
{
    return strlen(text) == s.n && memcmp(s.p, text, s.n) == 0;
}

struct json_span json_find(struct json_span object, const char *key)
{
    struct json_walk w;
    struct json_span k, v;

    if (json_walk(&w, object) == 0 && w.close == '}') {
        while (json_walk_next(&w, &k, &v) > 0) {
            if (span_is(k, key))
                return v;
        }
    }
    return (struct json_span){"", 0};
}

struct json_span json_find_text(struct json_span object, const char *key)
{
    struct json_span v = json_find(object, key);

    if (v.n < 2 || *v.p != '"')
        return (struct json_span){"", 0};
    return (struct json_span){v.p + 1, v.n - 2};
}

/* --- repair ---------------------------------------------------------------------- */

static unsigned json_repair_string(const char *p, const char *end, struct strbuf *out)
{
    static const char nul[] = "\\u0000";
    unsigned repairs = 0;

    while (p < end) {
        size_t n = *p == '\\' ? 2 : 1;

        if ((size_t)(end - p) >= sizeof(nul) - 1
            && memcmp(p, nul, sizeof(nul) - 1) == 0) {
            strbuf_puts(out, "\\ufffd");
            repairs = REPAIR_NUL;
            n = sizeof(nul) - 1;
        } else {
            strbuf_add(out, p, n);
        }
        p += n;
    }
    return repairs;
}

static bool is_big_integer(const char *p, size_t n)
{
    char text[24]; /* "-9223372036854775808" has 20 */

    for (size_t i = 0; i < n; i++) {
        if (p[i] != '-' && (p[i] < '0' || p[i] > '9'))
            return false;
    }
    if (n >= sizeof(text))
        return true;
    memcpy(text, p, n);
    text[n] = '\0';
    errno = 0;
    (void)strtoll(text, NULL, 10); /* only checks whether it fits */
    return errno == ERANGE;
}

static unsigned json_repair_scalar(const char *p, const char *end, struct strbuf *out)
{
    strbuf_add(out, p, (size_t)(end - p));
    if ((*p != '-' && (*p < '0' || *p > '9')) || !is_big_integer(p, (size_t)(end - p)))
        return 0;
    strbuf_puts(out, "e0");
    return REPAIR_NUMBER;
}

unsigned json_repair(struct json_span text, unsigned max_depth, struct strbuf *out)
{
    const char *p = text.p, *end = text.p + text.n;
    unsigned repairs = 0, depth = 0;

    while (p < end) {
        bool is_open = *p == '{' || *p == '[';
        bool is_mark = is_open || is_blank(*p) || strchr(",:]}", *p);
        const char *after = p + 1;

        if (is_open && depth >= max_depth)
            after = skip_container(p, end);
        else if (!is_mark)
            after = skip_value(p, end);
        if (!after) { /* bad syntax: json_read reports where */
            strbuf_add(out, p, (size_t)(end - p));
            break;
        }
        if (is_open && depth >= max_depth) {
            strbuf_puts(out, "null");
            repairs |= REPAIR_DEPTH;
        } else if (is_mark) {
            strbuf_putc(out, *p);
            depth += is_open;
            depth -= depth > 0 && (*p == '}' || *p == ']');
        } else if (*p == '"') {
            repairs |= json_repair_string(p, after, out);
        } else {
            repairs |= json_repair_scalar(p, after, out);
        }
        p = after;
    }
    return repairs;
}
