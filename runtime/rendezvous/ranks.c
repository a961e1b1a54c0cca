/* SPDX-License-Identifier: Apache-2.0 */
/* A list of ranks, checked and printed. The client checks it before it connects, and
 * the server checks it again before it creates a world from a peer's data. */
#include "runtime/rendezvous/ranks.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "runtime/base/mem.h"

#define TAIL_BYTES 24 /* room for ", ... 1048576 more]" */

void rdv_ranks_text(const uint32_t *ranks, uint32_t n, char *ret, size_t size_bytes)
{
    size_t at = (size_t)snprintf(ret, size_bytes, "[");

    for (uint32_t i = 0; i < n;) {
        const char *comma = i ? ", " : "";
        uint32_t end = i;
        char one[32];

        while (end + 1 < n && ranks[end + 1] == ranks[end] + 1)
            end++;
        if (end < i + 2)
            end = i; /* at least three ranks are printed as a range */
        int k = end == i ? snprintf(one, sizeof(one), "%s%d", comma, (int)ranks[i])
                         : snprintf(one, sizeof(one), "%s%u-%u", comma, ranks[i],
                                    ranks[end]);
        if (at + (size_t)k + TAIL_BYTES > size_bytes) {
            (void)snprintf(ret + at, size_bytes - at, "%s... %u more]", comma, n - i);
            return;
        }
        at += (size_t)snprintf(ret + at, size_bytes - at, "%s", one);
        i = end + 1;
    }
    (void)snprintf(ret + at, size_bytes - at, "]"); /* TAIL_BYTES are left */
}

int rdv_ranks_check(
    const uint32_t *ranks, uint32_t n, uint32_t rank, uint32_t size, struct err *err)
{
    AUTOFREE bool *is_there = mem_calloc(size, sizeof(*is_there));
    char text[100];

    if (!is_there)
        return err_set(err, -ENOMEM, "out of memory for %u ranks", size);
    rdv_ranks_text(ranks, n, text, sizeof(text));
    for (uint32_t i = 0; i < n; i++) {
        if (ranks[i] >= size)
            return err_set(
                err, -EINVAL,
                "comm=%s: %d is not a rank of this job, which has %u ranks, 0 "
                "to %u",
                text, (int)ranks[i], size, size - 1);
        if (is_there[ranks[i]])
            return err_set(err, -EINVAL, "comm=%s: rank %u is listed twice", text,
                           ranks[i]);
        is_there[ranks[i]] = true;
    }
    if (!is_there[rank])
        return err_set(err, -EINVAL,
                       "comm=%s does not include this process, rank %u of %u: pass a "
                       "list that includes it, or do not call hvd.init() on it",
                       text, rank, size);
    return 0;
}
