/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's table of tensors: which ranks have submitted them, whether they agree, and
 * which are ready on all ranks of their process set. It writes one stream of answers
 * for all process sets, which every rank carries out in order, so that overlapping sets
 * cannot deadlock. Pure; time is passed as now_ns. One thread at a time. */
#ifndef RUNTIME_CORE_NEGOTIATE_H
#define RUNTIME_CORE_NEGOTIATE_H

#include "runtime/core/message.h"
#include "runtime/core/set_id.h"

#define NEGOTIATE_MAX_PENDING (1u << 20)  /* names; more are refused */
#define NEGOTIATE_MAX_SETS    SET_NUMBERS /* at one time, the world included */

struct negotiate_config {
    uint32_t n_ranks;
    uint64_t fusion_bytes;   /* bound of a batch; 0: no fusion */
    uint32_t cache_capacity; /* slots of the response cache; 0: none, and no plan */
    bool may_freeze;         /* the backend can agree */
    bool fuses_groups_apart; /* a batch holds tensors of one group only */
    /* Called for each tensor that a rank has submitted. May be NULL. */
    void (*on_request)(void *arg, uint32_t rank, const struct tensor_request *req);
    void *on_request_arg;
};

struct negotiate;

int negotiate_new(const struct negotiate_config *cfg, struct negotiate **ret);
void negotiate_free(struct negotiate *n); /* accepts NULL */

/* Handles the message `in` of rank `rank`, which is opened and of kind MESSAGE_UP.
 * Errors break the world: -EPROTO (a name submitted twice, an impossible request),
 * -EBADMSG, -E2BIG, -ENOMEM. A disagreement between ranks is not an error: that
 * operation fails on every rank once all have submitted it. */
int negotiate_receive(struct negotiate *n,
                      uint32_t rank,
                      struct message_reader *in,
                      uint64_t now_ns,
                      struct err *err);
/* Handles one tensor of a rank, as negotiate_receive does. */
int negotiate_add(struct negotiate *n,
                  uint32_t rank,
                  const struct tensor_request *req,
                  uint64_t now_ns,
                  struct err *err);

bool negotiate_has_news(const struct negotiate *n); /* a message is due */
/* The number of tensors that some ranks have submitted and others have not. */
size_t negotiate_pending(const struct negotiate *n);

/* Writes the next down message, message_begin_down included: ready tensors in the order
 * of readiness, fused. Repeat while negotiate_has_news. Every rank receives every
 * message, rank 0 too. -ENOMEM, -E2BIG: out is invalid and the world must be broken. */
int negotiate_write(struct negotiate *n, struct strbuf *out);

/* The next message reports the oldest pending tensor to the ranks that have not
 * submitted it. Nothing if none is pending. */
void negotiate_report_late(struct negotiate *n);

/* The next message contains these settings, and its answers are fused by them. All
 * ranks leave the current plan. */
void negotiate_tune(struct negotiate *n, const struct tuning *t);

struct negotiate_counts {        /* since the beginning */
    uint64_t n_hits, n_requests; /* tensors received as a bit; in full */
    uint64_t n_messages, n_plans, n_leaves;
    uint32_t n_needs; /* equal steps that the next plan needs; 0: no plans */
};
struct negotiate_counts negotiate_counts(const struct negotiate *n);

/* Visits pending tensors from the oldest to the newest until fn returns false. */
struct negotiate_view {
    const char *name;
    enum collective coll;
    uint32_t process_set;
    uint64_t since_ns;
    uint32_t n_ranks;   /* of the world */
    uint32_t n_missing; /* 0: waits for the rest of its group */
    const struct negotiate *n;
    const void *pending;
};
typedef bool (*negotiate_walk_fn)(void *arg, const struct negotiate_view *v);
void negotiate_walk(const struct negotiate *n, negotiate_walk_fn fn, void *arg);
bool negotiate_is_missing(const struct negotiate_view *v, uint32_t rank);
bool negotiate_is_submitted(const struct negotiate_view *v, uint32_t rank);

/* When one of these ranks last submitted a tensor, or a process set that contains one
 * of them last had a tensor that was ready. is_in: one entry per rank of the world. */
uint64_t negotiate_active_ns(const struct negotiate *n, const bool *is_in);
uint32_t negotiate_n_ranks(const struct negotiate *n);

#endif
