/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun -H. */
#include "tests/fuzz/fuzz_hostlist.h"

FUZZ_TARGET(hosts)
{
    fuzz_hostlist(data, n, hostlist_parse_hosts, hostlist_render_hosts);
    return 0;
}
