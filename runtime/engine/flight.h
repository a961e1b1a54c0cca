/* SPDX-License-Identifier: Apache-2.0 */
/* Batches on the GPU that are posted and not yet done. In the seat only. */
#ifndef RUNTIME_ENGINE_FLIGHT_H
#define RUNTIME_ENGINE_FLIGHT_H

#include "runtime/engine/engine.h"

#define FLIGHTS_MAX 64u /* before posting more, the seat waits until some have ended */

struct flight {
    struct flight *next;
    struct backend *b;
    uint64_t ticket, began_ns;
    uint32_t n_members;
    uint32_t n_reported; /* stall reports */
    size_t n;
    /* [n] index in the batch: a rank that has joined has only some of its tensors */
    uint32_t *at;
    struct member_item items[]; /* of this rank, with a reference to each op */
};

struct flights {
    struct engine *e;
    struct flight *head, *tail; /* oldest first of each backend */
    uint32_t n;
    _Atomic bool is_quiescing; /* the seat waits for the GPU: flights_fail ends it */
};

/* Memory for a batch that will be posted; NULL: out of memory. Ends with mem_free or
 * flight_add. */
struct flight *flight_new(const struct member_act *act, uint32_t n_members);
/* The batch was posted to b as f->ticket: its ops are POSTED, their names are free for
 * the next step, and threads that wait for that are woken. Takes f and the tensor
 * queue's references. */
void flight_add(struct flights *all,
                struct flight *f,
                struct backend *b,
                const struct member_act *act);
/* Ends the batches that are done. 1: there was one; a failure is the device's, with its
 * text. */
int flights_retire(struct flights *all, struct err *err);
/* Reports a batch that has been in flight for HOROVOD_STALL_CHECK_TIME_SECONDS, and
 * again after the same time. -ETIMEDOUT with a text: for
 * HOROVOD_STALL_SHUTDOWN_TIME_SECONDS. */
int flights_check_stall(const struct flights *all, struct err *err);
/* When to call that again; UINT64_MAX: not before a batch is posted. */
uint64_t flights_next_ns(const struct flights *all);
/* Called when the thread in the seat starts (begins) or stops to sleep until work on
 * the GPU completes, if there is any. */
void flights_await(struct flights *all, bool begins);
/* Waits until at most n are left of b (NULL: of all), handling control messages
 * meanwhile. */
int flights_drain(struct flights *all,
                  const struct backend *b,
                  uint32_t n,
                  struct err *err);
/* Ends all of them with this status, after the device was aborted; waits 1 s at most,
 * or device_config.queue_limit_ns for work of the program in front of them. */
void flights_fail(struct flights *all, int status, const char *text);

#endif
