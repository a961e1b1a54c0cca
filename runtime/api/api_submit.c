/* SPDX-License-Identifier: Apache-2.0 */
/* The exported C API: collectives.
 *
 * Every call has three steps. draft_init_*() looks up world and process set and makes
 * the op from the tensor. The collective adds its own parameters (draft_take_*).
 * draft_finish() gives the op a handle and passes it to the coordinator, or drops it.
 *
 * An error that this rank can detect alone is returned here at once. What may differ
 * between ranks (dtype, shape, operation, root) is compared by negotiation, so that the
 * operation fails on every rank instead of hanging on some. Stateless. */
#include "runtime/api/api.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "runtime/core/compress/codec.h"
#include "runtime/core/pair.h"

struct op_draft {
    struct err *err;
    struct world *w;     /* a reference, NULL before */
    struct op *op;       /* owned */
    struct hvd_tensor t; /* copy of the caller's; fields that its version lacks are 0 */
};

/* --- the tensor --- */

static int
name_check(struct err *err, const char *field, const char *name, size_t max_bytes)
{
    if (!name || !name[0] || strlen(name) > max_bytes)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_tensor.%s: must have 1 to %zu bytes", field, max_bytes);
    return 0;
}

static int draft_take_tensor(struct op_draft *c, const struct hvd_tensor *t)
{
    const size_t least = offsetof(struct hvd_tensor, group); /* of version 0.1 */
    int rc;

    if (!t || t->size_bytes < least)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "hvd_tensor.size_bytes: must be at least %zu", least);
    memcpy(&c->t, t, t->size_bytes < sizeof(c->t) ? t->size_bytes : sizeof(c->t));
    rc = name_check(c->err, "name", c->t.name, TENSOR_NAME_MAX - 1);
    if (rc < 0)
        return rc;
    if (strncmp(c->t.name, OP_RESERVED_PREFIX, strlen(OP_RESERVED_PREFIX)) == 0)
        return err_set(
            c->err, HVD_INVALID_ARGUMENT,
            "tensor \"%.200s\": names that start with %s are reserved for the runtime",
            c->t.name, OP_RESERVED_PREFIX);
    return 0;
}

static int draft_take_group(struct op_draft *c)
{
    struct tensor_request *req = &c->op->req;
    int rc;

    if (!c->t.group)
        return 0;
    rc = name_check(c->err, "group", c->t.group, TENSOR_NAME_MAX - 1);
    if (rc < 0)
        return rc;
    if (c->t.group_size < 1)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": group_size %d, must be at least 1",
                       c->t.name, c->t.group_size);
    req->group = op_hash_text(op_hash_u32(OP_HASH_INIT, req->process_set), c->t.group);
    if (req->group == 0) /* 0 means "no group" */
        req->group = 1;
    req->group_n = (uint32_t)c->t.group_size;
    return 0;
}

static int draft_take_shape(struct op_draft *c)
{
    struct op *op = c->op;
    const struct hvd_tensor *t = &c->t;

    if (t->dtype < 0 || t->dtype >= DT_COUNT)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": dtype %d is not in 0 to %d", t->name,
                       t->dtype, DT_COUNT - 1);
    if (t->ndim < 0 || t->ndim > HVD_MAX_DIMS || (t->ndim > 0 && !t->shape))
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": ndim %d is not in 0 to %d", t->name, t->ndim,
                       HVD_MAX_DIMS);
    op->req.dtype = (enum dtype)t->dtype;
    op->req.ndim = (uint32_t)t->ndim;
    for (int i = 0; i < t->ndim; i++)
        op->req.shape[i] = t->shape[i];
    if (request_size(&op->req, &op->count, &op->bytes, c->err) < 0) {
        (void)err_prefix(c->err, "tensor \"%.200s\"", t->name);
        return err_recode(c->err, HVD_INVALID_ARGUMENT);
    }
    if (op_has_result(op) && t->ndim == 0)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": tried to %s a rank-zero tensor", t->name,
                       collective_name(op->req.coll));
    return 0;
}

/* --- begin and finish --- */

static int draft_take_set(struct op_draft *c, int process_set)
{
    struct op *op = c->op;
    uint32_t id = (uint32_t)process_set;

    if (process_set < 0 || sets_place(&c->w->sets, id, &op->n_members, &op->me) < 0) {
        (void)sets_report_unknown(&c->w->sets, process_set, c->err);
        return err_prefix(c->err, "tensor \"%.200s\"", c->t.name);
    }
    if (op->me == SET_NOT_IN)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": this rank is not in process set %u",
                       c->t.name, set_number(id));
    op->req.process_set = id;
    return 0;
}

/* The pair with peer; field: the name of the argument in error messages. */
static int draft_take_pair(struct op_draft *c, int peer, const char *field, bool sends)
{
    struct op *op = c->op;
    uint32_t me = c->w->contract.place.rank, size = c->w->contract.place.size;
    uint32_t other = (uint32_t)peer, src = sends ? me : other, dst = sends ? other : me;

    if (peer < 0 || other >= size)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": %s %d is not in the world of %u ranks",
                       c->t.name, field, peer, size);
    if (other == me)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": %s %d is this rank itself", c->t.name, field,
                       peer);
    if (me >= PAIR_MAX_RANKS || other >= PAIR_MAX_RANKS)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": only ranks below %u can send and receive",
                       c->t.name, PAIR_MAX_RANKS);
    if (!pair_name(c->t.name, src, dst, op->req.name))
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "hvd_tensor.name: has %zu bytes, of a send or receive between "
                       "ranks %u and %u at most %zu",
                       strlen(c->t.name), src, dst, pair_name_max(src, dst));
    op->req.process_set = pair_of(src, dst);
    op->req.root = src;
    op->n_members = 2;
    op->me = me < other ? 0 : 1;
    op->root = sends ? op->me : 1 - op->me;
    return 0;
}

static int
draft_init(struct op_draft *c, const struct hvd_tensor *t, enum collective coll)
{
    struct op *op;
    int rc;

    *c = (struct op_draft){.err = api_fresh_error()};
    rc = runtime_get(&c->w, c->err);
    rc = rc < 0 ? rc : draft_take_tensor(c, t);
    if (rc < 0)
        return rc;
    op = c->op = op_new();
    if (!op)
        return err_set(c->err, HVD_NO_MEMORY, "out of memory for an operation");
    op->req.coll = coll;
    memcpy(op->req.name, c->t.name, strlen(c->t.name) + 1);
    op->req.prescale = op->req.postscale = 1.0;
    op->req.op = OP_SUM;
    op->root = OP_NO_MEMBER;
    op->done = c->t.done;
    op->done_arg = c->t.done_arg;
    return 0;
}

static int draft_init_in_set(struct op_draft *c,
                             const struct hvd_tensor *t,
                             enum collective coll,
                             int process_set)
{
    int rc = draft_init(c, t, coll);

    return rc < 0 ? rc : draft_take_set(c, process_set);
}

static int draft_take_data(struct op_draft *c)
{
    int rc = draft_take_shape(c);

    c->op->data = c->t.data;
    c->op->output = c->t.output;
    c->op->stream = c->t.stream;
    atomic_init(&c->op->read_in, c->t.stream);
    if (c->t.device != HVD_DEVICE_HOST && c->t.device != HVD_DEVICE_NONE)
        c->op->req.place = PLACE_CUDA;
    else
        device_why_none(coordinator_gpu(c->w->co), c->t.device == HVD_DEVICE_NONE,
                        c->op->req.no_gpu);
    return rc < 0 ? rc : draft_take_group(c);
}

static int draft_init_data(struct op_draft *c,
                           const struct hvd_tensor *t,
                           enum collective coll,
                           int process_set)
{
    int rc = draft_init_in_set(c, t, coll, process_set);

    return rc < 0 ? rc : draft_take_data(c);
}

/* The GPU its memory is on. */
static int draft_take_device(struct op_draft *c)
{
    struct op *op = c->op;
    struct world_device *gpu = coordinator_gpu(c->w->co);
    const void *p = op->data ? op->data : op->output;
    struct device *d;
    int rc = 0;

    if (op->req.place != PLACE_CUDA)
        return 0;
    if (c->t.device < HVD_DEVICE_OF_POINTER)
        rc = err_set(c->err, HVD_INVALID_ARGUMENT, "there is no such device");
    else if (c->t.ready_event)
        rc = err_set(c->err, HVD_INVALID_ARGUMENT, "ready_event must be NULL");
    else
        rc = device_need(gpu, c->t.device, op->count > 0 ? p : NULL, &d, c->err);
    if (rc < 0)
        return err_prefix(c->err, "tensor \"%.200s\": device %d", c->t.name,
                          c->t.device);
    op->gpu = gpu->ops;
    op->device = d;
    op->ordinal = op->gpu->ordinal(d);
    return 0;
}

static int draft_check_memory(const struct op_draft *c)
{
    const struct op *op = c->op;
    bool is_root = op->me == op->root, is_pair = op->req.coll == COLL_SENDRECV;
    bool needs_data = !is_pair || is_root;
    bool needs_output = op->req.coll == COLL_ALLREDUCE || op->req.coll == COLL_BROADCAST
                        || (op->req.coll == COLL_REDUCE && is_root)
                        || (is_pair && !is_root);

    if (op->req.coll == COLL_BARRIER || op->req.coll == COLL_JOIN
        || op->req.coll == COLL_PROBE)
        return 0;
    if (op->count > 0 && ((needs_data && !c->t.data) || (needs_output && !c->t.output)))
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": data or output is NULL", c->t.name);
    return 0;
}

static int draft_enqueue(struct op_draft *c, hvd_handle *ret)
{
    hvd_handle h;
    int rc;

    if (!ret)
        return err_set(c->err, HVD_INVALID_ARGUMENT, "ret_handle: is NULL");
    coordinator_own(c->w->co, c->op);
    atomic_init(&c->op->is_held, c->t.is_held != 0);
    rc = handles_add(runtime_handles(), c->op, &h);
    if (rc == -E2BIG)
        return err_set(c->err, HVD_NO_MEMORY, "more than %u handles are not released",
                       HANDLES_MAX);
    if (rc < 0)
        return err_set(c->err, HVD_NO_MEMORY, "out of memory for a handle");
    *ret = h; /* before the submit, because a callback may use it */
    if (c->t.is_held)
        return 0;
    rc = api_record(c->w->co, &c->op, 1, c->err);
    rc = rc < 0 ? rc : coordinator_submit(c->w->co, &c->op, 1, c->err);
    if (rc < 0)
        (void)handles_remove(runtime_handles(), h);
    return rc;
}

/* r: 0, or the error so far. */
static int draft_finish(struct op_draft *c, int r, hvd_handle *ret)
{
    r = r < 0 ? r : draft_check_memory(c);
    r = r < 0 ? r : draft_take_device(c);
    r = r < 0 ? r : draft_enqueue(c, ret);
    op_unref(c->op);
    runtime_put(c->w);
    return r;
}

/* --- what a collective adds --- */

static int
draft_take_reduction(struct op_draft *c, int op, double prescale, double postscale)
{
    struct tensor_request *req = &c->op->req;

    if (op < 0 || op >= OP_COUNT)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": op %d is not in 0 to %d", c->t.name, op,
                       OP_COUNT - 1);
    req->op = (enum reduce_op)op;
    req->prescale = prescale;
    req->postscale = postscale;
    if (!reduction_supported(req->op, req->dtype)
        || (req->op == OP_ADASUM && req->coll == COLL_REDUCESCATTER))
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": %s of %s with %s is not supported",
                       c->t.name, collective_name(req->coll), dtype_name(req->dtype),
                       reduce_op_name(req->op));
    return 0;
}

static int draft_take_codec(struct op_draft *c)
{
    struct tensor_request *req = &c->op->req;
    struct codec codec;
    char field[256];
    int rc;

    if (!c->t.compression) {
        memcpy(req->codec, c->w->settings.codec, sizeof(req->codec));
        return 0;
    }
    (void)snprintf(field, sizeof(field), "tensor \"%.200s\": compression", c->t.name);
    rc = codec_parse(field, c->t.compression, &codec, c->err);
    if (rc < 0)
        return err_recode(c->err, HVD_INVALID_ARGUMENT);
    if (codec.id != CODEC_NONE)
        (void)codec_format(&codec, req->codec);
    return 0;
}

static int draft_take_root(struct op_draft *c, int root_rank)
{
    if (root_rank < 0)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": root_rank %d is negative", c->t.name,
                       root_rank);
    c->op->req.root = (uint32_t)root_rank;
    c->op->root = sets_member(&c->w->sets, c->op->req.process_set, (uint32_t)root_rank);
    return 0;
}

static void draft_take_alloc(struct op_draft *c, hvd_alloc_fn alloc, void *arg)
{
    c->op->alloc = alloc;
    c->op->alloc_arg = arg;
}

/* splits NULL: even. */
static int
draft_check_splits(const struct op_draft *c, const int64_t *splits, int n_splits)
{
    uint32_t n = c->op->n_members;
    int64_t rows = c->op->req.shape[0], sum = 0;

    if (!splits && rows % n != 0)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": splits not provided, but first dimension of "
                       "tensor (%lld) is not an even multiple of the number of workers "
                       "(%u)",
                       c->t.name, (long long)rows, n);
    if (!splits)
        return 0;
    if (n_splits < 0 || (uint32_t)n_splits != n)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": number of entries in splits (%d) does not "
                       "equal number of workers (%u)",
                       c->t.name, n_splits, n);
    for (int i = 0; i < n_splits; i++) {
        if (splits[i] < 0)
            return err_set(c->err, HVD_INVALID_ARGUMENT,
                           "tensor \"%.200s\": splits[%d] is %lld, must be >= 0",
                           c->t.name, i, (long long)splits[i]);
        if (__builtin_add_overflow(sum, splits[i], &sum))
            sum = INT64_MAX;
    }
    if (sum != rows)
        return err_set(c->err, HVD_INVALID_ARGUMENT,
                       "tensor \"%.200s\": sum of splits entries (%lld) does not equal "
                       "the first dimension of tensor (%lld)",
                       c->t.name, (long long)sum, (long long)rows);
    return 0;
}

static int draft_take_splits(struct op_draft *c, const int64_t *splits, int n_splits)
{
    struct op *op = c->op;
    int rc = draft_check_splits(c, splits, n_splits);

    if (rc < 0)
        return rc;
    op->rows = mem_calloc(op->n_members, sizeof(*op->rows));
    if (!op->rows)
        return err_set(c->err, HVD_NO_MEMORY, "out of memory for an operation");
    for (uint32_t i = 0; i < op->n_members; i++)
        op->rows[i] = splits ? splits[i] : op->req.shape[0] / op->n_members;
    return 0;
}

/* --- exported --- */

int hvd_allreduce_async(const struct hvd_tensor *t,
                        int op,
                        double prescale,
                        double postscale,
                        int process_set,
                        hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init_data(&c, t, COLL_ALLREDUCE, process_set);

    rc = rc < 0 ? rc : draft_take_reduction(&c, op, prescale, postscale);
    rc = rc < 0 ? rc : draft_take_codec(&c);
    return draft_finish(&c, rc, ret_handle);
}

int hvd_reduce_async(const struct hvd_tensor *t,
                     int op,
                     double prescale,
                     double postscale,
                     int root_rank,
                     int process_set,
                     hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init_data(&c, t, COLL_REDUCE, process_set);

    rc = rc < 0 ? rc : draft_take_reduction(&c, op, prescale, postscale);
    rc = rc < 0 ? rc : draft_take_root(&c, root_rank);
    return draft_finish(&c, rc, ret_handle);
}

int hvd_reducescatter_async(const struct hvd_tensor *t,
                            int op,
                            double prescale,
                            double postscale,
                            hvd_alloc_fn alloc,
                            void *alloc_arg,
                            int process_set,
                            hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init_data(&c, t, COLL_REDUCESCATTER, process_set);

    rc = rc < 0 ? rc : draft_take_reduction(&c, op, prescale, postscale);
    if (rc == 0)
        draft_take_alloc(&c, alloc, alloc_arg);
    return draft_finish(&c, rc, ret_handle);
}

int hvd_allgather_async(const struct hvd_tensor *t,
                        hvd_alloc_fn alloc,
                        void *alloc_arg,
                        int process_set,
                        hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init_data(&c, t, COLL_ALLGATHER, process_set);

    if (rc == 0)
        draft_take_alloc(&c, alloc, alloc_arg);
    return draft_finish(&c, rc, ret_handle);
}

int hvd_gather_async(const struct hvd_tensor *t,
                     int root_rank,
                     hvd_alloc_fn alloc,
                     void *alloc_arg,
                     int process_set,
                     hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init_data(&c, t, COLL_GATHER, process_set);

    rc = rc < 0 ? rc : draft_take_root(&c, root_rank);
    if (rc == 0)
        draft_take_alloc(&c, alloc, alloc_arg);
    return draft_finish(&c, rc, ret_handle);
}

int hvd_broadcast_async(const struct hvd_tensor *t,
                        int root_rank,
                        int process_set,
                        hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init_data(&c, t, COLL_BROADCAST, process_set);

    rc = rc < 0 ? rc : draft_take_root(&c, root_rank);
    return draft_finish(&c, rc, ret_handle);
}

int hvd_alltoall_async(const struct hvd_tensor *t,
                       const int64_t *splits,
                       int n_splits,
                       hvd_alloc_fn alloc,
                       void *alloc_arg,
                       int process_set,
                       hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init_data(&c, t, COLL_ALLTOALL, process_set);

    rc = rc < 0 ? rc : draft_take_splits(&c, splits, n_splits);
    if (rc == 0)
        draft_take_alloc(&c, alloc, alloc_arg);
    return draft_finish(&c, rc, ret_handle);
}

static int transfer_submit(const struct hvd_tensor *t,
                           int peer,
                           const char *field,
                           bool sends,
                           hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init(&c, t, COLL_SENDRECV);

    rc = rc < 0 ? rc : draft_take_pair(&c, peer, field, sends);
    rc = rc < 0 ? rc : draft_take_data(&c);
    if (rc == 0 && sends)
        c.op->output = NULL;
    else if (rc == 0)
        c.op->data = NULL;
    return draft_finish(&c, rc, ret_handle);
}

int hvd_send_async(const struct hvd_tensor *t, int dst_rank, hvd_handle *ret_handle)
{
    return transfer_submit(t, dst_rank, "dst_rank", true, ret_handle);
}

int hvd_recv_async(const struct hvd_tensor *t, int src_rank, hvd_handle *ret_handle)
{
    return transfer_submit(t, src_rank, "src_rank", false, ret_handle);
}

int hvd_probe_async(const struct hvd_tensor *t, hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init_in_set(&c, t, COLL_PROBE, 0);

    if (rc == 0 && c.w->contract.place.rank >= PAIR_MAX_RANKS)
        rc = err_set(c.err, HVD_INVALID_ARGUMENT,
                     "tensor \"%.200s\": only ranks below %u can send and receive",
                     c.t.name, PAIR_MAX_RANKS);
    if (rc == 0 && !pair_probe_name(c.t.name, c.w->contract.place.rank, c.op->req.name))
        rc = err_set(c.err, HVD_INVALID_ARGUMENT,
                     "hvd_tensor.name: has %zu bytes, of a probe at most %zu",
                     strlen(c.t.name),
                     pair_name_max(PAIR_MAX_RANKS - 1, c.w->contract.place.rank));
    return draft_finish(&c, rc, ret_handle);
}

int hvd_register_async(const struct hvd_tensor *t,
                       int process_set,
                       hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init_data(&c, t, COLL_REGISTER, process_set);

    if (rc == 0 && (c.op->req.place != PLACE_CUDA || c.op->bytes == 0))
        rc = err_set(c.err, HVD_INVALID_ARGUMENT,
                     "tensor \"%.200s\": only memory on a GPU can be registered",
                     c.t.name);
    return draft_finish(&c, rc, ret_handle);
}

int hvd_barrier_async(const struct hvd_tensor *t,
                      int process_set,
                      hvd_handle *ret_handle)
{
    struct op_draft c;
    int r = draft_init_in_set(&c, t, COLL_BARRIER, process_set);

    return draft_finish(&c, r, ret_handle);
}

int hvd_join_async(const struct hvd_tensor *t, hvd_handle *ret_handle)
{
    struct op_draft c;
    int rc = draft_init_in_set(&c, t, COLL_JOIN, 0);
    struct device *d;
    struct err none = ERR_INIT;

    if (rc == 0 && c.t.device > 0) /* only if a GPU may follow */
        (void)device_need(coordinator_gpu(c.w->co), c.t.device, NULL, &d, &none);
    return draft_finish(&c, rc, ret_handle);
}
