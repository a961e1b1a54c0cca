/* SPDX-License-Identifier: Apache-2.0 */
/* The client's part of the handshake over one descriptor, with a deadline. Messages and
 * checks are in auth_wire.c; this file moves the bytes and maps transport errors. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/wire/auth_wire.h"

#define ASK_NS         (2 * NS_PER_S)
#define RETRY_FIRST_MS 20
#define RETRY_MAX_MS   500
#define RETRY_ONCE_MS  100 /* the last pause of a client that is not patient */

static int auth_transport_error(int rc, const char *what, struct err *err)
{
    if (rc == 0)
        return 0;
    if (rc == -ETIMEDOUT)
        return err_set(err, rc, "peer was silent during the handshake (%s)", what);
    if (rc == -EPIPE)
        return err_set(err, rc, "peer closed during the handshake (%s)", what);
    return err_errno(err, -rc, "handshake (%s)", what);
}

static int fresh_nonce(uint8_t nonce[AUTH_NONCE_BYTES], struct err *err)
{
    int rc = random_bytes(nonce, AUTH_NONCE_BYTES);

    return rc ? err_errno(err, -rc, "no random bytes from the system") : 0;
}

void auth_session_wipe(struct auth_session *s)
{
    mem_wipe(s, sizeof(*s));
}

static int auth_interrupted(const struct auth_claim *claim, struct err *err)
{
    return claim->interrupted ? claim->interrupted(claim->arg, err) : 0;
}

/* When to ask next whether the attempt ends. */
static uint64_t auth_ask_ns(const struct auth_claim *claim)
{
    return claim->interrupted ? earlier_ns(claim->deadline_ns, clock_now_ns() + ASK_NS)
                              : claim->deadline_ns;
}

/* Until the peer has replied, or the deadline: the caller reads. */
static int auth_await(int fd, const struct auth_claim *claim, struct err *err)
{
    int rc = 0;

    while (rc == 0 && fd_wait(fd, POLLIN, auth_ask_ns(claim)) == -ETIMEDOUT
           && clock_now_ns() < claim->deadline_ns)
        rc = auth_interrupted(claim, err);
    return rc;
}

int auth_client(int fd,
                const struct auth_claim *claim,
                struct auth_session *ret,
                struct err *err)
{
    const struct auth_id *id = claim->id;
    uint64_t deadline_ns = claim->deadline_ns;
    uint8_t nonce[AUTH_NONCE_BYTES], hello[AUTH_HELLO_BYTES], reply[AUTH_REPLY_BYTES];
    uint8_t proof[AUTH_PROOF_BYTES];
    int rc = fresh_nonce(nonce, err);

    if (rc)
        return rc;
    auth_wire_hello(id, claim->mine, claim->number, nonce, hello);
    rc = fd_write_full(fd, hello, sizeof(hello), deadline_ns);
    if (rc)
        return auth_transport_error(rc, "sending hello", err);
    rc = auth_await(fd, claim, err);
    if (rc < 0)
        return rc;
    rc = fd_read_full(fd, reply, sizeof(reply), deadline_ns);
    if (rc)
        return auth_transport_error(rc, "waiting for its reply", err);
    int verdict = auth_wire_proof(id, claim->theirs, hello, reply, proof, err);
    if (verdict && verdict != -EACCES)
        return verdict;
    /* After -EACCES the proof is 32 zero bytes: they report the wrong token to the
     * server and reveal nothing about ours. */
    rc = fd_write_full(fd, proof, sizeof(proof), deadline_ns);
    if (verdict)
        return verdict;
    if (rc)
        return auth_transport_error(rc, "sending proof", err);
    if (ret)
        auth_wire_session(id, hello, reply, false, ret);
    return 0;
}

/* tcp_connect in steps. A host that is silent gets a new connection in each: the answer to
 * the first packet takes less than a step. */
static int auth_dial(const struct auth_server *server,
                     const struct auth_claim *claim,
                     bool is_patient,
                     int *ret_fd,
                     struct err *err)
{
    for (;;) {
        const uint64_t until_ns = auth_ask_ns(claim);
        int rc =
            tcp_connect(server->host, server->port, until_ns, is_patient, ret_fd, err);

        if (rc != -ETIMEDOUT || clock_left_ms(claim->deadline_ns) == 0)
            return rc;
        rc = auth_interrupted(claim, err);
        if (rc < 0)
            return rc;
    }
}

int auth_connect(const struct auth_server *server,
                 const struct auth_claim *claim,
                 int *ret_fd,
                 struct auth_session *ret,
                 struct err *err)
{
    struct err why = ERR_INIT;
    uint64_t pause_ms = RETRY_FIRST_MS;
    int stop, fd = -1, rc = auth_dial(server, claim, server->is_patient, &fd, err);

    if (rc < 0)
        return rc;
    for (;;) {
        rc = auth_client(fd, claim, ret, &why);
        if (rc == 0) {
            *ret_fd = fd;
            return 0;
        }
        fd_close(&fd);
        stop = auth_interrupted(claim, &why);
        if (stop < 0)
            return err_set(err, stop, "%s", why.text);
        if (rc != -EPIPE || clock_left_ms(claim->deadline_ns) == 0
            || (!server->is_patient && pause_ms > RETRY_ONCE_MS))
            break;
        (void)poll(NULL, 0, (int)pause_ms); /* a signal cuts it short */
        pause_ms = pause_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : pause_ms * 2;
        if (auth_dial(server, claim, false, &fd, NULL) < 0)
            break;
    }
    return err_set(err, rc, "%s", why.text);
}
