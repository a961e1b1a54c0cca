/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of a world, as a file of rank 0 (core/trace.h has its form).
 *
 *   the seat  -> ring -> rank 0: writer thread (timeline_file.c) -> file
 *                     -> elsewhere: the seat   -> control channel -> rank 0's writer
 *
 * Off: one load of a flag for each event. On: one slot of a bounded ring; events that
 * do not fit are dropped, counted, and shown in the file. The thread exists only while
 * rank 0's timeline is on. The other ranks record only while rank 0 requests it. */
#ifndef RUNTIME_OBSERVE_TIMELINE_H
#define RUNTIME_OBSERVE_TIMELINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/core/trace.h"

#define TIMELINE_SLOTS 16384u /* of the ring: 3 MiB, a power of two */

struct timeline_file; /* rank 0, while it is on */

/* How messages leave: the coordinator's control channel. */
struct timeline_link {
    void (*up)(void *arg, const void *p, size_t n); /* to rank 0; in the seat */
    void (*down)(void *arg,
                 const void *p,
                 size_t n);  /* to all other ranks; in the seat */
    void (*wake)(void *arg); /* any thread: timeline_step is due. May be NULL */
    void *arg;
};

enum timeline_others { /* what the other ranks do for rank 0's timeline */
                       OTHERS_NONE,
                       OTHERS_RECORD,
                       OTHERS_STOP,   /* the stop is to be sent, in the seat */
                       OTHERS_STOPPED /* the stop was sent */
};

struct timeline {
    /* Constant after timeline_init. */
    uint32_t rank, size;
    struct timeline_link link;

    /* The ring: slots[at % TIMELINE_SLOTS]. `written` is the seat's, `read` the
     * reader's: the writer thread on rank 0, the seat elsewhere. Release and acquire of
     * the two pass a slot from one to the other. It is allocated once and freed by
     * timeline_release. */
    _Atomic bool
        is_on; /* true: record; stored with release once the ring is allocated */
    struct trace_event *slots;
    _Atomic uint64_t written, read;
    _Atomic uint64_t n_dropped; /* since it was last reported */

    /* The seat's. */
    uint64_t next_ns; /* when timeline_step has something to do, if anything */
    uint32_t n_clocks;
    int64_t least_down_ns;
    bool wants_last; /* not rank 0: send what is left, then nothing */
    struct strbuf out;

    /* Rank 0. */
    _Atomic bool marks_cycles;
    _Atomic int others; /* enum timeline_others */

    pthread_mutex_t life; /* start and stop, whole; never taken in the seat */
    pthread_mutex_t lock; /* leaf lock around `file` */
    struct timeline_file *file;
};

void timeline_init(struct timeline *t,
                   uint32_t rank,
                   uint32_t size,
                   const struct timeline_link *link);
/* Completes and closes an open file. Called when no thread takes the seat any more. */
void timeline_release(struct timeline *t);

/* Any thread, not in a callback. Rank 0 only. Negative enum hvd_status with a text. */
int timeline_start(struct timeline *t,
                   const char *path,
                   bool marks_cycles,
                   bool wants_all,
                   struct err *err);
/* Writes everything recorded before; with `waits` also the events of the other ranks,
 * if they arrive within a second (another thread must run the seat meanwhile). Nothing
 * if it is off. */
void timeline_stop(struct timeline *t, bool waits);

/* --- the seat --- */

static inline bool timeline_is_on(const struct timeline *t)
{
    return atomic_load_explicit(&t->is_on, memory_order_acquire);
}
/* A free slot with this kind and time and nothing else; NULL: off, or full.
 * timeline_put publishes it. */
struct trace_event *
timeline_slot(struct timeline *t, enum trace_kind kind, uint64_t ns);
void timeline_put(struct timeline *t);

/* Messages that trace_is_message, on rank 0 and elsewhere. -EBADMSG, -ENOMEM. */
int timeline_on_up(struct timeline *t,
                   uint32_t rank,
                   const uint8_t *p,
                   size_t n,
                   uint64_t now_ns,
                   struct err *err);
int timeline_on_down(
    struct timeline *t, const uint8_t *p, size_t n, uint64_t now_ns, struct err *err);
/* Sends what is due: clocks and start or stop down, events up. In each step; now_ns is
 * taken just before, because clocks are compared by it. */
void timeline_step(struct timeline *t, uint64_t now_ns);
/* When timeline_step must run at the latest; UINT64_MAX while it is off. */
uint64_t timeline_next_ns(const struct timeline *t);
/* This rank leaves, or the world ends: sends its recorded events up; rank 0 requests
 * those of the other ranks. */
void timeline_leave(struct timeline *t, uint64_t now_ns);
/* Rank 0: are the last events of other ranks still missing? */
bool timeline_awaits_events(struct timeline *t);

/* --- timeline_file.c, for timeline.c --- */

/* Makes the file and the thread that reads the ring. */
int timeline_file_open(struct timeline *t,
                       const char *path,
                       struct timeline_file **ret,
                       struct err *err);
/* Waits, at most until deadline_ns, until n other ranks have sent their last events. */
void timeline_file_wait(struct timeline_file *f, uint32_t n, uint64_t deadline_ns);
uint32_t timeline_file_n_last(struct timeline_file *f); /* how many have */
void timeline_file_close(struct timeline_file *f);
/* A checked message of another rank, from its first event on. */
int timeline_file_receive(struct timeline_file *f,
                          uint32_t rank,
                          uint64_t now_ns,
                          const struct trace_up *head,
                          const uint8_t *p,
                          size_t n);

#endif
