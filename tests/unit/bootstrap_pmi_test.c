/* SPDX-License-Identifier: Apache-2.0 */
/* PMI-1 against a peer that follows a script: what real launchers do rarely or never
 * (refusals, silence, another order of keys). Real launchers are in tests/found. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/bootstrap/pmi_line.h"
#include "tests/unit/timed.h"

#define LONG_S (20 * NS_PER_S)

/* --- lines --- */

UNIT_TEST(keys_may_have_any_order)
{
    static const char *const line = "cmd=get_result rc=0 msg=success value=a;b= n=12x";
    char v[32];

    assert_true(pmi_is(line, "get_result"));
    assert_false(pmi_is(line, "get"));
    assert_false(pmi_is("", "get"));
    assert_true(pmi_value(line, "value", v, sizeof(v)));
    assert_string_equal(v, "a;b=");
    assert_false(pmi_value(line, "ms", v, sizeof(v)));
    assert_false(pmi_value(line, "success", v, sizeof(v)));
    assert_false(pmi_value(line, "value", v, 4)); /* no room */
    assert_true(pmi_value(line, "value", v, 5));
    assert_true(pmi_value("rc= cmd=x", "rc", v, sizeof(v)));
    assert_string_equal(v, "");
    assert_int_equal(pmi_number(line, "rc", 7), 0);
    assert_int_equal(pmi_number("cmd=x rc=-1", "rc", 7), -1);
    assert_int_equal(pmi_number(line, "n", 7), 7);
    assert_int_equal(pmi_number(line, "absent", 7), 7);
    assert_int_equal(pmi_number("  rc=3  ", "rc", 7), 3);
}

/* --- a peer --- */

struct step {
    const char *begins; /* the start of the request */
    const char *answer; /* NULL: close; "": no answer */
};
static const struct step well[] = {
    {"cmd=init pmi_version=1", "cmd=response_to_init rc=0 pmi_version=1\n"},
    {"cmd=get_maxes", "cmd=maxes kvsname_max=256 vallen_max=1024\n"},
    {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1\n"},
    {"cmd=put kvsname=kvs_1 key=hvd-", "cmd=put_result rc=0 msg=success\n"},
    {"cmd=barrier_in", "cmd=barrier_out\n"},
    {"cmd=get kvsname=kvs_1 key=hvd-0", "cmd=get_result rc=0 value=MINE\n"},
};
static const struct step finalize = {"cmd=finalize", "cmd=finalize_ack\n"};

enum { WELL = ARRAY_LEN(well), STEPS_MAX = WELL + 4 };

struct peer {
    int fd, far_fd;
    struct step script[STEPS_MAX];
    pthread_t thread;
    char first_put[2048]; /* the value of the first put; "MINE" in an answer is it */
    char unexpected[256];
    _Atomic int n_done;
};

static int read_line(int fd, char *ret, size_t size)
{
    size_t n = 0;

    while (n + 1 < size && read(fd, ret + n, 1) == 1)
        if (ret[n++] == '\n') {
            ret[n - 1] = '\0';
            return 0;
        }
    return -1;
}

static void peer_answer(struct peer *p, const char *text)
{
    const char *mine = strstr(text, "MINE");
    char line[8192];

    if (mine)
        (void)snprintf(line, sizeof(line), "%.*s%s%s", (int)(mine - text), text,
                       p->first_put, mine + 4);
    else
        (void)snprintf(line, sizeof(line), "%s", text);
    (void)!write(p->far_fd, line, strlen(line));
}

static void *peer_main(void *arg)
{
    struct peer *p = arg;
    char line[4096];

    for (const struct step *s = p->script; s->begins; s++) {
        if (read_line(p->far_fd, line, sizeof(line)) < 0)
            return NULL;
        if (strncmp(line, s->begins, strlen(s->begins)) != 0) {
            (void)snprintf(p->unexpected, sizeof(p->unexpected), "%.100s, not %.100s",
                           line, s->begins);
            break;
        }
        if (strncmp(line, "cmd=put", 7) == 0)
            (void)pmi_value(line, "value", p->first_put, sizeof(p->first_put));
        p->n_done++;
        if (!s->answer)
            break;
        peer_answer(p, s->answer);
    }
    (void)shutdown(p->far_fd, SHUT_RDWR);
    return NULL;
}

/* Answers the first n_well requests of a rank well, then those n. */
static void peer_up(struct peer *p, size_t n_well, const struct step *then, size_t n)
{
    int fds[2];

    memset(p, 0, sizeof(*p));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    p->fd = fds[0];
    p->far_fd = fds[1];
    assert_true(n_well + n < STEPS_MAX);
    memcpy(p->script, well, n_well * sizeof(well[0]));
    for (size_t i = 0; i < n; i++)
        p->script[n_well + i] = then[i];
    assert_int_equal(pthread_create(&p->thread, NULL, peer_main, p), 0);
}

static void peer_down(struct peer *p)
{
    (void)shutdown(p->far_fd, SHUT_RDWR); /* ends a read without an answer */
    (void)pthread_join(p->thread, NULL);
    fd_close(&p->fd);
    fd_close(&p->far_fd);
    assert_string_equal(p->unexpected, "");
}

static struct contract rank_of_two(uint32_t rank, int fd)
{
    struct contract c;

    contract_init(&c);
    c.launcher = LAUNCHER_MPIEXEC;
    c.channel = CHANNEL_PMI;
    c.place = (struct place){rank, 2, rank, 2, 0, 1, 0};
    c.pmi_fd = fd;
    return c;
}

/* Meets with a peer that answers well. port: 0 of a rank that serves nothing. */
static struct bootstrap *
meet_well(struct contract *c, uint16_t port, struct token *ret_token)
{
    struct bootstrap *b = NULL;
    struct err e = ERR_INIT;

    if (bootstrap_meet(c, port, port ? "10.9.8.7,10.9.8.6" : "",
                       clock_now_ns() + LONG_S, &b, ret_token, &e)
        < 0)
        fail_msg("%s", e.text);
    return b;
}

UNIT_TEST(rank_0_offers_and_sends_finalize_at_exit_only)
{
    struct token token = {{0}}, nothing = {{0}};
    struct peer p;

    peer_up(&p, WELL, &finalize, 1);
    struct contract c = rank_of_two(0, p.fd);
    struct bootstrap *b = meet_well(&c, 4711, &token);
    assert_string_equal(c.rdv_host, "127.0.0.1"); /* itself */
    assert_int_equal(c.rdv_port, 4711);
    assert_string_equal(c.job_id, "mpiexec/kvs_1");
    assert_true(c.rank0_serves);
    assert_int_equal(c.token_source, TOKEN_CHANNEL);
    assert_memory_not_equal(&token, &nothing, sizeof(token));

    pid_t pid = fork(); /* a forked child is not the rank: it sends nothing */
    assert_true(pid >= 0);
    if (pid == 0) {
        bootstrap_finish(b);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(p.n_done, 6);
    bootstrap_finish(b);
    (void)pthread_join(p.thread, NULL);
    assert_int_equal(p.n_done, 7);
    assert_non_null(strstr(p.first_put, ";10.9.8.7,10.9.8.6;"));
    fd_close(&p.fd);
    fd_close(&p.far_fd);
    bootstrap_finish(NULL);
}

/* MPI_Finalize has closed the connection before us: no error, no signal, and no wait for
 * an answer (1 s). */
static bool closed_connection_is_left_at_once(void)
{
    struct token token;
    struct peer p;

    peer_up(&p, WELL, NULL, 0);
    struct contract c = rank_of_two(0, p.fd);
    struct bootstrap *b = meet_well(&c, 4711, &token);
    uint64_t start = clock_now_ns();
    bootstrap_finish(b);
    bool is_in_time = clock_now_ns() - start < NS_PER_S / 2;
    peer_down(&p);
    return is_in_time;
}

UNIT_TEST(a_closed_connection_at_the_end_is_fine)
{
    ASSERT_IN_TIME(closed_connection_is_left_at_once());
}

/* A program that closes all descriptors: at the end the number is another file's. */
UNIT_TEST(nothing_is_written_to_a_file_that_has_the_number)
{
    char name[] = "/tmp/bootstrap_pmi_test.XXXXXX";
    int file = mkstemp(name), n_taken = 0;
    struct stat st, mine;
    struct token token;
    struct peer p;

    assert_true(file >= 0);
    (void)unlink(name);
    peer_up(&p, WELL, NULL, 0);
    struct contract c = rank_of_two(0, p.fd);
    struct bootstrap *b = meet_well(&c, 4711, &token);
    assert_int_equal(fstat(p.fd, &mine), 0);
    for (int fd = 3; fd < 100; fd++)
        if (fd != p.fd && fstat(fd, &st) == 0 && st.st_ino == mine.st_ino
            && st.st_dev == mine.st_dev) {
            assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
            assert_int_equal(dup2(file, fd), fd);
            n_taken++;
        }
    assert_int_equal(n_taken, 1);
    bootstrap_finish(b);
    assert_int_equal(fstat(file, &st), 0);
    assert_int_equal(st.st_size, 0);
    (void)close(file);
    peer_down(&p);
}

UNIT_TEST(a_rank_elsewhere_gets_the_addresses)
{
    static const struct step get = {
        "cmd=get kvsname=kvs_1 key=hvd-0",
        "cmd=get_result value=hvd1;aa;bb;0;4712;"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef;10.0.0.1;"
        "mpiexec/kvs_1 rc=0\n"};
    struct token token;
    struct peer p;

    peer_up(&p, 5, &get, 1);
    struct contract c = rank_of_two(1, p.fd);
    struct bootstrap *b = meet_well(&c, 0, &token);
    assert_string_equal(c.rdv_host, "10.0.0.1");
    assert_int_equal(c.rdv_port, 4712);
    assert_int_equal(token.key[0], 0x01);
    bootstrap_finish(b);
    peer_down(&p);
}

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* Each failure has its error message, and returns before a long deadline. The peer
 * answers the first n_well requests of a rank well, then so. */
UNIT_TEST(each_failure_has_its_message)
{
    static char long_line[8000];
    const struct {
        const char *what, *says;
        int rc;
        size_t n_well;
        const char *begins, *answer;
        int n_after; /* good answers after that and before finalize; -1: it ends */
    } t[] = {
        {"closes", "has closed its PMI connection", -EPIPE, 0, "cmd=init", NULL, -1},
        {"no PMI-1", "a launcher without PMI-1 is not supported", -EPROTO, 0,
         "cmd=init", "HTTP/1.1 400 Bad Request\n", -1},
        {"refuses", "mpiexec refuses \"cmd=init\"", -EIO, 0, "cmd=init",
         "cmd=response_to_init rc=-1 pmi_version=2\n", -1},
        {"is silent", "the PMI of mpiexec has not answered within 1 s", -ETIMEDOUT, 1,
         "cmd=get_maxes", "", 0},
        {"talks on and on", "a PMI line of over 4096 bytes", -EPROTO, 0, "cmd=init",
         long_line, -1},
        {"has no room", "transports values of 16 bytes", -E2BIG, 1, "cmd=get_maxes",
         "cmd=maxes vallen_max=16\n", 1},
        {"has no store", "returns no key-value space", -EPROTO, 2, "cmd=get_my_kvsname",
         "cmd=my_kvsname\n", -1},
        {"a rank does not come",
         "for all 2 ranks of mpiexec to meet by its PMI: rank 0 has", -ETIMEDOUT, 4,
         "cmd=barrier_in", "", 0},
        {"another version", "the card of rank 0 is invalid", -EPROTO, 5, "cmd=get",
         "cmd=get_result rc=0 value=hvd9;x\n", 0},
        {"rank 0 without offer", "has no rendezvous address", -EPROTO, 5, "cmd=get",
         "cmd=get_result rc=0 value=hvd1;aa;bb;0\n", 0},
        {"rank 0 without address", "no address but loopback", -EHOSTUNREACH, 5,
         "cmd=get", "cmd=get_result rc=0 value=hvd1;aa;bb;0;1;" KEY ";;j\n", 0},
    };

    memset(long_line, 'x', sizeof(long_line) - 1);
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct err e = ERR_INIT;
        struct bootstrap *b = NULL;
        struct token token;
        struct step then[STEPS_MAX] = {{t[i].begins, t[i].answer}};
        size_t n = 1;
        struct peer p;

        for (int k = 0; k < t[i].n_after; k++, n++)
            then[n] = well[t[i].n_well + n];
        if (t[i].n_after >= 0)
            then[n++] = finalize;
        peer_up(&p, t[i].n_well, then, n);
        struct contract c = rank_of_two(1, p.fd);
        /* Only a peer that does not answer is waited for until the deadline. */
        const uint64_t ms = t[i].rc == -ETIMEDOUT ? 1000 : 20000;
        int rc =
            bootstrap_meet(&c, 0, "", clock_now_ns() + ms * NS_PER_MS, &b, &token, &e);
        if (rc != t[i].rc || !strstr(e.text, t[i].says))
            fail_msg("%s: %d %s", t[i].what, rc, e.text);
        bootstrap_finish(b);
        peer_down(&p);
    }
}

UNIT_TEST(a_descriptor_that_is_not_mpiexecs)
{
    int pipes[2], port_fd = -1;
    uint16_t port;
    struct token token;

    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(tcp_listen("127.0.0.1", 0, &port_fd, &port, NULL), 0);
    const int bad[] = {pipes[0], port_fd, 999};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct contract c = rank_of_two(1, bad[i]);
        struct bootstrap *b = NULL;
        struct err e = ERR_INIT;

        assert_int_equal(
            bootstrap_meet(&c, 0, "", clock_now_ns() + LONG_S, &b, &token, &e),
            -ENOENT);
        assert_non_null(strstr(e.text, "is not mpiexec's connection (any more)"));
        assert_null(b);
    }
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    fd_close(&port_fd);
}

UNIT_TEST(a_bad_pmi_port_is_named)
{
    static const struct {
        const char *port, *says;
    } t[] = {{"nowhere", "PMI_PORT=nowhere is not HOST:PORT"},
             {"h:0", "PMI_PORT=h:0 is not HOST:PORT"},
             {"127.0.0.1:1", "PMI_PORT: "}};

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct contract c = rank_of_two(1, -1);
        struct bootstrap *b = NULL;
        struct err e = ERR_INIT;
        struct token token;

        (void)snprintf(c.pmi_port, sizeof(c.pmi_port), "%s", t[i].port);
        assert_true(bootstrap_meet(&c, 0, "", clock_now_ns() + LONG_S, &b, &token, &e)
                    < 0);
        assert_non_null(strstr(e.text, t[i].says));
        assert_null(b);
    }
}

UNIT_TEST(ranks_of_the_channel_override_the_environment)
{
    struct token token;
    CLEANUP(fd_close) int fd = -1;
    uint16_t port;
    struct peer p = {
        .script = {{"cmd=initack pmiid=5",
                    "cmd=initack\ncmd=set size=1\ncmd=set rank=0\ncmd=set debug=0\n"},
                   well[0],
                   well[1],
                   well[2],
                   finalize}};

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &port, NULL), 0);
    struct contract c = rank_of_two(0, -1);
    c.known = KNOWN_NOTHING;
    c.place.size = 0;
    c.pmi_id = 5;
    (void)snprintf(c.pmi_port, sizeof(c.pmi_port), "127.0.0.1:%u", port);
    /* A forked peer accepts the connection. */
    p.fd = -1;
    p.far_fd = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct pollfd pfd = {fd, POLLIN, 0};
        if (poll(&pfd, 1, 20000) != 1 || tcp_accept(fd, &p.far_fd) != 0)
            _exit(9);
        (void)fd_nonblock(p.far_fd, false);
        (void)peer_main(&p);
        _exit(p.n_done);
    }
    struct bootstrap *b = meet_well(&c, 0, &token);
    assert_int_equal(c.place.size, 1);
    assert_int_equal(c.known, KNOWN_ALL);
    bootstrap_finish(b);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 5);
}

UNIT_MAIN(NULL, NULL)
