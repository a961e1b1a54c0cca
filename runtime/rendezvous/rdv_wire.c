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
    if (n < RDV_JOIN_BYTES || n % 4 != 0 || (n - RDV_JOIN_BYTES) / 4 > WORLD_MAX_RANKS)
        return err_set(err, -EPROTO, "JOIN has %zu bytes, not %d and 4 for each rank",
                       n, RDV_JOIN_BYTES);
    if (bytes_load_u32(p + 12) > UINT16_MAX || bytes_load_u32(p + 20) > UINT16_MAX)
        return err_set(err, -EPROTO, "JOIN has a port above %u", UINT16_MAX);
    *ret = (struct rdv_join){
        .rank = bytes_load_u32(p),
        .size = bytes_load_u32(p + 4),
        .round = bytes_load_u32(p + 8),
        .port = (uint16_t)bytes_load_u32(p + 12),
        .lost = bytes_load_u32(p + 16),
        .lost_port = (uint16_t)bytes_load_u32(p + 20),
        .n_part = (uint32_t)((n - RDV_JOIN_BYTES) / 4),
        .part = p + RDV_JOIN_BYTES,
    };
    return 0;
}

void rdv_join_write(const struct rdv_join *join, uint8_t ret[RDV_JOIN_BYTES])
{
    bytes_store_u32(ret, join->rank);
    bytes_store_u32(ret + 4, join->size);
    bytes_store_u32(ret + 8, join->round);
    bytes_store_u32(ret + 12, join->port);
    bytes_store_u32(ret + 16, join->lost);
    bytes_store_u32(ret + 20, join->lost_port);
}

int rdv_welcome_parse(const uint8_t *p,
                      size_t n,
                      uint32_t *ret_place,
                      uint32_t *ret_pass,
                      struct err *err)
{
    if (n != 8)
        return err_set(err, -EPROTO, "WELCOME has %zu bytes", n);
    *ret_place = bytes_load_u32(p);
    *ret_pass = bytes_load_u32(p + 4);
    return 0;
}

int rdv_redirect_parse(const uint8_t *p,
                       size_t n,
                       struct rdv_redirect *ret,
                       struct err *err)
{
    struct bytes_reader in = {.p = p, .left = n};
    struct rdv_redirect r = {0};
    uint32_t port;

    r.place = bytes_u32(&in);
    r.pass = bytes_u32(&in);
    r.relay = bytes_u32(&in);
    r.depth = bytes_u32(&in);
    port = bytes_u32(&in);
    bytes_host(&in, r.addr, sizeof(r.addr));
    if (bytes_end(&in, "REDIRECT", err) < 0)
        return -EPROTO;
    if (port == 0 || port > UINT16_MAX || r.depth > WORLD_MAX_RANKS)
        return err_set(err, -EPROTO, "REDIRECT has port %u and depth %u", port,
                       r.depth);
    r.port = (uint16_t)port;
    *ret = r;
    return 0;
}

int rdv_enter_parse(const uint8_t *p, size_t n, struct rdv_enter *ret, struct err *err)
{
    if (n != RDV_ENTER_BYTES)
        return err_set(err, -EPROTO, "ENTER has %zu bytes", n);
    *ret = (struct rdv_enter){bytes_load_u32(p), bytes_load_u32(p + 4),
                              bytes_load_u32(p + 8)};
    if (ret->place >= ret->size)
        return err_set(err, -EPROTO, "ENTER has place %u in a world of %u", ret->place,
                       ret->size);
    return 0;
}

void rdv_enter_write(const struct rdv_enter *enter, uint8_t ret[RDV_ENTER_BYTES])
{
    bytes_store_u32(ret, enter->place);
    bytes_store_u32(ret + 4, enter->pass);
    bytes_store_u32(ret + 8, enter->size);
}

int rdv_left_parse(const uint8_t *p, size_t n, uint32_t *ret_place, struct err *err)
{
    if (n != 4)
        return err_set(err, -EPROTO, "LEFT has %zu bytes", n);
    *ret_place = bytes_load_u32(p);
    return 0;
}

int rdv_put_parse(const uint8_t *p, size_t n, struct rdv_put *ret, struct err *err)
{
    if (n < RDV_PUT_BYTES || n > RDV_PUT_BYTES + RDV_MAX_BLOB_BYTES)
        return err_set(err, -EPROTO, "PUT has %zu bytes", n);
    ret->place = bytes_load_u32(p);
    ret->round = bytes_load_u32(p + 4);
    ret->wait_ms = bytes_load_u32(p + 8);
    ret->blob = p + RDV_PUT_BYTES;
    ret->n = (uint32_t)(n - RDV_PUT_BYTES);
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

static int refused_errno(uint32_t code)
{
    switch (code) {
    case RDV_CODE_INVALID:
        return -EINVAL;
    case RDV_CODE_CANCELED:
        return -ECANCELED;
    case RDV_CODE_TIMEOUT:
        return -ETIMEDOUT;
    case RDV_CODE_STALE:
        return -ESTALE;
    default: /* a number from outside, not our enum */
        return -EPROTO;
    }
}

int rdv_refused_parse(const uint8_t *p,
                      size_t n,
                      struct rdv_refused *ret,
                      struct err *err)
{
    char text[RDV_MAX_TEXT_BYTES + 1];
    const size_t n_text = n - RDV_REFUSED_BYTES;

    if (n < RDV_REFUSED_BYTES || n > RDV_REFUSED_BYTES + RDV_MAX_TEXT_BYTES)
        return err_set(err, -EPROTO, "REFUSED has %zu bytes", n);
    for (size_t i = 0; i < n_text; i++) {
        uint8_t c = p[RDV_REFUSED_BYTES + i];

        text[i] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
    }
    text[n_text] = '\0';
    *ret =
        (struct rdv_refused){.place = bytes_load_u32(p), .pass = bytes_load_u32(p + 4)};
    (void)err_set(&ret->why, refused_errno(bytes_load_u32(p + 8)), "%s", text);
    return 0;
}
