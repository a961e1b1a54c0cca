/* SPDX-License-Identifier: Apache-2.0 */
/* The wire form of message.h's entries:
 *
 *   request  coll dtype op ndim place region          u8 each
 *            root process_set group_n n_set           u32 each
 *            group                                    u64
 *            prescale postscale                       f64 bits each
 *            shape                                    i64 x ndim
 *            set                                      u32 x n_set
 *            name codec no_gpu                        text each
 *
 *   up       kind                                     u32, then by kind:
 *            REQUEST  request
 *            HITS     first n_words                   u32 each; words  u64 x n_words
 *            LEAVE    plan n_steps                    u32 each
 *
 *   down     kind flags 0 0                           u8 each, then by kind:
 *            RUN      slot                            u32; request if FLAG_REQ;
 *                     n_counts                        u32; counts  u64 x n_counts
 *            FAIL     slot, request, text
 *            JOINED, LATE   slot, request
 *            FREEZE   plan n_slots                    u32 each
 *                     fusion_bytes                    u64
 *                     slots                           u32 x n_slots
 *            LEAVE    plan                            u32
 *            PAIR     pair                            u32
 *            TUNE     fusion_bytes gather_ns whole_bytes chunk_bytes   u64 each
 *
 *   text     u16 length, bytes without NUL
 *
 * Invariant: a reader returns what a writer wrote, and never reads beyond the end of
 * the message. Called by negotiate.c, member.c and the fuzz target. */
#include "runtime/core/message.h"

#include <errno.h>
#include <string.h>

#include "runtime/core/pair.h"

enum { FLAG_FUSE = 1, FLAG_REQ = 2 };

static void message_begin(struct strbuf *b, enum message_kind kind)
{
    bytes_put(b, MESSAGE_VERSION, 1);
    bytes_put(b, (uint32_t)kind, 1);
    bytes_put(b, 0, 2);
}

void message_begin_up(struct strbuf *b, uint64_t n_seen)
{
    message_begin(b, MESSAGE_UP);
    bytes_put(b, n_seen, 8);
}

void message_begin_down(struct strbuf *b)
{
    message_begin(b, MESSAGE_DOWN);
}

static void request_write(struct strbuf *b, const struct tensor_request *r)
{
    bytes_put(b, (uint32_t)r->coll, 1);
    bytes_put(b, (uint32_t)r->dtype, 1);
    bytes_put(b, (uint32_t)r->op, 1);
    bytes_put(b, r->ndim, 1);
    bytes_put(b, (uint32_t)r->place, 1);
    bytes_put(b, r->region, 1);
    bytes_put(b, r->root, 4);
    bytes_put(b, r->process_set, 4);
    bytes_put(b, r->group_n, 4);
    bytes_put(b, r->n_set, 4);
    bytes_put(b, r->group, 8);
    bytes_put_f64(b, r->prescale);
    bytes_put_f64(b, r->postscale);
    for (uint32_t i = 0; i < r->ndim && i < TENSOR_MAX_DIMS; i++)
        bytes_put(b, (uint64_t)r->shape[i], 8);
    strbuf_add(b, r->set, (size_t)r->n_set * 4);
    bytes_put_name(b, r->name, sizeof(r->name));
    bytes_put_name(b, r->codec, sizeof(r->codec));
    bytes_put_name(b, r->no_gpu, sizeof(r->no_gpu));
}

void message_put_request(struct strbuf *b, const struct tensor_request *r)
{
    bytes_put(b, UP_REQUEST, 4);
    request_write(b, r);
}

void message_put_hits(struct strbuf *b,
                      uint32_t first,
                      const uint64_t *words,
                      uint32_t n_words)
{
    bytes_put(b, UP_HITS, 4);
    bytes_put(b, first, 4);
    bytes_put(b, n_words, 4);
    for (uint32_t i = 0; i < n_words; i++)
        bytes_put(b, words[i], 8);
}

void message_put_leave(struct strbuf *b, uint32_t plan, uint32_t n_steps)
{
    bytes_put(b, UP_LEAVE, 4);
    bytes_put(b, plan, 4);
    bytes_put(b, n_steps, 4);
}

void message_put_down(struct strbuf *b, const struct down *d)
{
    bytes_put(b, (uint32_t)d->kind, 1);
    bytes_put(b, (d->fuse_next ? FLAG_FUSE : 0) | (d->has_req ? FLAG_REQ : 0), 1);
    bytes_put(b, 0, 2);
    if (d->kind == DOWN_PAIR) {
        bytes_put(b, d->pair, 4);
        return;
    }
    if (d->kind == DOWN_FREEZE || d->kind == DOWN_LEAVE) {
        bytes_put(b, d->plan, 4);
        if (d->kind == DOWN_LEAVE)
            return;
        bytes_put(b, d->n_slots, 4);
        bytes_put(b, d->fusion_bytes, 8);
        strbuf_add(b, d->slots, (size_t)d->n_slots * 4);
        return;
    }
    if (d->kind == DOWN_TUNE) {
        bytes_put(b, d->tuning.fusion_bytes, 8);
        bytes_put(b, d->tuning.gather_ns, 8);
        bytes_put(b, d->tuning.whole_bytes, 8);
        bytes_put(b, d->tuning.chunk_bytes, 8);
        return;
    }
    bytes_put(b, d->slot, 4);
    if (d->has_req)
        request_write(b, &d->req);
    if (d->kind == DOWN_RUN) {
        bytes_put(b, d->n_counts, 4);
        for (uint32_t i = 0; i < d->n_counts; i++)
            bytes_put(b, d->counts[i], 8);
    }
    if (d->kind == DOWN_FAIL)
        bytes_put_name(b, d->text, sizeof(d->text));
}

/* --- reading --- */

static int reader_report_malformed(const struct message_reader *r,
                                   const char *what,
                                   struct err *err)
{
    return err_set(err, -EBADMSG, "control message: bad %s at offset %zu of %zu", what,
                   (size_t)(r->in.p - r->start), r->n);
}

int message_open(struct message_reader *r, const void *p, size_t n, struct err *err)
{
    uint64_t version, kind, zero;

    *r = (struct message_reader){.in = {.p = p, .left = n}, .start = p, .n = n};
    if (!bytes_get(&r->in, 1, &version) || !bytes_get(&r->in, 1, &kind)
        || !bytes_get(&r->in, 2, &zero))
        return reader_report_malformed(r, "header", err);
    if (version != MESSAGE_VERSION)
        return err_set(
            err, -EPROTO,
            "control message: version %u of another rank, this library uses %u",
            (unsigned)version, MESSAGE_VERSION);
    if (zero != 0 || (kind != MESSAGE_UP && kind != MESSAGE_DOWN))
        return reader_report_malformed(r, "kind", err);
    r->kind = (enum message_kind)kind;
    if (kind == MESSAGE_UP && !bytes_get(&r->in, 8, &r->n_seen))
        return reader_report_malformed(r, "header", err);
    return 0;
}

int request_size(const struct tensor_request *r,
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

static uint64_t f64_bits(double d)
{
    uint64_t v;

    memcpy(&v, &d, sizeof(v));
    return v;
}

bool request_same_scales(const struct tensor_request *a, const struct tensor_request *b)
{
    return f64_bits(a->prescale) == f64_bits(b->prescale)
           && f64_bits(a->postscale) == f64_bits(b->postscale);
}

bool request_same(const struct tensor_request *a, const struct tensor_request *b)
{
    return a->coll == b->coll && a->dtype == b->dtype && a->op == b->op
           && a->root == b->root && a->process_set == b->process_set
           && a->place == b->place && a->region == b->region && a->group == b->group
           && a->group_n == b->group_n && a->ndim == b->ndim
           && memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0
           && a->n_set == 0 && b->n_set == 0 && request_same_scales(a, b)
           && strcmp(a->name, b->name) == 0 && strcmp(a->codec, b->codec) == 0;
}

bool request_has_counts(const struct tensor_request *r)
{
    return r->coll == COLL_ALLGATHER || r->coll == COLL_GATHER;
}

bool request_has_rows(const struct tensor_request *r)
{
    return request_has_counts(r) || r->coll == COLL_ALLTOALL;
}

uint32_t request_set_rank(const struct tensor_request *r, uint32_t i)
{
    return bytes_load_u32(r->set + (size_t)i * 4);
}

bool request_set_has(const struct tensor_request *r, uint32_t rank)
{
    for (uint32_t i = 0; i < r->n_set; i++)
        if (request_set_rank(r, i) == rank)
            return true;
    return false;
}

bool request_by_members(const struct tensor_request *r)
{
    return r->coll == COLL_SET_ADD && r->root == SET_BY_MEMBERS;
}

static bool reader_get_u32(struct message_reader *r, uint32_t *ret)
{
    *ret = bytes_u32(&r->in);
    return !r->in.is_bad;
}

/* A transfer is in a pair and its root is one of the two ranks; nothing else is in a
 * pair. A set is added by all ranks or by its members. Only GPU memory is
 * registered. */
static bool request_fits_set(const struct tensor_request *r)
{
    if (r->coll == COLL_SET_ADD && r->root > SET_BY_MEMBERS)
        return false;
    if (r->coll == COLL_REGISTER && (r->root > REGION_MAX || r->place != PLACE_CUDA))
        return false;
    if (r->region > 0 && (r->place != PLACE_CUDA || r->coll == COLL_REGISTER))
        return false;
    if (r->coll == COLL_PROBE && r->process_set != 0)
        return false;
    return r->coll == COLL_SENDRECV ? pair_has(r->process_set, r->root)
                                    : !pair_is(r->process_set);
}

/* Do the fields of groups and process sets fit each other? */
static bool request_is_consistent(const struct tensor_request *r, uint64_t coll)
{
    return (r->group == 0) == (r->group_n == 0) && r->n_set <= SET_MAX_RANKS
           && (r->n_set > 0) == (coll == COLL_SET_ADD);
}

static bool reader_get_params(struct message_reader *r, struct tensor_request *ret)
{
    uint64_t coll, dtype, op, ndim, place, region;

    if (!bytes_get(&r->in, 1, &coll) || !bytes_get(&r->in, 1, &dtype)
        || !bytes_get(&r->in, 1, &op) || !bytes_get(&r->in, 1, &ndim)
        || !bytes_get(&r->in, 1, &place) || !bytes_get(&r->in, 1, &region)
        || !reader_get_u32(r, &ret->root) || !reader_get_u32(r, &ret->process_set)
        || !reader_get_u32(r, &ret->group_n) || !reader_get_u32(r, &ret->n_set)
        || !bytes_get(&r->in, 8, &ret->group) || !bytes_get_f64(&r->in, &ret->prescale)
        || !bytes_get_f64(&r->in, &ret->postscale))
        return false;
    if (coll >= COLL_COUNT || dtype >= DT_COUNT || op >= OP_COUNT
        || ndim > TENSOR_MAX_DIMS || place >= PLACE_COUNT
        || !request_is_consistent(ret, coll))
        return false;
    ret->coll = (enum collective)coll;
    ret->dtype = (enum dtype)dtype;
    ret->op = (enum reduce_op)op;
    ret->ndim = (uint32_t)ndim;
    ret->place = (enum memory_place)place;
    ret->region = (uint32_t)region;
    return request_fits_set(ret);
}

static int reader_get_request(struct message_reader *r,
                              struct tensor_request *ret,
                              struct err *err)
{
    uint64_t v;

    memset(ret, 0, sizeof(*ret));
    if (!reader_get_params(r, ret))
        return reader_report_malformed(r, "request", err);
    for (uint32_t i = 0; i < ret->ndim; i++) {
        if (!bytes_get(&r->in, 8, &v))
            return reader_report_malformed(r, "shape", err);
        ret->shape[i] = (int64_t)v;
    }
    if (request_size(ret, NULL, NULL, NULL) < 0)
        return reader_report_malformed(r, "shape", err);
    if (!bytes_get_raw(&r->in, (size_t)ret->n_set * 4, &ret->set))
        return reader_report_malformed(r, "process set", err);
    for (uint32_t i = 1; i < ret->n_set; i++)
        if (request_set_rank(ret, i - 1) >= request_set_rank(ret, i))
            return reader_report_malformed(r, "process set", err);
    if (ret->n_set == 0)
        ret->set = NULL;
    if (!bytes_get_name(&r->in, ret->name, sizeof(ret->name)) || ret->name[0] == 0)
        return reader_report_malformed(r, "name", err);
    if (!bytes_get_name(&r->in, ret->codec, sizeof(ret->codec)))
        return reader_report_malformed(r, "compression", err);
    if (!bytes_get_name(&r->in, ret->no_gpu, sizeof(ret->no_gpu))
        || (ret->no_gpu[0] && ret->place != PLACE_HOST))
        return reader_report_malformed(r, "reason", err);
    return 0;
}

static int reader_get_hits(struct message_reader *r, struct up *ret, struct err *err)
{
    if (!reader_get_u32(r, &ret->first) || !reader_get_u32(r, &ret->n_words)
        || ret->first % 64 != 0 || ret->first >= SLOTS_MAX
        || ret->n_words > (SLOTS_MAX - ret->first) / 64
        || !bytes_get_raw(&r->in, (size_t)ret->n_words * 8, &ret->words))
        return reader_report_malformed(r, "cache bits", err);
    return 1;
}

int message_next_up(struct message_reader *r, struct up *ret, struct err *err)
{
    uint32_t kind;
    int rc;

    if (r->in.left == 0)
        return 0;
    if (!reader_get_u32(r, &kind) || kind < UP_REQUEST || kind > UP_LEAVE)
        return reader_report_malformed(r, "entry", err);
    ret->kind = (enum up_kind)kind;
    switch (ret->kind) {
    case UP_REQUEST:
        rc = reader_get_request(r, &ret->req, err);
        return rc < 0 ? rc : 1;
    case UP_HITS:
        return reader_get_hits(r, ret, err);
    case UP_LEAVE:
        return reader_get_u32(r, &ret->plan) && reader_get_u32(r, &ret->n_steps)
                   ? 1
                   : reader_report_malformed(r, "plan", err);
    }
    return reader_report_malformed(r, "entry", err);
}

static int reader_get_counts(struct message_reader *r,
                             uint64_t *counts,
                             uint32_t n_ranks,
                             struct down *ret,
                             struct err *err)
{
    uint32_t n;

    if (!reader_get_u32(r, &n) || n > n_ranks)
        return reader_report_malformed(r, "number of counts", err);
    for (uint32_t i = 0; i < n; i++)
        if (!bytes_get(&r->in, 8, &counts[i]) || counts[i] > INT64_MAX)
            return reader_report_malformed(r, "count", err);
    ret->n_counts = n;
    ret->counts = n > 0 ? counts : NULL;
    if (ret->has_req && request_has_counts(&ret->req) != (n > 0))
        return reader_report_malformed(r, "number of counts", err);
    return 1;
}

static int
reader_get_freeze(struct message_reader *r, struct down *ret, struct err *err)
{
    if (!reader_get_u32(r, &ret->plan))
        return reader_report_malformed(r, "plan", err);
    if (ret->kind == DOWN_LEAVE)
        return 1;
    if (!reader_get_u32(r, &ret->n_slots) || ret->n_slots == 0
        || ret->n_slots > SLOTS_MAX || !bytes_get(&r->in, 8, &ret->fusion_bytes)
        || !bytes_get_raw(&r->in, (size_t)ret->n_slots * 4, &ret->slots))
        return reader_report_malformed(r, "plan", err);
    for (uint32_t i = 0; i < ret->n_slots; i++)
        if (down_slot(ret, i) >= SLOTS_MAX)
            return reader_report_malformed(r, "plan", err);
    return 1;
}

static int
reader_get_tuning(struct message_reader *r, struct tuning *ret, struct err *err)
{
    if (!bytes_get(&r->in, 8, &ret->fusion_bytes)
        || !bytes_get(&r->in, 8, &ret->gather_ns)
        || !bytes_get(&r->in, 8, &ret->whole_bytes)
        || !bytes_get(&r->in, 8, &ret->chunk_bytes)
        || ret->gather_ns > TUNING_GATHER_MAX_NS)
        return reader_report_malformed(r, "tuning", err);
    return 1;
}

static int reader_get_answer(struct message_reader *r,
                             uint64_t *counts,
                             uint32_t n_ranks,
                             struct down *ret,
                             struct err *err)
{
    int rc;

    if (!reader_get_u32(r, &ret->slot)
        || (ret->slot >= SLOTS_MAX && (ret->slot != SLOT_NONE || !ret->has_req)))
        return reader_report_malformed(r, "slot", err);
    rc = ret->has_req ? reader_get_request(r, &ret->req, err) : 0;
    if (rc < 0)
        return rc;
    if (ret->kind == DOWN_RUN)
        return reader_get_counts(r, counts, n_ranks, ret, err);
    if (!ret->has_req)
        return reader_report_malformed(r, "answer", err);
    if (ret->kind == DOWN_FAIL && !bytes_get_name(&r->in, ret->text, sizeof(ret->text)))
        return reader_report_malformed(r, "text", err);
    return 1;
}

int message_next_down(struct message_reader *r,
                      uint64_t *counts,
                      uint32_t n_ranks,
                      struct down *ret,
                      struct err *err)
{
    uint64_t kind, flags, zero;

    if (r->in.left == 0)
        return 0;
    if (!bytes_get(&r->in, 1, &kind) || !bytes_get(&r->in, 1, &flags)
        || !bytes_get(&r->in, 2, &zero) || kind < DOWN_RUN || kind > DOWN_TUNE
        || flags > (FLAG_FUSE | FLAG_REQ) || zero != 0)
        return reader_report_malformed(r, "response", err);
    ret->kind = (enum down_kind)kind;
    ret->fuse_next = (flags & FLAG_FUSE) != 0;
    ret->has_req = (flags & FLAG_REQ) != 0;
    ret->counts = NULL;
    ret->n_counts = 0;
    ret->text[0] = 0;
    switch (ret->kind) {
    case DOWN_FREEZE:
    case DOWN_LEAVE:
        return reader_get_freeze(r, ret, err);
    case DOWN_PAIR:
        return reader_get_u32(r, &ret->pair) && pair_is(ret->pair)
                   ? 1
                   : reader_report_malformed(r, "pair", err);
    case DOWN_RUN:
    case DOWN_FAIL:
    case DOWN_JOINED:
    case DOWN_LATE:
        return reader_get_answer(r, counts, n_ranks, ret, err);
    case DOWN_TUNE:
        return reader_get_tuning(r, &ret->tuning, err);
    }
    return reader_report_malformed(r, "response", err);
}

uint64_t up_word(const struct up *u, uint32_t i)
{
    return bytes_load(u->words + (size_t)i * 8, 8);
}

uint32_t down_slot(const struct down *d, uint32_t i)
{
    return bytes_load_u32(d->slots + (size_t)i * 4);
}
