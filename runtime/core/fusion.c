/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy, in order, without look-ahead: the order of arrival is the order of the
 * backward pass, and a tensor that is skipped over would wait for a batch that may
 * never fill. Called by negotiate.c when it writes responses. */
#include "runtime/core/fusion.h"

enum { MAX_TENSORS = 4096 }; /* bounds the work inside one batch */

static bool fits(const struct request *a, const struct request *b)
{
    return b->coll == COLL_ALLREDUCE && a->dtype == b->dtype && a->op == b->op
           && a->process_set == b->process_set && request_same_scales(a, b);
}

size_t fusion_take(const struct request *const *v, size_t n, uint64_t limit_bytes)
{
    uint64_t sum = 0, bytes;
    size_t i;

    for (i = 0; i < n && i < MAX_TENSORS; i++) {
        if (request_size(v[i], NULL, &bytes, NULL) < 0)
            break;
        if (i > 0 && (!fits(v[0], v[i]) || bytes > limit_bytes - sum))
            break;
        if (v[i]->coll != COLL_ALLREDUCE || bytes > limit_bytes || limit_bytes == 0) {
            i++;
            break;
        }
        sum += bytes;
    }
    return i == 0 && n > 0 ? 1 : i;
}
