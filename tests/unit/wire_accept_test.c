/* SPDX-License-Identifier: Apache-2.0 */
/* Client and server of the handshake over TCP. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "tests/unit/unit.h"
#include "tests/unit/wire_server.h"

#include "runtime/base/mem.h"
#include "runtime/wire/auth_wire.h"

static const struct token token_a = {{1, 2, 3}};
static const struct token token_b = {{1, 2, 4}};
static const struct auth_id id_a = {&token_a, "j", 7};

static uint64_t in_ms(uint64_t ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

struct client {
    const struct auth_id *id;
    enum auth_role role;
    uint16_t port;
    int rc, fd;
    struct auth_session session;
    struct err err;
    _Atomic bool is_over;
};

static void *client_main(void *arg)
{
    struct client *c = arg;
    const struct auth_server server = {"127.0.0.1", c->port, .is_patient = true};
    const struct auth_claim claim = {.id = c->id,
                                     .mine = c->role,
                                     .theirs = ROLE_COORDINATOR,
                                     .number = 42,
                                     .deadline_ns = in_ms(60000)};

    c->rc = auth_connect(&server, &claim, &c->fd, &c->session, &c->err);
    atomic_store(&c->is_over, true);
    return NULL;
}

struct server {
    struct admitted member; /* first: what admit_first fills */
    struct acceptor acceptor;
    int listen_fd;
    uint16_t port;
    struct token token; /* of refreshed_id, a copy of *file */
    const struct token *file;
    unsigned n_refreshes;
};

static int server_refresh(void *arg, struct err *err)
{
    struct server *h = arg;

    h->n_refreshes++;
    if (!h->file)
        return err_set(err, -ENOENT, "the token file is gone");
    h->token = *h->file;
    return 0;
}

static void server_open(struct server *h)
{
    static const struct accept_kind kind = {.name = "test",
                                            .mine = ROLE_COORDINATOR,
                                            .theirs = ROLE_CONTROL,
                                            .or_theirs = ROLE_SHELL,
                                            .refresh = server_refresh};

    *h = (struct server){.member = {.fd = -1}, .file = &token_a};
    assert_int_equal(tcp_listen("127.0.0.1", 0, &h->listen_fd, &h->port, NULL), 0);
    assert_int_equal(acceptor_open(&h->acceptor, &kind, NULL), 0);
    assert_int_equal(door_listen(h->acceptor.door, h->listen_fd, false, NULL), 0);
}

static void server_close(struct server *h)
{
    acceptor_close(&h->acceptor);
    fd_close(&h->listen_fd);
    fd_close(&h->member.fd);
}

/* Serves until the client has an answer and, if it was admitted, until we know. */
static void server_serve(struct server *h, const struct auth_id *id, struct client *c)
{
    while (!atomic_load(&c->is_over) || (c->rc == 0 && h->member.fd < 0)) {
        (void)fd_wait(door_fd(h->acceptor.door), POLLIN, in_ms(20));
        acceptor_serve(&h->acceptor, id, admit_first, h);
    }
}

static void client_meet_server(const struct auth_id *theirs,
                               const struct auth_id *ours,
                               enum auth_role role,
                               struct client *c,
                               struct server *h)
{
    pthread_t t;

    server_open(h);
    *c = (struct client){.id = theirs, .role = role, .port = h->port, .fd = -1};
    assert_int_equal(pthread_create(&t, NULL, client_main, c), 0);
    server_serve(h, ours, c);
    assert_int_equal(pthread_join(t, NULL), 0);
    fd_close(&c->fd);
}

UNIT_TEST(a_client_with_the_token_is_admitted)
{
    struct client c;
    struct server h;

    client_meet_server(&id_a, &id_a, ROLE_CONTROL, &c, &h);
    assert_int_equal(c.rc, 0);
    assert_int_equal(h.member.role, ROLE_CONTROL);
    assert_int_equal(h.member.number, 42);
    assert_string_equal(h.member.address, "127.0.0.1");
    assert_memory_equal(c.session.send_key, h.member.session.recv_key, 32);
    assert_memory_equal(c.session.recv_key, h.member.session.send_key, 32);
    server_close(&h);
    client_meet_server(&id_a, &id_a, ROLE_SHELL, &c, &h);
    assert_int_equal(h.member.role, ROLE_SHELL);
    server_close(&h);
}

UNIT_TEST(others_are_refused_with_the_difference)
{
    const struct auth_id stale = {&token_a, "j", 6}, other = {&token_a, "k", 7},
                         wrong = {&token_b, "j", 7};
    const struct {
        const struct auth_id *id;
        enum auth_role role;
        int rc;
        const char *says;
    } rows[] = {
        {&wrong, ROLE_CONTROL, -EACCES, "another token"},
        {&stale, ROLE_CONTROL, -ESTALE, "generation"},
        {&other, ROLE_CONTROL, -EPROTO, "another job"},
        {&id_a, ROLE_DATA, -EPROTO, "role"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct client c;
        struct server h;

        client_meet_server(rows[i].id, &id_a, rows[i].role, &c, &h);
        assert_int_equal(c.rc, rows[i].rc);
        assert_non_null(strstr(c.err.text, rows[i].says));
        while (!door_last_refusal(h.acceptor.door)[0]) /* after the proof of zeros */
            acceptor_serve(&h.acceptor, &id_a, admit_first, &h);
        assert_non_null(strstr(door_last_refusal(h.acceptor.door), rows[i].says));
        assert_int_equal(h.member.fd, -1);
        server_close(&h);
    }
}

/* The first connection is accepted and closed at once, as by a server that has too many
 * strangers or ends. Returns while the client still tries. */
static void
client_lose_first(struct client *c, struct server *h, bool server_ends, pthread_t *ret)
{
    int fd = -1;

    server_open(h);
    *c = (struct client){.id = &id_a, .role = ROLE_CONTROL, .port = h->port, .fd = -1};
    assert_int_equal(pthread_create(ret, NULL, client_main, c), 0);
    while (tcp_accept(h->listen_fd, &fd) < 0)
        (void)fd_wait(h->listen_fd, POLLIN, in_ms(100));
    if (server_ends) {
        acceptor_close(&h->acceptor);
        fd_close(&h->listen_fd);
    }
    fd_close(&fd);
}

UNIT_TEST(a_client_that_was_closed_tries_again)
{
    struct client c;
    struct server h;
    pthread_t t;

    client_lose_first(&c, &h, false, &t);
    server_serve(&h, &id_a, &c);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_int_equal(c.rc, 0);
    fd_close(&c.fd);
    server_close(&h);
}

/* It does not wait for its deadline. */
UNIT_TEST(a_client_whose_server_ended_gives_up)
{
    struct client c;
    struct server h;
    pthread_t t;

    client_lose_first(&c, &h, true, &t);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_true(c.rc == -EPIPE || c.rc == -ECONNRESET);
    server_close(&h);
}

/* The hello of version 2 had 76 bytes. */
UNIT_TEST(another_version_is_answered_without_waiting_for_more)
{
    uint8_t hello[76] = "HVD1\2", reply[AUTH_REPLY_BYTES];
    struct server h;
    int fd = -1;

    server_open(&h);
    assert_int_equal(tcp_connect("127.0.0.1", h.port, in_ms(10000), false, &fd, NULL),
                     0);
    assert_int_equal(write(fd, hello, sizeof(hello)), sizeof(hello));
    while (!door_last_refusal(h.acceptor.door)[0])
        acceptor_serve(&h.acceptor, &id_a, admit_first, &h);
    assert_string_equal(door_last_refusal(h.acceptor.door),
                        "peer speaks version 2 of the protocol, this end version 3");
    assert_int_equal(fd_read_full(fd, reply, sizeof(reply), in_ms(10000)), 0);
    fd_close(&fd);
    server_close(&h);
}

/* --- a token that changes --- */

static void server_step(struct server *h)
{
    const struct auth_id id = {&h->token, "j", 7};

    (void)fd_wait(door_fd(h->acceptor.door), POLLIN, in_ms(20));
    acceptor_serve(&h->acceptor, &id, admit_first, h);
    mem_wipe(&h->token, sizeof(h->token));
}

static int server_dial(struct server *h)
{
    int fd = -1;

    assert_int_equal(tcp_connect("127.0.0.1", h->port, in_ms(60000), false, &fd, NULL),
                     0);
    return fd;
}

/* Sends a hello of id_a and serves until its reply is here. */
static void hello_exchange(struct server *h,
                           int fd,
                           uint8_t hello[AUTH_HELLO_BYTES],
                           uint8_t reply[AUTH_REPLY_BYTES])
{
    static const uint8_t nonce[AUTH_NONCE_BYTES] = {9};
    uint64_t deadline_ns = in_ms(60000);

    auth_wire_hello(&id_a, ROLE_CONTROL, 42, nonce, hello);
    for (size_t i = 0; i < AUTH_HELLO_BYTES; i++) {
        assert_int_equal(h->n_refreshes, 0);
        assert_int_equal(write(fd, hello + i, 1), 1);
        server_step(h);
    }
    while (fd_wait(fd, POLLIN, 0) < 0 && clock_now_ns() < deadline_ns)
        server_step(h);
    assert_int_equal(fd_read_full(fd, reply, AUTH_REPLY_BYTES, deadline_ns), 0);
}

static void send_proof(int fd, const uint8_t *hello, const uint8_t *reply)
{
    uint8_t proof[AUTH_PROOF_BYTES];

    assert_int_equal(
        auth_wire_proof(&id_a, ROLE_COORDINATOR, hello, reply, proof, NULL), 0);
    assert_int_equal(write(fd, proof, sizeof(proof)), sizeof(proof));
}

UNIT_TEST(the_token_is_read_for_a_complete_message_only)
{
    uint8_t hello[AUTH_HELLO_BYTES], reply[AUTH_REPLY_BYTES];
    struct server h;
    int fd, garbage;

    server_open(&h);
    garbage = server_dial(&h);
    assert_int_equal(write(garbage, "GET / HTTP/1.1\r\n", 16), 16);
    while (!door_last_refusal(h.acceptor.door)[0])
        server_step(&h);
    fd = server_dial(&h);
    hello_exchange(&h, fd, hello, reply);
    assert_int_equal(h.n_refreshes, 1);
    send_proof(fd, hello, reply);
    while (h.member.fd < 0)
        server_step(&h);
    assert_int_equal(h.n_refreshes, 2);
    fd_close(&garbage);
    fd_close(&fd);
    server_close(&h);
}

UNIT_TEST(a_token_that_was_replaced_admits_nobody)
{
    uint8_t hello[AUTH_HELLO_BYTES], reply[AUTH_REPLY_BYTES];
    struct server h;
    int fd;

    server_open(&h);
    fd = server_dial(&h);
    hello_exchange(&h, fd, hello, reply);
    h.file = &token_b; /* after its hello was answered */
    send_proof(fd, hello, reply);
    while (!door_last_refusal(h.acceptor.door)[0])
        server_step(&h);
    assert_non_null(strstr(door_last_refusal(h.acceptor.door), "another token"));
    assert_int_equal(h.member.fd, -1);
    fd_close(&fd);
    server_close(&h);
}

UNIT_TEST(without_a_token_all_are_refused_with_the_cause)
{
    static const uint8_t nonce[AUTH_NONCE_BYTES] = {9};
    uint8_t hello[AUTH_HELLO_BYTES];
    struct server h;
    int fd;

    server_open(&h);
    h.file = NULL;
    fd = server_dial(&h);
    auth_wire_hello(&id_a, ROLE_CONTROL, 42, nonce, hello);
    assert_int_equal(write(fd, hello, sizeof(hello)), sizeof(hello));
    while (!door_last_refusal(h.acceptor.door)[0])
        server_step(&h);
    assert_string_equal(door_last_refusal(h.acceptor.door), "the token file is gone");
    fd_close(&fd);
    server_close(&h);
}

/* --- a server that is silent --- */

static int interrupt_at_once(void *arg, struct err *err)
{
    ++*(unsigned *)arg;
    return err_set(err, -ECONNABORTED, "not needed any more");
}

static void silence_is_interrupted(uint16_t port)
{
    unsigned n_asked = 0;
    const struct auth_server server = {"127.0.0.1", port, .is_patient = true};
    const struct auth_claim claim = {.id = &id_a,
                                     .mine = ROLE_CONTROL,
                                     .theirs = ROLE_COORDINATOR,
                                     .deadline_ns = UINT64_MAX,
                                     .interrupted = interrupt_at_once,
                                     .arg = &n_asked};
    struct err err = ERR_INIT;
    int fd = -1;

    assert_int_equal(auth_connect(&server, &claim, &fd, NULL, &err), -ECONNABORTED);
    assert_string_equal(err.text, "not needed any more");
    assert_true(n_asked > 0);
    assert_int_equal(fd, -1);
}

UNIT_TEST(a_client_can_be_interrupted_while_its_server_does_not_reply)
{
    struct server h;

    server_open(&h); /* and not served */
    silence_is_interrupted(h.port);
    server_close(&h);
}

UNIT_TEST(a_client_can_be_interrupted_while_it_connects)
{
    CLEANUP(fd_close) int first = -1;
    CLEANUP(fd_close) int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof(a);

    assert_int_equal(bind(listening, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(listening, 0), 0); /* room for one: others get no answer */
    assert_int_equal(getsockname(listening, (struct sockaddr *)&a, &n), 0);
    assert_int_equal(
        tcp_connect("127.0.0.1", ntohs(a.sin_port), in_ms(60000), false, &first, NULL),
        0);
    silence_is_interrupted(ntohs(a.sin_port));
}

UNIT_MAIN(NULL, NULL)
