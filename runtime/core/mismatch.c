/* SPDX-License-Identifier: Apache-2.0 */
/* Compares requests field by field, in the order of Horovod's controller. The first
 * difference is reported. Called by pending.c for every request that was not sent as a
 * bit of the cache. */
#include "runtime/core/mismatch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/core/nametab.h"
#include "runtime/core/set_id.h"

bool set_view_has(const struct set_view *s, uint32_t rank)
{
    if (!s->ranks)
        return rank < s->n;
    for (uint32_t lo = 0, hi = s->n; lo < hi;) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (s->ranks[mid] == rank)
            return true;
        if (s->ranks[mid] < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

bool set_view_has_any(const struct set_view *v, const bool *is_in)
{
    bool any = false;

    for (uint32_t i = 0; i < v->n && !any; i++)
        any = is_in[v->ranks ? v->ranks[i] : i];
    return any;
}

struct request_pair { /* the two ranks of an error message, lower rank first */
    const struct tensor_request *a, *b;
    uint32_t a_rank, b_rank;
    char name[NAME_SHOWN_MAX];
};

static int mismatch_report(struct err *why,
                           const struct request_pair *p,
                           const char *what,
                           const char *a,
                           const char *b,
                           const char *more)
{
    return err_set(why, -EINVAL,
                   "Mismatched %s: tensor %s: rank %u has %s, rank %u has %s%s", what,
                   p->name, p->a_rank, a, p->b_rank, b, more);
}

static const char *shape_text(const struct tensor_request *r, char *buf, size_t size)
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

static int mismatch_scales(struct err *why, const struct request_pair *p)
{
    char a[64], b[64];

    if (request_same_scales(p->a, p->b))
        return 0;
    (void)snprintf(a, sizeof(a), "%.17g and %.17g", p->a->prescale, p->a->postscale);
    (void)snprintf(b, sizeof(b), "%.17g and %.17g", p->b->prescale, p->b->postscale);
    return mismatch_report(why, p, "prescale and/or postscale factors", a, b, "");
}

static int
mismatch_shapes(struct err *why, const struct request_pair *p, uint32_t from_dim)
{
    char what[48], a[TENSOR_MAX_DIMS * 24], b[TENSOR_MAX_DIMS * 24], more[48];

    (void)snprintf(what, sizeof(what), "%s tensor shapes", collective_name(p->a->coll));
    (void)shape_text(p->a, a, sizeof(a));
    (void)shape_text(p->b, b, sizeof(b));
    if (p->a->ndim != p->b->ndim)
        return mismatch_report(why, p, what, a, b,
                               " (the number of dimensions differs)");
    for (uint32_t i = from_dim; i < p->a->ndim; i++) {
        if (p->a->shape[i] == p->b->shape[i])
            continue;
        (void)snprintf(more, sizeof(more), " (dimension %u differs)", i);
        return mismatch_report(why, p, what, a, b, more);
    }
    return 0;
}

static int mismatch_number(struct err *why,
                           const struct request_pair *p,
                           const char *what,
                           uint32_t x,
                           uint32_t y)
{
    char a[32], b[32];

    if (x == y)
        return 0;
    (void)snprintf(a, sizeof(a), "%u", x);
    (void)snprintf(b, sizeof(b), "%u", y);
    return mismatch_report(why, p, what, a, b, "");
}

static int mismatch_root(struct err *why, const struct request_pair *p)
{
    char a[32], b[32], what[48];

    if (p->a->root == p->b->root)
        return 0;
    (void)snprintf(what, sizeof(what), "%s root ranks", collective_name(p->a->coll));
    (void)snprintf(a, sizeof(a), "root rank %u", p->a->root);
    (void)snprintf(b, sizeof(b), "root rank %u", p->b->root);
    return mismatch_report(why, p, what, a, b, "");
}

static int mismatch_place(struct err *why, const struct request_pair *p)
{
    static const char *const words[PLACE_COUNT] = {"it in CPU memory", "it on a GPU"};

    const bool is_a = p->a->place == PLACE_HOST;
    const struct tensor_request *host = is_a ? p->a : p->b;
    char more[REQUEST_WHY_MAX + 40] = "";

    if (p->a->place == p->b->place)
        return 0;
    if (host->no_gpu[0])
        (void)snprintf(more, sizeof(more), " (rank %u has no GPU: %s)",
                       is_a ? p->a_rank : p->b_rank, host->no_gpu);
    return mismatch_report(why, p, "CPU/GPU device selection", words[p->a->place],
                           words[p->b->place], more);
}

static int mismatch_region(struct err *why, const struct request_pair *p)
{
    char a[32] = "it in none", b[32] = "it in none";

    if (p->a->region == p->b->region)
        return 0;
    if (p->a->region > 0)
        (void)snprintf(a, sizeof(a), "it in buffer %u", p->a->region);
    if (p->b->region > 0)
        (void)snprintf(b, sizeof(b), "it in buffer %u", p->b->region);
    return mismatch_report(why, p, "registered buffers", a, b, "");
}

static int mismatch_group(struct err *why, const struct request_pair *p)
{
    if (p->a->group != p->b->group && (p->a->group == 0 || p->b->group == 0))
        return mismatch_report(why, p, "groups", p->a->group ? "a group" : "no group",
                               p->b->group ? "a group" : "no group", "");
    if (p->a->group != p->b->group)
        return mismatch_report(why, p, "groups", "one name of the group", "another",
                               "");
    return mismatch_number(why, p, "group sizes", p->a->group_n, p->b->group_n);
}

static const char *
mismatch_set_text(const struct tensor_request *r, char *buf, size_t size)
{
    size_t at = 0;

    buf[at++] = '{';
    for (uint32_t i = 0; i < r->n_set && at + 24 < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%u", i ? ", " : "",
                               request_set_rank(r, i));
    (void)snprintf(buf + at, size - at, "}");
    return buf;
}

static int mismatch_set(struct err *why, const struct request_pair *p)
{
    char a[120], b[120];

    if (p->a->n_set == p->b->n_set
        && memcmp(p->a->set, p->b->set, (size_t)p->a->n_set * 4) == 0)
        return 0;
    return mismatch_report(why, p, "process sets",
                           mismatch_set_text(p->a, a, sizeof(a)),
                           mismatch_set_text(p->b, b, sizeof(b)), "");
}

static int mismatch_reduction(struct err *why, const struct request_pair *p)
{
    if (p->a->op != p->b->op)
        return mismatch_report(why, p, "reduction operation", reduce_op_name(p->a->op),
                               reduce_op_name(p->b->op), "");
    if (strcmp(p->a->codec, p->b->codec) != 0)
        return mismatch_report(why, p, "compression",
                               p->a->codec[0] ? p->a->codec : "none",
                               p->b->codec[0] ? p->b->codec : "none", "");
    return mismatch_scales(why, p);
}

static int mismatch_fields(struct err *why, const struct request_pair *p)
{
    int rc = 0;

    if (p->a->coll != p->b->coll)
        return mismatch_report(why, p, "operations", collective_name(p->a->coll),
                               collective_name(p->b->coll), "");
    if (p->a->coll == COLL_JOIN)
        return 0;
    if (p->a->coll == COLL_BARRIER)
        return mismatch_group(why, p);
    if (p->a->coll == COLL_SET_ADD)
        return mismatch_set(why, p);
    if (p->a->coll == COLL_SET_REMOVE)
        return mismatch_number(why, p, "process sets", set_number(p->a->root),
                               set_number(p->b->root));
    if (p->a->dtype != p->b->dtype)
        return mismatch_report(why, p, "data types", dtype_name(p->a->dtype),
                               dtype_name(p->b->dtype), "");
    switch (p->a->coll) {
    case COLL_ALLREDUCE:
    case COLL_REDUCESCATTER:
    case COLL_REDUCE:
        rc = mismatch_reduction(why, p);
        break;
    case COLL_BROADCAST:
    case COLL_ALLGATHER:
    case COLL_GATHER:
    case COLL_ALLTOALL:
    case COLL_SENDRECV: /* its name contains the root */
    case COLL_REGISTER:
    case COLL_PROBE:
    case COLL_BARRIER:
    case COLL_JOIN:
    case COLL_SET_ADD:
    case COLL_SET_REMOVE:
    case COLL_COUNT:
        break;
    }
    if (rc == 0
        && (p->a->coll == COLL_BROADCAST || p->a->coll == COLL_REDUCE
            || p->a->coll == COLL_GATHER))
        rc = mismatch_root(why, p);
    if (rc == 0 && p->a->coll == COLL_REGISTER)
        rc = mismatch_number(why, p, "buffers to forget", p->a->root, p->b->root);
    if (rc == 0)
        rc = mismatch_shapes(why, p, request_has_rows(p->a));
    if (rc == 0)
        rc = mismatch_place(why, p);
    if (rc == 0)
        rc = mismatch_region(why, p);
    return rc < 0 ? rc : mismatch_group(why, p);
}

int mismatch_pair(const struct tensor_request *a,
                  uint32_t a_rank,
                  const struct tensor_request *b,
                  uint32_t b_rank,
                  struct err *why)
{
    struct request_pair p = {a, b, a_rank, b_rank, ""};

    if (b_rank < a_rank)
        p = (struct request_pair){b, a, b_rank, a_rank, ""};
    (void)name_shown(a->name, p.name);
    return mismatch_fields(why, &p);
}

static bool collective_needs_rows(enum collective c)
{
    return c == COLL_ALLGATHER || c == COLL_GATHER || c == COLL_ALLTOALL
           || c == COLL_REDUCESCATTER;
}

static bool collective_has_root(enum collective c)
{
    return c == COLL_BROADCAST || c == COLL_REDUCE || c == COLL_GATHER;
}

static bool collective_reduces(enum collective c)
{
    return c == COLL_ALLREDUCE || c == COLL_REDUCE || c == COLL_REDUCESCATTER;
}

int mismatch_alone(const struct tensor_request *q,
                   uint32_t rank,
                   const struct set_view *set,
                   struct err *why)
{
    char name[NAME_SHOWN_MAX];

    (void)name_shown(q->name, name);
    if (collective_needs_rows(q->coll) && q->ndim == 0)
        return err_set(why, -EINVAL,
                       "rank %u tried to %s a rank-zero tensor: tensor %s", rank,
                       collective_name(q->coll), name);
    if (collective_has_root(q->coll) && !set_view_has(set, q->root)
        && q->process_set == 0)
        return err_set(why, -EINVAL,
                       "tensor %s: %s root rank %u of rank %u is not in the world of "
                       "%u ranks",
                       name, collective_name(q->coll), q->root, rank, set->n);
    if (collective_has_root(q->coll) && !set_view_has(set, q->root))
        return err_set(why, -EINVAL,
                       "tensor %s: %s root rank %u of rank %u is not in process set %u",
                       name, collective_name(q->coll), q->root, rank,
                       set_number(q->process_set));
    if (collective_reduces(q->coll) && !reduction_supported(q->op, q->dtype))
        return err_set(why, -EINVAL, "tensor %s: %s of %s with %s is not supported",
                       name, collective_name(q->coll), dtype_name(q->dtype),
                       reduce_op_name(q->op));
    if (q->coll == COLL_REDUCESCATTER && q->op == OP_ADASUM)
        return err_set(why, -EINVAL,
                       "tensor %s: REDUCESCATTER with ADASUM is not supported", name);
    return 0;
}

int mismatch_joined(const struct tensor_request *q, struct err *why)
{
    static const char *const words[COLL_COUNT] = {
        [COLL_ALLREDUCE] = "Allreduce",
        [COLL_ALLGATHER] = "Allgather",
        [COLL_BROADCAST] = "Broadcast",
        [COLL_BARRIER] = "Barrier",
        [COLL_ALLTOALL] = "Alltoall",
        [COLL_REDUCESCATTER] = "Reducescatter",
        [COLL_REDUCE] = "Reduce",
        [COLL_GATHER] = "Gather",
        [COLL_JOIN] = "Join",
        [COLL_SET_ADD] = "Adding a process set",
        [COLL_SET_REMOVE] = "Removing a process set",
        [COLL_SENDRECV] = "Send and receive",
        [COLL_REGISTER] = "Registering a buffer",
        [COLL_PROBE] = "Probe"};
    char name[NAME_SHOWN_MAX];

    if (q->coll == COLL_ALLREDUCE && q->region > 0) /* a joined rank has no buffer */
        return err_set(why, -EINVAL,
                       "Allreduce of registered buffers is not supported with Join at "
                       "this time: tensor %s",
                       name_shown(q->name, name));
    if (q->coll == COLL_ALLREDUCE && (q->op == OP_SUM || q->op == OP_AVERAGE))
        return 0;
    if (q->coll == COLL_ALLREDUCE)
        return err_set(why, -EINVAL,
                       "Allreduce with %s is not supported with Join at this time, "
                       "only SUM and AVERAGE: tensor %s",
                       reduce_op_name(q->op), name_shown(q->name, name));
    return err_set(why, -EINVAL,
                   "%s is not supported with Join at this time: tensor %s",
                   words[q->coll], name_shown(q->name, name));
}
