/* SPDX-License-Identifier: Apache-2.0 */
/* Splits chunks into lines: a watch sends one JSON object per line, and the transport
 * splits it anywhere. */
#ifndef OPERATOR_KUBE_STREAM_H
#define OPERATOR_KUBE_STREAM_H

#include <stddef.h>

#include "runtime/base/strbuf.h"

/* One whole line without its newline, not NUL-terminated; valid during the call. A
 * negative result ends stream_feed with it. */
typedef int (*stream_line_fn)(void *arg, const char *line, size_t n);

struct stream {
    struct strbuf rest; /* the start of an incomplete line */
};
void stream_init(struct stream *s, size_t max_line_bytes);
void stream_release(struct stream *s); /* accepts a zeroed struct */
void stream_clear(struct stream *s);   /* drops the rest */
/* -E2BIG when a line exceeds the bound, -ENOMEM, or what line returned. Empty lines are
 * skipped. */
int stream_feed(
    struct stream *s, const char *p, size_t n, stream_line_fn line, void *arg);

#endif
