/* SPDX-License-Identifier: Apache-2.0 */
/* Writers append to a strbuf; readers return an error for invalid data (bytes.h).
 * Called by the files of the hub and the agents, and by uplink.c and remote_receive.c. */
#include "runtime/launch/core/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

void hello_write(const struct hello *h, struct strbuf *out)
{
    bytes_put_u32(out, h->worker);
    bytes_put_u32(out, h->workers);
    bytes_put_u32(out, h->slots);
    bytes_put_u32(out, h->np);
    bytes_put_u32(out, h->generation);
    bytes_put_str(out, h->host);
}

int hello_read(const uint8_t *p, size_t n, struct hello *ret, struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    struct hello h = {0};
    h.worker = bytes_u32(&r);
    h.workers = bytes_u32(&r);
    h.slots = bytes_u32(&r);
    h.np = bytes_u32(&r);
    h.generation = bytes_u32(&r);
    bytes_host(&r, h.host, sizeof(h.host));
    int rc = bytes_end(&r, "hello", err);
    if (rc == 0)
        *ret = h;
    return rc;
}

void table_write(const struct table *t, struct strbuf *out)
{
    bytes_put_u32(out, t->rdv_port);
    bytes_put_u32(out, t->master_port);
    bytes_put_str(out, t->address);
    bytes_put_u32(out, (uint32_t)t->hosts.n);
    for (size_t i = 0; i < t->hosts.n; i++) {
        bytes_put_str(out, t->hosts.v[i].name);
        bytes_put_u32(out, t->hosts.v[i].slots);
    }
}

int table_read(const uint8_t *p, size_t n, struct table *ret, struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    struct table t = {0};
    int rc = 0;
    hostlist_init(&t.hosts);
    uint32_t rdv_port = bytes_u32(&r), master_port = bytes_u32(&r);
    bytes_host(&r, t.address, sizeof(t.address));
    uint32_t hosts = bytes_u32(&r);
    if (rdv_port > UINT16_MAX || master_port > UINT16_MAX || hosts > HOSTLIST_MAX_HOSTS)
        r.is_bad = true;
    for (uint32_t i = 0; i < hosts && !r.is_bad && rc == 0; i++) {
        char name[HOST_NAME_MAX_BYTES];
        bytes_host(&r, name, sizeof(name));
        uint32_t slots = bytes_u32(&r);
        if (!r.is_bad)
            rc = hostlist_append(&t.hosts, name, slots, err);
    }
    if (rc == 0)
        rc = bytes_end(&r, "host table", err);
    if (rc < 0) {
        table_release(&t);
        return rc;
    }
    t.rdv_port = (uint16_t)rdv_port;
    t.master_port = (uint16_t)master_port;
    *ret = t;
    return 0;
}

void table_release(struct table *t)
{
    hostlist_release(&t->hosts);
}

void report_write(const struct report *r, struct strbuf *out)
{
    struct strbuf message;
    strbuf_init(&message, MESSAGE_MAX_BYTES + 1);
    report_message(r, &message);
    bytes_put_u32(out, (uint32_t)(r->blames + 1));
    bytes_put_u32(out, r->first_rank);
    bytes_put_u32(out, r->n_ranks);
    bytes_put_str(out, strbuf_str(&message));
    strbuf_release(&message);
}

/* Complete lines that can be shown on a terminal, as tail_render makes them. */
static bool tail_is_valid(const char *tail)
{
    size_t n = strlen(tail);
    for (const char *p = tail; *p; p++)
        if (((unsigned char)*p < ' ' && *p != '\t' && *p != '\n') || *p == 0x7f)
            return false;
    return n < TAIL_MAX_BYTES && (n == 0 || tail[n - 1] == '\n');
}

int report_read(const uint8_t *p, size_t n, struct report *ret, struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    char message[MESSAGE_MAX_BYTES + 1];
    struct failure f;
    uint32_t blames = bytes_u32(&r), first_rank = bytes_u32(&r),
             n_ranks = bytes_u32(&r);
    bytes_str(&r, message, sizeof(message));
    int rc = bytes_end(&r, "failure", err);
    if (rc == 0)
        rc = failure_parse(message, &f, err);
    if (rc < 0)
        return rc;
    const char *tail = strchr(message, '\n');
    tail = tail ? tail + 1 : "";
    if (blames > INT32_MAX || n_ranks > INT32_MAX || !tail_is_valid(tail))
        return err_set(err, -EPROTO,
                       "a failure message is malformed (another version?)");
    memset(ret, 0, sizeof(*ret));
    ret->f = f;
    ret->blames = (int32_t)blames - 1;
    ret->first_rank = first_rank;
    ret->n_ranks = n_ranks;
    (void)snprintf(ret->tail, sizeof(ret->tail), "%s", tail);
    return 0;
}

int report_read_new(const uint8_t *p, size_t n, struct report **ret, struct err *err)
{
    AUTOFREE struct report *r = mem_alloc(sizeof(*r));
    int rc = r ? report_read(p, n, r, err)
               : err_set(err, -ENOMEM, "out of memory for a failure report");

    *ret = NULL;
    if (rc < 0)
        return rc;
    *ret = r;
    r = NULL;
    return 0;
}

void failed_write(uint32_t generation, const struct report *r, struct strbuf *out)
{
    bytes_put_u32(out, generation);
    report_write(r, out);
}

int failed_read(const uint8_t *p,
                size_t n,
                uint32_t *ret_generation,
                struct report *ret,
                struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    uint32_t generation = bytes_u32(&r);
    int rc =
        r.is_bad ? bytes_end(&r, "failure", err) : report_read(r.p, r.left, ret, err);
    if (rc == 0)
        *ret_generation = generation;
    return rc;
}

void world_write(const struct job_world *w, struct strbuf *out)
{
    bytes_put_u32(out, w->generation);
    bytes_put_u32(out, w->workers);
}

int world_read(const uint8_t *p, size_t n, struct job_world *ret, struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    struct job_world w = {.generation = bytes_u32(&r)};
    w.workers = bytes_u32(&r);
    int rc = bytes_end(&r, "world", err);
    if (rc == 0)
        *ret = w;
    return rc;
}

void origin_write(const struct origin *o, struct strbuf *out)
{
    bytes_put_u32(out, o->worker);
    bytes_put_u32(out, o->generation);
}

int origin_read(const uint8_t *p, size_t n, struct origin *ret, struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    struct origin o = {.worker = bytes_u32(&r)};
    o.generation = bytes_u32(&r);
    int rc = bytes_end(&r, "origin", err);
    if (rc == 0)
        *ret = o;
    return rc;
}
