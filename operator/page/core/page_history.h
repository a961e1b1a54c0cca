/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of one job over the last hour, for charts. Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_HISTORY_H
#define OPERATOR_PAGE_CORE_PAGE_HISTORY_H

#include <stdbool.h>

#include "operator/page/core/page_table.h"

#define PAGE_RATES 3 /* steps/s, samples/s, blocked share */

struct page_history { /* zeroed: empty */
    uint64_t last;    /* the newest point, in PAGE_HISTORY_S since 1970 */
    uint32_t first, n;
    float v[PAGE_HISTORY_N][PAGE_RATES]; /* a ring; NaN: unknown */
};

/* False: it has a point of that time, or of a later one. If the clock was set back by more
 * than the history is long, the history begins again. */
bool page_history_add(struct page_history *h,
                      const struct live_report *r,
                      uint64_t now_wall_s);
/* "history" of DETAIL. */
void page_history_write(const struct page_history *h, struct strbuf *out);

#endif
