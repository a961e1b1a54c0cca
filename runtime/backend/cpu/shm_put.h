/* SPDX-License-Identifier: Apache-2.0 */
/* Writing into shared memory for other ranks to read: through the caches or past them,
 * whichever was measured to be faster. Results never depend on it. */
#ifndef RUNTIME_BACKEND_CPU_SHM_PUT_H
#define RUNTIME_BACKEND_CPU_SHM_PUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PUT_TRIED_MIN 4096 /* bytes; smaller data is always stored through the caches */
#define PUT_PERIOD    64   /* of this many chunks two are trials */
#define PUT_SCORE_MAX 2

enum put_class { PUT_SMALL, PUT_SLOT, PUT_CLASSES }; /* decided apart */

struct put_choice {
    uint32_t n;   /* chunks so far */
    int score;    /* above 0: past the caches was the faster */
    double plain; /* ns a byte of the last trial through the caches */
};

struct put { /* of one rank; zeroed at the start */
    struct put_choice choice[PUT_CLASSES];
    bool streams;    /* how put_copy() writes now */
    bool is_pending; /* something was written past the caches since the last flush */
};

/* One chunk: written by all ranks, then read by all. All ranks begin chunks in the same
 * order with equal sizes, so that they run the same trials at the same time. */
struct put_trial {
    struct put_choice *choice; /* NULL: not timed */
    bool streams;
    uint64_t n_bytes, spent_ns, since_ns;
};
struct put_trial put_begin(struct put *p, enum put_class c, uint64_t n_bytes);
/* Around each stretch of work for the chunk, waiting excluded; from put_work() on
 * put_copy() writes as the trial requires. */
void put_work(struct put *p, struct put_trial *t);
void put_rest(struct put_trial *t);
void put_end(struct put_trial *t);
/* For chunks that are not timed: as the trials of c have decided. */
struct put_trial put_found(const struct put *p, enum put_class c, uint64_t n_bytes);

void put_copy(struct put *p, uint8_t *dst, const uint8_t *src, size_t n);
void put_flush(struct put *p); /* before written data is published */

/* The decision alone, pure: whether the next chunk is a trial and of which kind; the
 * cost of a trial. */
bool put_choice_next(struct put_choice *c, bool *ret_streams);
void put_choice_vote(struct put_choice *c, bool streams, double ns_a_byte);

#endif
