/* SPDX-License-Identifier: Apache-2.0 */
/* One host's ranks in one shared memory segment: its layout, and the collectives over
 * it.
 *
 *   segment:  header | one control line a rank | agreement (agree.h) | data areas, one
 *             a rank:
 *             small[2] (one-shot messages)  slot[2] (chunks of large ones)
 *
 * Every rank publishes its progress in one counter, seq, that only grows; a rank that
 * needs data of another waits until that one's counter has reached the position at
 * which the data is there. Both sides compute positions from the operation alone, so no
 * message says anything. */
#ifndef RUNTIME_BACKEND_CPU_SHM_H
#define RUNTIME_BACKEND_CPU_SHM_H

#include <stdbool.h>

#include "runtime/backend/cpu/reduce.h"
#include "runtime/backend/cpu/vec.h"
#include "runtime/backend/cpu/wait.h"

#define SHM_MAX_BYTES                                                                  \
    (8u << 20) /* data areas of all ranks together, whatever their number */
#define SHM_MAX_RANKS  1024  /* of one host */
#define SHM_SMALL_MAX  32768 /* largest one-shot message */
#define SHM_SLOT_MAX   (1u << 20)
#define SHM_SLOT_MIN   4096
#define SHM_LINE_BYTES 128

enum shm_state { SHM_ABSENT, SHM_HERE, SHM_LEFT };

struct shm_line { /* one rank's control line; only its rank stores seq and state */
    _Atomic uint32_t seq;     /* futex word */
    _Atomic uint32_t waiters; /* how many sleep on seq */
    _Atomic uint32_t state;   /* enum shm_state */
    uint8_t pad[SHM_LINE_BYTES - 12];
};
_Static_assert(sizeof(struct shm_line) == SHM_LINE_BYTES, "control lines do not share");

struct shm_header {
    uint64_t magic;
    uint32_t n, small_bytes, slot_bytes; /* geometry, for a check by who maps it */
    _Atomic uint32_t lost; /* global rank + 1 of the first lost rank, 0: none */
    uint8_t pad[SHM_LINE_BYTES - 24];
    struct shm_line lines[];
};

struct shm { /* one rank's view; owned by the thread that drives the backend */
    struct shm_header *h;
    size_t n_bytes;    /* of the segment */
    uint32_t n, me;    /* ranks of the group, our index */
    uint32_t *line_of; /* [n] index of a member's line and data area */
    uint32_t *rank_of; /* [n] its global rank */
    const void **src;  /* [n] scratch for the kernels */
    const struct waiter *w;
    uint32_t base;       /* everyone's seq at the end of the last operation */
    uint32_t free_at[2]; /* position at which all have read slot i */
    unsigned turn;       /* slot of the next chunk */
    unsigned small_turn;
};

/* Geometry for n ranks; returns the size of the segment. */
size_t shm_size(uint32_t n, uint32_t *ret_small, uint32_t *ret_slot);
void shm_format(void *mem, uint32_t n); /* by its creator; mem is zeroed */
/* mem: a formatted segment. lines, ranks: [n], copied. -ENOMEM. */
int shm_attach(struct shm *s,
               void *mem,
               size_t n_bytes,
               uint32_t n,
               uint32_t me,
               const uint32_t *lines,
               const uint32_t *ranks,
               const struct waiter *w);
void shm_detach(
    struct shm *s); /* marks us as left; accepts a zeroed struct; mem stays mapped */

/* For waiter.check(): has anyone been reported lost? -1 or the global rank. */
int64_t shm_lost(const struct shm *s);
void shm_report_lost(struct shm *s, uint32_t rank); /* the first report stays */
bool shm_has_left(const struct shm *s, uint32_t rank);

/* Publishing and waiting, for the collectives. */
void shm_publish(struct shm *s, uint32_t seq);
int shm_wait(struct shm *s, uint32_t member, uint32_t seq, struct err *err);
int shm_wait_all(struct shm *s, uint32_t seq, struct err *err);
uint8_t *shm_slot(const struct shm *s, uint32_t member, unsigned turn);
uint8_t *shm_small(const struct shm *s, uint32_t member, unsigned turn);
struct agree_area;
struct agree_area *shm_agree_area(const struct shm *s);

/* --- collectives: all members call with vectors of equal sizes
 * ------------------------------- */

struct reduction {
    const struct kernel *k;
    double prescale;
    struct finish finish;
};
/* out = finish(sum(prescale * in)). to_first_only: only member 0's out is complete, the
 * others' is partly written. */
int shm_allreduce(struct shm *s,
                  const struct vec *v,
                  const struct reduction *r,
                  bool to_first_only,
                  struct err *err);
/* Every member's out = root's in. */
int shm_broadcast(struct shm *s, const struct vec *v, uint32_t root, struct err *err);
/* v[j], j in 0..n: what member j contributes; out is where it goes here; in is used of
 * v[me]. */
int shm_allgather(struct shm *s, const struct vec *v, struct err *err);
int shm_barrier(struct shm *s, struct err *err);

#endif
