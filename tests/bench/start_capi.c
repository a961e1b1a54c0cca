/* SPDX-License-Identifier: Apache-2.0 */
/* The C program of the start-up benchmark: hvd_init, a stamp (stamp.h), hvd_shutdown.
 * Any launcher that hvd_init supports can start it. */
#include <stdio.h>

#include "hvd.h"
#include "tests/bench/stamp.h"

int main(void)
{
    int rc;

    if (hvd_init(NULL) != HVD_OK) {
        fprintf(stderr, "hvd_init: %s\n", hvd_last_error());
        return 1;
    }
    rc = stamp_write(hvd_rank(), hvd_size());
    (void)hvd_shutdown(); /* bounded; the figure is out */
    return rc;
}
