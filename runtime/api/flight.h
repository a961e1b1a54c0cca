/* SPDX-License-Identifier: Apache-2.0 */
/* Batches on the GPU: posted, and not done yet. The seat's alone. */
#ifndef RUNTIME_API_FLIGHT_H
#define RUNTIME_API_FLIGHT_H

#include "runtime/backend/backend.h"
#include "runtime/core/member.h"

#define FLIGHTS_MAX 64u /* more are waited for before the next is posted */

struct coordinator;

struct flight {
    struct flight *next;
    struct backend *b;
    uint64_t ticket, began_ns;
    uint32_t n_members;
    uint32_t n_reported; /* stall reports */
    size_t n;
    uint32_t *at; /* [n] which of the batch: one that has joined has some of it only */
    struct member_item items[]; /* of this rank, with a reference to each op */
};

struct flights { /* oldest first of each backend */
    struct flight *head, *tail;
    uint32_t n;
};

/* Memory for a batch that is to be posted; NULL: there is none. mem_free, or
 * flight_add.
 */
struct flight *flight_new(const struct member_act *act, uint32_t n_members);
/* The batch has been posted to b as f->ticket: its ops are POSTED. Their names are free
 * for the next step from here on, and whoever waits for that is woken. Takes f and the
 * tensor queue's references. */
void flight_add(struct coordinator *co,
                struct flight *f,
                struct backend *b,
                const struct member_act *act);
/* Ends what is done. 1: something was; a failure is the device's, with its sentence. */
int flights_retire(struct coordinator *co, struct err *err);
/* Tells of a batch that has been on its way for HOROVOD_STALL_CHECK_TIME_SECONDS, and
 * again after each as long. -ETIMEDOUT with a sentence: for
 * HOROVOD_STALL_SHUTDOWN_TIME_SECONDS. */
int flights_check_stall(const struct coordinator *co, struct err *err);
/* When that is to be asked again; UINT64_MAX: not before something is posted. */
uint64_t flights_next_ns(const struct coordinator *co);
/* Waits until at most n are left of b (NULL: in all), hearing control meanwhile. */
int flights_drain(struct coordinator *co,
                  const struct backend *b,
                  uint32_t n,
                  struct err *err);
/* Ends all of them with this status, after the device was told to stop: 1 s at most. */
void flights_fail(struct coordinator *co, int status, const char *text);

#endif
