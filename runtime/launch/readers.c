/* SPDX-License-Identifier: Apache-2.0 */
/* A reader sends one query, receives the answer and closes. If it does not close, the
 * deadline does. Called by hub.c, in the hub's thread. */
#include "runtime/launch/readers.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

#define QUERY_BYTES 10
#define AGAIN_NS    (100 * NS_PER_MS) /* until an answer is asked for again */

void readers_admit(struct readers *r, const struct admitted *m, uint64_t now_ns)
{
    struct conn *c = conn_new(m, QUERY_BYTES);

    if (c && r->n == READERS_MAX) {
        log_debug("reader refused, too many are connected", "address=%s", m->address);
        conn_free(c);
        return;
    }
    if (c) /* else out of memory: it asks again */
        r->v[r->n++] =
            (struct reader){.conn = c, .deadline_ns = now_ns + READER_TIME_NS};
}

void readers_fill_fds(const struct readers *r, struct pollfd *fds)
{
    for (size_t i = 0; i < READERS_MAX; i++) {
        fds[i] = (struct pollfd){.fd = -1};
        if (i < r->n)
            fds[i] = (struct pollfd){.fd = r->v[i].conn->channel.conn.fd,
                                     .events = channel_events(&r->v[i].conn->channel)};
    }
}

/* Sends the status and the bytes. -EINPROGRESS: there is no answer yet. */
static int
reader_answer(struct reader *x, reader_answer_fn answer, void *arg, uint64_t now_ns)
{
    CLEANUP(strbuf_release) struct strbuf out = {0}, body = {0};
    struct err err = ERR_INIT;
    int rc;

    strbuf_init(&out, QUERY_ANSWER_MAX_BYTES);
    strbuf_init(&body, QUERY_ANSWER_MAX_BYTES - 4);
    rc = answer(arg, x, &body, &err);
    if (rc == -EINPROGRESS)
        return rc;
    if (rc == 0 && strbuf_status(&body) < 0)
        rc = err_set(&err, strbuf_status(&body), "the answer is too large");
    bytes_put_u32(&out, (uint32_t)-rc);
    if (rc < 0)
        strbuf_puts(&out, err.text);
    else
        strbuf_add(&out, strbuf_str(&body), body.n);
    x->is_answered = true;
    return channel_send(&x->conn->channel, LIVE_MESSAGE_ANSWER, strbuf_str(&out), out.n,
                        now_ns);
}

static int reader_take_query(struct reader *x, uint64_t now_ns)
{
    struct err err = ERR_INIT;
    struct frame f;
    int rc = channel_next(&x->conn->channel, now_ns, &f, &err);

    if (rc <= 0)
        return rc < 0 ? rc : x->conn->channel.lost;
    if (x->has_query || f.type != LIVE_MESSAGE_QUERY || f.n < QUERY_BYTES)
        return -EPROTO;
    x->has_query = true;
    x->query = (struct live_query){
        .kind = (enum live_query_kind)bytes_load(f.p, 2),
        .first = bytes_load_u32(f.p + 2),
        .max = bytes_load_u32(f.p + 6),
    };
    return 0;
}

/* Negative: the connection is over. */
static int
reader_serve(struct reader *x, reader_answer_fn answer, void *arg, uint64_t now_ns)
{
    int rc;

    if (now_ns >= x->deadline_ns)
        return -ETIMEDOUT;
    channel_serve(&x->conn->channel);
    rc = reader_take_query(x, now_ns);
    if (rc == 0 && x->has_query && !x->is_answered)
        rc = reader_answer(x, answer, arg, now_ns);
    return rc == -EINPROGRESS ? 0 : rc;
}

void readers_serve(struct readers *r,
                   reader_answer_fn answer,
                   void *arg,
                   uint64_t now_ns)
{
    size_t kept = 0;

    for (size_t i = 0; i < r->n; i++) {
        if (reader_serve(&r->v[i], answer, arg, now_ns) < 0)
            conn_free(r->v[i].conn);
        else
            r->v[kept++] = r->v[i];
    }
    r->n = kept;
}

uint64_t readers_next_ns(const struct readers *r)
{
    uint64_t next = UINT64_MAX;

    for (size_t i = 0; i < r->n; i++) {
        const struct reader *x = &r->v[i];

        next = earlier_ns(next, x->deadline_ns);
        if (x->has_query && !x->is_answered)
            next = earlier_ns(next, clock_now_ns() + AGAIN_NS);
    }
    return next;
}

void readers_close(struct readers *r)
{
    for (size_t i = 0; i < r->n; i++)
        conn_free(r->v[i].conn);
    r->n = 0;
}
