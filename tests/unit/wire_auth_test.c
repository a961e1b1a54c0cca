/* SPDX-License-Identifier: Apache-2.0 */
/* The three messages of the handshake as values. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/wire/auth_wire.h"

static const struct token token_a = {{1, 2, 3}};
static const struct token token_b = {{1, 2, 4}};

struct handshake {
    uint8_t hello[AUTH_HELLO_BYTES], reply[AUTH_REPLY_BYTES], proof[AUTH_PROOF_BYTES];
    int rc_reply, rc_proof, rc_check;
    struct err server, client;
};

static struct handshake handshake_run(const struct auth_id *c, const struct auth_id *s)
{
    static const uint8_t nonce_c[AUTH_NONCE_BYTES] = {1},
                         nonce_s[AUTH_NONCE_BYTES] = {2};
    struct handshake h = {.server = ERR_INIT, .client = ERR_INIT};

    auth_wire_hello(c, ROLE_CONTROL, 5, nonce_c, h.hello);
    h.rc_reply = auth_wire_reply(s, ROLE_COORDINATOR, ROLE_CONTROL, h.hello, nonce_s,
                                 h.reply, &h.server);
    h.rc_proof =
        auth_wire_proof(c, ROLE_COORDINATOR, h.hello, h.reply, h.proof, &h.client);
    h.rc_check = auth_wire_check(s, h.hello, h.reply, h.proof, &h.server);
    return h;
}

UNIT_TEST(both_prove_themselves)
{
    const struct auth_id id = {&token_a, "j", 7};
    struct handshake h = handshake_run(&id, &id);
    struct auth_session c, s;

    assert_int_equal(h.rc_reply | h.rc_proof | h.rc_check, 0);
    assert_int_equal(auth_wire_number(h.hello), 5);
    auth_wire_session(&id, h.hello, h.reply, false, &c);
    auth_wire_session(&id, h.hello, h.reply, true, &s);
    assert_memory_equal(c.send_key, s.recv_key, 32);
    assert_memory_equal(c.recv_key, s.send_key, 32);
    assert_memory_not_equal(c.send_key, c.recv_key, 32);
}

UNIT_TEST(each_difference_is_reported_on_both_sides)
{
    const struct auth_id mine = {&token_a, "j", 7};
    const struct {
        struct auth_id other;
        int rc;
        const char *says;
    } t[] = {
        {{&token_a, "k", 7}, -EPROTO, "another job"},
        {{&token_a, "j", 8}, -ESTALE, "generation"},
        {{&token_b, "j", 7}, -EACCES, "another token"},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct handshake h = handshake_run(&t[i].other, &mine);

        assert_int_equal(h.rc_proof, t[i].rc);
        assert_non_null(strstr(h.client.text, t[i].says));
        assert_int_equal(h.rc_reply ? h.rc_reply : h.rc_check, t[i].rc);
        assert_int_equal(h.rc_check, -EACCES); /* no access after any change */
        assert_memory_equal(h.proof, (uint8_t[AUTH_PROOF_BYTES]){0}, AUTH_PROOF_BYTES);
    }
}

/* Every byte of hello and reply is under the MACs: change one, and one side refuses. */
UNIT_TEST(every_changed_bit_is_detected)
{
    const struct auth_id id = {&token_a, "j", 7};
    const struct handshake good = handshake_run(&id, &id);

    for (size_t i = 0; i < AUTH_HELLO_BYTES + AUTH_REPLY_BYTES + AUTH_PROOF_BYTES;
         i++) {
        struct handshake h = good;
        uint8_t proof[AUTH_PROOF_BYTES];
        bool is_noticed;

        if (i < AUTH_HELLO_BYTES) {
            /* In transit to the server: it answers another hello than the client
             * sent. */
            h.hello[i] ^= 1;
            int rc = auth_wire_reply(&id, ROLE_COORDINATOR, ROLE_CONTROL, h.hello,
                                     good.reply + 12, h.reply, NULL);
            is_noticed = rc != 0
                         || auth_wire_proof(&id, ROLE_COORDINATOR, good.hello, h.reply,
                                            proof, NULL)
                                != 0;
        } else if (i < AUTH_HELLO_BYTES + AUTH_REPLY_BYTES) {
            h.reply[i - AUTH_HELLO_BYTES] ^= 1;
            is_noticed =
                auth_wire_proof(&id, ROLE_COORDINATOR, h.hello, h.reply, proof, NULL)
                != 0;
        } else {
            h.proof[i - AUTH_HELLO_BYTES - AUTH_REPLY_BYTES] ^= 1;
            is_noticed = auth_wire_check(&id, h.hello, h.reply, h.proof, NULL) != 0;
        }
        if (!is_noticed)
            fail_msg("byte %zu", i);
    }
}

UNIT_TEST(a_connection_is_valid_for_its_purpose_only)
{
    const struct auth_id id = {&token_a, "j", 7};
    uint8_t nonce[AUTH_NONCE_BYTES] = {0}, hello[AUTH_HELLO_BYTES];
    uint8_t reply[AUTH_REPLY_BYTES], proof[AUTH_PROOF_BYTES];
    struct err e = ERR_INIT;

    auth_wire_hello(&id, ROLE_DATA, 0, nonce, hello);
    assert_int_equal(
        auth_wire_reply(&id, ROLE_COORDINATOR, ROLE_CONTROL, hello, nonce, reply, &e),
        -EPROTO);
    assert_non_null(strstr(e.text, "role"));
    assert_int_equal(auth_wire_proof(&id, ROLE_DATA, hello, reply, proof, &e), -EPROTO);
    /* A server in another role that forgot this check is still refused by the
     * client. */
    assert_int_equal(
        auth_wire_reply(&id, ROLE_AGENT_HUB, ROLE_DATA, hello, nonce, reply, &e), 0);
    assert_int_equal(auth_wire_proof(&id, ROLE_DATA, hello, reply, proof, &e), -EPROTO);
    /* A server's proof is not valid as a client's. */
    assert_int_equal(auth_wire_check(&id, hello, reply, reply + 44, &e), -EACCES);
}

UNIT_MAIN(NULL, NULL)
