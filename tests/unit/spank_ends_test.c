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
#include "tests/unit/spank_end_node.h"

static void ends_start(struct ends *e, uint16_t *ret_port)
{
    struct err err = ERR_INIT;
    int fd = -1;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, ret_port, &err), 0);
    assert_int_equal(ends_open(e, &fd, &token, "slurm.12.3", &err), 0);
    assert_int_equal(fd, -1);
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

UNIT_TEST(the_first_failure_is_kept_and_a_consequence_is_none)
{
    static const int codes[][2] = {
        {7, 9}, {7, FAILURE_OTHER_RANK}, {FAILURE_OTHER_RANK, 7}};

    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        struct ends *e = mem_zalloc(sizeof(*e));
        struct node n[2];
        uint16_t port = 0;

        assert_non_null(e);
        ends_start(e, &port);
        node_start(&n[0], port, 0, codes[i][0]);
        ends_await(e, 1);
        assert_int_equal(e->is_certain, codes[i][0] == 7);
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

UNIT_TEST(a_stranger_reports_nothing)
{
    AUTOFREE struct ends *e = mem_zalloc(sizeof(*e));
    struct node n;
    uint16_t port = 0;

    assert_non_null(e);
    ends_start(e, &port);
    n = (struct node){.port = port,
                      .f = {.rank = 0, .exit_code = 1},
                      .token = {.key = {9}},
                      .wait_ns = LONG_NS};
    assert_int_equal(pthread_create(&n.thread, NULL, node_main, &n), 0);
    while (pthread_tryjoin_np(n.thread, NULL) != 0) {
        (void)fd_wait(ends_fd(e), POLLIN, clock_now_ns() + 20 * NS_PER_MS);
        ends_serve(e);
    }
    assert_int_equal(n.rc, -EACCES);
    assert_false(e->has_first);
    ends_close(e);
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
    node_start(&n, port, 0, 3);
    assert_int_equal(node_join(&n), -ECONNREFUSED);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

UNIT_MAIN(NULL, NULL)
