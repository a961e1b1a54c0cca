/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out agreed batches: the operations of one process set go to the set's
 * communicator, then each of them ends.
 *
 * Process sets are added and removed here, at the same position in the common order on
 * every rank, with the world's communicator. An alltoall is two batches: first the row
 * counts, then the data. A rank that has joined contributes zeros to the allreduces of
 * the other ranks, in memory that is freed with the batch. A send and its receive are
 * one batch of the pair's communicator, which all ranks connect before its first batch.
 *
 * Three ways to the end: carry_post waits for it; batches of GPU tensors are flights
 * (flight.c); transfers of host memory are driven together (transfers.c). Called by
 * step.c. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine/carry.h"
#include "runtime/engine/replay.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/core/pair.h"

int carry_init(struct carry *c,
               struct engine *e,
               struct flights *f,
               const struct backend_env *env)
{
    c->e = e;
    c->flights = f;
    c->env = env;
    replay_init(&c->replay, e->settings.guard.first, e->settings.guard.last);
    c->rows = mem_calloc(e->size, sizeof(*c->rows));
    c->ones = mem_calloc(e->size, sizeof(*c->ones));
    for (uint32_t i = 0; c->ones && i < e->size; i++)
        c->ones[i] = 1;
    return c->rows && c->ones ? 0 : -ENOMEM;
}

void carry_release(struct carry *c)
{
    repeat_log(c, true);
    replay_release(&c->replay);
    codec_state_free(c->codec_state);
    mem_free(c->codec_scratch);
    mem_free(c->rows);
    mem_free(c->ones);
    mem_free(c->items);
}

int carry_make_items(struct carry *c, size_t n)
{
    void *items = c->items;
    int rc = 0;

    while (rc == 0 && c->items_cap < n)
        rc = mem_grow(&items, c->items_cap, &c->items_cap, sizeof(*c->items),
                      SIZE_MAX / 64);
    c->items = items;
    return rc;
}

int carry_post(struct carry *c,
               struct backend *b,
               const struct batch *batch,
               struct err *err)
{
    uint64_t ticket, done;
    int rc = b->ops->post(b, batch, &ticket, err);

    for (;;) {
        rc = rc < 0 ? rc : b->ops->poll(b, &done, err);
        if (rc < 0 || done >= ticket)
            return rc;
        rc = engine_interrupted(c->e, err);
        (void)sched_yield();
    }
}

static int carry_report_no_memory(const struct carry *c,
                                  const struct tensor_request *q,
                                  struct err *err)
{
    char name[NAME_SHOWN_MAX];

    return err_set(err, -ENOMEM, "rank %u is out of memory for tensor %s", c->e->rank,
                   name_shown(q->name, name));
}

/* --- process sets --- */

static int backend_split(struct carry *c,
                         const uint32_t *ranks,
                         uint32_t n,
                         struct backend **ret,
                         struct err *err)
{
    uint64_t deadline = clock_now_ns() + c->e->settings.start_timeout_ns;

    return c->e->backend->ops->subset(c->e->backend, ranks, n, deadline, ret, err);
}

int carry_pair(struct carry *c, uint32_t pair, struct err *err)
{
    struct backend *child = NULL;
    uint32_t ranks[2];
    int rc;

    pair_ranks(pair, ranks);
    rc = backend_split(c, ranks, 2, &child, err);
    if (rc < 0)
        (void)err_prefix(err, "send and receive of ranks %u and %u", ranks[0],
                         ranks[1]);
    if (rc < 0 || !child)
        return rc;
    rc = sets_add_pair(c->e->sets, pair, child);
    if (rc < 0) {
        c->e->backend->ops->close(child);
        return err_set(err, rc,
                       "rank %u is out of memory for transfers of ranks %u "
                       "and %u",
                       c->e->rank, ranks[0], ranks[1]);
    }
    return 0;
}

static int carry_add_set(struct carry *c,
                         const uint32_t *ranks,
                         const struct tensor_request *q,
                         uint32_t id,
                         struct err *err)
{
    uint32_t n = q->n_set;
    struct backend *child = NULL;
    int rc = backend_split(c, ranks, n, &child, err);

    if (rc < 0)
        return rc;
    rc = sets_add(c->e->sets, id, ranks, n, (enum set_callers)q->root, child, err);
    if (rc < 0) {
        if (child)
            c->e->backend->ops->close(child);
        return rc;
    }
    rc = carry_device_set(c, id, err);
    if (rc < 0)
        return rc;
    if (member_set_added(c->e->member, id, child != NULL) < 0)
        return err_set(err, -ENOMEM, "rank %u is out of memory for process set %u",
                       c->e->rank, set_number(id));
    return 0;
}

int carry_set(struct carry *c, const struct member_act *act, struct err *err)
{
    const struct tensor_request *q = act->items[0].req;
    AUTOFREE uint32_t *ranks = mem_calloc(q->n_set, sizeof(*ranks));

    if (!ranks)
        return err_set(err, -ENOMEM, "rank %u is out of memory for process set %u",
                       c->e->rank, set_number(act->set_id));
    for (uint32_t i = 0; i < q->n_set; i++)
        ranks[i] = request_set_rank(q, i);
    return carry_add_set(c, ranks, q, act->set_id, err);
}

/* Waits until none of its batches is on the GPUs. */
static int carry_drain_set(struct carry *c, uint32_t id, struct err *err)
{
    const struct process_set *set = sets_find(c->e->sets, id);
    int rc;

    if (!set || !set->device_backend)
        return 0;
    c->e->gpu.ops->state_forget_set(device_of(&c->e->gpu), id);
    rc = flights_drain(c->flights, set->device_backend, 0, err);
    if (rc == 0) /* its buffers may be freed after its removal */
        carry_forget_set(c, set);
    return rc;
}

static int carry_change_sets(struct carry *c,
                             struct op *op,
                             const struct member_act *act,
                             struct err *err)
{
    int rc;

    if (op->req.coll == COLL_SET_ADD) {
        op->set_id = act->set_id;
        return carry_add_set(c, op->ranks, &op->req, act->set_id, err);
    }
    rc = carry_drain_set(c, op->req.root, err);
    rc = rc < 0 ? rc : sets_remove(c->e->sets, op->req.root, err);
    member_set_removed(c->e->member, op->req.root);
    if (c->codec_state)
        codec_state_forget_set(c->codec_state, op->req.root);
    return rc;
}

/* --- batches --- */

static int op_exchange_rows(struct carry *c,
                            struct op *op,
                            const struct process_set *set,
                            struct err *err)
{
    struct batch_item item = {.in = op->rows,
                              .out = c->rows,
                              .count = set->n,
                              .counts = c->ones,
                              .send_counts = c->ones};
    struct batch batch = {.coll = COLL_ALLTOALL,
                          .dtype = DT_I64,
                          .op = OP_SUM,
                          .prescale = 1.0,
                          .postscale = 1.0,
                          .items = &item,
                          .n_items = 1};

    return carry_post(c, set->backend, &batch, err);
}

/* The device's error: a lost context (-EIO) is itself the cause. */
static int report_no_result(const struct carry *c,
                            const struct op *op,
                            const struct err *why,
                            int r,
                            struct err *err)
{
    char name[NAME_SHOWN_MAX];

    if (r == -EIO)
        return err_set(err, r, "%s", why->text);
    return err_set(err, r, "rank %u has no memory for the result of tensor %s: %s",
                   c->e->rank, name_shown(op->req.name, name), why->text);
}

/* Memory for the result, and the counts of all members. */
static int op_prepare_result(struct carry *c,
                             struct op *op,
                             const struct process_set *set,
                             const struct member_act *act,
                             bool *ret_is_ours,
                             struct err *err)
{
    const uint64_t *dim0 = act->counts;
    struct err why;
    int rc = 0;

    err_init(&why);
    *ret_is_ours = true;
    if (!op_has_result(op))
        return 0;
    observe_allocate(&c->e->observe, op);
    if (op->req.coll == COLL_ALLTOALL) {
        *ret_is_ours = false; /* from here on it is the backend's failure */
        rc = op_exchange_rows(c, op, set, err);
        if (rc < 0)
            return rc;
        *ret_is_ours = true;
        dim0 = c->rows;
        rc = op_make_send_counts(op, set->n);
    } else if (request_has_counts(&op->req) && act->n_counts != set->n) {
        return err_set(err, -EPROTO,
                       "tensor \"%.200s\": counts of %u ranks in a set of %u",
                       op->req.name, act->n_counts, set->n);
    }
    if (rc == 0)
        rc = op_make_result(op, dim0, set->n, &why);
    if (rc < 0 && why.text[0])
        return report_no_result(c, op, &why, rc, err);
    return rc < 0 ? carry_report_no_memory(c, &op->req, err) : 0;
}

static int batch_fill_item(const struct member_item *from,
                           struct batch_item *item,
                           uint8_t *zeros,
                           uint64_t *at)
{
    uint64_t count, bytes;

    if (from->op) {
        *item = engine_batch_item(op_of(from->op));
        return 0;
    }
    if (request_size(from->req, &count, &bytes, NULL) < 0)
        return -EPROTO;
    *item = (struct batch_item){.in = zeros + *at, .out = zeros + *at, .count = count};
    *at += bytes;
    return 0;
}

static uint64_t act_zero_bytes(const struct member_act *act)
{
    uint64_t sum = 0, bytes;

    for (size_t i = 0; i < act->n_items; i++)
        if (!act->items[i].op
            && request_size(act->items[i].req, NULL, &bytes, NULL) == 0)
            sum += bytes;
    return sum;
}

/* HVD_DRY_RUN: the result of a reduction is this rank's own input, or its share. */
static void
carry_keep(struct carry *c, const struct process_set *set, const struct batch *batch)
{
    const size_t size = dtype_size(batch->dtype);

    for (size_t i = 0; i < batch->n_items; i++) {
        const struct batch_item *item = &c->items[i];
        uint64_t count = item->count, at = 0;

        if (batch->coll == COLL_REDUCESCATTER) {
            for (uint32_t m = 0; m < set->me; m++)
                at += item->counts[m];
            count = item->counts[set->me];
        }
        if (count > 0)
            memmove(item->out, (const char *)item->in + at * size, count * size);
    }
}

/* Of a batch that is carried out now: HVD_DRY_RUN, in a step without communication. The
 * results of other collectives decide what programs do next, so they always communicate. */
static bool carry_is_dry(struct carry *c, const struct member_act *act)
{
    const enum collective coll = act->items[0].req->coll;
    struct member *m = c->e->member;
    uint32_t n_plan;

    if (!c->e->settings.is_dry_run)
        return false;
    n_plan = member_plan_size(m);
    return n_plan > 0
           && reporter_is_dry(&c->e->observe.reporter, member_counts(m).n_plans, n_plan,
                              act->n_items)
           && (coll == COLL_ALLREDUCE || coll == COLL_REDUCESCATTER);
}

static int carry_run_batch(struct carry *c,
                           const struct process_set *set,
                           const struct member_act *act,
                           bool is_dry,
                           bool *ret_is_ours,
                           struct err *err)
{
    const struct tensor_request *q = act->items[0].req;
    uint64_t n_zeros = act_zero_bytes(act), at = 0, began_ns;
    AUTOFREE uint8_t *zeros = n_zeros > 0 ? mem_zalloc(n_zeros) : NULL;
    CLEANUP(repeat_release) struct repeat again = {0};
    struct batch batch = engine_batch(act);
    int rc = carry_make_items(c, act->n_items);

    *ret_is_ours = true;
    if (rc < 0 || (n_zeros > 0 && !zeros))
        return carry_report_no_memory(c, q, err);
    for (size_t i = 0; i < act->n_items && rc == 0; i++)
        rc = batch_fill_item(&act->items[i], &c->items[i], zeros, &at);
    if (rc < 0)
        return err_set(err, rc, "an agreed tensor has an invalid size");
    batch.items = c->items;
    rc = is_dry ? 0 : repeat_begin(c, act, &batch, &again, err);
    if (rc < 0)
        return rc;
    *ret_is_ours = false; /* also for a NaN: rank 0 receives it and informs all ranks */
    rc = observe_transfer(&c->e->observe, act, &began_ns, err);
    if (rc < 0)
        return rc;
    if (is_dry)
        carry_keep(c, set, &batch);
    else
        rc = q->codec[0] ? carry_compressed(c, set, act, &batch, ret_is_ours, err)
                         : carry_post(c, set->backend, &batch, err);
    rc = rc < 0 ? rc : repeat_compare(c, set, act, &batch, &again, err);
    if (rc == 0)
        observe_transferred(&c->e->observe, act, is_dry ? 0 : set->n, began_ns);
    return rc;
}

int carry_run(struct carry *c,
              const struct member_act *act,
              bool *ret_is_ours,
              struct err *err)
{
    const struct tensor_request *q = act->items[0].req;
    struct op *op = act->items[0].op ? op_of(act->items[0].op) : NULL;
    const bool is_dry = carry_is_dry(c, act);
    struct process_set *set;
    int rc = 0;

    *ret_is_ours = true;
    observe_run(&c->e->observe, act);
    if (op && (q->coll == COLL_SET_ADD || q->coll == COLL_SET_REMOVE)) {
        *ret_is_ours = false;
        rc = carry_change_sets(c, op, act, err);
    } else {
        set = sets_find(c->e->sets, q->process_set);
        if (!set || !set->backend)
            return err_set(err, -EPROTO,
                           "tensor \"%.200s\": rank %u is not in process set %u",
                           q->name, c->e->rank, set_number(q->process_set));
        for (size_t i = 0; i < act->n_items && rc == 0; i++)
            if (act->items[i].op)
                rc = op_prepare_result(c, op_of(act->items[i].op), set, act,
                                       ret_is_ours, err);
        if (rc == 0 && q->coll == COLL_REGISTER) {
            *ret_is_ours = false;
            return carry_register(c, set, act, err);
        }
        if (rc == 0 && transfer_is(act))
            return transfers_add(c->e, set, act, ret_is_ours, err);
        if (rc == 0 && q->place == PLACE_CUDA)
            return carry_device(c, set, act, is_dry, ret_is_ours, err);
        if (rc == 0)
            rc = carry_run_batch(c, set, act, is_dry, ret_is_ours, err);
    }
    if (rc < 0)
        return rc;
    autotune_batch(&c->e->autotune, act);
    engine_end_ops(c->e, act);
    return 0;
}
