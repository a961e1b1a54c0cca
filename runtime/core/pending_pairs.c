/* SPDX-License-Identifier: Apache-2.0 */
/* Orders transfers so that many of them run at the same time.
 *
 * A GPU carries out answers in order, one at a time (in host memory any order will do:
 * engine/transfers.c). When all ranks shift data around a ring, transfers become ready
 * as 0 -> 1, 1 -> 2, 2 -> 3, ...; answered in this order each would wait for the one
 * before it. They are therefore put into rounds in which each rank is in at most one
 * pair: 0 -> 1, 2 -> 3, ..., then 1 -> 2, 3 -> 4, ... All transfers from one rank to
 * another go into the same round, because they can be fused. Otherwise the order is
 * that of readiness. Transfers of groups are not moved. Called by negotiate.c before it
 * answers. */
#include "runtime/core/pending_pairs.h"

#include "runtime/core/pair.h"

enum { RUN_MAX = 256 }; /* bounds the work, which grows with its square */

static bool pending_is_transfer(const struct pending *p)
{
    return p->first.coll == COLL_SENDRECV && !p->text && p->first.group == 0;
}

/* Reserves both ranks for this round. False: one of them is busy. */
static bool round_take_ranks(const struct pending *p, uint64_t *busy, uint64_t round)
{
    uint32_t ranks[2];

    pair_ranks(p->first.process_set, ranks);
    if (busy[ranks[0]] == round || busy[ranks[1]] == round)
        return false;
    busy[ranks[0]] = busy[ranks[1]] = round;
    return true;
}

/* Moves v[i] and later transfers of the same direction to ret, leaving NULL. */
static size_t
round_take_direction(struct pending **v, size_t n, size_t i, struct pending **ret)
{
    const struct tensor_request *way = &v[i]->first;
    size_t m = 0;

    for (; i < n; i++)
        if (v[i] && v[i]->first.process_set == way->process_set
            && v[i]->first.root == way->root) {
            ret[m++] = v[i];
            v[i] = NULL;
        }
    return m;
}

/* Links v[0..n) between before and behind. */
static void list_link_run(struct pending_list *l,
                          struct pending *before,
                          struct pending *behind,
                          struct pending *const *v,
                          size_t n)
{
    for (size_t i = 0; i < n; i++) {
        v[i]->prev = i == 0 ? before : v[i - 1];
        v[i]->next = i + 1 == n ? behind : v[i + 1];
    }
    *(before ? &before->next : &l->head) = v[0];
    *(behind ? &behind->prev : &l->tail) = v[n - 1];
}

void pairs_spread(struct pendings *t, uint64_t *busy)
{
    struct pending *v[RUN_MAX], *to[RUN_MAX], *before, *p = t->ready.head;
    size_t n = 0, m = 0;
    uint32_t ranks[2];

    while (p && !pending_is_transfer(p))
        p = p->next;
    before = p ? p->prev : NULL;
    for (; p && n < RUN_MAX && pending_is_transfer(p); p = p->next) {
        pair_ranks(p->first.process_set, ranks);
        busy[ranks[0]] = busy[ranks[1]] = 0;
        v[n++] = p;
    }
    for (uint64_t round = 1; m < n; round++)
        for (size_t i = 0; i < n; i++)
            if (v[i] && round_take_ranks(v[i], busy, round))
                m += round_take_direction(v, n, i, to + m);
    if (n > 1)
        list_link_run(&t->ready, before, p, to, n);
}
