/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of a member, shared by member.c (submitting, the plan, what to do next)
 * and member_down.c (answers). No other file includes it. */
#ifndef RUNTIME_CORE_MEMBER_STATE_H
#define RUNTIME_CORE_MEMBER_STATE_H

#include "runtime/core/cycle.h"
#include "runtime/core/fusion.h"
#include "runtime/core/member.h"
#include "runtime/core/plan.h"
#include "runtime/core/records.h"

enum mode { MODE_FREE, MODE_FROZEN, MODE_PLAN };

struct todo { /* a down message */
    struct todo *next;
    size_t n;
    uint8_t bytes[];
};

struct set_entry {
    uint32_t id;
    bool is_in;
};

struct member {
    uint32_t rank, n_ranks;
    uint64_t n_seen;
    struct nametab ops;             /* open ones, by name */
    struct member_op *head, *tail;  /* open ones, oldest first */
    struct member_op *first_unsent; /* all before it are sent or planned */
    struct member_op *join;         /* this rank's join, until all ranks have joined */
    struct records records;
    struct set_entry *sets; /* without set 0 */
    size_t n_sets, sets_cap;

    struct todo *todo_head, *todo_tail;
    struct message_reader reader; /* of todo_head, when is_open */
    bool is_open;
    /* The records of the answers in todo that contain only the slot, in order, held.
     * From at_due to n_due. */
    struct cache_record **due;
    size_t at_due, n_due, due_cap;

    enum mode mode;
    struct frozen_plan *plan;
    uint32_t plan_no, n_plan;
    struct fusion_limit limit;
    struct cache_record **recs;  /* [n_plan] held */
    struct member_op **by_place; /* [n_plan] NULL: not submitted */
    uint32_t *order; /* [n_plan] agreed and not handed out: from at_order to n_order */
    uint32_t n_order, at_order;
    bool must_leave, has_sent_leave, is_agreeing;
    uint64_t n_agreed; /* tensors, since the plan began */
    uint64_t words[CYCLE_MAX / 64 + 1];

    struct member_item *items; /* of the current act */
    size_t items_cap;
    struct cache_record *held;    /* the record that owns the act's counts, or NULL */
    struct tensor_request *zeros; /* of items without op */
    size_t n_zeros, zeros_cap;
    const struct tensor_request **window; /* [n_plan] the requests of order */
    uint64_t *counts;                     /* [n_ranks] of down */
    struct down down;                     /* the answer that is handed out */
    uint64_t *news_counts;                /* [n_ranks] of news */
    struct down news;                     /* the answer that has just arrived */
    bool is_late;
    char late[TENSOR_NAME_MAX];
    struct member_counts stats;
};

/* member.c */
bool member_is_in_set(const struct member *m, uint32_t id);
struct member_op *
member_find_op(const struct member *m, uint32_t set, const char *name);
/* Sets item n of the current act and removes op from the open ones. NULL: this rank has
 * joined. */
int member_add_item(struct member *m, size_t n, struct member_op *op);

/* member_down.c */
void member_todo_drop(struct member *m); /* the first message; there must be one */
void member_hand_out(struct member *m, size_t n, struct member_act *ret);
/* Handles m->down, any answer but FREEZE. *n counts the items of a batch. *more: the
 * batch continues with the next answer. */
int member_answer(
    struct member *m, size_t *n, bool *more, struct member_act *ret, struct err *err);

#endif
