/* SPDX-License-Identifier: Apache-2.0 */
/* The settings that may change while a world runs. They change on all ranks at one
 * position in the stream of answers. None of them changes results: the order of a sum
 * does not depend on them. core/tune.h or the user chooses them. */
#ifndef RUNTIME_CORE_TUNING_H
#define RUNTIME_CORE_TUNING_H

#include <stdint.h>

#define TUNING_GATHER_MAX_NS 10000000000ull

struct tuning {
    uint64_t fusion_bytes; /* bound of a batch; 0: no fusion */
    uint64_t gather_ns;    /* the gather window */
    /* Of the backend; 0: its own default. */
    uint64_t whole_bytes; /* TCP: up to this size every rank sends all; above: parts */
    uint64_t chunk_bytes; /* TCP: summed while the next chunk is received */
};

#endif
