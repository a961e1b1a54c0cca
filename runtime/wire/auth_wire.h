/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the handshake of auth.h as values: no socket, no clock, no randomness.
 * auth.c sends them as the client, accept.c as the server, and the fuzzer calls the
 * functions directly. Integers are little-endian.
 *
 *   hello  80  "HVD1" version:1 role:1 zero:2 number:4 job_hash:32 generation:4 nonce_c:32
 *   reply  76  "HVD1" version:1 role:1 status:1 zero:1 generation:4 nonce_s:32 mac_s:32
 *   proof  32  mac_c, or 32 zero bytes: the server's token is wrong */
#ifndef RUNTIME_WIRE_AUTH_WIRE_H
#define RUNTIME_WIRE_AUTH_WIRE_H

#include "runtime/wire/auth.h"

#define AUTH_NONCE_BYTES 32
#define AUTH_HELLO_BYTES 80
#define AUTH_REPLY_BYTES 76
#define AUTH_PROOF_BYTES 32

void auth_wire_hello(const struct auth_id *id,
                     enum auth_role mine,
                     uint32_t number,
                     const uint8_t nonce[AUTH_NONCE_BYTES],
                     uint8_t ret[AUTH_HELLO_BYTES]);
/* False if these n bytes are not the begin of a hello of this version: it is answered
 * without waiting for more. */
bool auth_wire_is_hello(const uint8_t *p, size_t n);
/* Role and number in a hello, which auth_wire_check authenticates. */
enum auth_role auth_wire_role(const uint8_t hello[AUTH_HELLO_BYTES]);
uint32_t auth_wire_number(const uint8_t hello[AUTH_HELLO_BYTES]);
/* Server: checks a hello. ret is the reply to send in any case. 0, or -ESTALE or
 * -EPROTO with err. */
int auth_wire_reply(const struct auth_id *id,
                    enum auth_role mine,
                    enum auth_role theirs,
                    const uint8_t hello[AUTH_HELLO_BYTES],
                    const uint8_t nonce[AUTH_NONCE_BYTES],
                    uint8_t ret[AUTH_REPLY_BYTES],
                    struct err *err);
/* Client: checks the reply to its hello. proof is to be sent after success and, as
 * zeros, after -EACCES; after other failures nothing is to be sent. */
int auth_wire_proof(const struct auth_id *id,
                    enum auth_role theirs,
                    const uint8_t hello[AUTH_HELLO_BYTES],
                    const uint8_t reply[AUTH_REPLY_BYTES],
                    uint8_t proof[AUTH_PROOF_BYTES],
                    struct err *err);
/* Server: checks the proof. 0 or -EACCES. */
int auth_wire_check(const struct auth_id *id,
                    const uint8_t hello[AUTH_HELLO_BYTES],
                    const uint8_t reply[AUTH_REPLY_BYTES],
                    const uint8_t proof[AUTH_PROOF_BYTES],
                    struct err *err);
void auth_wire_session(const struct auth_id *id,
                       const uint8_t hello[AUTH_HELLO_BYTES],
                       const uint8_t reply[AUTH_REPLY_BYTES],
                       bool is_server,
                       struct auth_session *ret);

#endif
