/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the rendezvous in both directions: the first byte is the type, the rest the
 * payload. */
#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/rendezvous/rdv_wire.h"
#include "tests/fuzz/fuzz.h"

#define SIZE 3

static void from_server(uint8_t type, uint8_t *p, size_t n)
{
    uint8_t *blobs[SIZE];
    uint32_t sizes[SIZE];
    struct rdv_refused refused;
    struct rdv_redirect to;
    uint32_t place, pass;

    if (type == RDV_REFUSED && rdv_refused_parse(p, n, &refused, NULL) == 0)
        for (const char *s = refused.why.text; *s; s++)
            MUST((unsigned char)*s >= 0x20);
    if (type == RDV_WELCOME && rdv_welcome_parse(p, n, &place, &pass, NULL) == 0)
        MUST(n == 8);
    if (type == RDV_REDIRECT && rdv_redirect_parse(p, n, &to, NULL) == 0)
        MUST(to.port > 0 && to.addr[0] && strlen(to.addr) < n);
    if (type == RDV_ALL && rdv_all_parse(p, n, 0, SIZE, blobs, sizes, NULL) == 0)
        for (uint32_t i = 0; i < SIZE; i++)
            MUST(blobs[i] >= p && blobs[i] + sizes[i] <= p + n);
}

static void from_member(uint8_t type, const uint8_t *p, size_t n)
{
    struct rdv_put put;
    struct rdv_join join;
    struct rdv_enter enter;
    uint32_t place;

    if (type == RDV_ENTER && rdv_enter_parse(p, n, &enter, NULL) == 0)
        MUST(enter.place < enter.size);
    if (type == RDV_LEFT && rdv_left_parse(p, n, &place, NULL) == 0)
        MUST(n == 4);
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
