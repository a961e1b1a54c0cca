/* SPDX-License-Identifier: Apache-2.0 */
/* A member's rounds: one PUT and its answer each. reach.c connects it, relay.c serves
 * those below it. Blocking with deadlines; used by one thread at a time.
 *
 * The server enforces a member's deadline, because only the server can list the missing
 * ranks: PUT carries the remaining milliseconds, and the client waits GRACE_MS longer
 * for the answer, in a large world more (client_limit). A server that is silent beyond that is reported as not answering.
 * After an answer other than ALL, CANCELED or TIMEOUT, and after every broken transfer,
 * the connection cannot be used again (is_broken). Only the loss of a relay is repaired,
 * within a round: the member connects in another way and puts again. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/client.h"
#include "runtime/wire/bytes.h"

#define GRACE_MS 1000u
#define TREE_MS  2000u /* more in a large world */
#define HOP_MS   1000u /* and for each relay on the way */
#define FLUSH_NS (2 * NS_PER_S)

static uint64_t deadline_limit(uint64_t deadline_ns, uint64_t ms)
{
    return deadline_ns > UINT64_MAX - ms * NS_PER_MS ? UINT64_MAX
                                                     : deadline_ns + ms * NS_PER_MS;
}

static int client_copy(struct rdv_client *c, const struct rdv_seek *seek)
{
    c->host = mem_strdup(seek->host);
    c->job_id = mem_strdup(seek->id->job_id);
    c->token = *seek->id->token;
    c->id = (struct auth_id){&c->token, c->job_id, seek->id->generation};
    if (seek->n_part > 0) {
        c->part = mem_calloc(seek->n_part, sizeof(*c->part));
        if (c->part)
            memcpy(c->part, seek->part, seek->n_part * sizeof(*c->part));
    }
    return c->host && c->job_id && (c->part || seek->n_part == 0) ? 0 : -ENOMEM;
}

int rdv_client_open(const struct rdv_seek *seek,
                    uint64_t deadline_ns,
                    struct rdv_client **ret,
                    struct err *err)
{
    struct rdv_client *c = mem_zalloc(sizeof(*c));

    if (!c)
        return err_set(err, -ENOMEM, "out of memory for the rendezvous client");
    frame_init(&c->conn);
    c->port = seek->port;
    c->rank = seek->rank;
    c->job_size = seek->size;
    c->size = seek->n_part > 0 ? seek->n_part : seek->size;
    c->round = seek->round;
    c->lost = RDV_NO_PLACE;
    (void)snprintf(c->server, sizeof(c->server), "%.255s port %u", seek->host,
                   seek->port); /* fits */
    int rc = client_copy(c, seek);
    if (rc < 0)
        rc = err_set(err, rc, "out of memory for the rendezvous client");
    if (rc == 0 && c->size > RDV_DIRECT_MAX && !seek->is_leaf)
        rc = relay_new(&c->id, c->size, &c->relay, err);
    if (rc == 0)
        rc = reach_open(c, deadline_ns, err);
    if (rc < 0) {
        rdv_client_close(c);
        return rc;
    }
    *ret = c;
    return 0;
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
    const struct rdv_seek seek = {
        .host = host, .port = port, .id = id, .rank = rank, .size = size};

    return rdv_client_open(&seek, deadline_ns, ret, err);
}

/* --- one round --- */

/* Later than the deadlines of those above: a relay that hangs is named by the member that
 * is connected to it, and that passes the text down. */
static uint64_t client_limit(const struct rdv_client *c, uint64_t deadline_ns)
{
    const uint64_t tree_ms =
        c->size > RDV_DIRECT_MAX ? TREE_MS + (uint64_t)HOP_MS * c->via.depth : 0;

    return deadline_limit(deadline_ns, GRACE_MS + tree_ms);
}

static int client_put(struct rdv_client *c,
                      const void *blob,
                      uint32_t n,
                      uint64_t deadline_ns,
                      struct err *err)
{
    AUTOFREE uint8_t *payload = mem_alloc(RDV_PUT_BYTES + (size_t)n);
    int left_ms = clock_left_ms(deadline_ns), rc;

    if (!payload)
        return err_set(err, -ENOMEM, "out of memory for a rendezvous blob");
    bytes_store_u32(payload, c->place);
    bytes_store_u32(payload + 4, c->round);
    bytes_store_u32(payload + 8, left_ms < 0 ? RDV_WAIT_FOREVER : (uint32_t)left_ms);
    if (n)
        memcpy(payload + RDV_PUT_BYTES, blob, n);
    rc = frame_send(&c->conn, RDV_PUT, payload, RDV_PUT_BYTES + (size_t)n);
    if (rc == 0 && !c->relay)
        rc = frame_flush_until(&c->conn, client_limit(c, deadline_ns));
    /* after EPIPE the server's last frame may still be readable */
    return rc == 0 || rc == -EPIPE ? 0 : reach_explain(c, rc, err);
}

/* 0: not for this member. */
static int client_refused(struct rdv_client *c, const struct frame *f, struct err *err)
{
    struct rdv_refused refused;
    int rc = rdv_refused_parse(f->p, f->n, &refused, err);

    if (rc == 0 && refused.place != RDV_NO_PLACE
        && (refused.place != c->place || refused.pass != c->pass)) {
        if (c->relay)
            relay_refuse(c->relay, &refused);
        return 0;
    }
    if (rc == 0 && refused.place == RDV_NO_PLACE && c->relay)
        relay_refuse_all(c->relay, refused.why.text);
    if (rc == 0)
        rc = err_set(err, refused.why.code, "%s", refused.why.text);
    c->is_broken = rc != -ETIMEDOUT && rc != -ECANCELED;
    return rc;
}

/* Reads what has arrived. 1: *ret is ALL; 0: nothing for us yet. */
static int client_read(struct rdv_client *c, struct frame *ret, struct err *err)
{
    int rc;

    frame_readable(&c->conn);
    while ((rc = frame_recv(&c->conn, ret)) == 1) {
        if (ret->type == RDV_ALL)
            return 1;
        c->is_broken = ret->type != RDV_REFUSED;
        if (c->is_broken)
            return err_set(err, -EPROTO, "rendezvous server answered PUT by %u",
                           ret->type);
        rc = client_refused(c, ret, err);
        if (rc < 0)
            return rc;
    }
    return rc < 0 ? reach_explain(c, rc, err) : 0;
}

/* Waits for ALL; a relay serves those below it meanwhile. */
static int client_wait(struct rdv_client *c,
                       uint64_t deadline_ns,
                       struct frame *ret,
                       struct err *err)
{
    for (;;) {
        int rc = client_read(c, ret, err);

        if (rc != 0)
            return rc < 0 ? rc : 0;
        if (clock_left_ms(deadline_ns) == 0)
            return reach_explain(c, -ETIMEDOUT, err);
        rc = c->relay ? relay_turn(c->relay, deadline_ns)
                      : fd_wait(c->conn.fd, POLLIN, deadline_ns);
        if (rc < 0)
            return reach_explain(c, rc, err);
    }
}

static int client_try_round(struct rdv_client *c,
                            const void *blob,
                            uint32_t n,
                            uint64_t deadline_ns,
                            struct frame *ret,
                            struct err *err)
{
    const uint64_t limit_ns = client_limit(c, deadline_ns);
    int rc = client_put(c, blob, n, deadline_ns, err);

    rc = rc < 0 ? rc : client_wait(c, limit_ns, ret, err);
    if (rc == 0 && c->relay && relay_send_all(c->relay, ret) < 0) {
        c->is_broken = true;
        return err_set(err, -ENOMEM, "out of memory for %zu bytes of the rendezvous",
                       ret->n);
    }
    if (c->relay && rc == -ETIMEDOUT && c->is_broken)
        relay_refuse_all(c->relay, err ? err->text : "the rendezvous does not answer");
    if (c->relay && !c->is_cut) /* what is sent down before a refusal of our own, too */
        relay_flush(c->relay, rc == 0 ? limit_ns : clock_now_ns() + FLUSH_NS);
    return rc;
}

/* While the relay of this member goes, it looks for another one. */
static int client_do_round(struct rdv_client *c,
                           const void *blob,
                           uint32_t n,
                           uint64_t deadline_ns,
                           struct frame *ret,
                           struct err *err)
{
    int rc = client_try_round(c, blob, n, deadline_ns, ret, err);

    while (rc < 0 && c->is_cut && clock_left_ms(deadline_ns) != 0) {
        char who[200];

        reach_name_relay(c, who, sizeof(who));
        rc = reach_again(c, deadline_ns, err);
        if (rc == 0)
            rc = client_try_round(c, blob, n, deadline_ns, ret, err);
        if (rc < 0 && !c->is_cut && rc != -ETIMEDOUT && rc != -ECANCELED)
            (void)err_prefix(err, "%s has closed the connection", who); /* keeps rc */
    }
    return rc;
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
    int rc = client_do_round(c, blob, n, deadline_ns, &f, err);
    if (rc)
        return rc;
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

const char *rdv_client_local_addr(const struct rdv_client *c)
{
    return c->local_addr;
}

void rdv_client_close(struct rdv_client *c)
{
    if (!c)
        return;
    relay_free(c->relay);
    frame_release(&c->conn);
    token_wipe(&c->token);
    mem_free(c->host);
    mem_free(c->job_id);
    mem_free(c->part);
    mem_free(c);
}
