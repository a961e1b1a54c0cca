/* SPDX-License-Identifier: Apache-2.0 */
/* The channel by which a foreign launcher transports a few bytes between ranks. One
 * implementation per kind: pmi.c, pmix.c. Called by bootstrap.c only, by one thread at
 * a time. */
#ifndef RUNTIME_BOOTSTRAP_CARRIER_H
#define RUNTIME_BOOTSTRAP_CARRIER_H

#include "runtime/contract/contract.h"

struct carrier {
    const struct carrier_ops *ops;
    uint32_t rank, size; /* as reported by the channel */
    char job[JOB_ID_MAX];
};

struct carrier_ops {
    /* -ENOENT: it cannot be used in this process (no library, no server), and nothing
     * was sent on it. */
    int (*open)(const struct contract *c,
                uint64_t deadline_ns,
                struct carrier **ret,
                struct err *err);
    /* One value of this rank, at most CARD_MAX_BYTES, printable and without blanks.
     * Once per process. */
    int (*put)(struct carrier *ch,
               const char *value,
               uint64_t deadline_ns,
               struct err *err);
    /* Returns when all ranks have put and called it. */
    int (*fence)(struct carrier *ch, uint64_t deadline_ns, struct err *err);
    int (*get)(struct carrier *ch, /* what that rank has put */
               uint32_t rank,
               char *ret,
               size_t size_bytes,
               uint64_t deadline_ns,
               struct err *err);
    /* This process does not use the launcher any more. Called at its normal exit;
     * otherwise the launcher takes the exit for a crash and kills the other ranks.
     * Bounded. Frees. */
    void (*finish)(struct carrier *ch);
};
extern const struct carrier_ops carrier_pmi, carrier_pmix;

#endif
