/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what is no finite number in a tensor. Pure. */
#ifndef RUNTIME_CORE_NONFINITE_H
#define RUNTIME_CORE_NONFINITE_H

#include "runtime/core/types.h"

struct nonfinite {
    uint64_t at; /* index of the first one */
    bool is_nan; /* else: an infinity */
    uint64_t n;  /* how many there are */
};

/* n elements at p, which need no alignment. False: all are finite, as those of every
 * type but f16, bf16, f32, f64 are; *ret is untouched then. */
bool nonfinite_find(enum dtype t, const void *p, uint64_t n, struct nonfinite *ret);

#endif
