/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent of a host sends to horovodrun. A message that cannot be sent is dropped:
 * the next poll detects the lost connection. Output is limited by credit: if the console
 * is slow, the ranks' pipes fill and nothing else waits. Called by remote_agent.c and
 * remote_tree.c. */
#include "runtime/launch/uplink.h"

#include <stdio.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/message.h"
#include "runtime/launch/signals.h"
#include "runtime/wire/bytes.h"

#define UP_HIGH_BYTES (1u << 20) /* queued to be sent; beyond it ranks are not read */

void uplink_open(struct uplink *u, const struct channel *channel)
{
    *u = (struct uplink){.channel = *channel, .is_open = true, .name = "-"};
}

void uplink_close(struct uplink *u)
{
    if (u->is_open)
        channel_release(&u->channel);
    u->is_open = false;
}

void uplink_replace(struct uplink *u, const struct channel *channel)
{
    u->channel = *channel;
    u->is_open = true;
}

void uplink_set_host(struct uplink *u, uint32_t host)
{
    u->host = host;
}

void uplink_begin_job(struct uplink *u, const char *name)
{
    u->name = name;
    u->has_job = true;
    u->credit_bytes = ERRAND_CREDIT_BYTES;
}

void uplink_forward(struct uplink *u, uint8_t type, const void *p, size_t n)
{
    if (u->is_open)
        (void)channel_send(&u->channel, type, p, n, clock_now_ns());
}

void uplink_send(struct uplink *u, enum errand_type type, const struct strbuf *b)
{
    CLEANUP(strbuf_release) struct strbuf all = {0};
    strbuf_init(&all, ERRAND_TO_LAUNCHER_MAX_BYTES);
    bytes_put_u32(&all, u->host);
    if (b)
        strbuf_add(&all, strbuf_str(b), b->n);
    if (strbuf_status(&all) == 0)
        uplink_forward(u, (uint8_t)type, strbuf_str(&all), all.n);
}

void uplink_report(struct uplink *u, const struct report *r)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    strbuf_init(&b, ERRAND_TO_LAUNCHER_MAX_BYTES);
    report_write(r, &b);
    uplink_send(u, ERRAND_FAILED, &b);
}

void uplink_fail(struct uplink *u, int code, int sig, const char *why)
{
    AUTOFREE struct report *r = mem_zalloc(sizeof(*r));
    if (!r)
        return;
    report_init(r, u->name, code, clock_wall_us());
    r->f.signal = sig;
    if (u->has_job)
        (void)snprintf(r->f.why, sizeof(r->f.why), "host %.60s: %.160s", u->name, why);
    else /* horovodrun adds the host's name */
        (void)snprintf(r->f.why, sizeof(r->f.why), "%.200s", why);
    for (char *p = r->f.why; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = '?';
    uplink_report(u, r);
}

void uplink_fail_signal(struct uplink *u, int sig)
{
    char why[100];
    (void)snprintf(why, sizeof(why), "its hvd-agent received %s", signal_name(sig));
    uplink_fail(u, 0, sig, why);
}

void uplink_note(struct uplink *u, const char *text)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    strbuf_init(&b, UPLINK_NOTE_MAX_BYTES + 4);
    bytes_put_str(&b, text);
    uplink_send(u, ERRAND_NOTE, &b);
}

void uplink_put_output(void *arg, uint32_t rank, int which, const char *p, size_t n)
{
    struct uplink *u = arg;
    CLEANUP(strbuf_release) struct strbuf b = {0};
    strbuf_init(&b, ERRAND_TO_LAUNCHER_MAX_BYTES);
    bytes_put_u32(&b, rank);
    bytes_put_u32(&b, (uint32_t)which);
    strbuf_add(&b, p, n);
    uplink_send(u, ERRAND_OUTPUT, &b);
    u->credit_bytes -= (int64_t)n;
}

bool uplink_output_is_held(const void *arg)
{
    const struct uplink *u = arg;
    return u->is_open
           && (u->credit_bytes <= 0 || frame_unsent(&u->channel.conn) > UP_HIGH_BYTES);
}

void uplink_add_credit(struct uplink *u, uint32_t n_bytes)
{
    if (u->credit_bytes < (int64_t)1 << 40)
        u->credit_bytes += n_bytes;
}
