/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to agents, and the rendezvous of the ranks. A message to a lost agent is
 * dropped: the next poll detects the loss. Called by hub.c and hub_receive.c, in the
 * hub's thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/hub_state.h"
#include "runtime/wire/bytes.h"

struct auth_id hub_id(const struct hub *h, uint32_t generation)
{
    return (struct auth_id){
        .token = &h->token, .job_id = h->env.job_id, .generation = generation};
}

void hub_refuse(struct conn *c, const char *sentence)
{
    c->is_refused = true;
    (void)channel_send(&c->channel, MESSAGE_REFUSED, sentence, strlen(sentence),
                       clock_now_ns());
    log_warn("worker refused", "address=%s cause=\"%s\"", c->address, sentence);
}

void hub_send_world(struct hub *h, struct conn *c)
{
    CLEANUP(strbuf_release) struct strbuf payload = {0};
    struct job_world w = {h->meet.generation, h->meet.workers};
    strbuf_init(&payload, MESSAGE_TO_HUB_MAX_BYTES);
    world_write(&w, &payload);
    (void)channel_send(&c->channel, MESSAGE_WORLD, strbuf_str(&payload), payload.n,
                       clock_now_ns()); /* a lost one shows at its next poll */
}

void hub_send_stop_to(struct hub *h, struct conn *c)
{
    struct strbuf payload;
    strbuf_init(&payload, MESSAGE_TO_AGENT_MAX_BYTES);
    report_write(meet_first(&h->meet), &payload);
    (void)channel_send(&c->channel, MESSAGE_STOP, strbuf_str(&payload), payload.n,
                       clock_now_ns()); /* a lost one shows at its next poll */
    strbuf_release(&payload);
}

void hub_send_stop(struct hub *h)
{
    for (size_t i = 0; i < h->n; i++)
        if (!h->conns[i]->is_closing)
            hub_send_stop_to(h, h->conns[i]);
}

void hub_send_finish(struct hub *h)
{
    for (size_t i = 0; i < h->n; i++)
        if (!h->conns[i]->is_closing)
            (void)channel_send(&h->conns[i]->channel, MESSAGE_FINISH, NULL, 0,
                               clock_now_ns());
}

void hub_send_examine(void *arg, uint32_t number)
{
    struct hub *h = arg;
    uint8_t payload[8];
    bytes_store_u32(payload, h->meet.generation);
    bytes_store_u32(payload + 4, number);
    for (size_t i = 0; i < h->n; i++)
        if (h->conns[i]->is_here && !h->conns[i]->is_closing)
            (void)channel_send(&h->conns[i]->channel, MESSAGE_EXAMINE, payload,
                               sizeof(payload), clock_now_ns());
}

int hub_start_rendezvous(struct hub *h, struct err *err)
{
    struct auth_id id = hub_id(h, h->meet.generation);
    int fd = -1, rc = tcp_listen("::", 0, &fd, &h->rdv_port, err);
    if (rc < 0)
        return rc;
    rc = rdv_server_start(fd, &id, meet_ranks(&h->meet), rdv_log_waiting, &h->server,
                          err);
    if (rc < 0) {
        fd_close(&fd);
        return rc;
    }
    fd_close(&h->master_fd); /* each world has another port */
    return tcp_hold(&h->master_fd, &h->master_port, err);
}

int hub_send_table(struct hub *h, struct err *err)
{
    struct strbuf payload;
    struct table t = {.rdv_port = h->rdv_port, .master_port = h->master_port};
    (void)snprintf(t.address, sizeof(t.address), "%s", h->own_address);
    (void)snprintf(h->meet.members[0].address, sizeof(h->meet.members[0].address), "%s",
                   h->own_address);
    hostlist_init(&t.hosts);
    strbuf_init(&payload, MESSAGE_TO_AGENT_MAX_BYTES);
    int rc = meet_hosts(&h->meet, &t.hosts, err);
    if (rc == 0) {
        table_write(&t, &payload);
        rc = strbuf_status(&payload) < 0
                 ? err_set(err, -ENOMEM, "out of memory for the host table")
                 : 0;
    }
    for (size_t i = 0; rc == 0 && i < h->n; i++)
        if (h->conns[i]->is_here && !h->conns[i]->is_closing)
            (void)channel_send(&h->conns[i]->channel, MESSAGE_TABLE,
                               strbuf_str(&payload), payload.n,
                               clock_now_ns()); /* a lost one shows at its next poll */
    table_release(&t);
    strbuf_release(&payload);
    return rc;
}
