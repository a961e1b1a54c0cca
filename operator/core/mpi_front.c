/* SPDX-License-Identifier: Apache-2.0 */
/* The row of MPIJobs, which this operator leaves alone so far. */
#include "operator/core/front.h"

static struct job_meta *mpi_open(const struct node *object,
                                 const struct job_meta *meta,
                                 struct arena *a,
                                 struct strbuf *problems)
{
    struct job_meta *m = arena_alloc(a, sizeof(*m));

    (void)object;
    (void)problems;
    if (m)
        *m = *meta;
    return m;
}

static bool mpi_is_ours(const struct job_meta *meta)
{
    (void)meta;
    return false;
}

const struct front front_mpijob = {
    .kind = KUBE_MPIJOB,
    .component = "mpi-job-controller",
    .open = mpi_open,
    .is_ours = mpi_is_ours,
};
