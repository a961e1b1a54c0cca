/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a rank: how much of the pod's log is requested, and what of it is shown.
 * Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_LOG_H
#define OPERATOR_PAGE_CORE_PAGE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/strbuf.h"

#define PAGE_LOG_BYTES (1u << 20) /* limitBytes: of one answer of the API server */
#define PAGE_LOG_LINES 20000u     /* tailLines, at most */

/* How many lines of a log with the lines of n_ranks ranks are requested, so that `tail`
 * of one of them are likely among them. is_one: lines of one rank are wanted. */
uint32_t page_log_lines(uint32_t tail, uint64_t n_ranks, bool is_one);
/* The API server ends an answer of PAGE_LOG_BYTES before the newest lines. How many lines
 * then are requested instead of `lines`; 0: the answer has the newest ones. */
uint32_t page_log_fewer(const char *p, size_t n, uint32_t lines);
/* The last `tail` lines of the rank, without its prefix; of rank -1 all, as they are.
 * A carriage return ends a line, too. */
void page_log_filter(
    const char *p, size_t n, int64_t rank, uint32_t tail, struct strbuf *out);

#endif
