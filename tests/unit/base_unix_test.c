/* SPDX-License-Identifier: Apache-2.0 */
/* Abstract Unix sockets. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/unix.h"
#include "tests/unit/unit.h"

UNIT_TEST(a_client_reaches_the_listener_by_its_name)
{
    char name[UNIX_NAME_BYTES], other[UNIX_NAME_BYTES], c = 0;
    int listen_fd = -1, other_fd = -1, near = -1, far = -1;

    assert_int_equal(unix_listen(&listen_fd, name, NULL), 0);
    assert_int_equal(unix_listen(&other_fd, other, NULL), 0);
    assert_string_not_equal(name, other);
    assert_int_equal(unix_listen_at(name, &near, NULL), -EADDRINUSE);
    assert_int_equal(unix_connect(name, &near, NULL), 0);
    assert_true(fcntl(near, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(near, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(tcp_accept(listen_fd, &far), 0);
    assert_int_equal(tcp_accept(other_fd, &far), -EAGAIN);
    assert_int_equal(write(near, "x", 1), 1);
    assert_int_equal(fd_read_full(far, &c, 1, clock_now_ns() + 60 * NS_PER_S), 0);
    assert_int_equal(c, 'x');
    fd_close(&near);
    fd_close(&far);
    fd_close(&listen_fd);
    fd_close(&other_fd);
}

UNIT_TEST(a_name_ends_with_its_socket)
{
    char name[UNIX_NAME_BYTES];
    int listen_fd = -1, fd = -1;
    struct err e = ERR_INIT;

    assert_int_equal(unix_listen(&listen_fd, name, &e), 0);
    fd_close(&listen_fd);
    assert_int_equal(unix_connect(name, &fd, &e), -ECONNREFUSED);
    assert_non_null(strstr(e.text, "Unix socket"));
    assert_int_equal(fd, -1);
}

UNIT_TEST(each_end_knows_the_process_and_user_at_the_other)
{
    char name[UNIX_NAME_BYTES];
    int listen_fd = -1, near = -1, far = -1, pipe_fds[2];
    struct ucred peer;

    assert_int_equal(unix_listen(&listen_fd, name, NULL), 0);
    assert_int_equal(unix_connect(name, &near, NULL), 0);
    assert_int_equal(tcp_accept(listen_fd, &far), 0);
    for (int i = 0; i < 2; i++) {
        peer = (struct ucred){.pid = 0, .uid = (uid_t)-1};
        assert_int_equal(unix_read_peer(i ? near : far, &peer), 0);
        assert_int_equal(peer.pid, getpid());
        assert_int_equal(peer.uid, geteuid());
    }
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(unix_read_peer(pipe_fds[0], &peer), -ENOTSOCK);
    fd_close(&pipe_fds[0]);
    fd_close(&pipe_fds[1]);
    fd_close(&near);
    fd_close(&far);
    fd_close(&listen_fd);
}

UNIT_MAIN(NULL, NULL)
