/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous with real sockets and threads: a server, members as threads, and peers
 * that misbehave. Waits are joins and reads with deadlines. Deadlines that are to pass
 * (SHORT_MS) are long enough for the server to see what was sent before. */
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/wire/auth_wire.h"
#include "runtime/rendezvous/rdv_wire.h"

#define MAX_MEMBERS 16
#define LONG_MS     20000u
#define SHORT_MS    500u

static const struct token token_a = {{1, 2, 3}};
static const struct token token_b = {{1, 2, 4}};

struct world {
    struct rdv_server *server;
    uint16_t port;
    struct auth_id id;
};

static uint64_t in_ms(uint64_t ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

static struct world world_up(uint32_t size)
{
    struct world w = {.id = {&token_a, "ns/demo/uid", 0}};
    struct err err = ERR_INIT;
    int fd = -1;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &w.port, &err), 0);
    assert_int_equal(rdv_server_start(fd, &w.id, size, NULL, &w.server, &err), 0);
    return w;
}

static int connect_as(const struct world *w,
                      uint32_t rank,
                      uint32_t size,
                      uint64_t ms,
                      struct rdv_client **ret,
                      struct err *err)
{
    return rdv_client_connect("127.0.0.1", w->port, &w->id, rank, size, in_ms(ms), ret,
                              err);
}

/* One member in a thread: connects, then n_rounds exchanges. */
struct member {
    const struct world *w;
    uint32_t rank, size, n_rounds, wait_ms;
    int rc;
    struct err err;
    pthread_t thread;
};

static uint32_t blob_for(uint32_t rank, uint32_t round, uint8_t *blob)
{
    uint32_t n = (rank * 977u + round * 31u) % 5000u; /* rank 0 round 0: empty */

    for (uint32_t i = 0; i < n; i++)
        blob[i] = (uint8_t)(rank + round + i);
    return n;
}

static int check_round(struct member *m, struct rdv_client *c, uint32_t round)
{
    uint8_t blob[5000], want[5000];
    uint8_t **blobs = NULL;
    uint32_t *sizes = NULL;
    uint32_t n = blob_for(m->rank, round, blob);
    int rc =
        rdv_client_exchange(c, blob, n, in_ms(m->wait_ms), &blobs, &sizes, &m->err);

    if (rc)
        return rc;
    for (uint32_t r = 0; r < m->size && rc == 0; r++) {
        uint32_t k = blob_for(r, round, want);

        if (sizes[r] != k || (k && memcmp(blobs[r], want, k) != 0))
            rc =
                err_set(&m->err, -EBADMSG, "round %u: wrong blob of rank %u", round, r);
    }
    mem_free(blobs);
    return rc;
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct rdv_client *c = NULL;

    m->rc = connect_as(m->w, m->rank, m->size, m->wait_ms, &c, &m->err);
    for (uint32_t round = 0; round < m->n_rounds && m->rc == 0; round++)
        m->rc = check_round(m, c, round);
    rdv_client_close(c);
    return NULL;
}

static void member_go(struct member *m,
                      const struct world *w,
                      uint32_t rank,
                      uint32_t size,
                      uint32_t wait_ms)
{
    *m = (struct member){
        .w = w, .rank = rank, .size = size, .n_rounds = 2, .wait_ms = wait_ms};
    assert_int_equal(pthread_create(&m->thread, NULL, member_main, m), 0);
}

static void member_join(struct member *m)
{
    assert_int_equal(pthread_join(m->thread, NULL), 0);
}

/* All members of a world of n complete their rounds. */
static void world_completes(const struct world *w, uint32_t n)
{
    struct member m[MAX_MEMBERS];

    for (uint32_t r = 0; r < n; r++)
        member_go(&m[r], w, r, n, LONG_MS);
    for (uint32_t r = 0; r < n; r++) {
        member_join(&m[r]);
        if (m[r].rc)
            fail_msg("rank %u: %s", r, m[r].err.text);
    }
}

/* Until n members have joined. */
static void wait_joined(const struct world *w, uint32_t n)
{
    uint64_t deadline = in_ms(LONG_MS);

    while (rdv_server_joined(w->server) < n) {
        assert_true(clock_left_ms(deadline) > 0);
        (void)poll(NULL, 0, 1); /* the count has no event to wait for */
    }
}

UNIT_TEST(two_rounds_for_1_to_16_members)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 8, 16};

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct world w = world_up(sizes[i]);

        world_completes(&w, sizes[i]);
        assert_int_equal(rdv_server_joined(w.server), sizes[i]);
        rdv_server_stop(w.server);
    }
}

UNIT_TEST(members_may_come_before_the_server)
{
    struct world w = world_up(2);
    struct member m[2];
    struct err err = ERR_INIT;
    int fd = -1;

    rdv_server_stop(w.server); /* its port is free now, and known */
    member_go(&m[0], &w, 0, 2, LONG_MS);
    member_go(&m[1], &w, 1, 2, LONG_MS);
    assert_int_equal(tcp_listen("127.0.0.1", w.port, &fd, NULL, &err), 0);
    assert_int_equal(rdv_server_start(fd, &w.id, 2, NULL, &w.server, &err), 0);
    for (int i = 0; i < 2; i++) {
        member_join(&m[i]);
        assert_int_equal(m[i].rc, 0);
    }
    rdv_server_stop(w.server);
}

UNIT_TEST(strangers_are_refused_with_a_reason)
{
    static const struct {
        const struct token *token;
        const char *job;
        uint32_t generation, rank, size;
        int rc;
        const char *says;
    } t[] = {
        {&token_b, "ns/demo/uid", 0, 0, 2, -EACCES, "another token"},
        {&token_a, "ns/other/uid", 0, 0, 2, -EPROTO,
         "another job than \"ns/other/uid\""},
        {&token_a, "ns/demo/uid", 1, 0, 2, -ESTALE,
         "peer is of generation 0, this end of generation 1"},
        {&token_a, "ns/demo/uid", 0, 2, 2, -EINVAL, "rank 2 is not below size 2"},
        {&token_a, "ns/demo/uid", 0, 0, 3, -EINVAL,
         "has size 3, but this world has size 2"},
    };
    struct world w = world_up(2);

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct world as = {NULL, w.port, {t[i].token, t[i].job, t[i].generation}};
        struct rdv_client *c = NULL;
        struct err err = ERR_INIT;
        int rc = connect_as(&as, t[i].rank, t[i].size, LONG_MS, &c, &err);

        if (rc != t[i].rc || !strstr(err.text, t[i].says))
            fail_msg("%zu: rc %d: %s", i, rc, err.text);
        assert_null(c);
    }
    assert_int_equal(rdv_server_joined(w.server), 0);
    world_completes(&w, 2); /* the server still works */
    rdv_server_stop(w.server);
}

UNIT_TEST(silent_and_babbling_peers_block_no_member)
{
    static const char http[] =
        "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: probe\r\n"
        "Accept: everything, anything\r\n\r\n";
    struct world w = world_up(4);
    int silent[32], babble = -1;
    char answer[AUTH_REPLY_BYTES + 1];

    for (size_t i = 0; i < ARRAY_LEN(silent); i++)
        assert_int_equal(
            tcp_connect("127.0.0.1", w.port, in_ms(LONG_MS), false, &silent[i], NULL),
            0);
    for (size_t i = 1; i < ARRAY_LEN(silent); i += 2) /* half a hello */
        assert_int_equal(fd_write_full(silent[i], "HVD1", 4, in_ms(LONG_MS)), 0);
    assert_int_equal(
        tcp_connect("127.0.0.1", w.port, in_ms(LONG_MS), false, &babble, NULL), 0);
    assert_int_equal(fd_write_full(babble, http, sizeof(http) - 1, in_ms(LONG_MS)), 0);
    world_completes(&w, 4);
    /* The babbling peer received a refusal without a MAC, then the connection closed. */
    assert_int_equal(fd_read_full(babble, answer, AUTH_REPLY_BYTES, in_ms(LONG_MS)), 0);
    assert_int_equal(fd_read_full(babble, answer, 1, in_ms(LONG_MS)), -EPIPE);
    fd_close(&babble);
    rdv_server_stop(w.server);
    for (size_t i = 0; i < ARRAY_LEN(silent); i++)
        fd_close(&silent[i]);
}

UNIT_TEST(a_timeout_names_the_missing_ranks)
{
    struct world w = world_up(8);
    struct rdv_client *c[8] = {NULL};
    uint8_t **blobs = NULL;
    uint32_t *sizes = NULL;
    double waited_s = 0;
    struct err err = ERR_INIT;

    for (uint32_t r = 0; r < 8;
         r++) /* 1, 3 and 5 never connect, 2, 4, 6 and 7 only join */
        if (r != 1 && r != 3 && r != 5)
            assert_int_equal(connect_as(&w, r, 8, LONG_MS, &c[r], &err), 0);
    rdv_client_close(TAKE(c[6]));
    assert_int_equal(
        rdv_client_exchange(c[0], "x", 1, in_ms(SHORT_MS), &blobs, &sizes, &err),
        -ETIMEDOUT);
    assert_null(blobs);
    assert_int_equal(sscanf(err.text, "waited %lf s", &waited_s), 1);
    assert_true(waited_s > 0 && waited_s <= SHORT_MS / 1000.0);
    assert_non_null(strstr(err.text, " s for ranks 1-7 of 8"));
    assert_non_null(strstr(err.text, "; had connected and was lost: 6"));
    assert_non_null(strstr(err.text, "; connected but late: 2, 4, 7"));

    /* The blob is withdrawn; all may try again, and the round can still succeed. */
    for (uint32_t r = 0; r < 8; r++)
        rdv_client_close(TAKE(c[r]));
    world_completes(&w, 8);
    rdv_server_stop(w.server);
}

UNIT_TEST(a_second_try_after_a_timeout_succeeds)
{
    struct world w = world_up(2);
    struct rdv_client *c = NULL;
    struct member m;
    uint8_t blob[5000];
    uint8_t **blobs = NULL;
    uint32_t *sizes = NULL;
    struct err err = ERR_INIT;

    assert_int_equal(connect_as(&w, 0, 2, LONG_MS, &c, &err), 0);
    assert_int_equal(
        rdv_client_exchange(c, "x", 1, in_ms(SHORT_MS), &blobs, &sizes, &err),
        -ETIMEDOUT);
    member_go(&m, &w, 1, 2, LONG_MS);
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t n = blob_for(0, round, blob);

        assert_int_equal(
            rdv_client_exchange(c, blob, n, in_ms(LONG_MS), &blobs, &sizes, &err), 0);
        mem_free(blobs);
    }
    member_join(&m);
    assert_int_equal(m.rc, 0);
    assert_string_equal(rdv_client_local_addr(c), "127.0.0.1");
    rdv_client_close(c);
    rdv_server_stop(w.server);
}

UNIT_TEST(a_duplicate_rank_is_refused)
{
    struct world w = world_up(2);
    struct rdv_client *first = NULL, *second = NULL;
    uint8_t **blobs = NULL;
    uint32_t *sizes = NULL;
    struct err err = ERR_INIT;

    assert_int_equal(connect_as(&w, 0, 2, LONG_MS, &first, &err), 0);
    assert_int_equal(connect_as(&w, 0, 2, LONG_MS, &second, &err), 0);
    assert_int_equal(
        rdv_client_exchange(first, "x", 1, in_ms(LONG_MS), &blobs, &sizes, &err),
        -ESTALE);
    assert_non_null(strstr(err.text, "rank 0 connected again from 127.0.0.1"));
    assert_int_equal(
        rdv_client_exchange(first, "x", 1, in_ms(LONG_MS), &blobs, &sizes, &err),
        -EPIPE);
    assert_int_equal(rdv_server_joined(w.server), 1); /* distinct members */
    rdv_client_close(first);
    rdv_client_close(second);
    world_completes(&w, 2);
    rdv_server_stop(w.server);
}

UNIT_TEST(the_blob_of_a_dead_member_is_withdrawn)
{
    struct world w = world_up(2);
    struct rdv_client *c = NULL;
    uint8_t **blobs = NULL;
    uint32_t *sizes = NULL;
    struct err err = ERR_INIT;

    /* Rank 1 puts "dead" and closes before rank 0 connects; its next process puts
     * something else. */
    assert_int_equal(connect_as(&w, 1, 2, LONG_MS, &c, &err), 0);
    assert_int_equal(
        rdv_client_exchange(c, "dead", 4, in_ms(SHORT_MS), &blobs, &sizes, &err),
        -ETIMEDOUT);
    rdv_client_close(c);
    world_completes(&w, 2); /* checks the blobs */
    /* The rounds are complete: a member that joins now is refused. */
    struct member late;
    member_go(&late, &w, 1, 2, LONG_MS);
    member_join(&late);
    assert_int_equal(late.rc, -ESTALE);
    assert_non_null(strstr(late.err.text, "puts into round 0, which is complete"));
    rdv_server_stop(w.server);
}

UNIT_TEST(a_failure_reaches_waiting_and_later_members)
{
    struct world w = world_up(3);
    struct member m[3];

    member_go(&m[0], &w, 0, 3, LONG_MS);
    member_go(&m[1], &w, 1, 3, LONG_MS);
    wait_joined(&w, 2);
    rdv_server_fail(w.server, "rank 2 on h exited with code 3");
    rdv_server_fail(w.server, "a later cause does not count");
    member_go(&m[2], &w, 2, 3, LONG_MS);
    for (int r = 0; r < 3; r++) {
        member_join(&m[r]);
        assert_int_equal(m[r].rc, -ECANCELED);
        assert_string_equal(m[r].err.text, "rank 2 on h exited with code 3");
    }
    rdv_server_stop(w.server);
}

UNIT_TEST(stopping_refuses_waiting_members)
{
    struct world w = world_up(2);
    struct member m;

    member_go(&m, &w, 0, 2, LONG_MS);
    wait_joined(&w, 1);
    rdv_server_stop(w.server);
    member_join(&m);
    /* It was refused, or its PUT was still in transit when the server closed. */
    assert_true(m.rc == -ECANCELED || m.rc == -EPIPE);
    rdv_server_stop(NULL);
}

/* Rank 0 serves, and stops the server as soon as it has its own answer. */
UNIT_TEST(the_last_round_arrives_although_the_server_stops)
{
    for (int i = 0; i < 50; i++) {
        struct world w = world_up(4);
        struct member m[4];

        for (uint32_t r = 0; r < 4; r++)
            member_go(&m[r], &w, r, 4, LONG_MS);
        member_join(&m[0]);
        assert_int_equal(m[0].rc, 0);
        rdv_server_stop(w.server);
        for (int r = 1; r < 4; r++) {
            member_join(&m[r]);
            assert_int_equal(m[r].rc, 0);
        }
    }
}

UNIT_TEST(a_server_that_hangs_is_reported)
{
    struct world w = {.id = {&token_a, "ns/demo/uid", 0}};
    struct rdv_client *c = NULL;
    struct err err = ERR_INIT;
    int fd = -1;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &w.port, &err), 0);
    assert_int_equal(connect_as(&w, 0, 2, SHORT_MS, &c, &err),
                     -ETIMEDOUT); /* no accept */
    assert_non_null(strstr(err.text, "silent during the handshake"));
    assert_non_null(strstr(err.text, "rendezvous server 127.0.0.1 port"));
    fd_close(&fd);
}

UNIT_TEST(the_thread_takes_no_signal_and_leaves_no_descriptor)
{
    int before = dup(0);
    struct world w = world_up(2);
    sigset_t mine, now;

    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mine), 0);
    world_completes(&w, 2);
    rdv_server_stop(w.server);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    for (int sig = 1; sig < 32; sig++)
        assert_int_equal(sigismember(&mine, sig), sigismember(&now, sig));
    (void)close(before);
    int after = dup(0);
    assert_int_equal(before, after);
    (void)close(after);
}

UNIT_TEST(invalid_arguments_are_refused)
{
    struct auth_id id = {&token_a, "j", 0};
    struct rdv_server *s = NULL;
    struct rdv_client *c = NULL;
    struct world w;
    struct err err = ERR_INIT;
    static uint8_t big[RDV_MAX_BLOB_BYTES + 1];
    uint8_t **blobs;
    uint32_t *sizes;
    uint16_t port;
    int fd = -1;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &port, &err), 0);
    assert_int_equal(rdv_server_start(fd, &id, 0, NULL, &s, &err), -EINVAL);
    assert_null(s);
    assert_int_equal(rdv_server_start(-1, &id, 1, NULL, &s, &err), -EBADF);
    fd_close(&fd); /* was not taken over */
    w = world_up(1);
    assert_int_equal(connect_as(&w, 0, 1, LONG_MS, &c, &err), 0);
    assert_int_equal(
        rdv_client_exchange(c, big, sizeof(big), in_ms(1000), &blobs, &sizes, &err),
        -EINVAL);
    assert_int_equal(rdv_client_exchange(c, big, RDV_MAX_BLOB_BYTES, in_ms(LONG_MS),
                                         &blobs, &sizes, &err),
                     0);
    assert_int_equal(sizes[0], RDV_MAX_BLOB_BYTES);
    mem_free(blobs);
    rdv_client_close(c);
    rdv_server_stop(w.server);
}

UNIT_MAIN(NULL, NULL)
