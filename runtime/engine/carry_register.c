/* SPDX-License-Identifier: Apache-2.0 */
/* Registers and deregisters buffers on the GPU.
 *
 * All members of the set come here at the same position in the common order. Each
 * registers its own memory with its device, then they exchange the results over the
 * set's CPU communicator. If all succeeded, the buffer is a region with the same number
 * on all of them, and later tensors in it carry this number in their requests. If one
 * failed, none keeps it, and the operation fails on all with that rank's text. Nothing
 * else fails: tensors there are sent like any other.
 *
 * A tensor in the buffer that was submitted before has no region in its request, but
 * NCCL would find its memory registered on the ranks that have it there. Such a buffer
 * is refused. Deregistering waits for the batches in flight.
 *
 * The seat waits for its device here (an exception to rule R3), once per buffer, and
 * handles control messages meanwhile. Called by carry.c. */
#include <errno.h>
#include <string.h>

#include "runtime/engine/carry.h"
#include "runtime/base/mem.h"

/* REFUSED: an error of the program; CANNOT: of NCCL or memory */
enum { REFUSED, GOOD, CANNOT };

/* The checks of this rank, before its device is asked. */
static int
buffer_check(struct carry *c, const struct op *op, uint32_t number, struct err *why)
{
    char name[NAME_SHOWN_MAX], pending[TENSOR_NAME_MAX];
    uint32_t set = op->req.process_set, other;

    if (number == 0)
        return err_set(why, -E2BIG, "%u buffers of this process set are registered",
                       REGION_MAX);
    if (!c->e->gpu.ops->buffer_register)
        return err_set(why, -ENOTSUP, "this GPU's library cannot");
    other = regions_find_overlap(&c->e->regions, set, op->data, op->bytes);
    if (other > 0)
        return err_set(why, -EEXIST, "it overlaps registered buffer %u", other);
    if (tensor_queue_find_in(&c->e->queue, set, op->data, op->bytes, op, pending))
        return err_set(why, -EBUSY, "tensor %s, which lies in it, is pending",
                       name_shown(pending, name));
    return regions_reserve(&c->e->regions) < 0 ? err_set(why, -ENOMEM, "out of memory")
                                               : 0;
}

int carry_gather_records(struct carry *c,
                         const struct process_set *set,
                         const void *mine,
                         size_t n,
                         void *ret,
                         struct err *err)
{
    AUTOFREE uint64_t *counts = mem_calloc(set->n, sizeof(*counts));
    struct batch_item item = {.in = mine, .out = ret, .count = n, .counts = counts};
    struct batch batch = {.coll = COLL_ALLGATHER,
                          .dtype = DT_U8,
                          .op = OP_SUM,
                          .prescale = 1.0,
                          .postscale = 1.0,
                          .items = &item,
                          .n_items = 1};

    if (!counts)
        return err_set(err, -ENOMEM, "rank %u is out of memory", c->e->rank);
    for (uint32_t i = 0; i < set->n; i++)
        counts[i] = n;
    return carry_post(c, set->backend, &batch, err);
}

int carry_verdicts(struct carry *c,
                   const struct process_set *set,
                   const struct verdict *mine,
                   struct verdict *ret,
                   struct err *err)
{
    int rc = carry_gather_records(c, set, mine, sizeof(*mine), ret, err);

    for (uint32_t i = 0; i < set->n && rc == 0; i++)
        ret[i].why[sizeof(ret[i].why) - 1] = 0;
    return rc;
}

/* 0: all succeeded. Above: it ends with -status, and `why` names the rank. */
static int buffer_collect_verdicts(struct carry *c,
                                   const struct process_set *set,
                                   const struct op *op,
                                   const struct verdict *mine,
                                   struct err *why,
                                   struct err *err)
{
    AUTOFREE struct verdict *all = mem_calloc(set->n, sizeof(*all));
    char name[NAME_SHOWN_MAX];
    int rc = all ? carry_verdicts(c, set, mine, all, err)
                 : err_set(err, -ENOMEM, "rank %u is out of memory for a buffer",
                           c->e->rank);

    for (uint32_t i = 0; i < set->n && rc == 0; i++) {
        if (all[i].how == GOOD)
            continue;
        (void)err_set(why, -EINVAL,
                      "tensor %s: its memory was not registered on any rank: rank %u "
                      "(host %s) cannot: %s",
                      name_shown(op->req.name, name), set->ranks[i],
                      c->e->members[set->ranks[i]].host, all[i].why);
        return all[i].how == CANNOT ? -HVD_UNSUPPORTED : -HVD_INVALID_ARGUMENT;
    }
    return rc;
}

static int
buffer_add(struct carry *c, struct process_set *set, struct op *op, struct err *err)
{
    const struct region region = {
        .set = set->id,
        .number = regions_next(&c->e->regions, set->id, set->last_region),
        .at = (uintptr_t)op->data,
        .bytes = op->bytes};
    struct verdict mine = {.how = GOOD};
    struct err why = ERR_INIT;
    void *p = (void *)region.at;
    int rc = buffer_check(c, op, region.number, &why);

    rc = rc < 0
             ? rc
             : c->e->gpu.ops->buffer_register(set->device_backend, p, op->bytes, &why);
    if (rc < 0 && rc != -ENOTSUP && rc != -EIO && rc != -ENOMEM && rc != -E2BIG
        && rc != -EEXIST && rc != -EBUSY)
        return err_set(err, rc, "%s", why.text); /* the device, or the world */
    if (rc < 0) {
        mine.how = rc == -ENOTSUP || rc == -EIO || rc == -ENOMEM ? CANNOT : REFUSED;
        memcpy(mine.why, why.text, strnlen(why.text, sizeof(mine.why) - 1));
    }
    rc = buffer_collect_verdicts(c, set, op, &mine, &why, err);
    if (rc < 0)
        return rc;
    if (rc > 0 && mine.how == GOOD)
        c->e->gpu.ops->buffer_forget(set->device_backend, p);
    if (rc == 0) {
        set->last_region = region.number;
        regions_add(&c->e->regions, &region);
    }
    engine_finish_op(c->e, op, -rc, rc == 0 ? NULL : why.text);
    return 0;
}

static int buffer_remove(struct carry *c,
                         const struct process_set *set,
                         struct op *op,
                         struct err *err)
{
    struct region region;
    int rc = flights_drain(c->flights, set->device_backend, 0, err);

    if (rc < 0)
        return rc;
    if (!regions_get(&c->e->regions, set->id, op->req.root, &region)) {
        engine_finish_op(c->e, op, HVD_INVALID_ARGUMENT,
                         "the buffer is not registered any more");
        return 0;
    }
    c->e->gpu.ops->buffer_forget(set->device_backend, (void *)region.at);
    regions_remove(&c->e->regions, set->id, region.number);
    engine_finish_op(c->e, op, HVD_OK, NULL);
    return 0;
}

void carry_forget_set(struct carry *c, const struct process_set *set)
{
    struct region region;

    for (uint32_t i = 1; i <= REGION_MAX; i++) {
        if (!regions_get(&c->e->regions, set->id, i, &region))
            continue;
        c->e->gpu.ops->buffer_forget(set->device_backend, (void *)region.at);
        regions_remove(&c->e->regions, set->id, i);
    }
}

int carry_register(struct carry *c,
                   struct process_set *set,
                   const struct member_act *act,
                   struct err *err)
{
    struct op *op = act->items[0].op ? op_of(act->items[0].op) : NULL;
    int rc = op ? carry_open_comm(c, set, act, err)
                : err_set(err, -EPROTO, "an agreed buffer is empty");

    if (rc < 0)
        return rc;
    rc =
        op->req.root > 0 ? buffer_remove(c, set, op, err) : buffer_add(c, set, op, err);
    if (rc == 0)
        engine_wake_waiters(c->e);
    return rc;
}
