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

void engine_finish_op(struct engine *e, struct op *op, int status, const char *text)
{
    observe_end(&e->observe, op, status);
    tensor_queue_remove(&e->queue,
                        op); /* first: the callback may submit the name again */
    op_finish(op, status, text);
    op_unref(op);
}
