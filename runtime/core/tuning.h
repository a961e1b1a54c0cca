/* SPDX-License-Identifier: Apache-2.0 */
/* The settings that may change while a world works, and that change for all ranks at
 * one place of the stream of answers. None of them changes a result: the order of a sum
 * does not depend on them. Whoever chooses them is core/tune.h, or a user's variable.
 */
#ifndef RUNTIME_CORE_TUNING_H
#define RUNTIME_CORE_TUNING_H

#include <stdint.h>

#define TUNING_GATHER_MAX_NS 10000000000ull

struct tuning {
    uint64_t fusion_bytes; /* bound of a batch; 0: no fusion */
    uint64_t gather_ns;    /* how long a tensor waits for others to be fused with */
    /* Of the backend, which takes its own value for 0, and for what it cannot do. */
    uint64_t whole_bytes; /* TCP: up to here everyone sends all; above: parts */
    uint64_t chunk_bytes; /* TCP: what is summed while the next one is on its way */
};

#endif
