/* SPDX-License-Identifier: Apache-2.0 */
/* From a rank's page of counters to its record in the live report. Pure. */
#ifndef RUNTIME_LIVE_LIVE_PAGE_H
#define RUNTIME_LIVE_LIVE_PAGE_H

#include "runtime/contract/stats_page.h"
#include "runtime/live/live_worker.h"

/* Sets rank, pid, age_ms, the counters and the progress; the other fields stay. page: a
 * copy that stats_page_check has accepted. The program can write anything to its page, so
 * names of metrics are made printable, and impossible numbers are unknown.
 * progress.samples_per_s is left negative: the hub knows the earlier record. */
void live_page_fill(const struct stats_page *page,
                    uint64_t now_wall_us,
                    struct live_rank *ret);

#endif
