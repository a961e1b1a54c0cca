/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator of one world on one rank: takes operations from the tensor queue
 * through negotiation to the backend and back to the waiting threads. */
#ifndef RUNTIME_ENGINE_COORDINATOR_H
#define RUNTIME_ENGINE_COORDINATOR_H

#include "runtime/observe/autotune.h"
#include "runtime/engine/device.h"
#include "runtime/engine/flight.h"
#include "runtime/engine/region.h"
#include "runtime/world/settings.h"
#include "runtime/world/sets.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/observe/observe.h"
#include "runtime/backend/backend.h"
#include "runtime/control/control.h"
#include "runtime/core/compress/codec.h"
#include "runtime/core/gather.h"
#include "runtime/core/lifecycle.h"
#include "runtime/core/negotiate.h"
#include "runtime/core/stall.h"

struct coordinator {
    struct op_owner owner; /* first member; referred to by the world and every op */
    /* Constant between start and the end of coordinator_leave. */
    uint32_t rank, size;
    struct settings settings;
    struct control *control;              /* the world's */
    struct backend *backend;              /* the world's */
    struct sets *sets;                    /* the world's */
    const struct control_member *members; /* the world's, by rank */
    const struct backend_env *env;        /* the world's */
    void (*report_late)(const char *tensor);
    bool is_crowded; /* more ranks than processors here: spin shortly */

    struct tensor_queue queue; /* own lock */
    struct world_device gpu;   /* own lock */
    struct regions regions;    /* own lock */

    /* Used in the seat only. */
    struct negotiate *negotiate; /* rank 0 */
    struct observer observe;     /* its own rules */
    struct stall stall;
    uint64_t stall_next_ns;
    struct member *member;
    struct strbuf out;
    uint64_t *rows, *ones;    /* [size]: scratch of an alltoall, and ones */
    struct batch_item *items; /* of the current batch */
    size_t items_cap;
    struct flights flights;
    struct codec_state *codec_state; /* made with the first compressed tensor */
    uint64_t n_evicted;              /* of it, as last logged */
    uint8_t *codec_scratch;
    uint64_t codec_scratch_bytes;
    const char *logged_reasons[8]; /* reasons against compression that were logged */
    uint64_t agree_begin_ns;       /* of the current agreement */
    /* the last agreement was empty: the next offer not before this time */
    uint64_t offer_at_ns;
    uint64_t offer_wait_ns;
    struct gather gather;
    struct autotune autotune;
    uint64_t end_at_ns; /* has_end: what is agreed by then is still carried out */
    uint64_t agreed[AGREE_MAX_WORDS];
    bool has_failed; /* the backend has failed; nothing more is posted */
    bool has_end;    /* end_text is set: after the last response the world ends */
    char end_text[MESSAGE_TEXT_MAX];

    /* Any thread. */
    _Atomic int life;          /* enum life; written in the seat */
    _Atomic bool is_leaving;   /* seat_keep is waiting or done */
    _Atomic bool is_hurried;   /* while leaving: the backend must return */
    _Atomic bool is_quiescing; /* the seat waits for the GPU: flights_fail ends it */
    /* leaving took too long: the thread that frees the seat sends the goodbye */
    _Atomic bool is_abandoned;
    enum leave_reason leave_why; /* set before is_abandoned */
    _Atomic int seat;            /* 1: taken */
    _Atomic uint32_t n_waiters, n_waits, n_polling, n_dozing, n_sleepers;
    _Atomic uint64_t last_wait_ns, next_ns, nap_until_ns, poll_until_ns;
    pthread_mutex_t lock;        /* leaf lock of the two conditions */
    pthread_cond_t done_cond;    /* an op ended, or the seat is free */
    pthread_cond_t nap_cond;     /* the background thread has to check for work */
    bool must_stop, has_stopped; /* lock */
    bool has_thread;
    pthread_t thread;
};

struct coordinator_config {
    uint32_t rank, size;                  /* of the world */
    uint32_t local_size;                  /* ranks of the whole job on this host */
    const struct settings *settings;      /* copied */
    const struct control_member *members; /* by rank; outlive the world */
    const struct backend_env *env;        /* outlives the world */
    struct sets *sets;                    /* outlive the world */
    struct device_park *park;             /* outlives the world */
    const char *nccl_hint;                /* as hvd_device_hint's; copied */
    /* Called in the seat, no lock held: other ranks wait for this tensor, which this
     * rank has not submitted. */
    void (*report_late)(const char *tensor);
};

/* control and backend may still be NULL and be set until coordinator_start. */
int coordinator_new(const struct coordinator_config *cfg,
                    struct coordinator **ret,
                    struct err *err);
void coordinator_unref(struct coordinator *co); /* accepts NULL */
/* The world is READY; starts the background thread. */
int coordinator_start(struct coordinator *co, struct err *err);

/* The new op is this coordinator's. */
static inline void coordinator_own(struct coordinator *co, struct op *op)
{
    op_set_owner(op, &co->owner);
}
static inline bool coordinator_owns(const struct coordinator *co, const struct op *op)
{
    return op->owner == &co->owner;
}

/* Ops of this coordinator, all n or none; any thread. 0, or a negative enum hvd_status
 * with its error text. */
int coordinator_submit(struct coordinator *co,
                       struct op *const *ops,
                       uint32_t n,
                       struct err *err);
/* Any thread, not in a callback: waits until the op has reached this state in its
 * coordinator. Returns its
 * status: HVD_IN_PROGRESS when it is POSTED, or at the deadline. */
int coordinator_wait(struct op *op, enum op_state state, uint64_t deadline_ns);
/* Any thread: wakes the thread that runs the steps. */
void coordinator_wake(struct coordinator *co);

/* Ends this rank's part: carries out what was agreed, sends the goodbye, fails the
 * other operations (flights_fail has a limit of its own), stops the thread. Afterwards
 * no thread uses control and backend. False: the thread did not stop in time (it hangs
 * in a callback); then control and backend must not be closed. */
bool coordinator_leave(struct coordinator *co,
                       enum leave_reason why,
                       uint64_t deadline_ns);
/* After coordinator_leave, when the communicators of its GPU are closed. Accepts
 * NULL. */
void coordinator_close_device(struct coordinator *co);
/* ABORTED or DOWN, with the error text for new operations. */
int coordinator_status(struct coordinator *co, struct err *err);

/* backend_env's and control's callbacks; arg is the coordinator. */
int coordinator_interrupted(void *arg, struct err *err);
int coordinator_on_up(
    void *arg, uint32_t rank, const uint8_t *p, size_t n, struct err *err);
int coordinator_on_down(void *arg, const uint8_t *p, size_t n, struct err *err);
void coordinator_on_ended(void *arg, const char *who);

/* --- step.c, for coordinator.c: in the seat only --- */
bool step_once(
    struct coordinator *co); /* true: something was done, call again before sleeping */
void step_fail_all(struct coordinator *co, int status, const char *text);
/* While leaving: true if an agreement runs that other ranks may continue from. Requests
 * all ranks to leave the plan, which completes it. */
bool step_leave_plan(struct coordinator *co);
void coordinator_wake_sleepers(struct coordinator *co);

/* Any thread: sleeps until frames arrive or the deadline. */
void coordinator_await_frames(struct coordinator *co, uint64_t deadline_ns);

/* --- carry.c, for step.c: in the seat only --- */
/* Carries out a MEMBER_RUN. An error is the backend's or the protocol's and must break
 * the world; *ret_is_ours: it is a failure of this rank alone. */
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
/* How each tensor of such a batch is sent: ret[act->n_items]. Counts it, and logs
 * tensors that are sent uncompressed. */
int carry_codec_plans(struct coordinator *co,
                      const struct member_act *act,
                      uint32_t n_members,
                      struct codec_plan *ret,
                      struct err *err);
/* carry_device.c: posts a batch of tensors on GPUs whose results have memory; the batch
 * is a flight then. Errors as of carry_run. */
int carry_device(struct coordinator *co,
                 struct process_set *set,
                 const struct member_act *act,
                 bool *ret_is_ours,
                 struct err *err);
/* A set was added, at this position in the order of all ranks: if the world has a GPU
 * communicator, all ranks split the set's off it. */
int carry_device_set(struct coordinator *co, uint32_t id, struct err *err);
/* The set's GPU communicator, opened if necessary, for act. */
int carry_open_comm(struct coordinator *co,
                    struct process_set *set,
                    const struct member_act *act,
                    struct err *err);
/* carry_register.c: registers or deregisters a buffer and ends its operation. An error
 * ends the world. */
int carry_register(struct coordinator *co,
                   struct process_set *set,
                   const struct member_act *act,
                   struct err *err);
/* Exchanges one number among the members of a set: ret[set->n], in members' order. All
 * call it at the same position in the common order. */
struct verdict {
    uint8_t how;
    char why[255];
};
int carry_verdicts(struct coordinator *co,
                   const struct process_set *set,
                   const struct verdict *mine,
                   struct verdict *ret,
                   struct err *err);
/* Deregisters all buffers of a set, when none of its batches is in flight. */
void carry_forget_set(struct coordinator *co, const struct process_set *set);
void carry_finish(struct coordinator *co, struct op *op, int status, const char *text);

#endif
