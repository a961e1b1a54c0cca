/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions behind "waiting for rank 1 of 2". A start of less than 10 s is normal
 * and shows nothing. */
#include "runtime/contract/waiting.h"

#include <stdio.h>

#include "runtime/base/clock.h"

static const uint64_t FIRST_NS = 10 * NS_PER_S, EVERY_NS = 60 * NS_PER_S;

uint64_t waiting_next_ns(uint64_t since_ns, uint64_t now_ns)
{
    const uint64_t first = since_ns + FIRST_NS;

    if (now_ns < first)
        return first;
    return first + ((now_ns - first) / EVERY_NS + 1) * EVERY_NS;
}

bool waiting_is_writer(uint32_t rank, uint32_t size, uint32_t first_missing)
{
    if (rank == 0)
        return first_missing > 0;
    if (first_missing > 0 && first_missing < size)
        return false;
    return (rank & (rank - 1)) == 0;
}

void waiting_text(uint32_t size, uint32_t first_missing, char *ret, size_t size_bytes)
{
    if (first_missing >= size)
        (void)snprintf(ret, size_bytes, "waiting for some of %u ranks", size);
    else
        (void)snprintf(ret, size_bytes, "waiting for rank %u of %u%s", first_missing,
                       size, size > 2 ? " (the first that is missing)" : "");
}
