/* SPDX-License-Identifier: Apache-2.0 */
/* A hostfile. */
#include "tests/fuzz/fuzz_hostlist.h"

FUZZ_TARGET(hostfile)
{
    fuzz_hostlist(data, n, hostlist_parse_hostfile, hostlist_render_hostfile);
    return 0;
}
