/* SPDX-License-Identifier: Apache-2.0 */
/* SLURM_STEP_NODELIST. */
#include "tests/fuzz/fuzz_hostlist.h"

FUZZ_TARGET(slurm_list)
{
    char *text = fuzz_text(data, n);

    fuzz_hostlist(text, hostlist_parse_slurm, NULL);
    free(text);
    return 0;
}
