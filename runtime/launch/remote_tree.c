/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of agents: an agent starts the agents of its share of hosts by ssh, sends them
 * the same JOB, and forwards their messages to horovodrun unchanged. It only adds LOST
 * for a connection that ends. Called by remote_agent.c. */
#include "runtime/launch/remote_agent_state.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

static void remote_tree_on_open(void *arg, struct link *l)
{
    struct remote_agent *a = arg;
    CLEANUP(strbuf_release) struct strbuf b = {0};
    strbuf_init(&b, ERRAND_TO_AGENT_MAX_BYTES);
    bytes_put_u32(&b, l->end);
    strbuf_add(&b, strbuf_str(&a->blob), a->blob.n);
    links_send(&a->links, ERRAND_JOB, l->first, &b);
}

static int
remote_tree_on_frame(void *arg, struct link *l, const struct frame *f, struct err *err)
{
    struct remote_agent *a = arg;
    struct bytes_reader r = {.p = f->p, .left = f->n};
    uint32_t host = bytes_u32(&r);
    if (f->type == ERRAND_PING)
        return 0;
    if (host < l->first || host >= l->end)
        return err_set(err, -EPROTO, "its agent sent a message for another host");
    if (a->is_up)
        (void)channel_send(&a->up, f->type, f->p, f->n, clock_now_ns());
    return 0;
}

static void remote_tree_on_lost(void *arg, struct link *l)
{
    struct remote_agent *a = arg;
    struct errand_lost lost = {.end = l->end};
    CLEANUP(strbuf_release) struct strbuf all = {0};
    if (!a->is_up)
        return;
    (void)snprintf(lost.why, sizeof(lost.why), "%s", l->why);
    strbuf_init(&all, 4096);
    bytes_put_u32(&all, l->first);
    errand_lost_write(&lost, &all);
    (void)channel_send(&a->up, ERRAND_LOST, strbuf_str(&all), all.n, clock_now_ns());
}

int remote_tree_start(struct remote_agent *a, struct err *err)
{
    struct links_config c = {.ssh = a->e.ssh,
                             .root = a->root,
                             .deadline_ns = UINT64_MAX,
                             .peer_timeout_ns = a->e.peer_timeout_ms * NS_PER_MS,
                             .signals = a->signals,
                             .guard = &a->guard,
                             .env = environ,
                             .on_open = remote_tree_on_open,
                             .on_frame = remote_tree_on_frame,
                             .on_lost = remote_tree_on_lost,
                             .arg = a};
    uint32_t first = 0, end = 0;
    if (a->end <= a->host + 1)
        return 0;
    (void)snprintf(c.agent_path, sizeof(c.agent_path), "%s", a->e.agent_path);
    int rc = links_init(&a->links, &c, err);
    for (uint32_t j = 0;
         rc == 0
         && errand_share(a->host + 1, a->end, a->e.local, a->e.fanout, j, &first, &end);
         j++)
        rc = links_add(&a->links, LINK_SSH, a->e.hosts.v[first].name, first, end, err);
    return rc;
}
