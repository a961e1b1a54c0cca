/* SPDX-License-Identifier: Apache-2.0 */
/* The pod whose log has a rank's lines, and the prefix that hvd-agent, horovodrun and
 * mpirun --tag-output put before each of them. */
#include <errno.h>
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

int log_place_find(const struct job_view *v,
                   int64_t rank,
                   struct log_place *ret,
                   struct err *err)
{
    uint64_t n_ranks = (uint64_t)v->n_workers * v->slots;
    enum role role = v->has_launcher ? ROLE_LAUNCHER : ROLE_WORKER;

    if (rank >= 0 && v->is_tensorflow)
        return err_set(err, -ENOTSUP, "the job has no ranks (framework tensorflow)");
    /* a launcher starts as many ranks as its command says */
    if (rank >= 0 && role == ROLE_WORKER && (uint64_t)rank >= n_ranks)
        return n_ranks == 0 ? err_set(err, -EINVAL, "the job has no ranks")
                            : err_set(err, -EINVAL,
                                      "%lld is too large; the job has ranks 0 to %llu",
                                      (long long)rank, (unsigned long long)n_ranks - 1);
    *ret = (struct log_place){
        .role = role,
        .container = job_container(v, role),
        .index = rank >= 0 && role == ROLE_WORKER ? (uint32_t)(rank / v->slots) : 0,
        .n_ranks = role == ROLE_WORKER ? v->slots : n_ranks,
    };
    return 0;
}
