/* SPDX-License-Identifier: Apache-2.0 */
/* Finds NaNs and infinities in a tensor. Pure. */
#ifndef RUNTIME_CORE_NONFINITE_H
#define RUNTIME_CORE_NONFINITE_H

#include "runtime/core/types.h"

struct nonfinite {
    uint64_t at; /* index of the first one */
    bool is_nan; /* else: an infinity */
    uint64_t n;  /* how many there are */
};

/* Searches n elements at p, in any alignment. False: all are finite, as elements of
 * every type but f16, bf16, f32 and f64 are; *ret is unchanged. */
bool nonfinite_find(enum dtype t, const void *p, uint64_t n, struct nonfinite *ret);

#endif
