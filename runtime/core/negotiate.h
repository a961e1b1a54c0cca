/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's table of tensors by name: which ranks have submitted them, do they agree,
 * and which are ready on all ranks. Pure; time comes in as now_ns. One thread at a
 * time. */
#ifndef RUNTIME_CORE_NEGOTIATE_H
#define RUNTIME_CORE_NEGOTIATE_H

#include "runtime/core/message.h"

#define NEGOTIATE_MAX_PENDING                                                          \
    (1u << 20) /* names; a rank that invents more is refused */

struct negotiate;

int negotiate_new(uint32_t n_ranks, struct negotiate **ret);
void negotiate_free(struct negotiate *n); /* accepts NULL */

/* Rank `rank` has this tensor. A disagreement with an earlier rank is no error here: it
 * fails that one operation, on every rank, once all have submitted it. Errors break the
 * world: -EPROTO (the rank submitted the name twice, or is out of range), -E2BIG,
 * -ENOMEM. */
int negotiate_add(struct negotiate *n,
                  uint32_t rank,
                  const struct request *req,
                  uint64_t now_ns,
                  struct err *err);

size_t negotiate_ready(const struct negotiate *n);
size_t
negotiate_pending(const struct negotiate *n); /* submitted by some ranks, not by all */

/* Takes every ready tensor out of the table, in the order in which they became ready,
 * and appends their responses to out (message_begin included), fused up to limit_bytes.
 * *ret_n: how many; with 0 nothing is written. -ENOMEM, -E2BIG: out holds nonsense, the
 * world is to be broken. */
int negotiate_write(struct negotiate *n,
                    uint64_t limit_bytes,
                    struct strbuf *out,
                    size_t *ret_n);

/* Walks pending tensors from the oldest to the newest; fn returns false to stop. */
struct negotiate_view {
    const char *name;
    enum collective coll;
    uint64_t since_ns;
    uint32_t n_ranks, n_seen;
    const uint8_t *seen; /* bit r: rank r has submitted it */
};
typedef bool (*negotiate_walk_fn)(void *arg, const struct negotiate_view *v);
void negotiate_walk(const struct negotiate *n, negotiate_walk_fn fn, void *arg);

static inline bool negotiate_has_seen(const uint8_t *seen, uint32_t rank)
{
    return seen[rank / 8] >> (rank % 8) & 1;
}

#endif
