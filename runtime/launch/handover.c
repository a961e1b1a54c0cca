/* SPDX-License-Identifier: Apache-2.0 */
/*   horovodrun == sealed frames, TCP ==> new agent -- frames, Unix socket --> keeper
 *
 * The connection itself is not handed over: its keys and counters would have to follow.
 * The relay costs one process on a host for each time that horovodrun was lost and started
 * again. Called by remote_agent.c. */
#include "runtime/launch/handover.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/base/unix.h"
#include "runtime/launch/core/errand.h"
#include "runtime/launch/session.h"

static void
handover_name(const struct token *root, const char *job_id, char ret[UNIX_NAME_BYTES])
{
    uint8_t digest[SHA256_BYTES];
    struct hmac m;

    hmac_init(&m, root->key, sizeof(root->key));
    hmac_add(&m, "hvd keeper", 10);
    hmac_add(&m, job_id, strlen(job_id));
    hmac_end(&m, digest);
    memcpy(ret, "hvd-", 4);
    hex_encode(digest, 16, ret + 4);
}

int handover_listen(const struct token *root,
                    const char *job_id,
                    int *ret_fd,
                    struct err *err)
{
    char name[UNIX_NAME_BYTES];

    handover_name(root, job_id, name);
    return unix_listen_at(name, ret_fd, err);
}

static bool peer_is_ours(int fd)
{
    struct ucred peer;

    return unix_read_peer(fd, &peer) == 0 && peer.uid == geteuid();
}

bool handover_accept(int fd, const struct token *root, struct channel *ret)
{
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (peer < 0)
        return false;
    if (!peer_is_ours(peer)) {
        fd_close(&peer);
        return false;
    }
    session_of_job(root, false, &session);
    channel_init(ret, peer, &session, ERRAND_TO_AGENT_MAX_BYTES, clock_now_ns());
    return true;
}

int handover_connect(const struct token *root,
                     const char *job_id,
                     struct channel *ret,
                     struct err *err)
{
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    char name[UNIX_NAME_BYTES];
    int fd = -1, rc;

    handover_name(root, job_id, name);
    rc = unix_connect(name, &fd, err);
    if (rc < 0)
        return rc;
    if (!peer_is_ours(fd)) {
        fd_close(&fd);
        return err_set(err, -EPERM, "the keeper of the job is another user's");
    }
    session_of_job(root, true, &session);
    channel_init(ret, fd, &session, ERRAND_TO_LAUNCHER_MAX_BYTES, clock_now_ns());
    return 0;
}

/* Passes on what has arrived. False: the connection has ended. */
static bool relay_frames(struct channel *from, struct channel *to)
{
    const uint64_t now_ns = clock_now_ns();
    struct frame f;
    int rc;

    channel_serve(from);
    while ((rc = channel_next(from, now_ns, &f, NULL)) > 0)
        if (f.type != ERRAND_PING
            && channel_send(to, (uint8_t)f.type, f.p, f.n, now_ns) < 0)
            return false;
    return rc == 0 && !from->lost;
}

/* Signals are for the keeper, which has the processes. False: after a stop signal. */
static bool relay_take_signals(struct signals *signals)
{
    bool is_stopped = false;
    int sig;

    while ((sig = signals_next(signals)) > 0)
        is_stopped = is_stopped || signals_is_stop(sig);
    return !is_stopped;
}

void handover_relay(struct channel *leader,
                    struct channel *keeper,
                    uint8_t type,
                    const struct strbuf *first,
                    uint64_t silence_ns,
                    struct signals *signals)
{
    bool is_open = channel_send(keeper, type, first->p, first->n, clock_now_ns()) == 0;

    while (is_open) {
        struct pollfd p[5];
        uint64_t next[2] = {UINT64_MAX, UINT64_MAX}, now_ns = clock_now_ns();

        if (channel_tick(leader, ERRAND_PING, silence_ns, now_ns, &next[0]) < 0
            || channel_tick(keeper, ERRAND_PING, silence_ns, now_ns, &next[1]) < 0)
            break;
        channel_pollfds(leader, p);
        channel_pollfds(keeper, p + 2);
        p[4] = (struct pollfd){.fd = signals->fd, .events = POLLIN};
        (void)poll(p, ARRAY_LEN(p), clock_left_ms(earlier_ns(next[0], next[1])));
        is_open = relay_frames(leader, keeper) && relay_frames(keeper, leader);
        /* what was passed on just now is to arrive, whichever end has closed */
        channel_serve(leader);
        channel_serve(keeper);
        is_open = is_open && relay_take_signals(signals);
    }
    channel_release(leader);
    channel_release(keeper);
}
