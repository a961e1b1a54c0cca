/* SPDX-License-Identifier: Apache-2.0 */
/* What guards the sums and the replicas of a job: HVD_REPLICA_CHECK, HVD_REPLICA_ACTION
 * and HVD_REPLAY. Rank 0's are the world's. */
#ifndef RUNTIME_CORE_REPLICA_GUARD_H
#define RUNTIME_CORE_REPLICA_GUARD_H

#include <stdbool.h>
#include <stdint.h>

struct replica_guard {
    uint32_t check_steps; /* HVD_REPLICA_CHECK; 0: never */
    bool is_warning;      /* HVD_REPLICA_ACTION=warn */
    uint32_t first, last; /* HVD_REPLAY, steps from 1; 0, 0: none */
};

#endif
