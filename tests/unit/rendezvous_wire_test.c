/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the rendezvous as values, and an authenticated peer that breaks the
 * protocol against a real server. */
#include <pthread.h>
#include <sys/socket.h>

#include "tests/unit/unit.h"
#include "tests/unit/wire_server.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"
#include "runtime/wire/frame.h"
#include "runtime/rendezvous/rdv_wire.h"
#include "runtime/rendezvous/world.h"

static const struct token token_a = {{1, 2, 3}};

static uint64_t in_ms(uint64_t ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

UNIT_TEST(a_rendered_round_is_parsed_back)
{
    CLEANUP(rdv_world_release) struct rdv_world w;
    uint8_t *blobs[3];
    uint32_t sizes[3];
    void *old;

    assert_int_equal(rdv_world_init(&w, 3, NULL), 0);
    for (uint32_t r = 0; r < 3; r++) {
        struct rdv_put put = {r, 0, RDV_WAIT_FOREVER, (const uint8_t *)"xyz", r};

        assert_int_equal(rdv_world_admit(&w, r, &old), r + 1);
        rdv_world_join(&w, r, &w);
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
        struct rdv_put put = {r, 0, 0, NULL, 0};

        (void)rdv_world_admit(&w, r, &old);
        rdv_world_join(&w, r, &w);
        assert_int_equal(rdv_world_put(&w, r, &put, 0, NULL), 0);
    }
    rdv_world_missing(&w, text, sizeof(text));
    assert_string_equal(text,
                        "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, "
                        "29, 31 and 484 more of 1000");
    rdv_world_release(&w);
    assert_int_equal(rdv_world_init(&w, 3, NULL), 0);
    rdv_world_missing(&w, text, sizeof(text));
    assert_string_equal(text, "ranks 0-2 of 3");
}

UNIT_TEST(a_waiting_world_needs_a_line_after_10_s_and_then_every_minute)
{
    static const struct {
        uint64_t at_s;
        bool needs_line;
    } t[] = {{100, false}, {109, false}, {110, true}, {110, false}, {169, false},
             {171, true},  {172, false}, {230, true}, {600, true},  {601, false}};
    const struct rdv_put put = {0, 0, RDV_WAIT_FOREVER, NULL, 0};
    CLEANUP(rdv_world_release) struct rdv_world w;
    void *old;

    assert_int_equal(rdv_world_init(&w, 2, NULL), 0);
    assert_false(rdv_world_needs_line(&w, 1000 * NS_PER_S)); /* nobody waits */
    (void)rdv_world_admit(&w, 0, &old);
    rdv_world_join(&w, 0, &w);
    assert_int_equal(rdv_world_put(&w, 0, &put, 100 * NS_PER_S, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        assert_int_equal(rdv_world_needs_line(&w, t[i].at_s * NS_PER_S),
                         t[i].needs_line);
    rdv_world_withdraw(&w, 0); /* another wait */
    assert_false(rdv_world_needs_line(&w, 700 * NS_PER_S));
    assert_int_equal(rdv_world_put(&w, 0, &put, 700 * NS_PER_S, NULL), 0);
    assert_false(rdv_world_needs_line(&w, 709 * NS_PER_S));
    assert_true(rdv_world_needs_line(&w, 710 * NS_PER_S));
}

UNIT_TEST(a_refusal_has_no_control_characters)
{
    uint8_t p[] = "\7\0\0\0\5\0\0\0\2\0\0\0rank\n1\x1b[0m";
    struct rdv_refused r;

    assert_int_equal(rdv_refused_parse(p, sizeof(p) - 1, &r, NULL), 0);
    assert_int_equal(r.place, 7);
    assert_int_equal(r.pass, 5);
    assert_int_equal(r.why.code, -ECANCELED);
    assert_string_equal(r.why.text, "rank 1 [0m");
    p[8] = 99;
    assert_int_equal(rdv_refused_parse(p, sizeof(p) - 1, &r, NULL), 0);
    assert_int_equal(r.why.code, -EPROTO);
    assert_int_equal(rdv_refused_parse(p, 11, &r, NULL), -EPROTO);
}

/* --- an authenticated peer that breaks the protocol --- */

static void raw_connect(uint16_t port, struct frame_conn *ret)
{
    const struct auth_id id = {&token_a, "j", 0};
    const struct auth_server server = {"127.0.0.1", port, .is_patient = false};
    const struct auth_claim claim = {.id = &id,
                                     .mine = ROLE_RENDEZVOUS_CLIENT,
                                     .theirs = ROLE_RENDEZVOUS_SERVER,
                                     .deadline_ns = in_ms(10000)};
    struct auth_session session;
    int fd = -1;

    assert_int_equal(auth_connect(&server, &claim, &fd, &session, NULL), 0);
    frame_open(ret, fd, &session, 1024);
}

static void raw_send(struct frame_conn *c, enum rdv_type type, const void *p, size_t n)
{
    assert_int_equal(frame_send(c, (uint8_t)type, p, n), 0);
    assert_int_equal(frame_flush_until(c, in_ms(10000)), 0);
}

/* The type of the next frame; 0: the server has closed. */
static int raw_recv(struct frame_conn *c)
{
    struct frame f;
    int rc = frame_recv_until(c, in_ms(10000), &f);

    if (rc == -EPIPE || rc == -ECONNRESET)
        return 0;
    assert_int_equal(rc, 1);
    return f.type;
}

UNIT_TEST(a_member_that_breaks_the_protocol_is_dropped)
{
    static const uint8_t join0[24] = {[4] = 2};
    static const uint8_t put0[13] = {[8] = 0xff, 0xff, 0xff, 0xff, 'x'};
    static const uint8_t put9[13] = {[4] = 9, [8] = 0xff, 0xff, 0xff, 0xff, 'x'};
    struct rdv_server *s = NULL;
    const struct auth_id id = {&token_a, "j", 0};
    struct rdv_client *c = NULL;
    struct frame_conn r;
    struct err e = ERR_INIT;
    uint8_t **blobs;
    uint32_t *sizes;
    uint16_t port = 0;
    int fd = -1;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &port, NULL), 0);
    assert_int_equal(rdv_server_start(fd, &id, 2, NULL, &s, NULL), 0);

    raw_connect(port, &r); /* PUT before JOIN */
    raw_send(&r, RDV_PUT, put0, sizeof(put0));
    assert_int_equal(raw_recv(&r), RDV_REFUSED);
    assert_int_equal(raw_recv(&r), 0);
    frame_release(&r);

    raw_connect(port, &r); /* a frame that no member sends */
    raw_send(&r, RDV_ALL, join0, sizeof(join0));
    assert_int_equal(raw_recv(&r), 0);
    frame_release(&r);

    raw_connect(port, &r); /* a wrong tag */
    r.send.n++;
    raw_send(&r, RDV_JOIN, join0, sizeof(join0));
    assert_int_equal(raw_recv(&r), 0);
    frame_release(&r);

    raw_connect(port, &r); /* a round that is not open */
    raw_send(&r, RDV_JOIN, join0, sizeof(join0));
    assert_int_equal(raw_recv(&r), RDV_WELCOME);
    raw_send(&r, RDV_PUT, put9, sizeof(put9));
    assert_int_equal(raw_recv(&r), RDV_REFUSED);
    assert_int_equal(raw_recv(&r), 0);
    frame_release(&r);

    raw_connect(port, &r); /* puts its blob and closes: the blob is withdrawn */
    raw_send(&r, RDV_JOIN, join0, sizeof(join0));
    assert_int_equal(raw_recv(&r), RDV_WELCOME);
    raw_send(&r, RDV_PUT, put0, sizeof(put0));
    assert_int_equal(shutdown(r.fd, SHUT_WR), 0);
    assert_int_equal(raw_recv(&r), 0); /* the server has seen both */
    frame_release(&r);
    assert_int_equal(
        rdv_client_connect("127.0.0.1", port, &id, 1, 2, in_ms(10000), &c, &e), 0);
    assert_int_equal(rdv_client_exchange(c, "y", 1, in_ms(50), &blobs, &sizes, &e),
                     -ETIMEDOUT);
    assert_non_null(strstr(e.text, "for rank 0 of 2; had connected and was lost: 0"));
    rdv_client_close(c);
    rdv_server_stop(s);
}

/* --- a server that stops --- */

struct dialer {
    uint16_t port;
    int rc;
    struct rdv_client *client;
    struct err err;
};

static void *dialer_main(void *arg)
{
    const struct auth_id id = {&token_a, "j", 0};
    struct dialer *d = arg;

    d->rc = rdv_client_connect("127.0.0.1", d->port, &id, 0, 1, in_ms(60000),
                               &d->client, &d->err);
    return NULL;
}

/* It has admitted the client and closes with its JOIN unread, which resets the
 * connection: the client tries again. */
UNIT_TEST(a_client_whose_server_restarts_tries_again)
{
    const struct auth_id id = {&token_a, "j", 0};
    struct dialer d = {.err = ERR_INIT};
    struct rdv_server *s = NULL;
    struct admitted m;
    uint8_t **blobs;
    uint32_t *sizes;
    pthread_t t;
    int fd = -1;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &d.port, NULL), 0);
    assert_int_equal(pthread_create(&t, NULL, dialer_main, &d), 0);
    assert_int_equal(admit_one(fd, ROLE_RENDEZVOUS_SERVER, ROLE_RENDEZVOUS_CLIENT, &id,
                               in_ms(60000), &m),
                     0);
    assert_true(fd_wait(m.fd, POLLIN, in_ms(60000)) > 0);
    fd_close(&m.fd);
    assert_int_equal(rdv_server_start(fd, &id, 1, NULL, &s, NULL), 0);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_int_equal(d.rc, 0);
    assert_int_equal(
        rdv_client_exchange(d.client, "x", 1, in_ms(60000), &blobs, &sizes, &d.err), 0);
    mem_free(blobs);
    rdv_client_close(d.client);
    rdv_server_stop(s);
}

UNIT_MAIN(NULL, NULL)
