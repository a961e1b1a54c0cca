/* SPDX-License-Identifier: Apache-2.0 */
/* Writers append to a strbuf; readers check every length against what is left and
 * refuse bytes that remain. Host names are refused when they hold what a hostfile or a
 * log line cannot. Called by hub.c and agent.c; fuzzed by tests/fuzz. */
#include "runtime/launch/core/message.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void put_u32(struct strbuf *out, uint32_t v)
{
    uint8_t b[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8),
                    (uint8_t)v};
    strbuf_add(out, b, sizeof(b));
}

static void put_str(struct strbuf *out, const char *s)
{
    size_t n = strlen(s);
    put_u32(out, (uint32_t)n);
    strbuf_add(out, s, n);
}

struct reader {
    const uint8_t *p;
    size_t left;
    int is_bad;
};

static uint32_t get_u32(struct reader *r)
{
    if (r->left < 4) {
        r->is_bad = 1;
        r->left = 0;
        return 0;
    }
    uint32_t v = (uint32_t)r->p[0] << 24 | (uint32_t)r->p[1] << 16
                 | (uint32_t)r->p[2] << 8 | r->p[3];
    r->p += 4;
    r->left -= 4;
    return v;
}

static void get_str(struct reader *r, char *ret, size_t size_bytes)
{
    uint32_t n = get_u32(r);
    ret[0] = '\0';
    if (r->is_bad || n > r->left || n >= size_bytes || memchr(r->p, '\0', n)) {
        r->is_bad = 1;
        return;
    }
    memcpy(ret, r->p, n);
    ret[n] = '\0';
    r->p += n;
    r->left -= n;
}

static void get_name(struct reader *r, char *ret, size_t size_bytes)
{
    get_str(r, ret, size_bytes);
    if (!*ret)
        r->is_bad = 1;
    for (const char *p = ret; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-._:%", *p))
            r->is_bad = 1;
}

static int reader_end(const struct reader *r, const char *what, struct err *err)
{
    if (r->is_bad || r->left)
        return err_set(err, -EPROTO, "a %s message is malformed (another version?)",
                       what);
    return 0;
}

void hello_write(const struct hello *h, struct strbuf *out)
{
    put_u32(out, h->worker);
    put_u32(out, h->workers);
    put_u32(out, h->slots);
    put_u32(out, h->np);
    put_str(out, h->host);
}

int hello_read(const uint8_t *p, size_t n, struct hello *ret, struct err *err)
{
    struct reader r = {.p = p, .left = n};
    struct hello h = {0};
    h.worker = get_u32(&r);
    h.workers = get_u32(&r);
    h.slots = get_u32(&r);
    h.np = get_u32(&r);
    get_name(&r, h.host, sizeof(h.host));
    int rc = reader_end(&r, "hello", err);
    if (rc == 0)
        *ret = h;
    return rc;
}

void table_write(const struct table *t, struct strbuf *out)
{
    put_u32(out, t->rdv_port);
    put_u32(out, t->master_port);
    put_str(out, t->address);
    put_u32(out, (uint32_t)t->hosts.n);
    for (size_t i = 0; i < t->hosts.n; i++) {
        put_str(out, t->hosts.v[i].name);
        put_u32(out, t->hosts.v[i].slots);
    }
}

int table_read(const uint8_t *p, size_t n, struct table *ret, struct err *err)
{
    struct reader r = {.p = p, .left = n};
    struct table t = {0};
    int rc = 0;
    hostlist_init(&t.hosts);
    uint32_t rdv_port = get_u32(&r), master_port = get_u32(&r);
    get_name(&r, t.address, sizeof(t.address));
    uint32_t hosts = get_u32(&r);
    if (rdv_port > UINT16_MAX || master_port > UINT16_MAX || hosts > HOSTLIST_MAX_HOSTS)
        r.is_bad = 1;
    for (uint32_t i = 0; i < hosts && !r.is_bad && rc == 0; i++) {
        char name[HOST_NAME_MAX_BYTES];
        get_name(&r, name, sizeof(name));
        uint32_t slots = get_u32(&r);
        if (!r.is_bad)
            rc = hostlist_append(&t.hosts, name, slots, err);
    }
    if (rc == 0)
        rc = reader_end(&r, "host table", err);
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
    put_u32(out, (uint32_t)(r->blames + 1));
    put_u32(out, r->first_rank);
    put_u32(out, r->n_ranks);
    put_str(out, strbuf_str(&message));
    strbuf_release(&message);
}

int report_read(const uint8_t *p, size_t n, struct report *ret, struct err *err)
{
    struct reader r = {.p = p, .left = n};
    char message[MESSAGE_MAX_BYTES + 1];
    uint32_t blames = get_u32(&r), first_rank = get_u32(&r), n_ranks = get_u32(&r);
    get_str(&r, message, sizeof(message));
    int rc = reader_end(&r, "failure", err);
    if (rc < 0)
        return rc;
    if (blames > INT32_MAX || n_ranks > INT32_MAX)
        return err_set(err, -EPROTO,
                       "a failure message is malformed (another version?)");
    memset(ret, 0, sizeof(*ret));
    rc = failure_parse(message, &ret->f, err);
    if (rc < 0)
        return rc;
    ret->blames = (int32_t)blames - 1;
    ret->first_rank = first_rank;
    ret->n_ranks = n_ranks;
    const char *tail = strchr(message, '\n');
    (void)snprintf(ret->tail, sizeof(ret->tail), "%.*s", (int)sizeof(ret->tail) - 1,
                   tail ? tail + 1 : "");
    return 0;
}
