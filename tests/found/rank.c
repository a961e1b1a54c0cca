/* SPDX-License-Identifier: Apache-2.0 */
/* A rank for the tests of foreign launchers: finds its place, sums over all ranks, and
 * prints both in one line:
 *
 *   rank 1/4 local 1/2 cross 0/2 by openmpi sum 10
 *
 * found-rank [WORD ...]      in this order:
 *
 *   hvd          the above; without this word it comes first
 *   again        shuts down, and does the same once more
 *   mpi          (built with an MPI) calls MPI_Init, sums by MPI, prints "mpi sum";
 *                before or after "hvd"
 *   mpi-end      calls MPI_Finalize here, not at the end
 *   down         calls hvd_shutdown here, not at the exit
 *   fail=R:C     rank R exits with C now, the other ranks wait until they are killed
 *   stay         sums until SIGTERM or SIGUSR1 has asked each rank to leave, and prints
 *                "rank R/N stays" before and "rank R/N leaves: SIGNAL" after it
 *   work         the same without the two handlers: it ends with a failure
 *   brief        only hvd_init and hvd_shutdown, instead of hvd
 *   late=R       (before hvd) rank R does not call hvd_init: it waits for the file
 *                FOUND_END
 *
 * The one mutable global is the signal that has asked this rank to leave. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hvd.h"
#ifdef FOUND_MPI
#include <mpi.h>
#endif

static int rank_die(const char *what)
{
    fprintf(stderr, "found-rank: %s: %s\n", what, hvd_last_error());
    return 1;
}

static int rank_sum(const char *name, float *x)
{
    int64_t one = 1;
    struct hvd_tensor t = {.size_bytes = sizeof(t),
                           .name = name,
                           .data = x,
                           .output = x,
                           .dtype = HVD_FLOAT32,
                           .ndim = 1,
                           .shape = &one,
                           .device = -1};
    hvd_handle h = 0;
    int rc = hvd_allreduce_async(&t, HVD_SUM, 1.0, 1.0, 0, &h);

    if (rc == 0)
        rc = hvd_wait(h, -1);
    return rc;
}

static int rank_meet(void)
{
    char about[65536], by[32] = "?";
    const char *p;

    if (hvd_init(NULL) < 0)
        return rank_die("init");
    float x = (float)(hvd_rank() + 1);
    if (rank_sum("x", &x) < 0)
        return rank_die("allreduce");
    (void)hvd_describe(about, sizeof(about));
    p = strstr(about, "\"launcher\":\"");
    if (p)
        (void)sscanf(p, "\"launcher\":\"%31[a-z]", by);
    printf("rank %d/%d local %d/%d cross %d/%d by %s sum %g\n", hvd_rank(), hvd_size(),
           hvd_local_rank(), hvd_local_size(), hvd_cross_rank(), hvd_cross_size(), by,
           (double)x);
    return fflush(stdout);
}

#ifdef FOUND_MPI
static int rank_meet_mpi(void)
{
    int rank = 0, all = 0;

    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return 1;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    rank++;
    (void)MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("mpi sum %d\n", all);
    return fflush(stdout);
}

static void mpi_end(void)
{
    int is_up = 0, is_over = 0;

    (void)MPI_Initialized(&is_up);
    (void)MPI_Finalized(&is_over);
    if (is_up && !is_over)
        (void)MPI_Finalize();
}
#else
static int rank_meet_mpi(void)
{
    return rank_die("built without MPI");
}

static void mpi_end(void) {}
#endif

/* The other ranks wait for a tensor that this one never submits. */
static int rank_fail(int rank, int code)
{
    float x = 0;

    if (hvd_rank() == rank)
        exit(code);
    if (rank_sum("never", &x) < 0)
        return rank_die("allreduce");
    return 0;
}

static volatile sig_atomic_t asked;

static void rank_ask(int sig)
{
    asked = sig;
}

static int rank_work(void)
{
    float n_asked = 0;

    printf("rank %d/%d stays\n", hvd_rank(), hvd_size());
    (void)fflush(stdout);
    while ((int)n_asked != hvd_size()) {
        n_asked = asked ? 1 : 0;
        if (rank_sum("asked", &n_asked) < 0)
            return rank_die("allreduce");
        (void)usleep(10000); /* a step of the training */
    }
    return 0;
}

static int rank_stay(void)
{
    (void)signal(SIGTERM, rank_ask);
    (void)signal(SIGUSR1, rank_ask);
    if (rank_work() != 0)
        return 1;
    printf("rank %d/%d leaves: %s\n", hvd_rank(), hvd_size(), strsignal(asked));
    return fflush(stdout);
}

static int rank_start_late(int rank)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                        "SLURM_PROCID"};

    const char *end = getenv("FOUND_END");

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *mine = getenv(names[i]);

        if (mine && end && atoi(mine) == rank) {
            while (access(end, F_OK) != 0)
                (void)usleep(10000); /* polls for a file of the test */
            exit(0);
        }
    }
    return 0;
}

static int rank_exit_early(void)
{
    return hvd_init(NULL) < 0 || hvd_shutdown() < 0 ? rank_die("init and shutdown") : 0;
}

static int rank_act(const char *word)
{
    int rank, code;

    if (strcmp(word, "hvd") == 0)
        return rank_meet();
    if (strcmp(word, "again") == 0)
        return hvd_shutdown() < 0 ? rank_die("shutdown") : rank_meet();
    if (strcmp(word, "down") == 0)
        return hvd_shutdown() < 0 ? rank_die("shutdown") : 0;
    if (strcmp(word, "stay") == 0)
        return rank_stay();
    if (strcmp(word, "work") == 0)
        return rank_work();
    if (strcmp(word, "brief") == 0)
        return rank_exit_early();
    if (strcmp(word, "mpi") == 0)
        return rank_meet_mpi();
    if (strcmp(word, "mpi-end") == 0) {
        mpi_end();
        return 0;
    }
    if (sscanf(word, "fail=%d:%d", &rank, &code) == 2)
        return rank_fail(rank, code);
    if (sscanf(word, "late=%d", &rank) == 1)
        return rank_start_late(rank);
    fprintf(stderr, "found-rank: what is \"%s\"?\n", word);
    return 2;
}

int main(int argc, char **argv)
{
    int rc = 0, has_hvd = 0;

    for (int i = 1; i < argc; i++)
        has_hvd |= strcmp(argv[i], "hvd") == 0 || strcmp(argv[i], "brief") == 0;
    if (!has_hvd)
        rc = rank_meet();
    for (int i = 1; rc == 0 && i < argc; i++)
        rc = rank_act(argv[i]);
    if (rc == 0)
        mpi_end();
    return rc;
}
