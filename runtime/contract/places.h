/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: which rank runs where, as Horovod defines it: hosts in order, slots filled
 * host by host; local_rank counts on one host, cross_rank counts the hosts that have
 * this local_rank. */
#ifndef RUNTIME_CONTRACT_PLACES_H
#define RUNTIME_CONTRACT_PLACES_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/hostlist.h"

#define WORLD_MAX_RANKS 1048576

struct place {
    uint32_t rank, size, local_rank, local_size, cross_rank, cross_size;
    uint32_t host; /* index in the host list */
};

/* Fills ret[0..np) from the first np slots; np == 0 means all slots. -EINVAL: the hosts
 * have fewer than np slots (the error message has both numbers), or no slots. */
int places_assign(const struct hostlist *hosts,
                  uint32_t np,
                  struct place *ret,
                  struct err *err);
/* The place of the local_rank-th process on host h, without filling the whole table. */
int places_at(const struct hostlist *hosts,
              uint32_t np,
              size_t h,
              uint32_t local_rank,
              struct place *ret,
              struct err *err);
/* Checks ranges (rank < size, ...); the error message names the two fields that
 * contradict. */
int place_check(const struct place *p, struct err *err);
/* The same with the names of the user's variables ("WORLD_SIZE" instead of "size"). */
struct place_names {
    const char *rank, *size, *local_rank, *local_size, *cross_rank, *cross_size;
};
int place_check_named(const struct place *p,
                      const struct place_names *n,
                      struct err *err);

#endif
