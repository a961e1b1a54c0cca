/* SPDX-License-Identifier: Apache-2.0 */
/* What members of a cpu communicator do: batches and agreements, each to its end. */
#ifndef TESTS_UNIT_CPU_BATCH_H
#define TESTS_UNIT_CPU_BATCH_H

#include <errno.h>
#include <sched.h>

#include "runtime/backend/backend.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

static inline int batch_run(struct backend *c, struct batch *b, struct err *err)
{
    uint64_t ticket = 0, done = 0;
    if (b->prescale == 0)
        b->prescale = 1;
    if (b->postscale == 0)
        b->postscale = 1;
    int rc = c->ops->post(c, b, &ticket, err);
    if (rc < 0)
        return rc;
    rc = c->ops->poll(c, &done, err);
    while (rc == 0 && done < ticket && b->coll == COLL_SENDRECV) {
        rc = c->ops->await(&c, 1, err);
        rc = rc < 0 ? rc : c->ops->poll(c, &done, err);
    }
    return rc < 0 ? rc : done >= ticket ? 0 : -EINPROGRESS;
}

/* Sums n elements of all members, in place. */
static inline int
sum_run(struct backend *c, enum dtype t, void *x, uint64_t n, struct err *err)
{
    struct batch_item it = {.in = x, .out = x, .count = n};
    struct batch b = {
        .coll = COLL_ALLREDUCE, .dtype = t, .op = OP_SUM, .items = &it, .n_items = 1};
    return batch_run(c, &b, err);
}

static inline int barrier_run(struct backend *c, struct err *err)
{
    struct batch b = {.coll = COLL_BARRIER};
    return batch_run(c, &b, err);
}

/* Polls, and unless doze_ns is 0 dozes in turn, until the agreement is done. */
static inline int agree_until_done(struct backend *b,
                                   uint64_t *ret,
                                   uint64_t doze_ns,
                                   uint64_t deadline_ns,
                                   struct err *err)
{
    bool is_done = false;
    for (uint32_t i = 0; clock_now_ns() < deadline_ns; i++) {
        int rc = b->ops->agree_poll(b, ret, &is_done, err);
        if (rc < 0 || is_done)
            return rc;
        if (doze_ns > 0 && i % 4 == 3)
            b->ops->doze(b, doze_ns);
        else
            sched_yield();
    }
    return err_set(err, -ETIMEDOUT, "no agreement before the deadline");
}

#endif
