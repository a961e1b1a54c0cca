/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix that hvd-agent, horovodrun and mpirun --tag-output put before each line of a
 * rank. */
#include <string.h>

#include "operator/cli/core/job_view.h"

#define TIME_BYTES 24 /* "Sun Nov 29 22:33:12 2026": --prefix-output-with-timestamp */

int64_t log_line_rank(const char *line, size_t n, size_t *ret_at)
{
    static const char *const marks[] = {"<stdout>:", "<stderr>:"};
    const char *open = n > 0 && *line == '[' ? line : line + TIME_BYTES, *p;
    uint64_t number[2] = {0, 0};
    int i = 0;

    if (open != line && (n <= TIME_BYTES || *open != '['))
        return -1;
    for (p = open + 1; p < line + n && *p != ']'; p++) {
        if (*p == ',' && i == 0)
            i = 1;
        else if (*p >= '0' && *p <= '9' && number[i] < 100000000)
            number[i] = number[i] * 10 + (uint64_t)(*p - '0');
        else
            return -1;
    }
    for (size_t k = 0; k < 2 && p < line + n && p > open + 1; k++) {
        size_t len = strlen(marks[k]);

        if ((size_t)(line + n - p) > len && strncmp(p + 1, marks[k], len) == 0) {
            *ret_at = (size_t)(p + 1 - line) + len;
            return (int64_t)number[i];
        }
    }
    return -1;
}
