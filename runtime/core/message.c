/* SPDX-License-Identifier: Apache-2.0 */
/* Wire form of requests and responses. Written by the coordinator of each rank
 * (requests) and of rank 0 (responses); read on the other side, and by the fuzz target.
 *
 *   request   coll dtype op ndim | root process_set (u32) | prescale postscale (f64
 * bits) | shape (i64 x ndim) | name response  kind coll fuse_next 0 | name | n_counts
 * (u32) counts (u64 x n) | text name/text u16 length, bytes without NUL
 *
 * Invariant: what a writer writes a reader reads back equal, and a reader never reads
 * beyond n. */
#include "runtime/core/message.h"

#include <errno.h>
#include <string.h>

void message_begin(struct strbuf *b, enum message_kind kind)
{
    wire_put(b, MESSAGE_VERSION, 1);
    wire_put(b, (uint32_t)kind, 1);
    wire_put(b, 0, 2);
}

void message_put_request(struct strbuf *b, const struct request *r)
{
    wire_put(b, (uint32_t)r->coll, 1);
    wire_put(b, (uint32_t)r->dtype, 1);
    wire_put(b, (uint32_t)r->op, 1);
    wire_put(b, r->ndim, 1);
    wire_put(b, r->root, 4);
    wire_put(b, r->process_set, 4);
    wire_put_f64(b, r->prescale);
    wire_put_f64(b, r->postscale);
    for (uint32_t i = 0; i < r->ndim && i < TENSOR_MAX_DIMS; i++)
        wire_put(b, (uint64_t)r->shape[i], 8);
    wire_put_text(b, r->name, sizeof(r->name));
}

void message_put_response(struct strbuf *b, const struct response *r)
{
    wire_put(b, (uint32_t)r->kind, 1);
    wire_put(b, (uint32_t)r->coll, 1);
    wire_put(b, r->fuse_next, 1);
    wire_put(b, 0, 1);
    wire_put_text(b, r->name, sizeof(r->name));
    wire_put(b, r->n_counts, 4);
    for (uint32_t i = 0; i < r->n_counts; i++)
        wire_put(b, r->counts[i], 8);
    wire_put_text(b, r->text, sizeof(r->text));
}

/* --- reading --- */

static int malformed(const struct message_reader *r, const char *what, struct err *err)
{
    return err_set(err, -EBADMSG, "control message: bad %s at offset %zu of %zu", what,
                   r->in.at, r->in.n);
}

int message_open(struct message_reader *r, const void *p, size_t n, struct err *err)
{
    uint64_t version, kind, zero;

    *r = (struct message_reader){.in = {.p = p, .n = n}};
    if (!wire_get(&r->in, 1, &version) || !wire_get(&r->in, 1, &kind)
        || !wire_get(&r->in, 2, &zero))
        return malformed(r, "header", err);
    if (version != MESSAGE_VERSION)
        return err_set(err, -EPROTO,
                       "control message: version %u of a peer, this library speaks %u",
                       (unsigned)version, MESSAGE_VERSION);
    if (zero != 0 || (kind != MESSAGE_REQUESTS && kind != MESSAGE_RESPONSES))
        return malformed(r, "kind", err);
    r->kind = (enum message_kind)kind;
    return 0;
}

int request_size(const struct request *r,
                 uint64_t *ret_count,
                 uint64_t *ret_bytes,
                 struct err *err)
{
    uint64_t count = 1, bytes;

    for (uint32_t i = 0; i < r->ndim; i++) {
        if (r->shape[i] < 0)
            return err_set(err, -EINVAL, "shape: dimension %u is %lld, must be >= 0", i,
                           (long long)r->shape[i]);
        if (__builtin_mul_overflow(count, (uint64_t)r->shape[i], &count))
            return err_set(err, -EINVAL, "shape: more than 2^64 elements");
    }
    if (__builtin_mul_overflow(count, (uint64_t)dtype_size(r->dtype), &bytes)
        || bytes > 1ull << 62)
        return err_set(err, -EINVAL, "shape: more than 2^62 bytes");
    if (ret_count)
        *ret_count = count;
    if (ret_bytes)
        *ret_bytes = bytes;
    return 0;
}

static uint64_t bits_of(double d)
{
    uint64_t v;

    memcpy(&v, &d, sizeof(v));
    return v;
}

bool request_same_scales(const struct request *a, const struct request *b)
{
    return bits_of(a->prescale) == bits_of(b->prescale)
           && bits_of(a->postscale) == bits_of(b->postscale);
}

static bool get_params(struct message_reader *r, struct request *ret)
{
    uint64_t coll, dtype, op, ndim, root, set;

    if (!wire_get(&r->in, 1, &coll) || !wire_get(&r->in, 1, &dtype)
        || !wire_get(&r->in, 1, &op) || !wire_get(&r->in, 1, &ndim)
        || !wire_get(&r->in, 4, &root) || !wire_get(&r->in, 4, &set)
        || !wire_get_f64(&r->in, &ret->prescale)
        || !wire_get_f64(&r->in, &ret->postscale))
        return false;
    if (coll >= COLL_COUNT || dtype >= DT_COUNT || op >= OP_COUNT
        || ndim > TENSOR_MAX_DIMS)
        return false;
    ret->coll = (enum collective)coll;
    ret->dtype = (enum dtype)dtype;
    ret->op = (enum reduce_op)op;
    ret->ndim = (uint32_t)ndim;
    ret->root = (uint32_t)root;
    ret->process_set = (uint32_t)set;
    return true;
}

int message_next_request(struct message_reader *r, struct request *ret, struct err *err)
{
    uint64_t v;

    if (r->in.at == r->in.n)
        return 0;
    memset(ret, 0, sizeof(*ret));
    if (!get_params(r, ret))
        return malformed(r, "request", err);
    for (uint32_t i = 0; i < ret->ndim; i++) {
        if (!wire_get(&r->in, 8, &v))
            return malformed(r, "shape", err);
        ret->shape[i] = (int64_t)v;
    }
    if (request_size(ret, NULL, NULL, NULL) < 0)
        return malformed(r, "shape", err);
    if (!wire_get_text(&r->in, ret->name, sizeof(ret->name)) || ret->name[0] == 0)
        return malformed(r, "name", err);
    return 1;
}

static int get_counts(struct message_reader *r,
                      uint64_t *counts,
                      uint32_t n_ranks,
                      struct response *ret,
                      struct err *err)
{
    uint64_t n;

    if (!wire_get(&r->in, 4, &n) || (n != 0 && n != n_ranks))
        return malformed(r, "number of counts", err);
    for (uint64_t i = 0; i < n; i++)
        if (!wire_get(&r->in, 8, &counts[i]) || counts[i] > INT64_MAX)
            return malformed(r, "count", err);
    ret->n_counts = (uint32_t)n;
    ret->counts = n > 0 ? counts : NULL;
    if (ret->kind == RESPONSE_RUN && (ret->coll == COLL_ALLGATHER) != (n > 0))
        return malformed(r, "number of counts", err);
    return 0;
}

int message_next_response(struct message_reader *r,
                          uint64_t *counts,
                          uint32_t n_ranks,
                          struct response *ret,
                          struct err *err)
{
    uint64_t kind, coll, fuse, zero;
    int rc;

    if (r->in.at == r->in.n)
        return 0;
    ret->counts = NULL;
    if (!wire_get(&r->in, 1, &kind) || !wire_get(&r->in, 1, &coll)
        || !wire_get(&r->in, 1, &fuse) || !wire_get(&r->in, 1, &zero)
        || kind >= RESPONSE_KIND_COUNT || coll >= COLL_COUNT || fuse > 1 || zero != 0)
        return malformed(r, "response", err);
    ret->kind = (enum response_kind)kind;
    ret->coll = (enum collective)coll;
    ret->fuse_next = fuse != 0;
    if (!wire_get_text(&r->in, ret->name, sizeof(ret->name)) || ret->name[0] == 0)
        return malformed(r, "name", err);
    rc = get_counts(r, counts, n_ranks, ret, err);
    if (rc < 0)
        return rc;
    if (!wire_get_text(&r->in, ret->text, sizeof(ret->text)))
        return malformed(r, "text", err);
    return 1;
}
