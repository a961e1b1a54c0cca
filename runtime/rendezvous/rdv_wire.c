/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous messages as values, shared by server.c, client.c and the fuzzer. Every
 * length from outside is checked before it is used. */
#include "runtime/rendezvous/rdv_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/wire/bytes.h"

int rdv_join_parse(const uint8_t *p, size_t n, struct rdv_join *ret, struct err *err)
{
    if (n < 8 || n % 4 != 0 || n / 4 - 2 > WORLD_MAX_RANKS)
        return err_set(err, -EPROTO, "JOIN has %zu bytes, not 8 and 4 for each rank",
                       n);
    *ret = (struct rdv_join){bytes_load_u32(p), bytes_load_u32(p + 4),
                             (uint32_t)(n / 4 - 2), p + 8};
    return 0;
}

int rdv_put_parse(const uint8_t *p, size_t n, struct rdv_put *ret, struct err *err)
{
    if (n < 8 || n > 8 + RDV_MAX_BLOB_BYTES)
        return err_set(err, -EPROTO, "PUT has %zu bytes", n);
    ret->round = bytes_load_u32(p);
    ret->wait_ms = bytes_load_u32(p + 4);
    ret->blob = p + 8;
    ret->n = (uint32_t)(n - 8);
    return 0;
}

int rdv_all_parse(uint8_t *p,
                  size_t n,
                  uint32_t round,
                  uint32_t size,
                  uint8_t **ret_blobs,
                  uint32_t *ret_sizes,
                  struct err *err)
{
    uint64_t at = 8 + (uint64_t)size * 4;

    if (n < at)
        return err_set(err, -EPROTO, "ALL has %zu bytes for %u ranks", n, size);
    if (bytes_load_u32(p) != round || bytes_load_u32(p + 4) != size)
        return err_set(
            err, -EPROTO,
            "ALL is of round %u with %u ranks, expected was round %u with %u",
            bytes_load_u32(p), bytes_load_u32(p + 4), round, size);
    for (uint32_t i = 0; i < size; i++) {
        uint32_t k = bytes_load_u32(p + 8 + (size_t)i * 4);

        if (k > RDV_MAX_BLOB_BYTES || at + k > n)
            return err_set(err, -EPROTO, "ALL ends inside the blob of rank %u", i);
        ret_blobs[i] = p + at;
        ret_sizes[i] = k;
        at += k;
    }
    if (at != n)
        return err_set(err, -EPROTO, "ALL has bytes after its last blob");
    return 0;
}

int rdv_refused_parse(const uint8_t *p, size_t n, struct err *err)
{
    char text[RDV_MAX_TEXT_BYTES + 1];
    int code = -EPROTO;

    if (n < 4 || n > 4 + RDV_MAX_TEXT_BYTES)
        return err_set(err, -EPROTO, "REFUSED has %zu bytes", n);
    for (size_t i = 4; i < n; i++) {
        uint8_t c = p[i];

        text[i - 4] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
    }
    text[n - 4] = '\0';
    switch (bytes_load_u32(p)) {
    case RDV_CODE_INVALID:
        code = -EINVAL;
        break;
    case RDV_CODE_CANCELED:
        code = -ECANCELED;
        break;
    case RDV_CODE_TIMEOUT:
        code = -ETIMEDOUT;
        break;
    case RDV_CODE_STALE:
        code = -ESTALE;
        break;
    default: /* a number from outside, not our enum */
        break;
    }
    return err_set(err, code, "%s", text);
}
