/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of agents: an agent starts the agents of its share of hosts by ssh, sends them
 * the same JOB, and forwards their messages to horovodrun unchanged. It only adds LOST
 * for a connection that ends. Called by remote_agent.c. */
#include "runtime/launch/remote_tree.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

static void remote_tree_on_open(void *arg, struct link *l)
{
    struct remote_tree *t = arg;
    CLEANUP(strbuf_release) struct strbuf b = {0};
    strbuf_init(&b, ERRAND_TO_AGENT_MAX_BYTES);
    bytes_put_u32(&b, l->end);
    strbuf_add(&b, strbuf_str(t->job), t->job->n);
    links_send(&t->links, ERRAND_JOB, l->first, &b);
}

static int
remote_tree_on_frame(void *arg, struct link *l, const struct frame *f, struct err *err)
{
    struct remote_tree *t = arg;
    struct bytes_reader r = {.p = f->p, .left = f->n};
    uint32_t host = bytes_u32(&r);
    if (f->type == ERRAND_PING)
        return 0;
    if (host < l->first || host >= l->end)
        return err_set(err, -EPROTO, "its agent sent a message for another host");
    uplink_forward(t->up, f->type, f->p, f->n);
    return 0;
}

static void remote_tree_on_lost(void *arg, struct link *l)
{
    struct remote_tree *t = arg;
    struct errand_lost lost = {.end = l->end};
    CLEANUP(strbuf_release) struct strbuf all = {0};
    (void)snprintf(lost.why, sizeof(lost.why), "%s", l->why);
    strbuf_init(&all, 4096);
    bytes_put_u32(&all, l->first);
    errand_lost_write(&lost, &all);
    uplink_forward(t->up, ERRAND_LOST, strbuf_str(&all), all.n);
}

int remote_tree_start(struct remote_tree *t,
                      const struct token *root,
                      uint32_t first,
                      uint32_t end,
                      struct err *err)
{
    const struct errand *e = t->e;
    struct links_config c = {.ssh = e->ssh,
                             .root = *root,
                             .deadline_ns = UINT64_MAX,
                             .peer_timeout_ns = e->peer_timeout_ms * NS_PER_MS,
                             .signals = t->signals,
                             .guard = t->guard,
                             .env = environ,
                             .on_open = remote_tree_on_open,
                             .on_frame = remote_tree_on_frame,
                             .on_lost = remote_tree_on_lost,
                             .arg = t};
    uint32_t from = 0, to = 0;
    if (end <= first)
        return 0;
    (void)snprintf(c.agent_path, sizeof(c.agent_path), "%s", e->agent_path);
    int rc = links_init(&t->links, &c, err);
    token_wipe(&c.root);
    for (uint32_t j = 0;
         rc == 0 && errand_share(first, end, e->local, e->fanout, j, &from, &to); j++)
        rc = links_add(&t->links, LINK_SSH, e->hosts.v[from].name, from, to, err);
    return rc;
}

void remote_tree_release(struct remote_tree *t)
{
    links_release(&t->links);
}
