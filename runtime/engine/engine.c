/* SPDX-License-Identifier: Apache-2.0 */
/* Called by the parts of the coordinator. */
#include "runtime/engine/engine.h"

bool engine_is_over(const struct engine *e)
{
    int life = atomic_load_explicit(&e->life, memory_order_acquire);

    return life == LIFE_DOWN || life == LIFE_ABORTED;
}

bool engine_is_agreeing(const struct engine *e)
{
    return member_is_agreeing(e->member) && !e->has_failed;
}

struct batch engine_batch(const struct member_act *act)
{
    const struct tensor_request *q = act->items[0].req;
    /* NULL: this rank has joined; only allreduces run then, without a root */
    const struct op *first = act->items[0].op ? op_of(act->items[0].op) : NULL;

    return (struct batch){.coll = q->coll,
                          .place = q->place,
                          .region = q->region,
                          .dtype = q->dtype,
                          .op = q->op,
                          .root = first ? first->root : 0,
                          .prescale = q->prescale,
                          .postscale = q->postscale,
                          .n_items = q->coll == COLL_BARRIER ? 0 : act->n_items};
}

struct batch_item engine_batch_item(const struct op *op)
{
    return (struct batch_item){.in = op->data,
                               .out = op_has_result(op) ? op->result : op->output,
                               .count = op->count,
                               .counts = op->counts,
                               .send_counts = op->send_counts};
}

void engine_finish_op(struct engine *e, struct op *op, int status, const char *text)
{
    observe_end(&e->observe, op, status);
    tensor_queue_remove(&e->queue,
                        op); /* first: the callback may submit the name again */
    op_finish(op, status, text);
    op_unref(op);
}

void engine_end_ops(struct engine *e, const struct member_act *act)
{
    for (size_t i = 0; i < act->n_items; i++) {
        struct op *op = act->items[i].op ? op_of(act->items[i].op) : NULL;

        if (op && op->has_no_memory)
            engine_finish_op(e, op, HVD_NO_MEMORY, "no memory for the result");
        else if (op)
            engine_finish_op(e, op, HVD_OK, NULL);
    }
    engine_wake_waiters(e);
}
