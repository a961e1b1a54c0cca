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

static void put_u8(struct strbuf *b, uint32_t v)
{
    strbuf_putc(b, (char)(uint8_t)v);
}

static void put_le(struct strbuf *b, uint64_t v, size_t n)
{
    char raw[8];

    for (size_t i = 0; i < n; i++)
        raw[i] = (char)(uint8_t)(v >> (8 * i));
    strbuf_add(b, raw, n);
}

static void put_f64(struct strbuf *b, double d)
{
    uint64_t v;

    memcpy(&v, &d, sizeof(v));
    put_le(b, v, 8);
}

static void put_text(struct strbuf *b, const char *s, size_t max)
{
    size_t n = strnlen(s, max - 1);

    put_le(b, n, 2);
    strbuf_add(b, s, n);
}

void message_begin(struct strbuf *b, enum message_kind kind)
{
    put_u8(b, MESSAGE_VERSION);
    put_u8(b, (uint32_t)kind);
    put_le(b, 0, 2);
}

void message_put_request(struct strbuf *b, const struct request *r)
{
    put_u8(b, (uint32_t)r->coll);
    put_u8(b, (uint32_t)r->dtype);
    put_u8(b, (uint32_t)r->op);
    put_u8(b, r->ndim);
    put_le(b, r->root, 4);
    put_le(b, r->process_set, 4);
    put_f64(b, r->prescale);
    put_f64(b, r->postscale);
    for (uint32_t i = 0; i < r->ndim && i < TENSOR_MAX_DIMS; i++)
        put_le(b, (uint64_t)r->shape[i], 8);
    put_text(b, r->name, sizeof(r->name));
}

void message_put_response(struct strbuf *b, const struct response *r)
{
    put_u8(b, (uint32_t)r->kind);
    put_u8(b, (uint32_t)r->coll);
    put_u8(b, r->fuse_next);
    put_u8(b, 0);
    put_text(b, r->name, sizeof(r->name));
    put_le(b, r->n_counts, 4);
    for (uint32_t i = 0; i < r->n_counts; i++)
        put_le(b, r->counts[i], 8);
    put_text(b, r->text, sizeof(r->text));
}

/* --- reading --- */

static bool get_le(struct message_reader *r, size_t n, uint64_t *ret)
{
    uint64_t v = 0;

    if (r->n - r->at < n)
        return false;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)r->p[r->at + i] << (8 * i);
    r->at += n;
    *ret = v;
    return true;
}

static bool get_f64(struct message_reader *r, double *ret)
{
    uint64_t v;

    if (!get_le(r, 8, &v))
        return false;
    memcpy(ret, &v, sizeof(v));
    return true;
}

static bool get_text(struct message_reader *r, char *ret, size_t max)
{
    uint64_t n;

    if (!get_le(r, 2, &n) || n >= max || r->n - r->at < n)
        return false;
    if (n > 0 && memchr(r->p + r->at, 0, n))
        return false;
    memcpy(ret, r->p + r->at, n);
    ret[n] = 0;
    r->at += n;
    return true;
}

static int malformed(const struct message_reader *r, const char *what, struct err *err)
{
    return err_set(err, -EBADMSG, "control message: bad %s at offset %zu of %zu", what,
                   r->at, r->n);
}

int message_open(struct message_reader *r, const void *p, size_t n, struct err *err)
{
    uint64_t version, kind, zero;

    *r = (struct message_reader){.p = p, .n = n};
    if (!get_le(r, 1, &version) || !get_le(r, 1, &kind) || !get_le(r, 2, &zero))
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

static bool get_params(struct message_reader *r, struct request *ret)
{
    uint64_t coll, dtype, op, ndim, root, set;

    if (!get_le(r, 1, &coll) || !get_le(r, 1, &dtype) || !get_le(r, 1, &op)
        || !get_le(r, 1, &ndim) || !get_le(r, 4, &root) || !get_le(r, 4, &set)
        || !get_f64(r, &ret->prescale) || !get_f64(r, &ret->postscale))
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

    if (r->at == r->n)
        return 0;
    memset(ret, 0, sizeof(*ret));
    if (!get_params(r, ret))
        return malformed(r, "request", err);
    for (uint32_t i = 0; i < ret->ndim; i++) {
        if (!get_le(r, 8, &v))
            return malformed(r, "shape", err);
        ret->shape[i] = (int64_t)v;
    }
    if (request_size(ret, NULL, NULL, NULL) < 0)
        return malformed(r, "shape", err);
    if (!get_text(r, ret->name, sizeof(ret->name)) || ret->name[0] == 0)
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

    if (!get_le(r, 4, &n) || (n != 0 && n != n_ranks))
        return malformed(r, "number of counts", err);
    for (uint64_t i = 0; i < n; i++)
        if (!get_le(r, 8, &counts[i]) || counts[i] > INT64_MAX)
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

    if (r->at == r->n)
        return 0;
    ret->counts = NULL;
    if (!get_le(r, 1, &kind) || !get_le(r, 1, &coll) || !get_le(r, 1, &fuse)
        || !get_le(r, 1, &zero) || kind >= RESPONSE_KIND_COUNT || coll >= COLL_COUNT
        || fuse > 1 || zero != 0)
        return malformed(r, "response", err);
    ret->kind = (enum response_kind)kind;
    ret->coll = (enum collective)coll;
    ret->fuse_next = fuse != 0;
    if (!get_text(r, ret->name, sizeof(ret->name)) || ret->name[0] == 0)
        return malformed(r, "name", err);
    rc = get_counts(r, counts, n_ranks, ret, err);
    if (rc < 0)
        return rc;
    if (!get_text(r, ret->text, sizeof(ret->text)))
        return malformed(r, "text", err);
    return 1;
}
