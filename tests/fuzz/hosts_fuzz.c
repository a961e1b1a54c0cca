/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun -H. */
#include "tests/fuzz/fuzz_hostlist.h"

FUZZ_TARGET(hosts)
{
    char *text = fuzz_text(data, n);

    fuzz_hostlist(text, hostlist_parse_hosts, hostlist_render_hosts);
    free(text);
    return 0;
}
