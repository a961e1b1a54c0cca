/* SPDX-License-Identifier: Apache-2.0 */
/* Called by node_facts.c for hvd-slurm-check, and by the Slurm plugin. */
#include "runtime/launch/core/memlock.h"

#include <errno.h>
#include <stdlib.h>

#define NEEDED_BYTES (64ull << 20) /* buffers that are registered are locked */

int memlock_check(uint64_t n_rdma, uint64_t limit_bytes, struct err *err)
{
    if (n_rdma == 0 || limit_bytes >= NEEDED_BYTES)
        return 0;
    return err_set(err, -ENOBUFS,
                   "the limit of locked memory is %llu KiB, too low for its RDMA "
                   "devices: slurmd needs LimitMEMLOCK=infinity, and slurm.conf "
                   "PropagateResourceLimitsExcept=MEMLOCK",
                   (unsigned long long)limit_bytes / 1024);
}

uint64_t memlock_of_task(const char *sent, uint64_t soft_bytes, uint64_t hard_bytes)
{
    unsigned long long value;
    char *end;

    if (!sent)
        return soft_bytes;
    sent += *sent == 'U'; /* the user's own --propagate */
    errno = 0;
    value = strtoull(sent, &end, 10);
    return errno || end == sent || *end || value > hard_bytes ? soft_bytes : value;
}
