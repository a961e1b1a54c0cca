/* SPDX-License-Identifier: Apache-2.0 */
/* The simplest sound repetition: the same batch once more, right after the first time.
 *
 *   inputs --copy--> bytes
 *   inputs --sum---> results        (may be the inputs' memory)
 *   bytes  --sum---> bytes          the same batch, in place
 *   results = bytes?  and the same results on all members?   one more allgather
 *
 * All members take part, because they count the same sums (core/replay.h). The order of
 * a sum depends on neither fusion nor time, so both results must have the same bits.
 * Memory: the bytes of one batch, at most HOROVOD_FUSION_THRESHOLD or the largest tensor.
 *
 * Not repeated: compressed sums, whose residuals change with each, and tensors in GPU
 * memory. */
#include "runtime/engine/replay.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/core/replay.h"

static size_t item_bytes(const struct batch *batch, size_t i)
{
    return (size_t)batch->items[i].count * dtype_size(batch->dtype);
}

/* Items begin at multiples of a cache line, as fused ones do. */
static size_t item_room(const struct batch *batch, size_t i)
{
    return (item_bytes(batch, i) + 63) / 64 * 64;
}

int repeat_begin(struct carry *c,
                 const struct member_act *act,
                 const struct batch *batch,
                 struct repeat *ret,
                 struct err *err)
{
    size_t total = 0;
    int rc = 0;

    if (c->replay.last == 0 || batch->coll != COLL_ALLREDUCE
        || act->items[0].req->codec[0])
        return 0;
    for (size_t i = 0; i < act->n_items && rc == 0; i++) {
        const struct tensor_request *q = act->items[i].req;
        uint32_t step = 0;

        rc = replay_count(&c->replay, q->process_set, q->name, &step, err);
        ret->step = step ? step : ret->step;
        total += item_room(batch, i);
    }
    repeat_log(c, false);
    if (rc < 0 || ret->step == 0)
        return rc;
    ret->bytes = mem_alloc(total + 64);
    if (!ret->bytes)
        return err_set(err, -ENOMEM,
                       "rank %u is out of memory for %zu bytes of HVD_REPLAY",
                       c->e->rank, total);
    for (size_t i = 0, at = 0; i < batch->n_items; at += item_room(batch, i++))
        if (item_bytes(batch, i) > 0)
            memcpy(ret->bytes + at, batch->items[i].in, item_bytes(batch, i));
    return 0;
}

/* ret[set->n]: what each member has found. */
static int replayed_exchange(struct carry *c,
                             const struct process_set *set,
                             const struct replayed *mine,
                             struct replayed *ret,
                             struct err *err)
{
    return carry_gather_records(c, set, mine, sizeof(*mine), ret, err);
}

static int replayed_judge(struct carry *c,
                          const struct process_set *set,
                          const struct member_act *act,
                          const struct batch *batch,
                          uint32_t step,
                          const struct replayed *mine,
                          struct err *err)
{
    AUTOFREE struct replayed *all = mem_calloc(set->n, sizeof(*all));
    AUTOFREE const char **hosts = mem_calloc(set->n, sizeof(*hosts));
    AUTOFREE const char **names = mem_calloc(act->n_items, sizeof(*names));
    AUTOFREE uint64_t *counts = mem_calloc(act->n_items, sizeof(*counts));
    int rc;

    if (!all || !hosts || !names || !counts)
        return err_set(err, -ENOMEM, "rank %u is out of memory", c->e->rank);
    for (uint32_t i = 0; i < set->n; i++)
        hosts[i] = c->e->members[set->ranks[i]].host;
    for (size_t i = 0; i < act->n_items; i++) {
        names[i] = act->items[i].req->name;
        counts[i] = batch->items[i].count;
    }
    rc = replayed_exchange(c, set, mine, all, err);
    return rc < 0 ? rc
                  : replay_judge(all,
                                 &(struct replay_batch){.step = step,
                                                        .names = names,
                                                        .counts = counts,
                                                        .dtype = batch->dtype,
                                                        .ranks = set->ranks,
                                                        .hosts = hosts,
                                                        .n_members = set->n},
                                 err);
}

int repeat_compare(struct carry *c,
                   const struct process_set *set,
                   const struct member_act *act,
                   const struct batch *batch,
                   struct repeat *r,
                   struct err *err)
{
    AUTOFREE struct batch_item *items = NULL;
    struct batch again = *batch;
    struct replayed mine = {0};
    int rc;

    if (r->step == 0)
        return 0;
    items = mem_calloc(batch->n_items, sizeof(*items));
    if (!items)
        return err_set(err, -ENOMEM, "rank %u is out of memory", c->e->rank);
    for (size_t i = 0, at = 0; i < batch->n_items; at += item_room(batch, i++)) {
        items[i] = batch->items[i];
        items[i].in = items[i].out = r->bytes + at;
    }
    again.items = items;
    rc = carry_post(c, set->backend, &again, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < batch->n_items; i++) {
        replayed_add(&mine, i, batch->items[i].out, items[i].out, items[i].count,
                     batch->dtype);
        c->replay.n_bytes += item_bytes(batch, i);
    }
    c->replay.n_sums += batch->n_items;
    rc = replayed_judge(c, set, act, batch, r->step, &mine, err);
    c->is_replay_logged = c->is_replay_logged || rc < 0; /* they were not equal */
    return rc;
}

void repeat_log(struct carry *c, bool is_end)
{
    const struct replay *r = &c->replay;

    if (c->is_replay_logged || r->last == 0 || !(r->is_past || is_end))
        return;
    c->is_replay_logged = true;
    if (c->e->rank == 0)
        log_warn(r->n_sums > 0
                     ? "all repeated sums had equal results"
                     : "HVD_REPLAY has repeated no sum of tensors in host memory",
                 "steps=%u-%u sums=%llu bytes=%llu", r->first, r->last,
                 (unsigned long long)r->n_sums, (unsigned long long)r->n_bytes);
}

void repeat_release(struct repeat *r)
{
    mem_free(r->bytes);
    r->bytes = NULL;
}
