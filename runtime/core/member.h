/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's part of the negotiation, rank 0's own too: tells rank 0 what it has, reads
 * the one stream of answers, and, while a plan lasts, only agrees with the others. Says
 * what to do next; does nothing itself. Pure. One thread at a time.
 *
 *   member_submit -> member_take_up -> rank 0 -> member_receive -> member_next -> RUN
 * ... plan:  member_next -> AGREE words -> member_agreed -> member_next -> RUN
 *
 * The plan. Between the answers FREEZE and the moment all leave it, no rank sends
 * requests. A rank that has something of the plan offers it in an agreement (bitwise
 * AND over all ranks); what all have is carried out in the plan's order. Tensors of
 * process sets are in it too: all ranks hear which of them are agreed, so that all see
 * the same batches, and a rank skips those of sets that it is not in. A rank that
 * has something else, or finds an answer behind FREEZE, says so in the agreement and,
 * so that idle ranks come too, to rank 0, which tells all: then all leave at the same
 * agreement, none of whose tensors is carried out, and everything open is submitted to
 * rank 0 again. */
#ifndef RUNTIME_CORE_MEMBER_H
#define RUNTIME_CORE_MEMBER_H

#include "runtime/core/message.h"
#include "runtime/core/nametab.h"

struct member_op {            /* sits in the caller's operation; zeroed */
    struct nametab_node node; /* the member's; first */
    const struct tensor_request
        *req; /* the caller's; constant until the op is handed out */
    struct member_op *prev, *next;
    uint32_t place; /* in the plan */
    bool is_sent, is_planned;
};

struct member_item {
    struct member_op *op; /* NULL: this rank has joined, it takes part with zeros */
    const struct tensor_request
        *req; /* op's, or rank 0's; valid until the next member_next */
};

enum member_kind {
    MEMBER_NOTHING,
    MEMBER_RUN,   /* items, all of one batch */
    MEMBER_FAIL,  /* items[0].op fails with text */
    MEMBER_JOIN,  /* items[0].op ends: all have joined, last_joined last */
    MEMBER_TUNE,  /* tuning counts from here on */
    MEMBER_AGREE, /* words: begin an agreement; its result goes to member_agreed */
    MEMBER_PAIR,  /* all ranks meet for the pair (pair.h) set_id */
    MEMBER_SET,   /* others' new set: all ranks meet for set_id; items[0].req->set */
};
struct member_act { /* valid until the next call of member_next or member_agreed */
    enum member_kind kind;
    const struct member_item *items;
    size_t n_items;
    const uint64_t
        *counts; /* RUN of allgather and gather: rows of each rank of the set */
    uint32_t n_counts;
    uint32_t set_id; /* RUN of SET_ADD: the new set; PAIR, SET */
    uint32_t last_joined;
    const char *text;
    const struct tuning *tuning;
    const uint64_t *words;
    uint32_t n_words;
    bool calls; /* AGREE: the others shall come, even if they have nothing themselves */
};

struct member;

int member_new(uint32_t rank, uint32_t n_ranks, struct member **ret);
void member_free(struct member *m); /* accepts NULL; ops stay with their owners */

/* op->req is set. 0; -ENOMEM; -EBUSY: this rank has joined and waits for the others.
 * The op is the member's until member_next hands it out. */
int member_submit(struct member *m, struct member_op *op);
/* The next message for rank 0 into out (cleared first). False: there is none. out's
 * status is to be checked. */
bool member_take_up(struct member *m, struct strbuf *out);
/* A down message (copied). -EBADMSG, -EPROTO, -ENOMEM break the world. */
int member_receive(struct member *m, const void *p, size_t n, struct err *err);

/* What to do now. An act is to be carried out before the next call. may_offer false: no
 * agreement that is not needed is begun (the last one found nothing in common, and the
 * caller waits a little, or gathers more). call counts in a plan with sets only: an
 * agreement that is called for is joined by all, one that is merely begun by whoever
 * waits for something. Errors break the world. */
int member_next(struct member *m,
                bool may_offer,
                enum agree_call call,
                struct member_act *ret,
                struct err *err);
/* The agreement's result. *ret_is_empty: nobody leaves, and nothing is common to all.
 */
int member_agreed(struct member *m, const uint64_t *words, bool *ret_is_empty);
/* Leave the plan with the next agreement (this rank waits for long, or shuts down). */
void member_leave_plan(struct member *m);
bool member_is_agreeing(const struct member *m); /* between AGREE and member_agreed */
bool member_is_in_plan(const struct member *m);
uint32_t member_plan_size(const struct member *m); /* this rank's tensors of the plan */
bool member_has_offer(const struct member *m);     /* of a plan, outside an agreement */
/* In a plan: this rank has all that is still to come of it, so nothing joins them. */
bool member_has_whole_plan(const struct member *m);
/* Is this a plan with tensors of process sets, in which others' agreements must be
 * looked for? */
bool member_has_set_plan(const struct member *m);
/* In such a plan, with nothing to say: may others count this rank's words in agreements
 * to come, without it? They are *ret_words[0..*ret_n), valid until the next call. */
bool member_standing_words(struct member *m,
                           const uint64_t **ret_words,
                           uint32_t *ret_n);
/* They have: the last of these agreements is at hand. */
void member_resume(struct member *m);
uint32_t member_plan_no(const struct member *m); /* of the plan; 0: in none */
/* During an agreement: has something of a set come that waits for the next one? */
bool member_wants_call(const struct member *m);
bool member_has_todo(const struct member *m); /* answers that are not carried out yet */

/* Others wait for a tensor that this rank has not submitted: its name, told once, valid
 * until the next member_receive; or NULL. */
const char *member_is_late(struct member *m);

/* What a process set's answers mean to this rank. Set 0 and pairs are known. */
int member_set_added(struct member *m, uint32_t id, bool is_in);
void member_set_removed(struct member *m, uint32_t id);

struct member_counts {           /* since the beginning */
    uint64_t n_hits, n_requests; /* tensors sent as a bit, whole */
    uint64_t n_planned;          /* tensors carried out by a plan */
    uint64_t n_rounds, n_empty;  /* agreements, those without anything in common */
    uint64_t n_plans, n_leaves;
    uint64_t n_up, n_down; /* messages */
};
struct member_counts member_counts(const struct member *m);

#endif
