/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded string builder. An append that fails (memory, bound) marks the buffer;
 * further appends do nothing; strbuf_status() is checked once at the end. Storage of
 * the struct is the caller's. */
#ifndef RUNTIME_BASE_STRBUF_H
#define RUNTIME_BASE_STRBUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct strbuf {
    char *p;       /* NUL-terminated; NULL while empty: use strbuf_str() */
    size_t n, cap; /* bytes used without the NUL; bytes allocated */
    size_t max;    /* hard bound on n */
    int status;    /* 0, -ENOMEM or -E2BIG */
    bool is_secret;
};

void strbuf_init(struct strbuf *b, size_t max_bytes);
/* What was in it is wiped when it is cleared, released, or moves as it grows. */
void strbuf_init_secret(struct strbuf *b, size_t max_bytes);
void strbuf_clear(struct strbuf *b);   /* empty and unmarked, memory kept */
void strbuf_release(struct strbuf *b); /* memory gone; accepts a zeroed struct */
void strbuf_add(struct strbuf *b, const void *p, size_t n);
void strbuf_puts(struct strbuf *b, const char *s);
void strbuf_putc(struct strbuf *b, char c);
void strbuf_printf(struct strbuf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void strbuf_vprintf(struct strbuf *b, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
const char *
strbuf_str(const struct strbuf *b); /* never NULL; valid until the next append */
int strbuf_status(const struct strbuf *b);
char *
strbuf_take(struct strbuf *b); /* caller frees with mem_free; NULL if status is not 0 */

#endif
