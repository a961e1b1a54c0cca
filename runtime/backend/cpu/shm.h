/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of one host in one shared memory segment: its layout, and the collectives
 * over it.
 *
 *   header
 *   control lines   one per rank
 *   agreement       agree_area.h
 *   data areas      one per rank: slot[2] (chunks of large messages), small[2]
 *                   (one-shot messages)
 *
 * Every rank publishes its progress in one counter, seq, that only grows; a rank that
 * needs data of another waits until that counter has reached the position at which the
 * data is complete. Both sides compute positions from the operation alone, so messages
 * have no headers. */
#ifndef RUNTIME_BACKEND_CPU_SHM_H
#define RUNTIME_BACKEND_CPU_SHM_H

#include <stdbool.h>

#include "runtime/backend/cpu/reduce.h"
#include "runtime/backend/cpu/shm_put.h"
#include "runtime/backend/cpu/vec.h"
#include "runtime/backend/cpu/wait.h"

/* Slots of all ranks together, for any number of ranks; small buffers: an eighth
 * more. */
#define SHM_WORLD_BYTES (8u << 20)
#define SHM_SET_BYTES   (2u << 20) /* the same for a process set's communicator */
#define SHM_MAX_RANKS   1024       /* of one host */
#define SHM_SMALL_MAX   32768      /* largest one-shot message */
#define SHM_SLOT_MAX    (1u << 20)
#define SHM_SLOT_MIN    4096
#define SHM_LINE_BYTES  256 /* its halves are not fetched together (128 bytes) */

enum shm_state { SHM_ABSENT, SHM_HERE, SHM_LEFT };

/* One rank's control line. Only its rank stores into the first half. The second half is
 * untouched while no rank sleeps, so its rank checks it at no cost. */
struct shm_line {
    _Atomic uint32_t seq;
    _Atomic uint32_t state; /* enum shm_state */
    _Atomic uint32_t cpu;   /* where its rank last waited long, plus 1; 0: unknown */
    uint8_t pad[SHM_LINE_BYTES / 2 - 12];
    _Atomic uint32_t waiters; /* number of sleepers */
    _Atomic uint32_t wakeups; /* futex word */
    uint8_t pad2[SHM_LINE_BYTES / 2 - 8];
};
_Static_assert(sizeof(struct shm_line) == SHM_LINE_BYTES, "control lines do not share");

struct shm_header {
    uint64_t magic;
    /* checked by the ranks that map it */
    uint32_t n, max_bytes, small_bytes, slot_bytes;
    _Atomic uint32_t lost; /* global rank + 1 of the first lost rank, 0: none */
    uint8_t pad[SHM_LINE_BYTES - 28];
    struct shm_line lines[];
};

struct shm { /* one rank's view; owned by the thread that drives the backend */
    struct shm_header *h;
    size_t n_bytes;    /* of the segment */
    uint32_t n, me;    /* ranks of the group, our index */
    uint32_t *line_of; /* [n] index of a member's line and data area */
    uint32_t *rank_of; /* [n] its global rank */
    const void **src;  /* [n] scratch for the kernels */
    struct cursor *at; /* [2 * n] scratch: places in vectors */
    const struct waiter *w;
    struct put put;
    uint32_t base;       /* everyone's seq at the end of the last operation */
    uint32_t free_at[2]; /* position at which all have read slot i */
    unsigned turn;       /* slot of the next chunk */
    unsigned small_turn;
    bool owes_wakeup;        /* has published and not yet checked for sleepers */
    uint64_t cpu_checked_ns; /* time of the last check whether to leave a shared CPU, */
    uint64_t cpu_check_ns;   /* and the interval until the next one */
};

/* Geometry for n ranks whose slots have max_bytes together; returns the size of the
 * segment. */
size_t
shm_size(uint32_t n, uint32_t max_bytes, uint32_t *ret_small, uint32_t *ret_slot);
/* By its creator; mem is zeroed. */
void shm_format(void *mem, uint32_t n, uint32_t max_bytes);
/* mem: a formatted segment. lines, ranks: [n], copied. -ENOMEM. */
int shm_attach(struct shm *s,
               void *mem,
               size_t n_bytes,
               uint32_t n,
               uint32_t me,
               const uint32_t *lines,
               const uint32_t *ranks,
               const struct waiter *w);
/* Marks this member as left; accepts a zeroed struct; does not unmap mem. */
void shm_detach(struct shm *s);

/* For waiter.check(): -1, or the global rank that was reported lost. */
int64_t shm_lost(const struct shm *s);
void shm_report_lost(struct shm *s, uint32_t rank); /* later reports are ignored */
bool shm_has_left(const struct shm *s, uint32_t rank);

/* Publishing and waiting, for the collectives. After shm_store_seq() sleepers are woken
 * by the next long wait or by shm_end(); a wait must follow it. */
void shm_publish(struct shm *s, uint32_t seq);
void shm_store_seq(struct shm *s, uint32_t seq);
void shm_wake_waiters(struct shm *s);
int shm_wait(struct shm *s, uint32_t member, uint32_t seq, struct err *err);
bool shm_has_reached(const struct shm *s, uint32_t member, uint32_t seq);
/* The parts of a wait, for a caller that waits for several segments: at the start of
 * its slow part, and then a sleep of ns. */
void shm_wait_long(struct shm *s, uint32_t member, uint32_t seq);
void shm_sleep(const struct shm *s, uint32_t member, uint32_t seq, uint64_t ns);
int shm_wait_all(struct shm *s, uint32_t seq, struct err *err);
/* Where ranks outnumber CPUs: whether member last waited on our CPU. */
bool shm_is_near(const struct shm *s, uint32_t member);
uint8_t *shm_slot(const struct shm *s, uint32_t member, unsigned turn);
uint8_t *shm_small(const struct shm *s, uint32_t member, unsigned turn);
struct agree_area;
struct agree_area *shm_agree_area(const struct shm *s);

/* --- collectives: all members call with equal sizes --- */

#define SHM_ALL UINT32_MAX /* instead of one member: all */

struct reduction {
    const struct reduce_kernel *k;
    double prescale;
    struct finish finish;
};
/* out = finish(prescale * in of member 0 o in of member 1 o ...) on member `only`, or
 * SHM_ALL; elsewhere out is not touched and may be NULL. */
int shm_allreduce(struct shm *s,
                  const struct vec *v,
                  const struct reduction *r,
                  uint32_t only,
                  struct err *err);
/* parts[j], j in 0..n: in is what we add to member j's part; parts[me]: out receives
 * the result, it may equal in. */
int shm_reduce_scatter(struct shm *s,
                       const struct vec *parts,
                       const struct reduction *r,
                       struct err *err);
/* Every member's out = root's in. */
int shm_broadcast(struct shm *s, const struct vec *v, uint32_t root, struct err *err);
/* v[j], j in 0..n: what member j contributes. in: read from v[me] only. out: the
 * destination on member `only`, on all members for SHM_ALL; on any other member NULL,
 * except that v[me].out, if set, gets a copy. */
int shm_gather(struct shm *s, const struct vec *v, uint32_t only, struct err *err);
/* send[j]: in is sent to member j; recv[j]: out is received from member j. recv[j] has
 * as many bytes as send[me] of member j; sizes of other pairs are not needed. */
int shm_alltoall(struct shm *s,
                 const struct vec *send,
                 const struct vec *recv,
                 struct err *err);
int shm_barrier(struct shm *s, struct err *err);

/* --- for the files of these collectives --- */

/* Starts an operation that uses slots; it ends when all members have published last. */
void shm_begin(struct shm *s);
void shm_end(struct shm *s, uint32_t last);
/* dst, in our data area = the next n bytes of the vector. */
void shm_pack(struct shm *s, struct cursor *c, uint8_t *dst, uint64_t n);
/* The same, times prescale. */
void shm_pack_scaled(struct shm *s,
                     struct cursor *c,
                     uint8_t *dst,
                     uint64_t n,
                     const struct reduction *r);

#endif
