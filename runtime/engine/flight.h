/* SPDX-License-Identifier: Apache-2.0 */
/* Batches on the GPU that are posted and not yet done. In the seat only. */
#ifndef RUNTIME_ENGINE_FLIGHT_H
#define RUNTIME_ENGINE_FLIGHT_H

#include "runtime/backend/backend.h"
#include "runtime/core/member.h"

#define FLIGHTS_MAX 64u /* before posting more, the seat waits until some have ended */

struct coordinator;

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

struct flights { /* oldest first of each backend */
    struct flight *head, *tail;
    uint32_t n;
};

/* Memory for a batch that will be posted; NULL: out of memory. Ends with mem_free or
 * flight_add. */
struct flight *flight_new(const struct member_act *act, uint32_t n_members);
/* The batch was posted to b as f->ticket: its ops are POSTED, their names are free for
 * the next step, and threads that wait for that are woken. Takes f and the tensor
 * queue's references. */
void flight_add(struct coordinator *co,
                struct flight *f,
                struct backend *b,
                const struct member_act *act);
/* Ends the batches that are done. 1: there was one; a failure is the device's, with its
 * text. */
int flights_retire(struct coordinator *co, struct err *err);
/* Reports a batch that has been in flight for HOROVOD_STALL_CHECK_TIME_SECONDS, and
 * again after the same time. -ETIMEDOUT with a text: for
 * HOROVOD_STALL_SHUTDOWN_TIME_SECONDS. */
int flights_check_stall(const struct coordinator *co, struct err *err);
/* When to call that again; UINT64_MAX: not before a batch is posted. */
uint64_t flights_next_ns(const struct coordinator *co);
/* Called when the thread in the seat starts (begins) or stops to sleep until work on
 * the GPU completes, if there is any. */
void flights_await(struct coordinator *co, bool begins);
/* Waits until at most n are left of b (NULL: of all), handling control messages
 * meanwhile. */
int flights_drain(struct coordinator *co,
                  const struct backend *b,
                  uint32_t n,
                  struct err *err);
/* Ends all of them with this status, after the device was aborted; waits 1 s at most,
 * or device_config.queue_limit_ns for work of the program in front of them. */
void flights_fail(struct coordinator *co, int status, const char *text);

#endif
