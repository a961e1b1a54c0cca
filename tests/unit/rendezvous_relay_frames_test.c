/* SPDX-License-Identifier: Apache-2.0 */
/* relay.c, frame by frame: the members below and the connection up are ours. That a frame
 * is dropped shows in the next one, which arrives in its place. */
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/relay.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/rendezvous_frames.h"
#include "tests/unit/torture.h"

#define LONG_NS   (60 * NS_PER_S)
#define BIG_BYTES (8u << 20) /* more than sockets hold */

enum { SIZE = 3 };

static const struct token token = {{7, 8, 9}};
static const struct auth_id id = {&token, "ns/hop/uid", 0};

/* --- a relay and its connection up --- */

struct hop {
    struct rdv_relay *relay;
    struct frame_conn up, server; /* its end and ours */
};

static void hop_attach(struct hop *h)
{
    struct auth_session s = {.send_key = {1}, .recv_key = {2}};
    struct auth_session t = {.send_key = {2}, .recv_key = {1}};
    int fd[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    frame_init(&h->up);
    frame_init(&h->server);
    frame_open(&h->up, fd[0], &s, RDV_TO_MEMBER_MAX(SIZE));
    frame_open(&h->server, fd[1], &t, RDV_TO_SERVER_MAX + BIG_BYTES);
    assert_int_equal(relay_attach(h->relay, &h->up), 0);
}

static void hop_detach(struct hop *h)
{
    relay_detach(h->relay);
    frame_release(&h->up);
    frame_release(&h->server);
}

static void hop_open(struct hop *h)
{
    assert_int_equal(relay_new(&id, SIZE, &h->relay, NULL), 0);
    hop_attach(h);
}

static void hop_close(struct hop *h)
{
    hop_detach(h);
    relay_free(h->relay);
}

static void hop_turn(struct hop *h)
{
    assert_int_equal(relay_turn(h->relay, clock_now_ns() + NS_PER_MS), 0);
}

/* As frame_recv_until, while the relay works. */
static int hop_receive(struct hop *h, struct frame_conn *c, struct frame *ret)
{
    const uint64_t deadline_ns = clock_now_ns() + LONG_NS;
    int rc;

    for (;;) {
        frame_readable(c);
        rc = frame_recv(c, ret);
        if (rc != 0 || clock_now_ns() >= deadline_ns)
            return rc;
        hop_turn(h);
    }
}

static void hop_expect(struct hop *h, struct frame_conn *c, const char *want)
{
    struct frame f;
    char text[128];

    assert_int_equal(hop_receive(h, c, &f), 1);
    frame_text(&f, text, sizeof(text));
    assert_string_equal(text, want);
}

/* --- a connection below --- */

struct hop_below {
    struct frame_conn c;
    uint16_t port;
    int fd, rc;
    struct auth_session session;
};

static void *below_main(void *arg)
{
    struct hop_below *b = arg;
    const struct auth_server server = {.host = "127.0.0.1", .port = b->port};
    const struct auth_claim claim = {.id = &id,
                                     .mine = ROLE_RENDEZVOUS_CLIENT,
                                     .theirs = ROLE_RENDEZVOUS_SERVER,
                                     .deadline_ns = clock_now_ns() + LONG_NS};

    b->rc = auth_connect(&server, &claim, &b->fd, &b->session, NULL);
    return NULL;
}

static void below_connect(struct hop_below *b, struct hop *h)
{
    pthread_t thread;

    b->port = relay_port(h->relay);
    assert_int_equal(pthread_create(&thread, NULL, below_main, b), 0);
    while (pthread_tryjoin_np(thread, NULL) != 0)
        hop_turn(h);
    hop_turn(h); /* reads the proof */
    assert_int_equal(b->rc, 0);
    frame_init(&b->c);
    frame_open(&b->c, b->fd, &b->session, RDV_TO_MEMBER_MAX(SIZE));
}

/* Connects and enters as the place, with the pass place + 10. */
static void below_enter(struct hop_below *b, struct hop *h, uint32_t place)
{
    char enter[64], welcome[64];

    (void)snprintf(enter, sizeof(enter), "ENTER %u %u %u", place, place + 10, SIZE);
    (void)snprintf(welcome, sizeof(welcome), "WELCOME %u %u", place, place + 10);
    below_connect(b, h);
    assert_int_equal(frame_say(&b->c, enter), 0);
    hop_expect(h, &h->server, enter);
    hop_expect(h, &b->c, welcome);
}

/* --- tests --- */

UNIT_TEST(the_frames_of_a_place_come_by_its_last_connection)
{
    struct hop h;
    struct hop_below a, b, c;

    hop_open(&h);
    below_enter(&a, &h, 2);
    below_enter(&b, &h, 0);
    assert_int_equal(frame_say(&a.c, "ENTER 1 20 3"),
                     0); /* a member behind it: it has no WELCOME */
    hop_expect(&h, &h.server, "ENTER 1 20 3");
    assert_int_equal(frame_say(&a.c, "PUT 1 0 9"), 0);
    hop_expect(&h, &h.server, "PUT 1 0 9");
    assert_int_equal(frame_say(&b.c, "ENTER 1 21 3"), 0); /* has moved */
    hop_expect(&h, &h.server, "ENTER 1 21 3");
    assert_int_equal(frame_say(&a.c, "PUT 1 0 8"), 0);
    assert_int_equal(frame_say(&a.c, "LEFT 1"), 0);
    assert_int_equal(frame_say(&a.c, "PUT 2 0 7"), 0);
    hop_expect(&h, &h.server, "PUT 2 0 7");
    assert_int_equal(frame_say(&b.c, "PUT 1 1 6"), 0);
    hop_expect(&h, &h.server, "PUT 1 1 6");
    frame_release(&a.c);
    hop_expect(&h, &h.server, "LEFT 2");
    assert_int_equal(frame_say(&b.c, "LEFT 1"), 0);
    hop_expect(&h, &h.server, "LEFT 1");
    assert_int_equal(frame_say(&b.c, "PUT 1 1 5"), 0);
    frame_release(&b.c);
    hop_expect(&h, &h.server, "LEFT 0");
    below_enter(&c, &h, 1);
    frame_release(&c.c);
    hop_expect(&h, &h.server, "LEFT 1"); /* and of no other place */
    hop_close(&h);
}

UNIT_TEST(a_connection_that_breaks_the_protocol_is_closed)
{
    static const struct {
        bool is_member;
        const char *say;
    } rows[] = {{false, "PUT 0 0 9"}, {false, "LEFT 0"},      {false, "ENTER 0 1 4"},
                {false, "ENTER 0 3"}, {false, "WELCOME 0 1"}, {true, "PUT 3 0 9"},
                {true, "PUT 0"},      {true, "LEFT 3"},       {true, "LEFT"},
                {true, "ALL 0 0"},    {true, "ENTER 1 1 2"}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct hop h;
        struct hop_below a;
        struct frame f;

        hop_open(&h);
        if (rows[i].is_member)
            below_enter(&a, &h, 0);
        else
            below_connect(&a, &h);
        assert_int_equal(frame_say(&a.c, rows[i].say), 0);
        if (hop_receive(&h, &a.c, &f) != -EPIPE)
            fail_msg("%s", rows[i].say);
        if (rows[i].is_member)
            hop_expect(&h, &h.server, "LEFT 0");
        frame_release(&a.c);
        hop_close(&h);
    }
}

UNIT_TEST(a_refusal_reaches_the_connection_that_it_names)
{
    static const int codes[] = {-EINVAL, -ECANCELED, -ETIMEDOUT, -ESTALE};
    struct hop h;
    struct hop_below a, b;
    struct frame f;

    hop_open(&h);
    below_enter(&a, &h, 0);
    below_connect(&b, &h);
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        struct rdv_refused to = {.place = 0, .pass = 9}, got;

        (void)err_set(&to.why, codes[i], "row %zu", i);
        relay_refuse(h.relay, &to); /* to an earlier connection of this place */
        to.place = 1;               /* not below */
        to.pass = 0;
        relay_refuse(h.relay, &to);
        to.place = SIZE;
        relay_refuse(h.relay, &to);
        to.place = 0;
        to.pass = 10;
        relay_refuse(h.relay, &to);
        assert_int_equal(hop_receive(&h, &a.c, &f), 1);
        assert_int_equal(rdv_refused_parse(f.p, f.n, &got, NULL), 0);
        assert_int_equal(got.place, 0);
        assert_int_equal(got.pass, 10);
        assert_int_equal(got.why.code, codes[i]);
        assert_string_equal(got.why.text, to.why.text);
    }
    relay_refuse_all(h.relay, "gone");
    hop_expect(&h, &a.c, "REFUSED 4294967295 0 3");
    assert_int_equal(frame_say(&b.c, "ENTER 1 1 3"),
                     0); /* had not entered: this is its first frame */
    hop_expect(&h, &b.c, "WELCOME 1 1");
    frame_release(&a.c);
    frame_release(&b.c);
    hop_close(&h);
}

UNIT_TEST(an_answer_goes_once_to_each_connection_of_a_member)
{
    static const uint8_t all[] = {0, 0, 0, 1, 0, 0, 0, 2};
    const struct frame f = {.type = RDV_ALL, .p = all, .n = sizeof(all)};
    struct hop h;
    struct hop_below a, b, c;
    char want[64];

    frame_text(&f, want, sizeof(want));
    hop_open(&h);
    assert_int_equal(relay_send_all(h.relay, &f), 0);
    below_enter(&a, &h, 0);
    below_enter(&b, &h, 1);
    below_connect(&c, &h);
    assert_int_equal(frame_say(&b.c, "ENTER 2 2 3"), 0);
    hop_expect(&h, &h.server, "ENTER 2 2 3");
    mem_fail_after(0);
    assert_int_equal(relay_send_all(h.relay, &f), -ENOMEM);
    mem_fail_after(-1);
    assert_int_equal(relay_send_all(h.relay, &f), 0);
    relay_refuse_all(h.relay, "next");
    assert_int_equal(frame_say(&c.c, "ENTER 2 3 3"), 0);
    hop_expect(&h, &a.c, want);
    hop_expect(&h, &a.c, "REFUSED 4294967295 0 3");
    hop_expect(&h, &b.c, want);
    hop_expect(&h, &b.c, "REFUSED 4294967295 0 3");
    hop_expect(&h, &c.c, "WELCOME 2 3");
    frame_release(&a.c);
    frame_release(&b.c);
    frame_release(&c.c);
    hop_close(&h);
}

UNIT_TEST(a_relay_that_is_detached_forgets_the_members_below)
{
    struct hop h;
    struct hop_below a, b;
    struct frame f;

    hop_open(&h);
    below_enter(&a, &h, 0);
    hop_detach(&h);
    relay_detach(h.relay);
    assert_int_equal(frame_recv_until(&a.c, clock_now_ns() + LONG_NS, &f), -EPIPE);
    hop_attach(&h);
    relay_refuse(h.relay, &(struct rdv_refused){.place = 0, .pass = 10});
    below_enter(&b, &h, 1);
    frame_release(&b.c);
    hop_expect(&h, &h.server, "LEFT 1");
    frame_release(&a.c);
    hop_close(&h);
}

/* A relay takes an ENTER or a PUT with the n-th allocation failing; false: there are
 * fewer. Then the way up is given up (-ENOMEM), or the connection below. */
static bool relay_survives(bool is_enter, long n)
{
    static uint8_t put[RDV_PUT_BYTES + 8192];
    struct hop h;
    struct hop_below a;
    struct frame f;
    int rc = 0;

    hop_open(&h);
    below_connect(&a, &h);
    assert_int_equal(frame_say(&a.c, "ENTER 0 10 3"), 0);
    if (!is_enter) {
        hop_expect(&h, &a.c, "WELCOME 0 10");
        hop_expect(&h, &h.server, "ENTER 0 10 3");
        assert_int_equal(frame_send(&a.c, RDV_PUT, put, sizeof(put)), 0);
    }
    const struct frame_conn *to = is_enter ? &a.c : &h.server;
    mem_fail_after(n);
    const uint64_t deadline_ns = clock_now_ns() + LONG_NS;
    while (rc == 0 && clock_now_ns() < deadline_ns
           && fd_wait(to->fd, POLLIN, clock_now_ns()) == -ETIMEDOUT)
        rc = relay_turn(h.relay, clock_now_ns() + NS_PER_MS);
    bool was_hit = mem_fail_fired();
    mem_fail_after(-1);
    assert_true(rc == 0 || (was_hit && rc == -ENOMEM));
    if (rc == 0 && is_enter) {
        assert_int_equal(hop_receive(&h, &a.c, &f), was_hit ? -EPIPE : 1);
    } else if (rc == 0) {
        assert_int_equal(hop_receive(&h, &h.server, &f), 1);
        assert_int_equal(f.type, was_hit ? RDV_LEFT : RDV_PUT);
    }
    frame_release(&a.c);
    hop_detach(&h);
    hop_attach(&h);
    hop_turn(&h); /* the loss was of the other connection */
    hop_close(&h);
    return was_hit;
}

UNIT_TEST(no_frame_is_lost_in_silence_when_memory_is_out)
{
    for (int is_enter = 0; is_enter < 2; is_enter++) {
        long n = 0;

        while (relay_survives(is_enter, n))
            n++;
        assert_true(n > 1);
    }
}

static int new_once(void *arg)
{
    const int n_fds = open_fds();
    struct rdv_relay *r = arg;
    int rc = relay_new(&id, SIZE, &r, NULL);

    if (rc == 0)
        relay_free(r);
    else
        assert_ptr_equal(r, arg);
    assert_int_equal(open_fds(), n_fds);
    return rc;
}

UNIT_TEST(a_relay_that_cannot_be_opened_leaves_nothing)
{
    struct rdv_relay *other = NULL; /* has a port of its own */
    struct frame_conn closed;

    assert_int_equal(relay_new(&id, SIZE, &other, NULL), 0);
    assert_true(relay_port(other) >= 1024);
    torture(new_once, other);
    frame_init(&closed);
    assert_int_equal(relay_attach(other, &closed), -EBADF);
    relay_free(other);
    relay_free(NULL);
}

/* Reads a big frame in a thread; returns arg if it came. */
static void *big_main(void *arg)
{
    struct frame f;
    int rc = frame_recv_until(arg, clock_now_ns() + LONG_NS, &f);

    return rc == 1 && f.n == BIG_BYTES ? arg : NULL;
}

UNIT_TEST(a_slow_peer_gets_all_bytes)
{
    AUTOFREE uint8_t *big = mem_zalloc(BIG_BYTES);
    const struct frame f = {.type = RDV_ALL, .p = big, .n = BIG_BYTES};
    struct hop h;
    struct hop_below a;
    pthread_t thread;
    void *got;

    assert_non_null(big);
    hop_open(&h);
    below_enter(&a, &h, 0);
    assert_int_equal(relay_send_all(h.relay, &f), 0);
    relay_flush(h.relay, clock_now_ns());                /* returns: its time is over */
    assert_int_equal(frame_say(&h.server, "LEFT 0"), 0); /* up is readable meanwhile */
    assert_int_equal(pthread_create(&thread, NULL, big_main, &a.c), 0);
    relay_flush(h.relay, clock_now_ns() + LONG_NS);
    assert_int_equal(pthread_join(thread, &got), 0);
    assert_ptr_equal(got, &a.c);
    /* up is watched again, and until it is read ends each turn */
    uint64_t begin_ns = clock_now_ns();
    assert_int_equal(relay_turn(h.relay, begin_ns + LONG_NS), 0);
    assert_true(clock_now_ns() - begin_ns < LONG_NS);
    frame_release(&a.c);
    hop_close(&h);
}

enum { N_PUTS = 16 };

static void *puts_main(void *arg)
{
    struct frame f;
    uintptr_t n = 0;

    while (n < N_PUTS && frame_recv_until(arg, clock_now_ns() + LONG_NS, &f) == 1)
        n += f.type == RDV_PUT;
    return n == N_PUTS ? arg : NULL;
}

UNIT_TEST(what_the_way_up_does_not_take_at_once_is_sent_later)
{
    AUTOFREE uint8_t *put = mem_zalloc(RDV_PUT_BYTES + RDV_MAX_BLOB_BYTES);
    struct hop h;
    struct hop_below a;
    pthread_t thread;
    void *got;
    uint64_t begin_ns, deadline_ns;

    assert_non_null(put);
    hop_open(&h);
    below_enter(&a, &h, 0);
    for (int i = 0; i < N_PUTS; i++)
        assert_int_equal(
            frame_send(&a.c, RDV_PUT, put, RDV_PUT_BYTES + RDV_MAX_BLOB_BYTES), 0);
    while (frame_unsent(&a.c) > 0 || frame_unsent(&h.up) == 0) {
        assert_int_equal(frame_flush(&a.c), 0);
        hop_turn(&h);
    }
    assert_int_equal(pthread_create(&thread, NULL, puts_main, &h.server), 0);
    do {
        begin_ns = clock_now_ns();
        assert_int_equal(relay_turn(h.relay, begin_ns + LONG_NS), 0);
        assert_true(clock_now_ns() - begin_ns < LONG_NS);
    } while (frame_unsent(&h.up) > 0);
    assert_int_equal(pthread_join(thread, &got), 0);
    assert_ptr_equal(got, &h.server);
    deadline_ns = clock_now_ns() + LONG_NS;
    for (int n_full = 0; n_full < 5;) { /* then turns take their time again */
        begin_ns = clock_now_ns();
        assert_true(begin_ns < deadline_ns);
        assert_int_equal(relay_turn(h.relay, begin_ns + 20 * NS_PER_MS), 0);
        n_full = clock_now_ns() - begin_ns < 19 * NS_PER_MS ? 0 : n_full + 1;
    }
    frame_release(&a.c);
    hop_close(&h);
}

UNIT_MAIN(NULL, NULL)
