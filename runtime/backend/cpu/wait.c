/* SPDX-License-Identifier: Apache-2.0 */
/* The deadline of a wait inside an operation. The control channel normally detects
 * silence first and reports a better cause; this deadline is for the time after the
 * channel has stopped (the world has ended while agreed operations still run). */
#include "runtime/backend/cpu/wait.h"

#include <errno.h>

#include "runtime/base/clock.h"

int patience_spend(const struct waiter *w,
                   struct patience *p,
                   uint32_t rank,
                   struct err *err)
{
    uint64_t now = clock_now_ns(), slice = p->seen_ns > 0 ? now - p->seen_ns : 0;

    if (w->patience_ns == 0)
        return 0;
    p->seen_ns = now;
    p->spent_ns += slice < 4 * WAIT_SLICE_NS ? slice : WAIT_SLICE_NS;
    if (p->spent_ns < w->patience_ns)
        return 0;
    return err_set(err, -ETIMEDOUT, "rank %u was silent inside an operation for %.3g s",
                   rank, (double)w->patience_ns / NS_PER_S);
}

int wait_check(const struct waiter *w,
               struct patience *p,
               uint32_t rank,
               struct err *err)
{
    int rc = w->check(w->arg, rank, err);

    return rc < 0 ? rc : patience_spend(w, p, rank, err);
}
