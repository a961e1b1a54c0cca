/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs {lo, hi} are numbered by hi, then by lo: 0-1, 0-2, 1-2, 0-3, ... The numbers do
 * not depend on the size of the world, and those of 65536 ranks fit into 31 bits.
 * Called by message.c, pending.c and member.c, and by api/ where a transfer is
 * submitted and its communicator is created. */
#include "runtime/core/pair.h"

#include <stdio.h>
#include <string.h>

static uint32_t pair_first_number(uint32_t hi)
{
    return (uint32_t)((uint64_t)hi * (hi - 1) / 2);
}

uint32_t pair_of(uint32_t a, uint32_t b)
{
    return PAIR_BIT | (a < b ? pair_first_number(b) + a : pair_first_number(a) + b);
}

void pair_ranks(uint32_t pair, uint32_t ret[2])
{
    uint32_t number = pair & ~PAIR_BIT, low = 1, high = PAIR_MAX_RANKS;

    while (low < high) { /* the largest hi whose first pair is not above number */
        uint32_t mid = high - (high - low) / 2;

        if (pair_first_number(mid) <= number)
            low = mid;
        else
            high = mid - 1;
    }
    ret[0] = number - pair_first_number(low);
    ret[1] = low;
}

bool pair_has(uint32_t set, uint32_t rank)
{
    uint32_t ranks[2];

    if (!pair_is(set))
        return false;
    pair_ranks(set, ranks);
    return rank == ranks[0] || rank == ranks[1];
}

#define DIRECTION_MAX sizeof(" (4294967295 -> 4294967295)")

static size_t pair_direction_text(uint32_t src, uint32_t dst, char ret[DIRECTION_MAX])
{
    return (size_t)snprintf(ret, DIRECTION_MAX, " (%u -> %u)", src, dst);
}

size_t pair_name_max(uint32_t src, uint32_t dst)
{
    char text[DIRECTION_MAX];

    return TENSOR_NAME_MAX - 1 - pair_direction_text(src, dst, text);
}

bool pair_name(const char *name, uint32_t src, uint32_t dst, char ret[TENSOR_NAME_MAX])
{
    char text[DIRECTION_MAX];
    size_t n = strlen(name), n_text = pair_direction_text(src, dst, text);

    if (n + n_text >= TENSOR_NAME_MAX)
        return false;
    memcpy(ret, name, n);
    memcpy(ret + n, text, n_text + 1);
    return true;
}

static size_t pair_probe_text(uint32_t dst, char ret[DIRECTION_MAX])
{
    return (size_t)snprintf(ret, DIRECTION_MAX, " (any -> %u)", dst);
}

bool pair_probe_name(const char *name, uint32_t dst, char ret[TENSOR_NAME_MAX])
{
    char text[DIRECTION_MAX];
    size_t n = strlen(name), n_text;

    if (n > pair_name_max(PAIR_MAX_RANKS - 1, dst))
        return false; /* every send must have room for its direction */
    n_text = pair_probe_text(dst, text);
    memcpy(ret, name, n);
    memcpy(ret + n, text, n_text + 1);
    return true;
}

bool pair_is_probed(const char *probe, const char *sent, uint32_t src, uint32_t dst)
{
    char text[DIRECTION_MAX];
    size_t n = strlen(probe), n_text = pair_probe_text(dst, text);

    if (n < n_text || strcmp(probe + n - n_text, text) != 0
        || strncmp(probe, sent, n - n_text) != 0)
        return false;
    (void)pair_direction_text(src, dst, text);
    return strcmp(sent + n - n_text, text) == 0;
}
