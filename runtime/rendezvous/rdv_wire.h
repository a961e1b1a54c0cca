/* SPDX-License-Identifier: Apache-2.0 */
/* Frames between a member and the rendezvous server, after the handshake of auth.h.
 * Pure.
 *
 *   frame    type:1 zero:3 length:4 payload:length mac:32
 *   mac      HMAC(sender's session key, sequence:8 | type..length | SHA-256(payload))
 *
 *   type     payload                        direction
 *   JOIN     rank:4 size:4 part:4*n         member -> server, the first frame
 *   WELCOME  -                              server -> member, answer to JOIN
 *   PUT      round:4 wait_ms:4 blob         member -> server
 *   ALL      round:4 count:4 size:4*count   server -> member, answer to PUT
 *            blobs
 *   REFUSED  code:4 message                 server -> member, answer to JOIN or PUT
 *
 *   part     the ranks of the member's world in their order; absent: all ranks
 *   wait_ms  0xffffffff: no deadline
 *
 * The payload is hashed once for all members of a round, although their session keys
 * differ. */
#ifndef RUNTIME_RENDEZVOUS_RDV_WIRE_H
#define RUNTIME_RENDEZVOUS_RDV_WIRE_H

#include "runtime/base/sha256.h"
#include "runtime/rendezvous/rendezvous.h"

#define RDV_HEADER_BYTES    8
#define RDV_MAC_BYTES       SHA256_BYTES
#define RDV_MAX_ROUND_BYTES (256u << 20) /* all blobs of one round together */
#define RDV_MAX_TEXT_BYTES  400
#define RDV_WAIT_FOREVER    UINT32_MAX

enum rdv_type { RDV_JOIN = 1, RDV_WELCOME, RDV_PUT, RDV_ALL, RDV_REFUSED };
enum rdv_code {
    RDV_CODE_INVALID = 1,
    RDV_CODE_CANCELED,
    RDV_CODE_TIMEOUT,
    RDV_CODE_STALE
};

void rdv_header(enum rdv_type type, uint32_t length, uint8_t ret[RDV_HEADER_BYTES]);
/* Type and length, checked against what the member (or the server) may send.
 * -EPROTO. */
int rdv_header_from_member(const uint8_t h[RDV_HEADER_BYTES],
                           enum rdv_type *ret_type,
                           uint32_t *ret_length,
                           struct err *err);
int rdv_header_from_server(const uint8_t h[RDV_HEADER_BYTES],
                           uint32_t size,
                           enum rdv_type *ret_type,
                           uint32_t *ret_length,
                           struct err *err);

/* The MAC of the next frame in that direction; increments the sequence number. digest:
 * SHA-256 of the payload. */
void rdv_mac_send(struct auth_session *s,
                  const uint8_t h[RDV_HEADER_BYTES],
                  const uint8_t digest[SHA256_BYTES],
                  uint8_t ret[RDV_MAC_BYTES]);
int rdv_mac_check(struct auth_session *s,
                  const uint8_t h[RDV_HEADER_BYTES],
                  const void *payload,
                  uint32_t n,
                  const uint8_t mac[RDV_MAC_BYTES],
                  struct err *err);

struct rdv_put {
    uint32_t round, wait_ms;
    const uint8_t *blob; /* into the payload */
    uint32_t n;
};
struct rdv_join {
    uint32_t rank, size, n_part; /* n_part 0: all */
    const uint8_t *part;         /* into the payload; 4 bytes each */
};
int rdv_join_parse(const uint8_t *p, uint32_t n, struct rdv_join *ret, struct err *err);
int rdv_put_parse(const uint8_t *p, uint32_t n, struct rdv_put *ret, struct err *err);
/* Splits an ALL payload in place: blobs[i] point into p. */
int rdv_all_parse(uint8_t *p,
                  uint32_t n,
                  uint32_t round,
                  uint32_t size,
                  uint8_t **ret_blobs,
                  uint32_t *ret_sizes,
                  struct err *err);
/* REFUSED -> its errno, with the message in err (control characters replaced). */
int rdv_refused_parse(const uint8_t *p, uint32_t n, struct err *err);

#endif
