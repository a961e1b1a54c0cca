/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of one coordinator share: facts of the world, the operations, and three
 * services. The parts are seat (which thread works), talk (messages with rank 0), carry
 * (batches), flight (batches on a GPU) and step (one round of all of them). Each has its
 * own struct and header; the coordinator (coordinator.h) owns them all. */
#ifndef RUNTIME_ENGINE_ENGINE_H
#define RUNTIME_ENGINE_ENGINE_H

#include "runtime/backend/backend.h"
#include "runtime/control/control.h"
#include "runtime/core/lifecycle.h"
#include "runtime/engine/device.h"
#include "runtime/engine/region.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/engine/transfers.h"
#include "runtime/observe/autotune.h"
#include "runtime/observe/observe.h"
#include "runtime/world/sets.h"
#include "runtime/world/settings.h"

struct engine_hooks { /* called in the seat */
    /* Handles the queue and the messages of other ranks; posts nothing. For a wait
     * inside a batch: an error, with its text, ends the wait. */
    int (*interrupted)(void *arg, struct err *err);
    /* Operations have ended or were posted: wakes the threads that wait for them. */
    void (*wake_waiters)(void *arg);
    /* Sleeps until a message, a wake-up or the deadline. */
    void (*sleep)(void *arg, uint64_t deadline_ns);
    void *arg;
};

struct engine {
    /* Constant between start and the end of coordinator_leave. What they point to
     * belongs to the world. */
    uint32_t rank, size;
    struct settings settings;
    struct control *control;
    struct backend *backend;
    struct sets *sets;
    const struct control_member *members; /* by rank */
    struct engine_hooks hooks;

    struct tensor_queue queue; /* own lock */
    struct world_device gpu;   /* own lock */
    struct regions regions;    /* own lock */
    struct observer observe;   /* its own rules */

    /* Used in the seat only. */
    struct member *member;
    struct autotune autotune;
    struct transfers transfers;
    bool has_failed; /* the backend has failed; nothing more is posted */

    /* Any thread. */
    _Atomic int life;           /* enum life; written in the seat */
    _Atomic uint32_t n_waiters; /* threads that wait for an operation */
    _Atomic bool is_hurried;    /* while leaving: the backend must return */
};

static inline int engine_interrupted(const struct engine *e, struct err *err)
{
    return e->hooks.interrupted(e->hooks.arg, err);
}
static inline void engine_wake_waiters(const struct engine *e)
{
    e->hooks.wake_waiters(e->hooks.arg);
}
static inline void engine_sleep(const struct engine *e, uint64_t deadline_ns)
{
    e->hooks.sleep(e->hooks.arg, deadline_ns);
}

/* Any thread: the world has ended, no more steps. */
bool engine_is_over(const struct engine *e);
/* In the seat: an agreement runs, and the backend has not failed. */
bool engine_is_agreeing(const struct engine *e);
/* The backend's batch of an act that runs; its items are not filled in. */
struct batch engine_batch(const struct member_act *act);
/* An operation's tensor in it; the result's memory is known. */
struct batch_item engine_batch_item(const struct op *op);
/* In the seat: takes the op out of the queue and ends it. */
void engine_finish_op(struct engine *e, struct op *op, int status, const char *text);
/* Likewise all operations of a batch that was carried out, and wakes their waiters. */
void engine_end_ops(struct engine *e, const struct member_act *act);

#endif
