/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_DRY_RUN: phases of steps with and without communication, and what the two cost.
 * Pure.
 *
 *   steps  0 ... 9  10 ... 19  20 ... 29
 *          with     without    with       ...
 *
 * A step is a round of a frozen plan. The plan's batches come in the same order on all
 * ranks, so all ranks change the phase at the same batch. */
#ifndef RUNTIME_CORE_DRY_RUN_H
#define RUNTIME_CORE_DRY_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DRY_RUN_PHASE   10u  /* steps of a phase */
#define DRY_RUN_IGNORED 2u   /* the first ones of each phase, which still change */
#define DRY_RUN_KEPT    512u /* the last steps of each kind, for the median */

struct dry_run_times {
    uint64_t ns[DRY_RUN_KEPT];
    uint64_t n; /* in all */
};

struct dry_run {                   /* zeroed at the start */
    uint64_t plan;                 /* the current plan's number */
    uint64_t n_tensors;            /* of the current round */
    uint64_t n_steps;              /* complete rounds, over all plans */
    struct dry_run_times times[2]; /* with and without communication */
};

struct dry_run_result {
    uint64_t with_ns, without_ns; /* medians of a step's time */
    uint64_t n_with, n_without;   /* steps that were measured */
};

/* A batch of n_tensors of the plan number `plan` of n_plan tensors is about to be
 * carried out. True: without communication. */
bool dry_run_next(struct dry_run *d, uint64_t plan, uint32_t n_plan, size_t n_tensors);
/* The last complete step took ns. */
void dry_run_measure(struct dry_run *d, uint64_t ns);
struct dry_run_result dry_run_result(const struct dry_run *d);

#endif
