/* SPDX-License-Identifier: Apache-2.0 */
/* Negotiation: requests of all ranks in, ordered responses out. Lives on rank 0, driven
 * by the coordinator; the other ranks only read the responses.
 *
 * I1  A name is ready when each rank has submitted it once; the order in which names
 * become ready is the order of the responses, and so of the batches on every rank. I2
 * Every ready name yields exactly one response, RUN or FAIL. I3  Memory of a pending
 * tensor: the first rank's parameters, a bit per rank, and for allgather one number per
 * rank. The others are compared as they come and forgotten. I4  The first disagreement
 * seen is the one told; it names the tensor, both ranks, both values, and keeps the
 * words that Horovod's users search for.
 *
 * Place kept for the response cache: a request seen before would come as a bit, and
 * enter here by the same negotiate_add. Place kept for process sets: one table per set.
 */
#include "runtime/core/negotiate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/fusion.h"
#include "runtime/core/nametab.h"

struct pending {
    struct nametab_node node;    /* name: first.name */
    struct pending *prev, *next; /* in order of age, or of readiness */
    struct request first;
    uint32_t first_rank, n_seen;
    uint64_t since_ns;
    uint64_t *dim0; /* allgather: per rank */
    char *text;     /* the disagreement, NULL if none */
    uint8_t seen[]; /* bit per rank */
};

struct list {
    struct pending *head, *tail;
    size_t n;
};

struct negotiate {
    uint32_t n_ranks;
    struct nametab names; /* of waiting */
    struct list waiting, ready;
};

static void list_append(struct list *l, struct pending *p)
{
    p->next = NULL;
    p->prev = l->tail;
    if (l->tail)
        l->tail->next = p;
    else
        l->head = p;
    l->tail = p;
    l->n++;
}

static void list_remove(struct list *l, struct pending *p)
{
    if (p->prev)
        p->prev->next = p->next;
    else
        l->head = p->next;
    if (p->next)
        p->next->prev = p->prev;
    else
        l->tail = p->prev;
    l->n--;
}

static void pending_free(struct pending *p)
{
    if (!p)
        return;
    mem_free(p->dim0);
    mem_free(p->text);
    mem_free(p);
}

static void list_release(struct list *l)
{
    while (l->head) {
        struct pending *p = l->head;

        list_remove(l, p);
        pending_free(p);
    }
}

int negotiate_new(uint32_t n_ranks, struct negotiate **ret)
{
    struct negotiate *n = mem_zalloc(sizeof(*n));

    if (!n)
        return -ENOMEM;
    n->n_ranks = n_ranks;
    *ret = n;
    return 0;
}

void negotiate_free(struct negotiate *n)
{
    if (!n)
        return;
    list_release(&n->waiting);
    list_release(&n->ready);
    nametab_release(&n->names);
    mem_free(n);
}

size_t negotiate_ready(const struct negotiate *n)
{
    return n->ready.n;
}

size_t negotiate_pending(const struct negotiate *n)
{
    return n->waiting.n;
}

/* --- do two ranks agree? --- */

struct pair { /* the two ranks of a sentence, lower rank first */
    const struct request *a, *b;
    uint32_t a_rank, b_rank;
    char name[NAME_SHOWN_MAX];
};

static int disagree(struct err *why,
                    const struct pair *p,
                    const char *what,
                    const char *a,
                    const char *b,
                    const char *more)
{
    return err_set(why, -EINVAL,
                   "Mismatched %s: tensor %s: rank %u has %s, rank %u has %s%s", what,
                   p->name, p->a_rank, a, p->b_rank, b, more);
}

static const char *shape_text(const struct request *r, char *buf, size_t size)
{
    size_t at = 0;

    buf[at++] = '[';
    for (uint32_t i = 0; i < r->ndim && at + 24 < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%lld", i ? ", " : "",
                               (long long)r->shape[i]);
    buf[at++] = ']';
    buf[at] = 0;
    return buf;
}

static int check_scales(struct err *why, const struct pair *p)
{
    char a[64], b[64];

    if (request_same_scales(p->a, p->b))
        return 0;
    (void)snprintf(a, sizeof(a), "%.17g and %.17g", p->a->prescale, p->a->postscale);
    (void)snprintf(b, sizeof(b), "%.17g and %.17g", p->b->prescale, p->b->postscale);
    return disagree(why, p, "prescale and/or postscale factors", a, b, "");
}

/* from_dim: 1 for allgather, whose first dimension is free. */
static int check_shapes(struct err *why, const struct pair *p, uint32_t from_dim)
{
    char a[200], b[200], what[48], more[64];

    (void)snprintf(what, sizeof(what), "%s tensor shapes", collective_name(p->a->coll));
    (void)shape_text(p->a, a, sizeof(a));
    (void)shape_text(p->b, b, sizeof(b));
    if (p->a->ndim != p->b->ndim) {
        (void)snprintf(more, sizeof(more), " (%u and %u dimensions)", p->a->ndim,
                       p->b->ndim);
        return disagree(why, p, what, a, b, more);
    }
    for (uint32_t i = from_dim; i < p->a->ndim; i++) {
        if (p->a->shape[i] == p->b->shape[i])
            continue;
        (void)snprintf(more, sizeof(more), " (dimension %u differs)", i);
        return disagree(why, p, what, a, b, more);
    }
    return 0;
}

static int check_root(struct err *why, const struct pair *p)
{
    char a[32], b[32];

    if (p->a->root == p->b->root)
        return 0;
    (void)snprintf(a, sizeof(a), "root rank %u", p->a->root);
    (void)snprintf(b, sizeof(b), "root rank %u", p->b->root);
    return disagree(why, p, "BROADCAST root ranks", a, b, "");
}

static int check_pair(struct err *why, const struct pair *p)
{
    int r;

    if (p->a->coll != p->b->coll)
        return disagree(why, p, "operations", collective_name(p->a->coll),
                        collective_name(p->b->coll), "");
    if (p->a->coll == COLL_BARRIER)
        return 0;
    if (p->a->dtype != p->b->dtype)
        return disagree(why, p, "data types", dtype_name(p->a->dtype),
                        dtype_name(p->b->dtype), "");
    switch (p->a->coll) {
    case COLL_ALLREDUCE:
        if (p->a->op != p->b->op)
            return disagree(why, p, "reduction operation", reduce_op_name(p->a->op),
                            reduce_op_name(p->b->op), "");
        r = check_scales(why, p);
        return r < 0 ? r : check_shapes(why, p, 0);
    case COLL_ALLGATHER:
        return check_shapes(why, p, 1);
    case COLL_BROADCAST:
        r = check_root(why, p);
        return r < 0 ? r : check_shapes(why, p, 0);
    case COLL_ALLTOALL:
    case COLL_REDUCESCATTER:
    case COLL_REDUCE:
    case COLL_GATHER:
    case COLL_JOIN:
    case COLL_SET_ADD:
    case COLL_SET_REMOVE:
    case COLL_BARRIER:
    case COLL_COUNT:
        break;
    }
    return 0;
}

/* What is wrong with one rank's request whatever the others say. */
static int
check_alone(struct err *why, const struct request *q, uint32_t rank, uint32_t n_ranks)
{
    char name[NAME_SHOWN_MAX];

    (void)name_shown(q->name, name);
    if (q->coll == COLL_ALLGATHER && q->ndim == 0) {
        return err_set(why, -EINVAL,
                       "rank %u tried to ALLGATHER a rank-zero tensor: tensor %s", rank,
                       name);
    }
    if (q->coll == COLL_BROADCAST && q->root >= n_ranks) {
        return err_set(
            why, -EINVAL,
            "tensor %s: BROADCAST root rank %u of rank %u is not in the world "
            "of %u ranks",
            name, q->root, rank, n_ranks);
    }
    if (q->coll == COLL_ALLREDUCE && !reduce_op_supported(q->op)) {
        return err_set(
            why, -EINVAL,
            "tensor %s: ALLREDUCE with %s is not supported, only SUM and AVERAGE", name,
            reduce_op_name(q->op));
    }
    if (q->coll == COLL_ALLREDUCE && !dtype_reducible(q->dtype)) {
        return err_set(why, -EINVAL,
                       "tensor %s: ALLREDUCE of %s is not supported, only float16, "
                       "bfloat16, float32, float64, int32 and int64",
                       name, dtype_name(q->dtype));
    }
    return 0;
}

static int
check(struct pending *p, uint32_t rank, const struct request *q, uint32_t n_ranks)
{
    struct pair pair = {&p->first, q, p->first_rank, rank, ""};
    struct err why = ERR_INIT;
    int r;

    if (p->text)
        return 0;
    if (rank < p->first_rank)
        pair = (struct pair){q, &p->first, rank, p->first_rank, ""};
    (void)name_shown(q->name, pair.name);
    r = q == &p->first ? 0 : check_pair(&why, &pair);
    if (r == 0)
        r = check_alone(&why, q, rank, n_ranks);
    if (r == 0)
        return 0;
    p->text = mem_strdup(why.text);
    return p->text ? 0 : -ENOMEM;
}

/* --- the table --- */

static int pending_new(struct negotiate *n,
                       uint32_t rank,
                       const struct request *req,
                       uint64_t now_ns,
                       struct pending **ret,
                       struct err *err)
{
    struct pending *p;
    int r;

    if (n->waiting.n >= NEGOTIATE_MAX_PENDING)
        return err_set(err, -E2BIG, "more than %u tensors are pending",
                       NEGOTIATE_MAX_PENDING);
    p = mem_zalloc(sizeof(*p) + n->n_ranks / 8 + 1);
    if (!p)
        return err_set(err, -ENOMEM, "out of memory for a pending tensor");
    p->first = *req;
    p->first_rank = rank;
    p->since_ns = now_ns;
    p->node.name = p->first.name;
    if (req->coll == COLL_ALLGATHER)
        p->dim0 = mem_calloc(n->n_ranks, sizeof(*p->dim0));
    r = req->coll == COLL_ALLGATHER && !p->dim0 ? -ENOMEM
                                                : nametab_add(&n->names, &p->node);
    if (r < 0) {
        pending_free(p);
        return err_set(err, -ENOMEM, "out of memory for a pending tensor");
    }
    list_append(&n->waiting, p);
    *ret = p;
    return 0;
}

int negotiate_add(struct negotiate *n,
                  uint32_t rank,
                  const struct request *req,
                  uint64_t now_ns,
                  struct err *err)
{
    struct nametab_node *node = nametab_find(&n->names, req->name);
    struct pending *p = (struct pending *)(void *)node; /* node is the first member */
    const struct request *q = req;
    int r;

    if (rank >= n->n_ranks)
        return err_set(err, -EPROTO, "a request of rank %u in a world of %u", rank,
                       n->n_ranks);
    if (!p) {
        r = pending_new(n, rank, req, now_ns, &p, err);
        if (r < 0)
            return r;
        q = &p->first;
    }
    if (negotiate_has_seen(p->seen, rank)) {
        char name[NAME_SHOWN_MAX];

        return err_set(err, -EPROTO, "rank %u submitted tensor %s twice", rank,
                       name_shown(req->name, name));
    }
    r = check(p, rank, q, n->n_ranks);
    if (r < 0)
        return err_set(err, r, "out of memory for a pending tensor");
    if (p->dim0 && req->ndim > 0)
        p->dim0[rank] = (uint64_t)req->shape[0];
    p->seen[rank / 8] |= (uint8_t)(1u << (rank % 8));
    if (++p->n_seen == n->n_ranks) {
        nametab_remove(&n->names, &p->node);
        list_remove(&n->waiting, p);
        list_append(&n->ready, p);
    }
    return 0;
}

/* --- responses --- */

static void write_one(const struct negotiate *n,
                      const struct pending *p,
                      bool fuse_next,
                      struct strbuf *out)
{
    struct response r = {.kind = p->text ? RESPONSE_FAIL : RESPONSE_RUN,
                         .coll = p->first.coll,
                         .fuse_next = fuse_next};

    memcpy(r.name, p->first.name, sizeof(r.name));
    if (p->text) {
        (void)snprintf(r.text, sizeof(r.text), "%s", p->text);
    } else if (p->dim0) {
        r.counts = p->dim0;
        r.n_counts = n->n_ranks;
    }
    message_put_response(out, &r);
}

/* Up to this many tensors are looked at together for one batch. */
enum { WINDOW = 256, WRITE_AIM = 1 << 18 };

static size_t take_window(const struct negotiate *n, const struct request **window)
{
    size_t k = 0;

    for (const struct pending *p = n->ready.head; p && k < WINDOW && !p->text;
         p = p->next)
        window[k++] = &p->first;
    return k;
}

int negotiate_write(struct negotiate *n,
                    uint64_t limit_bytes,
                    struct strbuf *out,
                    size_t *ret_n)
{
    const struct request *window[WINDOW];
    size_t total = 0;

    if (n->ready.n > 0)
        message_begin(out, MESSAGE_RESPONSES);
    while (n->ready.n > 0 && out->n < WRITE_AIM) {
        size_t take = fusion_take(window, take_window(n, window), limit_bytes);

        if (take == 0)
            take = 1; /* a failed one */
        for (size_t i = 0; i < take; i++, total++) {
            struct pending *p = n->ready.head;

            write_one(n, p, i + 1 < take, out);
            list_remove(&n->ready, p);
            pending_free(p);
        }
    }
    *ret_n = total;
    return strbuf_status(out);
}

void negotiate_walk(const struct negotiate *n, negotiate_walk_fn fn, void *arg)
{
    for (const struct pending *p = n->waiting.head; p; p = p->next) {
        struct negotiate_view v = {p->first.name, p->first.coll, p->since_ns,
                                   n->n_ranks,    p->n_seen,     p->seen};

        if (!fn(arg, &v))
            return;
    }
}
