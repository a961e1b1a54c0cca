/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes: handshake and frames as values, the blocking handshake over a socket pair,
 * and an authenticated peer that breaks the protocol against a real server. */
#include <pthread.h>
#include <sys/socket.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/wire/auth_wire.h"
#include "runtime/wire/bytes.h"
#include "runtime/rendezvous/rdv_wire.h"
#include "runtime/rendezvous/world.h"

static const struct token token_a = {{1, 2, 3}};
static const struct token token_b = {{1, 2, 4}};

static uint64_t in_ms(uint64_t ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

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

    auth_wire_hello(c, ROLE_CONTROL, nonce_c, h.hello);
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

    auth_wire_hello(&id, ROLE_DATA, nonce, hello);
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

struct side {
    int fd, rc;
    const struct auth_id *id;
    struct err err;
    struct auth_session session;
};

static void *server_run(void *arg)
{
    struct side *s = arg;

    s->rc = auth_server(s->fd, s->id, ROLE_COORDINATOR, ROLE_CONTROL, in_ms(10000),
                        &s->session, &s->err);
    fd_close(&s->fd);
    return NULL;
}

static void over_a_socket(const struct auth_id *client,
                          const struct auth_id *server,
                          int want_client,
                          int want_server)
{
    struct side s = {.id = server};
    struct auth_session session;
    struct err err = ERR_INIT;
    pthread_t t;
    int fd[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    s.fd = fd[1];
    assert_int_equal(pthread_create(&t, NULL, server_run, &s), 0);
    assert_int_equal(auth_client(fd[0], client, ROLE_CONTROL, ROLE_COORDINATOR,
                                 in_ms(10000), &session, &err),
                     want_client);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_int_equal(s.rc, want_server);
    if (want_client == 0)
        assert_memory_equal(session.send_key, s.session.recv_key, 32);
    fd_close(&fd[0]);
}

UNIT_TEST(the_blocking_handshake)
{
    const struct auth_id a = {&token_a, "j", 7}, b = {&token_b, "j", 7};
    const struct auth_id stale = {&token_a, "j", 6}, other = {&token_a, "k", 7};
    struct err e = ERR_INIT;
    int fd[2];

    over_a_socket(&a, &a, 0, 0);
    over_a_socket(&b, &a, -EACCES, -EACCES);
    over_a_socket(&stale, &a, -ESTALE, -ESTALE);
    over_a_socket(&other, &a, -EPROTO, -EPROTO);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(
        auth_server(fd[0], &a, ROLE_COORDINATOR, ROLE_CONTROL, in_ms(20), NULL, &e),
        -ETIMEDOUT);
    fd_close(&fd[1]);
    assert_int_equal(
        auth_server(fd[0], &a, ROLE_COORDINATOR, ROLE_CONTROL, in_ms(10000), NULL, &e),
        -EPIPE);
    fd_close(&fd[0]);
}

/* --- frames --- */

UNIT_TEST(headers_are_checked_by_direction_and_size)
{
    static const struct {
        enum rdv_type type;
        uint32_t n;
        bool from_member, from_server;
    } t[] = {
        {RDV_JOIN, 8, true, false},
        {RDV_JOIN, 7, false, false},
        {RDV_JOIN, 8 + 4 * WORLD_MAX_RANKS, true, false},
        {RDV_JOIN, 12 + 4 * WORLD_MAX_RANKS, false, false},
        {RDV_PUT, 8, true, false},
        {RDV_PUT, 8 + RDV_MAX_BLOB_BYTES, true, false},
        {RDV_PUT, 9 + RDV_MAX_BLOB_BYTES, false, false},
        {RDV_PUT, 7, false, false},
        {RDV_WELCOME, 0, false, true},
        {RDV_WELCOME, 1, false, false},
        {RDV_ALL, 8 + 4 * 3, false, true},
        {RDV_ALL, 7 + 4 * 3, false, false},
        {RDV_ALL, 8 + 4 * 3 + RDV_MAX_ROUND_BYTES, false, true},
        {RDV_ALL, 9 + 4 * 3 + RDV_MAX_ROUND_BYTES, false, false},
        {RDV_ALL, UINT32_MAX, false, false},
        {RDV_REFUSED, 4, false, true},
        {RDV_REFUSED, 3, false, false},
        {RDV_REFUSED, 5 + RDV_MAX_TEXT_BYTES, false, false},
        {(enum rdv_type)0, 8, false, false},
        {(enum rdv_type)6, 8, false, false},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        uint8_t h[RDV_HEADER_BYTES];
        enum rdv_type type;
        uint32_t n;

        rdv_header(t[i].type, t[i].n, h);
        assert_int_equal(rdv_header_from_member(h, &type, &n, NULL) == 0,
                         t[i].from_member);
        assert_int_equal(rdv_header_from_server(h, 3, &type, &n, NULL) == 0,
                         t[i].from_server);
        h[2] = 1;
        assert_int_equal(rdv_header_from_member(h, &type, &n, NULL), -EPROTO);
    }
}

UNIT_TEST(a_frame_counts_once_and_in_its_direction)
{
    struct auth_session a = {.send_key = {1}, .recv_key = {2}};
    struct auth_session b = {.send_key = {2}, .recv_key = {1}};
    uint8_t h[RDV_HEADER_BYTES], digest[SHA256_BYTES], mac[RDV_MAC_BYTES];

    rdv_header(RDV_PUT, 3, h);
    sha256_digest("abc", 3, digest);
    rdv_mac_send(&a, h, digest, mac);
    struct auth_session altered = b;
    assert_int_equal(rdv_mac_check(&altered, h, "abd", 3, mac, NULL), -EPROTO);
    assert_int_equal(rdv_mac_check(&a, h, "abc", 3, mac, NULL),
                     -EPROTO); /* reflected */
    assert_int_equal(rdv_mac_check(&b, h, "abc", 3, mac, NULL), 0);
    assert_int_equal(rdv_mac_check(&b, h, "abc", 3, mac, NULL), -EPROTO); /* replayed */
}

UNIT_TEST(a_rendered_round_is_parsed_back)
{
    CLEANUP(rdv_world_release) struct rdv_world w;
    uint8_t *blobs[3];
    uint32_t sizes[3];
    void *old;

    assert_int_equal(rdv_world_init(&w, 3, NULL), 0);
    for (uint32_t r = 0; r < 3; r++) {
        struct rdv_put put = {0, RDV_WAIT_FOREVER, (const uint8_t *)"xyz", r};

        assert_int_equal(rdv_world_join(&w, r, 3, &w, &old, NULL), 0);
        assert_false(rdv_world_is_full(&w));
        assert_int_equal(rdv_world_put(&w, r, &put, 0, NULL), 0);
        assert_int_equal(rdv_world_put(&w, r, &put, 0, NULL), -EPROTO);
    }
    assert_true(rdv_world_is_full(&w));
    struct rdv_msg *m = rdv_world_finish(&w);
    assert_int_equal(w.round, 1);
    assert_int_equal(w.n_put, 0);
    assert_int_equal(w.n_bytes, 0);
    assert_int_equal(rdv_all_parse(m->data, m->n, 0, 3, blobs, sizes, NULL), 0);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(sizes[r], r);
        assert_memory_equal(blobs[r], "xyz", r);
    }
    assert_int_equal(rdv_all_parse(m->data, m->n, 1, 3, blobs, sizes, NULL), -EPROTO);
    assert_int_equal(rdv_all_parse(m->data, m->n, 0, 2, blobs, sizes, NULL), -EPROTO);
    for (uint32_t n = 0; n < m->n; n++)
        assert_int_equal(rdv_all_parse(m->data, n, 0, 3, blobs, sizes, NULL), -EPROTO);
    bytes_store_u32(m->data + 8, UINT32_MAX); /* a length that would wrap */
    assert_int_equal(rdv_all_parse(m->data, m->n, 0, 3, blobs, sizes, NULL), -EPROTO);
    rdv_msg_unref(m);
}

UNIT_TEST(many_missing_are_counted_not_listed)
{
    CLEANUP(rdv_world_release) struct rdv_world w;
    char text[320];
    void *old;

    assert_int_equal(rdv_world_init(&w, 1000, NULL), 0);
    for (uint32_t r = 0; r < 1000; r += 2) {
        struct rdv_put put = {0, 0, NULL, 0};

        assert_int_equal(rdv_world_join(&w, r, 1000, &w, &old, NULL), 0);
        assert_int_equal(rdv_world_put(&w, r, &put, 0, NULL), 0);
    }
    rdv_world_missing(&w, text, sizeof(text));
    assert_string_equal(text,
                        "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, "
                        "29, 31 and 484 more (of 1000)");
    rdv_world_release(&w);
    assert_int_equal(rdv_world_init(&w, 3, NULL), 0);
    rdv_world_missing(&w, text, sizeof(text));
    assert_string_equal(text, "ranks 0-2 (of 3)");
}

UNIT_TEST(a_refusal_has_no_control_characters)
{
    uint8_t p[] = "\2\0\0\0rank\n1\x1b[0m";
    struct err e = ERR_INIT;

    assert_int_equal(rdv_refused_parse(p, sizeof(p) - 1, &e), -ECANCELED);
    assert_string_equal(e.text, "rank 1 [0m");
    p[0] = 99;
    assert_int_equal(rdv_refused_parse(p, sizeof(p) - 1, &e), -EPROTO);
    assert_int_equal(rdv_refused_parse(p, 3, &e), -EPROTO);
}

/* --- an authenticated peer that breaks the protocol --- */

struct raw {
    int fd;
    struct auth_session session;
};

static struct raw raw_connect(uint16_t port)
{
    const struct auth_id id = {&token_a, "j", 0};
    struct raw r = {.fd = -1};

    assert_int_equal(tcp_connect("127.0.0.1", port, in_ms(10000), false, &r.fd, NULL),
                     0);
    assert_int_equal(auth_client(r.fd, &id, ROLE_RENDEZVOUS_CLIENT,
                                 ROLE_RENDEZVOUS_SERVER, in_ms(10000), &r.session,
                                 NULL),
                     0);
    return r;
}

/* In one piece, since the server may close at the header. */
static void raw_send(struct raw *r, enum rdv_type type, const void *p, uint32_t n)
{
    uint8_t frame[RDV_HEADER_BYTES + 64 + RDV_MAC_BYTES], digest[SHA256_BYTES];

    assert_true(n <= 64);
    rdv_header(type, n, frame);
    sha256_digest(p, n, digest);
    memcpy(frame + RDV_HEADER_BYTES, p, n);
    rdv_mac_send(&r->session, frame, digest, frame + RDV_HEADER_BYTES + n);
    assert_int_equal(
        fd_write_full(r->fd, frame, RDV_HEADER_BYTES + n + RDV_MAC_BYTES, in_ms(10000)),
        0);
}

/* The type of the next frame; 0: the server has closed. */
static int raw_recv(struct raw *r)
{
    uint8_t h[RDV_HEADER_BYTES], rest[1024];
    int rc = fd_read_full(r->fd, h, sizeof(h), in_ms(10000));

    if (rc == -EPIPE)
        return 0;
    assert_int_equal(rc, 0);
    uint32_t n = bytes_load_u32(h + 4) + RDV_MAC_BYTES;
    assert_true(n <= sizeof(rest));
    assert_int_equal(fd_read_full(r->fd, rest, n, in_ms(10000)), 0);
    return h[0];
}

UNIT_TEST(a_member_that_breaks_the_protocol_is_dropped)
{
    static const uint8_t join0[8] = {0, 0, 0, 0, 2, 0, 0, 0};
    static const uint8_t put0[9] = {0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'};
    static const uint8_t put9[9] = {9, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'x'};
    struct rdv_server *s = NULL;
    const struct auth_id id = {&token_a, "j", 0};
    struct rdv_client *c = NULL;
    struct err e = ERR_INIT;
    uint8_t **blobs;
    uint32_t *sizes;
    uint16_t port = 0;
    int fd = -1;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &port, NULL), 0);
    assert_int_equal(rdv_server_start(fd, &id, 2, &s, NULL), 0);

    struct raw r = raw_connect(port); /* PUT before JOIN */
    raw_send(&r, RDV_PUT, put0, sizeof(put0));
    assert_int_equal(raw_recv(&r), RDV_REFUSED);
    assert_int_equal(raw_recv(&r), 0);
    fd_close(&r.fd);

    r = raw_connect(port); /* a frame that no member sends */
    raw_send(&r, RDV_ALL, join0, sizeof(join0));
    assert_int_equal(raw_recv(&r), 0);
    fd_close(&r.fd);

    r = raw_connect(port); /* a wrong MAC */
    r.session.send_key[0] ^= 1;
    raw_send(&r, RDV_JOIN, join0, sizeof(join0));
    assert_int_equal(raw_recv(&r), 0);
    fd_close(&r.fd);

    r = raw_connect(port); /* a round that is not open */
    raw_send(&r, RDV_JOIN, join0, sizeof(join0));
    assert_int_equal(raw_recv(&r), RDV_WELCOME);
    raw_send(&r, RDV_PUT, put9, sizeof(put9));
    assert_int_equal(raw_recv(&r), RDV_REFUSED);
    assert_int_equal(raw_recv(&r), 0);
    fd_close(&r.fd);

    r = raw_connect(port); /* puts its blob and closes: the blob is withdrawn */
    raw_send(&r, RDV_JOIN, join0, sizeof(join0));
    assert_int_equal(raw_recv(&r), RDV_WELCOME);
    raw_send(&r, RDV_PUT, put0, sizeof(put0));
    assert_int_equal(shutdown(r.fd, SHUT_WR), 0);
    assert_int_equal(raw_recv(&r), 0); /* the server has seen both */
    fd_close(&r.fd);
    assert_int_equal(
        rdv_client_connect("127.0.0.1", port, &id, 1, 2, in_ms(10000), &c, &e), 0);
    assert_int_equal(rdv_client_exchange(c, "y", 1, in_ms(50), &blobs, &sizes, &e),
                     -ETIMEDOUT);
    assert_non_null(strstr(e.text, "for rank 0 (of 2); had connected and was lost: 0"));
    rdv_client_close(c);
    rdv_server_stop(s);
}

UNIT_MAIN(NULL, NULL)
