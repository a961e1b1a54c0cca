/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of one coordinator: requests of this rank to rank 0, rank 0's answers to
 * all, reports of late ranks, and the end of the world in order. In the seat only. */
#ifndef RUNTIME_ENGINE_TALK_H
#define RUNTIME_ENGINE_TALK_H

#include "runtime/core/gather.h"
#include "runtime/core/negotiate.h"
#include "runtime/core/stall.h"
#include "runtime/engine/engine.h"
#include "runtime/observe/stall_file.h"

struct talk {
    struct engine *e;
    void (*report_late)(const char *tensor); /* as in coordinator_config */
    struct negotiate *negotiate;             /* rank 0 */
    struct strbuf out;
    struct gather gather;
    struct stall stall;
    uint64_t stall_next_ns;
    struct stall_file stall_file;
    uint64_t stall_show_ns; /* stall_file.is_shown: when to write it again */
    /* Rank 0: the last step; a longer time between two means that it was stopped. */
    uint64_t stepped_ns, pause_ns;
    bool has_end;        /* a rank has left: after the last answer the world ends */
    bool is_end_failure; /* has_end: that rank's program has failed */
    uint64_t end_at_ns;  /* has_end: what is agreed by then is still carried out */
    char end_text[MESSAGE_TEXT_MAX]; /* has_end */
};

/* e outlives it. */
void talk_init(struct talk *t,
               struct engine *e,
               void (*report_late)(const char *tensor));
/* Before the first message. may_freeze: the backend can agree, so that rank 0 may send
 * plans. 0, -ENOMEM. */
int talk_start(struct talk *t, bool may_freeze);
void talk_release(struct talk *t); /* accepts a zeroed one */

/* control_handlers; arg is the talk. */
int talk_on_up(void *arg, uint32_t rank, const uint8_t *p, size_t n, struct err *err);
int talk_on_down(void *arg, const uint8_t *p, size_t n, struct err *err);
void talk_on_ended(void *arg, const char *who, bool is_failure);
void talk_on_report(void *arg, uint32_t rank, const uint8_t *p, size_t n);

/* New operations of the queue enter negotiation. True: there were some. */
bool talk_take_new(struct talk *t);
/* Sends new requests to rank 0, and on rank 0 answers to all. That a plan must be left
 * is sent at once, other requests when the window closes. */
void talk_send(struct talk *t);
/* Is the window open that collects tensors for one batch (HOROVOD_CYCLE_TIME)? Closes
 * it when its time is over. */
bool talk_is_gathering(struct talk *t);
void talk_set_gathering(struct talk *t, uint64_t window_ns, uint64_t fill_bytes);
/* On rank 0, when it is due: reports pending tensors. True: the world is to end. */
bool talk_check_stall(struct talk *t, uint64_t now_ns);
/* No stall is reported to the launcher any more, since the world ends. */
void talk_hide_stall(struct talk *t);
/* The age at which a tensor is first reported; 0: never. */
uint64_t talk_stall_ns(const struct talk *t);
/* When a step is due for messages; UINT64_MAX: not before a message arrives. */
uint64_t talk_next_ns(const struct talk *t);

#endif
