/* SPDX-License-Identifier: Apache-2.0 */
/* Text for a terminal: harmless, aligned, coloured. Pure. */
#ifndef OPERATOR_CLI_CORE_SHOW_TEXT_H
#define OPERATOR_CLI_CORE_SHOW_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/arena.h"
#include "runtime/base/strbuf.h"

/* Appends text from outside: control characters, characters that change the direction of
 * the text and bytes that are not UTF-8 become \xNN or \u{NNNN}. Newlines stay if lines
 * is true, else they become blanks. */
void text_put_safe(struct strbuf *out, const char *p, size_t n, bool lines);
const char *text_safe(struct arena *a,
                      const char *s); /* one line; "" if out of memory */

/* "41s", "5m2s", "3h", "2d": as kubectl writes ages. */
#define AGE_SIZE 32
char *text_age(uint64_t s, char ret[AGE_SIZE]);
/* The same since an RFC 3339 time; "-" if there is none. */
char *text_since(const char *time, uint64_t now_s, char ret[AGE_SIZE]);

enum tint { TINT_NONE, TINT_GOOD, TINT_BUSY, TINT_BAD, TINT_DIM, TINT_HEAD };
/* The tint of a job's state or a pod's phase. */
enum tint tint_of_state(const char *state);
void text_put_tinted(struct strbuf *out, const char *s, enum tint t, bool has_colour);

/* A table as kubectl prints it: columns three blanks apart. */
#define TABLE_MAX_COLUMNS 16
struct show_table {
    struct arena *arena;
    const char *head[TABLE_MAX_COLUMNS];
    size_t n_columns;
    size_t width[TABLE_MAX_COLUMNS]; /* of what was written so far */
    struct table_row *first, *last;
    bool is_out_of_memory;
};
void table_init(struct show_table *t, struct arena *a);
void table_head(struct show_table *t, const char *name);
void table_row(struct show_table *t);
/* The next cell of the last row, made safe and copied. NULL or "": "-". */
void table_cell(struct show_table *t, const char *text, enum tint tint);
void table_cellf(struct show_table *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes the rows and removes them; later ones keep the widths of the columns. */
void table_write(struct show_table *t,
                 bool has_headers,
                 bool has_colour,
                 struct strbuf *out);

#endif
