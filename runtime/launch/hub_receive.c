/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from agents: each one is decoded and passed to meet.c, which decides.
 * Messages of an earlier world are dropped there or here. Called by hub.c, in the hub's
 * thread. */
#include <errno.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/hub_state.h"
#include "runtime/wire/bytes.h"

/* Handles the HELLO of an agent of another world. */
static void
hub_answer_other_world(struct hub *h, struct conn *c, const struct hello *hello, int rc)
{
    log_info(rc == -EAGAIN ? "worker of a newer world connected"
                           : "worker of an older world connected",
             "worker=%u generation=%u address=%s present_generation=%u", hello->worker,
             hello->generation, c->address, h->meet.generation);
    if (rc == -ESTALE && meet_sends_world(&h->meet, hello->generation))
        hub_send_world(h, c);
}

static int
hub_take_hello(struct hub *h, struct conn *c, const struct frame *f, struct err *err)
{
    struct hello hello;
    int rc = hello_read(f->p, f->n, &hello, err);
    if (rc < 0)
        return rc;
    if (c->is_here && c->worker == hello.worker
        && hello.generation == h->meet.generation)
        return 0; /* it received this WORLD twice */
    rc = meet_hello(&h->meet, &hello, c->address, err);
    if (rc == -EAGAIN || rc == -ESTALE) {
        hub_answer_other_world(h, c, &hello, rc);
        return 0;
    }
    if (rc < 0) {
        hub_refuse(c, err->text);
        return 0; /* it closes after it has read that */
    }
    for (size_t i = 0; i < h->n; i++)
        if (h->conns[i] != c && h->conns[i]->worker == hello.worker) {
            h->conns[i]->worker = -1; /* its predecessor: no failure */
            h->conns[i]->is_here = false;
            hub_refuse(h->conns[i], "replaced by another agent of this worker");
        }
    c->worker = hello.worker;
    c->is_here = true;
    if (h->meet.state == MEET_STOPPED) {
        hub_send_stop_to(h, c);
        return 0;
    }
    log_info("worker connected", "worker=%u host=%s address=%s present=%u of=%u",
             hello.worker, hello.host, c->address, meet_present(&h->meet),
             h->meet.workers);
    return 0;
}

static int
hub_take_failed(struct hub *h, struct conn *c, const struct frame *f, struct err *err)
{
    uint32_t generation;
    AUTOFREE struct report *r = mem_alloc(sizeof(*r));
    if (!r)
        return err_set(err, -ENOMEM, "out of memory for a failure report");
    int rc = failed_read(f->p, f->n, &generation, r, err);
    if (rc < 0 || c->is_refused || !meet_counts(&h->meet, generation))
        return rc;
    h->n_broken += c->worker < 0;
    meet_failed(&h->meet, r, clock_now_ns());
    return 0;
}

static int hub_take_done(struct hub *h, const struct frame *f, struct err *err)
{
    struct origin o;
    int rc = origin_read(f->p, f->n, &o, err);
    if (rc == 0)
        meet_done(&h->meet, o.worker, o.generation);
    return rc;
}

/* Before the start the answer is to close the connection. The agent then cannot be part
 * of a world that has started. */
static int
hub_take_leaving(struct hub *h, struct conn *c, const struct frame *f, struct err *err)
{
    struct origin o;
    int rc = origin_read(f->p, f->n, &o, err);
    if (rc < 0)
        return rc;
    if (c->worker >= 0 && meet_may_leave(&h->meet, (uint32_t)c->worker))
        return err_set(err, -ESHUTDOWN, "it received a signal before the start");
    meet_leaving(&h->meet, o.worker, clock_now_ns());
    return 0;
}

/* Handles a new world in an agent's file. If the agent waits for the current world, it
 * is sent that world. */
static int
hub_take_world(struct hub *h, struct conn *c, const struct frame *f, struct err *err)
{
    struct job_world w;
    struct err why = ERR_INIT;
    int rc = world_read(f->p, f->n, &w, err);
    if (rc < 0)
        return rc;
    if (meet_take_world(&h->meet, &w, &why) < 0)
        log_warn("world ignored", "address=%s cause=\"%s\"", c->address, why.text);
    else if (w.generation <= h->meet.generation && !c->is_here
             && meet_sends_world(&h->meet, w.generation))
        hub_send_world(h, c);
    return 0;
}

/* LIVE, STALL and FOUND. */
static int hub_take_live(struct hub *h, const struct frame *f, struct err *err)
{
    struct bytes_reader r = {.p = f->p, .left = f->n};
    uint32_t generation = bytes_u32(&r);
    uint32_t number = f->type == MESSAGE_FOUND ? bytes_u32(&r) : 0;
    if (r.is_bad)
        return err_set(err, -EPROTO, "message %u is cut", f->type);
    if (generation != h->meet.generation)
        return 0;
    live_lead_take_part(&h->live,
                        f->type == MESSAGE_LIVE    ? LIVE_PART_RECORD
                        : f->type == MESSAGE_STALL ? LIVE_PART_STALL
                                                   : LIVE_PART_FINDING,
                        number, r.p, r.left);
    return 0;
}

int hub_take_frame(struct hub *h,
                   struct conn *c,
                   const struct frame *f,
                   struct err *err)
{
    switch (f->type) {
    case MESSAGE_HELLO:
        return hub_take_hello(h, c, f, err);
    case MESSAGE_FAILED:
        return hub_take_failed(h, c, f, err);
    case MESSAGE_DONE:
        return hub_take_done(h, f, err);
    case MESSAGE_WORLD:
        return hub_take_world(h, c, f, err);
    case MESSAGE_LEAVING:
        return hub_take_leaving(h, c, f, err);
    case MESSAGE_LIVE:
    case MESSAGE_STALL:
    case MESSAGE_FOUND:
        return hub_take_live(h, f, err);
    case MESSAGE_PING:
        return 0;
    }
    return err_set(err, -EPROTO, "message %u is not for the hub", f->type);
}
