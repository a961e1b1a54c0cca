/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other about work, and its wire form. Pure.
 *
 *   up    (every rank -> rank 0)   I have this tensor: whole, or as a bit of the
 * response cache; I must leave the plan down  (rank 0 -> all, one order)   all have it:
 * do it, or fail it with this sentence; all have joined; from here on the plan; leave
 * the plan; meet for a pair of ranks
 *
 * Wire form, little endian: "version kind 0 0", up messages then a u64 (how many down
 * messages this rank had received), then entries until the end of the message. The
 * frame around it (length, MAC) is control/frame.h's. A reader takes nothing on trust:
 * every length, enum, dimension and product is checked before it is used. */
#ifndef RUNTIME_CORE_MESSAGE_H
#define RUNTIME_CORE_MESSAGE_H

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/core/tuning.h"
#include "runtime/core/types.h"
#include "runtime/core/wire.h"

#define MESSAGE_VERSION   8
#define MESSAGE_MAX_BYTES (16u << 20)
#define MESSAGE_TEXT_MAX  480
#define SLOTS_MAX         65536u /* of the response cache */
#define SLOT_NONE         UINT32_MAX
#define SET_MAX_RANKS     65536u
#define REQUEST_CODEC_MAX 80 /* as CODEC_TEXT_MAX */
#define REQUEST_WHY_MAX   160
#define REGION_MAX        255u /* registered buffers of a process set; 0: none */

/* Who submits a SET_ADD: all ranks of the world, or those of the set. */
enum set_callers { SET_BY_ALL, SET_BY_MEMBERS };

enum message_kind { MESSAGE_UP = 1, MESSAGE_DOWN = 2 };

struct tensor_request {
    enum collective coll;
    enum dtype dtype;
    enum reduce_op op;
    uint32_t root; /* broadcast, reduce, gather, sendrecv (who sends): a global rank.
                    * SET_REMOVE: the set. SET_ADD: SET_BY_... REGISTER: 0, or the
                    * region that is no longer to be one */
    /* 0: all ranks. SET_ADD, SET_REMOVE and JOIN travel in 0, SENDRECV in a pair. */
    uint32_t process_set;
    uint64_t group;   /* hash of the group's name, 0: none */
    uint32_t group_n; /* tensors of the group */
    double prescale, postscale;
    enum memory_place place;
    uint32_t region; /* of its process set, that it lies in; on a GPU */
    uint32_t ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    /* SET_ADD: the ranks, ascending, n_set numbers of 4 bytes, little endian. Borrowed:
     * of who made the request, or of the message it was read from. */
    uint32_t n_set;
    const uint8_t *set;
    char name[TENSOR_NAME_MAX];
    char codec[REQUEST_CODEC_MAX]; /* allreduce: compression as codec_format, ""none */
    /* It is in the host's memory because this rank has no GPU: why not. Told where it
     * differs from others, nothing else. */
    char no_gpu[REQUEST_WHY_MAX];
};

/* Elements and bytes of a tensor; -EINVAL when a dimension is negative or the product
 * exceeds 2^62 bytes. ret may be NULL. */
int request_size(const struct tensor_request *r,
                 uint64_t *ret_count,
                 uint64_t *ret_bytes,
                 struct err *err);
/* Bit for bit, so that a NaN agrees with itself. */
bool request_same_scales(const struct tensor_request *a,
                         const struct tensor_request *b);
/* Is b what a was, so that a's answer serves b? */
bool request_same(const struct tensor_request *a, const struct tensor_request *b);
/* Do ranks differ in dimension 0, which the response then tells? */
bool request_has_counts(const struct tensor_request *r);
/* May ranks differ in dimension 0? The same, and alltoall. */
bool request_has_rows(const struct tensor_request *r);
uint32_t request_set_rank(const struct tensor_request *r, uint32_t i); /* i < n_set */
bool request_set_has(const struct tensor_request *r, uint32_t rank);
/* Is this a SET_ADD that only the ranks of the new set submit? */
bool request_by_members(const struct tensor_request *r);

/* --- up --- */

enum up_kind {
    UP_REQUEST = 1,
    UP_HITS = 2, /* bits of the response cache: the tensor as it was last answered */
    UP_LEAVE = 3 /* this rank must leave plan number `plan` */
};
struct up {
    enum up_kind kind;
    struct tensor_request req; /* UP_REQUEST */
    uint32_t first;            /* UP_HITS: slot of the first bit, a multiple of 64 */
    uint32_t n_words;          /* UP_HITS */
    const uint8_t *words;      /* UP_HITS: 8 bytes each; up_word() reads one */
    uint32_t plan;             /* UP_LEAVE */
    uint32_t n_steps;          /* UP_LEAVE: that the plan has lasted */
};

/* --- down --- */

enum down_kind {
    DOWN_RUN = 1,
    DOWN_FAIL = 2,
    DOWN_JOINED = 3, /* all ranks have joined; req.root: the last of them */
    DOWN_FREEZE = 4, /* from here on `slots` in this order are plan number `plan` */
    DOWN_LEAVE = 5,  /* a rank must leave plan number `plan`: all do */
    DOWN_LATE = 6,   /* ranks that have not submitted req.name: others wait for it */
    DOWN_PAIR = 7,   /* the first transfer of `pair` comes: all meet for it */
    DOWN_TUNE = 8    /* from here on `tuning` */
};
struct down {
    enum down_kind kind;
    bool fuse_next; /* RUN: this one and the next travel in one batch */
    bool has_req;   /* req is filled; always in FAIL; in RUN without it: slot's */
    uint32_t slot;  /* RUN: what the tensor is from now on, or was; SLOT_NONE */
    struct tensor_request req;
    /* RUN of a collective with uneven dimension 0: that of each rank of the set, when
     * it is not the slot's as before. */
    uint32_t n_counts;
    const uint64_t *counts;
    char text[MESSAGE_TEXT_MAX]; /* FAIL: the sentence */
    uint32_t plan;               /* FREEZE, LEAVE */
    uint32_t pair;               /* PAIR */
    uint64_t fusion_bytes;       /* FREEZE: bound of a batch while the plan lasts */
    uint32_t n_slots;
    const uint8_t *slots; /* FREEZE: 4 bytes each; down_slot() reads one */
    struct tuning tuning; /* TUNE */
};

/* Writers append to b; its status tells about memory and its bound. */
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
    struct wire_reader in;
    enum message_kind kind;
    uint64_t n_seen; /* MESSAGE_UP */
};
/* p must outlive the reader. -EPROTO other version, -EBADMSG malformed. */
int message_open(struct message_reader *r, const void *p, size_t n, struct err *err);
/* 1: *ret is filled; 0: end of the message; -EBADMSG with a sentence. */
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
