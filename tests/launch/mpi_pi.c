/* SPDX-License-Identifier: Apache-2.0 */
/* The pi program of MPI tutorials, to check that ranks of all hosts work together:
 *
 *   mpi-pi [INTERVALS [stay | abort CODE]]     "pi 3.141592654 size 4 hosts a a b b"
 *
 * stay: then waits to be killed; abort: the last rank ends all ranks with CODE. Compiled
 * with each implementation's mpicc; part of the test images, which have no compiler. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RANKS 256
#define NAME      64

static double part_of_pi(int rank, int size, long n)
{
    double h = 1.0 / (double)n, sum = 0;
    for (long i = rank; i < n; i += size) {
        double x = h * ((double)i + 0.5);
        sum += 4.0 / (1.0 + x * x);
    }
    return h * sum;
}

#ifdef MPICH_VERSION
/* One line to mpiexec by PMI's first version, and its answer. */
static void pmi_send(int fd, const char *line)
{
    char c = 0;
    if (write(fd, line, strlen(line)) < 0)
        _exit(3);
    while (c != '\n')
        if (read(fd, &c, 1) != 1)
            _exit(3);
}

/* With UCX and TCP, MPICH 4.0 hangs in every other MPI_Finalize, with any launcher:
 * ranks that wait for all others do not answer those that close their connections.
 * Therefore only Finalize's messages to mpiexec are sent, in the order of ranks:
 * mpiexec kills all ranks if one exits without them. */
static void mpi_finalize(void)
{
    const char *fd = getenv("PMI_FD");
    if (!fd)
        _exit(3);
    pmi_send((int)strtol(fd, NULL, 10), "cmd=barrier_in\n");
    pmi_send((int)strtol(fd, NULL, 10), "cmd=finalize\n");
    _exit(0);
}
#else
static void mpi_finalize(void)
{
    MPI_Finalize();
}
#endif

int main(int argc, char **argv)
{
    char own[NAME] = "", all[MAX_RANKS * NAME];
    int rank, size;
    long n = argc > 1 ? strtol(argv[1], NULL, 10) : 1000000;
    const char *then = argc > 2 ? argv[2] : "";
    double pi, mine;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > MAX_RANKS || n < 1)
        MPI_Abort(MPI_COMM_WORLD, 2);
    (void)gethostname(own, sizeof(own) - 1);
    mine = part_of_pi(rank, size, n);
    MPI_Allreduce(&mine, &pi, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allgather(own, NAME, MPI_CHAR, all, NAME, MPI_CHAR, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("pi %.9f size %d hosts", pi, size);
        for (int i = 0; i < size; i++)
            printf(" %s", all + i * NAME);
        printf("\n");
        fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* no rank exits before that is written */
    if (!strcmp(then, "abort") && argc > 3 && rank == size - 1)
        MPI_Abort(MPI_COMM_WORLD, (int)strtol(argv[3], NULL, 10));
    while (*then) /* stay, or abort of another rank */
        (void)pause();
    mpi_finalize();
    return 0;
}
