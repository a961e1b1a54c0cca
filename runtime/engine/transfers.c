/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out transfers of host memory (sends and receives) at the same time where their
 * pairs differ.
 *
 *   answers, in order:   a (0 -> 1)   b (1 -> 2)   c (0 -> 1)   allreduce
 *   rank 1:              a posted     b posted     c waits      waits for all three
 *                        a and b move together, then c
 *
 * I1  Transfers begin in the order of answers, those of one pair one after the other.
 *     Both ranks of a pair therefore post equal batches in the same order.
 *
 * I2  Everything else (another collective, an agreement, connecting a pair) is carried
 *     out when no transfer is left. So nothing that a rank waits for in here waits for
 *     something that is behind it in the order of answers.
 *
 * No deadlock. Consider the first answer, in the order that all ranks have, that is not
 * carried out. All before it have ended on all of its ranks, so by I1 and I2 each of
 * them has begun it or is about to. If it is a transfer, its sender and receiver drive
 * it until it ends, beside others, and no step of a transfer waits (backend.h). If it is
 * anything else, its ranks enter it together. Either way it ends. The answers behind a
 * transfer are not waited for, so a ring 0 -> 1, 1 -> 2, 2 -> 0 needs no order, and its
 * tensors may be larger than all buffers.
 *
 * The seat may be left while transfers move: a thread that waits for one of them returns
 * when that has ended. The next thread in the seat continues, at the latest the
 * background thread.
 *
 * A batch counts as in progress from its start, also while it waits for an earlier one
 * of its pair. Called by carry.c and step.c. */
#include "runtime/engine/transfers.h"

#include <errno.h>
#include <sched.h>

#include "runtime/base/mem.h"
#include "runtime/engine/engine.h"

struct transfer {
    struct transfer *next;
    const struct process_set *set; /* a pair: it stays until the world ends */
    uint64_t ticket, began_ns;
    struct batch batch;
    struct batch_item *tensors; /* [batch.n_items] */
    struct member_item items[]; /* [batch.n_items] */
};

static struct member_act transfer_act(const struct transfer *t)
{
    return (struct member_act){
        .kind = MEMBER_RUN, .items = t->items, .n_items = t->batch.n_items};
}

static struct transfer *transfer_new(const struct process_set *set,
                                     const struct member_act *act)
{
    const size_t n = act->n_items;
    struct transfer *t =
        mem_zalloc(sizeof(*t) + n * (sizeof(*t->items) + sizeof(*t->tensors)));

    if (!t)
        return NULL;
    t->set = set;
    t->tensors = (struct batch_item *)(void *)(t->items + n);
    t->batch = engine_batch(act);
    t->batch.items = t->tensors;
    for (size_t i = 0; i < n; i++) {
        const struct op *op = op_of(act->items[i].op);

        t->items[i] = (struct member_item){.op = act->items[i].op, .req = &op->req};
        t->tensors[i] = engine_batch_item(op);
    }
    return t;
}

static bool pair_is_busy(const struct transfers *all, const struct backend *b)
{
    for (size_t i = 0; i < all->n_posted; i++)
        if (all->backends[i] == b)
            return true;
    return false;
}

/* transfers_add has made room. */
static int transfer_post(struct transfers *all, struct transfer *t, struct err *err)
{
    struct backend *b = t->set->backend;

    all->posted[all->n_posted] = t;
    all->backends[all->n_posted++] = b;
    return b->ops->post(b, &t->batch, &t->ticket, err);
}

/* For one more transfer that is posted. */
static int transfers_make_room(struct transfers *all)
{
    void *posted = all->posted, *backends = all->backends;
    int rc = mem_grow(&posted, all->n, &all->posted_cap, sizeof(void *), UINT32_MAX);

    all->posted = posted;
    rc = rc < 0 ? rc
                : mem_grow(&backends, all->n, &all->backends_cap, sizeof(void *),
                           UINT32_MAX);
    all->backends = backends;
    return rc;
}

static bool act_is_whole(const struct member_act *act)
{
    for (size_t i = 0; i < act->n_items; i++)
        if (!act->items[i].op)
            return false;
    return true;
}

int transfers_add(struct engine *e,
                  const struct process_set *set,
                  const struct member_act *act,
                  bool *ret_is_ours,
                  struct err *err)
{
    struct transfers *all = &e->transfers;
    char name[NAME_SHOWN_MAX];
    struct transfer *t;

    *ret_is_ours = true;
    name_shown(act->items[0].req->name, name);
    if (!act_is_whole(act)) /* it needs both ranks, so none of them has joined */
        return err_set(err, -EPROTO, "rank %u joined before transfer %s", e->rank,
                       name);
    t = transfers_make_room(all) < 0 ? NULL : transfer_new(set, act);
    if (!t)
        return err_set(err, -ENOMEM, "rank %u is out of memory for tensor %s", e->rank,
                       name);
    *(all->tail ? &all->tail->next : &all->head) = t;
    all->tail = t;
    all->n++;
    *ret_is_ours = false;
    return observe_transfer(&e->observe, act, &t->began_ns, err);
}

/* --- driving --- */

/* Posts those whose pair is free. */
static int transfers_post_free(struct transfers *all, struct err *err)
{
    struct transfer **link = &all->head, *last = NULL, *t;
    int rc = 0;

    while (rc == 0 && (t = *link)) {
        if (pair_is_busy(all, t->set->backend)) {
            last = t;
            link = &t->next;
            continue;
        }
        *link = t->next;
        if (all->tail == t)
            all->tail = last;
        rc = transfer_post(all, t, err);
    }
    return rc;
}

static void transfer_end(struct engine *e, size_t i)
{
    struct transfers *all = &e->transfers;
    struct transfer *t = all->posted[i];
    struct member_act act = transfer_act(t);

    all->n--;
    all->n_posted--;
    for (; i < all->n_posted; i++) {
        all->posted[i] = all->posted[i + 1];
        all->backends[i] = all->backends[i + 1];
    }
    observe_transferred(&e->observe, &act, t->set->n, t->began_ns);
    autotune_batch(&e->autotune, &act);
    engine_end_ops(e, &act);
    mem_free(t);
}

/* 1: at least one has ended. */
static int transfers_poll(struct engine *e, struct err *err)
{
    struct transfers *all = &e->transfers;
    uint64_t done;
    int any = 0;

    for (size_t i = 0; i < all->n_posted;) {
        struct backend *b = all->backends[i];
        int rc = b->ops->poll(b, &done, err);

        if (rc < 0)
            return rc;
        if (done < all->posted[i]->ticket) {
            i++;
            continue;
        }
        transfer_end(e, i);
        any = 1;
    }
    return any;
}

static int transfers_await(struct transfers *all, struct err *err)
{
    const struct backend_ops *ops = all->backends[0]->ops;

    if (ops->await)
        return ops->await(all->backends, all->n_posted, err);
    (void)sched_yield();
    return 0;
}

int transfers_step(struct engine *e, struct err *err)
{
    struct transfers *all = &e->transfers;
    int rc = transfers_post_free(all, err);

    rc = rc < 0 ? rc : transfers_poll(e, err);
    return rc != 0 || all->n == 0 ? rc : transfers_await(all, err);
}

int transfers_drain(struct engine *e, struct err *err)
{
    int rc = 0;

    while (rc >= 0 && e->transfers.n > 0) {
        rc = transfers_step(e, err);
        rc = rc < 0 ? rc : engine_interrupted(e, err);
    }
    return rc < 0 ? rc : 0;
}

void transfers_drop(struct transfers *all)
{
    struct transfer *t;

    while ((t = all->head)) {
        all->head = t->next;
        mem_free(t);
    }
    while (all->n_posted > 0)
        mem_free(all->posted[--all->n_posted]);
    mem_free(all->posted);
    mem_free(all->backends);
    *all = (struct transfers){0};
}
