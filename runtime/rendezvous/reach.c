/* SPDX-License-Identifier: Apache-2.0 */
/* How a member connects:
 *
 *   server   connect, handshake, JOIN --> WELCOME: this is the connection
 *                                     --> REDIRECT: close, and
 *   relay    connect, handshake, ENTER --> WELCOME: this is the connection
 *
 * A relay that cannot be reached is named in the next JOIN; the server then chooses
 * another one, and at last itself. So the loop over relays ends without a count here. A
 * relay that is reached but does not answer yet may itself be on its way; it gets
 * RELAY_ANSWER_MS, one whose host does not answer RELAY_CONNECT_MS. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/client.h"
#include "runtime/wire/bytes.h"

#define RETRY_PAUSE_MS   100u
#define TRY_MS           500u /* per address of several; doubled each pass */
#define RELAY_CONNECT_MS 5000u
#define RELAY_ANSWER_MS  30000u
#define AGAIN_MS         30000u /* to reach the server again, which listens */

static uint64_t reach_until(uint64_t deadline_ns, uint64_t ms)
{
    return earlier_ns(deadline_ns, clock_now_ns() + ms * NS_PER_MS);
}

void reach_name_relay(const struct rdv_client *c, char *ret, size_t size_bytes)
{
    const struct rdv_redirect *via = &c->via;

    (void)snprintf(ret, size_bytes,
                   "rank %u at %s port %u, by which rank %u reaches the rendezvous,",
                   c->part && via->relay < c->size ? c->part[via->relay] : via->relay,
                   via->addr, via->port, c->rank); /* fits */
}

int reach_explain(struct rdv_client *c, int rc, struct err *err)
{
    char who[200];

    c->is_broken = true;
    if (rc == -EBADMSG)
        return err_set(err, -EPROTO,
                       "rendezvous server %s sent a frame that is not authentic",
                       c->server);
    if (c->via.port > 0) {
        reach_name_relay(c, who, sizeof(who));
        c->is_cut = rc != -ETIMEDOUT;
        if (rc == -ETIMEDOUT)
            return err_set(err, rc, "%s does not answer", who);
        return err_set(err, rc, "%s has closed the connection", who);
    }
    if (rc == -ETIMEDOUT)
        return err_set(err, rc, "rendezvous server %s does not answer (rank %u)",
                       c->server, c->rank);
    if (rc == -EPIPE)
        return err_set(err, rc,
                       "rendezvous server %s closed the connection (rank %u): it has "
                       "exited or was restarted",
                       c->server, c->rank);
    return err_errno(err, -rc, "rendezvous server %s (rank %u)", c->server, c->rank);
}

static void reach_start_over(struct rdv_client *c)
{
    frame_release(&c->conn);
    c->is_broken = c->is_cut = false;
    c->via = (struct rdv_redirect){0};
}

/* Sends the first frame and receives its answer. */
static int reach_ask(struct rdv_client *c,
                     enum rdv_type type,
                     const uint8_t *payload,
                     size_t n,
                     uint64_t deadline_ns,
                     struct frame *ret,
                     struct err *err)
{
    struct rdv_refused refused;
    int rc = frame_send(&c->conn, (uint8_t)type, payload, n);

    rc = rc < 0 ? rc : frame_flush_until(&c->conn, deadline_ns);
    if (rc < 0)
        return reach_explain(c, rc, err);
    rc = frame_recv_until(&c->conn, deadline_ns, ret);
    if (rc != 1)
        return reach_explain(c, rc, err);
    if (ret->type != RDV_REFUSED)
        return 0;
    rc = rdv_refused_parse(ret->p, ret->n, &refused, err);
    return rc < 0 ? rc : err_set(err, refused.why.code, "%s", refused.why.text);
}

static int reach_join(struct rdv_client *c, uint64_t deadline_ns, struct err *err)
{
    const struct rdv_join join = {
        .rank = c->rank,
        .size = c->job_size,
        .round = c->round,
        .port = c->relay ? relay_port(c->relay) : 0,
        .lost = c->lost,
        .lost_port = c->lost_port,
    };
    const uint32_t n_part = c->part ? c->size : 0;
    const size_t n = RDV_JOIN_BYTES + 4 * (size_t)n_part;
    AUTOFREE uint8_t *payload = mem_alloc(n);
    struct frame f = {0}; /* the analyzer does not follow the code of reach_ask */
    int rc;

    if (!payload)
        return err_set(err, -ENOMEM, "out of memory for a list of %u ranks", n_part);
    rdv_join_write(&join, payload);
    for (uint32_t i = 0; i < n_part; i++)
        bytes_store_u32(payload + RDV_JOIN_BYTES + (size_t)i * 4, c->part[i]);
    rc = reach_ask(c, RDV_JOIN, payload, n, deadline_ns, &f, err);
    if (rc < 0)
        return rc;
    if (f.type == RDV_WELCOME)
        return rdv_welcome_parse(f.p, f.n, &c->place, &c->pass, err);
    if (f.type != RDV_REDIRECT)
        return err_set(err, -EPROTO, "rendezvous server answered JOIN by %u", f.type);
    return rdv_redirect_parse(f.p, f.n, &c->via, err);
}

/* until_ns: to find the server at this address; deadline_ns: for what follows. -EPIPE
 * when the server closed early: it may be starting or stopping. */
static int reach_server(struct rdv_client *c,
                        const char *host,
                        bool is_patient,
                        uint64_t until_ns,
                        uint64_t deadline_ns,
                        struct err *err)
{
    const struct auth_claim claim = {.id = &c->id,
                                     .mine = ROLE_RENDEZVOUS_CLIENT,
                                     .theirs = ROLE_RENDEZVOUS_SERVER,
                                     .number = c->rank,
                                     .deadline_ns = until_ns};
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    int fd, rc = tcp_connect(host, c->port, until_ns, is_patient, &fd, err);

    if (rc) {
        (void)err_prefix(err, "rendezvous server"); /* rc is returned */
        return rc;
    }
    rc = auth_client(fd, &claim, &session, err);
    if (rc) {
        fd_close(&fd);
        (void)err_prefix(err, "rendezvous server %s", c->server); /* keeps the code */
        return rc;
    }
    frame_open(&c->conn, fd, &session, RDV_TO_MEMBER_MAX(c->size));
    c->is_found = true;
    (void)tcp_local_addr(c->conn.fd, c->local_addr, sizeof(c->local_addr)); /* or "" */
    return reach_join(c, deadline_ns, err);
}

static int reach_relay(struct rdv_client *c, uint64_t deadline_ns, struct err *err)
{
    const struct rdv_enter enter = {c->via.place, c->via.pass, c->size};
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    struct auth_claim claim = {.id = &c->id,
                               .mine = ROLE_RENDEZVOUS_CLIENT,
                               .theirs = ROLE_RENDEZVOUS_SERVER,
                               .number = c->rank};
    uint8_t payload[RDV_ENTER_BYTES];
    struct frame f = {0}; /* the analyzer does not follow the code of reach_ask */
    int fd,
        rc = tcp_connect(c->via.addr, c->via.port,
                         reach_until(deadline_ns, RELAY_CONNECT_MS), false, &fd, err);

    if (rc < 0)
        return rc;
    claim.deadline_ns = reach_until(deadline_ns, RELAY_ANSWER_MS);
    rc = auth_client(fd, &claim, &session, err);
    if (rc < 0) {
        fd_close(&fd);
        return rc;
    }
    frame_open(&c->conn, fd, &session, RDV_TO_MEMBER_MAX(c->size));
    rdv_enter_write(&enter, payload);
    rc = reach_ask(c, RDV_ENTER, payload, sizeof(payload), claim.deadline_ns, &f, err);
    if (rc < 0)
        return rc;
    if (f.type != RDV_WELCOME)
        return err_set(err, -EPROTO, "a relay answered ENTER by %u", f.type);
    return rdv_welcome_parse(f.p, f.n, &c->place, &c->pass, err);
}

/* One address of the server, and the relay that it names. */
static int reach_once(struct rdv_client *c,
                      const char *host,
                      bool is_patient,
                      uint64_t until_ns,
                      uint64_t deadline_ns,
                      struct err *err)
{
    for (;;) {
        char who[200];
        int rc = reach_server(c, host, is_patient, until_ns, deadline_ns, err);

        if (rc < 0 || c->via.port == 0)
            return rc;
        frame_release(&c->conn);
        rc = reach_relay(c, deadline_ns, err);
        if (rc == 0)
            return 0;
        if (clock_left_ms(deadline_ns) == 0) {
            reach_name_relay(c, who, sizeof(who));
            (void)err_prefix(err, "%s cannot be reached", who); /* keeps the code */
            return -ETIMEDOUT;
        }
        c->lost = c->via.relay;
        c->lost_port = c->via.port;
        reach_start_over(c);
        until_ns = deadline_ns;
    }
}

static int reach_one(struct rdv_client *c, uint64_t deadline_ns, struct err *err)
{
    for (;;) {
        int rc = reach_once(c, c->host, true, deadline_ns, deadline_ns, err);

        if (rc != -EPIPE || clock_left_ms(deadline_ns) == 0)
            return rc;
        reach_start_over(c);
        (void)poll(
            NULL, 0,
            RETRY_PAUSE_MS); /* a signal cuts it short: the next attempt is earlier */
    }
}

/* Several addresses of one server. Some may be unreachable from here or belong to
 * another host (the same docker0 address, for example): the server is the one that
 * proves to have the token. */
static int reach_any(struct rdv_client *c, uint64_t deadline_ns, struct err *err)
{
    struct err last = ERR_INIT;

    for (uint64_t slice_ms = TRY_MS;; slice_ms *= 2) {
        for (const char *p = c->host; *p;) {
            size_t n = strcspn(p, ",");
            char one[HOST_NAME_MAX_BYTES];

            (void)snprintf(one, sizeof(one), "%.*s", (int)n, p); /* part of a name */
            int rc = reach_once(c, one, false, reach_until(deadline_ns, slice_ms),
                                deadline_ns, &last);
            if (rc == 0)
                memcpy(c->host, one, strlen(one) + 1); /* a part of it */
            if (rc == 0 || (c->is_found && rc != -EPIPE))
                return rc ? err_set(err, rc, "%s", last.text) : 0;
            reach_start_over(c);
            c->is_found = false;
            p += n + (p[n] == ',');
        }
        if (clock_left_ms(deadline_ns) == 0)
            return err_set(
                err, -ETIMEDOUT,
                "rank 0 does not answer at any of its addresses %s; the last: %.200s; "
                "set HOROVOD_GLOO_IFACE to the interface to use",
                c->server, last.text);
        (void)poll(NULL, 0, RETRY_PAUSE_MS);
    }
}

static int reach_attach(struct rdv_client *c, struct err *err)
{
    int rc = c->relay ? relay_attach(c->relay, &c->conn) : 0;

    return rc < 0 ? err_errno(err, -rc, "epoll_ctl") : 0;
}

int reach_open(struct rdv_client *c, uint64_t deadline_ns, struct err *err)
{
    int rc = strchr(c->host, ',') ? reach_any(c, deadline_ns, err)
                                  : reach_one(c, deadline_ns, err);

    return rc < 0 ? rc : reach_attach(c, err);
}

int reach_again(struct rdv_client *c, uint64_t deadline_ns, struct err *err)
{
    const uint64_t until_ns = reach_until(deadline_ns, AGAIN_MS);
    int rc;

    if (c->relay)
        relay_detach(c->relay);
    c->lost = c->via.relay;
    c->lost_port = c->via.port;
    do {
        reach_start_over(c);
        rc = reach_once(c, c->host, false, until_ns, deadline_ns, err);
    } while (rc == -EPIPE && clock_left_ms(until_ns) != 0
             && poll(NULL, 0, RETRY_PAUSE_MS) <= 0); /* it waits only */
    if (rc == 0)
        rc = reach_attach(c, err);
    c->is_broken = rc < 0;
    return rc;
}
