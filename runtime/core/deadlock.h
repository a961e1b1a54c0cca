/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that wait only for each other. Pure. */
#ifndef RUNTIME_CORE_DEADLOCK_H
#define RUNTIME_CORE_DEADLOCK_H

#include "runtime/base/strbuf.h"
#include "runtime/core/negotiate.h"

struct deadlock_wait {
    uint32_t rank, for_rank; /* both are in the deadlock */
    struct negotiate_view tensor;
};

struct deadlock {
    uint32_t n_ranks;           /* 0: there is none */
    uint64_t since_ns;          /* nothing has changed for these ranks since then */
    bool has_transfer;          /* one of their tensors is a transfer or a probe */
    struct deadlock_wait of[2]; /* two examples: of[1].rank is of[0].for_rank */
};

/* ret is valid until the next request or answer. Gives up, as if there were none, where
 * the search would delay rank 0. 0, -ENOMEM. */
int deadlock_find(const struct negotiate *n, struct deadlock *ret);

/* Appends one sentence: two ranks, the tensors in which they wait, and the usual causes. */
void deadlock_put(const struct deadlock *d, struct strbuf *out);

#endif
