/* SPDX-License-Identifier: Apache-2.0 */
/* Large worlds with real processes: members relay for each other, and the sockets of each
 * process are counted. The server is in this process, each member in a child of it.
 * RELAY_MEMBERS=1024 makes the first test larger. */
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/route.h"
#include "runtime/wire/frame.h"

#define LONG_MS        120000u
#define MAX_MEMBERS    4096u
#define CONNECTION_MAX 32u

static const struct token token = {{4, 5, 6}};
static const struct auth_id id = {&token, "ns/large/uid", 0};

/* What a member reports; in memory that all share. */
struct report {
    _Atomic int n_worlds;      /* formed */
    _Atomic uint32_t n_socket; /* most of its process that were seen */
    int rc;
    char text[480];
};

#define NOBODY UINT32_MAX

struct large {
    struct rdv_server *server;
    struct report *report;         /* size entries, and one for deadline_ns */
    _Atomic uint64_t *deadline_ns; /* of the second round, for all; 0: none yet */
    uint32_t quits[2], hangs;      /* ranks that do so after the first round */
    pid_t pid[MAX_MEMBERS];
    uint32_t size;
    int listen_fd;
    uint16_t port;
};

static uint64_t in_ms(uint64_t ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

static void large_init(struct large *l, uint32_t size)
{
    memset(l, 0, sizeof(*l));
    l->size = size;
    l->quits[0] = l->quits[1] = l->hangs = NOBODY;
    l->report = mmap(NULL, (size + 1) * sizeof(*l->report), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(l->report != MAP_FAILED);
    l->deadline_ns = (_Atomic uint64_t *)(void *)&l->report[size];
    assert_int_equal(tcp_listen("127.0.0.1", 0, &l->listen_fd, &l->port, NULL), 0);
}

static void large_serve(struct large *l)
{
    assert_int_equal(
        rdv_server_start(l->listen_fd, &id, l->size, NULL, &l->server, NULL), 0);
}

static uint32_t process_count_sockets(pid_t pid)
{
    char path[64], target[64];
    uint32_t n = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        ssize_t k = readlinkat(dirfd(d), e->d_name, target, sizeof(target));

        n += k > 7 && memcmp(target, "socket:", 7) == 0;
    }
    if (d)
        (void)closedir(d);
    return n;
}

static void report_count(struct report *r, pid_t pid)
{
    uint32_t n = process_count_sockets(pid);

    if (n > atomic_load(&r->n_socket)) /* counted twice at once: one of them is there */
        atomic_store(&r->n_socket, n);
}

/* --- a member --- */

static int member_do_round(struct rdv_client *c,
                           uint32_t rank,
                           uint32_t size,
                           uint64_t deadline_ns,
                           struct err *err)
{
    const uint32_t mine[2] = {rank, rdv_client_round(c)};
    uint8_t **blobs = NULL;
    uint32_t *sizes;
    int rc = rdv_client_exchange(c, mine, rank % 2 ? 8 : 4, deadline_ns, &blobs, &sizes,
                                 err);

    for (uint32_t i = 0; rc == 0 && i < size; i++) {
        const uint32_t want[2] = {i, mine[1]};

        if (sizes[i] != (i % 2 ? 8 : 4) || memcmp(blobs[i], want, sizes[i]) != 0)
            rc = err_set(err, -EBADMSG, "wrong blob of rank %u", i);
    }
    mem_free(blobs);
    return rc;
}

/* Returns the deadline of the second round, which some may not live to see. */
static uint64_t member_between(const struct large *l, uint32_t rank, uint32_t wait_ms)
{
    uint64_t none = 0, soon = in_ms(10000);

    if (rank == l->quits[0] || rank == l->quits[1])
        _exit(0);
    if (rank == l->hangs)
        (void)raise(SIGSTOP);
    if (l->quits[0] == NOBODY && l->hangs == NOBODY)
        return in_ms(wait_ms);
    (void)atomic_compare_exchange_strong(l->deadline_ns, &none, soon);
    return atomic_load(l->deadline_ns);
}

static int member_run(const struct large *l,
                      uint32_t rank,
                      uint32_t n_worlds,
                      uint32_t wait_ms,
                      struct err *err)
{
    struct report *r = &l->report[rank];
    uint32_t round = 0;
    int rc = 0;

    for (uint32_t w = 0; w < n_worlds && rc == 0; w++) {
        const struct rdv_seek seek = {.host = "127.0.0.1",
                                      .port = l->port,
                                      .id = &id,
                                      .rank = rank,
                                      .size = l->size,
                                      .round = round};
        struct rdv_client *c = NULL;

        rc = rdv_client_open(&seek, in_ms(wait_ms), &c, err);
        if (rc == 0)
            rc = member_do_round(c, rank, l->size, in_ms(wait_ms), err);
        report_count(r, getpid());
        if (rc == 0)
            rc = member_do_round(c, rank, l->size, member_between(l, rank, wait_ms),
                                 err);
        report_count(r, getpid());
        round += 2;
        rdv_client_close(c);
        if (rc == 0)
            atomic_fetch_add(&r->n_worlds, 1);
    }
    return rc;
}

static void
member_start(struct large *l, uint32_t rank, uint32_t n_worlds, uint32_t wait_ms)
{
    struct report *r = &l->report[rank];
    struct err err = ERR_INIT;

    memset(r, 0, sizeof(*r));
    r->rc = 1;
    l->pid[rank] = fork();
    assert_true(l->pid[rank] >= 0);
    if (l->pid[rank] > 0)
        return;
    for (int fd = 3; fd < 1024; fd++) /* the server's, which would not close */
        (void)close(fd);
    r->rc = member_run(l, rank, n_worlds, wait_ms, &err);
    memcpy(r->text, err.text, sizeof(r->text));
    _exit(0);
}

static void member_end(struct large *l, uint32_t rank)
{
    int status;

    assert_int_equal(waitpid(l->pid[rank], &status, 0), l->pid[rank]);
    l->pid[rank] = 0;
}

static void large_release(struct large *l)
{
    for (uint32_t i = 0; i < l->size; i++) {
        if (l->pid[i] > 0) {
            (void)kill(l->pid[i], SIGKILL);
            member_end(l, i);
        }
    }
    rdv_server_stop(l->server);
    assert_int_equal(munmap(l->report, (l->size + 1) * sizeof(*l->report)), 0);
}

static void large_wait_joined(const struct large *l, uint32_t n)
{
    uint64_t deadline = in_ms(LONG_MS);

    while (rdv_server_joined(l->server) < n) {
        assert_true(clock_left_ms(deadline) > 0);
        (void)poll(NULL, 0, 1); /* the count has no event to wait for */
    }
}

/* Members first to last - 1, each joined before the next starts: the tree is known. */
static void
large_start(struct large *l, uint32_t first, uint32_t last, uint32_t wait_ms)
{
    for (uint32_t i = first; i < last; i++) {
        member_start(l, i, 1, wait_ms);
        large_wait_joined(l, i + 1);
    }
}

static void large_expect_success(struct large *l, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++) {
        member_end(l, i);
        if (l->report[i].rc)
            fail_msg("rank %u: %d: %s", i, l->report[i].rc, l->report[i].text);
    }
}

/* --- tests --- */

/* 0: all have ended. */
static uint32_t large_count(struct large *l, uint32_t *server_max)
{
    uint32_t n_alive = 0;

    for (uint32_t i = 0; i < l->size; i++) {
        uint32_t here = process_count_sockets(getpid());

        if (here > *server_max)
            *server_max = here;
        if (l->pid[i])
            report_count(&l->report[i], l->pid[i]);
        if (l->pid[i] && waitpid(l->pid[i], NULL, WNOHANG) == l->pid[i])
            l->pid[i] = 0;
        n_alive += l->pid[i] != 0;
    }
    return n_alive;
}

/* All members start at once and form two worlds, one after the other. */
UNIT_TEST(no_process_of_a_large_world_has_many_connections)
{
    const char *set = getenv("RELAY_MEMBERS");
    const uint32_t size = set ? (uint32_t)atoi(set) : 150;
    const uint32_t at_first = process_count_sockets(getpid());
    uint32_t server_max = 0, member_max = 0, n_relays = 0;
    static struct large l;

    assert_true(size <= MAX_MEMBERS);
    large_init(&l, size);
    for (uint32_t i = 0; i < size; i++)
        member_start(&l, i, 2, LONG_MS);
    uint64_t begin_ns = clock_now_ns();
    large_serve(&l);
    while (large_count(&l, &server_max) > 0)
        ;
    for (uint32_t i = 0; i < size; i++) {
        if (l.report[i].rc)
            fail_msg("rank %u: %d: %s", i, l.report[i].rc, l.report[i].text);
        if (l.report[i].n_socket > member_max)
            member_max = l.report[i].n_socket;
        n_relays += l.report[i].n_socket > at_first + 3;
    }
    print_message("%u members: %llu ms, server %u sockets, members %u\n", size,
                  (unsigned long long)((clock_now_ns() - begin_ns) / NS_PER_MS),
                  server_max - at_first, member_max - at_first);
    assert_true(server_max - at_first <= CONNECTION_MAX);
    assert_true(member_max - at_first <= CONNECTION_MAX);
    assert_true(n_relays >= size / 16); /* so many have relayed */
    large_release(&l);
}

/* Rank 0 relays for others when it is killed; it starts again, and the world forms. */
UNIT_TEST(the_loss_of_a_relay_is_repaired)
{
    static struct large l;

    large_init(&l, 40);
    large_serve(&l);
    large_start(&l, 0, 39, LONG_MS);
    assert_int_equal(kill(l.pid[0], SIGKILL), 0);
    member_end(&l, 0);
    member_start(&l, 0, 1, LONG_MS);
    member_start(&l, 39, 1, LONG_MS);
    large_expect_success(&l, 0, 40);
    large_release(&l);
}

/* Relays in a chain: 0 - 3 - 12; all three die. */
UNIT_TEST(a_whole_branch_finds_another_way)
{
    static const uint32_t chain[] = {0, 3, 12};
    static struct large l;

    large_init(&l, 60);
    large_serve(&l);
    large_start(&l, 0, 59, LONG_MS);
    for (size_t i = 0; i < ARRAY_LEN(chain); i++) {
        assert_int_equal(kill(l.pid[chain[i]], SIGKILL), 0);
        member_end(&l, chain[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(chain); i++)
        member_start(&l, chain[i], 1, LONG_MS);
    member_start(&l, 59, 1, LONG_MS);
    large_expect_success(&l, 0, 60);
    large_release(&l);
}

/* Ranks 3 and 39 go after the first round; 3 relays for others, which find another way. */
UNIT_TEST(a_timeout_in_a_tree_names_the_lost_relay)
{
    static struct large l;

    large_init(&l, 40);
    l.quits[0] = 3;
    l.quits[1] = 39;
    large_serve(&l);
    large_start(&l, 0, 40, LONG_MS);
    for (uint32_t i = 0; i < 39; i++) {
        member_end(&l, i);
        if (i != 3
            && (l.report[i].rc != -ETIMEDOUT
                || !strstr(l.report[i].text,
                           " s for ranks 3, 39 of 40; had connected and was lost: 3, "
                           "39")))
            fail_msg("rank %u: %d: %s", i, l.report[i].rc, l.report[i].text);
    }
    large_release(&l);
}

UNIT_TEST(a_failure_reaches_all_members_of_a_tree)
{
    static struct large l;

    large_init(&l, 40);
    large_serve(&l);
    large_start(&l, 0, 39, LONG_MS);
    rdv_server_fail(l.server, "rank 39 on h exited with code 3");
    for (uint32_t i = 0; i < 39; i++) {
        member_end(&l, i);
        assert_int_equal(l.report[i].rc, -ECANCELED);
        assert_string_equal(l.report[i].text, "rank 39 on h exited with code 3");
    }
    large_release(&l);
}

/* The server is gone, and with it the way of those below relays. */
UNIT_TEST(the_end_of_the_server_ends_all_members_of_a_tree)
{
    static struct large l;

    large_init(&l, 40);
    large_serve(&l);
    large_start(&l, 0, 39, LONG_MS);
    rdv_server_stop(l.server);
    l.server = NULL;
    for (uint32_t i = 0; i < 39; i++) {
        member_end(&l, i);
        if (l.report[i].rc >= 0 || l.report[i].rc == -ETIMEDOUT)
            fail_msg("rank %u: %d: %s", i, l.report[i].rc, l.report[i].text);
    }
    large_release(&l);
}

UNIT_TEST(a_relay_that_hangs_is_named)
{
    static struct large l;
    static const char late[] = " s for rank 0 of 40; connected but late: 0; ";
    uint32_t n_below = 0, n_said = 0;

    large_init(&l, 40);
    l.hangs = 0;
    large_serve(&l);
    large_start(&l, 0, 40, LONG_MS);
    for (uint32_t i = 1; i < 40; i++) {
        member_end(&l, i);
        if (strstr(l.report[i].text, "rank 0 at 127.0.0.1 port ")
            && strstr(l.report[i].text, " reaches the rendezvous, does not answer"))
            n_below++;
        else if (l.report[i].rc != -ETIMEDOUT || !strstr(l.report[i].text, late)
                 || sscanf(strstr(l.report[i].text, late) + strlen(late),
                           "%u more connect through these", &n_said)
                        != 1)
            fail_msg("rank %u: %d: %s", i, l.report[i].rc, l.report[i].text);
    }
    assert_true(n_below >= RDV_FANOUT); /* and those below them, if there are any */
    assert_int_equal(n_below, n_said);
    large_release(&l);
}

/* Another process with the rank of a member below a relay: the first one is refused. */
UNIT_TEST(a_duplicate_below_a_relay_is_refused)
{
    static struct large l;

    large_init(&l, 40);
    large_serve(&l);
    large_start(&l, 0, 39, LONG_MS);

    const pid_t first = l.pid[30];
    member_start(&l, 30, 1, LONG_MS);
    assert_int_equal(waitpid(first, NULL, 0),
                     first); /* it ends although 39 is missing */
    member_start(&l, 39, 1, LONG_MS);
    large_expect_success(&l, 0, 40);
    large_release(&l);
}

UNIT_MAIN(NULL, NULL)
