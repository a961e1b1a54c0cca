/* SPDX-License-Identifier: Apache-2.0 */
/* The messages about work between ranks, and their wire form. Pure.
 *
 *   up    every rank -> rank 0      a tensor was submitted (in full, or as a bit of the
 *                                   response cache); this rank must leave the plan
 *   down  rank 0 -> all, one order  carry out a tensor, or fail it with an error
 *                                   message; all ranks have joined; start a plan; leave
 *                                   the plan; connect a pair of ranks; a tensor is
 *                                   late; use new settings
 *
 * A message is "version kind 0 0", in an up message a u64 (the number of down messages
 * that this rank had received), then entries until its end; message.c lists them.
 * Everything is little endian. The frame around a message (length, MAC) is
 * wire/frame.h's.
 *
 * A reader checks every length, enum, dimension and product before it is used. */
#ifndef RUNTIME_CORE_MESSAGE_H
#define RUNTIME_CORE_MESSAGE_H

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/core/tuning.h"
#include "runtime/core/types.h"
#include "runtime/wire/bytes.h"

#define MESSAGE_VERSION   8
#define MESSAGE_MAX_BYTES (16u << 20)
#define MESSAGE_TEXT_MAX  480
#define SLOTS_MAX         65536u /* of the response cache */
#define SLOT_NONE         UINT32_MAX
#define SET_MAX_RANKS     65536u
#define REQUEST_CODEC_MAX 80 /* as CODEC_TEXT_MAX */
#define REQUEST_WHY_MAX   160
#define REGION_MAX        255u /* registered buffers of a process set; 0: none */

/* Which ranks submit a SET_ADD: all ranks of the world, or those of the new set. */
enum set_callers { SET_BY_ALL, SET_BY_MEMBERS };

enum message_kind { MESSAGE_UP = 1, MESSAGE_DOWN = 2 };

struct tensor_request {
    enum collective coll;
    enum dtype dtype;
    enum reduce_op op;
    uint32_t
        root; /* broadcast, reduce, gather, sendrecv (the sender): a rank of the world.
 * SET_REMOVE: the set. SET_ADD: enum set_callers. REGISTER: 0, or the
 * region to deregister */
    /* 0: all ranks; always 0 for SET_ADD, SET_REMOVE and JOIN. SENDRECV: a pair. */
    uint32_t process_set;
    uint64_t group;   /* hash of the group's name, 0: none */
    uint32_t group_n; /* tensors of the group */
    double prescale, postscale;
    enum memory_place place;
    uint32_t region; /* the registered buffer that a GPU tensor lies in, 0: none */
    uint32_t ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    /* SET_ADD: the ranks, ascending, n_set numbers of 4 bytes, little endian. Borrowed
     * from the creator of the request or from the message it was read from. */
    uint32_t n_set;
    const uint8_t *set;
    char name[TENSOR_NAME_MAX];
    char codec[REQUEST_CODEC_MAX]; /* allreduce: as codec_format writes it; "": none */
    /* A tensor in host memory because this rank has no GPU: the reason. Part of the
     * mismatch error only. */
    char no_gpu[REQUEST_WHY_MAX];
};

/* Elements and bytes of a tensor; -EINVAL when a dimension is negative or the product
 * exceeds 2^62 bytes. ret may be NULL. */
int request_size(const struct tensor_request *r,
                 uint64_t *ret_count,
                 uint64_t *ret_bytes,
                 struct err *err);
/* Compares the bits, so that a NaN equals itself. */
bool request_same_scales(const struct tensor_request *a,
                         const struct tensor_request *b);
/* Does the answer of a serve b? All fields but set and no_gpu are equal. */
bool request_same(const struct tensor_request *a, const struct tensor_request *b);
/* May ranks differ in dimension 0, so that the answer contains it? */
bool request_has_counts(const struct tensor_request *r);
/* May ranks differ in dimension 0? As request_has_counts, and alltoall. */
bool request_has_rows(const struct tensor_request *r);
uint32_t request_set_rank(const struct tensor_request *r, uint32_t i); /* i < n_set */
bool request_set_has(const struct tensor_request *r, uint32_t rank);
/* Is this a SET_ADD that only the ranks of the new set submit? */
bool request_by_members(const struct tensor_request *r);

/* --- up --- */

enum up_kind {
    UP_REQUEST = 1,
    UP_HITS = 2, /* bits of the response cache: the tensor as last answered */
    UP_LEAVE = 3 /* this rank must leave plan number `plan` */
};
struct up {
    enum up_kind kind;
    struct tensor_request req; /* UP_REQUEST */
    uint32_t first;            /* UP_HITS: slot of the first bit, a multiple of 64 */
    uint32_t n_words;          /* UP_HITS */
    const uint8_t *words;      /* UP_HITS: 8 bytes each; up_word() reads one */
    uint32_t plan;             /* UP_LEAVE */
    uint32_t n_steps;          /* UP_LEAVE: steps that the plan lasted */
};

/* --- down --- */

enum down_kind {
    DOWN_RUN = 1,
    DOWN_FAIL = 2,
    DOWN_JOINED = 3, /* all ranks have joined; req.root: the last of them */
    DOWN_FREEZE = 4, /* `slots`, in this order, are plan number `plan` */
    DOWN_LEAVE = 5,  /* all ranks leave plan number `plan` */
    DOWN_LATE = 6,   /* other ranks wait for req.name */
    DOWN_PAIR = 7,   /* all ranks connect `pair`: its first transfer follows */
    DOWN_TUNE = 8    /* use `tuning` from here on */
};
struct down {
    enum down_kind kind;
    bool fuse_next; /* RUN: in one batch with the next entry */
    bool has_req;   /* req is set; always in FAIL. RUN without it: the slot's request */
    uint32_t slot;  /* RUN: the slot of the tensor from now on; or SLOT_NONE */
    struct tensor_request req;
    /* RUN of a collective whose dimension 0 differs: that of each rank of the set.
     * Absent when it is the same as in the slot's last answer. */
    uint32_t n_counts;
    const uint64_t *counts;
    char text[MESSAGE_TEXT_MAX]; /* FAIL: the error message */
    uint32_t plan;               /* FREEZE, LEAVE */
    uint32_t pair;               /* PAIR */
    uint64_t fusion_bytes;       /* FREEZE: bound of a batch while the plan lasts */
    uint32_t n_slots;
    const uint8_t *slots; /* FREEZE: 4 bytes each; down_slot() reads one */
    struct tuning tuning; /* TUNE */
};

/* Writers append to b. Check strbuf_status(b) afterwards. */
void message_begin_up(struct strbuf *b, uint64_t n_seen);
void message_begin_down(struct strbuf *b);
void message_put_request(struct strbuf *b, const struct tensor_request *r);
void message_put_hits(struct strbuf *b,
                      uint32_t first,
                      const uint64_t *words,
                      uint32_t n_words);
void message_put_leave(struct strbuf *b, uint32_t plan, uint32_t n_steps);
void message_put_down(struct strbuf *b, const struct down *d);

struct message_reader {
    struct bytes_reader in;
    const uint8_t *start; /* of the message, which has n bytes */
    size_t n;
    enum message_kind kind;
    uint64_t n_seen; /* MESSAGE_UP */
};
/* p must outlive the reader. -EPROTO other version, -EBADMSG malformed. */
int message_open(struct message_reader *r, const void *p, size_t n, struct err *err);
/* 1: *ret is set; 0: end of the message; -EBADMSG. */
int message_next_up(struct message_reader *r, struct up *ret, struct err *err);
/* counts has room for n_ranks; ret->counts points at it when there are any. */
int message_next_down(struct message_reader *r,
                      uint64_t *counts,
                      uint32_t n_ranks,
                      struct down *ret,
                      struct err *err);

uint64_t up_word(const struct up *u, uint32_t i);     /* i < n_words */
uint32_t down_slot(const struct down *d, uint32_t i); /* i < n_slots */

#endif
