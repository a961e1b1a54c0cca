/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_REPORT and HVD_DRY_RUN: sums per step on each rank; on rank 0 the totals of all
 * ranks, and the summary at the end. In the seat, or after the last step. */
#ifndef RUNTIME_OBSERVE_REPORTER_H
#define RUNTIME_OBSERVE_REPORTER_H

#include "runtime/control/control.h"
#include "runtime/core/report.h"
#include "runtime/observe/stats.h"

struct reporter {
    bool is_on; /* false: nothing of this is used */
    uint32_t size;
    const struct control_member *members; /* by rank; outlive it */
    const struct stats *stats;            /* likewise */
    struct report_totals sums;            /* of steps */
    struct report_totals now,
        at;              /* what batches have added; the same at the last step */
    struct dry_run *dry; /* NULL: no dry run */
    struct report_totals *totals; /* rank 0: by rank */
    bool *has;                    /* rank 0: by rank */
    bool has_sent, has_printed;
    char cause[480]; /* why the world ended early; "" */
};

/* 0, -ENOMEM. */
int reporter_init(struct reporter *r,
                  uint32_t rank,
                  uint32_t size,
                  bool is_dry_run,
                  const struct control_member *members,
                  const struct stats *stats);
void reporter_release(struct reporter *r); /* accepts a zeroed one */

/* A batch has ended: tensors of this rank, their bytes, and the sum of the times that they
 * waited for it. */
void reporter_batch(struct reporter *r,
                    size_t n_tensors,
                    uint64_t bytes,
                    uint64_t waited_ns);
/* A step has ended that took ns; 0: the first of a sequence, which is not counted. */
void reporter_step(struct reporter *r, uint64_t ns);
/* In a dry run: is a batch of n_tensors of the plan number `plan` of n_plan tensors carried out without
 * communication? Called once for each batch of a plan, in order. */
bool reporter_is_dry(struct reporter *r,
                     uint64_t plan,
                     uint32_t n_plan,
                     size_t n_tensors);
/* Not rank 0, at the end of the world: the message with this rank's totals. True once. */
bool reporter_take_message(struct reporter *r, uint64_t now_ns, struct strbuf *out);
/* Rank 0: the message of a rank; a malformed one counts as missing. */
void reporter_receive(struct reporter *r, uint32_t rank, const uint8_t *p, size_t n);
/* The world ended with this cause. The first call counts. */
void reporter_set_cause(struct reporter *r, const char *cause);
/* Rank 0: prints the summary, once. */
void reporter_print(struct reporter *r, uint64_t now_ns);

#endif
