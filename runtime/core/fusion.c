/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy, in order, without look-ahead: tensors become ready in the order of the
 * backward pass, and a tensor that is skipped would wait for a batch that may never
 * fill. Called by negotiate.c when it writes answers, and by member.c in a plan. */
#include "runtime/core/fusion.h"

#include <string.h>

enum { MAX_TENSORS = 4096 }; /* bounds the work inside one batch */

/* Allgather and the like have a different size on every rank. */
bool fusion_is_possible(const struct tensor_request *a)
{
    return a->coll == COLL_ALLREDUCE || a->coll == COLL_BROADCAST
           || a->coll == COLL_REDUCE || a->coll == COLL_SENDRECV;
}

static bool request_fits_batch(const struct tensor_request *a,
                               const struct tensor_request *b,
                               const struct fusion_limit *limit)
{
    return a->coll == b->coll && a->place == b->place && a->dtype == b->dtype
           && a->op == b->op && a->root == b->root && a->process_set == b->process_set
           && a->region == b->region
           && (!limit->is_groups_apart || a->group == b->group)
           && strcmp(a->codec, b->codec) == 0 && request_same_scales(a, b);
}

size_t fusion_take(const struct tensor_request *const *v,
                   size_t n,
                   const struct fusion_limit *limit)
{
    uint64_t sum = 0, bytes;
    size_t i;

    for (i = 0; i < n && i < MAX_TENSORS; i++) {
        if (request_size(v[i], NULL, &bytes, NULL) < 0)
            break;
        if (i > 0
            && (!request_fits_batch(v[0], v[i], limit) || bytes > limit->bytes - sum))
            break;
        if (!fusion_is_possible(v[i]) || bytes > limit->bytes || limit->bytes == 0) {
            i++;
            break;
        }
        sum += bytes;
    }
    return i == 0 && n > 0 ? 1 : i;
}
