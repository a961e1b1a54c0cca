/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a member and the rendezvous server, in frames of wire/frame.h. Pure.
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
 *   wait_ms  0xffffffff: no deadline */
#ifndef RUNTIME_RENDEZVOUS_RDV_WIRE_H
#define RUNTIME_RENDEZVOUS_RDV_WIRE_H

#include "runtime/base/sha256.h"
#include "runtime/rendezvous/rendezvous.h"

#define RDV_MAX_ROUND_BYTES  (256u << 20) /* all blobs of one round together */
#define RDV_MAX_TEXT_BYTES   400
#define RDV_WAIT_FOREVER     UINT32_MAX
/* Bytes of the largest payload to the server, and to a member of a world of n. */
#define RDV_TO_SERVER_MAX    (8 + 4 * (size_t)WORLD_MAX_RANKS)
#define RDV_TO_MEMBER_MAX(n) (8 + 4 * (size_t)(n) + RDV_MAX_ROUND_BYTES)

enum rdv_type { RDV_JOIN = 1, RDV_WELCOME, RDV_PUT, RDV_ALL, RDV_REFUSED };
enum rdv_code {
    RDV_CODE_INVALID = 1,
    RDV_CODE_CANCELED,
    RDV_CODE_TIMEOUT,
    RDV_CODE_STALE
};

struct rdv_put {
    uint32_t round, wait_ms;
    const uint8_t *blob; /* into the payload */
    uint32_t n;
};
struct rdv_join {
    uint32_t rank, size, n_part; /* n_part 0: all */
    const uint8_t *part;         /* into the payload; 4 bytes each */
};
int rdv_join_parse(const uint8_t *p, size_t n, struct rdv_join *ret, struct err *err);
int rdv_put_parse(const uint8_t *p, size_t n, struct rdv_put *ret, struct err *err);
/* Splits an ALL payload in place: blobs[i] point into p. */
int rdv_all_parse(uint8_t *p,
                  size_t n,
                  uint32_t round,
                  uint32_t size,
                  uint8_t **ret_blobs,
                  uint32_t *ret_sizes,
                  struct err *err);
/* REFUSED -> its errno, with the message in err (control characters replaced). */
int rdv_refused_parse(const uint8_t *p, size_t n, struct err *err);

#endif
