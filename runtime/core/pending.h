/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors that some ranks have submitted: by name until all have, then in order of
 * readiness; with the process sets and pairs (pair.h) they belong to, their groups, and
 * who has joined.
 * Only for negotiate.c. Pure. */
#ifndef RUNTIME_CORE_PENDING_H
#define RUNTIME_CORE_PENDING_H

#include "runtime/core/mismatch.h"
#include "runtime/core/nametab.h"

struct rank_set {
    struct nametab_node node; /* first; without a name */
    struct rank_set *next;
    uint32_t id;
    bool has_met; /* a pair: its ranks have been told to meet */
    struct set_view view;
    uint32_t n_joined;
    uint32_t n_pending;
};

struct claim;

struct pending {
    struct nametab_node node;    /* first; name: first.name */
    struct pending *prev, *next; /* in order of age, or of readiness */
    struct pending *group_next;
    struct tensor_request first;
    struct rank_set *set; /* NULL: the set is gone, text says so */
    uint32_t first_rank, n_seen;
    uint32_t n_hits;    /* of n_seen: sent as a bit of the cache */
    uint32_t n_excused; /* ranks of the set that have joined instead */
    uint64_t since_ns;
    uint64_t *dim0; /* allgather, gather, alltoall: per rank of the world */
    char *text;     /* what is wrong, NULL if nothing */
    bool is_complete;
    bool is_inside;       /* ready with its group, and not the first of it */
    bool is_apart;        /* ranks disagree about its group: it fails by itself */
    struct claim *claims; /* is_apart: the groups that ranks say it is in */
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
    uint32_t n_numbers;    /* of process sets: those below it have been given */
    uint32_t *free_ids;    /* [n_numbers has room] of those to give again, in turn */
    size_t n_free, free_cap;
    struct nametab names;  /* of waiting, but for the complete ones of a group */
    struct nametab groups; /* not complete yet */
    struct pending_list waiting, ready;
    bool *has_joined; /* [n_ranks] */
    uint32_t n_joined, last_joined;
    struct tensor_request join; /* somebody's */
};

int pendings_init(struct pendings *t, uint32_t n_ranks);
void pendings_release(struct pendings *t); /* accepts a zeroed struct */

/* Rank `rank` has this tensor. Errors as negotiate_receive's. */
int pendings_add(struct pendings *t,
                 uint32_t rank,
                 const struct tensor_request *req,
                 bool is_hit,
                 uint64_t now_ns,
                 struct err *err);
/* The first ready one is about to be answered with RUN: process sets come and go here;
 * p->text is set when that cannot be. SET_ADD: first.process_set is the new id. */
int pendings_settle(struct pendings *t, struct pending *p);
void pendings_drop_ready(struct pendings *t); /* the first one; there must be one */
void pendings_clear(struct pendings *t); /* waiting and ready; not who has joined */

bool pendings_all_joined(const struct pendings *t);
void pendings_rejoin(struct pendings *t);            /* nobody has joined any more */
uint32_t pending_n_missing(const struct pending *p); /* p->set is there */
bool pendings_is_missing(const struct pendings *t,
                         const struct pending *p,
                         uint32_t rank);

#endif
