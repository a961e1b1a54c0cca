/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the rendezvous in both directions: the first byte is the type, the rest the
 * payload. */
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/rendezvous/rdv_wire.h"
#include "tests/fuzz/fuzz.h"

#define SIZE 3

static void from_server(uint8_t type, uint8_t *p, size_t n)
{
    uint8_t *blobs[SIZE];
    uint32_t sizes[SIZE];
    struct err err = ERR_INIT;

    if (type == RDV_REFUSED && rdv_refused_parse(p, n, &err))
        for (const char *s = err.text; *s; s++)
            MUST((unsigned char)*s >= 0x20);
    if (type == RDV_ALL && rdv_all_parse(p, n, 0, SIZE, blobs, sizes, &err) == 0)
        for (uint32_t i = 0; i < SIZE; i++)
            MUST(blobs[i] >= p && blobs[i] + sizes[i] <= p + n);
}

static void from_member(uint8_t type, const uint8_t *p, size_t n)
{
    struct rdv_put put;
    struct rdv_join join;

    if (type == RDV_JOIN && rdv_join_parse(p, n, &join, NULL) == 0)
        MUST(join.part >= p && join.part + 4 * (size_t)join.n_part == p + n);
    if (type == RDV_PUT && rdv_put_parse(p, n, &put, NULL) == 0)
        MUST(put.blob >= p && put.blob + put.n <= p + n);
}

FUZZ_TARGET(frames)
{
    if (n < 1)
        return 0;
    uint8_t *p = (uint8_t *)fuzz_text(data + 1, n - 1);
    from_member(data[0], p, n - 1);
    from_server(data[0], p, n - 1);
    free(p);
    return 0;
}
