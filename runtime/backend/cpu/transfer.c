/* SPDX-License-Identifier: Apache-2.0 */
/* Moves data from one member of a communicator of two to the other, in steps that do not
 * wait: a thread that polls several communicators in turn drives their transfers at the
 * same time, and none of them waits for another.
 *
 *   shared memory   chunks through the sender's two slots, as a broadcast: the sender
 *                   publishes a position when a slot is full, the receiver when it has
 *                   read it. A slot is written again when the receiver's position says
 *                   that it is free (free_at)
 *   TCP             one flow (net.c)
 *
 * A step moves one chunk or what the socket takes, so the transfers of one thread
 * progress at about the same speed.
 *
 * No deadlock. Post never waits, and poll moves what the peer's last step made possible,
 * whatever the sizes of buffers are. So two members that have posted a transfer complete
 * it if both are polled now and then, independently of all other transfers: a ring in
 * which each member sends to the next needs no order.
 *
 * Waiting is in one place (transfer_await): yield for WAIT_YIELD_NS, then check all
 * peers and sleep. With one transfer the sleep ends when its peer publishes or the
 * socket is ready; with several it lasts at most SEVERAL_NS, because a thread cannot
 * sleep on all of them. */
#include "runtime/backend/cpu/transfer.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

#include "runtime/backend/cpu/coll.h"
#include "runtime/base/clock.h"

#define SEVERAL_NS 200000ull

static struct cpu *cpu_of(struct backend *b)
{
    return (struct cpu *)b; /* b is the first member */
}

static bool is_shared(const struct cpu *c)
{
    return c->n_hosts == 1;
}

int transfer_begin(struct cpu *c, const struct batch *b, struct err *err)
{
    struct cpu_transfer *t = &c->transfer;
    int rc = coll_room(c, b->n_items, err);
    if (rc < 0)
        return rc;
    if (c->env.size != 2)
        return err_set(err, -EINVAL, "batch: SENDRECV among %u members, must be 2",
                       c->env.size);
    for (size_t i = 0; i < b->n_items; i++)
        c->pieces[i] = (struct piece){.in = b->items[i].in,
                                      .out = b->items[i].out,
                                      .n = b->items[i].count * dtype_size(b->dtype)};
    struct vec v = vec_of(c->pieces, b->n_items);
    *t = (struct cpu_transfer){.is_active = v.n_bytes > 0,
                               .sends = b->root == c->env.rank,
                               .at = cursor_at(&v),
                               .left = v.n_bytes};
    if (is_shared(c)) {
        shm_begin(&c->shm);
        t->pos = c->shm.base;
    } else if (t->sends) {
        net_queue_send(&c->net, 1 - c->net.me, &v);
    } else {
        net_queue_receive(&c->net, 1 - c->net.me, &v);
    }
    return 0;
}

/* The position of the peer at which the next chunk can be moved. */
static uint32_t transfer_awaited(const struct cpu *c)
{
    const struct cpu_transfer *t = &c->transfer;
    return t->sends ? c->shm.free_at[c->shm.turn & 1] : t->pos + 1;
}

/* False also over TCP, where only trying shows it. */
static bool transfer_can_move(const struct cpu *c)
{
    return is_shared(c) && shm_has_reached(&c->shm, 1 - c->shm.me, transfer_awaited(c));
}

static void transfer_move_chunk(struct cpu *c)
{
    struct cpu_transfer *t = &c->transfer;
    struct shm *s = &c->shm;
    unsigned turn = s->turn++ & 1;
    uint64_t m = t->left < s->h->slot_bytes ? t->left : s->h->slot_bytes;
    if (t->sends)
        shm_pack(s, &t->at, shm_slot(s, s->me, turn), m);
    else
        cursor_unpack(&t->at, shm_slot(s, 1 - s->me, turn), m);
    s->free_at[turn] = ++t->pos;
    shm_publish(s, t->pos);
    t->left -= m;
    t->has_moved = true;
    if (t->left > 0)
        return;
    shm_end(s, t->pos);
    t->is_active = false;
}

int transfer_move(struct cpu *c, struct err *err)
{
    struct cpu_transfer *t = &c->transfer;
    struct err why = ERR_INIT;
    bool moved = false;
    if (!t->is_active)
        return 0;
    if (is_shared(c)) {
        if (transfer_can_move(c))
            transfer_move_chunk(c);
        return 0;
    }
    int rc = net_run_once(&c->net, &moved, &why);
    if (rc < 0)
        return cpu_break(c, rc, &why, err);
    t->is_active = rc > 0;
    t->has_moved |= moved;
    return 0;
}

/* --- waiting --- */

/* Then all yield for a while again. */
static bool any_has_moved(struct backend *const *v, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        struct cpu_transfer *t = &cpu_of(v[i])->transfer;
        any |= t->has_moved || !t->is_active;
        if (t->has_moved)
            t->patience = (struct patience){0};
        t->has_moved = false;
    }
    for (size_t i = 0; any && i < n; i++)
        cpu_of(v[i])->transfer.yield_until_ns = 0;
    return any;
}

static bool any_can_move_soon(struct backend *const *v, size_t n)
{
    uint32_t n_spins = cpu_of(v[0])->w.n_spins, n_shared = 0;
    for (uint32_t k = 0; k <= n_spins; k++) {
        for (size_t i = 0; i < n; i++) {
            if (transfer_can_move(cpu_of(v[i])))
                return true;
            n_shared += is_shared(cpu_of(v[i]));
        }
        if (n_shared == 0)
            return false;
        cpu_relax();
    }
    return false;
}

static int transfer_check(struct cpu *c, struct err *err)
{
    struct err why = ERR_INIT;
    int rc =
        wait_check(&c->w, &c->transfer.patience, cpu_global(c, 1 - c->env.rank), &why);
    if (rc == 0 || transfer_can_move(c)) /* the peer may have published and then left */
        return 0;
    return cpu_break(c, rc, &why, err);
}

static void transfer_sleep(struct cpu *c, uint64_t ns)
{
    const struct timespec slice = clock_timespec(ns);
    if (is_shared(c))
        shm_sleep(&c->shm, 1 - c->shm.me, transfer_awaited(c), ns);
    else
        (void)ppoll(&c->net.polls[1 - c->net.me], 1, &slice, NULL); /* then try again */
}

int transfer_await(struct backend *const *v, size_t n, struct err *err)
{
    struct cpu *first = cpu_of(v[0]);
    uint64_t *until = &first->transfer.yield_until_ns;
    int rc = 0;
    if (any_has_moved(v, n) || any_can_move_soon(v, n)) {
        *until = 0;
        return 0;
    }
    if (*until == 0) {
        *until = clock_now_ns() + WAIT_YIELD_NS;
        if (is_shared(first))
            shm_wait_long(&first->shm, 1 - first->shm.me, transfer_awaited(first));
    }
    if (clock_now_ns() < *until) {
        (void)sched_yield();
        return 0;
    }
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = transfer_check(cpu_of(v[i]), err);
    if (rc == 0)
        transfer_sleep(first, n == 1 ? wait_slice_ns(&first->w) : SEVERAL_NS);
    return rc;
}
