/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI twin of the allreduce benchmarks: measure.h over MPI_Allreduce. Built by an
 * MPI's compiler, started by its mpirun: allreduce_mpi [NAME]. */
#include <mpi.h>

#include "tests/bench/measure.h"

static void mpi_allreduce(void *ctx, float *x, size_t n)
{
    (void)ctx;
    MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void mpi_barrier(void *ctx)
{
    (void)ctx;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void mpi_max(void *ctx, double *x, int n)
{
    (void)ctx;
    MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    struct peer_ops p = {.name = argc > 1 ? argv[1] : "mpi",
                         .allreduce = mpi_allreduce,
                         .barrier = mpi_barrier,
                         .max = mpi_max};
    MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p.size);
    int rc = peer_measure(&p);
    MPI_Finalize();
    return rc;
}
