/* SPDX-License-Identifier: Apache-2.0 */
/* The kubelet finds the begin of the last lines and sends limitBytes from there: if these
 * are too few, the newest lines are missing. The lines that did arrive show how long lines
 * are. Called by page_pod_log.c. */
#include "operator/page/core/page_log.h"

#include <string.h>

#include "operator/cli/core/job_view.h"

uint32_t page_log_lines(uint32_t tail, uint64_t n_ranks, bool is_one)
{
    /* ranks do not write evenly */
    uint64_t most = is_one && n_ranks > 1 ? 2 * n_ranks : 1;

    return most > PAGE_LOG_LINES / tail ? PAGE_LOG_LINES : (uint32_t)(tail * most);
}

uint32_t page_log_fewer(const char *p, size_t n, uint32_t lines)
{
    uint64_t n_lines = 0;

    if (n < PAGE_LOG_BYTES || lines <= 1)
        return 0;
    for (const char *end = p + n; (p = memchr(p, '\n', (size_t)(end - p))); p++)
        n_lines++;
    if (n_lines > lines)
        n_lines = lines;
    return n_lines < 2 ? 1 : (uint32_t)(n_lines * 3 / 4);
}

static bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

static bool log_line_counts(const char *p, size_t n, int64_t rank, size_t *ret_at)
{
    *ret_at = 0;
    return rank < 0 || log_line_rank(p, n, ret_at) == rank;
}

/* Where the last of the lines in p[0..*n) begins; *n becomes where it ends. */
static size_t log_last_line(const char *p, size_t *n)
{
    size_t begin;

    if (p[*n - 1] == '\n' && *n > 1 && p[*n - 2] == '\r')
        (*n)--;
    if (is_line_end(p[*n - 1]))
        (*n)--;
    for (begin = *n; begin > 0 && !is_line_end(p[begin - 1]);)
        begin--;
    return begin;
}

void page_log_filter(
    const char *p, size_t n, int64_t rank, uint32_t tail, struct strbuf *out)
{
    size_t begin = n, rest = n, at;

    for (uint32_t found = 0; rest > 0 && found < tail;) {
        size_t end = rest;

        rest = log_last_line(p, &end);
        if (log_line_counts(p + rest, end - rest, rank, &at)) {
            found++;
            begin = rest;
        }
    }
    while (begin < n) {
        size_t end = begin;

        while (end < n && !is_line_end(p[end]))
            end++;
        if (log_line_counts(p + begin, end - begin, rank, &at)) {
            strbuf_add(out, p + begin + at, end - begin - at);
            strbuf_putc(out, '\n');
        }
        begin = end + (end + 1 < n && p[end] == '\r' && p[end + 1] == '\n' ? 2 : 1);
    }
}
