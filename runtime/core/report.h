/* SPDX-License-Identifier: Apache-2.0 */
/* The report at the end of a job (HVD_REPORT, HVD_DRY_RUN): what each rank counted, its
 * wire form, and the sentences that rank 0 prints. Pure. */
#ifndef RUNTIME_CORE_REPORT_H
#define RUNTIME_CORE_REPORT_H

#include <stdbool.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/core/dry_run.h"

/* What one rank counted in one world. The first rows are of counted steps only (metric
 * hvd_steps_total), the rest of the whole run. */
enum report_total {
    REPORT_STEPS,
    REPORT_STEP_NS,
    REPORT_STEP_BLOCKED_NS, /* hvd_blocked_seconds_total */
    REPORT_STEP_WAIT_NS,    /* hvd_wait_seconds_total */
    REPORT_STEP_TENSORS,
    REPORT_STEP_BYTES, /* of inputs */
    REPORT_AGE_NS,     /* of the world */
    REPORT_BLOCKED_NS,
    REPORT_WAIT_NS,
    REPORT_TENSORS,
    REPORT_BYTES,
    REPORT_ALLREDUCE_NS,
    REPORT_BUS_BYTES,
    REPORT_BATCHES,
    REPORT_DEVICE_BATCHES,
    REPORT_N
};
struct report_totals {
    uint64_t v[REPORT_N];
};

/* A message up: "u8 version, u8 n, u64 * n", little endian. */
#define REPORT_MESSAGE_BYTES (2 + 8 * REPORT_N)
void report_totals_pack(const struct report_totals *t, struct strbuf *out);
/* Further totals of a later version are ignored. -EBADMSG. */
int report_totals_unpack(const void *p,
                         size_t n,
                         struct report_totals *ret,
                         struct err *err);

struct job_report {
    uint32_t n_ranks;
    const struct report_totals *totals; /* by rank */
    const bool *has; /* by rank: its totals are known; rank 0's are */
    const char *(*host_of)(void *arg, uint32_t rank);
    void *arg;
    const char *cause;         /* why the world ended early; "": in order */
    bool is_dry;               /* HVD_DRY_RUN: */
    struct dry_run_result dry; /* with and without communication */
};

/* Appends the lines of the report. */
void job_report_write(const struct job_report *r, struct strbuf *out);

#endif
