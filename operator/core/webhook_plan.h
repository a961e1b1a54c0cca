/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of the webhook: which message is sent when, and when it is given up. Pure, one
 * thread. */
#ifndef OPERATOR_CORE_WEBHOOK_PLAN_H
#define OPERATOR_CORE_WEBHOOK_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/core/observed.h"
#include "operator/core/state.h"
#include "operator/core/webhook_text.h"

#define WEBHOOK_AT_ONCE    4u
#define WEBHOOK_MAX_QUEUE  1000u
#define WEBHOOK_FIRST_NS   1000000000ull   /* delay after the first failure; doubles */
#define WEBHOOK_LONGEST_NS 300000000000ull /* bound of that, and of Retry-After */
#define WEBHOOK_LIFE_NS    3600000000000ull

enum webhook_stage {
    WEBHOOK_HELD,    /* the write of the status that it announces may have failed */
    WEBHOOK_WAITING, /* for its time, or for an earlier message of its job */
    WEBHOOK_SENDING,
};

struct webhook_message {
    struct webhook_message *next; /* from here on: of webhook_plan.c only */
    enum webhook_stage stage;
    bool is_first;    /* no earlier message of its job is in the queue */
    uint64_t born_ns; /* when it was held, then when it was confirmed */
    uint64_t due_ns;
    enum job_state to;
    char uid[UID_SIZE];  /* of the job */
    unsigned n_failures; /* from here on: to be read by others */
    char id[WEBHOOK_ID_SIZE];
    char *key; /* of the job, for the log */
    char *body;
    size_t body_n;
};

struct webhook_queue { /* zeroed: empty */
    struct webhook_message *first, *last;
    size_t n, n_held, n_sending;
};
/* Forgets all messages, also those that are being sent. */
void webhook_queue_release(struct webhook_queue *q);

/* Takes over m, which has uid, to, id, key and body, and holds it until it is confirmed. It
 * replaces a held message of the same job about the same state. True: the queue was full,
 * and the oldest message that is not being sent was dropped. */
bool webhook_queue_hold(struct webhook_queue *q,
                        struct webhook_message *m,
                        uint64_t now_ns);
/* The API server has this state of the job: a held message about it may be sent, others of
 * the job are forgotten after it. Without such a message nothing happens. */
void webhook_queue_confirm(struct webhook_queue *q,
                           const char *uid,
                           enum job_state state,
                           uint64_t now_ns);

/* The next message that is due, now SENDING; NULL if there is none, or enough are being
 * sent. Messages of one job are sent in the order of their holds, one after the other. */
struct webhook_message *webhook_queue_take(struct webhook_queue *q, uint64_t now_ns);
/* When webhook_queue_take has one; UINT64_MAX: not before another call. */
uint64_t webhook_queue_next_ns(const struct webhook_queue *q);

enum webhook_end {
    WEBHOOK_DELIVERED,
    WEBHOOK_REFUSED, /* by an answer that a repetition would not change */
    WEBHOOK_EXPIRED, /* the next attempt would be later than WEBHOOK_LIFE_NS */
    WEBHOOK_DROPPED, /* the queue was full, or the lead was lost */
    WEBHOOK_RETRIED, /* not an end */
};
#define WEBHOOK_ENDS 4 /* of a message */
const char *webhook_end_name(enum webhook_end e);
/* The attempt of a message that is SENDING was answered. status: HTTP; 0: no answer.
 * RETRIED: it waits for ret_delay_ns; else it is freed. */
enum webhook_end webhook_queue_answer(struct webhook_queue *q,
                                      struct webhook_message *m,
                                      int status,
                                      uint32_t retry_after_s,
                                      uint64_t now_ns,
                                      uint64_t *ret_delay_ns);
void webhook_message_free(struct webhook_message *m); /* accepts NULL */

#endif
