/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded string builder with a sticky status: callers append without checking and
 * check once at the end. Invariant: p is NULL or NUL-terminated at p[n]; n <= max;
 * after a failure p holds the appends that fitted whole, never half of one. */
#include "runtime/base/strbuf.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

void strbuf_init(struct strbuf *b, size_t max_bytes)
{
    memset(b, 0, sizeof(*b));
    b->max = max_bytes;
}

void strbuf_init_secret(struct strbuf *b, size_t max_bytes)
{
    strbuf_init(b, max_bytes);
    b->is_secret = true;
}

static void strbuf_wipe(struct strbuf *b)
{
    if (b->is_secret && b->p)
        mem_wipe(b->p, b->cap);
}

void strbuf_clear(struct strbuf *b)
{
    strbuf_wipe(b);
    b->n = 0;
    b->status = 0;
    if (b->p)
        b->p[0] = '\0';
}

void strbuf_release(struct strbuf *b)
{
    strbuf_wipe(b);
    mem_free(b->p);
    b->p = NULL;
    b->n = b->cap = 0;
    b->status = 0;
}

static char *strbuf_resize(struct strbuf *b, size_t cap)
{
    char *p;

    if (!b->is_secret)
        return mem_realloc_array(b->p, cap, 1);
    p = mem_alloc(cap);
    if (!p)
        return NULL;
    if (b->p)
        memcpy(p, b->p, b->n + 1);
    strbuf_wipe(b);
    mem_free(b->p);
    return p;
}

/* Reserves n more bytes and the NUL; marks the buffer as failed if it cannot. */
static int strbuf_reserve(struct strbuf *b, size_t n)
{
    if (b->status)
        return b->status;
    if (n > b->max - b->n || b->max > SIZE_MAX / 2)
        return b->status = -E2BIG;

    size_t need = b->n + n + 1;
    if (need <= b->cap)
        return 0;

    size_t cap = b->cap < 64 ? 64 : b->cap * 2;
    if (cap > b->max + 1)
        cap = b->max + 1;
    if (cap < need)
        cap = need;
    char *p = strbuf_resize(b, cap);
    if (!p)
        return b->status = -ENOMEM;
    b->p = p;
    b->cap = cap;
    return 0;
}

void strbuf_add(struct strbuf *b, const void *p, size_t n)
{
    if (strbuf_reserve(b, n))
        return;
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}

void strbuf_puts(struct strbuf *b, const char *s)
{
    strbuf_add(b, s, strlen(s));
}

void strbuf_putc(struct strbuf *b, char c)
{
    strbuf_add(b, &c, 1);
}

void strbuf_vprintf(struct strbuf *b, const char *fmt, va_list ap)
{
    va_list copy;

    va_copy(copy, ap);
    int n = vsnprintf(NULL, 0, fmt, copy);
    va_end(copy);
    if (n < 0) {
        b->status = b->status ? b->status : -E2BIG;
        return;
    }
    if (strbuf_reserve(b, (size_t)n))
        return;
    (void)vsnprintf(b->p + b->n, (size_t)n + 1, fmt, ap); /* length measured above */
    b->n += (size_t)n;
}

void strbuf_printf(struct strbuf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    strbuf_vprintf(b, fmt, ap);
    va_end(ap);
}

const char *strbuf_str(const struct strbuf *b)
{
    return b->p ? b->p : "";
}

int strbuf_status(const struct strbuf *b)
{
    return b->status;
}

char *strbuf_take(struct strbuf *b)
{
    if (b->status)
        return NULL;

    char *p = b->p ? b->p : mem_strdup("");
    b->p = NULL;
    b->n = b->cap = 0;
    return p;
}
