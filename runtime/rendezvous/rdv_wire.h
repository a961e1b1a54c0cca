/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a member and the rendezvous server, or a relay between the two, in
 * frames of wire/frame.h. Pure.
 *
 *   type      payload                            direction
 *   JOIN      rank:4 size:4 round:4 port:4       member -> server, the first frame
 *             lost:4 lost_port:4 part:4*n
 *   WELCOME   place:4 pass:4                     answer to JOIN or ENTER
 *   REDIRECT  place:4 pass:4 relay:4 depth:4     server -> member, answer to JOIN: connect
 *             port:4 address                     to this member instead
 *   ENTER     place:4 pass:4 size:4              member -> relay, the first frame; and up
 *   LEFT      place:4                            relay, up: it has lost this member
 *   PUT       place:4 round:4 wait_ms:4 blob     member, up
 *   ALL       round:4 count:4 size:4*count       down to all, the answer to PUT
 *             blobs
 *   REFUSED   place:4 pass:4 code:4 message      down to one, an answer to JOIN or PUT;
 *                                              without a place to all on the connection
 *
 *   place      of the member in its world
 *   pass       number of its JOIN among those of its world: a later process of the same
 *              rank, or a later connection, has another one
 *   round      the first one that it takes part in
 *   port       at which it relays; 0: it does not
 *   depth      relays between the member and the server
 *   lost       place of the relay that it has lost, with its port; RDV_NO_PLACE: none
 *   part       the ranks of the member's world in their order; absent: all ranks
 *   wait_ms    0xffffffff: no deadline */
#ifndef RUNTIME_RENDEZVOUS_RDV_WIRE_H
#define RUNTIME_RENDEZVOUS_RDV_WIRE_H

#include "runtime/base/sha256.h"
#include "runtime/rendezvous/rendezvous.h"

#define RDV_MAX_ROUND_BYTES  (256u << 20) /* all blobs of one round together */
#define RDV_MAX_TEXT_BYTES   400
#define RDV_WAIT_FOREVER     UINT32_MAX
#define RDV_DIRECT_MAX       16 /* members of a world without relays */
#define RDV_NO_PLACE         UINT32_MAX
/* Bytes of the largest payload to the server, and to a member of a world of n. */
#define RDV_TO_SERVER_MAX    (24 + 4 * (size_t)WORLD_MAX_RANKS)
#define RDV_TO_MEMBER_MAX(n) (8 + 4 * (size_t)(n) + RDV_MAX_ROUND_BYTES)

enum rdv_type {
    RDV_JOIN = 1,
    RDV_WELCOME,
    RDV_REDIRECT,
    RDV_ENTER,
    RDV_LEFT,
    RDV_PUT,
    RDV_ALL,
    RDV_REFUSED
};
enum rdv_code {
    RDV_CODE_INVALID = 1,
    RDV_CODE_CANCELED,
    RDV_CODE_TIMEOUT,
    RDV_CODE_STALE
};

struct rdv_join {
    uint32_t rank, size, round;
    uint16_t port, lost_port;
    uint32_t lost;
    uint32_t n_part;     /* 0: all */
    const uint8_t *part; /* into the payload; 4 bytes each */
};
struct rdv_redirect {
    uint32_t place, pass, relay, depth;
    uint16_t port;
    char addr[64];
};
struct rdv_enter {
    uint32_t place, pass, size;
};
struct rdv_put {
    uint32_t place, round, wait_ms;
    const uint8_t *blob; /* into the payload */
    uint32_t n;
};
struct rdv_refused {
    uint32_t place, pass;
    struct err why; /* with the errno of the code */
};
#define RDV_JOIN_BYTES    24 /* without a part */
#define RDV_ENTER_BYTES   12
#define RDV_PUT_BYTES     12 /* without the blob */
#define RDV_REFUSED_BYTES 12 /* without the message */
/* -EPROTO with a sentence, all of them. */
int rdv_join_parse(const uint8_t *p, size_t n, struct rdv_join *ret, struct err *err);
void rdv_join_write(const struct rdv_join *join, uint8_t ret[RDV_JOIN_BYTES]);
int rdv_welcome_parse(const uint8_t *p,
                      size_t n,
                      uint32_t *ret_place,
                      uint32_t *ret_pass,
                      struct err *err);
int rdv_redirect_parse(const uint8_t *p,
                       size_t n,
                       struct rdv_redirect *ret,
                       struct err *err);
int rdv_enter_parse(const uint8_t *p, size_t n, struct rdv_enter *ret, struct err *err);
void rdv_enter_write(const struct rdv_enter *enter, uint8_t ret[RDV_ENTER_BYTES]);
int rdv_left_parse(const uint8_t *p, size_t n, uint32_t *ret_place, struct err *err);
int rdv_put_parse(const uint8_t *p, size_t n, struct rdv_put *ret, struct err *err);
/* Splits an ALL payload in place: blobs[i] point into p. */
int rdv_all_parse(uint8_t *p,
                  size_t n,
                  uint32_t round,
                  uint32_t size,
                  uint8_t **ret_blobs,
                  uint32_t *ret_sizes,
                  struct err *err);
/* Control characters of the message are replaced. */
int rdv_refused_parse(const uint8_t *p,
                      size_t n,
                      struct rdv_refused *ret,
                      struct err *err);

#endif
