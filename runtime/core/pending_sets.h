/* SPDX-License-Identifier: Apache-2.0 */
/* Process sets and pairs of the pending tensors. Used by pending.c only. Pure. */
#ifndef RUNTIME_CORE_PENDING_SETS_H
#define RUNTIME_CORE_PENDING_SETS_H

#include "runtime/core/pending.h"

struct rank_set *pendings_find_set(const struct pendings *t,
                                   uint32_t id); /* NULL: none */
/* ranks NULL: all ranks; else takes ownership, also on failure. 0, -ENOMEM. */
int pendings_add_set(struct pendings *t,
                     uint32_t id,
                     uint32_t *ranks,
                     uint32_t n,
                     enum set_callers callers);
int pendings_add_pair(struct pendings *t, uint32_t id); /* 0, -ENOMEM */
void pendings_release_sets(struct pendings *t);

#endif
