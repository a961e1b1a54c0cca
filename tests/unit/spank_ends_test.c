/* SPDX-License-Identifier: Apache-2.0 */
/* ends.c: which report of a node is the first failure, and for how long nodes wait. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/unit.h"

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "spank_plugin/ends.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/spank_end_node.h"
#include "tests/unit/torture.h"

static void ends_start(struct ends *e, uint16_t *ret_port)
{
    struct err err = ERR_INIT;
    int fd = -1;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, ret_port, &err), 0);
    assert_int_equal(ends_open(e, &fd, &token, "slurm.12.3", &err), 0);
    assert_int_equal(fd, -1);
    assert_true(ends_fd(e) > STDERR_FILENO);
}

static void ends_await(struct ends *e, uint32_t n_held)
{
    uint64_t deadline_ns = clock_now_ns() + LONG_NS;

    while (e->n_held < n_held && clock_now_ns() < deadline_ns) {
        (void)fd_wait(ends_fd(e), POLLIN, earlier_ns(deadline_ns, ends_next_ns(e)));
        ends_serve(e);
    }
    assert_int_equal(e->n_held, n_held);
}

static void ends_serve_until_ended(struct ends *e, struct node *n)
{
    while (pthread_tryjoin_np(n->thread, NULL) != 0) {
        (void)fd_wait(ends_fd(e), POLLIN, clock_now_ns() + 20 * NS_PER_MS);
        ends_serve(e);
    }
}

UNIT_TEST(the_first_failure_is_kept_and_a_consequence_is_none)
{
    static const int codes[][2] = {
        {7, 9}, {7, FAILURE_OTHER_RANK}, {FAILURE_OTHER_RANK, 7}};

    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        struct ends *e = mem_zalloc(sizeof(*e));
        struct node n[2];
        uint16_t port = 0;
        uint64_t began_ns = clock_now_ns();

        assert_non_null(e);
        ends_start(e, &port);
        assert_false(e->has_first);
        node_start(&n[0], port, 0, codes[i][0]);
        ends_await(e, 1);
        assert_true(e->has_first);
        assert_int_equal(e->is_certain, codes[i][0] == 7);
        assert_in_range(e->first_ns, began_ns, clock_now_ns());
        node_start(&n[1], port, 1, codes[i][1]);
        ends_await(e, 2);
        assert_int_equal(e->first.exit_code, 7);
        assert_string_equal(e->first.host, "node1");
        ends_close(e);
        assert_int_equal(node_join(&n[0]), 0);
        assert_int_equal(node_join(&n[1]), 0);
        mem_free(e);
    }
}

/* Of another job, or of another step. */
UNIT_TEST(a_stranger_reports_nothing)
{
    static const struct {
        struct token token;
        const char *job_id;
        int rc;
    } rows[] = {{{.key = {9}}, "slurm.12.3", -EACCES},
                {{.key = {1, 2, 3}}, "slurm.12.4", -EPROTO}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTOFREE struct ends *e = mem_zalloc(sizeof(*e));
        struct node n = {.f = {.rank = 0, .exit_code = 1},
                         .token = rows[i].token,
                         .job_id = rows[i].job_id,
                         .wait_ns = LONG_NS};

        assert_non_null(e);
        ends_start(e, &n.port);
        assert_int_equal(pthread_create(&n.thread, NULL, node_main, &n), 0);
        ends_serve_until_ended(e, &n);
        assert_int_equal(n.rc, rows[i].rc);
        assert_false(e->has_first);
        ends_close(e);
    }
}

UNIT_TEST(a_node_beyond_those_that_are_held_does_not_wait)
{
    AUTOFREE struct ends *e = mem_zalloc(sizeof(*e));
    struct node n[ENDS_HELD + 1];
    uint16_t port = 0;
    const int n_fds = open_fds();

    assert_non_null(e);
    ends_start(e, &port);
    for (uint32_t i = 0; i < ENDS_HELD; i++)
        node_start(&n[i], port, i, 3);
    ends_await(e, ENDS_HELD);
    node_start(&n[ENDS_HELD], port, ENDS_HELD, 3);
    ends_serve_until_ended(e, &n[ENDS_HELD]);
    assert_int_equal(n[ENDS_HELD].rc, -EPIPE);
    ends_close(e);
    for (uint32_t i = 0; i < ENDS_HELD; i++)
        assert_int_equal(node_join(&n[i]), 0);
    assert_int_equal(open_fds(), n_fds);
}

static int open_once(void *arg)
{
    AUTOFREE struct ends *e = mem_zalloc(sizeof(*e));
    int fd = dup(*(const int *)arg), lent = fd, rc;

    if (e)
        rc = ends_open(e, &fd, &token, "slurm.12.3", NULL);
    else
        rc = -ENOMEM;
    assert_int_equal(fd, rc ? lent : -1); /* the caller's if it fails */
    if (e)
        ends_close(e);
    fd_close(&fd);
    return rc;
}

UNIT_TEST(ends_that_cannot_be_opened_leave_the_socket_and_nothing_else)
{
    CLEANUP(fd_close) int fd = -1;
    AUTOFREE struct ends *e = mem_zalloc(sizeof(*e));
    int none = -1, n_fds;
    uint16_t port;

    assert_non_null(e);
    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &port, NULL), 0);
    n_fds = open_fds();
    torture(open_once, &fd);
    assert_int_equal(ends_open(e, &none, &token, "slurm.12.3", NULL), -EBADF);
    assert_int_equal(open_fds(), n_fds);
}

/* Another process, like srun's helper, has a copy of the listening socket. */
UNIT_TEST(no_node_waits_once_the_reports_are_closed)
{
    AUTOFREE struct ends *e = mem_zalloc(sizeof(*e));
    struct node n;
    uint16_t port = 0;
    pid_t pid;

    assert_non_null(e);
    ends_start(e, &port);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        for (;;)
            (void)pause();
    ends_close(e);
    ends_close(e);
    assert_int_equal(ends_fd(e), -1);
    assert_int_equal(ends_next_ns(e), UINT64_MAX);
    node_start(&n, port, 0, 3);
    assert_int_equal(node_join(&n), -ECONNREFUSED);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

UNIT_MAIN(NULL, NULL)
