/* SPDX-License-Identifier: Apache-2.0 */
/* Splits the bytes of a pipe into lines; keeps the last lines of a rank. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_LINES_H
#define RUNTIME_LAUNCH_CORE_LINES_H

#include <stddef.h>

#include "runtime/base/strbuf.h"

#define LINE_MAX_BYTES 65536 /* a longer line is passed on in pieces of this size */

/* One line without its end. Called during lines_feed; text is not NUL-terminated. */
typedef void (*line_fn)(void *arg, const char *text, size_t n);

struct lines {
    char *part; /* the unfinished line */
    size_t n, cap;
    /* not 0: the last byte was a carriage return; a newline now belongs to it */
    int after_cr;
};

void lines_init(struct lines *l);
void lines_release(struct lines *l);
/* "\n", "\r\n" and a lone "\r" (progress bars) end a line. An empty line caused by a
 * lone "\r" is dropped. 0, or -ENOMEM; the piece that did not fit is then passed on
 * unchanged. */
int lines_feed(struct lines *l, const char *p, size_t n, line_fn fn, void *arg);
/* passes the unfinished line on, if any */
void lines_end(struct lines *l, line_fn fn, void *arg);

#define TAIL_LINES      20
#define TAIL_LINE_BYTES 400

/* The last lines of one rank, standard output and error together. Long lines are
 * truncated. */
struct tail {
    char text[TAIL_LINES][TAIL_LINE_BYTES];
    size_t len[TAIL_LINES];
    size_t n_seen;
};
void tail_add(struct tail *t, const char *text, size_t n);
/* Appends the newest whole lines, at most max_bytes. Control characters other than tab
 * become '?', so that the text is safe in a terminal and in JSON. */
void tail_render(const struct tail *t, size_t max_bytes, struct strbuf *out);

#endif
