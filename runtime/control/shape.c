/* SPDX-License-Identifier: Apache-2.0 */
/* The lowest rank of a host is its head. The heads form a K-ary tree in order of rank
 * with rank 0 on top; the other ranks of a host form one below their head. So one
 * connection per host crosses the network, no rank has more than 2 K + 1, and a message
 * comes down in at most log_K(hosts) + log_K(ranks of a host) + 2 hops.
 *
 * The next rank in order becomes a child of the first rank in the queue with fewer than
 * K children, and is appended to the queue itself. There is one queue of heads and one
 * for the ranks of each host. Hosts are found by a hash table of their names. O(ranks),
 * once per world. Used by tree.c. */
#include "runtime/control/shape.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

struct shape_queue { /* of ranks that take children; linked by an array of its own */
    uint32_t first, n_under_first, last;
};

struct shape_links { /* of one rank, while the tree is made */
    uint32_t next_on_host, next_head, next_in_slot;
    struct shape_queue host; /* where this rank is a head */
};

struct shape_builder {
    const struct control_member *members;
    uint32_t fanout, mask; /* of the hash table */
    uint32_t *slots;       /* heads by the hash of their host */
    struct shape_links *links;
    struct shape_queue heads;
};

static uint32_t shape_hash_host(const char *s)
{
    uint32_t h = 2166136261u; /* FNV-1a */

    for (; *s; s++)
        h = (h ^ (uint8_t)*s) * 16777619u;
    return h ^ h >> 15;
}

/* The head of this rank's host; the rank itself where it is the first of it. */
static uint32_t shape_find_head(struct shape_builder *m, uint32_t rank)
{
    const char *host = m->members[rank].host;
    uint32_t *slot = &m->slots[shape_hash_host(host) & m->mask];

    for (uint32_t i = *slot; i != SHAPE_NONE; i = m->links[i].next_in_slot)
        if (strcmp(m->members[i].host, host) == 0)
            return i;
    m->links[rank].next_in_slot = *slot;
    *slot = rank;
    return rank;
}

static bool shape_queue_is_full(const struct shape_builder *m,
                                const struct shape_queue *q)
{
    return q->n_under_first == m->fanout;
}

static void
shape_place_rank(struct shape_builder *m, uint32_t rank, uint32_t *ret_parent)
{
    struct shape_links *l = m->links;
    uint32_t head = shape_find_head(m, rank);
    struct shape_queue *q = head == rank ? &m->heads : &l[head].host;

    if (head == rank) {
        l[rank].host = (struct shape_queue){.first = rank, .last = rank};
        if (rank == 0) {
            m->heads = (struct shape_queue){0};
            *ret_parent = SHAPE_NONE;
            return;
        }
        if (shape_queue_is_full(m, q))
            *q = (struct shape_queue){.first = l[q->first].next_head, .last = q->last};
        l[q->last].next_head = rank;
    } else {
        if (shape_queue_is_full(m, q))
            *q = (struct shape_queue){.first = l[q->first].next_on_host,
                                      .last = q->last};
        l[q->last].next_on_host = rank;
    }
    q->last = rank;
    q->n_under_first++;
    *ret_parent = q->first;
}

int shape_init(struct tree_shape *s,
               const struct control_member *members,
               uint32_t n,
               uint32_t fanout)
{
    AUTOFREE uint32_t *slots = NULL;
    AUTOFREE struct shape_links *links = mem_calloc(n, sizeof(*links));
    AUTOFREE uint32_t *parent = mem_calloc(n, sizeof(*parent));
    struct shape_builder m = {.members = members, .fanout = fanout, .links = links};

    while (m.mask < n)
        m.mask = m.mask * 2 + 1;
    slots = mem_calloc((size_t)m.mask + 1, sizeof(*slots));
    if (!slots || !links || !parent)
        return -ENOMEM;
    memset(slots, 0xff, ((size_t)m.mask + 1) * sizeof(*slots)); /* SHAPE_NONE */
    m.slots = slots;
    for (uint32_t r = 0; r < n; r++)
        shape_place_rank(&m, r, &parent[r]);
    *s = (struct tree_shape){.n = n, .parent = TAKE(parent)};
    return 0;
}

void shape_release(struct tree_shape *s)
{
    mem_free(s->parent);
    *s = (struct tree_shape){0};
}

uint32_t
shape_children(const struct tree_shape *s, uint32_t rank, uint32_t *ret, uint32_t max)
{
    uint32_t n = 0;

    for (uint32_t r = rank + 1; r < s->n; r++) {
        if (s->parent[r] != rank)
            continue;
        if (n < max)
            ret[n] = r;
        n++;
    }
    return n;
}

uint32_t shape_depth(const struct tree_shape *s, uint32_t rank)
{
    uint32_t n = 0;

    for (; rank != 0; rank = s->parent[rank])
        n++;
    return n;
}

uint32_t shape_next(const struct tree_shape *s, uint32_t from, uint32_t to)
{
    if (from == to)
        return SHAPE_NONE;
    /* A parent is lower than its children, so the climb may stop below `from`. */
    while (to > from && s->parent[to] != from)
        to = s->parent[to];
    return to > from ? to : s->parent[from];
}

bool shape_is_under(const struct tree_shape *s, uint32_t rank, uint32_t top)
{
    while (rank > top && rank < s->n)
        rank = s->parent[rank];
    return rank == top && rank < s->n;
}
