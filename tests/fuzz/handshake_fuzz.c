/* SPDX-License-Identifier: Apache-2.0 */
/* Raw bytes as a stranger's hello, reply and proof: none is accepted without the token. */
#include "runtime/base/mem.h"
#include "runtime/wire/auth_wire.h"
#include "tests/fuzz/fuzz.h"

static const uint8_t *
input_take(const uint8_t **data, size_t *n, uint8_t *buf, size_t want)
{
    size_t k = *n < want ? *n : want;

    memset(buf, 0, want);
    if (k)
        memcpy(buf, *data, k);
    *data += k;
    *n -= k;
    return buf;
}

FUZZ_TARGET(handshake)
{
    static const struct token token = {{9, 8, 7}};
    const struct auth_id id = {&token, "ns/demo/uid", 3};
    const uint8_t nonce[AUTH_NONCE_BYTES] = {5};
    uint8_t hello[AUTH_HELLO_BYTES], reply[AUTH_REPLY_BYTES], proof[AUTH_PROOF_BYTES];
    uint8_t mine[AUTH_HELLO_BYTES], answer[AUTH_REPLY_BYTES];
    struct err err = ERR_INIT;

    (void)input_take(&data, &n, hello, sizeof(hello));
    (void)input_take(&data, &n, reply, sizeof(reply));
    (void)input_take(&data, &n, proof, sizeof(proof));
    int rc = auth_wire_reply(&id, ROLE_COORDINATOR, ROLE_CONTROL, hello, nonce, answer,
                             &err);
    MUST(rc == 0 || err.text[0]);
    MUST(auth_wire_check(&id, hello, answer, proof, &err) != 0);
    auth_wire_hello(&id, ROLE_CONTROL, 0, nonce, mine);
    MUST(auth_wire_proof(&id, ROLE_COORDINATOR, mine, reply, proof, &err) != 0);
    for (size_t i = 0; i < sizeof(proof); i++)
        MUST(proof[i] == 0);
    return 0;
}
