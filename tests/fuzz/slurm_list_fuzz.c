/* SPDX-License-Identifier: Apache-2.0 */
/* SLURM_STEP_NODELIST. */
#include "tests/fuzz/fuzz_hostlist.h"

FUZZ_TARGET(slurm_list)
{
    fuzz_hostlist(data, n, hostlist_parse_slurm, NULL);
    return 0;
}
