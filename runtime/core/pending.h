/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors that some ranks have submitted: by name until all ranks have, then in
 * order of readiness. Also the process sets and pairs (pair.h), the groups, and the
 * joined ranks. Used by negotiate.c only. Pure. */
#ifndef RUNTIME_CORE_PENDING_H
#define RUNTIME_CORE_PENDING_H

#include "runtime/core/mismatch.h"
#include "runtime/core/nametab.h"

struct rank_set {
    struct nametab_node node; /* first; without a name */
    struct rank_set *next;
    uint32_t id;
    enum set_callers callers; /* that added it */
    bool has_met;             /* a pair: PAIR has been sent */
    struct set_view view;
    uint32_t n_joined;
    uint32_t n_pending;
    uint64_t ready_ns; /* when its last tensor became ready; 0: none has */
};

struct claim;

struct pending {
    struct nametab_node node;    /* first; name: first.name */
    struct pending *prev, *next; /* in order of age, or of readiness */
    struct pending *group_next;
    struct tensor_request first;
    struct rank_set *set; /* NULL: the set was removed; text is set */
    uint32_t first_rank, n_seen;
    uint32_t n_hits;    /* of n_seen: received as a bit of the cache */
    uint32_t n_excused; /* ranks of the set that have joined instead */
    uint64_t since_ns;
    uint64_t *dim0; /* allgather, gather, alltoall: per rank of the world */
    char *text;     /* the error message, NULL: none */
    bool is_complete;
    bool is_inside;       /* ready with its group, not its first tensor */
    bool is_apart;        /* ranks disagree about its group: it fails alone */
    struct claim *claims; /* is_apart: all groups that ranks name for it */
    uint8_t seen[];       /* bit per rank of the world */
};

struct pending_list {
    struct pending *head, *tail;
    size_t n;
};

struct pendings {
    uint32_t n_ranks;
    struct rank_set *sets; /* the first is the world */
    struct nametab set_of; /* the same by id */
    uint32_t n_numbers;    /* of process sets: numbers below it were used */
    uint32_t *free_ids;    /* room for n_numbers; numbers to use again, oldest first */
    size_t n_free, free_cap;
    struct nametab names;  /* of waiting, except complete tensors of a group */
    struct nametab groups; /* not complete yet */
    struct pending_list waiting, ready;
    size_t n_probes;  /* in waiting */
    bool *has_joined; /* [n_ranks] */
    uint32_t n_joined, last_joined;
    struct tensor_request join; /* the last one received */
    uint64_t now_ns;            /* of the last request */
    uint64_t *submitted_ns;     /* [n_ranks] of each rank's last request */
};

int pendings_init(struct pendings *t, uint32_t n_ranks);
void pendings_release(struct pendings *t); /* accepts a zeroed struct */

/* Rank `rank` has submitted this tensor. Errors as negotiate_receive's. */
int pendings_add(struct pendings *t,
                 uint32_t rank,
                 const struct tensor_request *req,
                 bool is_hit,
                 uint64_t now_ns,
                 struct err *err);
/* The first ready tensor is about to be answered with RUN: adds or removes its process
 * set. Sets p->text if that is impossible. SET_ADD: sets first.process_set to the new
 * id. */
int pendings_settle(struct pendings *t, struct pending *p);
void pendings_drop_ready(
    struct pendings *t); /* frees the first ready tensor, which must exist */
void pendings_clear(
    struct pendings *t); /* frees waiting and ready; joined ranks stay joined */

bool pendings_all_joined(const struct pendings *t);
void pendings_rejoin(struct pendings *t);            /* no rank is joined any more */
uint32_t pending_n_missing(const struct pending *p); /* p->set is not NULL */
bool pendings_is_missing(const struct pendings *t,
                         const struct pending *p,
                         uint32_t rank);
bool pending_has_rank(const struct pending *p,
                      uint32_t rank); /* rank has submitted it */
/* When one of these ranks last submitted a tensor, or one of their sets had a tensor
 * ready. is_in: [n_ranks]. */
uint64_t pendings_active_ns(const struct pendings *t, const bool *is_in);

#endif
