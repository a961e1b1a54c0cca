/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out a batch of tensors in GPU memory: it is posted and becomes a flight.
 *
 * The GPU communicator of a process set is opened with its first batch, over its CPU
 * communicator. All members reach this at the same position in the common order, so a
 * failure has the same text on all of them. If the world has a GPU communicator and
 * NCCL can split it, a set that is added gets its own at once. Whether it does follows
 * from the common order alone.
 *
 * A rank that has joined contributes zeros, which the device makes: its item has no
 * memory. It opens its device here if it never had a tensor there.
 *
 * Called by carry.c, in the seat, when the results have memory. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine/carry.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

/* This rank has no device, for the reason in err. The other ranks are about to connect
 * and must not wait for it. Without the library there is no connecting; then the world
 * is ended by this error. */
static int carry_refuse_comm(struct carry *c,
                             const struct process_set *set,
                             const struct backend_env *env,
                             struct err *err)
{
    AUTOFREE const char **hosts = mem_calloc(c->e->size, sizeof(*hosts));
    const struct device_ops *ops;
    const struct err why = *err;

    if (!hosts || device_find_ops(&ops, NULL) < 0)
        return err_prefix(err, "rank %u has no GPU", c->e->rank);
    for (uint32_t r = 0; r < c->e->size && c->e->members; r++)
        hosts[r] = c->e->members[r].host;
    return ops->comm_refuse(set->backend, env, set->ranks, hosts, why.text, err);
}

int carry_open_comm(struct carry *c,
                    struct process_set *set,
                    const struct member_act *act,
                    struct err *err)
{
    struct backend_env env;
    struct device *d;

    if (set->device_backend)
        return 0;
    observe_init_device(&c->e->observe, act);
    env = *c->env;
    env.rank = set->me;
    env.size = set->n;
    env.global = set->ranks;
    env.deadline_ns = clock_now_ns() + c->e->settings.start_timeout_ns;
    if (device_need(&c->e->gpu, HVD_DEVICE_OF_POINTER, NULL, &d, err) < 0)
        return carry_refuse_comm(c, set, &env, err);
    return c->e->gpu.ops->comm_open(d, set->backend, &env, set->ranks,
                                    &set->device_backend, err);
}

int carry_device_set(struct carry *c, uint32_t id, struct err *err)
{
    struct backend *world = sets_find(c->e->sets, 0)->device_backend;
    struct process_set *set = sets_find(c->e->sets, id);
    int rc;

    if (!world)
        return 0;
    rc =
        c->e->gpu.ops->comm_split(world, set->ranks, set->n, &set->device_backend, err);
    return rc == -ENOTSUP ? 0 : rc; /* on all ranks: it is opened at its first batch */
}

/* The memory of the caller's alloc may be in use in its stream until now. The seat does
 * not wait: the GPU may wait for a rank that is lost. */
static int op_record_again(struct carry *c, struct op *op, struct err *err)
{
    struct device_event *e;
    void *stream = op->stream;
    int rc;

    if (!op->alloc || op->owns_result || !op->result)
        return 0;
    if (stream == DEVICE_STREAM_ALL)
        stream = DEVICE_STREAM_ALL_LATER;
    rc = c->e->gpu.ops->record(device_of(&c->e->gpu), stream, &e, err);
    if (rc < 0)
        return rc;
    c->e->gpu.ops->event_unref(op->ready);
    op->ready = e;
    return 0;
}

static uint64_t op_result_bytes(const struct op *op)
{
    uint64_t n = dtype_size(op->req.dtype);

    for (int i = 0; i < op->result_ndim; i++)
        n *= (uint64_t)op->result_shape[i]; /* op_make_result has checked it */
    return n;
}

static int batch_fill_device_item(struct carry *c,
                                  const struct member_item *from,
                                  struct batch_item *item,
                                  struct err *err)
{
    struct op *op = from->op ? op_of(from->op) : NULL;

    *item = (struct batch_item){.count = 0};
    if (!op && request_size(from->req, &item->count, NULL, NULL) < 0)
        return err_set(err, -EPROTO, "an agreed tensor has an invalid size");
    if (!op)
        return 0;
    *item = engine_batch_item(op);
    /* NCCL would find it registered on this rank and not on others. */
    if (op->alloc
        && regions_find_overlap(&c->e->regions, op->req.process_set, op->result,
                                op_result_bytes(op))
               > 0)
        return err_set(err, -EINVAL,
                       "tensor \"%.200s\": memory for its result lies in a registered "
                       "buffer of rank %u",
                       op->req.name, c->e->rank);
    if (op_record_again(c, op, err) < 0)
        return -EINVAL;
    item->ready = op->ready;
    item->given = op->given;
    return 0;
}

/* TensorFlow's operations have one, for example: it starts the next operation. */
static bool act_has_callback(const struct member_act *act)
{
    for (size_t i = 0; i < act->n_items; i++)
        if (act->items[i].op && op_of(act->items[i].op)->done)
            return true;
    return false;
}

static int
batch_fill_device(struct carry *c, const struct member_act *act, struct err *err)
{
    int rc = carry_make_items(c, act->n_items);

    if (rc < 0)
        return err_set(err, -ENOMEM, "rank %u is out of memory for a batch",
                       c->e->rank);
    for (size_t i = 0; i < act->n_items && rc == 0; i++)
        rc = batch_fill_device_item(c, &act->items[i], &c->items[i], err);
    return rc;
}

static void act_drop_events(struct carry *c, const struct member_act *act)
{
    for (size_t i = 0; i < act->n_items; i++) {
        struct op *op = act->items[i].op ? op_of(act->items[i].op) : NULL;

        if (op) {
            c->e->gpu.ops->event_unref(op->ready);
            c->e->gpu.ops->event_unref(op->given);
            op->ready = op->given = NULL;
        }
    }
}

/* Before the first compressed batch: do all members have the libraries? All are at this
 * position, because plans are equal. -ENOTSUP: the same text on all. */
static int carry_open_codec(struct carry *c,
                            struct process_set *set,
                            const struct codec_plan *plans,
                            size_t n,
                            struct err *err)
{
    size_t i = 0;

    while (i < n && !plans[i].is_compressed)
        i++;
    if (i == n || !codec_needs_library(plans[i].codec.id)
        || set->codecs & 1u << plans[i].codec.id)
        return 0;
    AUTOFREE struct verdict *all = mem_calloc(set->n, sizeof(*all));
    const enum codec_id id = plans[i].codec.id;
    struct err why = ERR_INIT;
    struct verdict mine = {.how = 1};
    if (!all)
        return err_set(err, -ENOMEM, "rank %u is out of memory for compression",
                       c->e->rank);
    if (c->e->gpu.ops->codec_open
        && c->e->gpu.ops->codec_open(set->device_backend, &plans[i], &why) < 0) {
        mine.how = 0;
        memcpy(mine.why, why.text, strnlen(why.text, sizeof(mine.why) - 1));
    }
    int rc = carry_verdicts(c, set, &mine, all, err);
    for (uint32_t m = 0; m < set->n && rc == 0; m++)
        if (!all[m].how)
            return err_set(err, -ENOTSUP,
                           "compression %s of GPU tensors: rank %u (host %s): %s",
                           codec_name(id), set->ranks[m],
                           c->e->members[set->ranks[m]].host, all[m].why);
    if (rc == 0)
        set->codecs |= 1u << id;
    return rc;
}

/* -ENOTSUP: of a codec, the same on all members. */
static int carry_post_device(struct carry *c,
                             struct process_set *set,
                             const struct member_act *act,
                             const struct batch *batch,
                             uint64_t *ret_ticket,
                             struct err *err)
{
    struct backend *b = set->device_backend;
    AUTOFREE struct codec_plan *plans = NULL;
    AUTOFREE const char **names = NULL;
    int rc;

    if (!act->items[0].req->codec[0] || batch->is_alone)
        return b->ops->post(b, batch, ret_ticket, err);
    plans = mem_calloc(act->n_items, sizeof(*plans));
    names = mem_calloc(act->n_items, sizeof(*names));
    if (!plans || !names)
        return err_set(err, -ENOMEM, "rank %u is out of memory for compression",
                       c->e->rank);
    rc = carry_codec_plans(c, act, set->n, plans, err);
    rc = rc < 0 ? rc : carry_open_codec(c, set, plans, act->n_items, err);
    for (size_t i = 0; i < act->n_items; i++)
        names[i] = act->items[i].req->name;
    return rc < 0 ? rc
                  : c->e->gpu.ops->post_codec(b, batch, names, set->id, plans,
                                              ret_ticket, err);
}

/* All members decide the same: the tensors fail, the world continues. */
static void
carry_refuse_codec(struct carry *c, const struct member_act *act, const char *why)
{
    char text[1024];

    for (size_t i = 0; i < act->n_items; i++) {
        struct op *op = act->items[i].op ? op_of(act->items[i].op) : NULL;

        (void)snprintf(text, sizeof(text), "tensor \"%.200s\": %s",
                       act->items[i].req->name, why);
        if (op)
            engine_finish_op(c->e, op, HVD_INVALID_ARGUMENT, text);
    }
    engine_wake_waiters(c->e);
}

/* HVD_DRY_RUN: without scales, each result is a copy. */
static void batch_set_alone(struct batch *b)
{
    b->is_alone = true;
    b->op = OP_SUM;
    b->prescale = b->postscale = 1;
}

int carry_device(struct carry *c,
                 struct process_set *set,
                 const struct member_act *act,
                 bool is_dry,
                 bool *ret_is_ours,
                 struct err *err)
{
    const struct tensor_request *q = act->items[0].req;
    struct batch batch = engine_batch(act);
    AUTOFREE struct flight *flight =
        flight_new(act, is_dry ? 0 : set->n); /* nothing fails later */
    struct backend *b;
    int rc;

    *ret_is_ours = false;
    if (!flight)
        return err_set(err, -ENOMEM, "rank %u is out of memory for a batch",
                       c->e->rank);
    rc = carry_open_comm(c, set, act, err);
    rc = rc < 0 ? rc : flights_drain(c->flights, NULL, FLIGHTS_MAX - 1, err);
    if (rc < 0)
        return rc;
    *ret_is_ours = true;
    rc = batch_fill_device(c, act, err);
    if (rc < 0)
        return rc;
    *ret_is_ours = false;
    batch.items = c->items;
    batch.is_awaited = act_has_callback(act);
    if (is_dry)
        batch_set_alone(&batch);
    b = set->device_backend;
    flight->began_ns = observe_posted(&c->e->observe, act);
    if (c->e->settings.nancheck)
        rc = c->e->gpu.ops->post_check(b, &batch, err);
    rc = rc < 0 ? rc : carry_post_device(c, set, act, &batch, &flight->ticket, err);
    if (rc == -ENOTSUP && q->codec[0]) {
        carry_refuse_codec(c, act, err ? err->text : "");
        return 0;
    }
    if (rc < 0)
        return rc;
    act_drop_events(c, act);
    *ret_is_ours = true;
    flight_add(c->flights, TAKE(flight), b, act);
    return 0;
}
