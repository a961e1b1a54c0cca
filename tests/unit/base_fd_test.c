/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors, files, TCP, clock and log. Deadlines here are short where the test is
 * that they fire, and long where they must not. */
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "tests/unit/unit.h"

static uint64_t in_ms(uint64_t ms)
{
    return clock_now_ns() + ms * NS_PER_MS;
}

UNIT_TEST(read_ends_at_the_deadline_and_at_eof)
{
    int p[2];
    char buf[8];

    assert_int_equal(pipe(p), 0);
    assert_int_equal(fd_write_full(p[1], "abc", 3, in_ms(10000)), 0);
    uint64_t start = clock_now_ns();
    assert_int_equal(fd_read_full(p[0], buf, 4, in_ms(30)), -ETIMEDOUT);
    assert_true(clock_now_ns() - start >= 30 * NS_PER_MS);
    assert_int_equal(fd_write_full(p[1], "x", 1, in_ms(10000)), 0);
    fd_close(&p[1]);
    assert_int_equal(p[1], -1);
    assert_int_equal(fd_read_full(p[0], buf, 2, in_ms(10000)), -EPIPE);
    assert_int_equal(fd_read_full(p[0], buf, 0, 0), 0);
    fd_close(&p[0]);
    fd_close(&p[0]);
}

UNIT_TEST(write_raises_no_signal_and_ends_at_the_deadline)
{
    int s[2];
    static char big[8 << 20];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0); /* blocking */
    assert_int_equal(fd_write_full(s[0], big, sizeof(big), in_ms(30)), -ETIMEDOUT);
    fd_close(&s[1]);
    assert_int_equal(fd_write_full(s[0], big, sizeof(big), in_ms(10000)), -EPIPE);
    fd_close(&s[0]);
    assert_int_equal(fd_wait(-1, POLLIN, in_ms(10)), -ETIMEDOUT);
}

UNIT_TEST(fd_flags_are_set)
{
    int p[2];

    assert_int_equal(pipe(p), 0);
    assert_int_equal(fd_nonblock(p[0], true), 0);
    assert_true(fcntl(p[0], F_GETFL) & O_NONBLOCK);
    assert_int_equal(fd_nonblock(p[0], false), 0);
    assert_false(fcntl(p[0], F_GETFL) & O_NONBLOCK);
    assert_int_equal(fd_cloexec(p[0]), 0);
    assert_true(fcntl(p[0], F_GETFD) & FD_CLOEXEC);
    fd_close(&p[0]);
    fd_close(&p[1]);
    assert_int_equal(fd_cloexec(-1), -EBADF);
}

UNIT_TEST(files_whole_and_bounded)
{
    char dir[] = "/tmp/base_fd_test.XXXXXX", path[64];
    AUTOFREE char *text = NULL;
    static char big[10000];
    struct err e = ERR_INIT;
    struct stat st;
    size_t n = 0;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/f", dir);
    memset(big, 'b', sizeof(big));
    assert_int_equal(fd_write_file(path, big, sizeof(big), 0640, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(fd_read_file(path, sizeof(big), &text, &n, &e), 0);
    assert_int_equal(n, sizeof(big));
    assert_memory_equal(text, big, n);
    assert_int_equal(text[n], '\0');
    char *untouched = NULL;
    assert_int_equal(fd_read_file(path, sizeof(big) - 1, &untouched, &n, &e), -EFBIG);
    assert_null(untouched);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fd_read_file(path, 10, &untouched, &n, &e), -ENOENT);
    assert_non_null(strstr(e.text, path));
    assert_int_equal(rmdir(dir), 0); /* no temporary file is left */
    assert_int_equal(fd_write_file(path, "x", 1, 0600, &e), -ENOENT);
}

UNIT_TEST(tcp_both_ends)
{
    struct err e = ERR_INIT;
    int l = -1, c = -1, a = -1;
    uint16_t port = 0;
    char addr[64], buf[5];

    assert_int_equal(tcp_listen("127.0.0.1", 0, &l, &port, &e), 0);
    assert_true(port > 0);
    assert_int_equal(tcp_accept(l, &a), -EAGAIN);
    assert_int_equal(tcp_connect("localhost", port, in_ms(10000), false, &c, &e), 0);
    assert_true(fd_wait(l, POLLIN, in_ms(10000)) > 0);
    assert_int_equal(tcp_accept(l, &a), 0);
    assert_true(fcntl(a, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(c, F_GETFL) & O_NONBLOCK);
    assert_int_equal(fd_write_full(c, "hello", 5, in_ms(10000)), 0);
    assert_int_equal(fd_read_full(a, buf, 5, in_ms(10000)), 0);
    assert_memory_equal(buf, "hello", 5);
    assert_int_equal(tcp_peer_addr(a, addr, sizeof(addr)), 0);
    assert_string_equal(addr, "127.0.0.1");
    assert_int_equal(tcp_local_addr(c, addr, sizeof(addr)), 0);
    assert_string_equal(addr, "127.0.0.1");
    fd_close(&a);
    fd_close(&c);

    int taken = -1;
    assert_int_equal(tcp_listen("127.0.0.1", port, &taken, NULL, &e), -EADDRINUSE);
    assert_non_null(strstr(e.text, "127.0.0.1"));
    fd_close(&l);
}

UNIT_TEST(dual_stack_shows_ipv4_as_ipv4)
{
    int l = -1, c = -1, a = -1;
    uint16_t port = 0;
    char addr[64];

    assert_int_equal(tcp_listen("::", 0, &l, &port, NULL), 0);
    assert_int_equal(tcp_connect("127.0.0.1", port, in_ms(10000), false, &c, NULL), 0);
    assert_true(fd_wait(l, POLLIN, in_ms(10000)) > 0);
    assert_int_equal(tcp_accept(l, &a), 0);
    assert_int_equal(tcp_peer_addr(a, addr, sizeof(addr)), 0);
    assert_string_equal(addr, "127.0.0.1");
    fd_close(&a);
    fd_close(&c);
    fd_close(&l);
}

/* From here on this process has a kernel without IPv6. */
static int kernel_lose_ipv6(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ARRAY_LEN(f), .filter = f};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
                   || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0
               ? -errno
               : 0;
}

UNIT_TEST(without_ipv6_all_of_ipv4_is_listened_on)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        int l = -1, c = -1;
        uint16_t port = 0;

        if (kernel_lose_ipv6() < 0 || socket(AF_INET6, SOCK_STREAM, 0) >= 0)
            _exit(1);
        if (tcp_listen("::", 0, &l, &port, NULL) < 0)
            _exit(2);
        _exit(tcp_connect("127.0.0.1", port, in_ms(10000), false, &c, NULL) < 0 ? 3
                                                                                : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* 0 or errno. */
static int bind_port(int fd, uint16_t port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
    return bind(fd, (struct sockaddr *)&any, sizeof(any)) < 0 ? errno : 0;
}

UNIT_TEST(a_held_port_is_left_to_who_knows_it)
{
    int held = -1, server = -1, client = -1;
    int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint16_t port = 0;

    assert_int_equal(tcp_hold(&held, &port, NULL), 0);
    assert_int_equal(bind_port(stranger, port), EADDRINUSE);
    assert_int_equal(tcp_connect("127.0.0.1", port, in_ms(10000), false, &client, NULL),
                     -ECONNREFUSED);
    assert_int_equal(tcp_listen("::", port, &server, NULL, NULL), 0);
    assert_int_equal(tcp_connect("127.0.0.1", port, in_ms(10000), false, &client, NULL),
                     0);
    fd_close(&client);
    fd_close(&server);
    fd_close(&held);
    fd_close(&stranger);
}

/* A socket that gets this port when the kernel selects one; -1: older than Linux 6.3. */
static int socket_limited_to(uint16_t port)
{
    enum { LOCAL_PORT_RANGE = 51 }; /* IP_LOCAL_PORT_RANGE, not in Debian 12's libc */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint32_t range = (uint32_t)port << 16 | port;

    if (setsockopt(fd, IPPROTO_IP, LOCAL_PORT_RANGE, &range, sizeof(range)) < 0)
        fd_close(&fd);
    return fd;
}

UNIT_TEST(the_kernel_selects_no_held_port)
{
    int held = -1, server = -1, on = 1;
    uint16_t port = 0, held_port = 0;
    struct sockaddr_in to = {.sin_family = AF_INET};

    assert_int_equal(tcp_listen("127.0.0.1", 0, &server, &port, NULL), 0);
    assert_int_equal(tcp_hold(&held, &held_port, NULL), 0);
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int binder = socket_limited_to(held_port), client = socket_limited_to(held_port);
    if (client >= 0) {
        assert_int_equal(connect(client, (struct sockaddr *)&to, sizeof(to)), -1);
        assert_int_equal(errno, EADDRNOTAVAIL);
        assert_int_equal(bind_port(binder, 0), EADDRINUSE);
        assert_int_equal(setsockopt(binder, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)),
                         0);
        assert_int_equal(bind_port(binder, 0), EADDRINUSE); /* another launcher's */
        fd_close(&held);
        assert_int_equal(bind_port(binder, 0), 0);
        fd_close(&binder);
        assert_int_equal(connect(client, (struct sockaddr *)&to, sizeof(to)), 0);
    }
    fd_close(&client);
    fd_close(&binder);
    fd_close(&held);
    fd_close(&server);
}

struct late {
    uint16_t port;
    int fd;
};

/* Listens after 100 ms. The other side is refused meanwhile; it has no way to report
 * that. */
static void *listen_late(void *arg)
{
    struct late *late = arg;

    (void)poll(NULL, 0, 100);
    assert_int_equal(tcp_listen("127.0.0.1", late->port, &late->fd, NULL, NULL), 0);
    return NULL;
}

UNIT_TEST(connect_retries_until_a_server_listens)
{
    struct late late = {.fd = -1};
    int fd = -1, c = -1;
    struct err e = ERR_INIT;
    pthread_t t;

    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &late.port, NULL), 0);
    fd_close(&fd);
    assert_int_equal(tcp_connect("127.0.0.1", late.port, in_ms(10000), false, &c, &e),
                     -ECONNREFUSED);
    assert_int_equal(tcp_connect("127.0.0.1", late.port, in_ms(50), true, &c, &e),
                     -ETIMEDOUT);
    assert_non_null(strstr(e.text, "refused"));
    assert_int_equal(pthread_create(&t, NULL, listen_late, &late), 0);
    assert_int_equal(tcp_connect("127.0.0.1", late.port, in_ms(10000), true, &c, &e),
                     0);
    assert_int_equal(pthread_join(t, NULL), 0);
    fd_close(&c);
    fd_close(&late.fd);
}

UNIT_TEST(clock_reads_and_rounds_up)
{
    char buf[21];

    assert_int_equal(clock_left_ms(UINT64_MAX), -1);
    assert_int_equal(clock_left_ms(0), 0);
    assert_int_equal(clock_left_ms(clock_now_ns() + 100000 * NS_PER_S * 1000), INT_MAX);
    int ms = clock_left_ms(clock_now_ns() + 5 * NS_PER_S);
    assert_true(ms > 4000 && ms <= 5000);
    assert_string_equal(clock_rfc3339(1795260153, buf, sizeof(buf)),
                        "2026-11-21T11:22:33Z");
    assert_string_equal(clock_rfc3339(0, buf, sizeof(buf)), "1970-01-01T00:00:00Z");
    assert_true(clock_wall_s() > 1700000000);
}

/* What one log call writes to stderr. */
static size_t log_captured(bool json, char *buf, size_t size)
{
    int p[2], saved = dup(STDERR_FILENO);

    assert_int_equal(pipe(p), 0);
    assert_true(dup2(p[1], STDERR_FILENO) >= 0);
    log_set_json(json);
    log_set_level(LOG_INFO);
    log_set_tag("ringmaster", "rank 3");
    log_debug("not shown", "n=%d", 1);
    log_warn("worker lost", "job=%s cause=\"%s\"", "a/b", "x\ny");
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    fd_close(&saved);
    fd_close(&p[1]);
    ssize_t n = read(p[0], buf, size - 1);
    assert_true(n > 0);
    buf[n] = '\0';
    fd_close(&p[0]);
    return (size_t)n;
}

UNIT_TEST(one_event_is_one_line)
{
    char line[2048];
    enum log_level level;

    size_t n = log_captured(false, line, sizeof(line));
    assert_string_equal(strchr(line, ' '),
                        " W ringmaster[rank 3]: worker lost job=a/b cause=\"x y\"\n");
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
    n = log_captured(true, line, sizeof(line));
    assert_non_null(strstr(line, "\"level\":\"warn\""));
    assert_non_null(strstr(line, ",\"job\":\"a/b\",\"cause\":\"x\\u000ay\"}\n"));
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
    assert_int_equal(log_level_parse("WARNING", &level), 0);
    assert_int_equal(level, LOG_WARN);
    assert_int_equal(log_level_parse("loud", &level), -EINVAL);
}

UNIT_MAIN(NULL, NULL)
