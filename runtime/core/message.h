/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other about work: requests (a rank has this tensor) and
 * responses (all ranks have it: do it, or fail it with this sentence), and their wire
 * form. Pure.
 *
 * Wire form, little endian: "version kind 0 0", then entries until the end of the
 * message. The frame around it (length, MAC) is control/frame.h's. A reader takes
 * nothing on trust: every length, enum, dimension and product is checked before it is
 * used. */
#ifndef RUNTIME_CORE_MESSAGE_H
#define RUNTIME_CORE_MESSAGE_H

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/core/types.h"
#include "runtime/core/wire.h"

#define MESSAGE_VERSION   1
#define MESSAGE_MAX_BYTES (16u << 20)
#define MESSAGE_TEXT_MAX  480

enum message_kind {
    MESSAGE_REQUESTS = 1,
    MESSAGE_RESPONSES = 2,
    /* 3: bits of the response cache, when it exists */
};

struct request {
    enum collective coll;
    enum dtype dtype;
    enum reduce_op op;
    uint32_t root;        /* broadcast, reduce, gather: a global rank */
    uint32_t process_set; /* 0: all ranks. SET_REMOVE: the set that goes */
    uint64_t group;       /* hash of the group's name, 0: none */
    uint32_t group_n;     /* tensors of the group */
    double prescale, postscale;
    uint32_t ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    char name[TENSOR_NAME_MAX];
};

enum response_kind { RESPONSE_RUN, RESPONSE_FAIL, RESPONSE_KIND_COUNT };

struct response {
    enum response_kind kind;
    enum collective coll;
    bool fuse_next; /* this one and the next travel in one batch */
    char name[TENSOR_NAME_MAX];
    uint32_t n_counts;           /* allgather: number of ranks, else 0 */
    const uint64_t *counts;      /* allgather: dimension 0 of every rank's tensor */
    char text[MESSAGE_TEXT_MAX]; /* RESPONSE_FAIL: the sentence */
};

/* Elements and bytes of a tensor; -EINVAL when a dimension is negative or the product
 * exceeds 2^62 bytes. ret may be NULL. */
int request_size(const struct request *r,
                 uint64_t *ret_count,
                 uint64_t *ret_bytes,
                 struct err *err);

/* Bit for bit, so that a NaN agrees with itself. */
bool request_same_scales(const struct request *a, const struct request *b);

/* Writers append to b; its status tells about memory and its bound. */
void message_begin(struct strbuf *b, enum message_kind kind);
void message_put_request(struct strbuf *b, const struct request *r);
void message_put_response(struct strbuf *b, const struct response *r);

struct message_reader {
    struct wire_reader in;
    enum message_kind kind;
};
/* p must outlive the reader. -EPROTO other version, -EBADMSG malformed. */
int message_open(struct message_reader *r, const void *p, size_t n, struct err *err);
/* 1: *ret is filled; 0: end of the message; -EBADMSG with a sentence. */
int message_next_request(struct message_reader *r,
                         struct request *ret,
                         struct err *err);
/* counts has room for n_ranks; ret->counts points at it when there are any. */
int message_next_response(struct message_reader *r,
                          uint64_t *counts,
                          uint32_t n_ranks,
                          struct response *ret,
                          struct err *err);

#endif
