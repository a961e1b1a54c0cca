/* SPDX-License-Identifier: Apache-2.0 */
/* A member's side of the rendezvous: connect, authenticate, JOIN, then one PUT and its
 * answer per round. Blocking with deadlines; used by one thread at a time.
 *
 * The server enforces a member's deadline, because only the server can list the missing
 * ranks: PUT carries the remaining milliseconds, and the client waits GRACE_MS longer
 * for the answer. A server that is silent beyond that is reported as not answering.
 * After an answer other than ALL, CANCELED or TIMEOUT, and after every broken transfer,
 * the connection cannot be used again (is_broken). */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/rdv_wire.h"
#include "runtime/wire/bytes.h"
#include "runtime/wire/frame.h"

#define GRACE_MS       1000u
#define RETRY_PAUSE_MS 100u
#define TRY_MS         500u /* per address of several; doubled each pass */

struct rdv_client {
    struct frame_conn conn;
    uint32_t rank, round;
    uint32_t size;     /* of the world */
    uint32_t job_size; /* of the job, which may be larger than the world */
    const uint32_t
        *part; /* its size entries, owned by the caller, until open returns; or NULL */
    bool is_broken;
    bool is_found; /* the server has proved itself: its refusal is final */
    char local_addr[64];
    char server[HOST_NAME_MAX_BYTES + 16]; /* "host port n" for messages */
};

static uint64_t deadline_limit(uint64_t deadline_ns, uint64_t ms)
{
    return deadline_ns > UINT64_MAX - ms * NS_PER_MS ? UINT64_MAX
                                                     : deadline_ns + ms * NS_PER_MS;
}

static int client_transport_error(struct rdv_client *c, int rc, struct err *err)
{
    c->is_broken = true;
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

/* -ENOMEM and -ENOBUFS: nothing was sent. */
static int client_send(struct rdv_client *c,
                       enum rdv_type type,
                       const uint8_t *payload,
                       size_t n,
                       uint64_t deadline_ns)
{
    int rc = frame_send(&c->conn, (uint8_t)type, payload, n);

    return rc < 0 ? rc : frame_flush_until(&c->conn, deadline_ns);
}

/* ret: valid until the next frame. */
static int client_receive(struct rdv_client *c,
                          uint64_t deadline_ns,
                          struct frame *ret,
                          struct err *err)
{
    int rc = frame_recv_until(&c->conn, deadline_ns, ret);

    if (rc == 1)
        return 0;
    if (rc != -EBADMSG)
        return client_transport_error(c, rc, err);
    c->is_broken = true;
    return err_set(err, -EPROTO,
                   "rendezvous server %s sent a frame that is not "
                   "authentic",
                   c->server);
}

static int client_refused(struct rdv_client *c, const struct frame *f, struct err *err)
{
    int rc = rdv_refused_parse(f->p, f->n, err);

    c->is_broken = rc != -ETIMEDOUT && rc != -ECANCELED;
    return rc;
}

static int send_join(struct rdv_client *c, uint64_t deadline_ns, struct err *err)
{
    const uint32_t n_part = c->part ? c->size : 0;
    const uint32_t n = 8 + 4 * n_part; /* the caller has checked the list */
    AUTOFREE uint8_t *payload = mem_alloc(n);

    if (!payload)
        return err_set(err, -ENOMEM, "out of memory for a list of %u ranks", n_part);
    bytes_store_u32(payload, c->rank);
    bytes_store_u32(payload + 4, c->job_size);
    for (uint32_t i = 0; i < n_part; i++)
        bytes_store_u32(payload + 8 + (size_t)i * 4, c->part[i]);
    int rc = client_send(c, RDV_JOIN, payload, n, deadline_ns);
    return rc ? client_transport_error(c, rc, err) : 0;
}

static int client_join(struct rdv_client *c, uint64_t deadline_ns, struct err *err)
{
    struct frame f;
    int rc = send_join(c, deadline_ns, err);

    if (rc)
        return rc;
    rc = client_receive(c, deadline_ns, &f, err);
    if (rc)
        return rc;
    if (f.type == RDV_REFUSED)
        return client_refused(c, &f, err);
    if (f.type != RDV_WELCOME)
        return err_set(err, -EPROTO, "rendezvous server answered JOIN by %u", f.type);
    return 0;
}

/* One attempt. -EPIPE when the server closed early: it may be starting or stopping. */
static int open_once(struct rdv_client *c,
                     const char *host,
                     uint16_t port,
                     const struct auth_id *id,
                     uint64_t deadline_ns,
                     bool retry,
                     struct err *err)
{
    const struct auth_claim claim = {.id = id,
                                     .mine = ROLE_RENDEZVOUS_CLIENT,
                                     .theirs = ROLE_RENDEZVOUS_SERVER,
                                     .number = c->rank,
                                     .deadline_ns = deadline_ns};
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    int fd, rc = tcp_connect(host, port, deadline_ns, retry, &fd, err);

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
    return client_join(c, deadline_ns, err);
}

static void start_over(struct rdv_client *c)
{
    frame_release(&c->conn);
    c->is_broken = false;
}

static int open_one(struct rdv_client *c,
                    const char *host,
                    uint16_t port,
                    const struct auth_id *id,
                    uint64_t deadline_ns,
                    struct err *err)
{
    for (;;) {
        int rc = open_once(c, host, port, id, deadline_ns, true, err);

        if (rc != -EPIPE || clock_left_ms(deadline_ns) == 0)
            return rc;
        start_over(c);
        (void)poll(
            NULL, 0,
            RETRY_PAUSE_MS); /* a signal cuts it short: the next attempt is earlier */
    }
}

/* Several addresses of one server. Some may be unreachable from here or belong to
 * another host (the same docker0 address, for example): the server is the one that
 * proves to have the token. */
static int open_any(struct rdv_client *c,
                    const char *hosts,
                    uint16_t port,
                    const struct auth_id *id,
                    uint64_t deadline_ns,
                    struct err *err)
{
    struct err last = ERR_INIT;

    for (uint64_t slice_ns = TRY_MS * NS_PER_MS;; slice_ns *= 2) {
        for (const char *p = hosts; *p;) {
            size_t n = strcspn(p, ",");
            uint64_t until_ns = clock_now_ns() + slice_ns;
            char one[HOST_NAME_MAX_BYTES];

            (void)snprintf(one, sizeof(one), "%.*s", (int)n, p); /* part of a name */
            if (until_ns > deadline_ns)
                until_ns = deadline_ns;
            int rc = open_once(c, one, port, id, until_ns, false, &last);
            if (rc == 0 || (c->is_found && rc != -EPIPE))
                return rc ? err_set(err, rc, "%s", last.text) : 0;
            start_over(c);
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

int rdv_client_connect(const char *host,
                       uint16_t port,
                       const struct auth_id *id,
                       uint32_t rank,
                       uint32_t size,
                       uint64_t deadline_ns,
                       struct rdv_client **ret,
                       struct err *err)
{
    return rdv_client_connect_part(host, port, id, rank, size, NULL, 0, deadline_ns,
                                   ret, err);
}

int rdv_client_connect_part(const char *host,
                            uint16_t port,
                            const struct auth_id *id,
                            uint32_t rank,
                            uint32_t size,
                            const uint32_t *part,
                            uint32_t n_part,
                            uint64_t deadline_ns,
                            struct rdv_client **ret,
                            struct err *err)
{
    struct rdv_client *c = mem_zalloc(sizeof(*c));

    if (!c)
        return err_set(err, -ENOMEM, "out of memory for the rendezvous client");
    frame_init(&c->conn);
    c->rank = rank;
    c->size = n_part > 0 ? n_part : size;
    c->job_size = size;
    c->part = n_part > 0 ? part : NULL;
    (void)snprintf(c->server, sizeof(c->server), "%.255s port %u", host,
                   port); /* fits */
    int rc = strchr(host, ',') ? open_any(c, host, port, id, deadline_ns, err)
                               : open_one(c, host, port, id, deadline_ns, err);
    if (rc) {
        rdv_client_close(c);
        return rc;
    }
    c->part = NULL;
    *ret = c;
    return 0;
}

static int
client_put(struct rdv_client *c, const void *blob, uint32_t n, uint64_t deadline_ns)
{
    AUTOFREE uint8_t *payload = mem_alloc(8 + (size_t)n);
    int left_ms = clock_left_ms(deadline_ns);

    if (!payload)
        return -ENOMEM;
    bytes_store_u32(payload, c->round);
    bytes_store_u32(payload + 4, left_ms < 0 ? RDV_WAIT_FOREVER : (uint32_t)left_ms);
    if (n)
        memcpy(payload + 8, blob, n);
    return client_send(c, RDV_PUT, payload, 8 + (size_t)n,
                       deadline_limit(deadline_ns, GRACE_MS));
}

int rdv_client_exchange(struct rdv_client *c,
                        const void *blob,
                        uint32_t n,
                        uint64_t deadline_ns,
                        uint8_t ***ret_blobs,
                        uint32_t **ret_sizes,
                        struct err *err)
{
    const size_t room = (size_t)c->size * (sizeof(uint8_t *) + sizeof(uint32_t));
    AUTOFREE uint8_t *buf = NULL;
    struct frame f;

    if (n > RDV_MAX_BLOB_BYTES)
        return err_set(err, -EINVAL, "rendezvous blob of %u bytes exceeds %u", n,
                       RDV_MAX_BLOB_BYTES);
    if (c->is_broken)
        return err_set(err, -EPIPE, "the connection to rendezvous server %s is broken",
                       c->server);
    int rc = client_put(c, blob, n, deadline_ns);
    if (rc == -ENOMEM)
        return err_set(err, rc, "out of memory for a rendezvous blob");
    if (rc
        && rc != -EPIPE) /* after EPIPE the server's last frame may still be readable */
        return client_transport_error(c, rc, err);
    rc = client_receive(c, deadline_limit(deadline_ns, GRACE_MS), &f, err);
    if (rc)
        return rc;
    if (f.type == RDV_REFUSED)
        return client_refused(c, &f, err);
    c->is_broken = f.type != RDV_ALL;
    if (c->is_broken)
        return err_set(err, -EPROTO, "rendezvous server answered PUT by %u", f.type);
    buf = mem_alloc(room + f.n);
    if (!buf) {
        c->is_broken = true;
        return err_set(err, -ENOMEM, "out of memory for %zu bytes of the rendezvous",
                       f.n);
    }
    memcpy(buf + room, f.p, f.n);

    uint8_t **blobs = (uint8_t **)(void *)buf;
    uint32_t *sizes = (uint32_t *)(void *)(buf + c->size * sizeof(uint8_t *));
    rc = rdv_all_parse(buf + room, f.n, c->round, c->size, blobs, sizes, err);
    if (rc) {
        c->is_broken = true;
        return rc;
    }
    c->round++;
    buf = NULL; /* handed over as *ret_blobs */
    *ret_blobs = blobs;
    *ret_sizes = sizes;
    return 0;
}

uint32_t rdv_client_round(const struct rdv_client *c)
{
    return c->round;
}

void rdv_client_start_at(struct rdv_client *c, uint32_t round)
{
    c->round = round;
}

const char *rdv_client_local_addr(const struct rdv_client *c)
{
    return c->local_addr;
}

void rdv_client_close(struct rdv_client *c)
{
    if (!c)
        return;
    frame_release(&c->conn);
    mem_free(c);
}
