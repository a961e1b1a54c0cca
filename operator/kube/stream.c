/* SPDX-License-Identifier: Apache-2.0 */
/* Line splitter. A line that lies whole in one chunk is passed on without a copy; only
 * a line that crosses the end of a chunk is buffered. Pure; called by kube/client for
 * each chunk of a watch. */
#include "operator/kube/stream.h"

#include <errno.h>
#include <string.h>

void stream_init(struct stream *s, size_t max_line_bytes)
{
    strbuf_init(&s->rest, max_line_bytes);
}

void stream_release(struct stream *s)
{
    strbuf_release(&s->rest);
}

void stream_clear(struct stream *s)
{
    strbuf_clear(&s->rest);
}

static int
stream_emit(struct stream *s, const char *p, size_t n, stream_line_fn line, void *arg)
{
    int rc = 0;

    if (s->rest.n == 0 && n > s->rest.max)
        return -E2BIG;
    if (s->rest.n == 0)
        return n ? line(arg, p, n) : 0;
    strbuf_add(&s->rest, p, n);
    rc = strbuf_status(&s->rest);
    if (rc == 0)
        rc = line(arg, strbuf_str(&s->rest), s->rest.n);
    strbuf_clear(&s->rest);
    return rc;
}

int stream_feed(
    struct stream *s, const char *p, size_t n, stream_line_fn line, void *arg)
{
    while (n > 0) {
        const char *nl = memchr(p, '\n', n);
        size_t len = nl ? (size_t)(nl - p) : n;
        int rc;

        if (!nl) {
            strbuf_add(&s->rest, p, n);
            return strbuf_status(&s->rest);
        }
        rc = stream_emit(s, p, len, line, arg);
        if (rc < 0)
            return rc;
        p += len + 1;
        n -= len + 1;
    }
    return 0;
}
