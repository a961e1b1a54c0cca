/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the rendezvous in both directions: 8 bytes of header, the rest is payload.
 */
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/rendezvous/rdv_wire.h"
#include "tests/fuzz/fuzz.h"

#define SIZE 3

static void from_server(enum rdv_type type, uint8_t *p, uint32_t n)
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

static void from_member(enum rdv_type type, const uint8_t *p, uint32_t n)
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
    enum rdv_type type;
    uint32_t length;
    struct err err = ERR_INIT;

    if (n < RDV_HEADER_BYTES)
        return 0;
    uint32_t rest = (uint32_t)(n - RDV_HEADER_BYTES);
    uint8_t *p = (uint8_t *)fuzz_text(data + RDV_HEADER_BYTES, rest);
    if (rdv_header_from_member(data, &type, &length, &err) == 0) {
        MUST(length <= 8 + RDV_MAX_BLOB_BYTES);
        from_member(type, p, rest);
    }
    if (rdv_header_from_server(data, SIZE, &type, &length, &err) == 0) {
        MUST(length <= 8 + SIZE * 4 + RDV_MAX_ROUND_BYTES);
        from_server(type, p, rest);
    }
    free(p);
    return 0;
}
