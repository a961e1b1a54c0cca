/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's part of the negotiation; rank 0 has one too. A member sends this rank's
 * requests to rank 0, reads the stream of answers, and returns what to do next. It
 * carries out nothing itself. Pure. One thread at a time.
 *
 *   without a plan:  member_submit -> member_take_up -> rank 0 (negotiate.h)
 *                    rank 0 -> member_receive -> member_next -> RUN
 *   with a plan:     member_submit -> member_next -> AGREE words
 *                    backend's AND of the words -> member_agreed -> member_next -> RUN
 *
 * The plan. Between the answer FREEZE and the moment when all ranks leave the plan, no
 * rank sends requests. A rank that has submitted tensors of the plan offers them in an
 * agreement: a bitwise AND over all ranks. The tensors that all ranks have are carried
 * out in the order of the plan. A plan contains tensors of the world only, that is of
 * process set 0: every rank submits each of them, so every rank enters each agreement.
 *
 * Leaving the plan. A rank that has submitted something else, such as a tensor of
 * another process set, or has received an answer behind FREEZE, clears its stay bit in
 * the agreement. It also sends LEAVE to rank 0, which sends it to all, so that idle
 * ranks enter the agreement. All ranks leave at the same agreement, none of whose
 * tensors is carried out, and submit their open operations to rank 0 again. */
#ifndef RUNTIME_CORE_MEMBER_H
#define RUNTIME_CORE_MEMBER_H

#include "runtime/core/message.h"
#include "runtime/core/nametab.h"

struct member_op {            /* part of the caller's operation; zeroed */
    struct nametab_node node; /* the member's; first */
    const struct tensor_request
        *req; /* the caller's; constant until the op is handed out */
    struct member_op *prev, *next;
    uint32_t place; /* in the plan */
    bool is_sent, is_planned;
};

struct member_item {
    struct member_op *op; /* NULL: this rank has joined and contributes zeros */
    const struct tensor_request
        *req; /* op's, or from rank 0; valid until the next member_next */
};

enum member_kind {
    MEMBER_NOTHING,
    MEMBER_RUN,   /* items, all of one batch */
    MEMBER_FAIL,  /* items[0].op fails with text */
    MEMBER_JOIN,  /* items[0].op ends: all have joined */
    MEMBER_PROBE, /* items[0].op ends: a rank sends */
    MEMBER_TUNE,  /* use tuning from here on */
    MEMBER_AGREE, /* begin an agreement with words; pass its result to member_agreed */
    MEMBER_PAIR,  /* all ranks connect the pair (pair.h) set_id */
    MEMBER_SET,   /* another set, of items[0].req->set: all ranks connect set_id */
};
struct member_act { /* valid until the next call of member_next or member_agreed */
    enum member_kind kind;
    const struct member_item *items;
    size_t n_items;
    const uint64_t
        *counts; /* RUN of allgather and gather: rows of each rank of the set */
    uint32_t n_counts;
    uint32_t set_id;      /* RUN of SET_ADD: the new set; PAIR, SET */
    uint32_t result_rank; /* JOIN: the last that joined; PROBE: the sender */
    const char *text;
    const struct tuning *tuning;
    const uint64_t *words;
    uint32_t n_words;
};

struct member;

int member_new(uint32_t rank, uint32_t n_ranks, struct member **ret);
void member_free(struct member *m); /* accepts NULL; ops stay with their owners */

/* op->req is set. 0; -ENOMEM; -EBUSY: this rank has joined. The op belongs to the
 * member until member_next hands it out. */
int member_submit(struct member *m, struct member_op *op);
/* Writes the next message for rank 0 into out, which is cleared first. False: there is
 * none. Check strbuf_status(out). */
bool member_take_up(struct member *m, struct strbuf *out);
/* Receives a down message, which is copied. -EBADMSG, -EPROTO, -ENOMEM: the world is
 * broken. */
int member_receive(struct member *m, const void *p, size_t n, struct err *err);

/* Sets *ret to what to do now. Carry it out before the next call. may_offer false:
 * begin no agreement unless one is needed; for a caller that delays the next offer
 * after an empty agreement, or that gathers more tensors. An error breaks the world. */
int member_next(struct member *m,
                bool may_offer,
                struct member_act *ret,
                struct err *err);
/* Passes the result of the agreement. *ret_is_empty: no rank leaves the plan, and the
 * ranks have no tensor in common. */
int member_agreed(struct member *m, const uint64_t *words, bool *ret_is_empty);
/* Leaves the plan with the next agreement: this rank has waited too long, or shuts
 * down. */
void member_leave_plan(struct member *m);
bool member_is_agreeing(const struct member *m); /* between AGREE and member_agreed */
bool member_is_in_plan(const struct member *m);
uint32_t member_plan_size(const struct member *m); /* tensors; 0: no plan */
bool member_has_offer(const struct member *m);     /* in a plan, not in an agreement */
/* In a plan: has this rank submitted all tensors of the step, so that waiting adds
 * none? */
bool member_has_whole_plan(const struct member *m);
bool member_has_todo(const struct member *m); /* answers not carried out yet */

/* The name of a tensor that other ranks wait for and this rank has not submitted,
 * returned once; or NULL. Valid until the next member_receive. */
const char *member_is_late(struct member *m);

/* Sets which process sets exist and whether this rank is in them. Set 0 and pairs are
 * known. */
int member_set_added(struct member *m, uint32_t id, bool is_in);
void member_set_removed(struct member *m, uint32_t id);

struct member_counts {           /* since member_new */
    uint64_t n_hits, n_requests; /* tensors sent as a bit; in full */
    uint64_t n_planned;          /* tensors carried out by a plan */
    uint64_t n_before_plan;      /* those of earlier plans than the last one */
    uint64_t n_rounds, n_empty;  /* agreements; empty ones */
    uint64_t n_plans, n_leaves;
    uint64_t n_up, n_down; /* messages */
};
struct member_counts member_counts(const struct member *m);

#endif
