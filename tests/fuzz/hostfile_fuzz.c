/* SPDX-License-Identifier: Apache-2.0 */
/* A hostfile. */
#include "tests/fuzz/fuzz_hostlist.h"

FUZZ_TARGET(hostfile)
{
    char *text = fuzz_text(data, n);

    fuzz_hostlist(text, hostlist_parse_hostfile, hostlist_render_hostfile);
    free(text);
    return 0;
}
