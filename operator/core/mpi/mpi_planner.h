/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two planners of an MPIJob: mpi_plan.c, which decides, and mpi_ensure.c,
 * which adds the actions for objects that no watch shows. Pure. */
#ifndef OPERATOR_CORE_MPI_MPI_PLANNER_H
#define OPERATOR_CORE_MPI_MPI_PLANNER_H

#include "operator/core/mpi/mpi_view.h"

#define MPI_CLOCK_SKEW_S 60 /* times further ahead of the local clock are ignored */

struct planner {
    const struct question *q;
    const struct mpi_job *job;
    const struct mpi_view *v;
    struct decision *d;
    struct build b;
    bool is_replacing; /* an object that existed is recreated */
};

/* Requests a sync after at most ms milliseconds, or at at_s (wall time) at the latest. */
void planner_again(struct planner *p, uint64_t ms);
void planner_again_at(struct planner *p, uint64_t at_s);
/* Returns a copy in the plan's arena; sets p->b.status when memory is out. */
const char *planner_keep(struct planner *p, const char *s);
struct action *planner_add(struct planner *p,
                           enum verb verb,
                           enum kube_kind kind,
                           uint32_t stage,
                           const char *name);

/* The Service and the Secret. is_making: pods will be created. */
void mpi_ensure_access(struct planner *p, bool is_making);
void mpi_ensure_config(struct planner *p);
void mpi_ensure_group(struct planner *p, bool has_launcher);
void mpi_drop_group(struct planner *p);

#endif
