/* SPDX-License-Identifier: Apache-2.0 */
/* The C program of the start-up benchmark: hvd_init, a stamp (stamp.h), hvd_shutdown.
 * Any launcher that hvd_init supports can start it. With an argument it only writes the
 * stamp, as a task of Slurm: what a bare srun costs. */
#include <stdio.h>
#include <stdlib.h>

#include "hvd.h"
#include "tests/bench/stamp.h"

static int write_bare(void)
{
    const char *rank = getenv("SLURM_PROCID"), *size = getenv("SLURM_STEP_NUM_TASKS");

    return rank && size ? stamp_write(atoi(rank), atoi(size)) : 1;
}

int main(int argc, char **argv)
{
    int rc;

    (void)argv;
    if (argc > 1)
        return write_bare();
    if (hvd_init(NULL) != HVD_OK) {
        fprintf(stderr, "hvd_init: %s\n", hvd_last_error());
        return 1;
    }
    rc = stamp_write(hvd_rank(), hvd_size());
    (void)hvd_shutdown(); /* bounded; the figure is out */
    return rc;
}
