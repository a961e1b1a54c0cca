/* SPDX-License-Identifier: Apache-2.0 */
/* seal.c and libmunge, on a munged that closes each connection before the request is
 * written: it does so after 2 s, which pass on a host under load. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "spank_plugin/seal.h"

static struct sockaddr_un addr = {.sun_family = AF_UNIX};
static int listener = -1;

/* libmunge's own call comes here. Its second attempt finds no socket. */
__attribute__((visibility("default"))) int
connect(int fd, const struct sockaddr *to, socklen_t n)
{
    int rc = (int)syscall(SYS_connect, fd, to, n), peer;

    if (rc == 0) {
        peer = accept(listener, NULL, NULL);
        assert_true(peer >= 0);
        (void)close(peer);
        (void)unlink(addr.sun_path);
    }
    return rc;
}

UNIT_TEST(a_munged_that_closes_is_an_error_and_no_signal)
{
    AUTOFREE char *cred = NULL;
    struct err err = ERR_INIT;
    char auth_info[128];
    sigset_t set;

    (void)signal(SIGPIPE, SIG_DFL);
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "/tmp/seal-test.%d",
                   (int)getpid());
    (void)snprintf(auth_info, sizeof(auth_info), "socket=%s", addr.sun_path);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(seal_close(auth_info, "token", 5, &cred, &err), -EIO);
    (void)close(listener);
    assert_int_not_equal(access(addr.sun_path, F_OK), 0);
    assert_non_null(strstr(err.text, "munge cannot encrypt the job token: "));
    assert_int_equal(sigpending(&set), 0);
    assert_int_equal(sigismember(&set, SIGPIPE), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &set), 0);
    assert_int_equal(sigismember(&set, SIGPIPE), 0);
}

UNIT_MAIN(NULL, NULL)
