/* SPDX-License-Identifier: Apache-2.0 */
/* The wire form of timeline messages. Little endian: "'T' version", the fields of the
 * message and, in an up message, events until its end:
 *
 *   down   u8 order, u64 sent_ns
 *   up     u8 is_last, u64 sent_ns, u64 least_down_ns, u64 n_dropped, event*
 *   event  u8 kind, u8 coll, u8 activity, u8 dtype, u32 rank, u64 ns, u64 bytes, text
 *
 * Readers check everything. Called by observe/timeline.c. */
#include "runtime/core/trace.h"

#include <errno.h>
#include <inttypes.h>

enum { TRACE_WIRE_MAGIC = 'T', TRACE_WIRE_VERSION = 1 };

bool trace_is_message(const void *p, size_t n)
{
    return n > 0 && *(const uint8_t *)p == TRACE_WIRE_MAGIC;
}

void trace_write_down(const struct trace_down *m, struct strbuf *out)
{
    bytes_put(out, TRACE_WIRE_MAGIC, 1);
    bytes_put(out, TRACE_WIRE_VERSION, 1);
    bytes_put(out, m->order, 1);
    bytes_put(out, m->sent_ns, 8);
}

void trace_write_up(const struct trace_up *m, struct strbuf *out)
{
    bytes_put(out, TRACE_WIRE_MAGIC, 1);
    bytes_put(out, TRACE_WIRE_VERSION, 1);
    bytes_put(out, m->is_last, 1);
    bytes_put(out, m->sent_ns, 8);
    bytes_put(out, (uint64_t)m->least_down_ns, 8);
    bytes_put(out, m->n_dropped, 8);
}

void trace_write_event(const struct trace_event *ev, struct strbuf *out)
{
    bytes_put(out, ev->kind, 1);
    bytes_put(out, ev->coll, 1);
    bytes_put(out, ev->activity, 1);
    bytes_put(out, ev->dtype, 1);
    bytes_put(out, ev->rank, 4);
    bytes_put(out, ev->ns, 8);
    bytes_put(out, ev->bytes, 8);
    bytes_put_name(out, ev->name, sizeof(ev->name));
}

static int report_malformed(struct err *err)
{
    return err_set(err, -EBADMSG, "timeline message: malformed");
}

static int trace_read_version(struct bytes_reader *in, struct err *err)
{
    uint64_t magic, version;

    if (!bytes_get(in, 1, &magic) || magic != TRACE_WIRE_MAGIC
        || !bytes_get(in, 1, &version))
        return report_malformed(err);
    if (version != TRACE_WIRE_VERSION)
        return err_set(err, -EBADMSG,
                       "timeline message: version %" PRIu64 ", this is %d", version,
                       TRACE_WIRE_VERSION);
    return 0;
}

int trace_read_down(struct bytes_reader *in, struct trace_down *ret, struct err *err)
{
    uint64_t order, ns;
    int rc = trace_read_version(in, err);

    if (rc < 0)
        return rc;
    if (!bytes_get(in, 1, &order) || order < TRACE_ORDER_CLOCK
        || order >= TRACE_ORDER_END || !bytes_get(in, 8, &ns) || in->left > 0)
        return report_malformed(err);
    *ret = (struct trace_down){(enum trace_order)order, ns};
    return 0;
}

int trace_read_up(struct bytes_reader *in, struct trace_up *ret, struct err *err)
{
    uint64_t is_last, ns, down, dropped;
    int rc = trace_read_version(in, err);

    if (rc < 0)
        return rc;
    if (!bytes_get(in, 1, &is_last) || is_last > 1 || !bytes_get(in, 8, &ns)
        || !bytes_get(in, 8, &down) || !bytes_get(in, 8, &dropped))
        return report_malformed(err);
    *ret = (struct trace_up){ns, (int64_t)down, dropped, is_last == 1};
    return 0;
}

int trace_read_event(struct bytes_reader *in, struct trace_event *ret, struct err *err)
{
    uint64_t kind, coll, activity, dtype, rank, ns, bytes;

    if (in->left == 0)
        return 0;
    if (!bytes_get(in, 1, &kind) || !bytes_get(in, 1, &coll)
        || !bytes_get(in, 1, &activity) || !bytes_get(in, 1, &dtype)
        || !bytes_get(in, 4, &rank) || !bytes_get(in, 8, &ns)
        || !bytes_get(in, 8, &bytes) || kind >= TRACE_KIND_COUNT || coll >= COLL_COUNT
        || activity >= TRACE_ACTIVITY_COUNT || dtype >= DT_COUNT
        || !bytes_get_name(in, ret->name, sizeof(ret->name)))
        return report_malformed(err);
    ret->kind = (uint8_t)kind;
    ret->coll = (uint8_t)coll;
    ret->activity = (uint8_t)activity;
    ret->dtype = (uint8_t)dtype;
    ret->rank = (uint32_t)rank;
    ret->ns = ns;
    ret->bytes = bytes;
    return 1;
}

void trace_clock_add(struct trace_clock *c, int64_t down_ns, int64_t up_ns)
{
    if (c->n == 0 || down_ns < c->least_down_ns)
        c->least_down_ns = down_ns;
    if (c->n == 0 || up_ns < c->least_up_ns)
        c->least_up_ns = up_ns;
    c->n++;
}

/* down = delay + ahead, up = delay - ahead */
int64_t trace_clock_ahead_ns(const struct trace_clock *c)
{
    return c->least_down_ns / 2 - c->least_up_ns / 2;
}
