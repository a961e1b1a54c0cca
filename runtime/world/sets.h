/* SPDX-License-Identifier: Apache-2.0 */
/* The process sets of one world: their ranks and communicators. Set 0 is the world
 * itself. A set that its members added and one that all ranks added may have equal
 * ranks; two of one kind may not. Rank 0 assigns the ids (core/set_id.h). The pairs
 * (core/pair.h) of this rank are sets that only the seat sees. Only the seat changes the
 * table and keeps pointers into it; other threads get copies. */
#ifndef RUNTIME_WORLD_SETS_H
#define RUNTIME_WORLD_SETS_H

#include <pthread.h>

#include "runtime/backend/backend.h"
#include "runtime/core/negotiate.h"

#define SETS_MAX   NEGOTIATE_MAX_SETS
#define SET_NOT_IN UINT32_MAX

struct process_set {
    uint32_t id;
    uint32_t n;
    uint32_t me;                    /* this rank's place in it, or SET_NOT_IN */
    enum set_callers callers;       /* that added it */
    uint32_t *ranks;                /* n global ranks, ascending */
    struct backend *backend;        /* owned; NULL when not in it; set 0: the world's */
    struct backend *device_backend; /* of its GPUs, over the other; NULL: none yet */
    uint32_t last_region;           /* the last number that was assigned; in the seat */
    uint32_t codecs; /* bits of codecs whose libraries all members have; in the seat */
};

struct sets {
    pthread_mutex_t lock;   /* leaf lock of v and n against threads outside the seat */
    struct process_set **v; /* ascending numbers; v[0] is set 0 */
    size_t n, cap;
    uint32_t rank, size;        /* of the world */
    struct process_set **pairs; /* ascending ids; in the seat */
    size_t n_pairs, pairs_cap;
};

/* The table with set 0 in it, whose backend is given by sets_set_world_backend. 0,
 * -ENOMEM. */
int sets_init(struct sets *s, uint32_t rank, uint32_t size);
/* Closes the backends of all sets, but the world's own; accepts a zeroed one, and
 * twice. */
void sets_release(struct sets *s);
void sets_set_world_backend(struct sets *s, struct backend *world);

/* --- in the seat only --- */

/* Finds pairs too. Valid until this set is removed. NULL: there is none. */
struct process_set *sets_find(const struct sets *s, uint32_t id);
/* Makes set id of ranks[n] (ascending, different, below the size of the world; copied).
 * backend is taken over on success. 0; -EINVAL no valid set; -EEXIST another
 * set of these callers has the same; -EPROTO another one has this number; -E2BIG, -ENOMEM. */
int sets_add(struct sets *s,
             uint32_t id,
             const uint32_t *ranks,
             uint32_t n,
             enum set_callers callers,
             struct backend *backend,
             struct err *err);
/* A pair this rank is in, until the world ends. backend is taken over on success. 0,
 * -ENOMEM. */
int sets_add_pair(struct sets *s, uint32_t pair, struct backend *backend);
/* Closes its backend and forgets it; -EINVAL for set 0, -ENOENT for an unknown one. */
int sets_remove(struct sets *s, uint32_t id, struct err *err);

/* --- any thread --- */

/* What sets_add would refuse. */
int sets_check_new(struct sets *s,
                   const uint32_t *ranks,
                   uint32_t n,
                   enum set_callers callers,
                   struct err *err);
/* Have its members added a set of these ranks, or are they the world? */
bool sets_find_ranks(struct sets *s, const uint32_t *ranks, uint32_t n, int *ret_id);
/* Size of the set and this rank's place in it (SET_NOT_IN). -ENOENT. No pairs, here and
 * below. */
int sets_place(struct sets *s, uint32_t id, uint32_t *ret_n, uint32_t *ret_me);
/* Sets the error "there is no process set". HVD_INVALID_ARGUMENT. */
int sets_report_unknown(struct sets *s, int id, struct err *err);
/* The place of a global rank in it; SET_NOT_IN also for an unknown set. */
uint32_t sets_member(struct sets *s, uint32_t id, uint32_t rank);
/* At most n ranks, or ids of the sets that all ranks added, into ret; how many there
 * are, or -ENOENT. */
int sets_ranks(struct sets *s, uint32_t id, int *ret, int n);
int sets_ids(struct sets *s, int *ret, int n);

/* Pure: the place of a global rank in ranks[n], SET_NOT_IN. */
uint32_t set_place_of(const uint32_t *ranks, uint32_t n, uint32_t rank);

#endif
