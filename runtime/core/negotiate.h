/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's table of tensors: which ranks have submitted them, do they agree, and which
 * are ready on all ranks of their process set. Writes the one stream of answers that
 * every rank carries out in its order, those of all process sets in it, so that
 * overlapping sets cannot wait for each other in a circle. Pure; time comes in as
 * now_ns. One thread at a time. */
#ifndef RUNTIME_CORE_NEGOTIATE_H
#define RUNTIME_CORE_NEGOTIATE_H

#include "runtime/core/message.h"
#include "runtime/core/set_id.h"

#define NEGOTIATE_MAX_PENDING                                                          \
    (1u << 20)                         /* names; a rank that invents more is refused */
#define NEGOTIATE_MAX_SETS SET_NUMBERS /* at one time, the world included */

struct negotiate_config {
    uint32_t n_ranks;
    uint64_t fusion_bytes;   /* bound of a batch; 0: no fusion */
    uint32_t cache_capacity; /* slots of the response cache; 0: none, and no plan */
    bool may_freeze;         /* the backend can agree */
    bool fuses_groups_apart; /* a batch holds tensors of one group only */
    /* Told of each tensor that a rank has submitted; NULL: nobody is. */
    void (*on_request)(void *arg, uint32_t rank, const struct tensor_request *req);
    void *on_request_arg;
};

struct negotiate;

int negotiate_new(const struct negotiate_config *cfg, struct negotiate **ret);
void negotiate_free(struct negotiate *n); /* accepts NULL */

/* What rank `rank` has sent up; in: opened, of kind MESSAGE_UP. Errors break the world:
 * -EPROTO (it submitted a name twice, or something that cannot be), -EBADMSG, -E2BIG,
 * -ENOMEM. A disagreement between ranks is no error here: it fails that one operation,
 * on every rank, once all have submitted it. */
int negotiate_receive(struct negotiate *n,
                      uint32_t rank,
                      struct message_reader *in,
                      uint64_t now_ns,
                      struct err *err);
/* One tensor of rank, as negotiate_receive does it. */
int negotiate_add(struct negotiate *n,
                  uint32_t rank,
                  const struct tensor_request *req,
                  uint64_t now_ns,
                  struct err *err);

bool negotiate_has_news(const struct negotiate *n); /* is there anything to write? */
/* Submitted by some ranks, not by all. */
size_t negotiate_pending(const struct negotiate *n);

/* Writes the next down message (message_begin_down included) with what is ready, in the
 * order in which it became ready, fused; repeat while there is news. Every rank gets
 * every message, rank 0 too. -ENOMEM, -E2BIG: out holds nonsense, the world is to be
 * broken. */
int negotiate_write(struct negotiate *n, struct strbuf *out);

/* The next message tells the ranks that have not submitted the oldest pending tensor
 * that others wait for it. Nothing if none is pending. */
void negotiate_report_late(struct negotiate *n);

/* The next message tells everybody these settings; its answers are fused by them. While
 * a plan lasts all leave it. */
void negotiate_tune(struct negotiate *n, const struct tuning *t);

struct negotiate_counts {        /* since the beginning */
    uint64_t n_hits, n_requests; /* tensors that came as a bit, whole */
    uint64_t n_messages, n_plans, n_leaves;
    uint32_t n_needs; /* equal steps before the next plan; 0: there is none */
};
struct negotiate_counts negotiate_counts(const struct negotiate *n);

/* Walks pending tensors from the oldest to the newest; fn returns false to stop. */
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

#endif
