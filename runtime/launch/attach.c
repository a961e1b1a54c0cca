/* SPDX-License-Identifier: Apache-2.0 */
/* The start of an agent's connection: sends the greeting line, receives the key
 * (link.h), then runs remote_agent.c. Over ssh, standard input and output are first
 * moved to other descriptors, because a stray printf would corrupt the frames. Called
 * by agent_main.c and remote.c. */
#include "runtime/launch/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/link.h"
#include "runtime/launch/remote_agent.h"
#include "runtime/launch/session.h"

#define ANSWER_NS (60 * NS_PER_S)

/* Sends the greeting and receives the key. */
static int attach_greet(int in, int out, struct token *root)
{
    static const char greeting[] =
        LINK_GREETING_TEXT LINK_PROTOCOL HVD_VERSION_STRING "\n";
    char answer[sizeof(LINK_ANSWER_TEXT) - 1];
    uint64_t deadline_ns = clock_now_ns() + ANSWER_NS;
    int rc = fd_write_full(out, greeting, sizeof(greeting) - 1, deadline_ns);
    if (rc == 0)
        rc = fd_read_full(in, answer, sizeof(answer), deadline_ns);
    if (rc == 0 && memcmp(answer, LINK_ANSWER_TEXT, sizeof(answer)) != 0)
        rc = -EPROTO;
    return rc < 0 ? rc : fd_read_full(in, root->key, sizeof(root->key), deadline_ns);
}

/* Takes ownership of in and out. */
static int
attach_serve(struct signals *signals, struct remote_peer *up, int in, int out)
{
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0)
        (void)dup2(null, 0);
    (void)dup2(2, 1);
    fd_close(&null);
    int rc = attach_greet(in, out, &up->root);
    if (rc < 0) {
        fprintf(stderr, "hvd-agent: horovodrun did not answer: %s\n", strerror(-rc));
        return 125;
    }
    session_of_job(&up->root, false, &session);
    (void)fd_nonblock(in, true); /* fails for a plain file, which is always ready */
    (void)fd_nonblock(out, true);
    channel_init_pipes(&up->channel, in, out, &session, ERRAND_TO_AGENT_MAX_BYTES,
                       clock_now_ns());
    return remote_agent_run(signals, up);
}

int attach_stdio(struct signals *signals)
{
    struct remote_peer up = {0};
    const char *text = getenv("SSH_CONNECTION"); /* "client port server port" */
    char own[64] = "", theirs[64] = "";
    if (text && sscanf(text, "%63s %*s %63s %*s", theirs, own) == 2) {
        (void)snprintf(up.own, sizeof(up.own), "%s", own);
        (void)snprintf(up.theirs, sizeof(up.theirs), "%s", theirs);
    }
    int in = fcntl(0, F_DUPFD_CLOEXEC, 3), out = fcntl(1, F_DUPFD_CLOEXEC, 3);
    return attach_serve(signals, &up, in, out);
}

int attach_local(struct signals *signals,
                 struct guard *guard,
                 int *ret_fd,
                 pid_t *ret_pid,
                 struct err *err)
{
    struct remote_peer up = {0};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, errno, "a socket for this host's agent");
    pid_t pid = fork();
    if (pid < 0) {
        int saved = errno;
        fd_close(&pair[0]);
        fd_close(&pair[1]);
        return err_errno(err, saved, "cannot start this host's agent");
    }
    if (pid == 0) {
        /* Ctrl-C is forwarded; the terminal must not signal it too */
        (void)setpgid(0, 0);
        fd_close(&pair[0]);
        fd_close(&guard->fd); /* the guard waits until all copies are closed */
        _exit(attach_serve(signals, &up, pair[1], pair[1]));
    }
    (void)setpgid(pid, pid); /* in both processes, because either may be first */
    fd_close(&pair[1]);
    (void)fd_nonblock(pair[0], true); /* cannot fail for a socket */
    *ret_fd = pair[0];
    *ret_pid = pid;
    return 0;
}
