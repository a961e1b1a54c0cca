/* SPDX-License-Identifier: Apache-2.0 */
/* Splits the output of a rank into lines and keeps the last ones. Output of many ranks
 * is mixed line by line, so a line is only passed on when it is complete. A line longer
 * than LINE_MAX_BYTES is passed on in pieces, which bounds memory. A lone carriage
 * return ends a line: otherwise a progress bar would be one endless, invisible line.
 * Called by output.c and link.c. */
#include "runtime/launch/core/lines.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/mem.h"

enum { AFTER_TEXT = 1, AFTER_EMPTY }; /* what the preceding carriage return ended */

void lines_init(struct lines *l)
{
    memset(l, 0, sizeof(*l));
}

void lines_release(struct lines *l)
{
    mem_free(l->part);
    memset(l, 0, sizeof(*l));
}

static int part_reserve(struct lines *l, size_t n)
{
    if (l->n + n <= l->cap)
        return 0;
    size_t cap = l->cap ? l->cap : 256;
    while (cap < l->n + n)
        cap *= 2;
    char *p = mem_realloc_array(l->part, cap, 1);
    if (!p)
        return -ENOMEM;
    l->part = p;
    l->cap = cap;
    return 0;
}

/* Appends to the unfinished line; passes full pieces on. */
static int part_add(struct lines *l, const char *p, size_t n, line_fn fn, void *arg)
{
    while (n) {
        size_t take = LINE_MAX_BYTES - l->n < n ? LINE_MAX_BYTES - l->n : n;
        if (part_reserve(l, take) < 0) {
            lines_end(l, fn, arg);
            fn(arg, p, n);
            return -ENOMEM;
        }
        memcpy(l->part + l->n, p, take);
        l->n += take;
        p += take;
        n -= take;
        if (l->n == LINE_MAX_BYTES && n)
            lines_end(l, fn, arg);
    }
    return 0;
}

static size_t line_length(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] == '\n' || p[i] == '\r')
            return i;
    return n;
}

int lines_feed(struct lines *l, const char *p, size_t n, line_fn fn, void *arg)
{
    int rc = 0;
    while (n) {
        if (l->after_cr && *p == '\n') { /* second byte of "\r\n" */
            if (l->after_cr == AFTER_EMPTY)
                fn(arg, p, 0);
            l->after_cr = 0;
            p++, n--;
            continue;
        }
        size_t len = line_length(p, n);
        if (len == n || len + l->n > LINE_MAX_BYTES) {
            int added = part_add(l, p, len, fn, arg);
            rc = rc ? rc : added;
            p += len, n -= len;
            l->after_cr = len ? 0 : l->after_cr;
            if (!n)
                break;
            len = 0;
        }
        int is_cr = p[len] == '\r', is_empty = !len && !l->n;
        if (l->n) {
            int added = part_add(l, p, len, fn, arg);
            rc = rc ? rc : added;
            lines_end(l, fn, arg);
        } else if (len || !is_cr) {
            fn(arg, p, len);
        }
        l->after_cr = is_cr ? is_empty ? AFTER_EMPTY : AFTER_TEXT : 0;
        p += len + 1, n -= len + 1;
    }
    return rc;
}

void lines_end(struct lines *l, line_fn fn, void *arg)
{
    if (!l->n)
        return;
    size_t n = l->n;
    l->n = 0;
    fn(arg, l->part, n);
}

void tail_add(struct tail *t, const char *text, size_t n)
{
    size_t slot = t->n_seen++ % TAIL_LINES;
    if (n > TAIL_LINE_BYTES)
        n = TAIL_LINE_BYTES;
    if (n)
        memcpy(t->text[slot], text, n);
    t->len[slot] = n;
}

static void tail_add_safe(struct strbuf *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        strbuf_putc(out, (c < 0x20 && c != '\t') || c == 0x7f ? '?' : p[i]);
    }
}

void tail_render(const struct tail *t, size_t max_bytes, struct strbuf *out)
{
    size_t have = t->n_seen < TAIL_LINES ? t->n_seen : TAIL_LINES;
    size_t n = 0, bytes = 0;
    while (n < have) {
        size_t len = t->len[(t->n_seen - 1 - n) % TAIL_LINES] + 1;
        if (bytes + len > max_bytes)
            break;
        bytes += len;
        n++;
    }
    for (size_t i = n; i-- > 0;) {
        size_t slot = (t->n_seen - 1 - i) % TAIL_LINES;
        tail_add_safe(out, t->text[slot], t->len[slot]);
        strbuf_putc(out, '\n');
    }
}
