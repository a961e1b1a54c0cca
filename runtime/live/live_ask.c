/* SPDX-License-Identifier: Apache-2.0 */
/* One query over a connection of its own:
 *
 *   CONNECTING -> GREETED (hello sent) -> ASKED (proof and QUERY sent) -> ANSWERED
 *
 * Hello, proof and query fit the empty buffer of a new socket, so that only the answer is
 * received in parts. Called by the operator (ask.c) and by launch/report.c. */
#include "runtime/live/live_ask.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/contract.h"
#include "runtime/wire/auth_wire.h"
#include "runtime/wire/bytes.h"
#include "runtime/wire/frame.h"

enum ask_state { ASK_CONNECTING, ASK_GREETED, ASK_ASKED, ASK_ANSWERED };

struct live_ask {
    enum ask_state state;
    int fd; /* -1: conn has it */
    struct token token;
    char job_id[JOB_ID_MAX];
    struct auth_id id;
    struct live_query query;
    uint64_t deadline_ns;
    uint8_t hello[AUTH_HELLO_BYTES], reply[AUTH_REPLY_BYTES];
    size_t n; /* bytes of the reply */
    struct frame_conn conn;
    const uint8_t *answer; /* in conn */
    size_t answer_n;
};

int live_ask_start(const char *address,
                   uint16_t port,
                   const struct auth_id *id,
                   const struct live_query *q,
                   uint64_t deadline_ns,
                   struct live_ask **ret,
                   struct err *err)
{
    struct live_ask *a = mem_zalloc(sizeof(*a));
    int rc;

    if (!a)
        return err_set(err, -ENOMEM, "out of memory for a query");
    a->fd = -1;
    a->token = *id->token;
    (void)snprintf(a->job_id, sizeof(a->job_id), "%s", id->job_id);
    a->id = (struct auth_id){&a->token, a->job_id, id->generation};
    a->query = *q;
    a->deadline_ns = deadline_ns;
    frame_init(&a->conn);
    rc = tcp_connect_begin(address, port, &a->fd, err);
    if (rc < 0)
        live_ask_free(a);
    else
        *ret = a;
    return rc;
}

void live_ask_free(struct live_ask *a)
{
    if (!a)
        return;
    fd_close(&a->fd);
    frame_release(&a->conn);
    token_wipe(&a->token);
    mem_free(a);
}

int live_ask_fd(const struct live_ask *a)
{
    return a->fd >= 0 ? a->fd : a->conn.fd;
}

short live_ask_events(const struct live_ask *a)
{
    bool wants_out = a->state == ASK_CONNECTING || frame_unsent(&a->conn) > 0;

    return (short)(wants_out ? POLLIN | POLLOUT : POLLIN);
}

static int ask_fail_transport(int rc, struct err *err)
{
    if (rc == -EPIPE)
        return err_set(err, rc, "the agent closed the connection");
    return err_errno(err, -rc, "the connection to the agent failed");
}

/* 1: connected; 0: not yet. */
static int ask_connect(struct live_ask *a, struct err *err)
{
    struct pollfd p = {.fd = a->fd, .events = POLLOUT};
    uint8_t nonce[AUTH_NONCE_BYTES];
    int rc;

    if (poll(&p, 1, 0) <= 0)
        return 0;
    rc = tcp_connect_result(a->fd);
    if (rc < 0)
        return err_errno(err, -rc, "cannot connect to the agent");
    rc = random_bytes(nonce, sizeof(nonce));
    if (rc < 0)
        return err_errno(err, -rc, "no random bytes from the system");
    auth_wire_hello(&a->id, ROLE_READER, 0, nonce, a->hello);
    rc = fd_write_full(a->fd, a->hello, sizeof(a->hello), 0);
    if (rc < 0)
        return ask_fail_transport(rc, err);
    a->state = ASK_GREETED;
    return 1;
}

static int ask_send_query(struct live_ask *a)
{
    uint8_t text[10];

    bytes_store(text, a->query.kind, 2);
    bytes_store_u32(text + 2, a->query.first);
    bytes_store_u32(text + 6, a->query.max);
    return frame_send(&a->conn, LIVE_MESSAGE_QUERY, text, sizeof(text));
}

/* Of the answer. An operator has many reports in flight, of agents that it must not
 * trust with its memory. */
static size_t ask_max_bytes(const struct live_query *q)
{
    return q->kind == QUERY_REPORT ? 4 + LIVE_REPORT_MAX_BYTES : QUERY_ANSWER_MAX_BYTES;
}

/* 1: the agent has proved itself and has the query; 0: its reply is not complete. */
static int ask_prove(struct live_ask *a, struct err *err)
{
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    uint8_t proof[AUTH_PROOF_BYTES];
    ssize_t k = read(a->fd, a->reply + a->n, sizeof(a->reply) - a->n);
    int rc, verdict;

    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (k <= 0)
        return ask_fail_transport(k < 0 ? -errno : -EPIPE, err);
    a->n += (size_t)k;
    if (a->n < sizeof(a->reply))
        return 0;
    verdict = auth_wire_proof(&a->id, ROLE_AGENT_HUB, a->hello, a->reply, proof, err);
    if (verdict < 0 && verdict != -EACCES)
        return verdict;
    rc = fd_write_full(a->fd, proof, sizeof(proof), 0);
    if (verdict < 0)
        return verdict; /* the proof was zeros */
    if (rc < 0)
        return ask_fail_transport(rc, err);
    auth_wire_session(&a->id, a->hello, a->reply, false, &session);
    frame_open(&a->conn, a->fd, &session, ask_max_bytes(&a->query));
    a->fd = -1;
    rc = ask_send_query(a);
    if (rc < 0)
        return ask_fail_transport(rc, err);
    a->state = ASK_ASKED;
    return 1;
}

/* 1: the answer is complete. */
static int ask_receive(struct live_ask *a, struct err *err)
{
    struct frame f = {0};
    uint32_t status;
    int rc = frame_flush(&a->conn);

    frame_readable(&a->conn);
    if (rc == 0)
        rc = frame_recv(&a->conn, &f);
    if (rc == 0)
        return 0;
    if (rc < 0)
        return rc == -EBADMSG
                   ? err_set(err, -EPROTO, "the answer is not authentic or too large")
                   : ask_fail_transport(rc, err);
    if (f.type != LIVE_MESSAGE_ANSWER || f.n < 4)
        return err_set(err, -EPROTO, "message %u is no answer", f.type);
    status = bytes_load_u32(f.p);
    if (status > 0 && status < 4096)
        return err_set(err, -(int)status, "%.*s", (int)(f.n - 4),
                       (const char *)f.p + 4);
    a->answer = f.p + 4;
    a->answer_n = f.n - 4;
    a->state = ASK_ANSWERED;
    return 1;
}

int live_ask_step(struct live_ask *a, uint64_t now_ns, struct err *err)
{
    int rc = 0;

    if (a->state == ASK_CONNECTING)
        rc = ask_connect(a, err);
    if (rc >= 0 && a->state == ASK_GREETED)
        rc = ask_prove(a, err);
    if (rc >= 0 && a->state == ASK_ASKED)
        rc = ask_receive(a, err);
    if (a->state == ASK_ANSWERED)
        return 1;
    if (rc >= 0 && now_ns >= a->deadline_ns)
        return err_set(err, -ETIMEDOUT,
                       a->state == ASK_CONNECTING
                           ? "the agent could not be reached in time"
                           : "the agent did not answer in time");
    return rc < 0 ? rc : 0;
}

const void *live_ask_answer(const struct live_ask *a, size_t *ret_n)
{
    *ret_n = a->answer_n;
    return a->answer;
}

int live_ask_wait(const char *address,
                  uint16_t port,
                  const struct auth_id *id,
                  const struct live_query *q,
                  uint64_t deadline_ns,
                  void **ret_answer,
                  size_t *ret_n,
                  struct err *err)
{
    struct live_ask *a;
    const void *answer;
    int rc = live_ask_start(address, port, id, q, deadline_ns, &a, err);

    if (rc < 0)
        return rc;
    while ((rc = live_ask_step(a, clock_now_ns(), err)) == 0)
        (void)fd_wait(live_ask_fd(a), live_ask_events(a), deadline_ns);
    if (rc > 0) {
        answer = live_ask_answer(a, ret_n);
        *ret_answer = mem_alloc(*ret_n + 1);
        rc = *ret_answer ? 0 : err_set(err, -ENOMEM, "out of memory for the answer");
        if (rc == 0) {
            memcpy(*ret_answer, answer, *ret_n);
            ((char *)*ret_answer)[*ret_n] = '\0';
        }
    }
    live_ask_free(a);
    return rc;
}
