/* SPDX-License-Identifier: Apache-2.0 */
/* The seat: the right to run the steps of one coordinator. Exactly one thread at a time
 * holds it. This part decides which thread that is, and how threads sleep and wake. */
#ifndef RUNTIME_ENGINE_SEAT_H
#define RUNTIME_ENGINE_SEAT_H

#include "runtime/engine/engine.h"
#include "runtime/engine/flight.h"

struct seat_hooks { /* called in the seat */
    /* Does all that can be done now. True: something was done, call again before
     * sleeping. *next_ns: when to call again at the latest; unchanged if not known. */
    bool (*step)(void *arg, uint64_t now_ns, uint64_t *next_ns);
    /* Of seat_abandon: the seat is not released again. */
    void (*end)(void *arg);
    void *arg;
};

struct seat {
    struct engine *e;
    struct flights *flights;
    struct seat_hooks hooks;
    struct op_owner *owner; /* the coordinator; the thread has a reference */
    bool is_crowded;        /* more ranks than processors here: spin shortly */

    /* Any thread. */
    _Atomic bool is_taken;
    _Atomic bool is_kept;      /* seat_keep is waiting or done */
    _Atomic bool is_abandoned; /* the thread that frees the seat calls hooks.end */
    _Atomic uint32_t n_waits, n_polling, n_dozing, n_sleepers;
    _Atomic uint64_t last_wait_ns, next_ns, nap_until_ns, poll_until_ns;
    pthread_mutex_t lock;        /* leaf lock of the two conditions */
    pthread_cond_t done_cond;    /* an op ended, the seat is free, or a waiter left */
    pthread_cond_t nap_cond;     /* the background thread has to check for work */
    bool must_stop, has_stopped; /* lock */
    bool has_thread;
    pthread_t thread;
};

/* e and f outlive it. */
void seat_init(struct seat *s,
               struct engine *e,
               struct flights *f,
               bool is_crowded,
               const struct seat_hooks *hooks);
void seat_release(struct seat *s); /* accepts a zeroed one */
/* Starts the background thread, which holds a reference to the owner. */
int seat_start(struct seat *s, struct op_owner *owner, struct err *err);

/* --- any thread --- */

/* Not in a callback: waits until the op has reached this state. The control channel and
 * the backend are used here, so they are closed only after seat_await_empty. Returns the
 * op's status: HVD_IN_PROGRESS when it is POSTED, or at the deadline. */
int seat_wait(struct seat *s, struct op *op, enum op_state state, uint64_t deadline_ns);
/* Operations were pushed to the queue. */
void seat_notice_new(struct seat *s);
/* Wakes the thread that runs the steps. */
void seat_wake(struct seat *s);
/* Operations have ended or were posted: wakes the threads in seat_wait. */
void seat_wake_waiters(struct seat *s);

/* --- leaving, one thread --- */

/* Takes the seat permanently: no other thread takes it again. False: it stayed taken.
 * After half of the time, e->is_hurried is set, so that a backend that blocks in the
 * seat returns. */
bool seat_keep(struct seat *s, uint64_t deadline_ns);
/* After seat_keep has failed: the thread that frees the seat, or this one, calls
 * hooks.end in it. */
void seat_abandon(struct seat *s);
/* Waits for the end of the background thread. False: it hangs in a callback. */
bool seat_stop(struct seat *s, uint64_t deadline_ns);
/* When all operations have ended: waits until no thread is in seat_wait. False: one
 * still is. */
bool seat_await_empty(struct seat *s, uint64_t deadline_ns);

/* --- in the seat --- */

bool seat_step(struct seat *s); /* hooks.step */
/* When a step found nothing to do. awaits: a thread waits for an op. */
void seat_sleep(struct seat *s, uint64_t deadline_ns, bool awaits);
/* Sleeps until frames arrive, seat_wake, or the deadline. */
void seat_await_frames(struct seat *s, uint64_t deadline_ns);

#endif
