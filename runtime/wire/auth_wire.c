/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of auth.h as pure functions over its three messages.
 *
 * Both MACs cover the whole hello and the reply up to its own MAC, and with them both
 * nonces, both roles, the job, the generation and the version. A label separates the
 * directions ("S", "C") and the session keys ("KS", "KC"), so that no MAC is valid in
 * another place. The server proves itself first: a client sends no proof to a peer that
 * does not have the token.
 *
 * A refusal (status other than OK) carries no MAC, because the refused peer may have
 * another key. A forged refusal can only close a connection, which anyone on the path
 * can do anyway. */
#include "runtime/wire/auth_wire.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/sha256.h"
#include "runtime/wire/bytes.h"

enum { AT_VERSION = 4, AT_ROLE = 5 };
enum { HELLO_NUMBER = 8, HELLO_JOB = 12, HELLO_GENERATION = 44, HELLO_NONCE = 48 };
enum { REPLY_STATUS = 6, REPLY_GENERATION = 8, REPLY_NONCE = 12, REPLY_MAC = 44 };
enum reply_status {
    REPLY_OK,
    REPLY_BAD_VERSION,
    REPLY_BAD_ROLE,
    REPLY_BAD_JOB,
    REPLY_BAD_GENERATION
};

static const uint8_t magic[4] = {'H', 'V', 'D', '1'};

static void transcript_mac(const struct auth_id *id,
                           const char *label,
                           const uint8_t *hello,
                           const uint8_t *reply,
                           uint8_t ret[SHA256_BYTES])
{
    struct hmac m;

    hmac_init(&m, id->token->key, sizeof(id->token->key));
    hmac_add(&m, label, strlen(label));
    hmac_add(&m, hello, AUTH_HELLO_BYTES);
    hmac_add(&m, reply, REPLY_MAC);
    hmac_end(&m, ret);
}

void auth_wire_hello(const struct auth_id *id,
                     enum auth_role mine,
                     uint32_t number,
                     const uint8_t nonce[AUTH_NONCE_BYTES],
                     uint8_t ret[AUTH_HELLO_BYTES])
{
    memset(ret, 0, AUTH_HELLO_BYTES);
    memcpy(ret, magic, sizeof(magic));
    ret[AT_VERSION] = AUTH_VERSION;
    ret[AT_ROLE] = (uint8_t)mine;
    bytes_store_u32(ret + HELLO_NUMBER, number);
    sha256_digest(id->job_id, strlen(id->job_id), ret + HELLO_JOB);
    bytes_store_u32(ret + HELLO_GENERATION, id->generation);
    memcpy(ret + HELLO_NONCE, nonce, AUTH_NONCE_BYTES);
}

bool auth_wire_is_hello(const uint8_t *p, size_t n)
{
    size_t k = n < sizeof(magic) ? n : sizeof(magic);

    return (k == 0 || memcmp(p, magic, k) == 0)
           && (n <= AT_VERSION || p[AT_VERSION] == AUTH_VERSION);
}

enum auth_role auth_wire_role(const uint8_t hello[AUTH_HELLO_BYTES])
{
    return (enum auth_role)hello[AT_ROLE];
}

uint32_t auth_wire_number(const uint8_t hello[AUTH_HELLO_BYTES])
{
    return bytes_load_u32(hello + HELLO_NUMBER);
}

/* Checks from the coarsest to the finest, so that the first difference is reported. */
static int check_hello(const struct auth_id *id,
                       enum auth_role mine,
                       enum auth_role theirs,
                       const uint8_t *hello,
                       enum reply_status *ret_status,
                       struct err *err)
{
    uint8_t job[SHA256_BYTES];
    uint32_t generation = bytes_load_u32(hello + HELLO_GENERATION);

    *ret_status = REPLY_BAD_VERSION;
    if (memcmp(hello, magic, sizeof(magic)) != 0)
        return err_set(err, -EPROTO, "peer does not speak Ringmaster's protocol");
    if (hello[AT_VERSION] != AUTH_VERSION)
        return err_set(err, -EPROTO,
                       "peer speaks version %u of the protocol, this end version %u",
                       hello[AT_VERSION], AUTH_VERSION);
    *ret_status = REPLY_BAD_ROLE;
    if (hello[AT_ROLE] != (uint8_t)theirs)
        return err_set(err, -EPROTO,
                       "peer has role %u, this end (role %u) accepts role %u only",
                       hello[AT_ROLE], (unsigned)mine, (unsigned)theirs);
    *ret_status = REPLY_BAD_JOB;
    sha256_digest(id->job_id, strlen(id->job_id), job);
    if (!mac_equal(job, hello + HELLO_JOB))
        return err_set(err, -EPROTO, "peer belongs to another job than \"%s\"",
                       id->job_id);
    *ret_status = REPLY_BAD_GENERATION;
    if (generation != id->generation)
        return err_set(err, -ESTALE,
                       "peer is of generation %u, this end of generation %u",
                       generation, id->generation);
    *ret_status = REPLY_OK;
    return 0;
}

int auth_wire_reply(const struct auth_id *id,
                    enum auth_role mine,
                    enum auth_role theirs,
                    const uint8_t hello[AUTH_HELLO_BYTES],
                    const uint8_t nonce[AUTH_NONCE_BYTES],
                    uint8_t ret[AUTH_REPLY_BYTES],
                    struct err *err)
{
    enum reply_status status;
    int rc = check_hello(id, mine, theirs, hello, &status, err);

    memset(ret, 0, AUTH_REPLY_BYTES);
    memcpy(ret, magic, sizeof(magic));
    ret[AT_VERSION] = AUTH_VERSION;
    ret[AT_ROLE] = (uint8_t)mine;
    ret[REPLY_STATUS] = (uint8_t)status;
    bytes_store_u32(ret + REPLY_GENERATION, id->generation);
    memcpy(ret + REPLY_NONCE, nonce, AUTH_NONCE_BYTES);
    if (rc == 0)
        transcript_mac(id, "S", hello, ret, ret + REPLY_MAC);
    return rc;
}

/* The error message on the side of the refused client. */
static int check_reply(const struct auth_id *id,
                       enum auth_role theirs,
                       const uint8_t *reply,
                       struct err *err)
{
    if (memcmp(reply, magic, sizeof(magic)) != 0)
        return err_set(err, -EPROTO, "peer does not speak Ringmaster's protocol");
    if (reply[AT_VERSION] != AUTH_VERSION || reply[REPLY_STATUS] == REPLY_BAD_VERSION)
        return err_set(err, -EPROTO,
                       "peer speaks version %u of the protocol, this end version %u",
                       reply[AT_VERSION], AUTH_VERSION);
    if (reply[REPLY_STATUS] == REPLY_BAD_ROLE || reply[AT_ROLE] != (uint8_t)theirs)
        return err_set(err, -EPROTO,
                       "peer has role %u, this end requires role %u: the port belongs "
                       "to another Ringmaster service",
                       reply[AT_ROLE], (unsigned)theirs);
    if (reply[REPLY_STATUS] == REPLY_BAD_JOB)
        return err_set(err, -EPROTO, "peer belongs to another job than \"%s\"",
                       id->job_id);
    if (reply[REPLY_STATUS] == REPLY_BAD_GENERATION)
        return err_set(err, -ESTALE,
                       "peer is of generation %u, this end of generation %u",
                       bytes_load_u32(reply + REPLY_GENERATION), id->generation);
    if (reply[REPLY_STATUS] != REPLY_OK)
        return err_set(err, -EPROTO, "peer refused with unknown status %u",
                       reply[REPLY_STATUS]);
    return 0;
}

int auth_wire_proof(const struct auth_id *id,
                    enum auth_role theirs,
                    const uint8_t hello[AUTH_HELLO_BYTES],
                    const uint8_t reply[AUTH_REPLY_BYTES],
                    uint8_t proof[AUTH_PROOF_BYTES],
                    struct err *err)
{
    uint8_t want[SHA256_BYTES];
    int rc = check_reply(id, theirs, reply, err);

    memset(proof, 0, AUTH_PROOF_BYTES);
    if (rc)
        return rc;
    transcript_mac(id, "S", hello, reply, want);
    if (!mac_equal(want, reply + REPLY_MAC))
        return err_set(err, -EACCES, "peer has another token for job \"%s\"",
                       id->job_id);
    transcript_mac(id, "C", hello, reply, proof);
    return 0;
}

int auth_wire_check(const struct auth_id *id,
                    const uint8_t hello[AUTH_HELLO_BYTES],
                    const uint8_t reply[AUTH_REPLY_BYTES],
                    const uint8_t proof[AUTH_PROOF_BYTES],
                    struct err *err)
{
    uint8_t want[SHA256_BYTES];

    transcript_mac(id, "C", hello, reply, want);
    if (!mac_equal(want, proof))
        return err_set(err, -EACCES, "peer has another token for job \"%s\"",
                       id->job_id);
    return 0;
}

void auth_wire_session(const struct auth_id *id,
                       const uint8_t hello[AUTH_HELLO_BYTES],
                       const uint8_t reply[AUTH_REPLY_BYTES],
                       bool is_server,
                       struct auth_session *ret)
{
    transcript_mac(id, "KC", hello, reply, is_server ? ret->recv_key : ret->send_key);
    transcript_mac(id, "KS", hello, reply, is_server ? ret->send_key : ret->recv_key);
}
