/* SPDX-License-Identifier: Apache-2.0 */
/* A message names a host, which must be one of the link's: an agent forwards the messages
 * of the agents that it has started. link.c has checked that a frame has the four bytes
 * of the host. Called by remote.c and
 * elastic_job.c. */
#include "runtime/launch/remote_receive.h"

#include <errno.h>
#include <stdio.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/message.h"
#include "runtime/wire/bytes.h"

int remote_receive_ready(const struct link *l,
                         const struct frame *f,
                         struct errand_ready *ret,
                         struct err *err)
{
    int rc = errand_ready_read(f->p + 4, f->n - 4, ret, err);
    if (rc == 0 && l->kind == LINK_SERVE) {
        int fd = l->channel.conn.fd;
        (void)tcp_peer_addr(fd, ret->own, sizeof(ret->own));
        (void)tcp_local_addr(fd, ret->theirs, sizeof(ret->theirs));
    }
    return rc;
}

static int receive_ready(struct remote_hosts *h,
                         const struct link *l,
                         uint32_t host,
                         const struct frame *f,
                         struct err *err)
{
    struct errand_ready ready;
    int rc = remote_receive_ready(l, f, &ready, err);
    if (rc < 0)
        return rc;
    /* behind an agent in between: the host sees that one, not us */
    if (l->kind != LINK_SERVE && host != l->first)
        (void)snprintf(ready.theirs, sizeof(ready.theirs), "%s",
                       h->v[l->first].ready.theirs);
    remote_hosts_set_ready(h, host, &ready);
    return 0;
}

static int receive_failed(struct remote_hosts *h,
                          uint32_t host,
                          const struct frame *f,
                          struct err *err)
{
    AUTOFREE struct report *report = NULL;
    int rc = report_read_new(f->p + 4, f->n - 4, &report, err);
    if (rc == 0)
        remote_hosts_report(h, host, report);
    return rc;
}

static int receive_lost(struct remote_hosts *h,
                        const struct link *l,
                        uint32_t host,
                        const struct frame *f,
                        struct err *err)
{
    struct errand_lost lost;
    int rc = errand_lost_read(f->p + 4, f->n - 4, &lost, err);
    if (rc == 0 && (lost.end <= host || lost.end > l->end))
        rc = err_set(err, -EPROTO, "a loss message is malformed");
    if (rc == 0)
        remote_hosts_lose(h, host, lost.end, lost.why);
    return rc;
}

void remote_receive_live(struct live_lead *lead, struct bytes_reader *b)
{
    uint32_t part = bytes_u32(b), number = bytes_u32(b);
    if (!b->is_bad && part <= LIVE_PART_FINDING)
        live_lead_take_part(lead, (enum live_part)part, number, b->p, b->left);
}

int remote_receive(struct remote_hosts *h,
                   struct remote_output *o,
                   struct live_lead *lead,
                   const struct link *l,
                   const struct frame *f,
                   struct err *err)
{
    struct bytes_reader b = {.p = f->p, .left = f->n};
    uint32_t host = bytes_u32(&b);
    if (f->type == ERRAND_PING)
        return 0;
    if (host < l->first || host >= l->end)
        return err_set(err, -EPROTO, "its agent sent a message for another host");
    switch ((enum errand_type)f->type) {
    case ERRAND_READY:
        return receive_ready(h, l, host, f, err);
    case ERRAND_OUTPUT:
        return remote_output_take(o, host, &h->v[host], f->p + 4, f->n - 4, err);
    case ERRAND_FAILED:
        return receive_failed(h, host, f, err);
    case ERRAND_ENDED: /* of all ranks, whatever they do */
        for (uint32_t i = 0; i < h->list->n; i++)
            meet_done(&h->meet, i, 0);
        return 0;
    case ERRAND_DONE:
        remote_output_end(o, &h->v[host]);
        meet_done(&h->meet, host, 0);
        return 0;
    case ERRAND_LOST:
        return receive_lost(h, l, host, f, err);
    case ERRAND_NOTE:
        remote_output_note(o, h->list->v[host].name, f->p + 4, f->n - 4);
        return 0;
    case ERRAND_LIVE:
        remote_receive_live(lead, &b);
        return 0;
    case ERRAND_EXAMINE:
    case ERRAND_PING:
    case ERRAND_JOB:
    case ERRAND_START:
    case ERRAND_SIGNAL:
    case ERRAND_CREDIT:
    case ERRAND_STOP:
    case ERRAND_FINISH:
    case ERRAND_SPAWN:
    case ERRAND_KILL:
    case ERRAND_MEMBER:
    case ERRAND_EXITED:
    case ERRAND_HAS:
    case ERRAND_LEAVING:
    case ERRAND_RETIRE:
        break;
    }
    return err_set(err, -EPROTO, "message %u is not for horovodrun", f->type);
}
