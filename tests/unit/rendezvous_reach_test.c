/* SPDX-License-Identifier: Apache-2.0 */
/* A server with several addresses, some of which are unreachable or another server's:
 * the 127.0.0.0/8 of this machine stands in for networks. Then a server that answers from
 * a list, which is also the relay that it names. */
#include <pthread.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/rendezvous_frames.h"
#include "tests/unit/wire_server.h"

static const struct token ours = {{1, 2, 3}}, others = {{3, 2, 1}};

struct spot {
    struct rdv_server *server;
    uint16_t port;
    struct auth_id id;
};

static struct spot
spot_start(const char *addr, uint16_t port, const struct token *token)
{
    struct spot p = {.id = {token, "job", 0}};
    struct err err = ERR_INIT;
    int fd = -1;

    assert_int_equal(tcp_listen(addr, port, &fd, &p.port, &err), 0);
    assert_int_equal(rdv_server_start(fd, &p.id, 1, NULL, &p.server, &err), 0);
    return p;
}

struct result {
    int rc;
    uint64_t took_ms;
    char local[64];
    struct err err;
};

static struct result
spot_reach(const struct spot *p, const char *hosts, uint32_t rank, uint32_t ms)
{
    struct result r = {.err = ERR_INIT};
    struct rdv_client *c = NULL;
    const struct auth_id id = {&ours, "job", 0};
    uint64_t start = clock_now_ns();

    r.rc = rdv_client_connect(hosts, p->port, &id, rank, 1, start + ms * NS_PER_MS, &c,
                              &r.err);
    r.took_ms = (clock_now_ns() - start) / NS_PER_MS;
    if (r.rc == 0)
        (void)snprintf(r.local, sizeof(r.local), "%s", rdv_client_local_addr(c));
    rdv_client_close(c);
    return r;
}

UNIT_TEST(an_address_without_listener_is_skipped)
{
    struct spot p = spot_start("127.0.0.3", 0, &ours);
    struct result r =
        spot_reach(&p, "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4", 0, 10000);

    assert_int_equal(r.rc, 0);
    assert_true(r.took_ms < 5000);
    rdv_server_stop(p.server);
}

UNIT_TEST(another_jobs_server_is_not_used)
{
    struct spot right = spot_start("127.0.0.3", 0, &ours);
    struct spot wrong = spot_start("127.0.0.2", right.port, &others);
    struct result r = spot_reach(&right, "127.0.0.2,127.0.0.3", 0, 10000);

    assert_int_equal(r.rc, 0);
    assert_int_equal(rdv_server_joined(wrong.server), 0);
    assert_int_equal(rdv_server_joined(right.server), 1);
    rdv_server_stop(right.server);
    rdv_server_stop(wrong.server);
}

UNIT_TEST(a_silent_address_costs_half_a_second)
{
    struct spot p = spot_start("127.0.0.3", 0, &ours);
    CLEANUP(fd_close) int fd = -1;
    uint16_t port;

    assert_int_equal(tcp_listen("127.0.0.2", p.port, &fd, &port, NULL), 0);
    struct result r = spot_reach(&p, "127.0.0.2,127.0.0.3", 0, 20000);
    assert_int_equal(r.rc, 0);
    assert_in_range(r.took_ms, 400, 10000);
    rdv_server_stop(p.server);
}

UNIT_TEST(the_right_servers_refusal_is_final)
{
    struct spot p = spot_start("127.0.0.3", 0, &ours);
    struct result r = spot_reach(&p, "127.0.0.2,127.0.0.3", 7, 20000);

    assert_int_equal(r.rc, -EINVAL);
    assert_non_null(strstr(r.err.text, "rank 7 is not below size 1"));
    assert_true(r.took_ms < 5000);
    rdv_server_stop(p.server);
}

UNIT_TEST(no_server_at_all_names_all_addresses)
{
    struct spot p = spot_start("127.0.0.3", 0, &ours);
    struct result r = spot_reach(&p, "127.0.0.1,127.0.0.2", 0, 400);

    assert_int_equal(r.rc, -ETIMEDOUT);
    assert_non_null(
        strstr(r.err.text,
               "does not answer at any of its addresses 127.0.0.1,127.0.0.2 port"));
    assert_non_null(strstr(r.err.text, "; the last: rendezvous server: "));
    assert_non_null(strstr(r.err.text, "onnection refused"));
    assert_non_null(strstr(r.err.text, "HOROVOD_GLOO_IFACE"));
    assert_true(r.took_ms >= 300);
    rdv_server_stop(p.server);
}

/* --- answers from a list --- */

enum { LONG_MS = 60000, N_ANSWERS = 6 };

/* Each answer is for the next frame: a frame, "REDIRECT" to this server, "close",
 * "garbage" or "silence"; "hangup" is for the next connection. */
struct answers {
    const char *const *list; /* N_ANSWERS, or NULL behind the last one */
    int listen_fd;
    uint16_t port;
    char seen[512]; /* the frames, without the time and blob of a PUT */
    pthread_t thread;
};

static int answer_redirect(const struct answers *a, struct frame_conn *c)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    const uint32_t words[] = {1, 7, 0, 1, a->port}; /* place pass relay depth port */

    strbuf_init(&b, 256);
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        bytes_put_u32(&b, words[i]);
    bytes_put_str(&b, "127.0.0.1");
    return frame_send(c, RDV_REDIRECT, b.p, b.n);
}

/* The next frame, of a new connection if there is none or the peer closes it. */
static int
answers_receive(const struct answers *a, struct frame_conn *c, struct frame *f)
{
    const struct auth_id id = {&ours, "job", 0};
    const uint64_t deadline_ns = clock_now_ns() + LONG_MS * NS_PER_MS;
    struct admitted m;

    for (;;) {
        if (c->fd >= 0 && frame_recv_until(c, deadline_ns, f) == 1)
            return 0;
        frame_release(c);
        if (admit_one(a->listen_fd, ROLE_RENDEZVOUS_SERVER, ROLE_RENDEZVOUS_CLIENT, &id,
                      deadline_ns, &m))
            return -ETIMEDOUT;
        frame_open(c, m.fd, &m.session, RDV_TO_SERVER_MAX);
    }
}

static void answers_hang_up(const struct answers *a, struct frame_conn *c)
{
    int fd = -1;

    (void)fd_wait(a->listen_fd, POLLIN, clock_now_ns() + LONG_MS * NS_PER_MS);
    if (tcp_accept(a->listen_fd, &fd) == 0)
        fd_close(&fd);
    frame_release(c); /* the one before it is over */
}

static void answers_note(struct answers *a, const struct frame *f)
{
    struct frame shown = *f;
    char text[128], port[16], *at;

    if (shown.type == RDV_PUT)
        shown.n = 8;
    frame_text(&shown, text, sizeof(text));
    (void)snprintf(port, sizeof(port), " %u ", a->port);
    at = strstr(text, port);
    (void)snprintf(a->seen + strlen(a->seen), sizeof(a->seen) - strlen(a->seen),
                   "%s%.*s%s%s", *a->seen ? ", " : "",
                   at ? (int)(at - text) : (int)sizeof(text), text, at ? " PORT " : "",
                   at ? at + strlen(port) : "");
}

static void *answers_main(void *arg)
{
    struct answers *a = arg;
    struct frame_conn c;
    struct frame f;

    frame_init(&c);
    for (size_t i = 0; i < N_ANSWERS && a->list[i]; i++) {
        const char *text = a->list[i];

        if (strcmp(text, "hangup") == 0) {
            answers_hang_up(a, &c);
            continue;
        }
        if (answers_receive(a, &c, &f))
            break;
        answers_note(a, &f);
        if (strcmp(text, "close") == 0)
            frame_release(&c);
        else if (strcmp(text, "garbage") == 0)
            (void)fd_write_full(c.fd, (uint8_t[64]){0}, 64, UINT64_MAX);
        else if (strcmp(text, "REDIRECT") == 0)
            (void)answer_redirect(a, &c);
        else if (strcmp(text, "silence") != 0)
            (void)frame_say(&c, text);
    }
    if (c.fd >= 0) /* until the member closes it */
        (void)frame_recv_until(&c, clock_now_ns() + LONG_MS * NS_PER_MS, &f);
    frame_release(&c);
    return NULL;
}

/* Rank 1 of 3 in a world of ranks 2 and 1, from round 5 on: a round for each ALL of the
 * list, and one if there is none. */
static int
answers_meet(struct answers *a, const char *hosts, uint32_t ms, struct err *err)
{
    static const uint32_t part[] = {2, 1};
    const uint64_t deadline_ns = clock_now_ns() + ms * NS_PER_MS;
    const struct auth_id id = {&ours, "job", 0};
    struct rdv_client *c = NULL;
    size_t n_rounds = 0;
    int rc;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &a->listen_fd, &a->port, NULL), 0);
    assert_int_equal(pthread_create(&a->thread, NULL, answers_main, a), 0);
    for (size_t i = 0; i < N_ANSWERS && a->list[i]; i++)
        n_rounds += strncmp(a->list[i], "ALL", 3) == 0;
    n_rounds = n_rounds ? n_rounds : 1;
    rc = rdv_client_open(&(struct rdv_seek){.host = hosts,
                                            .port = a->port,
                                            .id = &id,
                                            .rank = 1,
                                            .size = 3,
                                            .part = part,
                                            .n_part = 2,
                                            .round = 5},
                         deadline_ns, &c, err);
    for (size_t i = 0; i < n_rounds && rc == 0; i++) {
        AUTOFREE uint8_t **blobs = NULL;
        uint32_t *sizes;

        rc = rdv_client_exchange(c, NULL, 0, deadline_ns, &blobs, &sizes, err);
        if (rc < 0) /* for good */
            assert_int_equal(
                rdv_client_exchange(c, NULL, 0, deadline_ns, &blobs, &sizes, NULL),
                -EPIPE);
    }
    rdv_client_close(c);
    assert_int_equal(pthread_join(a->thread, NULL), 0);
    fd_close(&a->listen_fd);
    return rc;
}

#define JOIN  "JOIN 1 3 5 0 4294967295 0 2 1"
#define AGAIN "JOIN 1 3 5 0 0 PORT 2 1" /* place 0 is lost, at that port */
#define ENTER "ENTER 1 7 2"
#define PUT   "PUT 1 5"
#define RELAY ", by which rank 1 reaches the rendezvous, "

UNIT_TEST(a_member_goes_where_it_is_sent_and_back_when_that_fails)
{
    static const struct {
        const char *list[N_ANSWERS], *seen;
        int rc;
        const char *text;
    } rows[] = {
        {{"WELCOME 1 4", "ALL 5 2 0 0"}, JOIN ", " PUT, 0, ""},
        {{"close", "WELCOME 1 4", "ALL 5 2 0 0"}, JOIN ", " JOIN ", " PUT, 0, ""},
        {{"REDIRECT", "WELCOME 1 7", "ALL 5 2 0 0"}, JOIN ", " ENTER ", " PUT, 0, ""},
        {{"hangup", "WELCOME 1 4", "ALL 5 2 0 0"}, JOIN ", " PUT, 0, ""},
        /* no use as a relay */
        {{"REDIRECT", "hangup", "WELCOME 1 8", "ALL 5 2 0 0"},
         JOIN ", " AGAIN ", " PUT,
         0,
         ""},
        {{"REDIRECT", "PUT 0", "WELCOME 1 8", "ALL 5 2 0 0"},
         JOIN ", " ENTER ", " AGAIN ", " PUT,
         0,
         ""},
        {{"REDIRECT", "close", "WELCOME 1 8", "ALL 5 2 0 0"},
         JOIN ", " ENTER ", " AGAIN ", " PUT,
         0,
         ""},
        {{"REDIRECT", "WELCOME 1", "WELCOME 1 8", "ALL 5 2 0 0"},
         JOIN ", " ENTER ", " AGAIN ", " PUT,
         0,
         ""},
        {{"REDIRECT", "REFUSED 1 7 1", "REDIRECT", "WELCOME 1 8", "ALL 5 2 0 0"},
         JOIN ", " ENTER ", " AGAIN ", " ENTER ", " PUT,
         0,
         ""},
        /* lost during a round */
        {{"REDIRECT", "WELCOME 1 7", "close", "WELCOME 1 8", "ALL 5 2 0 0",
          "ALL 6 2 0 0"},
         JOIN ", " ENTER ", " PUT ", " AGAIN ", " PUT ", PUT 1 6",
         0,
         ""},
        {{"REDIRECT", "WELCOME 1 7", "close", "close", "WELCOME 1 8", "ALL 5 2 0 0"},
         JOIN ", " ENTER ", " PUT ", " AGAIN ", " AGAIN ", " PUT,
         0,
         ""},
        {{"REDIRECT", "WELCOME 1 7", "close", "PUT 0"},
         JOIN ", " ENTER ", " PUT ", " AGAIN,
         -EPROTO,
         RELAY "has closed the connection: rendezvous server answered JOIN by 6"},
        {{"REDIRECT", "WELCOME 1 7", "garbage"},
         JOIN ", " ENTER ", " PUT,
         -EPROTO,
         "sent a frame that is not authentic"},
        /* final */
        {{"PUT 0"}, JOIN, -EPROTO, "rendezvous server answered JOIN by 6"},
        {{"WELCOME 1"}, JOIN, -EPROTO, "WELCOME has 4 bytes"},
        {{"REFUSED 1 4 4"}, JOIN, -ESTALE, ""},
        {{"REFUSED 1"}, JOIN, -EPROTO, "REFUSED has 4 bytes"},
        {{"garbage"}, JOIN, -EPROTO, "sent a frame that is not authentic"},
        {{"WELCOME 1 4", "garbage"},
         JOIN ", " PUT,
         -EPROTO,
         "sent a frame that is not authentic"},
        {{"WELCOME 1 4", "close"},
         JOIN ", " PUT,
         -EPIPE,
         " closed the connection (rank 1): it has exited or was restarted"},
    };

    static const char *const hosts[] = {"127.0.0.1", "127.0.0.2,127.0.0.1"};

    for (size_t i = 0; i < ARRAY_LEN(rows) * ARRAY_LEN(hosts); i++) {
        const size_t row = i / ARRAY_LEN(hosts);
        struct answers a = {.list = rows[row].list};
        struct err err = ERR_INIT;
        const int n_fds = open_fds();
        int rc = answers_meet(&a, hosts[i % ARRAY_LEN(hosts)], LONG_MS, &err);

        assert_int_equal(open_fds(), n_fds); /* no connection is left */
        if (rc != rows[row].rc || !strstr(err.text, rows[row].text)
            || strcmp(a.seen, rows[row].seen) != 0)
            fail_msg("row %zu: %d \"%s\" after %s", row, rc, err.text, a.seen);
    }
}

UNIT_TEST(a_relay_that_does_not_answer_is_named)
{
    static const char *const list[N_ANSWERS] = {"REDIRECT", "silence"};
    struct answers a = {.list = list};
    struct err err = ERR_INIT;
    char want[160];

    assert_int_equal(answers_meet(&a, "127.0.0.1", 3000, &err), -ETIMEDOUT);
    (void)snprintf(want, sizeof(want),
                   "rank 2 at 127.0.0.1 port %u" RELAY "cannot be reached", a.port);
    if (!strstr(err.text, want))
        fail_msg("%s", err.text);
    assert_string_equal(a.seen, JOIN ", " ENTER);
}

UNIT_MAIN(NULL, NULL)
