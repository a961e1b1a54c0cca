/* SPDX-License-Identifier: Apache-2.0 */
/* start_capi.c's MPI twin: the MPI_Init hello. Built by an MPI's compiler, started by
 * its mpirun. */
#include <mpi.h>

#include "tests/bench/stamp.h"

int main(int argc, char **argv)
{
    int rank, size, rc;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rc = stamp_write(rank, size);
    MPI_Finalize();
    return rc;
}
