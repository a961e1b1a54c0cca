/* SPDX-License-Identifier: Apache-2.0 */
/* A list of ranks that forms its own world: hvd_config.ranks, Python's init(comm=...).
 * Pure. */
#ifndef RUNTIME_RENDEZVOUS_RANKS_H
#define RUNTIME_RENDEZVOUS_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

/* -EINVAL with an error message: a rank that is not below size, a duplicate, or a list
 * without `rank`, this process. -ENOMEM. */
int rdv_ranks_check(
    const uint32_t *ranks, uint32_t n, uint32_t rank, uint32_t size, struct err *err);
/* "[0, 2, 4-7]", or "[0, 2, ... 93 more]" where it does not fit. size_bytes: at least
 * 40. */
void rdv_ranks_text(const uint32_t *ranks, uint32_t n, char *ret, size_t size_bytes);

#endif
