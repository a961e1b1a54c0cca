/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator of one world on one rank: carries operations from the tensor queue
 * through negotiation to the backend and back to their waiters. */
#ifndef RUNTIME_API_COORDINATOR_H
#define RUNTIME_API_COORDINATOR_H

#include "runtime/api/autotune.h"
#include "runtime/api/device.h"
#include "runtime/api/flight.h"
#include "runtime/api/region.h"
#include "runtime/api/settings.h"
#include "runtime/api/sets.h"
#include "runtime/api/stats.h"
#include "runtime/api/tensor_queue.h"
#include "runtime/api/timeline.h"
#include "runtime/backend/backend.h"
#include "runtime/control/control.h"
#include "runtime/core/compress/codec.h"
#include "runtime/core/gather.h"
#include "runtime/core/lifecycle.h"
#include "runtime/core/negotiate.h"
#include "runtime/core/stall.h"

struct coordinator {
    _Atomic uint32_t refs; /* the world and every op */
    /* Constant between start and the end of coordinator_leave. */
    uint32_t rank, size;
    struct settings settings;
    struct control *control;              /* the world's */
    struct backend *backend;              /* the world's */
    struct sets *sets;                    /* the world's */
    const struct control_member *members; /* the world's, by rank */
    const struct backend_env *env;        /* the world's */
    bool is_crowded; /* more ranks than processors here: spin shortly */

    struct tensor_queue queue; /* own lock */
    struct world_device gpu;   /* own lock */
    struct regions regions;    /* own lock */

    /* Owned by whoever sits in the seat. */
    struct negotiate *negotiate; /* rank 0 */
    struct stats stats;          /* written in the seat, read by any thread */
    struct timeline timeline;    /* its own rules */
    struct stall stall;
    uint64_t stall_next_ns;
    struct member *member;
    struct strbuf out;
    uint64_t *rows, *ones;    /* [size]: scratch of an alltoall, and ones */
    struct batch_item *items; /* of the batch at hand */
    size_t items_cap;
    struct flights flights;
    struct codec_state *codec_state; /* made with the first compressed tensor */
    uint64_t n_evicted;              /* of it, that have been said */
    uint8_t *codec_scratch;
    uint64_t codec_scratch_bytes;
    const char *logged_reasons[8]; /* reasons against compression that have been said */
    uint64_t agree_begin_ns;       /* of the agreement at hand */
    uint64_t offer_at_ns;          /* the last agreement was empty: none before this */
    uint64_t offer_wait_ns;
    struct gather gather;
    struct autotune autotune;
    uint64_t waits_since_ns; /* for others of a set, outside of an agreement; 0: no */
    uint64_t waited_at;      /* what had been planned then */
    uint64_t end_at_ns;      /* has_end: what is agreed by then is still carried out */
    uint64_t agreed[AGREE_MAX_WORDS];
    bool watches_calls; /* a plan with process sets lasts (listen.c) */
    bool is_stuck;      /* the backend has failed; nothing is posted any more */
    bool has_end;       /* end_text is set: after the last response the world ends */
    char end_text[MESSAGE_TEXT_MAX];

    /* Any thread. */
    _Atomic int life;        /* enum life; written in the seat */
    _Atomic bool is_leaving; /* the seat is wanted for good */
    _Atomic bool is_hurried; /* leaving: the backend shall give up */
    _Atomic bool
        is_abandoned; /* leaving took too long: who frees the seat says goodbye */
    enum leave_reason leave_why;                    /* set before is_abandoned */
    _Atomic int seat;                               /* 1: taken */
    _Atomic bool is_watching_calls, has_no_call_fd; /* as listens; without ears */
    _Atomic int call_fds[2]; /* descriptors of the backend, -1: none */
    _Atomic uint32_t n_waiters, n_waits, n_polling, n_dozing, n_sleepers;
    _Atomic uint32_t
        n_polling_blind; /* of those polling: they began before listening */
    _Atomic uint64_t last_wait_ns, next_ns, nap_until_ns, poll_until_ns;
    pthread_mutex_t lock;        /* leaf lock of the two conditions */
    pthread_cond_t done_cond;    /* an op ended, or the seat is free */
    pthread_cond_t nap_cond;     /* the background thread shall look again */
    bool must_stop, has_stopped; /* lock */
    bool has_thread;
    pthread_t thread;
};

/* control and backend may still be NULL and be set until coordinator_start. */
int coordinator_new(uint32_t rank,
                    uint32_t size,
                    uint32_t local_size,
                    const struct settings *s,
                    struct coordinator **ret,
                    struct err *err);
void coordinator_unref(struct coordinator *co); /* accepts NULL */
/* The world is READY; starts the background thread. */
int coordinator_start(struct coordinator *co, struct err *err);

/* The new op is this coordinator's: sets op->co. */
static inline void coordinator_own(struct coordinator *co, struct op *op)
{
    op->co = co;
    atomic_fetch_add_explicit(&co->refs, 1, memory_order_relaxed);
}

/* Its own ones, all n or none; any thread. 0, or a negative enum hvd_status with its
 * sentence. */
int coordinator_submit(struct coordinator *co,
                       struct op *const *ops,
                       uint32_t n,
                       struct err *err);
/* Any thread but not in a callback: until the op has come to this state. Its status:
 * HVD_IN_PROGRESS when it is POSTED, or at the deadline. */
int coordinator_wait(struct coordinator *co,
                     struct op *op,
                     enum op_state state,
                     uint64_t deadline_ns);
/* Any thread: there is something for the seat to see. */
void coordinator_wake(struct coordinator *co);

/* Ends this rank's part: goodbye, carry out what was promised, fail the rest, stop the
 * thread. Afterwards nobody uses control and backend any more. False: the thread did
 * not stop in time (it is inside a callback that hangs); then control and backend must
 * not be closed. */
bool coordinator_leave(struct coordinator *co,
                       enum leave_reason why,
                       uint64_t deadline_ns);
/* ABORTED, or DOWN: the sentence that new work gets. */
int coordinator_status(struct coordinator *co, struct err *err);

/* backend_env's and control's callbacks; arg is the coordinator. */
int coordinator_interrupted(void *arg, struct err *err);
int coordinator_on_up(
    void *arg, uint32_t rank, const uint8_t *p, size_t n, struct err *err);
int coordinator_on_down(void *arg, const uint8_t *p, size_t n, struct err *err);
void coordinator_on_ended(void *arg, const char *who);

/* --- step.c, for coordinator.c: in the seat only --- */
bool step_once(
    struct coordinator *co); /* true: something moved, look again before sleeping */
void step_fail_all(struct coordinator *co, int status, const char *text);
/* Leaving: is an agreement at hand that the others may go on from? Asks all to leave
 * the plan, which ends it. */
bool step_leave_plan(struct coordinator *co);
void coordinator_wake_sleepers(struct coordinator *co);

/* --- listen.c, for step.c and coordinator.c: in the seat, but the last two
 * --- */
enum agree_call calls_pending(struct coordinator *co); /* of the next agreement */
/* Nobody asks for a while. True: called already. */
bool calls_arm(struct coordinator *co);
void calls_disarm(struct coordinator *co); /* somebody asks again */
bool calls_update(struct coordinator *co); /* has a plan begun? True: listens anew */
/* Since when this rank has been waiting for others without an agreement; 0: is not. */
uint64_t calls_waits_since(struct coordinator *co);
/* Any thread: what to sleep on for a call, at most 2. */
struct pollfd;
size_t calls_fds(struct coordinator *co, bool of_hosts, struct pollfd *ret);
/* Sleeps until frames, calls or the deadline. */
void calls_wait(struct coordinator *co, uint64_t deadline_ns);
/* Any thread, while is_watching_calls: a nap of ns at most; true: a call or a frame came.
 * Not of_hosts: whoever sits in the seat hears other hosts, and may leave unheard. */
bool calls_nap(struct coordinator *co, uint64_t ns, bool of_hosts);

/* --- carry.c, for step.c: in the seat only --- */
/* Carries out a MEMBER_RUN. An error is the backend's or the protocol's: the world is
 * to be broken with its sentence; *ret_is_ours: by this rank's own doing. */
int carry_run(struct coordinator *co,
              const struct member_act *act,
              bool *ret_is_ours,
              struct err *err);
/* Carries out a MEMBER_PAIR; errors as carry_run's that are not ours. */
int carry_pair(struct coordinator *co, uint32_t pair, struct err *err);
/* Carries out a MEMBER_SET; as carry_pair. */
int carry_set(struct coordinator *co, const struct member_act *act, struct err *err);
/* post and poll to the end */
int carry_post(struct coordinator *co,
               struct backend *b,
               const struct batch *batch,
               struct err *err);
/* carry_codec.c: a batch of allreduces that name a codec. items[act->n_items] are
 * filled as for an ordinary one. */
int carry_compressed(struct coordinator *co,
                     const struct process_set *set,
                     const struct member_act *act,
                     const struct batch *batch,
                     bool *ret_is_ours,
                     struct err *err);
/* What becomes of each tensor of such a batch: ret[act->n_items]. Counted, and said
 * where a tensor travels as it is. */
int carry_codec_plans(struct coordinator *co,
                      const struct member_act *act,
                      uint32_t n_members,
                      struct codec_plan *ret,
                      struct err *err);
/* carry_device.c: posts a batch of tensors on GPUs, whose results have memory; the
 * batch is a flight then. As carry_run. */
int carry_device(struct coordinator *co,
                 struct process_set *set,
                 const struct member_act *act,
                 bool *ret_is_ours,
                 struct err *err);
/* A set has been added, at this place of the order on all ranks: where the world has a
 * communicator on the GPUs, the set's is split off it, by all ranks. */
int carry_device_set(struct coordinator *co, uint32_t id, struct err *err);
/* The set's communicator of GPUs, opened if it is not, because of act. */
int carry_open_comm(struct coordinator *co,
                    struct process_set *set,
                    const struct member_act *act,
                    struct err *err);
/* carry_register.c: a buffer is registered, or no longer; ends its operation. An error
 * ends the world. */
int carry_register(struct coordinator *co,
                   struct process_set *set,
                   const struct member_act *act,
                   struct err *err);
/* What each member of a set says of one question, in members' order: ret[set->n]. All
 * of them ask it at the same place of the order. */
struct verdict {
    uint8_t how;
    char why[255];
};
int carry_verdicts(struct coordinator *co,
                   const struct process_set *set,
                   const struct verdict *mine,
                   struct verdict *ret,
                   struct err *err);
/* All buffers of a set, when none of its batches is on its way. */
void carry_forget_set(struct coordinator *co, const struct process_set *set);
void carry_finish(struct coordinator *co, struct op *op, int status, const char *text);

#endif
