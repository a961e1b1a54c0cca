/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous frames as values, shared by server.c, client.c and the fuzzer. Every
 * length from outside is checked before it is used: a header before its payload is
 * allocated, and a payload is not used before its MAC is verified. */
#include "runtime/rendezvous/rdv_wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/wire/bytes.h"

void rdv_header(enum rdv_type type, uint32_t length, uint8_t ret[RDV_HEADER_BYTES])
{
    memset(ret, 0, RDV_HEADER_BYTES);
    ret[0] = (uint8_t)type;
    bytes_store_u32(ret + 4, length);
}

static int header_check(const uint8_t *h,
                        uint64_t min,
                        uint64_t max,
                        enum rdv_type *ret_type,
                        uint32_t *ret_length,
                        struct err *err)
{
    uint32_t length = bytes_load_u32(h + 4);

    if (h[1] || h[2] || h[3])
        return err_set(err, -EPROTO, "rendezvous frame has a bad header");
    if (length < min || length > max)
        return err_set(
            err, -EPROTO,
            "rendezvous frame of type %u has %u bytes, allowed are %llu to %llu", h[0],
            length, (unsigned long long)min, (unsigned long long)max);
    *ret_type = (enum rdv_type)h[0];
    *ret_length = length;
    return 0;
}

static int bad_type(const uint8_t *h, struct err *err)
{
    return err_set(err, -EPROTO, "rendezvous frame of unexpected type %u", h[0]);
}

int rdv_header_from_member(const uint8_t h[RDV_HEADER_BYTES],
                           enum rdv_type *ret_type,
                           uint32_t *ret_length,
                           struct err *err)
{
    if (h[0] == RDV_JOIN)
        return header_check(h, 8, 8 + 4 * (uint64_t)WORLD_MAX_RANKS, ret_type,
                            ret_length, err);
    if (h[0] == RDV_PUT)
        return header_check(h, 8, 8 + RDV_MAX_BLOB_BYTES, ret_type, ret_length, err);
    return bad_type(h, err);
}

int rdv_header_from_server(const uint8_t h[RDV_HEADER_BYTES],
                           uint32_t size,
                           enum rdv_type *ret_type,
                           uint32_t *ret_length,
                           struct err *err)
{
    if (h[0] == RDV_WELCOME)
        return header_check(h, 0, 0, ret_type, ret_length, err);
    if (h[0] == RDV_ALL)
        return header_check(h, 8 + (uint64_t)size * 4,
                            8 + (uint64_t)size * 4 + RDV_MAX_ROUND_BYTES, ret_type,
                            ret_length, err);
    if (h[0] == RDV_REFUSED)
        return header_check(h, 4, 4 + RDV_MAX_TEXT_BYTES, ret_type, ret_length, err);
    return bad_type(h, err);
}

static void frame_mac(const uint8_t key[32],
                      uint64_t sequence,
                      const uint8_t *h,
                      const uint8_t *digest,
                      uint8_t ret[RDV_MAC_BYTES])
{
    struct hmac m;
    uint8_t seq[8];

    bytes_store(seq, sequence, sizeof(seq));
    hmac_init(&m, key, 32);
    hmac_add(&m, seq, sizeof(seq));
    hmac_add(&m, h, RDV_HEADER_BYTES);
    hmac_add(&m, digest, SHA256_BYTES);
    hmac_end(&m, ret);
}

void rdv_mac_send(struct auth_session *s,
                  const uint8_t h[RDV_HEADER_BYTES],
                  const uint8_t digest[SHA256_BYTES],
                  uint8_t ret[RDV_MAC_BYTES])
{
    frame_mac(s->send_key, s->n_sent++, h, digest, ret);
}

int rdv_mac_check(struct auth_session *s,
                  const uint8_t h[RDV_HEADER_BYTES],
                  const void *payload,
                  uint32_t n,
                  const uint8_t mac[RDV_MAC_BYTES],
                  struct err *err)
{
    uint8_t digest[SHA256_BYTES], want[RDV_MAC_BYTES];

    sha256_digest(payload, n, digest);
    frame_mac(s->recv_key, s->n_received, h, digest, want);
    if (!mac_equal(want, mac))
        return err_set(err, -EPROTO, "rendezvous frame has a wrong MAC");
    s->n_received++;
    return 0;
}

int rdv_join_parse(const uint8_t *p, uint32_t n, struct rdv_join *ret, struct err *err)
{
    if (n < 8 || n % 4 != 0)
        return err_set(err, -EPROTO, "JOIN has %u bytes, not 8 and 4 for each rank", n);
    *ret =
        (struct rdv_join){bytes_load_u32(p), bytes_load_u32(p + 4), n / 4 - 2, p + 8};
    return 0;
}

int rdv_put_parse(const uint8_t *p, uint32_t n, struct rdv_put *ret, struct err *err)
{
    if (n < 8 || n > 8 + RDV_MAX_BLOB_BYTES)
        return err_set(err, -EPROTO, "PUT has %u bytes", n);
    ret->round = bytes_load_u32(p);
    ret->wait_ms = bytes_load_u32(p + 4);
    ret->blob = p + 8;
    ret->n = n - 8;
    return 0;
}

int rdv_all_parse(uint8_t *p,
                  uint32_t n,
                  uint32_t round,
                  uint32_t size,
                  uint8_t **ret_blobs,
                  uint32_t *ret_sizes,
                  struct err *err)
{
    uint64_t at = 8 + (uint64_t)size * 4;

    if (n < at)
        return err_set(err, -EPROTO, "ALL has %u bytes for %u ranks", n, size);
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

int rdv_refused_parse(const uint8_t *p, uint32_t n, struct err *err)
{
    char text[RDV_MAX_TEXT_BYTES + 1];
    int code = -EPROTO;

    if (n < 4 || n > 4 + RDV_MAX_TEXT_BYTES)
        return err_set(err, -EPROTO, "REFUSED has %u bytes", n);
    for (uint32_t i = 4; i < n; i++) {
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
